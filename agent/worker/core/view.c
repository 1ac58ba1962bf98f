/* SPDX-License-Identifier: Apache-2.0 */
/* Views: how ranks agree on which reducers live, without a coordinator.
 *
 * A view has one number for each reducer: 0 at first, incremented when the reducer is
 * lost and when it is back. So an odd number means lost. Views are merged by taking the
 * larger number of each reducer: every order of messages leads to the same view, and
 * nothing is ever revoked. A rank that finds a reducer lost, or receives a view that
 * knows more, merges it and sends VIEW on the links of all living reducers; a reducer
 * forwards what it learns to all ranks. When all ranks have sent a reducer the same view,
 * it sends RESUME on its links with the position from which the ranks repeat: the largest
 * that any rank named, below which all ranks have all results (retain.h). Then each rank
 * sends, on the links that own the chunks now, HAVE for chunks whose result it has and
 * DATA for the rest. From VIEW to RESUME a rank accepts no result of that link: it has
 * said that it lacks those results, so it must not receive them twice with different
 * bits.
 *
 * A view also has the shares of the reducers. Rank 0 alone sets them, each time with the
 * next epoch, and merging takes those of the larger epoch.
 *
 * Links of a lost reducer keep trying to connect. When all of them have received START,
 * all ranks have joined there as well, and the next view has the reducer among the
 * living. If no reducer lives any more, the exchange ends. The reason is what reducers
 * reported themselves (a rank that dies is lost to all of them), else that all reducers
 * are lost. */
#include "agent/worker/core/view.h"
#include "agent/worker/core/encoded.h"
#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/features.h"
#include "agent/worker/core/lead.h"
#include "agent/worker/core/link_queue.h"
#include "agent/worker/core/stream.h"
#include "common/assert.h"
#include "proto/features.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool view_any_lives(const struct exchange *x)
{
	for (unsigned r = 0; r < x->params->reducers_n; r++)
		if (exchange_lives(x, r))
			return true;
	return false;
}

/* Lists the shards whose chunks come to a link: straight, or with relays between. Writes
 * them at *at and moves it behind them. */
static struct shard_list view_list_shards(const struct link *l, bool relayed, uint16_t **at)
{
	const struct exchange *x = l->x;
	struct shard_list list = {.shards = *at};

	for (unsigned s = 0; s < x->params->shards; s++) {
		bool through = relayed && x->relay[s] != RS_NO_RELAY;

		if ((through ? x->relay[s] : x->owner[s]) == l->reducer &&
		    (through ? x->relay_lane[s] : x->lane_of[s]) == l->lane)
			*(*at)++ = (uint16_t)s;
	}
	list.n = (unsigned)(*at - list.shards);
	return list;
}

void view_assign_shards(struct exchange *x)
{
	exchange_params_place_fn place =
	    features_known(x) & FEATURE_SLOTS ? exchange_params_place_slots : exchange_params_place;
	uint16_t *at = x->shards;

	rs_assert(view_any_lives(x));
	place(x->params, x->view.lives, x->view.epoch ? x->view.shares : NULL, x->owner, x->lane_of);
	if (x->relaying)
		exchange_params_place_relays(x->params, x->view.lives, x->owner, x->relay, x->relay_lane);
	for (unsigned i = 0; i < x->links_n; i++)
		x->links[i].own = view_list_shards(&x->links[i], false, &at);
	for (unsigned i = 0; i < x->links_n; i++)
		x->links[i].relayed = view_list_shards(&x->links[i], x->relaying, &at);
}

/* Returns whether a cause is the loss of a rank, which may be common to all reducers;
 * others are a reducer's own. */
static bool view_is_rank_lost(const struct rs_cause *c)
{
	return c->code == RS_EPEER && c->rank > 0;
}

/* Returns the reason that most reducers reported; among equals the last one. A rank that
 * dies is lost to each of them, and then other ranks leave because of that. A report from
 * long before the end has another cause. NULL: no reducer reported one. */
