/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of a lane as code. Tests, the simulator and fuzz targets call lane_check
 * after each step. Programs do so with --paranoid or REDUCTION_PARANOID=1 after each turn
 * of their loop. */
#ifndef RS_SERVER_CORE_CHECK_H
#define RS_SERVER_CORE_CHECK_H

struct lane;
struct session;
struct stripe;

/* Each function returns NULL if the struct keeps its invariants between two calls of the
 * lane's core, else a sentence that says which one it breaks. The sentence is constant.
 * The functions change nothing. */

/* The table of slots, the counts and the acknowledgements of a stripe, and all of its
 * slots. */
const char *stripe_check(const struct stripe *st);
const char *session_check(const struct session *s);
/* A lane with its stripes and sessions. */
const char *lane_check(const struct lane *l);

#endif
