/* SPDX-License-Identifier: Apache-2.0 */
/* Relays that are slow. A whole group waits for its relay, and all other groups for its
 * sums. Every reducer that gets these sums sees how long chunks wait for them; whether a
 * rank of the group is the cause, the relay itself sees. */
#include "common/utf8.h"
#include "config/limits.h"
#include "deploy/ctl/doctor.h"

#include <stdio.h>
#include <string.h>

static const char *const action_relay =
    "compare the link and the processors of its machine with those of the group's other reducers, or let it relay "
    "fewer shards: reductionctl plan";

/* Returns in which share of the window chunks waited for a relay, in thousandths. */
static uint64_t relay_permil(const Reduction__V1__JobStatus *before, const Reduction__V1__RelayStatus *r, uint64_t ms)
{
	for (size_t i = 0; i < before->n_relays; i++) {
		const Reduction__V1__RelayStatus *a = before->relays[i];
		uint64_t waited = r->waited_ms > a->waited_ms ? r->waited_ms - a->waited_ms : 0;

		if (strcmp(a->reducer, r->reducer) == 0)
			return waited >= ms ? 1000 : waited * 1000 / ms;
	}
	return 0;
}

static void relay_is_slow(struct findings *all, const Reduction__V1__RelayStatus *r, const char *job, const char *home,
			  uint64_t permil)
{
	struct finding f = {.id = "relay-slow", .score = (unsigned)permil};

	snprintf(f.job, sizeof f.job, "%s", job);
	snprintf(f.process, sizeof f.process, "%s", r->reducer);
	snprintf(f.what, sizeof f.what, "relay %.100s is slow: its group and all others wait for it", r->reducer);
	snprintf(f.evidence, sizeof f.evidence,
		 "%.63s: in %.1f %% of the time a chunk waited for the sum of relay %.63s", home, (double)permil / 10,
		 r->reducer);
	snprintf(f.action, sizeof f.action, "%s", action_relay);
	rs_utf8_clean(f.job);
	rs_utf8_clean(f.process);
	rs_utf8_clean(f.what);
	rs_utf8_clean(f.evidence);
	findings_put(all, &f);
}

void doctor_look_relays(struct findings *all, const Reduction__V1__JobStatus *before,
			const Reduction__V1__JobStatus *job, const char *name, uint64_t ms)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < job->n_relays; i++)
		sum += relay_permil(before, job->relays[i], ms);
	for (size_t i = 0; i < job->n_relays; i++) {
		const Reduction__V1__RelayStatus *r = job->relays[i];
		uint64_t permil = relay_permil(before, r, ms);

		/* sums from another site are always the last ones */
		if (r->min_rtt_us < RS_LONG_US && doctor_stands_out(permil, sum, job->n_relays))
			relay_is_slow(all, r, job->name, name, permil);
	}
}

/* Returns the score of the rank that is late at a relay; 0: none is. */
static unsigned late_at(const struct findings *all, const struct finding *relay)
{
	for (unsigned i = 0; i < all->n; i++) {
		const struct finding *f = &all->at[i];

		if (strcmp(f->id, "rank-late") == 0 && strcmp(f->job, relay->job) == 0 &&
		    strcmp(f->process, relay->process) == 0)
			return f->score;
	}
	return 0;
}

/* Returns whether a finding is a relay for which others wait because of a late rank. */
static bool rank_causes(const struct findings *all, const struct finding *f)
{
	return strcmp(f->id, "relay-slow") == 0 && late_at(all, f) * 3 >= f->score * 2;
}

/* Returns whether a finding is what a slow relay causes: ranks of its group share its
 * link, and reducers wait for it. */
static bool relay_causes(const struct findings *all, const struct finding *f)
{
	bool rank = strcmp(f->id, "rank-late") == 0;

	for (unsigned i = 0; i < all->n; i++) {
		const struct finding *r = &all->at[i];

		if (strcmp(r->id, "relay-slow") == 0 && strcmp(r->job, f->job) == 0 &&
		    (rank ? strcmp(r->process, f->process) == 0 : strcmp(f->id, "reducer-slow") == 0))
			return true;
	}
	return false;
}

/* Removes the findings of the kind that is_superfluous() tells. */
static void keep_others(struct findings *all,
			bool (*is_superfluous)(const struct findings *all, const struct finding *f))
{
	unsigned i = 0;

	while (i < all->n) {
		if (!is_superfluous(all, &all->at[i])) {
			i++;
			continue;
		}
		all->n--;
		memmove(&all->at[i], &all->at[i + 1], (all->n - i) * sizeof all->at[0]);
	}
}

void doctor_settle_relays(struct findings *all)
{
	keep_others(all, rank_causes);
	keep_others(all, relay_causes);
}
