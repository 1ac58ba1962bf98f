/* SPDX-License-Identifier: Apache-2.0 */
/* Time: heartbeats, silent peers, and the timeouts of joining, of operations and of the
 * end. */
#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/link_fail.h"
#include "agent/worker/core/link_queue.h"
#include "agent/worker/core/nonfinite.h"
#include "agent/worker/core/rebalance.h"
#include "agent/worker/core/view.h"

#include <stdatomic.h>
#include <stdio.h>

/* Sends a heartbeat if it is due and ends a silent link. Returns the time at which the
 * link is due again. */
static uint64_t exchange_tick_link(struct link *l, uint64_t now_ms)
{
	uint32_t detect_ms = l->x->params->detect_ms;
	uint64_t ping_ms = min64(l->peer_detect_ms / 4, CONTROL_PING_MS);
	char text[64];

	switch (l->state) {
	case LINK_WAITING:
		if (l->open)
			return UINT64_MAX;
		if (now_ms < l->retry_ms)
			return l->retry_ms;
		l->x->links_changed = true;
		return now_ms + LINK_RETRY_MIN_MS; /* the driver may still be closing the previous attempt */
	case LINK_CONNECTING:
	case LINK_HANDSHAKE:
		if (now_ms - l->since_ms < detect_ms)
			return l->since_ms + detect_ms;
		snprintf(text, sizeof text, "no answer within %u ms", detect_ms);
		l->busy = false;
		link_join_failed(l, text, RS_LOSS_SILENT, now_ms);
		return l->retry_ms;
	case LINK_JOINED:
	case LINK_RUNNING:
		if (now_ms - l->last_rx_ms >= detect_ms) {
			snprintf(text, sizeof text, "nothing was heard from it for %u ms", detect_ms);
			link_lost(l, &(struct loss){.why = text, .how = RS_LOSS_SILENT}, now_ms);
			return l->x->retaining ? l->retry_ms : UINT64_MAX;
		}
		if (now_ms - l->last_tx_ms >= ping_ms) {
			l->last_tx_ms = now_ms;
			l->x->links_changed = true;
			l->ping_due |= !link_has_output(l);
		}
		return min64(l->last_rx_ms + detect_ms, l->last_tx_ms + ping_ms);
	case LINK_LEAVING:
		if (now_ms - l->since_ms >= LINK_FLUSH_MS)
			link_retry(l, now_ms);
		if (l->keeps && now_ms - l->since_ms >= LINK_REST_MS) {
			l->keeps = false;
			l->x->links_changed = true;
		}
		return l->state != LINK_LEAVING ? l->retry_ms : l->since_ms + (l->keeps ? LINK_REST_MS : LINK_FLUSH_MS);
	default:
		return UINT64_MAX;
	}
}

/* In state JOINING or RUNNING: ticks all links. Returns the time at which the next link
 * is due. */
static uint64_t exchange_tick_links(struct exchange *x, uint64_t now_ms)
{
	uint64_t late_ms = now_ms > x->armed_ms ? now_ms - x->armed_ms : 0;
	uint64_t due = UINT64_MAX;

	if (late_ms >= x->params->detect_ms / 2)
		x->woke_ms = now_ms;
	for (unsigned i = 0; i < x->links_n && x->state < EXCHANGE_ENDING; i++) {
		/* the time in which this process did not run does not count as silence of
		 * the peers */
		x->links[i].last_rx_ms += min64(late_ms, now_ms - x->links[i].last_rx_ms);
		due = min64(due, exchange_tick_link(&x->links[i], now_ms));
	}
	return due;
}

/* Returns whether the link has something to do before it is at rest. */
static bool exchange_link_ends(const struct link *l)
{
	return l->state == LINK_ENDING && (!l->keeps || link_has_output(l));
}

static void exchange_tick_end(struct exchange *x, uint64_t now_ms)
{
	bool open = false;

	/* this process did not run meanwhile: its peers have waited, and need the
	 * reason */
	if (now_ms >= x->flush_by_ms + LINK_FLUSH_MS / 2 && x->flush_by_ms)
		x->flush_by_ms = now_ms + LINK_FLUSH_MS;
	if (now_ms >= x->flush_by_ms)
		for (unsigned i = 0; i < x->links_n; i++)
			if (exchange_link_ends(&x->links[i])) {
				x->links[i].state = LINK_CLOSED;
				x->links_changed = true;
			}
	exchange_check_ended(x);
	for (unsigned i = 0; i < x->links_n; i++)
		open |= exchange_link_ends(&x->links[i]);
	x->next_ms = open ? x->flush_by_ms : UINT64_MAX;
}