static const struct reducer_loss *view_common_cause(const struct exchange *x, uint64_t now_ms)
{
	const struct reducer_loss *best = NULL;
	unsigned most = 0;

	for (unsigned r = 0; r < x->params->reducers_n; r++) {
		const struct reducer_loss *f = &x->losses[r];
		unsigned n = 0;

		for (unsigned i = 0; f->report && now_ms - f->at_ms <= LINK_FLUSH_MS / 2 && i < x->params->reducers_n;
		     i++)
			n += x->losses[i].report && x->losses[i].cause.rank == f->cause.rank;
		if (n > most || (n > 0 && n == most && f->report > best->report)) {
			best = f;
			most = n;
		}
	}
	return best;
}

/* Returns for how long all connections were silent before all of them were reset at the
 * same time; 0: they were not. */
static uint64_t view_forgotten_ms(const struct exchange *x, uint64_t now_ms)
{
	uint64_t idle_ms = UINT64_MAX;

	for (unsigned r = 0; r < x->params->reducers_n; r++) {
		const struct reducer_loss *f = &x->losses[r];

		if (f->reported || now_ms - f->at_ms > LINK_FLUSH_MS || f->idle_ms < LOSS_IDLE_MS ||
		    f->cause.loss != RS_LOSS_RESET)
			return 0;
		idle_ms = min64(idle_ms, f->idle_ms);
	}
	return idle_ms;
}

static void view_fail_without_reducers(struct exchange *x, uint64_t now_ms)
{
	const struct exchange_params *p = x->params;
	const struct reducer_loss *cause = view_common_cause(x, now_ms);
	uint64_t idle_ms = view_forgotten_ms(x, now_ms);
	char text[400];
	size_t len = 0;
	struct rs_err e;

	if (cause) {
		rs_fail(&e, RS_EPEER, "%s", cause->why);
		exchange_fail_because(x, &e, &cause->cause, false, NULL, now_ms);
		return;
	}
	if (idle_ms)
		len = (size_t)snprintf(text, sizeof text,
				       "all connections were reset at the same time, after %" PRIu64
				       " s without a message: a NAT or a firewall on the way may have forgotten them; ",
				       idle_ms / 1000);
	for (unsigned r = 0; r < p->reducers_n && len < sizeof text; r++)
		len +=
		    (size_t)snprintf(text + len, sizeof text - len, "%sreducer %s (%s) was lost: %s", r ? "; " : "",
				     p->reducers[r].id, exchange_params_address(p, &p->reducers[r]), x->losses[r].why);
	rs_fail(&e, RS_EPEER, "%s", text);
	exchange_fail_because(x, &e, &(struct rs_cause){.code = RS_EPEER, .reducer = x->view.lost}, true, NULL, now_ms);
}

/* Drops the links of a lost reducer. If it still runs, ABORT on its other lanes says why
 * this rank leaves, also for ranks that do not know yet. from: the link that gets no
 * ABORT. A connection whose reducer has ended the job by itself stays open for a moment:
 * if all reducers do so, the next generation can have it. */
static void view_drop_links(struct exchange *x, unsigned reducer, const struct link *from, uint64_t now_ms)
{
	const struct rs_reducer *r = &x->params->reducers[reducer];
	const struct reducer_loss *f = &x->losses[reducer];
	struct rs_err why;

	if (f->report)
		rs_fail(&why, RS_ECUT, "%s", f->why);
	else
		rs_fail(&why, RS_ECUT, "rank %u continues without reducer %s (%s): %s", x->opt.rank, r->id,
			exchange_params_address(x->params, r), f->why);
	for (unsigned i = 0; i < x->links_n; i++) {
		struct link *l = &x->links[i];

		if (l->reducer != reducer || l->state == LINK_WAITING || l->state == LINK_LEAVING)
			continue;
		if (l->state >= LINK_JOINED || !*l->reason)
			snprintf(l->reason, sizeof l->reason, "%s", f->why);
		if ((l == from && !l->keeps) || l->state < LINK_JOINED) {
			link_retry(l, now_ms);
			continue;
		}
		link_rewind(l);
		l->view_due = l->settle_due = l->ping_due = false;
		l->state = LINK_LEAVING;
		l->since_ms = now_ms;
		l->keeps &= f->reported;
		if (l->keeps)
			link_turn_stale(l);
		if (l != from)
			link_queue_abort(l, &why, &f->cause);
	}
}

