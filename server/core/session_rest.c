/* SPDX-License-Identifier: Apache-2.0 */
/* What comes on a connection behind the end of its session. */
#include "server/core/session_rest.h"

#include <string.h>

/* A header has come behind the end of the session. */
static void session_discard_header(struct session *s)
{
	s->raw_have = 0;
	s->pos = 0;
	if (frame_decode(s->raw, &s->in, NULL)) {
		s->keeps = false; /* nobody knows where the next frame begins */
		return;
	}
	s->payload_left = s->in.payload_len;
	s->mode = s->in.type == FRAME_HELLO ? RX_HELLO : RX_CONTROL;
}

void session_discard(struct session *s, const uint8_t *at, size_t n)
{
	while (n && s->keeps) {
		size_t part = s->payload_left ? s->payload_left : FRAME_HEADER - s->raw_have;

		part = n < part ? n : part;
		if (!s->payload_left && s->mode == RX_HELLO) {
			s->keeps = false; /* a worker waits for the answer to HELLO */
		} else if (s->payload_left) {
			if (s->mode == RX_HELLO)
				memcpy(s->control_in + s->pos, at, part);
			s->pos += (uint32_t)part;
			s->payload_left -= (uint32_t)part;
		} else {
			memcpy(s->raw + s->raw_have, at, part);
			s->raw_have += (unsigned)part;
			if (s->raw_have == FRAME_HEADER)
				session_discard_header(s);
		}
		at += part;
		n -= part;
	}
}

void session_take_rest(const struct session *s, struct frame_rest *ret)
{
	bool hello = s->mode == RX_HELLO;

	ret->skip = hello ? 0 : s->payload_left;
	ret->have = hello ? FRAME_HEADER + s->pos : s->raw_have;
	memcpy(ret->bytes, s->raw, FRAME_HEADER);
	if (hello)
		memcpy(ret->bytes + FRAME_HEADER, s->control_in, s->pos);
}
