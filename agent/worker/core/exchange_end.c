/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an exchange. The happy path: goodbye, when other ranks need no results from
 * this one; GOODBYE is sent on all links. Failure modes: each leads to exchange_fail,
 * which sends ABORT on the remaining links. Operations end only after these frames are
 * sent, since a frame that is partly sent still points into their memory. */
#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/link_queue.h"

void exchange_end_ops(struct exchange *x)
{
	struct exchange_op *op = x->first;

	x->first = x->last = NULL;
	while (op) {
		struct exchange_op *next = op->next; /* done may free op */

		if (op->residual)
			feedback_give(op->residual);
		op->done(op, &x->err);
		op = next;
	}
}

void exchange_check_ended(struct exchange *x)
{
	if (x->state != EXCHANGE_ENDING)
		return;
	for (unsigned i = 0; i < x->links_n; i++)
		if (x->links[i].state == LINK_ENDING && link_has_output(&x->links[i]))
			return;
	x->state = EXCHANGE_ENDED;
	x->links_changed = true;
	exchange_end_ops(x);
}

/* Closes the connections that were kept for the next generation. */
static void exchange_let_go(struct exchange *x, uint64_t now_ms)
{
	for (unsigned i = 0; i < x->links_n; i++) {
		struct link *l = &x->links[i];

		if (l->state != LINK_ENDING || !l->keeps)
			continue;
		l->keeps = false;
		x->links_changed = true;
		x->flush_by_ms = now_ms + LINK_FLUSH_MS;
		x->next_ms = min64(x->next_ms, x->flush_by_ms);
	}
}

/* Enters EXCHANGE_ENDING: queues a frame of this type on all links that may have joined,
 * except `from`. */
static void exchange_begin_end(struct exchange *x, enum frame_type words, const struct link *from, uint64_t now_ms)
{
	x->state = EXCHANGE_ENDING;
	x->flush_by_ms = now_ms + LINK_FLUSH_MS;
	x->next_ms = min64(x->next_ms, x->flush_by_ms);
	x->links_changed = true;
	for (unsigned i = 0; i < x->links_n; i++) {
		struct link *l = &x->links[i];

		for (unsigned p = 0; p < LINK_STREAMS; p++)
			l->streams[p].op = NULL;
		l->view_due = l->settle_due = l->ping_due = false;
		l->keeps &= words == FRAME_ABORT && l->open && !x->leaving;
		if (l->state == LINK_LEAVING) {
			l->state = LINK_ENDING; /* its ABORT is queued already */
			continue;
		}
		if ((l == from && !l->keeps) || l->state < LINK_HANDSHAKE || l->state > LINK_RUNNING) {
			l->state = LINK_CLOSED;
			continue;
		}
		l->state = LINK_ENDING;
		if (l->keeps)
			link_turn_stale(l);
		if (l == from)
			continue; /* the reducer has ended the generation itself */
		if (words == FRAME_ABORT)
			link_queue_abort(l, &x->abort_reason, &x->abort_cause);
		else
			link_queue_empty(l, words);
	}
	exchange_check_ended(x);
}

void exchange_fail(struct exchange *x, const struct rs_err *why, bool local, struct link *from, uint64_t now_ms)
{
	exchange_fail_because(x, why, &(struct rs_cause){.code = why->code}, local, from, now_ms);
}

void exchange_fail_because(struct exchange *x, const struct rs_err *why, const struct rs_cause *cause, bool local,
			   struct link *from, uint64_t now_ms)
{
	if (x->state >= EXCHANGE_ENDING)
		return;
	x->err = *why;
	x->abort_reason = *why;
	x->abort_cause = *cause;
	if (local)
		rs_wrap(&x->abort_reason, "rank %u", x->opt.rank);
	exchange_begin_end(x, FRAME_ABORT, from, now_ms);
}

void exchange_abort(struct exchange *x, int code, const char *message, uint64_t now_ms)
{
	struct rs_err e;

	rs_fail(&e, code, "%s", message);
	exchange_fail(x, &e, false, NULL, now_ms);
}

void exchange_goodbye(struct exchange *x, uint64_t now_ms)
{
	char text[160];

	if (x->state >= EXCHANGE_ENDING) {
		exchange_let_go(x, now_ms);
		return;
	}
	if (x->leaving)
		return;
	if (x->retaining && !x->opt.single_worker && x->state == EXCHANGE_RUNNING && !x->first &&
	    x->stable < x->next_seq) {
		/* other ranks may still need results from this one */
		x->leaving = x->links_changed = true;
		for (unsigned i = 0; i < x->links_n; i++)
			x->links[i].settle_due = link_lives(&x->links[i]);
		return;
	}
	if (x->first)
		rs_fail(&x->err, RS_ECLOSED, "the communicator was closed before %s was done",
			op_text(x->first, text, sizeof text));
	exchange_begin_end(x, FRAME_GOODBYE, NULL, now_ms);
}

void exchange_raise_stable(struct exchange *x, uint64_t stable, uint64_t now_ms)
{
	if (stable <= x->stable)
		return;
	x->stable = stable;
	if (x->leaving && x->state == EXCHANGE_RUNNING && stable >= x->next_seq)
		exchange_begin_end(x, FRAME_GOODBYE, NULL, now_ms);
}
