/* SPDX-License-Identifier: Apache-2.0 */
/* The section `groups`: workers that are near to each other, and the reducers that relay
 * for them. */
#ifndef RS_CONFIG_GROUPS_H
#define RS_CONFIG_GROUPS_H

#include "common/error.h"
#include "config/config.h"
#include "config/ydoc.h"

/* Fills in cfg->groups, which have been allocated, and cfg->relays. Requires the shard
 * map. Errors: RS_ECONFIG with position, RS_ENOMEM; cfg can be closed then. */
int groups_read(struct rs_config *cfg, const struct ydoc *doc, struct rs_err *e);

/* Replaces the shard map, and deals the relays of each group anew over the same reducers.
 * Takes over `owner` unless there is no memory. */
int groups_set_map(struct rs_config *cfg, uint16_t *owner, unsigned shards, struct rs_err *e);

/* Fills in the list of reducers from which a file may make the relays of a group. Returns
 * their number; 0: only a map can. */
unsigned groups_relay_list(const struct rs_config *cfg, unsigned group, uint16_t ret[static RS_REDUCERS_MAX]);

/* Frees groups and relays. */
void groups_close(struct rs_config *cfg);

#endif
