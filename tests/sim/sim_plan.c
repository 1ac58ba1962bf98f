/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a run: the network, the reducers, up to four jobs of one or two generations,
 * their operations and faults. All sizes are small, because small runs find most errors
 * and many of them can be tried. */
#include "tests/sim/sim.h"

#include "common/dtype.h"
#include "proto/operation.h"

#include <stdlib.h>
#include <string.h>

static uint32_t one_of(struct sim *s, const uint32_t *list, unsigned n)
{
	return list[sim_below(s, n)];
}

#define ONE_OF(s, ...) one_of(s, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

static void draw_network(struct sim *s)
{
	s->delay_us = ONE_OF(s, 10, 100, 100, 1000);
	s->jitter_us = ONE_OF(s, 0, 50, 50, 1000, 5000);
	s->piece = ONE_OF(s, 40, 400, 2000, 2000, 65536);
	s->socket_bytes = ONE_OF(s, 700, 1500, 4096, 16384);
	s->balk = ONE_OF(s, 0, 0, 5, 20);
	s->mail_us = ONE_OF(s, 50, 300, 300, 5000);
	s->jobs_most = sim_chance(s, 10) ? 1 : 8;
	s->guarded = sim_chance(s, 40);
	/* 7 s: all ranks must know before that a machine is gone, see fault_blame */
	s->stopped_ms = ONE_OF(s, 0, 0, 4000, 7000);
	s->features = sim_random(s) | FEATURE_START | FEATURE_PROBE |
		      FEATURE_SLOTS; /* reducers of one job may differ in these only */
	s->features |= sim_chance(s, 70) ? FEATURE_ENCODINGS : 0;
	s->features |= sim_chance(s, 70) ? FEATURE_SHARDED : 0;
	s->features |= s->seed % 10 < 7 ? FEATURE_RELAYS : 0; /* draws nothing: the rest stays as it was */
}

static void draw_reducers(struct sim *s)
{
	unsigned keep;

	s->reducers_n = 1 + sim_below(s, SIM_REDUCERS);
	keep = sim_below(s, s->reducers_n);
	if (s->reducers_n > 1 && sim_chance(s, 15))
		s->late = (unsigned)sim_random(s) & ((1u << s->reducers_n) - 1) & ~(1u << keep);
	for (unsigned i = 0; i < s->reducers_n; i++) {
		struct reducer *r = &s->reducers[i];

		r->sim = s;
		r->index = i;
		r->threads_n = 1 + sim_below(s, SIM_THREADS);
		r->detect_ms = sim_between(s, 1000, 2000);
		r->features = s->features & ~(sim_chance(s, 20) ? FEATURE_START : 0) &
			      ~(sim_chance(s, 20) ? FEATURE_PROBE : 0) & ~(sim_chance(s, 20) ? FEATURE_SLOTS : 0);
		r->far_us = sim_chance(s, 20) ? 20 * s->delay_us : 0;
		if (s->late >> i & 1)
			sim_in(s, sim_between(s, 4000, 7000) * 1000, EV_REDUCER_ON, i, 0);
		else
			sim_in(s, sim_chance(s, 80) ? 0 : sim_below(s, 1000000), EV_REDUCER_ON, i, 0);
		if (sim_chance(s, 10))
			sim_in(s, sim_below(s, 50000), EV_UNAUTH, i, 0);
		if (s->guarded && sim_chance(s, 10))
			sim_in(s, sim_below(s, 1000000), EV_UNAUTH, i, 0);
	}
}

static void draw_shards(struct sim *s, struct rs_config *cfg, uint16_t *owner)
{
	cfg->sharding.owner = owner;
	for (unsigned i = 0; i < cfg->sharding.shards; i++)
		owner[i] = (uint16_t)sim_below(s, s->reducers_n);
}

/* A job that may use encodings; one that says so has room for 8 or 4 bits. */
static void draw_wire(struct sim *s, struct team *t)
{
	const uint64_t needs = FEATURE_START | FEATURE_ENCODINGS, sharded = FEATURE_START | FEATURE_SHARDED;
	uint64_t all = UINT64_MAX;

	for (unsigned i = 0; i < SIM_WORLD; i++)
		all &= t->offered[i];
	for (unsigned i = 0; i < s->reducers_n; i++)
		all &= s->reducers[i].features;
	t->encodes = (all & needs) == needs;
	t->shards_ops = (all & sharded) == sharded;
	if (sim_chance(s, 50))
		t->cfg.job.wire_feedback = 1 << 20;
	if (t->encodes && sim_chance(s, 50))
		t->cfg.job.wire_up = (uint8_t)sim_below(s, RS_WIRE_NR);
	if (t->cfg.job.wire_up == RS_WIRE_INT4 && sim_chance(s, 50))
		t->cfg.job.wire_down = RS_WIRE_INT4;
}

