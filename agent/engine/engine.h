/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange driven by a thread of its own with a libuv loop: TCP connections to every lane of every reducer. */
#ifndef RS_AGENT_ENGINE_ENGINE_H
#define RS_AGENT_ENGINE_ENGINE_H

#include "agent/core/exchange.h"
#include "agent/include/reduction.h"
#include "common/log.h"

#include <stdbool.h>
#include <time.h>

struct engine;

struct engine_options {
	const struct rs_config *cfg; /* must stay valid until engine_free */
	const char *job;             /* copied */
	uint32_t generation;
	unsigned rank, world_size; /* among the workers that talk to the reducers (nodes, with agents) */
	unsigned processes;        /* training processes behind this worker */
	const char *label;         /* who this is, for other ranks' messages; copied */
	uint32_t connect_ms;
	const struct rs_log *log; /* may be NULL; must stay valid */
	bool single_worker;       /* as of exchange.h */
	bool callers_run;         /* engine_submit, _wait and _look may do the engine's work on the calling thread */
	/* Called as operations' callbacks are, at most one of them first, on_failed at most once and after every
	 * pending operation's done. After on_failed only engine_stop is useful. */
	void (*on_ready)(void *user);
	void (*on_failed)(void *user, const struct rs_err *err);
	void *user;
};

/* Starts the thread; returns at once. Errors: RS_ENOMEM, RS_EIO, RS_ECONFIG (an address cannot be parsed). */
int engine_start(struct engine **ret, const struct engine_options *opt, struct rs_err *e);

/* Queues op; sequence numbers follow the order of calls, which the caller must serialize. Never blocks; a small
 * operation may be sent by the call itself, and the first 4 MiB (of all processes) of one be summed by it where the
 * exchange is solo. May be called before on_ready: the operation starts then. If the engine has failed already the call
 * returns that error and done is not called. Any thread, done callbacks included.
 * Callbacks of operations come one at a time, on the engine's thread or on any that is in this call, engine_wait or
 * engine_busy_poll. */
int engine_submit(struct engine *en, struct exchange_op *op, struct rs_err *e);

/* Runs the engine on the calling thread until done(of) says that what it waits for is over, or until then
 * (CLOCK_MONOTONIC, NULL: for ever), so that neither this thread nor the engine's own needs a wake-up for it. Returns
 * done(of); false at once where another thread does the same already, or where the connections need the engine's own
 * thread (gRPC, TLS): then it runs by itself. `soon`: it is worth not to sleep at once. done turns true by callbacks
 * only. Any thread, but for callbacks. */
bool engine_wait(struct engine *en, bool (*done)(const void *of), const void *of, bool soon,
		 const struct timespec *until);

/* For a thread that has a loop of its own, and other things to do in it. Between engine_busy_poll_begin, which may say
 * no, and engine_busy_poll_end the engine's thread does not see what comes: engine_busy_poll does, without waiting, and
 * has to be called again and again. To be ended before anything large is submitted. Returns whether something had come.
 * One thread, which calls engine_wait neither, and not in callbacks. */
bool engine_busy_poll_begin(struct engine *en);
bool engine_busy_poll(struct engine *en);
void engine_busy_poll_end(struct engine *en);

/* Bytes of the largest operation that is small: engine_submit sends it itself, engine_busy_poll_begin is worth it, and
 * who waits for it had better look before sleeping (`soon`), here or for the agent. To do more takes longer than a
 * wake-up, and the thread may have other things to do. */
enum { ENGINE_SMALL_BYTES = 64 << 10 };

/* The `ready` of an operation that was submitted has grown. Never blocks. Any thread. */
void engine_poke(struct engine *en);

/* Gives the job's end a reason that all ranks will read ("rank 3 (pid 77 on host b) exited"): pending operations fail
 * with it, ABORT goes to the reducers, on_failed follows. Any thread. */
void engine_abort(struct engine *en, int code, const char *message);

/* Bytes sent and received on all connections so far. Any thread. */
void engine_stats(struct engine *en, reduction_stats *ret);

/* Says GOODBYE, fails what is pending with RS_ECLOSED, and ends the thread: only engine_wait, which finds that all is
 * over, and engine_free may follow. Not in a callback. */
void engine_stop(struct engine *en);
void engine_free(struct engine *en);

#endif
