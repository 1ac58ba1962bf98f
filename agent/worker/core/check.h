/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of an exchange as code. Tests, the simulator and fuzz targets call
 * exchange_check_state after each step. Programs do so with --paranoid or
 * REDUCTION_PARANOID=1 after each turn of their loop. */
#ifndef RS_AGENT_WORKER_CORE_CHECK_H
#define RS_AGENT_WORKER_CORE_CHECK_H

struct exchange;
struct link;
struct stream;

/* Each function returns NULL if the struct keeps its invariants between two calls of the
 * core, else a sentence that says which one it breaks. The sentence is constant. The
 * functions change nothing. */

/* A stream of the link: its ring, and the cursor of the next chunk. */
const char *stream_check(const struct link *l, const struct stream *s);
/* An exchange with its operations, its links and its retained results. */
const char *exchange_check_state(const struct exchange *x);

#endif
