/* SPDX-License-Identifier: Apache-2.0 */
/* Running the engine: on its own thread, or on a thread of the program that calls it. The
 * happy path of a small operation: engine_submit takes loop_lock and sends -> engine_wait
 * hides the sockets from the engine's thread, sleeps for them itself, receives, and finds
 * the operation done. The engine's thread sleeps through all of it. Failure modes:
 * another thread holds loop_lock (the engine's thread is woken for what was submitted);
 * another thread is waiting already (the second one sleeps until its request is done). */
#include "agent/worker/core/check.h"
#include "agent/worker/engine/engine_uv.h"
#include "common/assert.h"
#include "proto/operation.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

/* What other threads have left. */
struct engine_requests {
	struct exchange_op *first; /* submitted operations */
	bool stop, aborted, moves;
	struct rs_err why;           /* aborted */
	struct exchange_place place; /* moves */
	struct engine_ask ask;
	struct engine_trace_ask trace;
};

static void engine_take(struct engine *en, struct engine_requests *ret)
{
	pthread_mutex_lock(&en->lock);
	ret->first = en->first;
	en->first = en->last = NULL;
	ret->stop = en->stop;
	ret->aborted = en->aborted;
	if (en->aborted)
		ret->why = en->abort;
	en->aborted = false;
	ret->moves = en->moves && !en->stop;
	ret->place = en->place;
	en->moves = false;
	ret->ask = en->ask;
	en->ask.to = NULL;
	ret->trace = en->trace_ask;
	en->trace_ask = (struct engine_trace_ask){.end = false};
	pthread_mutex_unlock(&en->lock);
}

static void engine_fail_all(struct engine *en, struct exchange_op *op, const struct rs_err *err)
{
	while (op) {
		struct exchange_op *next = op->next; /* done may free op */

		en->rejected++;
		op->done(op, err);
		op = next;
	}
}

/* The exchange has ended: engine_submit returns its error from now on, and on_failed is
 * called. */
static void engine_report_end(struct engine *en)
{
	struct rs_err err = *exchange_error(en->x);
	struct exchange_op *first;
	bool stop;

	en->failed_reported = true;
	if (!err.code)
		rs_fail(&err, RS_ECLOSED, "the communicator is closed");
	pthread_mutex_lock(&en->lock);
	en->failed = true;
	en->err = err;
	first = en->first;
	en->first = en->last = NULL;
	stop = en->stop;
	pthread_mutex_unlock(&en->lock);
	engine_fail_all(en, first, &err);
	if (!stop)
		en->opt.on_failed(en->opt.user, &err);
}

void engine_close_conns(struct engine *en)
{
	for (unsigned i = 0; i < en->conns_n; i++)
		if (en->conns[i])
			en->conns[i]->ops->free(en->conns[i]);
	free(en->conns);
	en->conns = NULL;
	en->conns_n = 0;
	engine_names_abandon(&en->addresses);
}

static void engine_close_if_done(struct engine *en)
{
	bool stop;

	pthread_mutex_lock(&en->lock);
	stop = en->stop;
	pthread_mutex_unlock(&en->lock);
	if (!stop || en->closing || exchange_state(en->x) != EXCHANGE_ENDED)
		return;
	for (unsigned i = 0; i < en->conns_n; i++)
		if (!en->conns[i]->ops->idle(en->conns[i]))
			return;
	if (en->on_caller) { /* only its own thread may end the loop */
		wakeup_send(&en->wake);
		return;
	}
	engine_close_conns(en); /* before `wake`, which lookups use */
	wakeups_serve(&en->wakeups, NULL, NULL);
	en->closing = true;
	wakeup_close(&en->wake);
	wakeups_close(&en->wakeups);
	uv_close((uv_handle_t *)&en->timer, NULL);
}

static void engine_on_timer(uv_timer_t *h)
{
	struct engine *en = h->data;

	en->armed_ms = UINT64_MAX;
	exchange_tick(en->x, uv_now(&en->loop));
	engine_process(en);
}

/* Sets the timer. A timer that fires too early only asks the exchange again, so it is
 * moved only if the next time is earlier. */
