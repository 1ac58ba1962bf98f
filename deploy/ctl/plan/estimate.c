/* SPDX-License-Identifier: Apache-2.0 */
/* Steps, prices, and what a reducer needs. */
#include "deploy/ctl/plan/plan.h"

#include "common/tls.h"

#include <math.h>

/* Measured: CPU seconds of a reducer for each GiB that workers send. The first is that of
 * a lane on a fast machine (bench/DECISIONS.md, "Lanes"), the second that on links of 1
 * Gbit/s (bench/README.md, "What a reducer costs"). */
static const double cpu_least = 0.8, cpu_most = 1.5;

/* Measured: the part of it that is spent for elements and not for bytes, if each element
 * is sent in 4 bytes. So 0.72 and 0.40 CPU seconds for each GiB of float32 gradients that
 * are sent in 2 bytes and in 1, 1.35 in 4 (bench/RECORDS.md, "All-reduce with
 * encodings"). */
static const double cpu_elements = 0.06;

/* Measured: what TLS, gRPC, and gRPC with TLS add to that (bench/RECORDS.md, "TLS and
 * gRPC"). */
static const double cpu_tls = 0.7, cpu_grpc = 1.4, cpu_grpc_tls = 2.4;

/* Bytes of a job in a reducer beside its buffers: of the job, of each slot, and of each
 * connection. The sum is what the reducer logs as memory_bytes when a job opens, to
 * within 5 %. */
enum { MEMORY_JOB = 64 << 10, MEMORY_SLOT = 512, MEMORY_CONNECTION = 14 << 10, MEMORY_RESULT = 16 };

static const double GIBIBYTE = 1 << 30, STEPS_PRICED = 1000, SECONDS_PER_HOUR = 3600;

static double cpu_of_transport(const struct rs_config *cfg)
{
	bool tls = cfg->security.tls != TLS_OFF;

	if (cfg->job.grpc)
		return tls ? cpu_grpc_tls : cpu_grpc;
	return tls ? cpu_tls : 0;
}

/* Returns the bytes that a job takes in a reducer with these lanes. The numbers are
 * limited so that nothing overflows.
 */
static uint64_t memory_of(const struct plan *p, const struct rs_config *cfg, unsigned lanes)
{
	unsigned ahead = rs_config_exchange(cfg).ahead, window = ahead > p->far.window ? ahead : p->far.window;
	uint64_t slots = 2ull * window * cfg->sharding.priorities;
	uint64_t stash = cfg->job.deterministic ? p->net.workers - 1 : 0;
	uint64_t decoded = rs_wire_decoded(p->up, p->down);
	uint64_t chunk = rs_config_chunk(cfg, p->relay);
	uint64_t lane = slots * ((decoded + stash * 2) * chunk + MEMORY_SLOT);

	lane += p->net.workers * (MEMORY_CONNECTION + slots * MEMORY_RESULT);
	return lanes * lane + MEMORY_JOB;
}

/* Chooses the reducer with the most bytes for each lane. */
static void estimate_needs(struct plan *p, const struct rs_config *cfg)
{
	struct plan_needs *needs = &p->needs;
	unsigned busiest = 0;
	double received, fewer = 1;

	for (unsigned i = 1; i < p->reducers_n; i++)
		if (p->work[i] * cfg->reducers[busiest].lanes >
		    p->work[busiest] * cfg->reducers[i].lanes * (1 + plan_slack))
			busiest = i;
	received = p->sent * p->work[busiest];
	if (p->sent > 0)
		fewer = 1 - cpu_elements + cpu_elements * (double)p->bytes / p->sent;
	needs->cpu_least = cpu_least * fewer + cpu_of_transport(cfg);
	needs->cpu_most = cpu_most * fewer + cpu_of_transport(cfg);
	needs->lanes = cfg->reducers[busiest].lanes;
	needs->cores_least = p->time > 0 ? received / p->time / GIBIBYTE * needs->cpu_least : 0;
	needs->cores_most = p->time > 0 ? received / p->time / GIBIBYTE * needs->cpu_most : 0;
	needs->memory = memory_of(p, cfg, needs->lanes);
	if (p->relay) /* a chunk also waits for the home's result */
		needs->memory *= 2;
	needs->ahead = cfg->sharding.decoupled ? rs_config_exchange(cfg).ahead : 0;
	needs->retained = needs->ahead ? plan_retained(p, cfg, needs->ahead) : 0;
}

/* What leaves racks is the same whether it overlaps with computing or not. */
static void estimate_cost(struct plan *p, unsigned overlap)
{
	double working = p->net.machines_n - p->dedicated_n, hours = STEPS_PRICED / SECONDS_PER_HOUR;

	p->cost[overlap].ring = p->steps[overlap].ring * hours * working * p->price_worker + p->way[PLAN_RING].price;
	p->cost[overlap].reducers =
	    p->steps[overlap].reducers * hours * (working * p->price_worker + p->dedicated_n * p->price_reducer) +
	    p->way[p->relay ? PLAN_RELAYS : PLAN_FLAT].price;
}

void plan_estimate(struct plan *p, const struct rs_config *cfg)
{
	estimate_needs(p, cfg);
	if (p->step == 0)
		return;
	p->steps[PLAN_NO_OVERLAP] = (struct plan_pair){p->step + p->ring, p->step + p->time};
	p->steps[PLAN_FULL_OVERLAP] = (struct plan_pair){fmax(p->step, p->ring), fmax(p->step, p->time)};
	for (unsigned i = 0; p->price_worker > 0 && i < PLAN_OVERLAPS; i++)
		estimate_cost(p, i);
}
