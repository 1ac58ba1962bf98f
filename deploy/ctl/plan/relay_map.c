/* SPDX-License-Identifier: Apache-2.0 */
/* From the parts of a split to whole shards, and to the relay of each shard and rack. */
#include "deploy/ctl/plan/relays.h"

#include "config/shardmap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Shards of all racks together: a file has at most 256 KiB, a shard takes up to 5
 * bytes. */
enum { RELAYS_MAX = 36 << 10 };

/* Parts while they are rounded to whole units; a unit is `block` shards. Reducers of a
 * machine have equal parts. */
struct rounding {
	struct plan *p;
	const struct plan_split *best;
	struct plan_split found; /* owned; the rounded parts */
	unsigned *place;         /* owned; of each machine */
	unsigned *straight;      /* owned; [racks_n * reducers_n], units that each rack sends straight */
	unsigned block;
};

static double of_reducer(const struct rounding *r, const double *parts, unsigned i)
{
	unsigned m = r->p->on[i];

	return parts[m] / r->p->net.machine[m].reducers;
}

static unsigned place_of(const struct rounding *r, unsigned reducer)
{
	return r->place[r->p->on[reducer]];
}

/* Gives each reducer its units as a home; those that are left go to the reducers that
 * are furthest behind. */
static void round_homes(struct rounding *r, unsigned units)
{
	struct plan *p = r->p;
	unsigned given = 0;

	for (unsigned i = 0; i < p->reducers_n; i++) {
		p->count[i] = (unsigned)(of_reducer(r, r->best->home, i) * units * (1 + 1e-12));
		given += p->count[i];
	}
	for (; given < units; given++) {
		unsigned next = 0;
		double behind = -INFINITY;

		for (unsigned i = 0; i < p->reducers_n; i++) {
			double lacks = of_reducer(r, r->best->home, i) * units - p->count[i];

			if (lacks <= behind * (1 + 1e-9))
				continue;
			behind = lacks;
			next = i;
		}
		p->count[next]++;
	}
}

/* Returns what the relays of a rack have in the split; 0: it has none. */
static double relayed_by(const struct rounding *r, unsigned rack)
{
	double sum = 0;

	for (unsigned m = 0; m < r->p->net.machines_n; m++)
		sum += r->place[m] == rack ? r->best->relay[m] : 0;
	return sum < 1e-9 ? 0 : sum;
}

/* Decides how many units of each home a rack sends straight; what is cut off for one
 * home is added to the next ones. Returns the units that the rack's relays get. */
static unsigned round_straight(struct rounding *r, unsigned rack, unsigned units)
{
	const double *flat = r->best->flat + (size_t)rack * r->best->machines_n;
	unsigned *straight = r->straight + (size_t)rack * r->p->reducers_n, relayed = 0;
	bool relays = relayed_by(r, rack) > 0;
	double rest = (rack + 0.5) / r->p->net.racks_n; /* so that racks do not cut off the same */

	for (unsigned i = 0; i < r->p->reducers_n; i++) {
		unsigned count = r->p->count[i];

		straight[i] = count;
		if (place_of(r, i) == rack || !relays)
			continue;
		rest += of_reducer(r, flat, i) * units;
		straight[i] = rest >= count ? count : (unsigned)fmax(0, rest + 1e-9);
		rest -= straight[i];
		relayed += count - straight[i];
	}
	return relayed;
}

/* Takes the parts of the machines from the units of their reducers. */
static void take_parts(struct rounding *r, unsigned units)
{
	const struct plan *p = r->p;
	struct plan_split *s = &r->found;

	memset(s->home, 0, s->machines_n * sizeof *s->home);
	memset(s->relay, 0, s->machines_n * sizeof *s->relay);
	memset(s->flat, 0, (size_t)p->net.racks_n * s->machines_n * sizeof *s->flat);
	for (unsigned i = 0; i < p->reducers_n; i++) {
		unsigned m = p->on[i];

		s->home[m] += (double)p->count[i] / units;
		s->relay[m] += (double)p->relayed[i] / units;
		for (unsigned g = 0; g < p->net.racks_n; g++)
			s->flat[(size_t)g * s->machines_n + m] +=
			    (double)r->straight[(size_t)g * p->reducers_n + i] / units;
	}
}

/* Returns the reducer of a rack whose machine is finished first with one more unit to
 * relay, among those that relay at all. */
static unsigned next_relay(const struct rounding *r, unsigned rack, unsigned units)
{
	const struct plan *p = r->p;
	double soonest = INFINITY;
	unsigned found = 0;

	for (unsigned i = 0; i < p->reducers_n; i++) {
		unsigned m = p->on[i];
		const struct plan_machine *machine = &p->net.machine[m];
		double more = (p->net.rack[rack].workers - 2.0 * machine->workers + 1) / units, time;

		if (r->place[m] != rack || r->best->relay[m] < 1e-9)
			continue;
		time = (p->load[m] + more + 1e-6 * p->relayed[i] / units) / machine->rate;
		if (time >= soonest * (1 - 1e-12))
			continue;
		soonest = time;
		found = i;
	}
	return found;
}

