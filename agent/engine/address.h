/* SPDX-License-Identifier: Apache-2.0 */
/* Where a connection of the engine goes: a host and a port, from which one address comes for each try. One that is
 * numeric is there at once; a name is looked up in a thread of its own (lookup.h), and each try takes the next
 * of its addresses. All on the thread of the loop that is woken. */
#ifndef RS_AGENT_ENGINE_ADDRESS_H
#define RS_AGENT_ENGINE_ADDRESS_H

#include "agent/engine/lookup.h"
#include "common/address.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <uv.h>

enum engine_address_step {
	ENGINE_ADDRESS_FOUND,  /* connect to `at` */
	ENGINE_ADDRESS_WAIT,   /* until a lookup has ended */
	ENGINE_ADDRESS_FAILED, /* an error says why */
};

/* Invariant: a lookup that is not waited for any more stays until it was taken, or the address is closed, so that each
 * has one thread at most. */
struct engine_address {
	struct rs_host_port to;
	struct lookup *lookup;      /* NULL: none is under way */
	unsigned tries;             /* chooses among the addresses of a name */
	struct sockaddr_storage at; /* the one that was found last */
	socklen_t at_len;
};

/* `text`: "host:port" or "[IPv6]:port". Errors: RS_ECONFIG. */
int engine_address_init(struct engine_address *a, const char *text, struct rs_err *e);
/* Does not wait for a lookup. */
void engine_address_close(struct engine_address *a);

/* A lookup is under way, waited for or not: there is nothing to begin. */
bool engine_address_busy(const struct engine_address *a);
/* Begins a try, while it is not busy. Told to wait: `wake` is sent and *ended set when the lookup has ended. Errors:
 * RS_ENOMEM. */
enum engine_address_step engine_address_begin(struct engine_address *a, struct wakeup *wake, _Atomic bool *ended,
					      struct rs_err *e);
/* To be called whenever a lookup may have ended, also for who waits no more and does nothing with the answer; then it
 * is not busy any more. Errors: RS_EIO. */
enum engine_address_step engine_address_take(struct engine_address *a, struct rs_err *e);

#endif
