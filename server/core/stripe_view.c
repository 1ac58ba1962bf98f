/* SPDX-License-Identifier: Apache-2.0 */
/* A stripe while reducers are lost and come back. The happy path: a rank sends VIEW ->
 * its news goes to all other ranks -> nothing more is expected from that rank, and
 * nothing is sent to it, until all ranks have sent the same view -> all slots of the
 * stripe are cleared -> RESUME gives all ranks the position from which they begin again.
 * That is the largest position that a rank gave, since all ranks have all results below
 * it (agent/worker/core/retain.h). */
#include "server/core/stripe_view.h"

#include "proto/features.h"
#include "server/core/uplink.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Pauses a session: its rank will begin again everything that it has begun here. */
static void view_pause(struct session *s)
{
	unsigned outstanding = 0;

	session_drop_results(s);
	for (unsigned p = 0; p < s->stripe->p.priorities; p++) {
		struct session_stream *t = &s->streams[p];

		/* one entry may be left: a result that is partly sent, or a FETCH, which
		 * is not counted */
		t->outstanding = t->results_n && t->results[t->results_head].kind != TX_FETCH;
		t->next_seq = t->next_chunk = t->started = t->added = t->credited = 0;
		outstanding += t->outstanding;
	}
	s->outstanding = outstanding;
	s->credit_due = false;
	s->paused = true;
}

/* Stores what the view of a rank says about reducers that are new in it, for status
 * services. */
static void view_note_losses(struct stripe *st, const struct control_view *v)
{
	for (unsigned r = 0; r < v->n; r++) {
		struct stripe_loss *loss;

		if (v->lives[r] <= st->view.lives[r] || v->lives[r] % 2 == 0)
			continue;
		if (!st->losses)
			st->losses = calloc(v->n, sizeof *st->losses);
		if (!st->losses)
			return;
		loss = &st->losses[r];
		*loss = (struct stripe_loss){.at_ms = st->owner->now_ms, .empty = v->empty[r]};
		if (v->lost != r + 1)
			continue;
		memcpy(loss->id, v->lost_id, sizeof loss->id);
		memcpy(loss->why, v->why, sizeof loss->why);
		loss->narrow = v->cause.narrow;
	}
}

static int view_check_shares(const struct stripe *st, const struct session *s, const struct control_view *v,
			     struct rs_err *e)
{
	char name[160];

	if (v->epoch && st->running && !(st->features & FEATURE_SHARES))
		return rs_fail(e, RS_EPROTO, "%s sent a view with shares, which not all ranks have announced",
			       stripe_rank_name(st, s->rank, name, sizeof name));
	if (control_view_conflicts(&st->view, v))
		return rs_fail(e, RS_EPROTO, "%s sent a view whose shares of epoch %u differ from those of other ranks",
			       stripe_rank_name(st, s->rank, name, sizeof name), v->epoch);
	return RS_OK;
}

/* Lets the driver close the connection. */
static void view_close(struct session *s)
{
	s->lost = true;
	session_ready(s);
}

/* Closes the uplinks of reducers that are lost. */
static void view_drop_relays(struct stripe *st)
{
	for (unsigned r = st->p.world_size; r < stripe_places(st); r++)
		if (st->sessions[r] && st->view.lives[st->sessions[r]->relay - 1] % 2)
			view_close(st->sessions[r]);
}

/* VIEW of an uplink says in which view its chunks are from now on. What is new in it, the
 * ranks say too. */
static void view_take_uplink(struct stripe *st, struct session *s, const struct control_view *v)
{
	view_pause(s);
	s->resume_due = false;
	s->view = control_view_number(v);
	if (s->view == st->view_number && s->view == st->resumed_view) {
		s->paused = false;
		s->resume_due = true;
		session_ready(s);
	} else {
		stripe_try_resume(st);
	}
}

/* Chunks may be on their way in the view that has been resumed: no rank, and no uplink,
 * sends it again. */
static int view_check_number(const struct stripe *st, const struct session *s, const struct control_view *v,
			     struct rs_err *e)
{
	uint64_t number = control_view_number(v);
	char name[160];

	if (s->relay ? s->view == UINT64_MAX || number > s->view : number > st->resumed_view)
		return RS_OK;
	return rs_fail(e, RS_EPROTO, "%s sent view %" PRIu64 " after view %" PRIu64,
		       stripe_rank_name(st, s->rank, name, sizeof name), number, s->relay ? s->view : st->resumed_view);
}

