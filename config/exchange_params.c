/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tls.h"
#include "common/wire.h"
#include "config/config.h"
#include "config/shardmap.h"

#include <string.h>

struct exchange_params rs_config_exchange(const struct rs_config *cfg)
{
	bool tls = cfg->security.tls != TLS_OFF;

	return (struct exchange_params){
	    .reducers = cfg->reducers,
	    .reducers_n = cfg->reducers_n,
	    .home = cfg->sharding.owner,
	    .shards = cfg->sharding.shards,
	    .chunk_bytes = cfg->sharding.chunk_bytes,
	    .window = cfg->sharding.window,
	    .priorities = cfg->sharding.priorities,
	    .deterministic = cfg->job.deterministic,
	    .checksum = cfg->job.checksum,
	    .retain = cfg->job.retain,
	    .min_reducers = cfg->job.min_reducers,
	    .detect_nonfinite = cfg->job.detect_nonfinite,
	    .rebalance = cfg->sharding.rebalance,
	    .bandwidth = cfg->plan.bandwidth,
	    .wire_up = cfg->job.wire_up,
	    .wire_down = cfg->job.wire_down,
	    .wire_random = cfg->job.wire_random,
	    .wire_feedback = cfg->job.wire_feedback,
	    .decoded_bytes = rs_wire_decoded(cfg->job.wire_up, cfg->job.wire_down) * cfg->sharding.chunk_bytes,
	    .grpc = cfg->job.grpc,
	    .transport = cfg->job.grpc ? (tls ? "grpc+tls" : "grpc")
			 : tls         ? "tcp+tls"
				       : "tcp",
	    .detect_ms = cfg->timeouts.detect_ms,
	    .op_ms = cfg->timeouts.op_ms,
	    .digest = rs_config_digest(cfg),
	};
}

/* Returns the window for so many bytes in flight on all connections. */
static uint32_t exchange_params_window_of(const struct exchange_params *p, uint64_t bytes, unsigned links)
{
	uint64_t chunks = bytes / p->chunk_bytes / links + 1;

	chunks = chunks > RS_WINDOW_MAX ? RS_WINDOW_MAX : chunks;
	return chunks > p->window ? (uint32_t)chunks : p->window;
}

uint32_t exchange_params_window(const struct exchange_params *p, uint64_t rtt_us, unsigned links)
{
	uint64_t bytes =
	    LONG_ROUND_TRIPS * rtt_us * ((p->bandwidth ? p->bandwidth / 8 : LONG_BYTES_PER_S) / 1000) / 1000;

	if (rtt_us < RS_LONG_US)
		return p->window;
	if (!p->bandwidth && bytes > LONG_BYTES)
		bytes = LONG_BYTES;
	return exchange_params_window_of(p, bytes, links);
}

uint32_t exchange_params_others_window(const struct exchange_params *p, unsigned links)
{
	return exchange_params_window_of(p, LONG_BYTES, links);
}

uint64_t exchange_params_lead(const struct exchange_params *p, uint32_t window, unsigned links)
{
	uint64_t lead = (uint64_t)LEAD_PER_LINK * links, wide = (uint64_t)window * links;

	lead = p->shards > lead ? p->shards : lead;
	return window > p->window && wide > lead ? wide : lead;
}

/* Returns the living reducer whose load grows least with one more shard of a dead
 * reducer. */
static unsigned exchange_params_heir(const struct exchange_params *p, const uint32_t *lives, const unsigned *share,
				     const unsigned *load)
{
	unsigned best = p->reducers_n;

	for (unsigned r = 0; r < p->reducers_n; r++)
		if (lives[r] % 2 == 0 && (best == p->reducers_n || (uint64_t)(load[r] + 1) * share[best] <
								       (uint64_t)(load[best] + 1) * share[r]))
			best = r;
	return best;
}

void exchange_params_place(const struct exchange_params *p, const uint32_t *lives, const uint32_t *shares,
			   uint16_t *owner, uint16_t *lane)
{
	unsigned share[RS_REDUCERS_MAX] = {0}, load[RS_REDUCERS_MAX] = {0};
	unsigned shards = p->shards, average = (shards + p->reducers_n - 1) / p->reducers_n;

	if (shares && shards >= p->reducers_n)
		shardmap_deal_shares(owner, shards, shares, p->reducers_n);
	else
		memcpy(owner, p->home, shards * sizeof *owner);
	for (unsigned s = 0; s < shards; s++)
		share[owner[s]]++;
	for (unsigned r = 0; r < p->reducers_n; r++)
		if (!share[r])
			share[r] = average;
	/* first the shards that stay, so that their lanes do not depend on which other
	 * reducers are dead */
	for (unsigned s = 0; s < shards; s++) {
		unsigned r = owner[s];

		lane[s] = (uint16_t)(load[r]++ % p->reducers[r].lanes);
	}
	for (unsigned s = 0; s < shards; s++) {
		unsigned r;

		if (lives[owner[s]] % 2 == 0)
			continue;
		r = exchange_params_heir(p, lives, share, load);
		owner[s] = (uint16_t)r;
		lane[s] = (uint16_t)(load[r]++ % p->reducers[r].lanes);
	}
}
