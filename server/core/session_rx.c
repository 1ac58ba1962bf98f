/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving side of a session. The happy path: session_header_complete() checks a
 * frame and finds the slot of a contribution -> the payload is received into the
 * accumulator, or added to it through the scratch -> contribution_complete(). Frames that
 * arrive in the same system call are processed from the read-ahead buffer.
 *
 * Failure modes: the frame breaks the protocol, or disagrees with another rank:
 * session_fail(). */
#include "proto/control.h"
#include "proto/operation.h"
#include "server/core/contribution.h"
#include "server/core/retained.h"
#include "server/core/session_control.h"
#include "server/core/session_fail.h"
#include "server/core/session_rest.h"
#include "server/core/stripe_depart.h"
#include "server/core/stripe_fail.h"
#include "server/core/stripe_late.h"
#include "server/core/stripe_load.h"
#include "server/core/stripe_nonfinite.h"
#include "server/core/stripe_stable.h"
#include "server/core/stripe_view.h"

#include <inttypes.h>
#include <string.h>

/* Says where the rest of a contribution goes while it is added. Bytes go straight into
 * the accumulator where no other rank has written yet. Otherwise they go into the
 * scratch, behind the first bytes of a split element. */
static struct iovec session_add_target(struct session *s)
{
	struct slot *slot = s->slot;
	uint8_t *at = s->stripe->owner->scratch;
	size_t room = LANE_SCRATCH - s->carry_n;

	s->target_direct = s->input.direct && s->pos == slot->filled;
	if (s->target_direct) {
		at = slot->acc + s->pos * s->input.size;
		room = s->payload_left;
	}
	memcpy(at, s->carry, s->carry_n);
	s->target_len = s->payload_left < room ? s->payload_left : room;
	return (struct iovec){at + s->carry_n, s->target_len};
}

static uint8_t *session_stash_of(const struct session *s)
{
	/* without groups that of rank 0 goes into the accumulator */
	unsigned at = stripe_is_grouped(s->stripe) ? contribution_stash(s->stripe, s) : s->rank - 1;

	return s->slot->stash + at * s->stripe->stash_stride;
}

/* Returns where a payload that is not added begins. */
static uint8_t *session_whole_target(struct session *s)
{
	if (s->mode == RX_CONTROL)
		return s->control_in;
	return s->mode == RX_RETAINED ? s->slot->acc : session_stash_of(s);
}

static struct iovec session_payload_target(struct session *s)
{
	uint8_t *at;

	if (s->mode == RX_ADD)
		return session_add_target(s);
	if (s->mode == RX_PROBE || s->mode == RX_SKIP) {
		s->target_len = s->payload_left < LANE_SCRATCH ? s->payload_left : LANE_SCRATCH;
		return (struct iovec){s->stripe->owner->scratch, s->target_len};
	}
	s->target_len = s->payload_left;
	at = session_whole_target(s);
	return (struct iovec){at + s->pos, s->payload_left};
}

unsigned session_recv_target(struct session *s, struct iovec iov[2])
{
	unsigned n = 0;

	s->target_len = 0;
	if (s->lost)
		return 0;
	if (s->draining) {
		iov[0] = (struct iovec){s->stripe->owner->scratch, LANE_SCRATCH};
		return 1;
	}
	if (s->payload_left)
		iov[n++] = session_payload_target(s);
	/* The next frames come with the same system call. That costs a copy of the few
	 * payloads that would otherwise go straight into an accumulator, and saves calls:
	 * 8 ranks need 0.5 calls for each chunk instead of 1.25. */
	if (s->target_len == s->payload_left)
		iov[n++] = (struct iovec){s->stripe->owner->ahead, LANE_AHEAD};
	return n;
}

/* Adds the whole units of `have` bytes at `at`, and keeps the rest. last: the payload
 * ends with them, so that the rest is a unit too. */
static void session_add_units(struct session *s, const uint8_t *at, size_t have, bool last)
{
	struct slot *slot = s->slot;
	size_t rest = last ? 0 : have % s->input.size;
	uint32_t elems = last ? slot->elems - s->pos : (uint32_t)(have / s->input.size) * s->input.elems;

	if (s->target_direct)
		slot->filled = s->pos + elems;
	else
		slot_add(slot, s->stripe->owner->opt.kernels, s->pos, at, elems, s->in.flags & FRAME_WIDE);
	s->pos += elems;
	s->carry_n = (unsigned)rest;
	memcpy(s->carry, at + have - rest, rest);
}

