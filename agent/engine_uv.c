/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's thread. The happy path is: connections come up, the exchange runs, on_ready; submissions arrive through
 * a locked list and an async handle; engine_free says goodbye, waits until the connections are closed and joins.
 * Failure modes are: the exchange ends with an error, which on_failed tells after every operation's done; then the loop
 * idles until engine_free. */
#include "agent/engine_uv.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes what other threads have left; returns the submitted operations. */
static struct exchange_op *take(struct engine *en, bool *stop, bool *aborted, struct rs_err *why)
{
	struct exchange_op *first;

	pthread_mutex_lock(&en->lock);
	first = en->first;
	en->first = en->last = NULL;
	*stop = en->stop;
	*aborted = en->aborted;
	*why = en->abort;
	en->aborted = false;
	pthread_mutex_unlock(&en->lock);
	return first;
}

static void fail_all(struct exchange_op *op, const struct rs_err *err)
{
	while (op) {
		struct exchange_op *next = op->next; /* done may free op */

		op->done(op, err);
		op = next;
	}
}

/* The exchange has ended: from here on engine_submit says so itself. */
static void tell_end(struct engine *en)
{
	struct rs_err err = *exchange_error(en->x);
	struct exchange_op *first;
	bool stop;

	en->failed_told = true;
	if (!err.code)
		rs_fail(&err, RS_ECLOSED, "the communicator is closed");
	pthread_mutex_lock(&en->lock);
	en->failed = true;
	en->err = err;
	first = en->first;
	en->first = en->last = NULL;
	stop = en->stop;
	pthread_mutex_unlock(&en->lock);
	fail_all(first, &err);
	if (!stop)
		en->opt.on_failed(en->opt.user, &err);
}

static void free_conns(struct engine *en)
{
	for (unsigned i = 0; i < en->conns_n; i++)
		if (en->conns[i])
			en->conns[i]->ops->free(en->conns[i]);
	free(en->conns);
	en->conns = NULL;
	en->conns_n = 0;
}

static void close_if_done(struct engine *en)
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
	free_conns(en); /* before `wake`, which lookups use */
	wakeups_serve(&en->wakeups, NULL, NULL);
	en->closing = true;
	wakeup_close(&en->wake);
	wakeups_close(&en->wakeups);
	uv_close((uv_handle_t *)&en->timer, NULL);
}

static void on_timer(uv_timer_t *h)
{
	struct engine *en = h->data;

	en->armed_ms = UINT64_MAX;
	exchange_tick(en->x, uv_now(&en->loop));
	engine_settle(en);
}

/* A timer that fires too early only asks the exchange again, so it is moved when the next time is earlier. */
static void arm(struct engine *en)
{
	uint64_t next = exchange_next(en->x), now = uv_now(&en->loop);

	if (next >= en->armed_ms || en->closing)
		return;
	en->armed_ms = next;
	uv_timer_start(&en->timer, on_timer, next > now ? next - now : 0, 0);
}

void engine_count(_Atomic uint64_t *counter, size_t n)
{
	/* one thread writes: no locked instruction is needed */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

void engine_settle(struct engine *en)
{
	/* each rank begins at another reducer, so that an operation's first chunks do not all meet at one port */
	unsigned first = en->opt.rank * en->conns_n / en->opt.world_size;

	while (exchange_sweep(en->x))
		for (unsigned i = 0; i < en->conns_n; i++) {
			struct conn *c = en->conns[(first + i) % en->conns_n];

			c->ops->service(c);
		}
	if (!en->ready && exchange_state(en->x) == EXCHANGE_RUNNING) {
		en->ready = true;
		en->opt.on_ready(en->opt.user);
	}
	if (exchange_state(en->x) == EXCHANGE_ENDED) {
		if (!en->failed_told)
			tell_end(en);
		close_if_done(en);
	}
	arm(en);
}

static void on_wake(struct wakeup *w)
{
	struct engine *en = (struct engine *)((char *)w - offsetof(struct engine, wake));
	bool stop, aborted;
	struct rs_err why, e;
	struct exchange_op *op = take(en, &stop, &aborted, &why);

	while (op) {
		struct exchange_op *next = op->next;

		if (exchange_submit(en->x, op, uv_now(&en->loop), &e))
			op->done(op, &e);
		op = next;
	}
	if (atomic_exchange(&en->looked_up, false))
		for (unsigned i = 0; i < en->conns_n; i++)
			if (en->conns[i]->ops->looked_up)
				en->conns[i]->ops->looked_up(en->conns[i]);
	if (atomic_exchange(&en->poked, false))
		exchange_poke(en->x);
	if (aborted)
		exchange_abort(en->x, why.code, why.msg, uv_now(&en->loop));
	if (stop)
		exchange_goodbye(en->x, uv_now(&en->loop));
	engine_settle(en);
}

static void *engine_main(void *arg)
{
	struct engine *en = arg;

	pthread_setname_np(pthread_self(), "reduction");
	uv_update_time(&en->loop);
	engine_grpc_serve(&en->grpc, &en->wakeups);
	engine_settle(en);
	wakeups_run(&en->wakeups);
	return NULL;
}

/* Signals belong to the program's own threads. */
static int start_thread(struct engine *en, struct rs_err *e)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&en->thread, NULL, engine_main, en);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc ? rs_fail_sys(e, RS_EIO, rc, "the engine's thread cannot be started") : RS_OK;
}