int stripe_take_view(struct stripe *st, struct session *s, const struct control_view *v, struct rs_err *e)
{
	char name[160];

	if (st->view.n && st->view.n != v->n)
		return rs_fail(e, RS_EPROTO, "%s sent a view of %u reducers, the other ranks have %u",
			       stripe_rank_name(st, s->rank, name, sizeof name), v->n, st->view.n);
	if (view_check_shares(st, s, v, e) || view_check_number(st, s, v, e))
		return e->code;
	if (s->relay) {
		view_take_uplink(st, s, v);
		return RS_OK;
	}
	st->view.n = v->n;
	view_note_losses(st, v);
	view_pause(s);
	s->resume_due = false; /* a RESUME that is not sent yet belongs to the view before */
	s->view = control_view_number(v);
	memcpy(s->start, v->start, sizeof s->start);
	memcpy(s->begun, v->begun, sizeof s->begun);
	s->features = v->features;
	s->lead = v->lead;
	if (control_view_merge(&st->view, v)) {
		st->view_number = control_view_number(&st->view);
		for (unsigned r = 0; r < stripe_places(st); r++) {
			struct session *other = st->sessions[r];

			if (!other || other == s)
				continue;
			other->resume_due = false; /* it would say the number of the new view */
			if (other->relay)
				continue; /* its ranks tell it */
			other->view_due = true;
			session_ready(other);
		}
		view_drop_relays(st);
	}
	if (s->view != st->view_number) {
		s->view_due = true;
		session_ready(s);
	}
	stripe_try_resume(st);
	return RS_OK;
}

/* Returns true if the uplinks that are there have sent the current view, and nothing of
 * the one before is on its way on those of this reducer. */
static bool view_is_agreed_by_relays(const struct stripe *st)
{
	if (uplinks_are_sending(st))
		return false;
	for (unsigned r = st->p.world_size; r < stripe_places(st); r++) {
		const struct session *s = st->sessions[r];

		if (s && (s->results_n || s->lost || s->draining || !s->paused || s->view != st->view_number))
			return false;
	}
	return true;
}

/* Returns true if all ranks that are left have sent the current view, and no result is
 * queued. If all have departed there is nothing to resume: a result that is still on its
 * way on an uplink belongs to the view that has been resumed. */
static bool view_is_agreed(const struct stripe *st)
{
	bool left = false;

	for (unsigned r = 0; r < st->p.world_size; r++) {
		const struct session *s = st->sessions[r];

		if (s && s->results_n)
			return false;
		if (stripe_has_departed(st, r)) {
			if (!st->departed)
				return false;
		} else if (!s->paused || s->view != st->view_number) {
			return false;
		} else {
			left = true;
		}
	}
	return left;
}

void stripe_try_resume(struct stripe *st)
{
	if (!st->running || st->ended || !view_is_agreed(st))
		return;
	uplinks_tell(st);
	if (!view_is_agreed_by_relays(st))
		return;
	stripe_clear(st);
	st->resumed_view = st->view_number;
	st->view.features = UINT64_MAX;
	st->view.lead = UINT32_MAX;
	for (unsigned r = 0; r < st->p.world_size; r++) {
		const struct session *s = st->sessions[r];

		if (stripe_has_departed(st, r))
			continue;
		st->view.features &= s->features;
		st->view.lead = s->lead < st->view.lead ? s->lead : st->view.lead;
	}
	for (unsigned r = 0; r < st->p.world_size; r++)
		for (unsigned p = 0; !stripe_has_departed(st, r) && p < FRAME_PRIORITIES; p++) {
			const struct session *s = st->sessions[r];

			if (st->view.start[p] < s->start[p])
				st->view.start[p] = s->start[p];
			if (st->view.begun[p] < s->begun[p])
				st->view.begun[p] = s->begun[p];
		}
	uplinks_begin_again(st);
	for (unsigned r = 0; r < stripe_places(st); r++) {
		struct session *s = st->sessions[r];

		if (stripe_has_departed(st, r))
			continue;
		s->paused = false;
		s->view_due = false;
		s->resume_due = true;
		session_ready(s);
	}
}
