/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of a name, found in a thread of its own that can be left alone: getaddrinfo may take as long as all
 * name servers are silent, nothing can cancel it, and whoever closes a communicator must not wait for it. */
#ifndef RS_AGENT_ENGINE_LOOKUP_H
#define RS_AGENT_ENGINE_LOOKUP_H

#include "proto/rpc/wakeup.h"

#include <netdb.h>
#include <stdbool.h>

struct lookup;

/* When the lookup has ended *ended is set, and then `wake` sent, unless it was abandoned before. The strings are
 * copied. NULL: no memory, or no thread. These three are for one thread, that of `wake`. */
struct lookup *lookup_start(const char *host, const char *port, struct wakeup *wake, _Atomic bool *ended);
/* False while it goes on. Else l is freed, *ret_rc is what getaddrinfo returned, and with 0 *ret belongs to the caller
 * (freeaddrinfo). */
bool lookup_take(struct lookup *l, int *ret_rc, struct addrinfo **ret);
/* Nobody waits for it any more: neither wake nor ended are touched from now on, and it frees itself. */
void lookup_abandon(struct lookup *l);

#endif
