/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the engine: its thread and loop (engine_uv.c) and its connections (engine_conn_uv.c). */
#ifndef RS_AGENT_ENGINE_UV_H
#define RS_AGENT_ENGINE_UV_H

#include "agent/engine.h"

#include <netdb.h>
#include <pthread.h>
#include <uv.h>

enum {
	CONN_IOVECS = 32,               /* a header and a payload each: up to 16 chunks for one system call */
	CONN_READS = 32,                /* system calls for one connection before the others get their turn */
	CONN_READ_AHEAD = 256 << 10,    /* bytes read before what they made room for is sent */
	CONN_HOST_MAX = RS_ADDRESS_MAX, /* bytes of a host name, terminator included */
	CONN_PORT_MAX = 8,
	ENGINE_NONFINITE_LINES = 3, /* about NaN and infinity, in a second */
};

enum conn_state {
	CONN_IDLE,       /* nothing is open */
	CONN_RESOLVING,  /* for the host's addresses */
	CONN_CONNECTING, /* for the socket to become writable */
	CONN_UP,
	CONN_CLOSING, /* for the poll handle's close callback, then the descriptor is closed: IDLE */
};

/* The connection of one link. Invariant: fd >= 0 and poll is initialized in CONNECTING, UP and CLOSING. A name lookup
 * that is not waited for any more stays until it has ended, or the engine, in any state but CONNECTING, UP and CLOSING.
 */
struct conn {
	struct engine *en;
	unsigned link;
	char host[CONN_HOST_MAX];
	char port[CONN_PORT_MAX];
	enum conn_state state;
	struct lookup *lookup; /* NULL: none is under way */
	bool shut;             /* the sending side is shut down */
	bool local;            /* both ends are on this machine */
	int events;            /* that are polled for */
	unsigned tries;        /* chooses among the addresses of a name */
	int fd;
	uv_poll_t poll;
};

/* What other threads may touch is behind lock, and the counters. */
struct engine {
	struct engine_options opt; /* job points to the copy */
	char job[RS_NAME_MAX];
	struct exchange *x;
	uv_loop_t loop;
	uv_async_t wake;
	uv_timer_t timer;
	uint64_t armed_ms; /* when the timer fires; UINT64_MAX: not armed */
	pthread_t thread;
	unsigned conns_n;
	struct conn *conns;
	bool ready, failed_told, closing; /* told on_ready, on_failed; wake and timer are being closed */
	_Atomic uint64_t tx_bytes, rx_bytes;
	_Atomic bool poked;            /* by engine_poke, until the thread has seen it */
	_Atomic bool looked_up;        /* a lookup has ended, until the thread has seen it */
	struct rs_log_limit nonfinite; /* of lines about NaN and infinity; the thread's */

	pthread_mutex_t lock;
	struct exchange_op *first, *last; /* submitted, in order */
	bool stop;                        /* engine_free waits */
	bool aborted;                     /* `abort` holds what engine_abort said */
	struct rs_err abort;
	bool failed; /* nothing is taken any more, for reason `err` */
	struct rs_err err;
};

/* engine_uv.c: to be called at the end of every callback of the loop. Deals with what the event changed elsewhere. */
void engine_settle(struct engine *en);

/* engine_conn_uv.c */
int conn_init(struct conn *c, struct engine *en, unsigned link, struct rs_err *e); /* parses the address */
void conn_service(struct conn *c); /* does what the exchange wants for the link, sends what it has */
bool conn_closed(const struct conn *c);
void conn_looked_up(struct conn *c); /* a lookup has ended, perhaps its own */
void conn_forget(struct conn *c);    /* does not wait for its lookup; nothing else may be open */

#endif