static void engine_arm(struct engine *en)
{
	uint64_t next = exchange_next(en->x), now = uv_now(&en->loop);

	if (next >= en->armed_ms || en->closing)
		return;
	en->armed_ms = next;
	uv_timer_start(&en->timer, engine_on_timer, next > now ? next - now : 0, 0);
	if (en->on_caller) /* the thread sleeps longer than that */
		wakeup_send(&en->wake);
}

/* All ranks have joined. One rank is enough for the log: all have the same windows. */
static void engine_on_running(struct engine *en)
{
	uint64_t chunks, bytes;

	if (en->opt.rank == 0 && exchange_is_long(en->x, &chunks, &bytes))
		rs_log(en->opt.log, RS_LOG_INFO, "long-links", rs_kv_s("job", en->opt.job), rs_kv_u("rank", 0),
		       rs_kv_u("chunks_in_flight", chunks), rs_kv_u("retained_bytes", bytes));
	en->opt.on_ready(en->opt.user);
}

void engine_process(struct engine *en)
{
	/* each rank starts with another reducer, so that an operation's first chunks do
	 * not all meet at one port */
	unsigned first = en->opt.rank * en->conns_n / en->opt.world_size;

	if (exchange_run_single(en->x, en->on_caller ? ENGINE_SINGLE_CALLER : ENGINE_SINGLE_STEP))
		wakeup_send(&en->wake);
	while (exchange_links_changed(en->x))
		engine_serve(en->conns, en->conns_n, first);
	if (!en->ready && exchange_state(en->x) == EXCHANGE_RUNNING) {
		en->ready = true;
		engine_on_running(en);
	}
	if (en->trace.to)
		engine_trace_check(en);
	if (exchange_state(en->x) == EXCHANGE_ENDED) {
		if (!en->failed_reported)
			engine_report_end(en);
		engine_close_if_done(en);
	}
	engine_arm(en);
	if (en->opt.cfg->paranoid)
		rs_assert_sound(__FILE__, __LINE__, exchange_check_state(en->x));
}

/* Fills a report. A reducer's round trip is the longest of its connections. */
static void engine_answer(struct engine *en, const struct engine_ask *ask)
{
	exchange_report(en->x, uv_now(&en->loop), ask->to);
	for (unsigned i = 0; i < en->conns_n; i++) {
		const struct conn *c = en->conns[i];
		struct report_reducer *r = &ask->to->reducers[exchange_reducer(en->x, i)];
		struct window_signal signal;

		if (!c->ops->signal || !c->ops->signal(c, &signal))
			continue;
		r->rtt_us = signal.rtt_us > r->rtt_us ? signal.rtt_us : r->rtt_us;
		r->min_rtt_us = signal.min_rtt_us > r->min_rtt_us ? signal.min_rtt_us : r->min_rtt_us;
		r->retransmits += signal.lost;
	}
	ask->done(ask->user);
}

/* Joins another generation. Operations that the exchange has not got belong to the one
 * before. */
static void engine_move(struct engine *en, const struct exchange_place *to, struct exchange_op *op)
{
	struct rs_err why;

	exchange_reconfigure(en->x, to, uv_now(&en->loop));
	rs_fail(&why, RS_ECLOSED, "the communicator has left generation %u for generation %u", en->opt.generation,
		to->generation);
	engine_fail_all(en, op, &why);
	en->opt.generation = to->generation;
	en->opt.rank = to->rank;
	en->opt.world_size = to->world_size;
	en->ready = en->failed_reported = false;
	pthread_mutex_lock(&en->lock);
	en->failed = false;
	pthread_mutex_unlock(&en->lock);
	en->opt.on_moved(en->opt.user);
}

static void engine_submit_all(struct engine *en, struct exchange_op *op)
{
	struct rs_err e;

	while (op) {
		struct exchange_op *next = op->next;

		en->large |= !operation_is_small(&op->of);
		if (exchange_submit(en->x, op, uv_now(&en->loop), &e)) {
			en->rejected++;
			op->done(op, &e);
		} else {
			en->submitted++; /* op may be freed by now */
		}
		op = next;
	}
}