static void draw_config(struct sim *s, struct team *t)
{
	struct rs_config *cfg = &t->cfg;
	bool modern = sim_chance(s, 60);

	*cfg = *s->base;
	t->reducers = calloc(s->reducers_n, sizeof *t->reducers);
	t->owner = calloc(SIM_SHARDS, sizeof *t->owner);
	if (!t->reducers || !t->owner)
		abort();
	for (unsigned i = 0; i < s->reducers_n; i++) {
		snprintf(t->reducers[i].id, sizeof t->reducers[i].id, "r%u", i);
		snprintf(t->reducers[i].address, sizeof t->reducers[i].address, "sim:%u", i + 1);
		t->reducers[i].weight = 1;
		t->reducers[i].lanes = sim_chance(s, 70) ? 1 : 2;
	}
	cfg->reducers = t->reducers;
	cfg->reducers_n = s->reducers_n;
	cfg->job.deterministic = sim_chance(s, 40);
	cfg->job.checksum = sim_chance(s, 30);
	cfg->job.retain = s->late || sim_chance(s, 75);
	cfg->job.min_reducers = 1;
	cfg->sharding.shards = 1 + sim_below(s, SIM_SHARDS);
	cfg->sharding.chunk_bytes = ONE_OF(s, 1024, 1024, 1024, 1088, 2048);
	cfg->sharding.window = ONE_OF(s, 1, 1, 2, 2, 3, 4, 8, 16);
	cfg->sharding.priorities = sim_between(s, 1, RS_PRIORITIES_MAX);
	draw_shards(s, cfg, t->owner);
	cfg->timeouts.detect_ms = sim_between(s, 1000, 2000);
	cfg->timeouts.op_ms = 0;
	cfg->sharding.decoupled = sim_chance(s, 35) ? ONE_OF(s, 2, 8, 24, 60) * (uint64_t)cfg->sharding.chunk_bytes : 0;
	t->adaptive = sim_chance(s, 50);
	t->moves_shares = cfg->job.retain && sim_chance(s, 40) ? ONE_OF(s, 1, 1, 5, 30) : 0;
	cfg->sharding.rebalance = (int)sim_below(s, 3);
	t->moves_left = ONE_OF(s, 1, 3, 20);
	t->rtt_us = sim_chance(s, 30) ? sim_between(s, 5000, 100000) : 0;
	cfg->plan.bandwidth = sim_between(s, 100, 4000) * (uint64_t)1000;
	for (unsigned i = 0; i < SIM_WORLD; i++)
		t->offered[i] = modern || sim_chance(s, 90) ? UINT64_MAX : sim_random(s);
	t->lead_most = ONE_OF(s, 2, 4, 8, LEAD_MOST);
	draw_wire(s, t);
	groups_draw(s, t);
	t->connect_ms = 8000;
	t->pause_us = s->late && sim_chance(s, 70) ? 500000 : ONE_OF(s, 0, 100, 1000, 20000);
	t->hit = s->late; /* other reducers have to be left */
}

static void keep_fitting(struct op_plan *p)
{
	p->up = rs_wire_fits_up(p->up, p->dtype, p->op) ? p->up : RS_WIRE_SAME;
	p->down = rs_wire_fits(p->down, p->dtype, p->op) ? p->down : RS_WIRE_SAME;
	p->partials &= p->dtype == RS_FLOAT16 && p->op == RS_AVG;
}

/* Most encodings have any scale, so sums of what they decode to depend on the order: only
 * a deterministic job gives bits that the oracle knows. */
static void draw_encoding(struct sim *s, const struct team *t, struct op_plan *p)
{
	uint8_t up = (uint8_t)sim_below(s, RS_WIRE_NR), down = (uint8_t)sim_below(s, RS_WIRE_NR);

	if (!t->encodes || sim_chance(s, 40))
		return;
	if (!t->cfg.job.deterministic && up != RS_WIRE_SAME && up != RS_WIRE_BF16)
		up = RS_WIRE_FP16;
	if (t->exact)
		up = RS_WIRE_SAME;
	p->up = up;
	p->down = down;
	keep_fitting(p);
}

/* Returns the ranks that are nodes of several processes. */
static uint32_t nodes_of(const struct team *t)
{
	uint32_t ranks = 0;

	for (unsigned r = 0; r < SIM_WORLD; r++)
		ranks |= (uint32_t)(t->processes[r] > 1) << r;
	return ranks & ((1u << t->world) - 1);
}

