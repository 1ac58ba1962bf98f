/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the engine: its life (engine_uv.c), which thread runs it when (run_uv.c),
 * and its connections (conn_tcp.c, conn_grpc.c).
 *
 * One thread at a time runs the engine: the one that holds `loop_lock`. This is the
 * engine's own thread, except while it sleeps, or a thread of the program in
 * engine_submit, engine_wait or engine_busy_poll. The latter saves waking both threads,
 * which takes longer than a small operation. Everything that is not marked as shared
 * belongs to the holder of loop_lock: the exchange, the connections, the loop and its
 * handles (wakeup_send may always be called). Lock order: loop_lock, then lock or locks
 * that callbacks of operations take.
 *
 * The engine owns the exchange, the connections and the loop; the submitter owns an
 * operation until its done(). Starting -> on_ready -> running -> on_failed or
 * engine_stop() -> closing -> freed. The reducer has a loop of its own,
 * server/run/lane_tcp.c, since it changes between reading and sending by a budget of
 * bytes for each connection and not by the windows of links. */
#ifndef RS_AGENT_WORKER_ENGINE_ENGINE_UV_H
#define RS_AGENT_WORKER_ENGINE_ENGINE_UV_H

#include "agent/worker/engine/addresses.h"
#include "agent/worker/engine/engine.h"
#include "agent/worker/engine/grpc.h"
#include "agent/worker/engine/poll.h"
#include "agent/worker/engine/tls.h"
#include "common/spin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

enum {
	ENGINE_NONFINITE_LINES = 3, /* log lines about NaN and infinity per second */
	/* With single_worker: bytes of all processes that are summed before other work is
	 * done. A thread that submits saves two wake-ups if that is all. The engine's own
	 * thread works in smaller steps, since the program may start something urgent. */
	ENGINE_SINGLE_CALLER = 4 << 20,
	ENGINE_SINGLE_STEP = 1 << 20,
};

struct conn;

/* What a transport does for one link. All with loop_lock held. */
struct conn_ops {
	/* Does what the exchange wants for the link (connect, shut down, close), and
	 * sends what it has, or only the next chunk. Returns true if it has to be called
	 * again after the other links. */
	bool (*service)(struct conn *c);
	/* engine_poll has reported the socket with engine_key(link, serial). NULL: the
	 * transport polls by itself */
	void (*ready)(struct conn *c, uint32_t serial, uint32_t events);
	bool (*idle)(const struct conn *c);   /* nothing is open or being opened */
	void (*lookup_ended)(struct conn *c); /* a lookup has ended, possibly its own; NULL: it makes none */
	void (*free)(struct conn *c);         /* only when idle; does not wait for a lookup */
	/* Reads the kernel's signals. False: they are not known. NULL: they never are */
	bool (*signal)(const struct conn *c, struct window_signal *ret);
};

/* The connection of one link; first member of a transport's own struct. */
struct conn {
	const struct conn_ops *ops;
	struct engine *en;
	unsigned link;
};

/* A request of engine_ask_report. */
struct engine_ask {
	struct exchange_report *to; /* NULL: none */
	void (*done)(void *user);
	void *user;
};

/* A trace. */
struct engine_trace {
	struct trace *to; /* NULL: none */
	void (*done)(void *user);
	void *user;
};

/* Requests of engine_trace: first a trace begins, then the one that runs ends. */
struct engine_trace_ask {
	struct engine_trace begin;
	bool end;
};

/* One engine. Invariants: from engine_start to engine_stop its thread runs; conns[i] is
 * the connection of link i; on_caller and waiting are false unless a thread of the
 * program runs the engine. */
