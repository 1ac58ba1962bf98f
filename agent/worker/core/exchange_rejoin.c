/* SPDX-License-Identifier: Apache-2.0 */
/* The next generation on the same connections. The happy path: the generation ends with
 * ABORT, from this rank or from a reducer -> each link completes the frame that is partly
 * sent, sends HELLO behind it, and discards frames of the old generation until the answer
 * comes. Failure modes: a connection is broken, its reducer cannot keep it, or has not
 * answered the last HELLO yet: the driver closes it and connects again. */
#include "agent/worker/core/lead.h"
#include "agent/worker/core/link_fail.h"
#include "agent/worker/core/link_queue.h"
#include "agent/worker/core/view.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void exchange_begin(struct exchange *x, uint64_t now_ms)
{
	memset(&x->view, 0, sizeof x->view);
	x->view.n = x->params->reducers_n;
	x->view_number = control_view_number(&x->view);
	x->state = EXCHANGE_JOINING;
	x->err.code = x->send_error.code = RS_OK;
	x->features = x->opt.features;
	x->features_fixed = x->leaving = x->held_back = x->ping_on_done = x->relaying = false;
	memset(x->border, 0, sizeof x->border);
	atomic_store(&x->can_shard, false);
	x->start = x->stable = x->next_seq = x->running_ms = x->woke_ms = x->reports_n = 0;
	x->opened_ms = now_ms;
	x->report_ms = now_ms + EXCHANGE_QUIET_MS;
	x->degraded_ms = UINT64_MAX;
	x->connect_by_ms = now_ms + x->opt.connect_ms;
	x->absent_by_ms = now_ms + min64(x->opt.connect_ms / 2, LINK_ABSENT_MS);
	x->next_ms = x->armed_ms = now_ms;
	x->links_changed = true;
	memset(x->next_position, 0, sizeof x->next_position);
	memset(x->floor, 0, sizeof x->floor);
	memset(x->paced, 0, sizeof x->paced);
	x->pace = 0;
	memset(&x->found, 0, sizeof x->found);
	x->found_new = false;
	x->told_ms = 0;
	late_begin(&x->late);
	load_begin(&x->load);
	lead_init(x);
}

/* Returns whether HELLO can be sent on the open connection of a link. */
static bool link_can_stay(const struct link *l)
{
	return l->open && l->state == LINK_ENDING && l->keeps &&
	       l->control_len + FRAME_HEADER + CONTROL_HELLO_LEN <= sizeof l->control_out;
}

/* Lets a link join, on its connection or on a new one. */
static void link_join_again(struct link *l, uint64_t now_ms)
{
	bool stays = link_can_stay(l), ends = l->open && l->state == LINK_ENDING;
	struct rs_err e;

	link_rewind(l);
	link_forget(l);
	l->waiting = (struct control_waiting){.world_size = 0};
	l->late_at_ms = 0;
	l->offers = l->features = 0;
	l->busy = false;
	l->tries = 0;
	l->reason[0] = '\0';
	l->backoff_ms = LINK_RETRY_MIN_MS;
	l->retry_ms = now_ms;
	l->since_ms = l->last_rx_ms = l->last_tx_ms = now_ms;
	if (!stays) {
		if (!ends)
			link_reset(l);
		l->state = ends ? LINK_LEAVING : LINK_WAITING; /* the reducer still has to read why */
		return;
	}
	window_narrow(&l->window, l->x->params->window);
	l->ahead = l->x->params->ahead;
	l->state = LINK_HANDSHAKE;
	l->kept = true;
	if (link_queue_hello(l, &e))
		link_join_failed(l, e.msg, RS_LOSS_OTHER, now_ms);
}

void exchange_reconfigure(struct exchange *x, const struct exchange_place *to, uint64_t now_ms)
{
	struct rs_err why;

	rs_fail(&why, RS_ECLOSED, "rank %u has left generation %u of the job for generation %u", x->opt.rank,
		x->opt.generation, to->generation);
	exchange_fail(x, &why, false, NULL, now_ms);
	for (unsigned i = 0; i < x->links_n; i++) {
		/* its connection is not kept, and operations whose memory the frame is in
		 * may have ended */
		if (!x->saved || x->links[i].state != LINK_ENDING)
			x->links[i].sent_off = 0;
		link_rewind(&x->links[i]); /* what is partly sent needs no memory of operations any more */
	}
	exchange_end_ops(x);
	x->opt.generation = to->generation;
	x->opt.rank = to->rank;
	x->opt.world_size = to->world_size;
	x->opt.incarnation = to->incarnation;
	x->opt.connect_ms = to->connect_ms;
	free(x->stage); /* encodings are checked anew with the first encoded operation */
	x->stage = NULL;
	memset(x->losses, 0, x->params->reducers_n * sizeof *x->losses);
	retain_clear(&x->retain, x->params->priorities);
	exchange_begin(x, now_ms);
	view_assign_shards(x);
	for (unsigned i = 0; i < x->links_n; i++)
		link_join_again(&x->links[i], now_ms);
}
