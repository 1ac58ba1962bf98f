/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <string.h>
#include <xxhash.h>

static uint64_t digest_number(uint64_t digest, uint64_t v)
{
	unsigned char bytes[8];

	for (unsigned i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(v >> (8 * i));
	return XXH3_64bits_withSeed(bytes, sizeof bytes, digest);
}

uint64_t rs_config_digest(const struct rs_config *cfg)
{
	uint64_t d = 0;

	d = digest_number(d, cfg->job.deterministic);
	d = digest_number(d, cfg->job.checksum);
	d = digest_number(d, cfg->sharding.chunk_bytes);
	d = digest_number(d, cfg->sharding.window);
	if (cfg->sharding.decoupled)
		d = digest_number(d, cfg->sharding.decoupled);
	d = digest_number(d, cfg->sharding.priorities);
	d = digest_number(d, cfg->reducers_n);
	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		d = XXH3_64bits_withSeed(cfg->reducers[i].id, strlen(cfg->reducers[i].id), d);
		d = digest_number(d, cfg->reducers[i].lanes);
	}
	d = digest_number(d, cfg->sharding.shards);
	for (unsigned i = 0; i < cfg->sharding.shards; i++)
		d = digest_number(d, cfg->sharding.owner[i]);
	if (cfg->groups_n)
		d = digest_number(d, cfg->groups_n);
	for (unsigned g = 0; g < cfg->groups_n; g++) {
		d = XXH3_64bits_withSeed(cfg->groups[g].name, strlen(cfg->groups[g].name), d);
		for (unsigned s = 0; s < cfg->sharding.shards; s++)
			d = digest_number(d, cfg->relays[g * cfg->sharding.shards + s]);
	}
	return d;
}

uint64_t rs_config_reducers_digest(const struct rs_config *cfg)
{
	uint64_t d = digest_number(0, cfg->reducers_n);

	for (unsigned i = 0; i < cfg->reducers_n; i++)
		d = XXH3_64bits_withSeed(cfg->reducers[i].id, strlen(cfg->reducers[i].id), d);
	return d;
}