struct engine {
	struct engine_options opt; /* job points to the copy */
	char job[RS_NAME_MAX];
	pthread_mutex_t loop_lock; /* protects everything below, up to `lock` */
	bool on_caller;            /* the holder of loop_lock is not the engine's thread */
	bool waiting; /* a thread is in engine_wait or busy polls; the sockets are hidden from the engine's thread */
	bool callers_may_run; /* constant */
	struct rs_spin spin;  /* of the thread that set `waiting`; also used without loop_lock */
	struct engine_poll poll;
	struct exchange *x;
	struct engine_addresses addresses;
	struct engine_tls tls;
	struct engine_grpc grpc;
	uv_loop_t loop;
	struct wakeups wakeups; /* used by other threads and by gRPC streams */
	struct wakeup wake;
	uv_timer_t timer;
	uint64_t armed_ms; /* when the timer fires; UINT64_MAX: not armed */
	pthread_t thread;
	unsigned conns_n;
	struct conn **conns; /* [conns_n] */
	bool ready, failed_reported,
	    closing;               /* on_ready was called, on_failed was called; wakeups and timer are being closed */
	uint64_t rejected;         /* operations that ended before the exchange had them */
	uint64_t submitted;        /* operations that the exchange has got */
	struct engine_trace trace; /* the trace that runs */
	bool large;                /* one of those was large, and some of them may be pending */
	_Atomic uint64_t tx_bytes, rx_bytes; /* any thread may read these two */
	_Atomic bool asked;                  /* engine_answers has asked, and the thread has not answered yet */
	_Atomic bool poked;                  /* set by engine_poke on any thread, until it is handled */
	_Atomic bool lookup_ended;           /* a lookup has ended; set on any thread, until it is handled */
	struct rs_log_limit nonfinite;       /* log lines about NaN and infinity */

	pthread_mutex_t lock;             /* protects everything below; any thread */
	struct exchange_op *first, *last; /* submitted, in order */
	bool stop;                        /* engine_stop waits */
	bool moves;                       /* `place` holds the argument of engine_reconfigure */
	struct exchange_place place;
	bool aborted; /* `abort` holds the arguments of engine_abort */
	struct rs_err abort;
	struct engine_ask ask;
	struct engine_trace_ask trace_ask;
	bool failed; /* no operation is accepted any more, for the reason `err` */
	struct rs_err err;
};

static inline uint64_t engine_key(unsigned link, uint32_t serial)
{
	return (uint64_t)serial << 32 | link;
}

/* Adds n bytes to a counter of engine_stats. With loop_lock held, so no locked
 * instruction is needed. */
static inline void engine_count(_Atomic uint64_t *counter, size_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

/* Returns the time in microseconds, for exchange_set_us, while a trace runs. */
static inline uint64_t engine_trace_us(const struct engine *en)
{
	return __builtin_expect(en->trace.to != NULL, 0) ? uv_hrtime() / 1000 : 0;
}

/* trace.c */
/* Begins or ends a trace, as another thread has asked. */
void engine_trace_take(struct engine *en, const struct engine_trace_ask *ask);
/* Ends the trace if all operations are recorded. Only while a trace runs. */
void engine_trace_check(struct engine *en);

/* addresses.c: reads the addresses of the reducers again if their file has changed. Call
 * it before an attempt to connect. Logs what has changed. */
void engine_refresh_addresses(struct engine *en);
/* names.c: chooses the address of a reducer, if it is one of a name that it shares, for
 * an attempt to connect. Returns NULL, or why there is none, valid until the next
 * call. */
const char *engine_choose_address(struct engine *en, unsigned reducer);
/* The callback is_reducer of the exchange. */
void engine_on_is_reducer(void *user, unsigned reducer, const char *id);
/* addresses.c: returns for how long a reducer's name may not exist before an attempt
 * counts as rejected. */
uint32_t engine_patience_ms(const struct engine *en);

/* serve.c: serves all connections in turn, starting with `first`, until none has anything
 * to do. With loop_lock held. */
void engine_serve(struct conn *const *conns, unsigned n, unsigned first);

/* run_uv.c: handles the effects of an event: sends, ends operations, sets the timer. Call
 * it at the end of every callback of the loop. */
void engine_process(struct engine *en);
/* Callback of `wake`: handles what other threads have left. */
void engine_on_wake(struct wakeup *w);
/* Main function of the engine's thread. */
void *engine_main(void *en);
/* Runs the engine once on the calling thread, for what other threads have left. Returns
 * false if another thread holds loop_lock. */
bool engine_run_on_caller(struct engine *en);
void engine_close_conns(struct engine *en);

/* conn_tcp.c: creates the connection of a link and parses its address. Errors:
 * RS_ECONFIG, RS_ENOMEM. */
int conn_tcp_new(struct conn **ret, struct engine *en, unsigned link, struct rs_err *e);

/* conn_grpc.c: the same over gRPC; en->grpc must be initialized. */
int conn_grpc_new(struct conn **ret, struct engine *en, unsigned link, struct rs_err *e);

#endif
