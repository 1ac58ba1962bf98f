/* SPDX-License-Identifier: Apache-2.0 */
/* Life of the engine. The happy path: connections are established, the exchange runs,
 * on_ready; operations arrive through a locked list, which the submitting thread itself
 * or the engine's thread handles; engine_stop sends GOODBYE, waits until the connections
 * are closed and joins the thread. Failure modes: the exchange ends with an error;
 * on_failed reports it after every operation's done(); then the loop idles until
 * engine_stop. */
#include "agent/worker/engine/engine_uv.h"
#include "common/descriptors.h"
#include "common/loop_uv.h"
#include "config/group.h"
#include "proto/features.h"
#include "proto/operation.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Starts the thread with all signals blocked: they belong to the program's own
 * threads. */
static int engine_start_thread(struct engine *en, struct rs_err *e)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&en->thread, NULL, engine_main, en);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc ? rs_fail_sys(e, RS_EIO, rc, "the engine's thread cannot be started") : RS_OK;
}

static void engine_on_late(void *user, const char *sentence)
{
	struct engine *en = user;

	rs_log(en->opt.log, RS_LOG_WARN, "operation-late", rs_kv_s("job", en->opt.job), rs_kv_u("rank", en->opt.rank),
	       rs_kv_s("reason", sentence));
}

static void engine_on_no_feedback(void *user, const char *sentence)
{
	struct engine *en = user;

	rs_log(en->opt.log, RS_LOG_WARN, "no-feedback", rs_kv_s("job", en->opt.job), rs_kv_u("rank", en->opt.rank),
	       rs_kv_s("reason", sentence));
}

static void engine_on_waiting(void *user, const char *sentence)
{
	struct engine *en = user;

	rs_log(en->opt.log, RS_LOG_WARN, "waiting", rs_kv_s("job", en->opt.job), rs_kv_u("rank", en->opt.rank),
	       rs_kv_s("reason", sentence));
}

/* One rank is enough: all have the same reducers. */
static void engine_on_degraded(void *user, const char *sentence)
{
	struct engine *en = user;

	if (en->opt.rank == 0)
		rs_log(en->opt.log, RS_LOG_WARN, "degraded", rs_kv_s("job", en->opt.job), rs_kv_u("rank", en->opt.rank),
		       rs_kv_s("reason", sentence));
}

static void engine_on_balance(void *user, enum balance_kind kind, bool did, const char *sentence)
{
	static const char *const events[] = {
	    [BALANCE_SHARES] = "unbalanced",
	    [BALANCE_SLOW_RANK] = "slow-path",
	    [BALANCE_SLOW_PATH] = "slow-path",
	    [BALANCE_ANEW] = "slow-path",
	};
	struct engine *en = user;

	if (did)
		rs_log(en->opt.log, RS_LOG_INFO, "rebalanced", rs_kv_s("job", en->opt.job),
		       rs_kv_u("rank", en->opt.rank), rs_kv_s("reason", sentence));
	else
		rs_log(en->opt.log, RS_LOG_WARN, events[kind], rs_kv_s("job", en->opt.job),
		       rs_kv_u("rank", en->opt.rank), rs_kv_s("reason", sentence));
}

static void engine_on_reducer(void *user, const struct rs_reducer *r, enum exchange_change how, const char *why)
{
	static const char *const events[] = {[EXCHANGE_BACK] = "reducer-back",
					     [EXCHANGE_LOST] = "reducer-lost",
					     [EXCHANGE_LEFT] = "reducer-left",
					     [EXCHANGE_EMPTY] = "slot-empty",
					     [EXCHANGE_TAKEN] = "slot-taken"};
	struct engine *en = user;
	bool slot = how == EXCHANGE_EMPTY || how == EXCHANGE_TAKEN;
	int level = !slot ? RS_LOG_WARN : en->opt.rank ? RS_LOG_DEBUG : RS_LOG_INFO;

	rs_log(en->opt.log, level, events[how], rs_kv_s("reducer", r->id),
	       rs_kv_s("address", rs_config_address(en->opt.cfg, r)), rs_kv_s("job", en->opt.job),
	       rs_kv_u("rank", en->opt.rank),
	       rs_kv_s("reason", how == EXCHANGE_BACK    ? "it has its share again"
				 : how == EXCHANGE_TAKEN ? "a reducer has come and has its share"
							 : why));
}

