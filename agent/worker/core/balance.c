/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/balance.h"

#include "proto/control.h"

#include <string.h>

void balance_init(struct balance *b)
{
	memset(b, 0, sizeof *b);
	b->pause_ms = BALANCE_PAUSE_MS;
	b->window_ms = BALANCE_WINDOW_MS;
}

void balance_disturbed(struct balance *b, uint64_t now_ms)
{
	memset(&b->now, 0, sizeof b->now);
	b->last = BALANCE_EVEN;
	b->tried = false;
	b->changed_ms = now_ms;
}

/* Returns how busy a reducer was in the window, in 1/1000 of the communication, at least
 * 1. */
static uint32_t balance_part(const struct balance_window *w, uint64_t busy)
{
	uint64_t part = w->active ? busy * BALANCE_PERMIL / w->active : 0;

	return part < 1 ? 1 : part < BALANCE_PERMIL ? (uint32_t)part : BALANCE_PERMIL;
}

/* Returns the median of the living reducers; the lower one of an even number. */
static uint32_t balance_median(const struct balance_window *w, const struct balance_reducer *r, unsigned n)
{
	unsigned living = 0;

	for (unsigned i = 0; i < n; i++)
		living += r[i].lives;
	for (unsigned i = 0; i < n; i++) {
		uint32_t part = balance_part(w, w->busy[i]);
		unsigned below = 0, equal = 0;

		for (unsigned j = 0; r[i].lives && j < n; j++) {
			uint32_t other = balance_part(w, w->busy[j]);

			below += r[j].lives && other < part;
			equal += r[j].lives && other == part;
		}
		if (r[i].lives && below < (living + 1) / 2 && below + equal >= (living + 1) / 2)
			return part;
	}
	return 1;
}

/* Returns whether one rank's path to a reducer is busy for most of the time, and for
 * `times` times the median's. */
static bool balance_stands_out(const struct balance_window *w, unsigned reducer, unsigned times)
{
	uint32_t most = balance_part(w, w->most[reducer]);

	return most >= BALANCE_BUSY && most >= times * balance_part(w, w->path[reducer]);
}

/* Looks for a rank whose path to most reducers, or to one reducer alone, is much busier
 * than those of the others. */
static void balance_find_slow(const struct balance_window *w, const struct balance_reducer *r, unsigned n,
			      struct balance_verdict *ret)
{
	unsigned out = 0, same = 0, living = 0;

	for (unsigned i = 0; i < n; i++) {
		living += r[i].lives;
		if (!r[i].lives || !balance_stands_out(w, i, BALANCE_ALONE - 1))
			continue;
		if (!out++) {
			ret->reducer = i;
			ret->rank = w->most_rank[i];
			ret->busy = balance_part(w, w->most[i]);
			ret->others = balance_part(w, w->path[i]);
		}
		same += w->most_rank[i] == ret->rank;
	}
	if (3 * same >= 2 * living && living > 1)
		ret->kind = BALANCE_SLOW_RANK;
	else if (out == 1 && living > 1 && balance_stands_out(w, ret->reducer, BALANCE_ALONE))
		ret->kind = BALANCE_SLOW_PATH;
}

/* What the reducers can do, by how busy they are with the shares that they have. Times
 * are in 1/1000 of the time that the present shares take. */
struct balance_able {
	uint64_t of[RS_REDUCERS_MAX], sum;
	uint64_t shares; /* the sum of the present ones */
	uint64_t home;   /* the sum of those of the configuration */
	unsigned living;
};

static void balance_measure(const struct balance_window *w, const struct balance_reducer *r, unsigned n,
			    struct balance_able *ret)
{
	*ret = (struct balance_able){.living = 0};
	for (unsigned i = 0; i < n; i++) {
		uint32_t part = balance_part(w, w->busy[i]);

		if (!r[i].lives)
			continue;
		/* an idle reducer may have other limits than those that are seen */
		ret->of[i] = (uint64_t)r[i].share * BALANCE_PERMIL * 100 /
			     (part < BALANCE_PERMIL / 4 ? BALANCE_PERMIL / 4 : part);
		ret->sum += ret->of[i];
		ret->shares += r[i].share;
		ret->home += r[i].home;
		ret->living++;
	}
}

