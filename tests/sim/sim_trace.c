/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of a run, one line for each event. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

void trace(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->trace)
		return;
	fprintf(s->trace, "%12.3f ms  ", (double)s->now_us / 1000);
	va_start(ap, fmt);
	vfprintf(s->trace, fmt, ap);
	va_end(ap);
	putc('\n', s->trace);
}

static void name_end(const struct conn *c, enum side side, char *buf, size_t size)
{
	if (side == REDUCER)
		snprintf(buf, size, "r%u", c->reducer->index);
	else if (c->rank)
		snprintf(buf, size, "%s rank %u", c->rank->team->job, c->rank->index);
	else
		snprintf(buf, size, "an unauthenticated peer");
}

static void frame_begins(struct conn *c, enum side from)
{
	struct stream *st = &c->to[!from];
	char a[40], b[40];
	struct frame f;
	struct rs_err e;

	name_end(c, from, a, sizeof a);
	name_end(c, !from, b, sizeof b);
	if (frame_decode(st->header, &f, &e)) {
		trace(c->sim, "%s -> %s (%u): no frame", a, b, c->id);
		return;
	}
	st->payload_left = f.payload_len;
	if (f.type == FRAME_DATA || f.type == FRAME_RESULT)
		trace(c->sim,
		      "%s -> %s (%u): %s of chunk %u of operation %" PRIu64
		      ", %u bytes, flags 0x%x, priority %u, ack %" PRIu64,
		      a, b, c->id, frame_type_name(f.type), f.chunk, f.of.seq, f.payload_len, f.flags, f.of.priority,
		      f.ack);
	else
		trace(c->sim, "%s -> %s (%u): %s", a, b, c->id, frame_type_name(f.type));
}

void trace_bytes(struct conn *c, enum side from, const uint8_t *bytes, size_t n)
{
	struct stream *st = &c->to[!from];

	if (!c->sim->trace)
		return;
	while (n > 0) {
		size_t want = st->payload_left ? st->payload_left : FRAME_HEADER - st->header_have;
		size_t take = n < want ? n : want;

		if (st->payload_left) {
			st->payload_left -= (uint32_t)take;
		} else {
			memcpy(st->header + st->header_have, bytes, take);
			st->header_have += (unsigned)take;
			if (st->header_have == FRAME_HEADER) {
				st->header_have = 0;
				frame_begins(c, from);
			}
		}
		bytes += take;
		n -= take;
	}
}
