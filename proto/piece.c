/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/piece.h"

enum { TAG_DATA = 1 << 3 | 2 /* field 1, a length and as many bytes */ };

unsigned piece_head(uint8_t out[PIECE_HEAD_MAX], uint32_t len)
{
	unsigned n = 0;

	out[n++] = TAG_DATA;
	for (; len > 0x7f; len >>= 7)
		out[n++] = (uint8_t)(len | 0x80);
	out[n++] = (uint8_t)len;
	return n;
}

int piece_parse(const uint8_t *in, size_t have, size_t message)
{
	uint64_t len = 0;

	if (have < 1)
		return 0;
	if (in[0] != TAG_DATA)
		return -1;
	for (unsigned i = 1; i < PIECE_HEAD_MAX; i++) {
		if (have <= i)
			return 0;
		len |= (uint64_t)(in[i] & 0x7f) << (7 * (i - 1));
		if (!(in[i] & 0x80))
			return len == message - i - 1 ? (int)i + 1 : -1;
	}
	return -1;
}
