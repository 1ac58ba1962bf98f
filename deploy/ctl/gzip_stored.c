/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/gzip.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { STORED_MAX = 65535 /* bytes in a stored block, RFC 1951 */ };

/* sum and size: the CRC-32, inverted, and the number of all bytes so far. failed: nothing
 * is written any more. */
struct gzip {
	int fd;
	uint32_t sum, size;
	bool failed;
};

static void send_all(struct gzip *g, const void *bytes, size_t n)
{
	const char *at = bytes;

	while (n > 0 && !g->failed) {
		ssize_t sent = write(g->fd, at, n);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0) {
			g->failed = true;
			return;
		}
		at += sent;
		n -= (size_t)sent;
	}
}

static void send_block(struct gzip *g, bool last, const void *bytes, unsigned n)
{
	unsigned char head[] = {last, n & 255, n >> 8, ~n & 255, ~n >> 8 & 255};

	send_all(g, head, sizeof head);
	send_all(g, bytes, n);
}

struct gzip *gzip_open(int fd)
{
	static const unsigned char head[10] = {0x1f, 0x8b, 8 /* deflate */, [9] = 3 /* Unix */};
	struct gzip *g = calloc(1, sizeof *g);

	if (!g)
		return NULL;
	g->fd = fd;
	g->sum = UINT32_MAX;
	send_all(g, head, sizeof head);
	return g;
}

static uint32_t crc32_of(uint32_t sum, const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		sum ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
	}
	return sum;
}

bool gzip_write(struct gzip *g, const void *bytes, size_t n)
{
	const unsigned char *at = bytes;

	g->sum = crc32_of(g->sum, at, n);
	g->size += (uint32_t)n;
	while (n > 0) {
		unsigned now = n < STORED_MAX ? (unsigned)n : STORED_MAX;

		send_block(g, false, at, now);
		at += now;
		n -= now;
	}
	return !g->failed;
}

bool gzip_close(struct gzip *g)
{
	unsigned char tail[8];
	bool whole;

	for (int i = 0; i < 4; i++) {
		tail[i] = ~g->sum >> 8 * i & 255;
		tail[4 + i] = g->size >> 8 * i & 255;
	}
	send_block(g, true, "", 0);
	send_all(g, tail, sizeof tail);
	whole = close(g->fd) == 0 && !g->failed;
	free(g);
	return whole;
}