/* Gives the relays of a rack their units: a little less than their parts, then one by
 * one to those that are finished first, so that they make up for homes that were rounded
 * up. The loads are those without relays. */
static void round_relays(struct rounding *r, unsigned rack, unsigned relayed, unsigned units)
{
	struct plan *p = r->p;
	double sum = relayed_by(r, rack);
	unsigned given = 0;

	for (unsigned i = 0; i < p->reducers_n; i++) {
		unsigned m = p->on[i];

		if (r->place[m] != rack || sum <= 0)
			continue;
		p->relayed[i] = (unsigned)fmax(0, of_reducer(r, r->best->relay, i) / sum * relayed - 1);
		p->load[m] += p->relayed[i] * (p->net.rack[rack].workers - 2.0 * p->net.machine[m].workers + 1) / units;
		given += p->relayed[i];
	}
	for (; given < relayed; given++) {
		unsigned i = next_relay(r, rack, units), m = p->on[i];

		p->relayed[i]++;
		p->load[m] += (p->net.rack[rack].workers - 2.0 * p->net.machine[m].workers + 1) / units;
	}
}

/* Assigns that many units, and returns the time of the network. */
static double round_to(struct rounding *r, unsigned units)
{
	struct plan *p = r->p;
	unsigned relayed[RS_GROUPS_MAX];

	memset(p->relayed, 0, p->reducers_n * sizeof *p->relayed);
	round_homes(r, units);
	for (unsigned g = 0; g < p->net.racks_n; g++)
		relayed[g] = round_straight(r, g, units);
	take_parts(r, units);
	plan_split_loads(&r->found, &p->net, p->load, p->uplink);
	for (unsigned g = 0; g < p->net.racks_n; g++)
		round_relays(r, g, relayed[g], units);
	take_parts(r, units);
	plan_split_loads(&r->found, &p->net, p->load, p->uplink);
	return plan_loads_time(&p->net, p->load, p->uplink);
}

/* Returns the most shards with which the relays of all racks fit into a file. */
static unsigned shards_max(const struct plan *p)
{
	return p->net.racks_n * PLAN_SHARDS_MAX > RELAYS_MAX ? RELAYS_MAX / p->net.racks_n : PLAN_SHARDS_MAX;
}

/* Chooses the number of units, as few as come within plan_rounding_max of the best time,
 * and of equally fast ones the one with the least load on a machine; returns 0 if the
 * shards do not suffice for units of this block. */
static unsigned choose_units(struct rounding *r, double optimum)
{
	unsigned best = 0, units = (PLAN_SHARDS_LEAST + r->block - 1) / r->block, most = shards_max(r->p);
	double best_time = INFINITY, best_links = INFINITY;

	for (unsigned limit = 2 * PLAN_SHARDS_LEAST; limit <= PLAN_SHARDS_MAX; limit *= 2) {
		for (; units * r->block <= limit && units * r->block <= most; units++) {
			double time = round_to(r, units), links = plan_loads_links(&r->p->net, r->p->load);

			if (time > best_time * (1 + 1e-6) ||
			    (time > best_time * (1 - 1e-6) && links > best_links * (1 - 1e-6)))
				continue;
			best_time = time;
			best_links = links;
			best = units;
		}
		if (best_time <= optimum * plan_rounding_max)
			return best;
	}
	return r->block > 1 ? 0 : best;
}

/* Returns the lanes of the reducers if all have as many, so that they get multiples of
 * it; else 1. */
static unsigned choose_block(const struct rs_config *cfg)
{
	for (unsigned i = 1; i < cfg->reducers_n; i++)
		if (cfg->reducers[i].lanes != cfg->reducers[0].lanes)
			return 1;
	return cfg->reducers[0].lanes ? cfg->reducers[0].lanes : 1;
}

/* Returns whether the next shard of a home, after `seen` ones, is straight: as many are
 * as they should, evenly spaced, and those of different homes not at the same time. */
static bool is_straight(const struct rounding *r, unsigned home, unsigned seen, uint64_t straight)
{
	uint64_t count = r->p->count[home], begin = count * home / r->p->reducers_n;

	return ((seen + 1) * straight + begin) / count > (seen * straight + begin) / count;
}

/* Fills the relays of a rack: some of each home's shards are straight, the others are
 * interleaved over the relays. seen is scratch: shards of each home so far. */
