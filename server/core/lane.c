/* SPDX-License-Identifier: Apache-2.0 */
/* The lane and its sessions: created, started, watched by the clock, closed. */
#include "server/core/lane.h"

#include "common/assert.h"
#include "proto/features.h"
#include "server/core/groups.h"
#include "server/core/report.h"
#include "server/core/stripe.h"
#include "server/core/stripe_fail.h"
#include "server/core/stripe_late.h"
#include "server/core/stripe_view.h"
#include "server/core/uplink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lane_new(struct lane **ret, const struct lane_options *opt, struct rs_err *e)
{
	struct lane *l = calloc(1, sizeof *l);
	void *scratch = NULL;

	if (!l || posix_memalign(&scratch, 4096, LANE_SCRATCH + LANE_AHEAD) != 0) {
		free(l);
		return rs_oom(e, 0, "a lane");
	}
	memset(scratch, 0, LANE_SCRATCH + LANE_AHEAD);
	l->opt = *opt;
	l->scratch = scratch;
	l->ahead = l->scratch + LANE_SCRATCH;
	*ret = l;
	return RS_OK;
}

void lane_free(struct lane *l)
{
	if (!l)
		return;
	while (l->stripes) {
		struct stripe *st = l->stripes;
		unsigned r = 0;

		while (!st->sessions[r])
			r++; /* ranks first: uplinks end with the last one */
		session_free(st->sessions[r]);
	}
	free(l->scratch);
	free(l);
}

static void session_release(struct session *s)
{
	XXH3_freeState(s->sum);
	free(s->results);
	free(s);
}

/* Makes room for the results of so many slots of each priority. Returns false without
 * memory: nothing has changed then. The session has no result. */
static bool session_widen(struct session *s, unsigned slots)
{
	unsigned priorities = s->stripe->p.priorities;
	struct tx_result *results = calloc((size_t)slots * priorities, sizeof *results);

	rs_assert(s->results_n == 0);
	if (!results)
		return false;
	free(s->results);
	s->results = results;
	for (unsigned i = 0; i < priorities; i++) {
		s->streams[i].results = results + (size_t)i * slots;
		s->streams[i].results_head = 0;
	}
	return true;
}

static struct session *session_new(struct stripe *st, const struct session_params *sp)
{
	struct session *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->stripe = st;
	if (!session_widen(s, st->slots_n)) {
		free(s);
		return NULL;
	}
	s->rank = sp->rank;
	s->peer_detect_ms = sp->peer_detect_ms;
	memcpy(s->label, sp->label, sizeof s->label);
	s->keeps = sp->keeps;
	s->direct = sp->direct;
	s->weight = sp->weight;
	s->group = sp->group;
	s->relay = sp->relay;
	s->probe = sp->probe ? SESSION_PROBE_WAITS : SESSION_PROBE_NONE;
	s->sum = XXH3_createState();
	if (s->sum)
		return s;
	session_release(s);
	return NULL;
}

/* Gives an uplink a place behind the ranks. It is part of the current view when its VIEW
 * says so. */
static int lane_place_uplink(struct stripe *st, struct session *s, struct rs_err *e)
{
	s->rank = st->p.world_size;
	while (s->rank < stripe_places(st) && st->sessions[s->rank])
		s->rank++;
	if (s->rank == stripe_places(st))
		return rs_fail(e, RS_EREFUSED, "this lane has %u uplinks, as many as the configuration has relays",
			       st->p.uplinks);
	s->paused = st->view_number > 0;
	s->view = s->paused ? UINT64_MAX : 0;
	return RS_OK;
}

/* Without ranks, what is left of a job are uplinks that close. */
static bool stripe_has_ranks(const struct stripe *st)
{
	for (unsigned r = 0; r < st->p.world_size; r++)
		if (st->sessions[r])
			return true;
	return false;
}

int lane_attach(struct lane *l, struct session **ret, const struct stripe_params *p, const struct session_params *sp,
		void *user, uint64_t now_ms, struct rs_err *e)
{
	struct stripe *st = stripe_find(l, p->job, p->lane);
	struct session *s;
	int rc;

	l->now_ms = now_ms;
	if (sp->relay && (!st || st->ended || !stripe_has_ranks(st)))
		return rs_fail(e, RS_EREFUSED, "the job has ended");
	if (!st) {
		rc = stripe_new(&st, l, p, e);
		if (rc)
			return rc;
	}
	s = session_new(st, sp);
	if (!s) {
		if (!st->attached)
			stripe_free(st);
		return rs_oom(e, 0, "a session");
	}
	s->user = user;
	s->last_rx_ms = s->last_tx_ms = s->last_ack_ms = now_ms;
	s->view_due = st->view_number > 0 && !s->relay;
	rc = s->relay ? lane_place_uplink(st, s, e) : groups_attach(st, s, e);
	if (rc) {
		session_release(s);
		if (!st->attached)
			stripe_free(st);
		return rc;
	}
	rs_assert(!st->sessions[s->rank] && st->attached < stripe_places(st));
	st->sessions[s->rank] = s;
	st->attached++;
	s->start_due = s->relay && st->running;
	*ret = s;
	return RS_OK;
}

