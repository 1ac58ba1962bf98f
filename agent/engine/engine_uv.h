/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the engine: its life (engine_uv.c), who runs it when (turn_uv.c), and what it knows of its
 * connections (engine_conn_*.c).
 *
 * One thread at a time runs the engine, that which holds `turn`: the engine's own thread, but for its sleep, or a
 * guest, which is a thread of the program in engine_submit or engine_wait. A guest saves the wake-ups of both threads,
 * which take longer than a small operation itself; see engine_wait. All that is not said to be for other threads
 * belongs to whoever has the turn: the exchange, the connections, the loop and its handles (wakeup_send may be called
 * always). The order of locks is: turn, then lock, or any of those that are taken in callbacks of operations. */
#ifndef RS_AGENT_ENGINE_ENGINE_UV_H
#define RS_AGENT_ENGINE_ENGINE_UV_H

#include "agent/engine/engine.h"
#include "agent/engine/grpc.h"
#include "agent/engine/poll.h"
#include "agent/engine/tls.h"
#include "common/spin.h"

#include <pthread.h>
#include <uv.h>

enum {
	ENGINE_NONFINITE_LINES = 3, /* about NaN and infinity, in a second */
	/* Bytes of all processes that a solo exchange works on before others have their turn: the thread that submits
	 * saves two wake-ups where that is all; the engine's own goes on in smaller steps, since the program may start
	 * something urgent. */
	ENGINE_SINGLE_CALLER = 4 << 20,
	ENGINE_SINGLE_STEP = 1 << 20,
};

struct conn;

/* What one transport does for a link of the exchange. All with the turn. */
struct conn_ops {
	/* Does what the exchange wants for the link (connect, shut down, close), sends what it has, or the next chunk
	 * of that: then true, and it wants to be called again when others had their turn. */
	bool (*service)(struct conn *c);
	/* engine_poll has reported the socket with engine_key(link, serial); NULL: the transport polls for itself */
	void (*ready)(struct conn *c, uint32_t serial, uint32_t events);
	bool (*idle)(const struct conn *c);   /* nothing is open, or being opened */
	void (*lookup_ended)(struct conn *c); /* a lookup has ended, perhaps its own; NULL: it makes none */
	void (*free)(struct conn *c);         /* it is idle; does not wait for a lookup */
};

/* The connection of one link: the first member of a transport's own. */
struct conn {
	const struct conn_ops *ops;
	struct engine *en;
	unsigned link;
};

struct engine {
	struct engine_options opt; /* job points to the copy */
	char job[RS_NAME_MAX];
	pthread_mutex_t loop_lock; /* for what follows, up to lock */
	bool on_caller;            /* who has the turn is not the engine's thread */
	bool waiting; /* a guest sleeps in engine_wait, or has the turn there, or looks; the sockets are hidden */
	bool callers_may_run; /* constant */
	struct rs_spin spin;  /* of the guest that sets `waiting`, also without the turn */
	struct engine_poll poll;
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
	struct conn **conns;                  /* [conns_n] */
	bool ready, failed_reported, closing; /* told on_ready, on_failed; wakeups and timer are being closed */
	uint64_t rejected;                    /* operations that ended before the exchange had them */
	uint64_t submitted;                   /* and those that the exchange has got, */
	bool large;                           /* one of which was large, and some of which may be under way */
	_Atomic uint64_t tx_bytes, rx_bytes;  /* any thread may read these two */
	_Atomic bool poked;                   /* by engine_poke, any thread, until it was seen */
	_Atomic bool lookup_ended;            /* a lookup has ended, any thread, until it was seen */
	struct rs_log_limit nonfinite;        /* of lines about NaN and infinity */

	pthread_mutex_t lock;             /* for what follows, and any thread */
	struct exchange_op *first, *last; /* submitted, in order */
	bool stop;                        /* engine_free waits */
	bool aborted;                     /* `abort` holds what engine_abort said */
	struct rs_err abort;
	bool failed; /* nothing is taken any more, for reason `err` */
	struct rs_err err;
};

static inline uint64_t engine_key(unsigned link, uint32_t serial)
{
	return (uint64_t)serial << 32 | link;
}

/* Counts bytes for engine_stats. */
void engine_count(_Atomic uint64_t *counter, size_t n);

/* serve.c: all connections in turn, from the `first` on, until none has anything to do or to send. With the
 * turn. */
void engine_serve(struct conn *const *conns, unsigned n, unsigned first);

/* turn_uv.c. To be called at the end of every callback of the loop: deals with what the event changed elsewhere.
 */
void engine_process(struct engine *en);
/* What `wake` does: deals with what other threads have left. */
void engine_on_wake(struct wakeup *w);
/* The engine's thread. */
void *engine_main(void *en);
/* Takes the turn, if nobody has it, for what other threads have left. False: somebody has. */
bool engine_run_on_caller(struct engine *en);
void engine_close_conns(struct engine *en);

/* conn_tcp.c: makes the connection of a link; parses its address. Errors: RS_ECONFIG, RS_ENOMEM. */
int conn_tcp_new(struct conn **ret, struct engine *en, unsigned link, struct rs_err *e);

/* conn_grpc.c: the same over gRPC, which en->grpc has to be initialized for. */
int conn_grpc_new(struct conn **ret, struct engine *en, unsigned link, struct rs_err *e);

#endif