static void session_add_received(struct session *s, size_t n)
{
	const uint8_t *at = s->target_direct ? s->slot->acc + s->pos * s->input.size : s->stripe->owner->scratch;

	session_add_units(s, at, s->carry_n + n, n == s->payload_left);
}

/* Remembers the slot of the current frame for session_worked. */
static void session_touch_slot(struct session *s)
{
	if (s->mode == RX_CONTROL || s->mode == RX_PROBE || s->mode == RX_SKIP || s->worked_n == SESSION_WORKED)
		return;
	if (!s->worked_n || s->worked[s->worked_n - 1] != s->slot)
		s->worked[s->worked_n++] = s->slot;
}

static void session_contribution_complete(struct session *s)
{
	struct rs_err e;
	char name[160];

	if (s->in.flags & FRAME_CHECKED && s->in.payload_len &&
	    (uint32_t)XXH3_64bits_digest(s->sum) != s->in.payload_sum) {
		rs_fail(&e, RS_EPROTO, "the checksum of %s's chunk %u of operation %" PRIu64 " is wrong",
			stripe_rank_name(s->stripe, s->rank, name, sizeof name), s->in.chunk, s->in.of.seq);
		session_fail(s, &e);
		return;
	}
	if (s->mode == RX_RETAINED)
		retained_received(s->stripe, s->slot);
	else if (contribution_complete(s->stripe, s->slot, s->rank, &e))
		session_fail(s, &e);
	else if (s->stripe->credits && !s->relay)
		session_added(s, s->in.of.priority);
}

static void session_answer_probe(struct session *s)
{
	s->probe = SESSION_PROBE_ANSWER;
	s->echo_off = 0;
	s->echo_len = FRAME_HEADER + s->in.payload_len;
	session_ready(s);
}

static void session_payload_complete(struct session *s)
{
	struct rs_err e;
	char name[160];

	if (s->mode == RX_SKIP) {
		return;
	} else if (s->mode == RX_PROBE) {
		session_answer_probe(s);
	} else if (s->mode != RX_CONTROL) {
		session_contribution_complete(s);
	} else if (!control_intact(&s->in, s->control_in)) {
		rs_fail(&e, RS_EPROTO, "the checksum of %s's %s frame is wrong",
			stripe_rank_name(s->stripe, s->rank, name, sizeof name), frame_type_name(s->in.type));
		session_fail(s, &e);
	} else if (s->in.type == FRAME_ABORT) {
		session_take_abort(s);
	} else if (s->in.type == FRAME_VIEW) {
		session_take_view(s);
	} else if ((s->in.type == FRAME_LATE && stripe_hear_late(s->stripe, s, &e)) ||
		   (s->in.type == FRAME_NONFINITE && stripe_take_nonfinite(s, &e)) ||
		   (s->in.type == FRAME_LOAD && stripe_take_load(s, &e))) {
		session_fail(s, &e);
	}
}

/* Returns the number of chunks without a result that the rank may not exceed if it may
 * not start one more of this priority; 0: it may. This is less strict than the rule of
 * the worker, because urgent chunks can overtake a chunk that has a place in the window.
 * The first bound keeps the number of slots; the second one follows from the rule of the
 * worker. */
static unsigned session_window_passed(const struct session *s, const struct session_stream *t)
{
	const struct stripe_params *p = &s->stripe->p;
	unsigned all = p->window + (p->priorities - 1) * frame_reserve(p->window);

	if (t->outstanding >= p->window)
		return p->window;
	return s->outstanding >= all ? all : 0;
}