static int map_rack(const struct rounding *r, unsigned rack, unsigned *seen, uint16_t *dealt, struct rs_err *e)
{
	const struct plan *p = r->p;
	const unsigned *straight = r->straight + (size_t)rack * p->reducers_n;
	uint16_t *relay = p->relay + (size_t)rack * p->shards;
	unsigned relayed = 0, next = 0;
	unsigned *counts = calloc(p->reducers_n, sizeof *counts);
	int rc;

	if (!counts)
		return rs_oom(e, p->reducers_n * sizeof *counts, "the map of relays");
	for (unsigned i = 0; i < p->reducers_n; i++) {
		counts[i] = place_of(r, i) == rack ? p->relayed[i] : 0;
		relayed += counts[i];
		seen[i] = 0;
	}
	rc = relayed ? shardmap_interleave(dealt, relayed, counts, p->reducers_n, e) : RS_OK;
	free(counts);
	for (unsigned s = 0; rc == RS_OK && s < p->shards; s++) {
		unsigned home = p->owner[s];

		relay[s] = is_straight(r, home, seen[home]++, straight[home]) ? RS_NO_RELAY : dealt[next++];
	}
	return rc;
}

/* Fills owner and relay from the units. */
static int make_map(struct rounding *r, struct rs_err *e)
{
	struct plan *p = r->p;
	unsigned *seen = calloc(p->reducers_n, sizeof *seen);
	uint16_t *dealt = calloc(p->shards, sizeof *dealt);
	int rc;

	p->owner = calloc(p->shards, sizeof *p->owner);
	p->relay = calloc((size_t)p->net.racks_n * p->shards, sizeof *p->relay);
	if (seen && dealt && p->owner && p->relay)
		rc = shardmap_interleave(p->owner, p->shards, p->count, p->reducers_n, e);
	else
		rc = rs_oom(e, p->net.racks_n * p->shards * sizeof *p->relay, "the map of relays");
	for (unsigned g = 0; rc == RS_OK && g < p->net.racks_n; g++)
		rc = map_rack(r, g, seen, dealt, e);
	free(seen);
	free(dealt);
	return rc;
}

/* Fills work: what each reducer receives, from its own machine too. */
static void take_work(const struct rounding *r)
{
	struct plan *p = r->p;

	for (unsigned i = 0; i < p->reducers_n; i++) {
		unsigned q = place_of(r, i);
		double own = p->net.rack[q].workers, shards = p->shards;

		p->work[i] = (own * p->count[i] + (own + 1) * p->relayed[i]) / shards;
		for (unsigned g = 0; g < p->net.racks_n; g++)
			if (g != q)
				p->work[i] += (p->count[i] + (p->net.rack[g].workers - 1.0) *
								 r->straight[(size_t)g * p->reducers_n + i]) /
					      shards;
	}
}

/* Finds the units of a rounding, and makes the plan's map from them. */
static int make_whole(struct rounding *r, const struct rs_config *cfg, double optimum, struct rs_err *e)
{
	struct plan *p = r->p;
	unsigned units;

	r->block = choose_block(cfg);
	units = choose_units(r, optimum);
	if (units == 0) {
		r->block = 1;
		units = choose_units(r, optimum);
	}
	p->time = round_to(r, units) * p->sent;
	p->shards = units * r->block;
	for (unsigned i = 0; i < p->reducers_n; i++) {
		p->count[i] *= r->block;
		p->relayed[i] *= r->block;
		for (unsigned g = 0; g < p->net.racks_n; g++)
			r->straight[(size_t)g * p->reducers_n + i] *= r->block;
	}
	memcpy(p->share, r->found.home, p->net.machines_n * sizeof *p->share);
	take_work(r);
	return make_map(r, e);
}

int plan_relay_map(struct plan *p, const struct plan_split *best, const struct rs_config *cfg, struct rs_err *e)
{
	struct rounding r = {.p = p, .best = best};
	int rc = plan_split_init(&r.found, &p->net, e);

	if (rc)
		return rc;
	r.place = calloc(p->net.machines_n, sizeof *r.place);
	r.straight = calloc((size_t)p->net.racks_n * p->reducers_n, sizeof *r.straight);
	if (r.place && r.straight) {
		for (unsigned q = 0; q < p->net.places_n; q++)
			for (unsigned i = 0; i < p->net.rack[q].machines_n; i++)
				r.place[p->net.order[p->net.rack[q].first + i]] = q;
		plan_split_loads(best, &p->net, p->load, p->uplink);
		rc = make_whole(&r, cfg, plan_loads_time(&p->net, p->load, p->uplink), e);
	} else {
		rc = rs_oom(e, 0, "the relays of %u racks", p->net.racks_n);
	}
	plan_split_close(&r.found);
	free(r.place);
	free(r.straight);
	return rc;
}