static void draw_op(struct sim *s, const struct team *t, struct op_plan *p)
{
	const struct exchange_params params = rs_config_exchange(&t->cfg);
	static const uint8_t ops[] = {
	    RS_SUM, RS_SUM, RS_SUM, RS_AVG, RS_AVG, RS_PROD, RS_MAX, RS_MIN, FRAME_OP_BROADCAST};
	bool long_stream = t->ops_n == SIM_OPS && t->cfg.sharding.priorities == 1;
	uint32_t chunk, chunks = 10;

	memset(p, 0, sizeof *p);
	p->seed = sim_random(s);
	p->dtype = sim_chance(s, 20) ? RS_FLOAT32 : (uint8_t)sim_below(s, RS_DTYPE_NR);
	p->op = ops[sim_below(s, sizeof ops)];
	draw_encoding(s, t, p);
	chunk = operation_chunk_elems(&(struct operation){.dtype = p->dtype & 15,
							  .size = rs_dtype_size(p->dtype) & OPERATION_SIZE,
							  .up = p->up & 15,
							  .down = p->down & 7},
				      params.chunk_bytes, params.decoded_bytes);
	if (sim_chance(s, 60) && !long_stream)
		chunks = 1;
	else if (sim_chance(s, 90) && !long_stream)
		chunks = 4;
	else if (sim_chance(s, long_stream ? 30 : 10))
		chunks = 60; /* more chunks of one operation than results are retained */
	p->partials = p->up == RS_WIRE_FP16 && p->dtype == RS_FLOAT16 && sim_chance(s, 50);
	if (p->partials && !p->down && params.chunk_bytes % (2 * RS_WIRE_BLOCK))
		p->up = RS_WIRE_SAME; /* such chunks are not whole blocks */
	p->count = sim_chance(s, 5) ? 0 : 1 + sim_below(s, chunks * chunk);
	p->sharded = t->shards_ops && sim_chance(s, 35);
	if (p->sharded)
		p->count = (p->count + t->world - 1) / t->world * t->world;
	p->root = sim_below(s, t->world);
	p->priority = sim_chance(s, 30) ? -1 : (int)sim_below(s, FRAME_PRIORITIES + 1);
	if (rs_dtype_is_half(p->dtype) && p->op != FRAME_OP_BROADCAST && !p->sharded)
		p->wide = (uint32_t)sim_random(s);
	p->in_place = (uint32_t)sim_random(s);
	p->staged = sim_chance(s, 25) && !p->sharded ? (uint32_t)sim_random(s) : 0;
	if (p->sharded && p->count && p->seed % 3 == 0) /* draws nothing: the rest of the plan stays as it was */
		p->staged = (uint32_t)(p->seed >> 8);
	if (p->sharded && !p->staged && p->op != FRAME_OP_BROADCAST && rs_dtype_is_half(p->dtype))
		p->wide = (uint32_t)(p->seed >> 16) & nodes_of(t); /* draws nothing either */
	p->lazy = sim_chance(s, 50) ? (uint32_t)sim_random(s) : 0;
	p->rough = !t->cfg.job.deterministic && p->dtype == RS_FLOAT32 && p->op == RS_SUM && !p->up && !p->down &&
		   sim_chance(s, 70);
	/* no name twice: with error feedback the second result would depend on the
	 * first */
	if (sim_chance(s, 50))
		snprintf(p->name, sizeof p->name, "layer%u.%u", t->index, (unsigned)(p - t->ops));
}

/* Draws the operation that one rank calls instead, so that the others cannot agree with
 * it. */
static void draw_disagreement(struct sim *s, struct team *t, const struct fault *f)
{
	struct op_plan *p = &t->odd;

	*p = t->ops[f->op];
	t->odd_rank = f->rank;
	t->odd_at = f->op;
	switch (sim_below(s, t->cfg.sharding.priorities > 1 ? 5 : 4)) {
	case 4: /* a large operation without a priority has priority 0 */
		p->priority =
		    p->priority == 0 || (p->priority < 0 && p->count * rs_dtype_size(p->dtype) > OPERATION_SMALL);
		break;
	case 0:
		p->count += (1 + sim_below(s, sim_chance(s, 50) ? 100 : 2000)) * (p->sharded ? t->world : 1);
		break;
	case 1:
		p->dtype = (p->dtype + 1) % RS_DTYPE_NR;
		p->wide = 0;
		break;
	case 2:
		if (t->encodes && rs_wire_fits(RS_WIRE_FP8, p->dtype, p->op))
			p->down = p->down == RS_WIRE_FP8 ? RS_WIRE_SAME : RS_WIRE_FP8;
		else
			snprintf(p->name, sizeof p->name, "another");
		break;
	default:
		if (t->shards_ops && sim_chance(s, 50) && p->count % t->world == 0 && !p->wide && !p->staged)
			p->sharded ^= true;
		else if (p->op == FRAME_OP_BROADCAST && !p->sharded)
			p->root = p->root == f->rank ? SIM_WORLD : f->rank; /* no root, or two */
		else if (p->op == FRAME_OP_BROADCAST)
			p->op = RS_SUM;
		else
			p->op = p->op == RS_SUM ? RS_MAX : RS_SUM;
	}
	keep_fitting(p);
}