static void on_late(void *user, const char *sentence)
{
	struct engine *en = user;

	rs_log(en->opt.log, RS_LOG_WARN, "operation-late", rs_kv_s("job", en->opt.job), rs_kv_s("reason", sentence));
}

static void on_reducer(void *user, const struct rs_reducer *r, bool lives, const char *why)
{
	struct engine *en = user;

	if (lives)
		rs_log(en->opt.log, RS_LOG_WARN, "reducer-back", rs_kv_s("reducer", r->id),
		       rs_kv_s("address", r->address), rs_kv_s("job", en->opt.job));
	else
		rs_log(en->opt.log, RS_LOG_WARN, "reducer-lost", rs_kv_s("reducer", r->id),
		       rs_kv_s("address", r->address), rs_kv_s("job", en->opt.job), rs_kv_s("reason", why));
}

static void on_nonfinite(void *user, const struct rs_err *what)
{
	struct engine *en = user;
	uint64_t now = uv_now(&en->loop);

	rs_log_limit_tell(&en->nonfinite, en->opt.log, RS_LOG_WARN, now);
	if (rs_log_limit_pass(&en->nonfinite, now))
		rs_log(en->opt.log, RS_LOG_WARN, "nonfinite", rs_kv_s("job", en->job),
		       rs_kv_u("generation", en->opt.generation), rs_kv_s("found", what->msg));
}

static int load_secret(void *user, struct auth_secret *ret, struct rs_err *e)
{
	const struct engine *en = user;
	int rc = auth_secret_load(ret, en->opt.cfg->security.secret, e);

	return rc ? rs_wrap(e, "security.secret") : RS_OK;
}

static int random_bytes(void *user, void *buf, size_t n, struct rs_err *e)
{
	(void)user;
	return auth_random(buf, n, e);
}

/* What is wrong with the file is better said now than when the first reducer asks. */
static int check_secret(struct engine *en, struct rs_err *e)
{
	struct auth_secret secret;
	int rc = load_secret(en, &secret, e);

	if (!rc)
		auth_secret_clear(&secret);
	return rc;
}

static int init_exchange(struct engine *en, struct rs_err *e)
{
	const struct engine_options *o = &en->opt;
	bool guarded = o->cfg->security.secret[0] != '\0';
	struct exchange_options xo = {
	    .adaptive = true,
	    .cfg = o->cfg,
	    .job = o->job,
	    .label = o->label,
	    .generation = o->generation,
	    .rank = o->rank,
	    .world_size = o->world_size,
	    .processes = o->processes,
	    .connect_ms = o->connect_ms,
	    .secret = guarded ? load_secret : NULL,
	    .random = random_bytes,
	    .reducer_changed = on_reducer,
	    .on_nonfinite = on_nonfinite,
	    .late = on_late,
	    .user = en,
	};
	int rc = auth_random(&xo.incarnation, sizeof xo.incarnation, e);

	if (!rc && guarded)
		rc = check_secret(en, e);
	if (!rc)
		rc = engine_tls_init(&en->tls, o->cfg, o->log, e);
	if (!rc && o->cfg->job.grpc)
		rc = engine_grpc_init(&en->grpc, o->cfg, e);
	if (rc)
		return rc;
	rc = exchange_new(&en->x, &xo, uv_now(&en->loop), e);
	if (rc)
		return rc;
	en->conns = calloc(exchange_links(en->x), sizeof *en->conns);
	if (!en->conns)
		return rs_fail(e, RS_ENOMEM, "there is no memory for %u connections", exchange_links(en->x));
	en->conns_n = exchange_links(en->x);
	for (unsigned i = 0; i < en->conns_n && !rc; i++)
		rc = (o->cfg->job.grpc ? conn_grpc_new : conn_tcp_new)(&en->conns[i], en, i, e);
	return rc;
}

