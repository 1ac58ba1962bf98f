/* SPDX-License-Identifier: Apache-2.0 */
/* Address lookup of a name on a detached thread. getaddrinfo may take as long as all name
 * servers are silent and cannot be cancelled, and closing a communicator must not wait
 * for it. */
#ifndef RS_AGENT_WORKER_ENGINE_LOOKUP_H
#define RS_AGENT_WORKER_ENGINE_LOOKUP_H

#include "proto/rpc/wakeup.h"

#include <netdb.h>
#include <stdbool.h>

struct lookup;

/* Starts a lookup. When it has ended, *ended is set and then `wake` is sent, unless it
 * was abandoned before. The strings are copied. NULL: out of memory or threads. These
 * three functions belong to one thread, that of `wake`. */
struct lookup *lookup_start(const char *host, const char *port, struct wakeup *wake, _Atomic bool *ended);
/* Returns false while the lookup runs. Otherwise frees l; *ret_rc is the result of
 * getaddrinfo, and if it is 0 *ret belongs to the caller (freeaddrinfo). */
bool lookup_take(struct lookup *l, int *ret_rc, struct addrinfo **ret);
/* Abandons the lookup: it does not touch wake or ended any more and frees itself. */
void lookup_abandon(struct lookup *l);

#endif