/* Returns whether an operation waits for its submitter: all chunks that are ready have
 * their results. A ring is ready only as far as results make room, so it must not count
 * as the submitter's delay that other ranks are late. */
static bool exchange_op_starves(const struct exchange_op *op)
{
	uint64_t ready, stride = operation_stride(&op->of, op->chunk_elems);

	if (!op->ready)
		return false;
	ready = atomic_load_explicit(op->ready, memory_order_relaxed);
	return ready < operation_staged(&op->of, op->chunk_elems) && op->chunks - op->chunks_left >= ready / stride;
}

/* Returns the deadline of the oldest operation; UINT64_MAX: none. While an operation
 * waits for its submitter, the submitter watches it: that knows which local rank is
 * late. */
static uint64_t exchange_op_deadline(const struct exchange *x, uint64_t now_ms)
{
	const struct exchange_op *op = x->first;
	uint32_t op_ms = x->params->op_ms;

	if (!op_ms || !op)
		return UINT64_MAX;
	if (exchange_op_starves(op))
		return now_ms + op_ms;
	return op->started_ms + op_ms;
}

/* Says for whom the exchange waits: after 3 s, 6 s, 12 s, ..., then every minute; and
 * when a rank was refused. */
static void exchange_report_waiting(struct exchange *x, uint64_t now_ms)
{
	uint64_t waited_ms = now_ms - x->opened_ms;
	char text[480];

	x->report_ms = now_ms + (waited_ms < EXCHANGE_QUIET_MS    ? EXCHANGE_QUIET_MS
				 : waited_ms > EXCHANGE_REPORT_MS ? EXCHANGE_REPORT_MS
								  : waited_ms);
	if (!x->opt.waiting || waits_for_slots_only(x))
		return;
	waiting_text(x, now_ms, text, sizeof text);
	x->opt.waiting(x->opt.user, text);
}

/* Reminds of reducers that are lost, for as long as they are. */
static void exchange_report_degraded(struct exchange *x, uint64_t now_ms)
{
	char text[480];

	x->degraded_ms = UINT64_MAX;
	if (!degraded_text(x, now_ms, text, sizeof text))
		return;
	x->degraded_ms = now_ms + EXCHANGE_DEGRADED_MS;
	if (x->opt.degraded)
		x->opt.degraded(x->opt.user, text);
}

void exchange_tick(struct exchange *x, uint64_t now_ms)
{
	uint64_t due;
	struct rs_err e;

	if (x->state == EXCHANGE_JOINING && now_ms >= x->report_ms && now_ms < x->connect_by_ms)
		exchange_report_waiting(x, now_ms);
	if (x->state == EXCHANGE_RUNNING && now_ms >= x->degraded_ms)
		exchange_report_degraded(x, now_ms);
	if (x->state == EXCHANGE_JOINING && x->retaining && now_ms >= x->absent_by_ms)
		view_drop_unreached(x, now_ms);
	if (x->send_error.code) {
		exchange_fail(x, &x->send_error, false, NULL, now_ms);
	} else if (x->state == EXCHANGE_JOINING && now_ms >= x->connect_by_ms) {
		connect_timeout_text(x, &e);
		exchange_fail(x, &e, true, NULL, now_ms);
	} else if (x->state == EXCHANGE_RUNNING && now_ms >= exchange_op_deadline(x, now_ms)) {
		op_timeout_text(x, x->first, now_ms, &e);
		exchange_fail(x, &e, true, NULL, now_ms);
	}

	due = x->state < EXCHANGE_ENDING ? exchange_tick_links(x, now_ms) : 0;
	if (x->state >= EXCHANGE_ENDING) {
		exchange_tick_end(x, now_ms);
		return;
	}
	if (x->state == EXCHANGE_JOINING && x->retaining && now_ms < x->absent_by_ms)
		due = min64(due, x->absent_by_ms);
	if (x->state == EXCHANGE_JOINING)
		due = min64(due, min64(x->report_ms, x->connect_by_ms));
	else
		due = min64(min64(min64(due, exchange_tell_nonfinite(x, now_ms)), rebalance_tick(x, now_ms)),
			    min64(x->degraded_ms, exchange_op_deadline(x, now_ms)));
	x->next_ms = x->armed_ms = due;
}