/* Before the thread runs, or after it has ended. */
static void release(struct engine *en)
{
	if (!en->closing) {
		free_conns(en);
		wakeup_close(&en->wake);
		wakeups_close(&en->wakeups);
		uv_close((uv_handle_t *)&en->timer, NULL);
		uv_run(&en->loop, UV_RUN_DEFAULT);
	}
	wakeups_destroy(&en->wakeups);
	uv_loop_close(&en->loop);
	engine_grpc_close(&en->grpc);
	rs_log_limit_tell(&en->nonfinite, en->opt.log, RS_LOG_WARN, UINT64_MAX);
	exchange_free(en->x);
	engine_tls_tell(&en->tls, UINT64_MAX);
	engine_tls_close(&en->tls);
	pthread_mutex_destroy(&en->lock);
	free(en);
}

int engine_start(struct engine **ret, const struct engine_options *opt, struct rs_err *e)
{
	struct engine *en = calloc(1, sizeof *en);
	int rc;

	if (!en)
		return rs_fail(e, RS_ENOMEM, "there is no memory for the engine");
	en->opt = *opt;
	en->opt.job = en->job;
	snprintf(en->job, sizeof en->job, "%s", opt->job);
	en->armed_ms = UINT64_MAX;
	en->nonfinite = (struct rs_log_limit){.event = "nonfinite", .per_s = ENGINE_NONFINITE_LINES};
	pthread_mutex_init(&en->lock, NULL);
	rc = uv_loop_init(&en->loop);
	if (rc) {
		rs_fail(e, RS_EIO, "the engine's event loop cannot be started: %s", uv_strerror(rc));
		goto free_engine;
	}
	rc = wakeups_init(&en->wakeups, &en->loop, e);
	if (rc)
		goto close_loop;
	wakeup_init(&en->wake, &en->wakeups, on_wake);
	uv_timer_init(&en->loop, &en->timer);
	en->timer.data = en;
	rc = init_exchange(en, e);
	if (!rc)
		rc = start_thread(en, e);
	if (rc) {
		release(en);
		return rc;
	}
	*ret = en;
	return RS_OK;

close_loop:
	uv_loop_close(&en->loop);
free_engine:
	pthread_mutex_destroy(&en->lock);
	free(en);
	return e->code;
}

int engine_submit(struct engine *en, struct exchange_op *op, struct rs_err *e)
{
	int rc = exchange_check(en->opt.cfg, op, e);

	if (rc)
		return rc;
	pthread_mutex_lock(&en->lock);
	if (en->failed) {
		rc = rs_fail(e, en->err.code, "%s", en->err.msg);
	} else {
		op->next = NULL;
		if (en->last)
			en->last->next = op;
		else
			en->first = op;
		en->last = op;
	}
	pthread_mutex_unlock(&en->lock);
	if (!rc)
		wakeup_send(&en->wake);
	return rc;
}

void engine_poke(struct engine *en)
{
	atomic_store(&en->poked, true);
	wakeup_send(&en->wake);
}

void engine_abort(struct engine *en, int code, const char *message)
{
	pthread_mutex_lock(&en->lock);
	if (!en->aborted) {
		en->aborted = true;
		rs_fail(&en->abort, code, "%s", message);
	}
	pthread_mutex_unlock(&en->lock);
	wakeup_send(&en->wake);
}

void engine_stats(struct engine *en, reduction_stats *ret)
{
	ret->tx_bytes = atomic_load_explicit(&en->tx_bytes, memory_order_relaxed);
	ret->rx_bytes = atomic_load_explicit(&en->rx_bytes, memory_order_relaxed);
	ret->ops_done = exchange_ops_done(en->x);
}

void engine_free(struct engine *en)
{
	pthread_mutex_lock(&en->lock);
	en->stop = true;
	pthread_mutex_unlock(&en->lock);
	wakeup_send(&en->wake);
	pthread_join(en->thread, NULL);
	release(en);
}