static void draw_misconfiguration(struct sim *s, struct team *t, const struct fault *f)
{
	t->other_cfg = t->cfg;
	t->odd_rank = f->rank;
	t->other_owner = calloc(SIM_SHARDS, sizeof *t->other_owner);
	if (!t->other_owner)
		abort();
	memcpy(t->other_owner, t->owner, SIM_SHARDS * sizeof *t->owner);
	t->other_cfg.sharding.owner = t->other_owner;
	switch (sim_below(s, 4)) {
	case 0:
		t->other_cfg.sharding.window++;
		break;
	case 1:
		t->other_cfg.sharding.decoupled += 4096;
		break;
	case 2:
		t->other_cfg.job.deterministic ^= true;
		break;
	default:
		if (s->reducers_n > 1)
			t->other_owner[0] = (uint16_t)((t->other_owner[0] + 1) % s->reducers_n);
		else
			t->other_cfg.sharding.chunk_bytes += 64;
	}
}

/* Returns whether the job can lose reducers. */
static bool survives(const struct team *t)
{
	return t->cfg.job.retain && t->cfg.reducers_n > 1;
}

/* A fault of this kind needs another rank to disagree with, or operations to miss. */
static bool fits(const struct team *t, const struct fault *f)
{
	switch (f->kind) {
	case FAULT_MISMATCH:
	case FAULT_FEWER:
	case FAULT_HANG:
		return t->world > 1 && t->ops_n > 0 && t->faults_n == 1;
	case FAULT_STORM:
		return survives(t);
	case FAULT_SECRET:
		return t->faults_n == 1;
	case FAULT_MISCONFIGURED:
	case FAULT_STRANGER:
	case FAULT_ABSENT:
		return t->world > 1 && t->faults_n == 1;
	default:
		return true;
	}
}

static void draw_fault(struct sim *s, struct team *t)
{
	struct fault *f = &t->faults[t->faults_n++];

	*f = (struct fault){
	    .kind = 1 + sim_below(s, FAULT_NR - 1),
	    .rank = sim_below(s, t->world),
	    .reducer = sim_below(s, s->reducers_n),
	    .op = t->ops_n ? sim_below(s, t->ops_n) : 0,
	    .after_op = UINT32_MAX,
	    .again = sim_below(s, 12),
	    .in_us = sim_below(s, ONE_OF(s, 1, 300, 3000, 30000)),
	};
	for (unsigned i = 0; i < s->reducers_n; i++)
		f->link += t->reducers[i].lanes;
	f->link = sim_below(s, f->link);
	if (t->ops_n && sim_chance(s, 75))
		f->after_op = f->op;
	if (!fits(t, f)) {
		t->faults_n--;
		return;
	}
	if (f->kind == FAULT_MISMATCH)
		draw_disagreement(s, t, f);
	if (f->kind == FAULT_MISCONFIGURED)
		draw_misconfiguration(s, t, f);
	/* longer than a rank may take to call them all, if another one has */
	if (f->kind == FAULT_HANG)
		t->cfg.timeouts.op_ms = sim_between(s, 500, 4000) + t->ops_n * (t->pause_us / 1000);
	if (f->kind == FAULT_ABSENT)
		t->connect_ms = sim_between(s, 2500, 4000);
}

/* All reducers learn of the end of every process: a job can start again at once with the
 * same generation. */
static bool leaves_nothing(const struct team *t)
{
	for (unsigned i = 0; i < t->faults_n; i++) {
		enum fault_kind k = t->faults[i].kind;

		if (k != FAULT_KILL && k != FAULT_MISMATCH && k != FAULT_FEWER && k != FAULT_HANG && k != FAULT_ABORT &&
		    k != FAULT_GOODBYE)
			return false;
	}
	return true;
}

