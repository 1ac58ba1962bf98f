/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the engine: its thread and loop (engine_uv.c) and what it knows of its connections (engine_conn_tcp.c).
 */
#ifndef RS_AGENT_ENGINE_UV_H
#define RS_AGENT_ENGINE_UV_H

#include "agent/engine.h"
#include "agent/engine_grpc.h"
#include "agent/engine_tls.h"

#include <pthread.h>
#include <uv.h>

enum { ENGINE_NONFINITE_LINES = 3 }; /* about NaN and infinity, in a second */

struct conn;

/* What one transport does for a link of the exchange. All on the engine's thread. */
struct conn_ops {
	/* Does what the exchange wants for the link (connect, shut down, close), sends what it has. */
	void (*service)(struct conn *c);
	bool (*idle)(const struct conn *c); /* nothing is open, or being opened */
	void (*looked_up)(struct conn *c);  /* a lookup has ended, perhaps its own; NULL: it makes none */
	void (*free)(struct conn *c);       /* it is idle; does not wait for a lookup */
};

/* The connection of one link: the first member of a transport's own. */
struct conn {
	const struct conn_ops *ops;
	struct engine *en;
	unsigned link;
};

/* What other threads may touch is behind lock, and the counters. */
struct engine {
	struct engine_options opt; /* job points to the copy */
	char job[RS_NAME_MAX];
	struct exchange *x;
	struct engine_tls tls;
	struct engine_grpc grpc;
	uv_loop_t loop;
	struct wakeups wakeups; /* of other threads, and of streams over gRPC */
	struct wakeup wake;
	uv_timer_t timer;
	uint64_t armed_ms; /* when the timer fires; UINT64_MAX: not armed */
	pthread_t thread;
	unsigned conns_n;
	struct conn **conns;              /* [conns_n] */
	bool ready, failed_told, closing; /* told on_ready, on_failed; wakeups and timer are being closed */
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

/* Counts bytes for engine_stats. */
void engine_count(_Atomic uint64_t *counter, size_t n);

/* engine_conn_tcp.c: makes the connection of a link; parses its address. Errors: RS_ECONFIG, RS_ENOMEM. */
int conn_tcp_new(struct conn **ret, struct engine *en, unsigned link, struct rs_err *e);

/* engine_conn_grpc.c: the same over gRPC, which en->grpc has to be initialized for. */
int conn_grpc_new(struct conn **ret, struct engine *en, unsigned link, struct rs_err *e);

#endif