/* Handles what other threads have left, but not its effects; see engine_process. */
static void engine_take_requests(struct engine *en)
{
	struct engine_requests take;

	engine_take(en, &take);
	engine_trace_take(en, &take.trace);
	if (take.moves)
		engine_move(en, &take.place, take.first);
	else
		engine_submit_all(en, take.first);
	if (atomic_exchange(&en->lookup_ended, false))
		for (unsigned i = 0; i < en->conns_n; i++)
			if (en->conns[i]->ops->lookup_ended)
				en->conns[i]->ops->lookup_ended(en->conns[i]);
	if (atomic_exchange(&en->poked, false))
		exchange_poke(en->x);
	if (take.aborted)
		exchange_abort(en->x, take.why.code, take.why.msg, uv_now(&en->loop));
	if (take.stop)
		exchange_goodbye(en->x, uv_now(&en->loop));
	if (take.ask.to)
		engine_answer(en, &take.ask);
}

void engine_on_wake(struct wakeup *w)
{
	struct engine *en = (struct engine *)((char *)w - offsetof(struct engine, wake));

	atomic_store(&en->asked, false);
	engine_take_requests(en);
	engine_process(en);
}

static void engine_on_sockets(struct engine *en, const struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		unsigned link = (unsigned)(ev[i].data.u64 & UINT32_MAX);
		struct conn *c = link < en->conns_n ? en->conns[link] : NULL;

		if (c)
			c->ops->ready(c, (uint32_t)(ev[i].data.u64 >> 32), ev[i].events);
	}
}

/* Returns the number of operations that have ended in any way, for threads that wait for
 * one. */
static uint64_t engine_ended_ops(const struct engine *en)
{
	return exchange_ops_done(en->x) + en->rejected + en->failed_reported;
}

/* Releases loop_lock. A thread in engine_wait sleeps only for sockets, so it is woken
 * here if an operation has ended. */
static void engine_unlock_loop(struct engine *en, uint64_t ends_before)
{
	if (en->waiting && engine_ended_ops(en) != ends_before)
		engine_poll_interrupt(&en->poll);
	pthread_mutex_unlock(&en->loop_lock);
}

/* Sleeps on the engine's thread. Releases loop_lock meanwhile, if callers may run the
 * engine. Returns what is ready. */
static int engine_sleep(struct engine *en, uint64_t *ends_before)
{
	int timeout_ms, ready;

	uv_update_time(&en->loop);
	timeout_ms = uv_backend_timeout(&en->loop);
	if (en->callers_may_run)
		engine_unlock_loop(en, *ends_before);
	ready = engine_poll_sleep(&en->poll, timeout_ms);
	if (en->callers_may_run)
		pthread_mutex_lock(&en->loop_lock);
	*ends_before = engine_ended_ops(en);
	uv_update_time(&en->loop);
	return ready;
}

static void engine_run(struct engine *en)
{
	struct epoll_event ev[ENGINE_POLL_EVENTS];
	uint64_t before = engine_ended_ops(en);
	int ready;

	while (uv_run(&en->loop, UV_RUN_NOWAIT)) {
		do {
			ready = engine_sleep(en, &before);
			if (ready & ENGINE_POLL_SOCKETS) {
				engine_on_sockets(en, ev, engine_poll_sockets(&en->poll, ev, 0));
				engine_process(en);
			}
		} while (!(ready & ENGINE_POLL_LOOP) && uv_backend_timeout(&en->loop) != 0);
	}
}

void *engine_main(void *arg)
{
	struct engine *en = arg;

	pthread_setname_np(pthread_self(), "reduction");
	pthread_mutex_lock(&en->loop_lock);
	uv_update_time(&en->loop);
	engine_grpc_serve(&en->grpc, &en->wakeups);
	engine_process(en);
	if (en->opt.cfg->job.grpc)
		wakeups_run(&en->wakeups); /* there are no sockets, and callers do not run the engine */
	else
		engine_run(en);
	engine_unlock_loop(en, UINT64_MAX); /* all operations have ended, so waiting threads are woken */
	return NULL;
}

/* Disables cancellation: the program may cancel its threads, but not while they hold
 * loop_lock. Returns the previous state. */