/* Checks that a contribution may start now. */
static int session_check_window(struct session *s, struct rs_err *e)
{
	struct stripe *st = s->stripe;
	const struct session_stream *t = &s->streams[s->in.of.priority];
	unsigned passed = session_window_passed(s, t);
	char name[160];

	if (!st->running)
		return rs_fail(e, RS_EPROTO, "%s sent DATA before START",
			       stripe_rank_name(st, s->rank, name, sizeof name));
	if (st->departed && !stripe_is_over(st, &s->in, s->view))
		return rs_fail(e, RS_ECLOSED, "%s closed the communicator before operation %" PRIu64,
			       stripe_rank_name(st, st->departed_rank, name, sizeof name), s->in.of.seq);
	if (s->paused)
		return rs_fail(e, RS_EPROTO, "%s sent a chunk between VIEW and RESUME",
			       stripe_rank_name(st, s->rank, name, sizeof name));
	if (passed)
		return rs_fail(e, RS_EPROTO, "%s has more than %u chunks without a result",
			       stripe_rank_name(st, s->rank, name, sizeof name), passed);
	if (s->in.of.seq < t->next_seq || (s->in.of.seq == t->next_seq && s->in.chunk < t->next_chunk))
		return rs_fail(e, RS_EPROTO,
			       "%s sent chunk %u of operation %" PRIu64
			       " out of order or twice: its last one was chunk %" PRIu64 " of operation %" PRIu64,
			       stripe_rank_name(st, s->rank, name, sizeof name), s->in.chunk, s->in.of.seq,
			       t->next_chunk - 1, t->next_seq);
	return RS_OK;
}

/* Notes the size of the operation for lane_arrivals(). */
static void session_note_arrival(struct lane *l, const struct frame *f)
{
	if (!operation_is_small(&f->of))
		l->arrived = LANE_ARRIVED_LARGE;
	else if (l->arrived == LANE_ARRIVED_NOTHING)
		l->arrived = LANE_ARRIVED_SMALL;
}

static void session_begin_contribution(struct session *s)
{
	struct stripe *st = s->stripe;
	struct session_stream *t = &s->streams[s->in.of.priority];
	struct rs_err e;

	if (session_check_window(s, &e) || contribution_begin(st, &s->in, s->rank, &s->slot, &e)) {
		session_fail(s, &e);
		return;
	}
	s->outstanding++;
	t->outstanding++;
	t->started++;
	t->next_seq = s->in.of.seq;
	t->next_chunk = (uint64_t)s->in.chunk + 1;
	s->input = slot_input_of(s->slot, s->in.flags & FRAME_WIDE);
	stripe_trace(st, TRACE_BEGUN, s->slot, s->rank, s->in.payload_len);
	s->mode = st->p.deterministic && (s->rank > 0 || stripe_is_grouped(st)) && s->in.of.op != FRAME_OP_BROADCAST
		      ? RX_STASH
		      : RX_ADD;
	if (!s->relay)
		stripe_acked(st, s, s->in.ack);
	session_note_arrival(st->owner, &s->in);
	if (s->in.flags & FRAME_CHECKED)
		XXH3_64bits_reset(s->sum);
}

/* Starts to receive KEPT, a retained result that this rank was asked for. */
static void session_begin_retained(struct session *s)
{
	struct stripe *st = s->stripe;
	struct rs_err e;
	char name[160];
	uint32_t want;

	s->slot = s->paused ? NULL : retained_fetched_slot(st, &s->in, s->rank);
	want = s->slot ? operation_down_bytes(&s->slot->header.of, s->slot->elems) : 0;
	if (!s->slot || s->in.payload_len != want || (st->p.checksum && want && !(s->in.flags & FRAME_CHECKED))) {
		rs_fail(&e, RS_EPROTO,
			"%s sent %u bytes (flags 0x%x) as the result of chunk %u of operation %" PRIu64
			", which was not asked for",
			stripe_rank_name(st, s->rank, name, sizeof name), s->in.payload_len, s->in.flags, s->in.chunk,
			s->in.of.seq);
		session_fail(s, &e);
		return;
	}
	s->mode = RX_RETAINED;
	if (s->in.flags & FRAME_CHECKED)
		XXH3_64bits_reset(s->sum);
}

/* Checks the generation, which only frames with chunks have. */
static bool session_check_generation(struct session *s)
{
	struct rs_err e;
	char name[160];

	if (s->in.generation == s->stripe->p.generation)
		return true;
	rs_fail(&e, RS_EPROTO, "%s sent a frame of generation %u in generation %u",
		stripe_rank_name(s->stripe, s->rank, name, sizeof name), s->in.generation, s->stripe->p.generation);
	session_fail(s, &e);
	return false;
}

