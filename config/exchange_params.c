/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tls.h"
#include "common/wire.h"
#include "config/config.h"
#include "config/shardmap.h"

#include <string.h>
#include <xxhash.h>

/* Returns the most connections that relays have to one lane: one for each of their own
 * lanes. */
static unsigned exchange_params_uplinks(const struct rs_config *cfg)
{
	bool relays[RS_REDUCERS_MAX] = {false};
	unsigned n = 0;

	for (size_t i = 0; i < (size_t)cfg->groups_n * cfg->sharding.shards; i++)
		if (cfg->relays[i] != RS_NO_RELAY && !relays[cfg->relays[i]]) {
			relays[cfg->relays[i]] = true;
			n += cfg->reducers[cfg->relays[i]].lanes;
		}
	return n;
}

struct exchange_params rs_config_exchange(const struct rs_config *cfg)
{
	bool tls = cfg->security.tls != TLS_OFF;
	uint64_t ahead = rs_config_ahead(cfg);

	return (struct exchange_params){
	    .reducers = cfg->reducers,
	    .reducers_n = cfg->reducers_n,
	    .home = cfg->sharding.owner,
	    .shards = cfg->sharding.shards,
	    .groups_n = cfg->groups_n,
	    .relays = cfg->relays,
	    .chunk_bytes = cfg->sharding.chunk_bytes,
	    .window = cfg->sharding.window,
	    .ahead = ahead < RS_WINDOW_MAX ? (unsigned)ahead : RS_WINDOW_MAX,
	    .priorities = cfg->sharding.priorities,
	    .deterministic = cfg->job.deterministic,
	    .checksum = cfg->job.checksum,
	    .retain = cfg->job.retain,
	    .min_reducers = cfg->job.min_reducers,
	    .lead_most = LEAD_MOST,
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
	    .uplinks = exchange_params_uplinks(cfg),
	    .relay_above = RELAY_ABOVE,
	    .reducers_digest = rs_config_reducers_digest(cfg),
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

uint64_t exchange_params_lead(const struct exchange_params *p, uint32_t window, unsigned links, bool bounded)
{
	uint64_t lead = (uint64_t)LEAD_PER_LINK * links, wide = (uint64_t)window * links;

	lead = p->shards > lead ? p->shards : lead;
	if (bounded && lead > p->lead_most)
		lead = p->lead_most;
	if (p->ahead > p->window && (uint64_t)p->ahead * links > lead)
		lead = (uint64_t)p->ahead * links;
	return window > p->ahead && wide > lead ? wide : lead;
}

/* Fills in the map: that of the shares, if there are any. */
static void placing_map(const struct exchange_params *p, const uint32_t *shares, uint16_t *owner)
{
	if (shares && p->shards >= p->reducers_n)
		shardmap_deal_shares(owner, p->shards, shares, p->reducers_n);
	else
		memcpy(owner, p->home, p->shards * sizeof *owner);
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

	placing_map(p, shares, owner);
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

/* Shards while they are placed. */
struct placing {
	const struct exchange_params *p;
	const uint32_t *lives;
	unsigned load[RS_REDUCERS_MAX]; /* shards that were placed on the reducer so far */
	unsigned most[RS_REDUCERS_MAX]; /* of a living reducer: its share, rounded up */
	uint16_t *owner, *lane;
};

static void placing_put(struct placing *w, unsigned shard, unsigned reducer)
{
	w->owner[shard] = (uint16_t)reducer;
	w->lane[shard] = (uint16_t)(w->load[reducer]++ % w->p->reducers[reducer].lanes);
}

/* Returns the rank of a reducer among those that may have a shard: the same on every
 * machine, and different for each pair. */
static uint64_t placing_score(unsigned shard, unsigned reducer)
{
	const uint8_t bytes[] = {(uint8_t)shard, (uint8_t)(shard >> 8), (uint8_t)reducer, (uint8_t)(reducer >> 8)};

	return XXH3_64bits(bytes, sizeof bytes);
}

/* Returns the living reducer with the highest score of those that have room. */
static unsigned placing_find(const struct placing *w, unsigned shard)
{
	unsigned best = w->p->reducers_n;
	uint64_t most = 0;

	for (unsigned r = 0; r < w->p->reducers_n; r++) {
		uint64_t score;

		if (w->lives[r] % 2 || w->load[r] >= w->most[r])
			continue;
		score = placing_score(shard, r);
		if (best == w->p->reducers_n || score > most) {
			best = r;
			most = score;
		}
	}
	return best;
}

/* Fills in how many shards each living reducer may have: its part of all shards, by its
 * number of shards in the map. Those without shards there count as average ones, but
 * together not as more than the shards of dead reducers. */
static void placing_share(struct placing *w)
{
	unsigned n = w->p->reducers_n, shards = w->p->shards, average = (shards + n - 1) / n;
	uint32_t weight[RS_REDUCERS_MAX] = {0}, dead = 0, bare = 0, spare;
	uint64_t living = 0;

	for (unsigned s = 0; s < shards; s++) {
		weight[w->owner[s]]++;
		dead += w->lives[w->owner[s]] % 2;
	}
	for (unsigned r = 0; r < n; r++)
		bare += w->lives[r] % 2 == 0 && !weight[r];
	spare = !bare ? 0 : dead == shards ? 1 : dead / bare < average ? dead / bare : average;
	for (unsigned r = 0; r < n; r++) {
		if (!weight[r])
			weight[r] = spare;
		living += w->lives[r] % 2 ? 0 : weight[r];
	}
	for (unsigned r = 0; r < n; r++)
		if (w->lives[r] % 2 == 0)
			w->most[r] = (unsigned)(((uint64_t)shards * weight[r] + living - 1) / living);
}

void exchange_params_place_slots(const struct exchange_params *p, const uint32_t *lives, const uint32_t *shares,
				 uint16_t *owner, uint16_t *lane)
{
	struct placing w = {.p = p, .lives = lives, .owner = owner, .lane = lane};

	placing_map(p, shares, owner);
	placing_share(&w);
	for (unsigned s = 0; s < p->shards; s++) {
		if (lives[owner[s]] % 2 == 0)
			placing_put(&w, s, owner[s]);
		else
			owner[s] = (uint16_t)p->reducers_n;
	}
	for (unsigned s = 0; s < p->shards; s++)
		if (owner[s] == p->reducers_n)
			placing_put(&w, s, placing_find(&w, s));
}

/* Returns the group's living relay with the fewest shards so far; RS_NO_RELAY: none
 * lives. */
static unsigned relays_least(const struct exchange_params *p, const uint16_t *map, const uint32_t *lives,
			     const unsigned *load)
{
	unsigned best = RS_NO_RELAY;

	for (unsigned s = 0; s < p->shards; s++) {
		unsigned r = map[s];

		if (r == RS_NO_RELAY || lives[r] % 2)
			continue;
		if (best == RS_NO_RELAY || load[r] < load[best] || (load[r] == load[best] && r < best))
			best = r;
	}
	return best;
}

void exchange_params_place_relays(const struct exchange_params *p, const uint32_t *lives, const uint16_t *owner,
				  uint16_t *relay, uint16_t *lane)
{
	const uint16_t *map = p->relays + (size_t)p->group * p->shards;
	unsigned load[RS_REDUCERS_MAX] = {0};

	for (unsigned s = 0; s < p->shards; s++) {
		relay[s] = map[s];
		if (map[s] != RS_NO_RELAY && lives[map[s]] % 2 == 0)
			lane[s] = (uint16_t)(load[map[s]]++ % p->reducers[map[s]].lanes);
	}
	for (unsigned s = 0; s < p->shards; s++) {
		if (relay[s] == RS_NO_RELAY || lives[relay[s]] % 2 == 0)
			continue;
		relay[s] = (uint16_t)relays_least(p, map, lives, load);
		if (relay[s] != RS_NO_RELAY)
			lane[s] = (uint16_t)(load[relay[s]]++ % p->reducers[relay[s]].lanes);
	}
	for (unsigned s = 0; s < p->shards; s++)
		if (relay[s] == owner[s])
			relay[s] = RS_NO_RELAY;
}