/* The link takes part in the current view. */
static bool view_has_begun(const struct link *l)
{
	return l->state == LINK_RUNNING && l->view == l->x->view_number;
}

/* Assigns the shards by the rule of the features, which are fixed now. Nothing was sent
 * so far. */
static void view_assign_again(struct exchange *x)
{
	view_assign_shards(x);
	for (unsigned i = 0; i < x->links_n; i++)
		for (unsigned p = 0; view_has_begun(&x->links[i]) && p < x->params->priorities; p++)
			stream_begin(&x->links[i], p, x->links[i].streams[p].replay);
}

/* Fixes the features when the first chunk may be sent. */
static void view_fix_features(struct exchange *x)
{
	bool begins = x->view_number == 0;

	for (unsigned i = 0; i < x->links_n; i++)
		begins |= view_has_begun(&x->links[i]);
	if (!begins || x->state != EXCHANGE_RUNNING || x->features_fixed)
		return;
	features_fix(x);
	x->relaying = x->features & FEATURE_RELAYS && x->params->groups_n;
	view_assign_again(x);
	if (lead_settle(x, &x->send_error) || encoded_begin(x, &x->send_error) ||
	    exchange_check_sharded(x, &x->send_error))
		x->next_ms = 0;
}

/* Enters EXCHANGE_RUNNING when all links of living reducers have received START. */
static void view_check_running(struct exchange *x, uint64_t now_ms)
{
	struct rs_err e;

	if (x->state != EXCHANGE_JOINING)
		return;
	for (unsigned i = 0; i < x->links_n; i++)
		if (link_lives(&x->links[i]) && x->links[i].state != LINK_RUNNING)
			return;
	if (lead_fix(x, &e)) {
		exchange_fail(x, &e, true, NULL, now_ms);
		return;
	}
	x->state = EXCHANGE_RUNNING;
	view_fix_features(x);
	x->running_ms = now_ms ? now_ms : 1;
	x->links_changed = true;
	x->next_ms = now_ms;
	for (struct exchange_op *op = x->first; op; op = op->next)
		op->started_ms = now_ms;
	if (x->first)
		load_busy(x, now_ms);
	else
		late_idle(&x->late, now_ms);
}

void view_apply(struct exchange *x, uint64_t now_ms)
{
	struct rs_err e;

	x->view_number = control_view_number(&x->view);
	if (x->state >= EXCHANGE_ENDING)
		return;
	if (!view_any_lives(x)) {
		view_fail_without_reducers(x, now_ms);
		return;
	}
	if (lead_fix(x, &e)) {
		exchange_fail(x, &e, true, NULL, now_ms);
		return;
	}
	view_assign_shards(x);
	load_disturbed(x, now_ms);
	for (unsigned p = 0; p < x->params->priorities; p++)
		x->view.start[p] = x->floor[p] = x->paced[p] = retain_resume_position(&x->retain, p);
	memcpy(x->view.begun, x->retain.seen, sizeof x->view.begun);
	x->held_back = false;
	x->links_changed = true;
	for (unsigned i = 0; i < x->links_n; i++) {
		struct link *l = &x->links[i];

		link_rewind(l);
		l->view_due = link_lives(l) && (l->state == LINK_JOINED || l->state == LINK_RUNNING);
		l->settle_due = x->leaving && l->view_due;
	}
	view_check_running(x, now_ms);
}

static void view_report_change(struct exchange *x, unsigned reducer)
{
	struct reducer_loss *f = &x->losses[reducer];

	bool lives = exchange_lives(x, reducer);
	enum exchange_change how = lives ? EXCHANGE_BACK : f->reported ? EXCHANGE_LEFT : EXCHANGE_LOST;

	if (f->empty)
		how = lives ? EXCHANGE_TAKEN : EXCHANGE_EMPTY;
	f->empty &= !lives;
	x->view.empty[reducer] = f->empty;
	f->returned = lives;
	if (x->opt.reducer_changed)
		x->opt.reducer_changed(x->opt.user, &x->params->reducers[reducer], how, f->why);
}