/* Returns whether a contribution of an uplink belongs to an earlier view, whose chunks
 * are forgotten. */
static bool session_skips(struct session *s)
{
	if (s->stripe->running && !s->paused && s->view == s->stripe->resumed_view)
		return false;
	s->mode = RX_SKIP;
	return true;
}

static void session_refuse_type(struct session *s)
{
	struct rs_err e;
	char name[160];

	rs_fail(&e, RS_EPROTO, "%s sent a %s frame, which only a reducer or a new connection sends",
		stripe_rank_name(s->stripe, s->rank, name, sizeof name), frame_type_name(s->in.type));
	session_fail(s, &e);
}

/* Returns whether this job's ranks, or uplinks, may send a frame of this type. */
static bool session_expects_control(const struct session *s)
{
	if (s->relay)
		return s->in.type == FRAME_VIEW;
	switch (s->in.type) {
	case FRAME_VIEW:
		return s->stripe->p.retain;
	case FRAME_NONFINITE:
		return stripe_hears_nonfinite(s->stripe);
	default:
		return stripe_hears_load(s->stripe);
	}
}

/* Limits frames without a chunk, which cost their sender nothing and are not bounded by a
 * window. */
static bool session_check_flood(struct session *s)
{
	struct rs_err e;
	char name[160];

	if (s->in.type == FRAME_DATA || s->in.type == FRAME_HAVE || s->in.type == FRAME_KEPT ||
	    ++s->controls <= SESSION_CONTROLS)
		return true;
	rs_fail(&e, RS_EPROTO, "%s sent more than %d control frames within %d ms, the last one %s",
		stripe_rank_name(s->stripe, s->rank, name, sizeof name), SESSION_CONTROLS, LANE_TICK_MS,
		frame_type_name(s->in.type));
	session_fail(s, &e);
	return false;
}

/* PING: reports that the rank is alive, if it answers the last question. */
static void session_answered(struct session *s)
{
	struct lane *l = s->stripe->owner;
	struct lane_event ev = {
	    .type = LANE_ANSWERED,
	    .job = s->stripe->p.job,
	    .rank = s->rank,
	    .lane = s->stripe->p.lane,
	    .question = s->asked,
	};

	if (!s->asked || s->in.of.count < s->asked)
		return;
	s->asked = 0;
	l->opt.event(l->opt.ctx, &ev);
}

void session_report_proven(struct session *s)
{
	const struct lane_event ev = {
	    .type = LANE_PROVEN, .job = s->stripe->p.job, .rank = s->rank, .lane = s->stripe->p.lane};

	s->stripe->owner->opt.event(s->stripe->owner->opt.ctx, &ev);
}

/* PROBE: a chunk that comes, or the news that the answer has arrived. */
static void session_take_probe(struct session *s)
{
	uint32_t len = s->in.payload_len;
	struct rs_err e;
	char name[160];

	if (s->probe == SESSION_PROBE_WAITS && len == s->stripe->p.chunk_bytes && !s->in.flags) {
		s->mode = RX_PROBE;
	} else if (s->probe == SESSION_PROBE_SENT && !len) {
		s->probe = SESSION_PROBE_DONE;
		session_report_proven(s);
	} else {
		rs_fail(&e, RS_EPROTO, "%s sent a PROBE frame with %u payload bytes, which was not asked for",
			stripe_rank_name(s->stripe, s->rank, name, sizeof name), len);
		session_fail(s, &e);
	}
}

