/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of a run, during it and at its end. Slots are checked in the structs of the
 * core. */
#include "tests/sim/sim.h"

#include "agent/worker/core/check.h"
#include "server/core/check.h"
#include "server/core/stripe.h"
#include "tests/sim/sim_retained.h"

#include <string.h>

static bool names_cause(const struct team *t, const struct rank *k, const struct rs_err *err)
{
	/* its socket may have had no room for the reason while it was stopped */
	if (k->stalled)
		return true;
	for (unsigned i = 0; i < t->blame_n; i++) {
		const struct blame *b = &t->blame[i];

		if (b->victim == (int)k->index || !b->words[0] || strcasestr(err->msg, b->words))
			return true;
	}
	/* with a fatal event at about the same time a reducer may have this error */
	for (unsigned r = 0; r < t->world; r++) {
		char words[16];

		snprintf(words, sizeof words, "rank %u", r);
		if (t->cut >> r & 1 && strcasestr(err->msg, words))
			return true;
	}
	return false;
}

static bool blamed(const struct team *t, enum fault_kind kind)
{
	return t->blame_kinds >> kind & 1;
}

static bool in_time(const struct rank *k, uint64_t now_ms)
{
	const struct team *t = k->team;
	uint64_t until_ms = k->stalled ? k->stopped_until_us / 1000 : 0;

	for (unsigned i = 0; i < t->blame_n; i++)
		if (now_ms <=
		    (t->blame[i].at_us / 1000 > until_ms ? t->blame[i].at_us / 1000 : until_ms) + t->blame[i].within_ms)
			return true;
	return false;
}

static bool has_fault(const struct team *t, enum fault_kind kind)
{
	for (unsigned i = 0; i < t->faults_n; i++)
		if (t->faults[i].kind == kind)
			return true;
	return false;
}

/* A rank blames the path to a reducer, or nothing. */
static void check_path(const struct rank *k, const char *why)
{
	const struct team *t = k->team;

	k->sim->stats->narrow += strcasestr(why, "small messages pass") != NULL;
	if (strcasestr(why, "which hears the reducer") && !has_fault(t, FAULT_NARROW) &&
	    !has_fault(t, FAULT_PARTITION) && !has_fault(t, FAULT_STORM))
		sim_fail(k->sim, "%s rank %u: no path has a fault, but it says: %s", t->job, k->index, why);
}

void check_error(struct rank *k, const struct rs_err *err, const char *what)
{
	struct team *t = k->team;
	struct sim *s = k->sim;

	t->failed = true;
	check_path(k, err->msg);
	if (!err->code || strlen(err->msg) < 8)
		sim_fail(s, "%s rank %u: %s failed without a sentence (code %d, \"%s\")", t->job, k->index, what,
			 err->code, err->msg);
	else if (!t->blame_n)
		sim_fail(s, "%s rank %u: %s failed although nothing was wrong: %s", t->job, k->index, what, err->msg);
	else if (err->code == RS_EINTERNAL ||
		 (err->code == RS_EPROTO && !blamed(t, FAULT_CORRUPT) && !blamed(t, FAULT_IMPOSTOR)))
		sim_fail(s, "%s rank %u: nobody broke the protocol, but %s says: %s", t->job, k->index, what, err->msg);
	else if (!names_cause(t, k, err))
		sim_fail(s, "%s rank %u: the cause was %s (\"%s\"), but %s says: %s", t->job, k->index,
			 fault_name(t->blame[0].kind), t->blame[0].words, what, err->msg);
	else if (!in_time(k, sim_ms(s)))
		sim_fail(s, "%s rank %u: %s failed %llu ms after the cause, %u were allowed: %s", t->job, k->index,
			 what, (unsigned long long)(sim_ms(s) - t->blame[0].at_us / 1000), t->blame[0].within_ms,
			 err->msg);
}

/* Jobs survive the loss of a reducer, also a false one, so only this check finds that two
 * cores misunderstand each other. */