static void draw_team(struct sim *s, const char *job, unsigned run, struct team *before)
{
	struct team *t = &s->teams[s->teams_n];

	t->sim = s;
	t->index = s->teams_n++;
	snprintf(t->job, sizeof t->job, "%s", job);
	t->run = run;
	t->odd_rank = SIM_WORLD;
	t->world = ONE_OF(s, 1, 2, 2, 2, 3, 3, 3, 4, 4, SIM_WORLD);
	for (unsigned r = 0; r < t->world; r++) {
		t->processes[r] = sim_chance(s, 80) ? 1 : 1 + sim_below(s, 4);
		t->processes_all += t->processes[r];
	}
	draw_config(s, t);
	t->before = before;
	move_draw(s, t);
	t->ops_n = sim_below(s, sim_chance(s, 80) ? 6 : SIM_OPS + 1);
	if (sim_chance(s, 4) && !t->moves) { /* one stream that is longer than the retained results */
		t->ops_n = SIM_OPS;
		t->cfg.sharding.priorities = 1;
	}
	for (unsigned i = 0; i < t->ops_n; i++)
		draw_op(s, t, &t->ops[i]);
	if (sim_chance(s, 60))
		draw_fault(s, t);
	/* the others end the rank that hangs: they must not leave before */
	if (t->faults_n && t->faults[0].kind != FAULT_HANG && sim_chance(s, 20))
		draw_fault(s, t);
	if (t->moves) {
		move_drop_faults(t);
		t->generation = before->generation + 1 + sim_below(s, 3);
	} else if (before && before->faults_n && leaves_nothing(before) && sim_chance(s, 50)) {
		t->generation = before->generation;
		t->again = t->together = true;
	} else if (before) {
		t->generation = before->generation + (before->faults_n || !before->ops_n || sim_chance(s, 50) ? 1 : 0);
		t->together = before->faults_n ? sim_chance(s, 50) : t->generation > before->generation;
	}
	/* a rank may be stopped in the generation before, while the others have begun
	 * this one */
	for (unsigned i = 0; before && i < before->faults_n; i++)
		t->connect_ms += before->faults[i].kind == FAULT_STALL ? 9000 : 0;
}

static void draw_ranks(struct sim *s)
{
	struct rank *k;

	for (unsigned i = 0; i < s->teams_n; i++)
		s->ranks_n += s->teams[i].world;
	k = s->ranks = calloc(s->ranks_n, sizeof *s->ranks);
	if (!k)
		abort();
	for (unsigned i = 0; i < s->teams_n; i++) {
		struct team *t = &s->teams[i];
		uint32_t spread_us = ONE_OF(s, 1, 1000, 1000, 20000, 1500000);

		t->ranks = k;
		for (unsigned r = 0; r < t->world; r++, k++) {
			k->sim = s;
			k->team = t;
			k->index = r;
			k->process = (uint32_t)(k - s->ranks);
			k->todo = t->ops_n;
			k->pending_most = ONE_OF(s, 1, 2, SIM_OPS, SIM_OPS);
			if (!t->before)
				sim_in(s, sim_below(s, spread_us), EV_RANK_BIRTH, k->process, 0);
		}
	}
}

void plan_draw(struct sim *s)
{
	static const char *const jobs[] = {"amber", "birch"};
	bool namesakes = sim_chance(s, 10) || s->namesakes;
	unsigned n = namesakes ? 2 + sim_below(s, 3) : sim_chance(s, 75) ? 1 : 2;

	/* one run for several trainings is a mistake of people: a restart would end any
	 * of them */
	bool evident = namesakes && sim_chance(s, 40);

	draw_network(s);
	draw_reducers(s);
	for (unsigned i = 0; i < n; i++) {
		const char *job = jobs[namesakes ? 0 : i];

		draw_team(s, job, i, NULL);
		s->teams[s->teams_n - 1].evident = evident;
		if (!evident && s->teams_n + n - i <= SIM_TEAMS && sim_chance(s, 30))
			draw_team(s, job, i, &s->teams[s->teams_n - 1]);
	}
	draw_ranks(s);
}

void plan_free(struct sim *s)
{
	for (unsigned i = 0; i < s->teams_n; i++) {
		struct team *t = &s->teams[i];

		for (unsigned o = 0; o < t->ops_n; o++) {
			free(t->ops[o].want);
			free(t->ops[o].known);
		}
		free(t->reducers);
		free(t->owner);
		free(t->groups);
		free(t->relays);
		free(t->other_owner);
	}
	free(s->ranks);
}

const struct op_plan *plan_op(const struct team *t, unsigned r, unsigned i)
{
	bool odd = r == t->odd_rank && !t->other_owner && i == t->odd_at;

	return odd ? &t->odd : &t->ops[i];
}