/* Returns the pause before the next attempt to bring a reducer back, in milliseconds. */
static uint64_t view_pause(struct reducer_loss *f, uint64_t now_ms)
{
	uint64_t pause = f->barren <= 7 ? (uint64_t)LOSS_PAUSE_MS << (f->barren - 1) : LOSS_PAUSE_MAX_MS;

	f->not_before_ms = now_ms + pause;
	return pause;
}

void view_probe_failed(struct exchange *x, unsigned reducer, char *why, size_t size, uint64_t now_ms)
{
	struct reducer_loss *f = &x->losses[reducer];
	size_t len = strlen(why);

	if (now_ms < f->not_before_ms)
		return; /* another lane has said so already */
	f->barren++;
	snprintf(why + len, size - len, "; next attempt in %" PRIu64 " s", view_pause(f, now_ms) / 1000);
}

/* A reducer is lost. One that is reached, but through which no large payload comes, would
 * stop the training again and again for as long as it takes to detect that: it is brought
 * back after pauses that grow. Reducers that answer PROBE do not come back so. */
static void view_count_barren(struct reducer_loss *f, bool narrow, uint64_t now_ms)
{
	bool stuck = f->returned && f->passed < LOSS_PROOF_BYTES && f->cause.loss == RS_LOSS_SILENT;

	f->barren = stuck ? f->barren + 1 : 0;
	f->cause.narrow |= stuck;
	f->returned = false;
	f->passed = 0;
	if (!f->barren)
		return;
	snprintf(f->why + strlen(f->why), sizeof f->why - strlen(f->why),
		 "; it was back and lost again without a large result, %u time%s in a row%s; next attempt in %" PRIu64
		 " s",
		 f->barren, f->barren > 1 ? "s" : "",
		 narrow ? "" : ", although small messages pass: check the MTU and the filters of the path",
		 view_pause(f, now_ms) / 1000);
}

/* Returns the time since the last byte of a reducer to which connections work, or worked
 * until now; otherwise 0. */
static uint64_t view_idle_ms(const struct exchange *x, unsigned reducer, uint64_t now_ms)
{
	uint64_t last_ms = 0;

	for (unsigned i = 0; i < x->links_n; i++)
		if (x->links[i].reducer == reducer && x->links[i].state == LINK_RUNNING &&
		    x->links[i].last_rx_ms > last_ms)
			last_ms = x->links[i].last_rx_ms;
	return last_ms ? now_ms - last_ms : 0;
}

static void view_mark_lost(struct exchange *x, unsigned reducer, const struct loss *loss, const struct link *from,
			   uint64_t now_ms)
{
	struct reducer_loss *f = &x->losses[reducer];
	const struct rs_cause *reported = loss->reported;
	const char *why = loss->why;
	bool unheard;
	struct rs_err own;

	unheard = reported && is_own_loss(x, reported) && unheard_text(x, reducer, reported, now_ms, &own);
	if (unheard)
		why = own.msg;
	f->report = reported && view_is_rank_lost(reported) ? ++x->reports_n : 0;
	f->reported = reported != NULL;
	f->empty = x->view.empty[reducer] = loss->empty;
	f->began_empty |= loss->empty && x->view.lives[reducer] == 1 && x->state == EXCHANGE_JOINING;
	f->cause =
	    reported ? *reported : (struct rs_cause){.code = RS_EPEER, .reducer = 1 + reducer, .loss = loss->how};
	f->cause.narrow |= loss->narrow || unheard;
	f->at_ms = now_ms;
	f->idle_ms = view_idle_ms(x, reducer, now_ms);
	if (x->degraded_ms > now_ms + EXCHANGE_LOST_MS)
		x->degraded_ms = now_ms + EXCHANGE_LOST_MS;
	snprintf(f->why, sizeof f->why, "%s", why);
	x->view.lost = reducer + 1;
	x->view.reported = f->report > 0;
	x->view.cause = f->cause;
	snprintf(x->view.why, sizeof x->view.why, "%.*s", (int)sizeof x->view.why - 1, why);
	memcpy(x->view.lost_id, x->params->reducers[reducer].id, sizeof x->view.lost_id);
	view_count_barren(f, loss->narrow || unheard, now_ms);
	view_drop_links(x, reducer, from, now_ms);
	x->next_ms = now_ms; /* some links leave and try again */
	view_report_change(x, reducer);
}