/* Gives a stripe and its sessions the window of START. */
static int stripe_take_window(struct stripe *st, const struct lane_begin *begin, struct rs_err *e)
{
	struct stripe_params wider = st->p;

	if (!begin->agreed.window)
		return RS_OK;
	wider.window = begin->agreed.window;
	for (unsigned r = 0; r < stripe_places(st); r++)
		if (st->sessions[r] && !session_widen(st->sessions[r], stripe_slot_count(&wider)))
			return rs_oom(e, 0, "a window of %u chunks", wider.window);
	return stripe_widen(st, wider.window, begin->memory, e);
}

/* Counts the ranks of each group, and keeps what uplinks begin with. */
static int stripe_begin_groups(struct stripe *st, const struct control_hello *hello, struct rs_err *e)
{
	const struct lane_peers *peers = &st->owner->opt.peers;

	if (!stripe_is_grouped(st))
		return RS_OK;
	for (unsigned r = 0; r < st->p.world_size; r++)
		st->group_n[st->group_of[r]]++;
	if (!(st->features & FEATURE_RELAYS))
		return RS_OK;
	while (st->self < peers->n && strcmp(peers->ids[st->self], hello->reducer) != 0)
		st->self++;
	if (st->self == peers->n)
		return rs_fail(e, stripe_loss_code(st),
			       "the ranks call this reducer %s, which is not in its own configuration", hello->reducer);
	st->hello = malloc(sizeof *st->hello);
	if (!st->hello) {
		e->code = stripe_loss_code(st);
		return rs_oom(e, sizeof *st->hello, "the uplinks of a job");
	}
	*st->hello = *hello;
	return RS_OK;
}

static void lane_start_stripe(struct stripe *st, const struct lane_begin *begin)
{
	uint8_t payload[CONTROL_START_LEN];
	uint32_t len = 0;
	struct rs_err why;

	for (unsigned r = 0; r < st->p.world_size; r++) {
		if (st->sessions[r] && !st->sessions[r]->draining && !st->sessions[r]->lost)
			continue;
		/* the rank was lost after the registry had decided to start the job */
		rs_fail(&why, stripe_loss_code(st), "rank %u was lost while the job was starting", r);
		stripe_fail_lost(st, r, RS_LOSS_OTHER, false, &why);
		return;
	}
	if (stripe_take_window(st, begin, &why)) {
		stripe_end(st, &why, NULL);
		return;
	}
	st->running = true;
	st->processes = begin->processes;
	st->features = begin->agreed.features;
	if (st->view.epoch && !(st->features & FEATURE_SHARES)) {
		rs_fail(&why, RS_ECUT, "a rank sent a view with shares, which not all ranks have announced");
		stripe_fail(st, &why, NULL);
		return;
	}
	/* a chunk that goes through a relay is under way for longer than it is in the
	 * network of its rank */
	st->credits = st->features & FEATURE_START &&
		      (st->features & FEATURE_DECOUPLED || (st->features & FEATURE_RELAYS && st->p.uplinks));
	st->start = begin->agreed.start;
	if (stripe_begin_groups(st, begin->hello, &why)) {
		stripe_fail(st, &why, NULL);
		return;
	}
	if (begin->agreed.features & FEATURE_START)
		len = control_pack_start(payload, &begin->agreed);
	for (unsigned r = 0; r < stripe_places(st); r++)
		if (st->sessions[r])
			session_queue_frame(st->sessions[r], FRAME_START, payload, len);
	if (st->view_number > 0)
		stripe_try_resume(st);
}

void lane_start(struct lane *l, uint64_t job, const struct lane_begin *begin)
{
	for (struct stripe *st = l->stripes; st; st = st->next)
		if (st->p.job == job && !st->ended)
			lane_start_stripe(st, begin);
}

static bool session_controls_sent(const struct session *s)
{
	return s->control_off == s->control_len;
}

void lane_tell(struct lane *l, uint64_t job, const void *frame, size_t len)
{
	for (struct stripe *st = l->stripes; st; st = st->next) {
		if (st->p.job != job)
			continue;
		for (unsigned r = 0; r < stripe_places(st); r++)
			if (st->sessions[r] && !st->sessions[r]->draining && session_controls_sent(st->sessions[r]))
				session_queue(st->sessions[r], frame, len);
	}
}