void check_features(struct rank *k)
{
	struct team *t = k->team;
	uint64_t set = exchange_features(k->x);

	if (!t->features_known)
		t->features = set;
	t->features_known = true;
	if (set != t->features)
		sim_fail(k->sim, "%s rank %u uses the features %#llx, another rank %#llx", t->job, k->index,
			 (unsigned long long)set, (unsigned long long)t->features);
}

/* A reducer comes back only over connections through which a chunk has passed both
 * ways. */
void check_back(const struct rank *k, unsigned reducer)
{
	const struct team *t = k->team;
	uint32_t chunk = FRAME_HEADER + t->cfg.sharding.chunk_bytes;
	bool narrow = false;

	for (int side = 0; side < 2; side++)
		narrow |= k->narrow[reducer][side] && k->narrow[reducer][side] < chunk;
	/* a full socket takes a chunk in pieces that are small enough */
	if (!narrow || k->sim->socket_bytes < 4096 || !(exchange_features(k->x) & FEATURE_PROBE) ||
	    !(k->sim->reducers[reducer].features & FEATURE_PROBE))
		return;
	for (unsigned i = 0; i < SIM_LINKS; i++)
		if (k->conn[i] && k->conn[i]->reducer->index == reducer && k->conn[i]->born_us > k->narrow_us[reducer])
			sim_fail(k->sim, "%s rank %u: r%u is back, although no chunk passes", t->job, k->index,
				 reducer);
}

void check_lost(struct rank *k, const struct rs_reducer *r, bool empty, const char *why)
{
	static const char *const outside[] = {"connection re",    "it closed the connection", "broken pipe",
					      "nothing ",         "another rank has lost it", "it is shutting down",
					      " was lost",        "the reducer was stopped",  "no answer",
					      "is shutting down", "connection timed out",     "; retrying",
					      "a path is slow",   "it relays for a group",    "connect to it anew"};
	struct team *t = k->team;

	check_path(k, why);
	if (!t->hit && !t->blame_n)
		sim_fail(k->sim, "%s rank %u: reducer %s is lost although nothing was wrong: %s", t->job, k->index,
			 r->id, why);
	for (unsigned i = 0; i < sizeof outside / sizeof outside[0]; i++)
		if (strcasestr(why, outside[i]))
			return;
	if (t->impostors && strcasestr(why, IMPOSSIBLE_WINDOW))
		return;
	if (!t->damaged && !empty) /* a reducer that is new in its slot may have refused */
		sim_fail(k->sim, "%s rank %u: reducer %s is lost for a reason that cannot be: %s", t->job, k->index,
			 r->id, why);
}

/* Returns the rank's oldest operation without a result. */
static uint64_t first_pending(const struct rank *k)
{
	for (unsigned i = 0; i < k->submitted; i++)
		if (!k->ops[i].done)
			return i;
	return k->submitted;
}

/* No rank waits for an operation that a reducer takes as stable. */
static void check_stable(struct sim *s, const struct stripe *st)
{
	for (unsigned r = 0; r < st->p.world_size; r++) {
		const struct conn *c = st->sessions[r] ? session_user(st->sessions[r]) : NULL;

		/* a rank that leaves with operations pending gets no results */
		if (c && c->rank && c->rank->team->generation == st->p.generation && !st->sessions[r]->departed &&
		    st->stable > first_pending(c->rank))
			sim_fail(s, "a reducer takes operation %llu for stable, rank %u waits for %llu",
				 (unsigned long long)st->stable - 1, r, (unsigned long long)first_pending(c->rank));
	}
}

void check_lane(struct lane_thread_sim *t)
{
	const char *broken;

	/* often enough for many checks in a short run, and rarely enough to be cheap */
	if (!sim_chance(t->reducer->sim, 3))
		return;
	broken = lane_check(t->core);
	if (broken)
		sim_fail(t->reducer->sim, "a lane breaks an invariant: %s", broken);
	for (const struct stripe *st = t->core->stripes; st; st = st->next)
		check_stable(t->reducer->sim, st);
}

