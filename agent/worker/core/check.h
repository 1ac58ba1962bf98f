/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of an exchange as code. Tests, the simulator and fuzz targets call exchange_check_state after each
 * step. Programs do so
 * with --paranoid or REDUCTION_PARANOID=1 after each turn of their loop. */
#ifndef RS_AGENT_WORKER_CORE_CHECK_H
#define RS_AGENT_WORKER_CORE_CHECK_H

struct exchange;
struct link;
struct retain;
struct stream;
struct window;

/* Each function returns NULL if the struct keeps its invariants between two calls of the core, else a sentence that
 * says which one it breaks. The sentence is constant. The functions change nothing. */

const char *window_check(const struct window *w);
/* The retained results of all priorities. */
const char *retain_check(const struct retain *r, unsigned priorities);
/* A stream of the link: its ring, and the cursor of the next chunk. */
const char *stream_check(const struct link *l, const struct stream *s);
/* A link with its window and streams. */
const char *link_check(const struct link *l);
/* An exchange with its operations, its links and its retained results. */
const char *exchange_check_state(const struct exchange *x);

#endif
