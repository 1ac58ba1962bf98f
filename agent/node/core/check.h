/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of the hub and its jobs as code. Tests and fuzz targets call
 * local_hub_check after each step. Programs do so with --paranoid or REDUCTION_PARANOID=1
 * after each turn of their loop. */
#ifndef RS_AGENT_NODE_CORE_CHECK_H
#define RS_AGENT_NODE_CORE_CHECK_H

struct local_hub;

/* Each function returns NULL if the struct keeps its invariants between two calls of the
 * hub, else a sentence that says which one it breaks. The sentence is constant. The
 * functions change nothing. Only the hub's thread may call them. */

/* The hub with all clients and jobs. */
const char *local_hub_check(const struct local_hub *h);

#endif