void check_rank(const struct rank *k)
{
	const char *broken = exchange_check_state(k->x);

	if (broken)
		sim_fail(k->sim, "%s rank %u breaks an invariant: %s", k->team->job, k->index, broken);
}

enum { QUIET_US = 50000 }; /* longer than any write is put off */

/* All bytes of a connection are read, and nothing was sent since: then the reducer of a
 * decoupled job, if it lives, has said that it has added all chunks, however late other
 * ranks are. */
static void check_credit(const struct rank *k, const struct conn *c)
{
	bool quiet = c->up && c->session && !c->to[WORKER].len && !c->to[REDUCER].len && !c->dark[WORKER] &&
		     !c->dark[REDUCER] && !c->stuck[WORKER] && !c->stuck[REDUCER] &&
		     k->sim->now_us - c->moved_us > QUIET_US;

	k->sim->stats->ahead += retained_is_ahead(k->x, c->link);
	if (quiet && retained_waits(k->x, c->link))
		sim_fail(k->sim, "%s rank %u: r%u has added chunks and does not say so", k->team->job, k->index,
			 c->reducer->index);
}

void check_credits(const struct rank *k)
{
	for (unsigned i = 0; i < SIM_LINKS; i++)
		if (k->conn[i])
			check_credit(k, k->conn[i]);
}

void check_last_session(struct session *session)
{
	struct conn *c = session_user(session);
	const struct stripe *st = session->stripe;
	const char *broken = stripe_check(st);

	if (broken)
		sim_fail(c->sim, "a stripe breaks an invariant when a session is freed: %s", broken);
	if (st->attached > 1 || st->ended || !st->running)
		return;
	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *slot = st->chains[i]; slot; slot = slot->next)
			/* stable chunks may be repeated while the first rank leaves */
			if (!st->p.retain || (slot->header.of.seq >= st->stable && slot->contributed < slot->expected))
				sim_fail(c->sim,
					 "the last session of a stripe goes, but chunk %u of operation %llu is in its "
					 "slot",
					 slot->header.chunk, (unsigned long long)slot->header.of.seq);
}

static void check_team(struct sim *s, struct team *t)
{
	for (unsigned r = 0; r < t->world; r++) {
		const struct rank *k = &t->ranks[r];

		if (k->state != RANK_ENDED)
			continue;
		for (unsigned i = 0; i < k->submitted; i++) {
			if (!k->ops[i].done)
				sim_fail(s, "%s rank %u: operation %u has not ended", t->job, r, i);
			/* a rank with a result has contributions of all ranks */
			if (t->blame_n && t->blame[0].kind == FAULT_MISMATCH && i == t->odd_at && !k->ops[i].code)
				sim_fail(s, "%s rank %u: operation %u succeeded although rank %u disagrees", t->job, r,
					 i, t->odd_rank);
		}
		if (!t->blame_n && k->submitted < t->ops_n)
			sim_fail(s, "%s rank %u: only %u of %u operations were called", t->job, r, k->submitted,
				 t->ops_n);
	}
	s->stats->survived += t->survived;
	t->failed ? s->stats->teams_failed++ : s->stats->teams_clean++;
	for (unsigned i = 0; i < t->faults_n; i++) {
		s->stats->faults[t->faults[i].kind] += t->faults[i].struck;
		s->stats->faults_felt[t->faults[i].kind] += t->faults[i].struck && t->failed;
	}
}

void check_end(struct sim *s)
{
	for (unsigned i = 0; i < s->teams_n; i++)
		check_team(s, &s->teams[i]);
	for (unsigned i = 0; i < s->reducers_n; i++) {
		struct reducer *r = &s->reducers[i];

		if (r->state != REDUCER_UP)
			continue;
		if (registry_jobs(r->registry) || r->blocks)
			sim_fail(s, "r%u still has %u jobs and %u blocks of slots", i, registry_jobs(r->registry),
				 r->blocks);
		for (unsigned l = 0; l < r->threads_n; l++)
			if (r->threads[l].core->stripes)
				sim_fail(s, "a lane of r%u still has sessions", i);
	}
}