void view_lose_reducer(struct exchange *x, unsigned reducer, const struct loss *loss, const struct link *from,
		       uint64_t now_ms)
{
	x->view.lives[reducer]++;
	view_mark_lost(x, reducer, loss, from, now_ms);
	view_apply(x, now_ms);
}

static bool view_all_links_run(const struct exchange *x, unsigned reducer)
{
	for (unsigned i = 0; i < x->links_n; i++)
		if (x->links[i].reducer == reducer && x->links[i].state != LINK_RUNNING)
			return false;
	return true;
}

void view_started(struct link *l, uint64_t now_ms)
{
	struct exchange *x = l->x;

	if (x->view_number == 0) {
		l->view = 0;
		for (unsigned p = 0; p < x->params->priorities; p++)
			stream_begin(l, p, 0);
	}
	if (!link_lives(l) && view_all_links_run(x, l->reducer)) {
		x->view.lives[l->reducer]++;
		view_report_change(x, l->reducer);
		view_apply(x, now_ms);
	}
	view_check_running(x, now_ms);
}

/* Returns whether a connection has joined the job there. */
static bool view_is_there(const struct exchange *x, unsigned reducer)
{
	bool there = false;

	for (unsigned i = 0; i < x->links_n; i++)
		there |= x->links[i].reducer == reducer && x->links[i].state >= LINK_JOINED &&
			 x->links[i].state <= LINK_RUNNING;
	return there;
}

/* Returns why the last attempt to connect to a reducer failed. */
static const char *view_last_reason(const struct exchange *x, unsigned reducer)
{
	const struct link *l = x->links;

	while (l->reducer != reducer)
		l++;
	return *l->reason ? l->reason : "no answer";
}

/* Takes over what another rank knows of a reducer. */
static void view_merge_reducer(struct exchange *x, unsigned reducer, const struct control_view *v, uint64_t now_ms)
{
	uint32_t life = v->lives[reducer], before = x->view.lives[reducer];
	struct loss loss = {.why = "another rank has lost it"};
	struct rs_err e;
	bool here = true;

	/* WELCOME may still be on its way when others have received START; the answer to
	 * PROBE may not */
	for (unsigned i = 0; i < x->links_n; i++)
		here &= x->links[i].reducer != reducer ||
			(x->links[i].state >= LINK_HANDSHAKE && x->links[i].state <= LINK_RUNNING &&
			 x->links[i].probe != LINK_PROBE_SENT && !features_check_reducer(&x->links[i], "", &e));
	/* it is back but the connection on which it was seen is lost already, or it lacks
	 * what the job uses; or it was lost and this rank did not notice */
	if (life % 2 == 0 && (!here || before % 2 == 0))
		life++;
	loss.empty = life % 2 && (v->empty[reducer] || (before == 0 && life == 1 && x->state == EXCHANGE_JOINING &&
							!view_is_there(x, reducer)));
	if (loss.empty)
		loss.why = view_last_reason(x, reducer);
	x->view.lives[reducer] = life;
	if (v->lost == reducer + 1)
		loss = (struct loss){.why = v->why,
				     .how = v->cause.loss,
				     .reported = v->reported ? &v->cause : NULL,
				     .narrow = v->cause.narrow,
				     .empty = loss.empty};
	if (life % 2)
		view_mark_lost(x, reducer, &loss, NULL, now_ms);
	else
		view_report_change(x, reducer);
}

void view_take_shares(struct exchange *x, uint32_t epoch, const uint32_t *shares)
{
	x->view.epoch = epoch;
	memcpy(x->view.shares, shares, x->view.n * sizeof *shares);
	if (x->opt.shares_changed)
		x->opt.shares_changed(x->opt.user, epoch, shares);
}