void lane_abort(struct lane *l, uint64_t job, const struct rs_err *why, const struct rs_cause *cause)
{
	for (struct stripe *st = l->stripes; st; st = st->next)
		if (st->p.job == job)
			stripe_end(st, why, cause);
}

void lane_ask(struct lane *l, uint64_t job, unsigned lane, unsigned rank, uint64_t question)
{
	struct stripe *st = stripe_find(l, job, lane);
	struct session *s = st ? st->sessions[rank] : NULL;

	if (!s || s->draining || s->lost)
		return;
	s->question = question;
	session_ready(s);
}

/* Returns whether the others wait for a large message of this rank, and all that it has
 * sent so far was small. */
static bool session_sends_only_small(const struct session *s)
{
	const struct slot *oldest = s->stripe->running ? stripe_oldest(s->stripe) : NULL;

	return oldest && s->count.bytes_in < SESSION_SMALL && stripe_is_missing(s->stripe, oldest, s->rank);
}

/* Ends a session from which nothing was heard. Its connection may still be good, so the
 * rank gets the reason too. */
static void session_silent(struct session *s)
{
	struct stripe *st = s->stripe;
	uint8_t payload[FRAME_CONTROL_MAX];
	bool narrow = !s->stopped && session_sends_only_small(s);
	uint64_t silent_ms = s->stopped ? st->owner->now_ms - s->last_rx_ms : st->owner->opt.detect_ms;
	struct rs_err why;
	char name[160];

	s->keeps = false;
	rs_fail(&why, stripe_loss_code(st), "%s was lost: nothing was heard from it for %.1f s%s",
		stripe_rank_name(st, s->rank, name, sizeof name), (double)silent_ms / 1000,
		narrow ? "; only small messages have come from it: if it runs, check the MTU and "
			 "the filters of the path"
		       : "");
	if (st->running && !s->relay) {
		stripe_fail_lost(st, s->rank, RS_LOSS_SILENT, narrow, &why);
		return;
	}
	session_queue_frame(
	    s, FRAME_ABORT, payload,
	    control_pack_abort(
		payload, &why,
		&(struct rs_cause){.code = RS_EPEER, .rank = 1 + s->rank, .loss = RS_LOSS_SILENT, .narrow = narrow}));
	session_drain(s);
}

bool session_quiet(const struct session *s)
{
	const struct lane *l = s->stripe->owner;

	return s->direct && s->last_rx_ms + l->opt.detect_ms / 2 < l->ticked_ms;
}

void session_acknowledged(struct session *s, uint64_t at_ms)
{
	if (at_ms > s->last_ack_ms)
		s->last_ack_ms = at_ms;
}

/* Returns whether a silent rank is only late: its machine acknowledges, so its process is
 * stopped (a debugger, SIGSTOP, a frozen container) or gets no processor. Reported once.
 * It does not keep its place from another process that wants it (lane_ask). */
static bool session_is_stopped(struct session *s, uint64_t now_ms)
{
	const struct lane_options *opt = &s->stripe->owner->opt;
	struct lane_event ev = {.type = LANE_STOPPED,
				.job = s->stripe->p.job,
				.rank = s->rank,
				.lane = s->stripe->p.lane,
				.waited_ms = (uint32_t)(now_ms - s->last_rx_ms)};

	if (!s->direct || s->relay || s->question || s->asked || now_ms - s->last_ack_ms > opt->detect_ms ||
	    now_ms - s->last_rx_ms > opt->stopped_ms)
		return false;
	if (!s->stopped)
		opt->event(opt->ctx, &ev);
	s->stopped = true;
	return true;
}

/* Returns the time without other traffic after which PING is due. A PING to a quiet
 * worker also asks its kernel for an acknowledgement. */
static uint32_t session_ping_ms(const struct session *s)
{
	uint32_t own_ms = s->stripe->owner->opt.detect_ms;
	uint32_t ping_ms = (session_quiet(s) && own_ms < s->peer_detect_ms ? own_ms : s->peer_detect_ms) / 4;

	return ping_ms < CONTROL_PING_MS ? ping_ms : CONTROL_PING_MS;
}

static void session_tick(struct session *s, uint64_t now_ms)
{
	struct lane *l = s->stripe->owner;

	s->controls = 0;
	if (s->lost)
		return;
	if (s->draining) {
		if (now_ms >= s->linger_until_ms)
			session_lost(s, "it did not close");
		return;
	}
	if (now_ms - s->last_rx_ms > l->opt.detect_ms && !session_is_stopped(s, now_ms)) {
		session_silent(s);
		return;
	}
	if (now_ms - s->last_tx_ms >= session_ping_ms(s) && !s->results_n && session_controls_sent(s))
		session_queue_frame(s, FRAME_PING, NULL, 0);
}