static void engine_on_nonfinite(void *user, const struct rs_err *what)
{
	struct engine *en = user;
	uint64_t now = uv_now(&en->loop);

	rs_log_limit_report(&en->nonfinite, en->opt.log, RS_LOG_WARN, now);
	if (rs_log_limit_pass(&en->nonfinite, now))
		rs_log(en->opt.log, RS_LOG_WARN, "nonfinite", rs_kv_s("job", en->job),
		       rs_kv_u("generation", en->opt.generation), rs_kv_u("rank", en->opt.rank),
		       rs_kv_s("found", what->msg));
}

static int engine_load_secret(void *user, struct auth_secret *ret, struct rs_err *e)
{
	const struct engine *en = user;
	int rc = auth_secret_load(ret, en->opt.cfg->security.secret, e);

	return rc ? rs_wrap(e, "security.secret") : RS_OK;
}

static int engine_random(void *user, void *buf, size_t n, struct rs_err *e)
{
	(void)user;
	return auth_random(buf, n, e);
}

/* Checks the file now, so that an error is reported before the first reducer asks for a
 * proof. */
static int engine_check_secret(struct engine *en, struct rs_err *e)
{
	struct auth_secret secret;
	int rc = engine_load_secret(en, &secret, e);

	if (!rc)
		auth_secret_clear(&secret);
	return rc;
}

static uint64_t engine_features(const struct engine_options *o)
{
	uint64_t without = (o->reconfigures ? 0 : FEATURE_RECONFIGURE) | (o->no_shards ? FEATURE_SHARDED : 0);

	return o->cfg->job.baseline ? 0 : FEATURES_ALL & ~without;
}

static int engine_init_exchange(struct engine *en, struct rs_err *e)
{
	const struct engine_options *o = &en->opt;
	bool guarded = o->cfg->security.secret[0] != '\0';
	struct exchange_options xo = {
	    .adaptive = true,
	    .params = rs_config_exchange(o->cfg),
	    .job = o->job,
	    .label = o->label,
	    .run = o->run,
	    .evidence = o->evidence,
	    .generation = o->generation,
	    .rank = o->rank,
	    .world_size = o->world_size,
	    .processes = o->processes,
	    .features = engine_features(o),
	    .single_worker = o->single_worker,
	    .connect_ms = o->connect_ms,
	    .secret = guarded ? engine_load_secret : NULL,
	    .random = engine_random,
	    .reducer_changed = engine_on_reducer,
	    .is_reducer = engine_on_is_reducer,
	    .on_nonfinite = engine_on_nonfinite,
	    .late = engine_on_late,
	    .waiting = engine_on_waiting,
	    .no_feedback = engine_on_no_feedback,
	    .degraded = engine_on_degraded,
	    .balance = engine_on_balance,
	    .user = en,
	};
	int rc = rs_kernels_select("auto", &xo.kernels, e);

	if (!rc)
		rc = rs_group_detect(&xo.params.group, o->cfg, NULL, NULL, e);
	if (!rc)
		rc = auth_random(&xo.incarnation, sizeof xo.incarnation, e);

	if (!rc && guarded)
		rc = engine_check_secret(en, e);
	if (!rc)
		rc = engine_addresses_init(&en->addresses, o->cfg, e);
	if (!rc)
		rc = engine_tls_init(&en->tls, o->cfg, en->addresses.reducers, o->log, e);
	if (!rc && o->cfg->job.grpc)
		rc = engine_grpc_init(&en->grpc, o->cfg, e);
	if (rc)
		return rc;

	xo.params.reducers = en->addresses.reducers;
	rc = exchange_new(&en->x, &xo, uv_now(&en->loop), e);
	if (rc)
		return rc;
	en->conns = calloc(exchange_links(en->x), sizeof *en->conns);
	if (!en->conns)
		return rs_oom(e, exchange_links(en->x) * sizeof *en->conns, "%u connections", exchange_links(en->x));

	en->conns_n = exchange_links(en->x);
	for (unsigned i = 0; i < en->conns_n && !rc; i++)
		rc = (o->cfg->job.grpc ? conn_grpc_new : conn_tcp_new)(&en->conns[i], en, i, e);
	return rc;
}