int view_received(struct link *l, const struct control_view *v, uint64_t now_ms, struct rs_err *e)
{
	struct exchange *x = l->x;
	bool changed = false;

	if (v->epoch && !(x->opt.features & FEATURE_SHARES))
		return rs_fail(e, RS_EPROTO, "its view has shares, and this rank has not announced that it takes any");
	if (control_view_conflicts(&x->view, v) || (!x->opt.rank && v->epoch > x->view.epoch))
		return rs_fail(e, RS_EPROTO, "its view has shares of epoch %u that %s", v->epoch,
			       x->opt.rank ? "differ from those which this rank has" : "rank 0 has not set");
	if (v->epoch > x->view.epoch) {
		view_take_shares(x, v->epoch, v->shares);
		changed = true;
	}

	for (unsigned r = 0; r < v->n; r++) {
		if (v->lives[r] <= x->view.lives[r])
			continue;
		view_merge_reducer(x, r, v, now_ms);
		changed = true;
	}
	if (changed)
		view_apply(x, now_ms);
	return RS_OK;
}

int view_resumed(struct link *l, const struct control_view *v, struct rs_err *e)
{
	struct exchange *x = l->x;

	if (control_view_number(v) != x->view_number || l->state != LINK_RUNNING || !link_lives(l))
		return RS_OK; /* this rank has sent a newer view since */
	if (l->view == x->view_number)
		return rs_fail(e, RS_EPROTO, "it sent RESUME twice for one view");
	for (unsigned p = 0; p < x->params->priorities; p++)
		if (v->start[p] < x->view.start[p])
			return rs_fail(e, RS_EPROTO, "its RESUME starts at position %llu, this rank's VIEW at %llu",
				       (unsigned long long)v->start[p], (unsigned long long)x->view.start[p]);
	for (unsigned p = 0; (v->features & FEATURE_RELAYS) && p < x->params->priorities; p++)
		if (v->begun[p] < x->view.begun[p])
			return rs_fail(e, RS_EPROTO,
				       "its RESUME says that results before position %llu have begun, this "
				       "rank's VIEW %llu",
				       (unsigned long long)v->begun[p], (unsigned long long)x->view.begun[p]);
	l->view = x->view_number;
	memcpy(x->border, v->begun, sizeof x->border);
	lead_resume(x, v->lead);
	features_narrow(x, v->features);
	view_fix_features(x);
	for (unsigned p = 0; p < x->params->priorities; p++)
		stream_begin(l, p, v->start[p]);
	x->links_changed = true;
	return RS_OK;
}

/* Returns whether the job can do with one reducer less. */
static bool view_may_lack(const struct exchange *x)
{
	return x->params->min_reducers && exchange_alive(x) > x->params->min_reducers;
}

/* The last living reducer continues as long as it can. */
void view_drained(struct link *l, uint64_t now_ms)
{
	struct exchange *x = l->x;
	bool others = false;

	for (unsigned r = 0; r < x->params->reducers_n; r++)
		others |= r != l->reducer && exchange_lives(x, r);
	if (others && link_lives(l) && x->state == EXCHANGE_RUNNING)
		view_lose_reducer(x, l->reducer,
				  &(struct loss){.why = "it is shutting down", .empty = view_may_lack(x)}, NULL,
				  now_ms);
}

void view_drop_unreached(struct exchange *x, uint64_t now_ms)
{
	unsigned need = x->params->min_reducers ? x->params->min_reducers : x->params->reducers_n, joined = 0;
	bool reached[RS_REDUCERS_MAX] = {false}, there[RS_REDUCERS_MAX] = {false};

	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];

		reached[l->reducer] |= l->state >= LINK_JOINED || l->busy;
		there[l->reducer] |= l->state >= LINK_JOINED;
	}
	for (unsigned r = 0; r < x->params->reducers_n; r++)
		joined += there[r];
	for (unsigned r = 0; joined >= need && r < x->params->reducers_n; r++) {
		if (!reached[r] && exchange_lives(x, r))
			view_lose_reducer(x, r, &(struct loss){.why = view_last_reason(x, r), .empty = true}, NULL,
					  now_ms);
	}
}