void lane_tick(struct lane *l, uint64_t now_ms)
{
	/* after a long stop of this process itself, the silence says nothing about the
	 * workers */
	bool slept = now_ms - l->ticked_ms > LANE_TICK_MS + l->opt.detect_ms / 2 && l->ticked_ms;
	bool second = now_ms - l->rolled_ms >= LANE_SECOND_MS;

	l->ticked_ms = l->now_ms = now_ms;
	if (second)
		lane_count_second(l, now_ms);
	for (struct stripe *st = l->stripes; st; st = st->next) {
		if (slept) {
			stripe_watch_restart(st);
			uplinks_slept(st, now_ms);
		}
		stripe_watch_late(st, now_ms);
		uplinks_tick(st, now_ms);
		for (unsigned r = 0; r < stripe_places(st); r++) {
			struct session *s = st->sessions[r];

			if (!s)
				continue;
			if (slept)
				s->last_rx_ms = s->last_ack_ms = now_ms;
			if (second && s->probe == SESSION_PROBE_DONE && !st->running && !s->draining)
				session_report_proven(s);
			session_tick(s, now_ms);
		}
	}
}

enum lane_arrivals lane_arrivals(struct lane *l)
{
	enum lane_arrivals arrived = l->arrived;

	l->arrived = LANE_ARRIVED_NOTHING;
	return arrived;
}

void lane_set_us(struct lane *l, uint64_t now_us)
{
	l->now_us = now_us;
}

void lane_set_processor(struct lane *l, uint32_t permil)
{
	l->processor = permil < 1000 ? permil : 1000;
}

bool lane_is_ready(const struct lane *l)
{
	return l->ready_head;
}

struct session *lane_next_ready(struct lane *l)
{
	struct session *s = l->ready_head;

	if (!s)
		return NULL;
	l->ready_head = s->ready_next;
	if (!l->ready_head)
		l->ready_tail = NULL;
	rs_assert(s->ready);
	s->ready = false;
	return s;
}

void *session_user(const struct session *s)
{
	return s->user;
}

void session_lost(struct session *s, const char *reason)
{
	struct stripe *st = s->stripe;
	struct rs_err why;
	char name[160];

	if (s->lost)
		return;
	s->lost = true;
	session_ready(s);
	if (s->draining || !st->running || s->relay)
		return;
	rs_fail(&why, stripe_loss_code(st), "%s was lost: %s", stripe_rank_name(st, s->rank, name, sizeof name),
		reason);
	stripe_fail_lost(st, s->rank, RS_LOSS_OTHER, false, &why);
}

bool session_closed(const struct session *s)
{
	return s->lost;
}

/* Removes a session from the list of ready sessions. */
static void lane_remove_ready(struct lane *l, struct session *s)
{
	struct session **at = &l->ready_head, *tail = NULL;

	if (!s->ready)
		return;
	while (*at != s) {
		tail = *at;
		at = &tail->ready_next;
	}
	*at = s->ready_next;
	if (l->ready_tail == s)
		l->ready_tail = tail;
}

/* Without a rank, nothing comes from uplinks any more. */
static void lane_end_uplinks(struct stripe *st)
{
	for (unsigned r = 0; r < st->p.world_size; r++)
		if (st->sessions[r])
			return;
	for (unsigned r = st->p.world_size; r < stripe_places(st); r++)
		if (st->sessions[r])
			session_drain(st->sessions[r]);
}

void session_free(struct session *s)
{
	struct stripe *st = s->stripe;
	struct lane *l = st->owner;
	struct lane_event ev = {
	    .type = LANE_CLOSED,
	    .job = st->p.job,
	    .rank = s->rank,
	    .lane = st->p.lane,
	    .uplink = s->relay > 0,
	    .clean = s->departed,
	    .bytes_in = s->count.bytes_in,
	    .bytes_out = s->count.bytes_out,
	    .operations = st->operations,
	};

	rs_assert(st->sessions[s->rank] == s && st->attached > 0);
	for (unsigned p = 0; p < st->p.priorities; p++)
		while (s->streams[p].results_n)
			session_pop_result(s, &s->streams[p]);
	lane_remove_ready(l, s);
	lane_count_add(&l->closed, &s->count);
	rs_assert(st->stable_waiters >= s->waits_stable);
	rs_assert(s->results_n == 0);
	st->stable_waiters -= s->waits_stable;
	st->sessions[s->rank] = NULL;
	st->attached--;
	if (s->relay)
		groups_forget(st, s->rank);
	session_release(s);
	if (!st->attached) {
		uplinks_end(st);
		stripe_free(st);
	} else if (ev.uplink) {
		stripe_try_resume(st); /* it may have waited for that uplink */
	} else {
		lane_end_uplinks(st);
	}
	l->opt.event(l->opt.ctx, &ev);
}
