/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: an exchange on a thread of its own with a libuv loop, which connects to
 * every lane of every reducer. */
#ifndef RS_AGENT_WORKER_ENGINE_ENGINE_H
#define RS_AGENT_WORKER_ENGINE_ENGINE_H

#include "agent/lib/include/reduction.h"
#include "agent/worker/core/report.h"
#include "common/log.h"
#include "proto/trace.h"

#include <stdbool.h>
#include <time.h>

struct engine;

/* What an engine is started with. */
struct engine_options {
	const struct rs_config *cfg; /* must stay valid until engine_free */
	const char *job;             /* copied */
	uint32_t generation;
	unsigned rank, world_size; /* among the workers that connect to the reducers (nodes, with agents) */
	unsigned processes;        /* training processes behind this worker */
	const char *label;         /* names this worker in other ranks' messages; copied */
	const char *run;           /* identity of the training (config/run.h), "": unknown; copied */
	const char *evidence;      /* config/evidence.h; NULL: none; copied */
	uint32_t connect_ms;
	const struct rs_log *log; /* may be NULL; must stay valid */
	bool single_worker;       /* as in exchange_options */
	bool no_shards;           /* this worker's ranks are not such that the job can have sharded operations */
	bool reconfigures; /* engine_reconfigure may be called: connections are kept when a generation has failed */
	bool callers_run; /* engine_submit, engine_wait and engine_busy_poll may run the engine on the calling thread */
	/* Called like callbacks of operations. on_ready is called at most once and first;
	 * on_failed at most once and after done() of every pending operation. After
	 * on_failed only engine_stop and engine_reconfigure are useful. The latter begins
	 * anew with on_moved, after done() of every operation. */
	void (*on_moved)(void *user);
	void (*on_ready)(void *user);
	void (*on_failed)(void *user, const struct rs_err *err);
	void *user;
};

/* Starts the thread and returns at once. Reads the group of this machine from the
 * environment (config/group.h). Errors: RS_ENOMEM, RS_EIO, RS_ECONFIG (an address cannot
 * be parsed, or this machine is in no group). */
int engine_start(struct engine **ret, const struct engine_options *opt, struct rs_err *e);

/* Queues op. Sequence numbers follow the order of calls; callers must serialize them.
 * Never blocks. The call itself may send a small operation and, with single_worker, sum
 * the first 4 MiB (of all processes) of one. May be called before on_ready: the operation
 * starts then. If the engine has failed already, the call returns that error and done()
 * is not called. Any thread, also in done(). Callbacks of operations come one at a time,
 * on the engine's thread or on any thread in engine_submit, engine_wait or
 * engine_busy_poll. */
int engine_submit(struct engine *en, struct exchange_op *op, struct rs_err *e);

/* Runs the engine on the calling thread until done(of) returns true or until `until`
 * (CLOCK_MONOTONIC, NULL: no limit), so that neither this thread nor the engine's own has
 * to be woken. Returns done(of). Returns false at once if another thread runs the engine
 * already, or if the connections need the engine's own thread (gRPC, TLS), which runs
 * then. `soon`: spin before sleeping. Only callbacks may make done() true. Any thread,
 * but not in callbacks. */
bool engine_wait(struct engine *en, bool (*done)(const void *of), const void *of, bool soon,
		 const struct timespec *until);

/* Busy polling, for a thread with a loop of its own. Between engine_busy_poll_begin,
 * which may return false, and engine_busy_poll_end the engine's thread does not see
 * received data: engine_busy_poll handles it without waiting and must be called again and
 * again. It returns whether anything had been received. End it before a large operation
 * is submitted. One thread, which does not call engine_wait; not in callbacks. */
bool engine_busy_poll_begin(struct engine *en);
bool engine_busy_poll(struct engine *en);
void engine_busy_poll_end(struct engine *en);

/* The `ready` of a submitted operation has increased. Never blocks. Any thread. */
void engine_poke(struct engine *en);

/* Ends the job with a reason that all ranks read ("rank 3 (pid 77 on host b) exited"):
 * pending operations fail with it, ABORT is sent to the reducers, on_failed follows. Any
 * thread. */
void engine_abort(struct engine *en, int code, const char *message);

/* Joins another generation of the job, which must be newer, as exchange_reconfigure.
 * Returns at once; on_moved follows, and then on_ready or on_failed. No other thread may
 * be in engine_submit. Any thread, but not in callbacks. */
void engine_reconfigure(struct engine *en, const struct exchange_place *to);

/* Returns the bytes sent and received on all connections so far; does not touch
 * struct_size. Any thread. */
void engine_stats(struct engine *en, reduction_stats *ret);
/* See exchange_can_shard(). Any thread. */
bool engine_can_shard(struct engine *en);

/* Asks for a report. The engine fills *to, which was made by exchange_report_new for its
 * configuration, and then calls done(user), on any thread. One request at a time. An
 * engine that is stopped may not call done(); `to` must stay valid until done() or the
 * end of engine_stop. Any thread. */
void engine_ask_report(struct engine *en, struct exchange_report *to, void (*done)(void *user), void *user);

/* Begins a trace with one range. The engine sets trace.ended when nothing more is to be
 * recorded, and then calls done(user), on any thread. One trace at a time. trace NULL:
 * ends it early. An engine that is stopped may not call done(); the trace must stay valid
 * until done() or the end of engine_stop. Any thread. */
void engine_trace(struct engine *en, struct trace *trace, void (*done)(void *user), void *user);

/* Returns whether the engine's thread has answered the call before, and asks it again.
 * The first call returns true. Until engine_stop; one thread. */
bool engine_answers(struct engine *en);

/* Sends GOODBYE, fails pending operations with RS_ECLOSED, and ends the thread. Only
 * engine_wait, which returns at once, and engine_free may follow. Not in callbacks. */
void engine_stop(struct engine *en);
void engine_free(struct engine *en);

#endif
