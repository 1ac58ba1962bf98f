/* SPDX-License-Identifier: Apache-2.0 */
/* Address lookup for a connection of the engine: a host and a port, which give one
 * address for each attempt. A numeric host is available at once. A name is looked up on a
 * thread of its own (lookup.h), and each attempt takes the next of its addresses. All
 * functions belong to the thread of the loop that is woken. */
#ifndef RS_AGENT_WORKER_ENGINE_ADDRESS_H
#define RS_AGENT_WORKER_ENGINE_ADDRESS_H

#include "agent/worker/engine/lookup.h"
#include "common/address.h"
#include "config/limits.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <uv.h>

enum engine_address_step {
	ENGINE_ADDRESS_FOUND,  /* connect to `at` */
	ENGINE_ADDRESS_WAIT,   /* a lookup has been started */
	ENGINE_ADDRESS_FAILED, /* the error says why */
};

/* The address of one connection. Invariant: at most one lookup exists; one that is not
 * needed any more stays until it is taken or the address is closed, so that there is at
 * most one thread. */
struct engine_address {
	char text[RS_ADDRESS_MAX];
	struct rs_host_port to;
	struct lookup *lookup;      /* NULL: none is running */
	unsigned tries;             /* selects one of the addresses of a name */
	struct sockaddr_storage at; /* the address found last */
	socklen_t at_len;
	uint64_t
	    unknown_since_ms; /* since then every answer was that the name does not exist; 0: the last one was not */
};

/* Parses `text`: "host:port" or "[IPv6]:port", or "": none so far. Errors: RS_ECONFIG. */
int engine_address_init(struct engine_address *a, const char *text, struct rs_err *e);
/* Takes another text, which may be the same; only if not busy. Errors: RS_ECONFIG. */
int engine_address_set(struct engine_address *a, const char *text, struct rs_err *e);
/* Releases the address; does not wait for a lookup. */
void engine_address_close(struct engine_address *a);

/* Returns whether a lookup is running, needed or not: then no attempt can begin. */
bool engine_address_busy(const struct engine_address *a);
/* Begins an attempt; only if not busy. Without an address it fails. After
 * ENGINE_ADDRESS_WAIT, *ended is set and then `wake` is sent when the lookup has ended.
 * Errors: RS_EIO (there is no address), RS_ENOMEM. */
enum engine_address_step engine_address_begin(struct engine_address *a, struct wakeup *wake, _Atomic bool *ended,
					      struct rs_err *e);
/* Takes the result of a lookup that may have ended; the address is not busy afterwards.
 * Call it also if the result is not needed any more. Errors: RS_EIO; RS_EREFUSED if for
 * `patience_ms` every answer was that the name does not exist.
 */
enum engine_address_step engine_address_take(struct engine_address *a, uint32_t patience_ms, uint64_t now_ms,
					     struct rs_err *e);

#endif