static int engine_disable_cancel(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

bool engine_run_on_caller(struct engine *en)
{
	int cancel;
	uint64_t before;

	if (!en->callers_may_run)
		return false;
	cancel = engine_disable_cancel();
	if (pthread_mutex_trylock(&en->loop_lock)) {
		pthread_setcancelstate(cancel, NULL);
		return false;
	}
	before = engine_ended_ops(en);
	uv_update_time(&en->loop);
	en->on_caller = true;
	engine_take_requests(en);
	engine_process(en);
	en->on_caller = false;
	engine_unlock_loop(en, before);
	pthread_setcancelstate(cancel, NULL);
	return true;
}

/* Waits until sockets are ready. While *look is set it spins first. */
static int engine_spin_and_sleep(struct engine *en, struct epoll_event *ev, bool *look, int timeout_ms)
{
	int n = 0;

	while (*look && (n = engine_poll_sockets(&en->poll, ev, 0)) == 0)
		*look = rs_spin_more(&en->spin, uv_hrtime());
	return *look ? n : engine_poll_sockets(&en->poll, ev, timeout_ms);
}

/* Runs the engine once on a caller's thread with loop_lock held: handles ready sockets
 * and what other threads have left. */
static void engine_run_once(struct engine *en, const struct epoll_event *ev, int n)
{
	en->on_caller = true;
	uv_update_time(&en->loop);
	engine_on_sockets(en, ev, n);
	engine_take_requests(en);
	/* the engine's thread does this too, but may not get loop_lock while the sockets
	 * are busy */
	if (uv_now(&en->loop) >= exchange_next(en->x))
		exchange_tick(en->x, uv_now(&en->loop));
	engine_process(en);
}

/* Waits for sockets and handles them. Called with loop_lock held; releases it while it
 * sleeps. */
static void engine_wait_for_sockets(struct engine *en, bool *look, int timeout_ms)
{
	struct epoll_event ev[ENGINE_POLL_EVENTS];
	int n;

	en->on_caller = false;
	pthread_mutex_unlock(&en->loop_lock);
	n = engine_spin_and_sleep(en, ev, look, timeout_ms);
	pthread_mutex_lock(&en->loop_lock);
	engine_run_once(en, ev, n);
}

bool engine_wait(struct engine *en, bool (*done)(const void *of), const void *of, bool soon,
		 const struct timespec *until)
{
	int cancel, timeout_ms = -1;
	bool look;

	if (!en->callers_may_run)
		return false;
	cancel = engine_disable_cancel();
	pthread_mutex_lock(&en->loop_lock);
	if (!en->waiting && !done(of)) {
		en->waiting = en->on_caller = true;
		look = soon && rs_spin_begin(&en->spin, uv_hrtime());
		engine_poll_hide(&en->poll, true);
		while (!done(of) && (timeout_ms = engine_poll_left_ms(until)) != 0)
			engine_wait_for_sockets(en, &look, timeout_ms);
		if (look)
			rs_spin_found(&en->spin);
		engine_poll_hide(&en->poll, false);
		en->waiting = en->on_caller = false;
	}
	pthread_mutex_unlock(&en->loop_lock);
	pthread_setcancelstate(cancel, NULL);
	return done(of);
}

bool engine_busy_poll_begin(struct engine *en)
{
	if (!en->callers_may_run || pthread_mutex_trylock(&en->loop_lock))
		return false;
	if (exchange_ops_done(en->x) == en->submitted)
		en->large = false;
	if (!en->large) {
		en->waiting = true;
		engine_poll_hide(&en->poll, true);
	}
	pthread_mutex_unlock(&en->loop_lock);
	return en->waiting;
}

bool engine_busy_poll(struct engine *en)
{
	struct epoll_event ev[ENGINE_POLL_EVENTS];
	int n = engine_poll_sockets(&en->poll, ev, 0);

	if (n == 0)
		return false;
	pthread_mutex_lock(&en->loop_lock);
	engine_run_once(en, ev, n);
	en->on_caller = false;
	pthread_mutex_unlock(&en->loop_lock);
	return true;
}

void engine_busy_poll_end(struct engine *en)
{
	pthread_mutex_lock(&en->loop_lock);
	engine_poll_hide(&en->poll, false);
	en->waiting = false;
	pthread_mutex_unlock(&en->loop_lock);
}
