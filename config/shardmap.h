/* SPDX-License-Identifier: Apache-2.0 */
/* Which reducer owns which shard: from the file's map, or assigned by weight. */
#ifndef RS_CONFIG_SHARDMAP_H
#define RS_CONFIG_SHARDMAP_H

#include "common/error.h"
#include "config/config.h"
#include "config/ydoc.h"

/* Returns the number of shards if the file does not give it. With equal weights: the
 * smallest number from 64 on that gives each lane of each reducer the same share (each
 * reducer, if lanes differ or are very many). With different weights: at least 16 for
 * each reducer, so that shares come near the weights. fine: at least 256, a multiple of
 * that. */
unsigned shardmap_default_shards(const struct rs_reducer *reducers, unsigned n, bool fine);

/* Fills owner[0..shards) so that each of n reducers gets its share by weight, at least
 * one, and consecutive shards belong to different reducers where possible. The result is
 * the same on every machine. Requires n <= shards; RS_ENOMEM is the only error. */
int shardmap_deal(uint16_t *owner, unsigned shards, const struct rs_reducer *reducers, unsigned n, struct rs_err *e);

/* The same for weights that are whole numbers, from 1 on. Requires n <=
 * RS_REDUCERS_MAX. */
void shardmap_deal_shares(uint16_t *owner, unsigned shards, const uint32_t *weights, unsigned n);

/* Fills owner[0..shards) so that reducer i gets counts[i] shards, whose sum is `shards`,
 * in the same order as above. */
int shardmap_interleave(uint16_t *owner, unsigned shards, const unsigned *counts, unsigned n, struct rs_err *e);

/* Fills cfg->sharding from the file's map. If cfg->sharding.shards is 0, the number of
 * shards is that of the map. */
int shardmap_read(struct rs_config *cfg, const struct ydoc *doc, const struct ydoc_node *map, struct rs_err *e);

/* Fills ret[0..cfg->sharding.shards) from a map as {0-31: ra0} that may leave shards out:
 * those get RS_NO_RELAY. path: of the map, for errors. */
int shardmap_read_relays(uint16_t *ret, const struct rs_config *cfg, const struct ydoc *doc,
			 const struct ydoc_node *map, const char *path, struct rs_err *e);

/* Finds the reducer whose id is the text of a node. Errors: RS_ECONFIG. */
int shardmap_reducer(uint16_t *ret, const struct rs_config *cfg, const struct ydoc *doc, const struct ydoc_node *value,
		     const char *path, struct rs_err *e);

#endif
