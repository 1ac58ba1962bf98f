/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's loop. The happy path: the socket opens -> clients connect and leave ->
 * agentd_drain or agentd_stop: no new clients; jobs may finish until the deadline, then
 * they are aborted -> all engines are freed -> everything closes.
 */
#include "agent/node/core/check.h"
#include "agent/node/daemon/agentd.h"
#include "common/assert.h"
#include "common/descriptors.h"
#include "common/loop_uv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* While stopping: closes everything when all jobs have ended. Tasks of the pool that end
 * now find no client. */
static void loop_check_stopped(struct agentd *a)
{
	if (!a->stopping || a->closed || !local_hub_drained(a->hub))
		return;
	a->closed = true;
	agentd_close_all(a);
	rs_pool_stop(&a->pool);
	if (a->hooks)
		a->hooks->close(a);
	uv_close((uv_handle_t *)&a->timer, NULL);
	uv_close((uv_handle_t *)&a->wake, NULL);
	uv_close((uv_handle_t *)&a->check, NULL);
	uv_close((uv_handle_t *)&a->idle, NULL);
}

static void loop_stop_listening(struct agentd *a)
{
	if (!a->listening)
		return;
	a->listening = false;
	uv_close((uv_handle_t *)&a->listener, NULL);
	agentd_socket_close(&a->socket);
}

void agentd_drain(struct agentd *a, uint64_t deadline_ms)
{
	a->stopping = true;
	loop_stop_listening(a);
	local_hub_drain(a->hub, uv_now(&a->loop), deadline_ms);
	agentd_arm(a);
	loop_check_stopped(a);
}

static void loop_process(struct agentd *a)
{
	/* before an event makes the first local rank READY: a process that it forks later
	 * would keep the name, which the job may need again */
	if (!a->hooks && local_hub_gathered(a->hub))
		loop_stop_listening(a);
	agentd_take_events(a);
	if (atomic_load(&a->stop_requested) && !a->stopping)
		agentd_drain(a, uv_now(&a->loop) + a->drain_ms);
	agentd_close_scheduled(a);
	agentd_arm(a);
	loop_check_stopped(a);
}

static void loop_on_wake(uv_async_t *w)
{
	struct agentd *a = w->data;

	if (!a->closed)
		rs_pool_finish(&a->pool);
	loop_process(a);
}

/* On a thread of the pool. */
static void loop_on_task_ended(void *ctx)
{
	uv_async_send(&((struct agentd *)ctx)->wake);
}

/* Called once in each iteration of the loop: busy-polls, and decides whether the loop may
 * sleep. */
static void loop_on_check(uv_check_t *check)
{
	struct agentd *a = check->data;

	if (a->cfg->paranoid)
		rs_assert_sound(__FILE__, __LINE__, local_hub_check(a->hub));
	if (!a->activity && !a->spin.awake)
		return;
	if (agentd_engines_busy_poll(a)) {
		a->activity = true;
		loop_process(a); /* may start operations, small and large */
	}
	if (a->closed || (!a->activity && !a->spin.awake))
		return;
	if (!rs_spin_stay_awake(&a->spin, a->activity, uv_hrtime()))
		agentd_keep_awake(a, false);
	a->activity = false;
}

static void loop_on_listener(uv_poll_t *p, int status, int events)
{
	(void)status;
	(void)events;
	agentd_accept(p->data);
}

void agentd_stop(struct agentd *a, uint32_t drain_ms)
{
	a->drain_ms = drain_ms;
	atomic_store(&a->stop_requested, true);
	uv_async_send(&a->wake);
}

