/* SPDX-License-Identifier: Apache-2.0 */
/* What long links cost and need. On a connection with a round trip of t seconds at most
 * window / t bytes a second come and go, and as much as the socket's buffer holds. The
 * windows are those of workers (config/exchange_params.h). */
#include "deploy/ctl/plan/plan.h"

#include <math.h>

/* Returns the bytes a second of each connection to a reducer, for the plan's time: those
 * of a worker in its rack, for which it is both home and relay. */
static double rate_of(const struct plan *p, const struct rs_config *cfg, unsigned r)
{
	if (p->time <= 0)
		return 0;
	return p->sent * (p->count[r] + p->relayed[r]) / p->shards / p->time / cfg->reducers[r].lanes;
}

static double rtt_of(const struct rs_config *cfg, unsigned r)
{
	return cfg->reducers[r].rtt_ms / 1e3;
}

/* Returns the bytes of a retained result, as agent/worker/core/retain.c has it. */
static uint64_t result_bytes(const struct exchange_params *p)
{
	return (rs_wire_chunk_most(p->chunk_bytes, p->decoded_bytes) + 63) & ~UINT64_C(63);
}

/* Takes the windows, and the time that they allow. */
static void take_windows(struct plan *p, const struct rs_config *cfg, const struct exchange_params *params)
{
	struct plan_far *far = &p->far;

	far->time = p->time;
	for (unsigned r = 0; r < p->reducers_n; r++) {
		uint32_t window =
		    exchange_params_window(params, (uint64_t)cfg->reducers[r].rtt_ms * 1000, far->connections);
		double bytes = (double)window * cfg->sharding.chunk_bytes, each = rate_of(p, cfg, r) * rtt_of(cfg, r);

		far->window = window > far->window ? window : far->window;
		far->flight += bytes * cfg->reducers[r].lanes;
		far->product += each * cfg->reducers[r].lanes;
		far->product_each = fmax(far->product_each, each);
		far->time = fmax(far->time, p->time * each / bytes);
	}
	far->time += far->rtt;
}

uint64_t plan_retained(const struct plan *p, const struct rs_config *cfg, uint32_t window)
{
	struct exchange_params params = rs_config_exchange(cfg);
	unsigned connections = 0;

	for (unsigned r = 0; r < p->reducers_n; r++)
		connections += cfg->reducers[r].lanes;
	if (!cfg->job.retain || p->reducers_n < 2)
		return 0;
	return (exchange_params_lead(&params, window, connections, !cfg->job.baseline) + 1) * cfg->sharding.priorities *
	       result_bytes(&params);
}

void plan_far(struct plan *p, const struct rs_config *cfg)
{
	struct exchange_params params = rs_config_exchange(cfg);
	struct plan_far *far = &p->far;

	*far = (struct plan_far){.window = cfg->sharding.window};
	for (unsigned r = 0; r < p->reducers_n; r++) {
		far->connections += cfg->reducers[r].lanes;
		if (cfg->reducers[r].rtt_ms * UINT64_C(1000) >= RS_LONG_US)
			far->rtt = fmax(far->rtt, rtt_of(cfg, r));
	}
	if (far->rtt == 0)
		return;
	take_windows(p, cfg, &params);
	far->retained = plan_retained(p, cfg, far->window);
}

void plan_far_sockets(struct plan *p, const struct rs_config *cfg, const struct plan_sockets *s)
{
	struct plan_far *far = &p->far;
	double holds = (double)(s->rmem[2] < s->wmem[2] ? s->rmem[2] : s->wmem[2]) / SOCKET_OVERHEAD;

	far->sockets = *s;
	far->socket = holds;
	far->socket_time = 0;
	far->lanes = 0;
	if (far->rtt == 0 || holds <= 0 || far->product_each <= holds)
		return;
	far->socket_time = far->time;
	for (unsigned r = 0; r < p->reducers_n; r++) {
		double each = rate_of(p, cfg, r) * rtt_of(cfg, r);
		double lanes = ceil(each * cfg->reducers[r].lanes / holds * (1 - plan_slack));

		far->lanes = lanes > far->lanes ? (unsigned)fmin(lanes, RS_LANES_MAX + 1) : far->lanes;
		far->socket_time = fmax(far->socket_time, p->time * each / holds + far->rtt);
	}
	if (far->lanes > RS_LANES_MAX)
		far->lanes = 0;
}

uint64_t plan_far_buffer(const struct plan *p)
{
	return socket_buffer(p->far.product_each);
}