static void session_header_complete(struct session *s)
{
	struct rs_err e;
	char name[160];

	s->raw_have = 0;
	if (frame_decode(s->raw, &s->in, &e)) {
		rs_wrap(&e, "%s", stripe_rank_name(s->stripe, s->rank, name, sizeof name));
		session_fail(s, &e);
		return;
	}
	if (!session_check_flood(s))
		return;
	s->payload_left = s->in.payload_len;
	s->mode = RX_CONTROL;
	s->pos = 0;
	s->carry_n = 0;
	switch (s->in.type) {
	case FRAME_DATA:
	case FRAME_HAVE:
		if (s->relay && session_skips(s))
			break;
		if (!(s->in.flags & FRAME_RELAY) && !session_check_generation(s))
			return;
		session_begin_contribution(s);
		break;
	case FRAME_KEPT:
		if (!session_check_generation(s))
			return;
		session_begin_retained(s);
		break;
	case FRAME_PING:
		session_answered(s);
		if (s->stripe->running && !s->relay)
			stripe_acked(s->stripe, s, s->in.ack);
		break;
	case FRAME_SETTLE:
		if (s->stripe->running && !s->relay) {
			stripe_acked(s->stripe, s, s->in.ack);
			stripe_request_stable(s->stripe, s);
		}
		break;
	case FRAME_LATE:
		if (s->relay && session_skips(s))
			break;
		if (!s->relay) {
			session_refuse_type(s);
			return;
		}
		break;
	case FRAME_VIEW:
	case FRAME_NONFINITE:
	case FRAME_LOAD:
		if (!session_expects_control(s)) {
			session_refuse_type(s);
			return;
		}
		break;
	case FRAME_PROBE:
		session_take_probe(s);
		break;
	case FRAME_ABORT:
		break;
	case FRAME_GOODBYE:
		session_take_goodbye(s);
		return;
	default:
		session_refuse_type(s);
		return;
	}
	if (!s->payload_left && !s->draining)
		session_payload_complete(s);
}

static void session_payload_received(struct session *s, size_t n)
{
	session_touch_slot(s);
	if (s->in.flags & FRAME_CHECKED && s->mode != RX_CONTROL && s->mode != RX_SKIP) {
		const uint8_t *at = s->mode != RX_ADD  ? session_whole_target(s) + s->pos
				    : s->target_direct ? s->slot->acc + s->pos * s->input.size + s->carry_n
						       : s->stripe->owner->scratch + s->carry_n;

		XXH3_64bits_update(s->sum, at, n);
	}
	if (s->mode == RX_ADD)
		session_add_received(s, n);
	else
		s->pos += (uint32_t)n;
	s->payload_left -= (uint32_t)n;
	if (!s->payload_left)
		session_payload_complete(s);
}

/* Processes the first n bytes of a payload that came together with its header. */
static void session_payload_ahead(struct session *s, const uint8_t *at, uint32_t n)
{
	session_touch_slot(s);
	if (s->in.flags & FRAME_CHECKED && s->mode != RX_CONTROL && s->mode != RX_SKIP)
		XXH3_64bits_update(s->sum, at, n);
	if (s->mode == RX_ADD) {
		s->target_direct = false;
		session_add_units(s, at, n, n == s->payload_left);
	} else if (s->mode != RX_PROBE && s->mode != RX_SKIP) {
		memcpy(session_whole_target(s), at, n);
		s->pos = n;
	}
	s->payload_left -= n;
	if (!s->payload_left)
		session_payload_complete(s);
}

/* Processes n bytes of the read-ahead buffer: headers and payloads in turn, from the
 * middle of a header if raw_have is not 0. */
static void session_ahead_received(struct session *s, size_t n)
{
	const uint8_t *at = s->stripe->owner->ahead;

	while (n && !s->draining) {
		size_t part = s->payload_left ? s->payload_left : FRAME_HEADER - s->raw_have;

		part = n < part ? n : part;
		if (s->payload_left) {
			session_payload_ahead(s, at, (uint32_t)part);
		} else {
			memcpy(s->raw + s->raw_have, at, part);
			s->raw_have += (unsigned)part;
			if (s->raw_have == FRAME_HEADER)
				session_header_complete(s);
		}
		at += part;
		n -= part;
	}
	session_discard(s, at, n);
}

void session_received(struct session *s, size_t n, uint64_t now_ms)
{
	size_t payload = n < s->target_len ? n : s->target_len;

	s->stripe->owner->now_ms = now_ms;
	if (s->stripe->trace.to)
		s->stripe->trace.to->mark = s->stripe->trace.to->n;
	s->worked_n = 0;
	s->last_rx_ms = now_ms;
	s->stopped = false;
	s->count.bytes_in += n;
	if (s->draining)
		return session_discard(s, s->stripe->owner->scratch, n);
	if (payload)
		session_payload_received(s, payload);
	if (n > payload)
		session_ahead_received(s, n - payload);
}