/* Returns the time with the shares of the configuration. */
static uint64_t balance_home_takes(const struct balance_able *a, const struct balance_reducer *r, unsigned n)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < n && a->home; i++) {
		uint64_t takes = r[i].lives ? r[i].home * a->shares * BALANCE_PERMIL * 100 / a->home / a->of[i] : 0;

		most = takes > most ? takes : most;
	}
	return most ? most : UINT64_MAX;
}

/* Computes the shares that make all living reducers busy equally long, or those of the
 * configuration if they do nearly as well, and what that saves. A lost reducer keeps an
 * average share for its return. */
static void balance_solve(const struct balance_window *w, const struct balance_reducer *r, unsigned n,
			  struct balance_verdict *ret)
{
	struct balance_able a;
	uint64_t takes, home;

	balance_measure(w, r, n, &a);
	if (!a.living)
		return;
	takes = a.shares * BALANCE_PERMIL * 100 / a.sum;
	home = balance_home_takes(&a, r, n);
	ret->home = home <= takes + takes * BALANCE_GAIN / BALANCE_PERMIL;
	ret->busy = 0;
	for (unsigned i = 0; i < n; i++) {
		uint64_t of = ret->home ? r[i].home : a.of[i], sum = ret->home ? a.home : a.sum;
		uint64_t share = (r[i].lives ? of : sum / a.living) * BALANCE_SUM / sum;

		ret->shares[i] = share < 1 ? 1 : share < CONTROL_SHARE_MAX ? (uint32_t)share : CONTROL_SHARE_MAX;
		if (r[i].lives && balance_part(w, w->busy[i]) > ret->busy) {
			ret->busy = balance_part(w, w->busy[i]);
			ret->reducer = i;
		}
	}
	ret->others = balance_median(w, r, n);
	takes = ret->home ? home : takes;
	ret->gain = ret->busy > takes ? (uint32_t)((ret->busy - takes) * BALANCE_PERMIL / ret->busy) : 0;
	if (ret->busy >= BALANCE_BUSY && ret->gain >= (ret->home ? BALANCE_HOME : BALANCE_GAIN))
		ret->kind = BALANCE_SHARES;
	else
		ret->kind = BALANCE_EVEN;
}

/* Judges the last change by the first whole window after it. Returns true if it is to be
 * taken back. */
static bool balance_judge(struct balance *b)
{
	uint64_t half = b->before + b->before * b->expected / (2 * BALANCE_PERMIL);

	if (!b->tried)
		return false;
	if (!b->settling) {
		b->settling = true;
		return false;
	}
	b->tried = false;
	if (b->rate >= half) {
		b->pause_ms = BALANCE_PAUSE_MS;
		return false;
	}
	b->pause_ms = b->pause_ms < BALANCE_PAUSE_MAX_MS / 2 ? 2 * b->pause_ms : BALANCE_PAUSE_MAX_MS;
	return b->rate < b->before - b->before / 20;
}

/* A window is complete. */
static void balance_conclude(struct balance *b, const struct balance_reducer *r, unsigned n, uint64_t now_ms,
			     struct balance_verdict *ret)
{
	const struct balance_window *w = &b->now;
	enum balance_kind last = b->last;
	unsigned about = b->last_about;
	bool back;

	if (now_ms - b->undone_ms >= BALANCE_FORGET_MS)
		b->window_ms = BALANCE_WINDOW_MS;
	b->last = BALANCE_EVEN;
	if (w->active < (uint64_t)BALANCE_ACTIVE * w->ms)
		return;
	b->rate = w->bytes * BALANCE_PERMIL * BALANCE_PERMIL / w->active;
	back = balance_judge(b);
	if (back) {
		ret->kind = BALANCE_BACK;
		memcpy(ret->shares, b->shares_before, n * sizeof *ret->shares);
		return;
	}
	balance_find_slow(w, r, n, ret);
	b->slow_paths = ret->kind == BALANCE_SLOW_PATH ? b->slow_paths + 1 : 0;
	if (ret->kind == BALANCE_EVEN || b->slow_paths > BALANCE_PATIENCE)
		balance_solve(w, r, n, ret);
	b->last = ret->kind;
	b->last_about = ret->kind == BALANCE_SLOW_RANK ? ret->rank : ret->home ? RS_REDUCERS_MAX : ret->reducer;
	if (b->last != last || b->last_about != about ||
	    (ret->kind == BALANCE_SHARES &&
	     (b->tried || now_ms - b->changed_ms < (ret->home ? BALANCE_HOME_MS : b->pause_ms))))
		ret->kind = BALANCE_EVEN; /* not twice in a row, or too early */
	if (ret->kind == BALANCE_SLOW_PATH && now_ms >= b->anew_ms)
		ret->kind = BALANCE_ANEW;
}