/* Frees the engine, before the thread runs or after it has ended. */
static void engine_release(struct engine *en)
{
	if (!en->closing) {
		engine_close_conns(en);
		wakeup_close(&en->wake);
		wakeups_close(&en->wakeups);
		uv_close((uv_handle_t *)&en->timer, NULL);
		uv_run(&en->loop, UV_RUN_DEFAULT);
	}
	wakeups_destroy(&en->wakeups);
	engine_poll_close(&en->poll);
	uv_loop_close(&en->loop);
	engine_grpc_close(&en->grpc);
	rs_log_limit_report(&en->nonfinite, en->opt.log, RS_LOG_WARN, UINT64_MAX);
	exchange_free(en->x);
	engine_tls_tell(&en->tls, UINT64_MAX);
	engine_tls_close(&en->tls);
	engine_addresses_close(&en->addresses);
	pthread_mutex_destroy(&en->lock);
	pthread_mutex_destroy(&en->loop_lock);
	free(en);
}

int engine_start(struct engine **ret, const struct engine_options *opt, struct rs_err *e)
{
	struct engine *en = calloc(1, sizeof *en);
	int rc;

	if (!en)
		return rs_oom(e, 0, "the engine");
	en->opt = *opt;
	en->opt.job = en->job;
	snprintf(en->job, sizeof en->job, "%s", opt->job);
	en->armed_ms = UINT64_MAX;
	en->nonfinite = (struct rs_log_limit){.event = "nonfinite", .per_s = ENGINE_NONFINITE_LINES};
	pthread_mutex_init(&en->loop_lock, NULL);
	pthread_mutex_init(&en->lock, NULL);
	rc = rs_loop_init(&en->loop, RS_LOOP_DESCRIPTORS, e);
	if (rc)
		goto free_engine;
	rc = wakeups_init(&en->wakeups, &en->loop, e);
	if (rc)
		goto close_loop;
	wakeup_init(&en->wake, &en->wakeups, engine_on_wake);
	uv_timer_init(&en->loop, &en->timer);
	en->timer.data = en;
	rc = engine_poll_init(&en->poll, uv_backend_fd(&en->loop), e);
	if (!rc)
		rc = engine_init_exchange(en, e);
	/* gRPC has threads of its own; OpenSSL keeps an error queue for each thread,
	 * which belongs to the program */
	en->callers_may_run = opt->callers_run && !opt->cfg->job.grpc && !en->tls.ctx;
	if (!rc)
		rc = engine_start_thread(en, e);
	if (rc) {
		engine_release(en);
		return rc;
	}
	*ret = en;
	return RS_OK;

close_loop:
	uv_loop_close(&en->loop);
free_engine:
	pthread_mutex_destroy(&en->lock);
	pthread_mutex_destroy(&en->loop_lock);
	free(en);
	return e->code;
}

int engine_submit(struct engine *en, struct exchange_op *op, struct rs_err *e)
{
	bool own = en->opt.single_worker || operation_is_small(&op->of);
	int rc = exchange_check(en->opt.cfg->sharding.chunk_bytes, &op->of, e);

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
	if (!rc && !(own && engine_run_on_caller(en))) /* op may be freed by now */
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

void engine_reconfigure(struct engine *en, const struct exchange_place *to)
{
	pthread_mutex_lock(&en->lock);
	en->place = *to;
	en->moves = true;
	en->aborted = false; /* what it would end ends anyway */
	pthread_mutex_unlock(&en->lock);
	wakeup_send(&en->wake);
}

void engine_stats(struct engine *en, reduction_stats *ret)
{
	ret->tx_bytes = atomic_load_explicit(&en->tx_bytes, memory_order_relaxed);
	ret->rx_bytes = atomic_load_explicit(&en->rx_bytes, memory_order_relaxed);
	ret->ops_done = exchange_ops_done(en->x);
}

bool engine_can_shard(struct engine *en)
{
	return exchange_can_shard(en->x);
}

void engine_ask_report(struct engine *en, struct exchange_report *to, void (*done)(void *user), void *user)
{
	pthread_mutex_lock(&en->lock);
	en->ask = (struct engine_ask){.to = to, .done = done, .user = user};
	pthread_mutex_unlock(&en->lock);
	wakeup_send(&en->wake);
}

bool engine_answers(struct engine *en)
{
	bool answered = !atomic_exchange(&en->asked, true);

	wakeup_send(&en->wake);
	return answered;
}

void engine_stop(struct engine *en)
{
	pthread_mutex_lock(&en->lock);
	en->stop = true;
	pthread_mutex_unlock(&en->lock);
	wakeup_send(&en->wake);
	pthread_join(en->thread, NULL);
}

void engine_free(struct engine *en)
{
	engine_release(en);
}
