/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a lane's uplinks: this reducer, as a relay, to the homes of its
 * chunks. They go to the addresses of this process's own configuration, over TCP. */
#ifndef RS_SERVER_RUN_LANE_UPLINK_H
#define RS_SERVER_RUN_LANE_UPLINK_H

#include "config/config.h"
#include "server/core/uplink.h"

#include <sys/queue.h>
#include <uv.h>

struct lane_uplink;

/* A reducer, with addresses as the file says now. */
struct lane_uplink_home {
	struct rs_reducer at;
	unsigned tries; /* its name may have several addresses: each connection takes the next one */
};

/* All uplinks of a lane. The lane's thread owns it. */
struct lane_uplinks {
	uv_loop_t *loop;
	struct lane *core;
	const struct rs_config *cfg;    /* borrowed */
	struct lane_uplink_home *homes; /* [cfg->reducers_n]; owned */
	struct rs_config_source source; /* of their addresses */
	LIST_HEAD(, lane_uplink) list;
};

/* Errors: RS_ENOMEM. */
int lane_uplinks_init(struct lane_uplinks *all, uv_loop_t *loop, struct lane *core, const struct rs_config *cfg,
		      struct rs_err *e);
/* To be called when the loop has run for the last time. */
void lane_uplinks_free(struct lane_uplinks *all);

/* lane_options.random; ctx is ignored. */
int lane_uplink_random(void *ctx, void *buf, size_t n, struct rs_err *e);
/* Serves the uplinks that need it. To be called when the core has had something to do. */
void lane_uplinks_serve(struct lane_uplinks *all);
/* Closes all connections; their handles close with the loop. */
void lane_uplinks_close(struct lane_uplinks *all);

#endif