void balance_sample(struct balance *b, const struct balance_reducer *r, unsigned n, uint32_t ms, uint32_t active,
		    uint64_t bytes, uint64_t now_ms, struct balance_verdict *ret)
{
	struct balance_window *w = &b->now;

	memset(ret, 0, sizeof *ret);
	w->ms += ms;
	w->active += (uint64_t)active * ms;
	w->bytes += bytes;
	for (unsigned i = 0; i < n; i++) {
		w->busy[i] += (uint64_t)r[i].busy * ms;
		w->path[i] += (uint64_t)r[i].path * ms;
		w->most[i] += (uint64_t)r[i].most * ms;
		w->most_rank[i] = r[i].most_rank;
	}
	if (w->ms < b->window_ms)
		return;
	balance_conclude(b, r, n, now_ms, ret);
	memset(w, 0, sizeof *w);
}

/* Returns a reducer's part of the shares of all, in 1/1000. */
static uint32_t balance_share(const uint32_t *shares, unsigned n, unsigned reducer)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += shares[i];
	return (uint32_t)((uint64_t)shares[reducer] * BALANCE_PERMIL / sum);
}

/* Remembers a change. If it undoes half of the last one soon after that, windows become
 * longer. */
static void balance_remember(struct balance *b, unsigned n, const struct balance_verdict *v, uint64_t now_ms)
{
	struct balance_move *m = &b->moved, next = {.at_ms = now_ms};

	if (m->at_ms && now_ms - m->at_ms <= (uint64_t)BALANCE_SOON * b->window_ms &&
	    balance_share(v->shares, n, m->reducer) > (m->from + m->to) / 2) {
		b->undone_ms = now_ms;
		b->window_ms = b->window_ms < BALANCE_WINDOW_MAX_MS ? BALANCE_CAREFUL * b->window_ms : b->window_ms;
	}
	for (unsigned i = 0; i < n; i++) {
		uint32_t from = balance_share(b->shares_before, n, i), to = balance_share(v->shares, n, i);

		if (from > to && from - to > next.from - next.to)
			next = (struct balance_move){.reducer = i, .from = from, .to = to, .at_ms = now_ms};
	}
	*m = next;
}

/* Connections were made anew. */
static void balance_made_anew(struct balance *b, uint64_t now_ms)
{
	bool long_ago = !b->anew_pause_ms || now_ms - b->anew_ms >= BALANCE_ANEW_MAX_MS;

	b->anew_pause_ms = long_ago                                     ? BALANCE_ANEW_MS
			   : b->anew_pause_ms < BALANCE_ANEW_MAX_MS / 2 ? 2 * b->anew_pause_ms
									: BALANCE_ANEW_MAX_MS;
	b->anew_ms = now_ms + b->anew_pause_ms;
}

void balance_applied(struct balance *b, const struct balance_reducer *r, unsigned n, const struct balance_verdict *v,
		     uint64_t now_ms)
{
	memset(&b->now, 0, sizeof b->now);
	b->last = BALANCE_EVEN;
	b->changed_ms = now_ms;
	if (v->kind == BALANCE_ANEW) {
		balance_made_anew(b, now_ms);
		return;
	}
	b->tried = v->kind == BALANCE_SHARES;
	b->settling = false;
	b->before = b->rate;
	b->expected = v->gain;
	for (unsigned i = 0; i < n; i++)
		b->shares_before[i] = r[i].share < CONTROL_SHARE_MAX ? r[i].share : CONTROL_SHARE_MAX;
	balance_remember(b, n, v, now_ms);
}