static int loop_open_hub(struct agentd *a, struct rs_err *e)
{
	static const struct local_ports ports = {.send = agentd_send,
						 .drop = agentd_drop,
						 .runs = agentd_runs,
						 .shm_make = agentd_shm_make,
						 .shm_free = agentd_shm_free,
						 .stage_new = agentd_stage_new,
						 .stage_free = agentd_stage_free,
						 .engine_start = agentd_engine_start,
						 .engine_submit = agentd_engine_submit,
						 .engine_poke = agentd_engine_poke,
						 .engine_abort = agentd_engine_abort,
						 .engine_can_shard = agentd_engine_can_shard,
						 .engine_stats = agentd_engine_stats,
						 .engine_free = agentd_engine_free,
						 .post = agentd_post};
	struct local_hub_options opt = {.cfg = a->cfg, .log = a->log, .ports = &ports, .ctx = a, .host = a->host};
	int rc = rs_kernels_select(a->cfg->agent.cpu, &opt.kernels, e);

	if (rc)
		return rs_wrap(e, "agent.cpu");
	rs_log(a->log, RS_LOG_DEBUG, "kernels", rs_kv_s("cpu", opt.kernels->name));
	return local_hub_new(&a->hub, &opt, e);
}

static int loop_open(struct agentd *a, struct rs_err *e)
{
	int rc = rs_loop_init(&a->loop, RS_DAEMON_DESCRIPTORS, e);

	if (rc)
		return rc;
	uv_async_init(&a->loop, &a->wake, loop_on_wake);
	a->wake.data = a;
	rc = rs_pool_start(&a->pool, loop_on_task_ended, a, e);
	if (rc)
		goto close_loop;
	rc = rs_poll_init(&a->loop, &a->listener, a->socket.fd, e);
	if (rc)
		goto stop_pool;
	uv_timer_init(&a->loop, &a->timer);
	uv_check_init(&a->loop, &a->check);
	uv_idle_init(&a->loop, &a->idle);
	a->timer.data = a->listener.data = a->check.data = a;
	a->listening = true;
	uv_poll_start(&a->listener, UV_READABLE, loop_on_listener);
	uv_check_start(&a->check, loop_on_check);
	return RS_OK;

stop_pool:
	rs_pool_stop(&a->pool);
close_loop:
	uv_close((uv_handle_t *)&a->wake, NULL);
	uv_run(&a->loop, UV_RUN_DEFAULT);
	uv_loop_close(&a->loop);
	return rc;
}

int agentd_open(struct agentd *a, const struct rs_config *cfg, const char *socket, struct rs_log *log, struct rs_err *e)
{
	int rc;

	*a = (struct agentd){.cfg = cfg, .ops = cfg->job.max_ops, .log = log};
	a->socket.fd = a->socket.lock_fd = -1;
	pthread_mutex_init(&a->lock, NULL);
	a->events_end = &a->events;
	a->refused = (struct rs_log_limit){.event = "client-refused", .per_s = 5};
	if (gethostname(a->host, sizeof a->host))
		snprintf(a->host, sizeof a->host, "localhost");
	a->host[sizeof a->host - 1] = 0;
	rc = loop_open_hub(a, e);
	if (rc)
		goto destroy_lock;
	a->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rc = agentd_socket_open(&a->socket, socket, e);
	if (!rc)
		rc = loop_open(a, e);
	if (!rc)
		return RS_OK;
	agentd_socket_close(&a->socket);
	close(a->spare_fd);
	local_hub_free(a->hub);
destroy_lock:
	pthread_mutex_destroy(&a->lock);
	return rc;
}

void agentd_serve(struct agentd *a)
{
	int rc;

	a->thread = pthread_self();
	rs_log(a->log, RS_LOG_INFO, "listening", rs_kv_s("socket", a->socket.path));
	uv_run(&a->loop, UV_RUN_DEFAULT);
	rc = uv_loop_close(&a->loop);
	rs_assert(rc == 0);
	rs_log(a->log, RS_LOG_INFO, "stopped", rs_kv_s("socket", a->socket.path));
	agentd_socket_close(&a->socket);
	close(a->spare_fd);
	local_hub_free(a->hub);
	a->hub = NULL;
	if (a->hooks)
		a->hooks->free(a);
	agentd_free_configs(a);
	pthread_mutex_destroy(&a->lock);
}
