/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/host_state.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int64_t host_unix_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

uint32_t host_drain_left_ms(const struct host *h)
{
	uint64_t now = uv_now(h->opt.loop);

	return h->draining && h->deadline_ms > now ? (uint32_t)(h->deadline_ms - now) : 0;
}

const char *host_grpc_name(const struct host *h)
{
	return h->grpc_name;
}

const char *host_http_name(const struct host *h)
{
	return h->http ? http_port_name(h->http) : "";
}

/* Tells the service manager what the daemon does. */
static void host_notify(struct host *h)
{
	const struct host_daemon *d = h->opt.daemon;
	uint32_t left_ms = host_drain_left_ms(h);
	struct host_load load;
	char counts[80];

	if (!rs_notify_on(h->opt.notify))
		return;
	load = d->load(h->opt.ctx);
	snprintf(counts, sizeof counts, "%u job%s, %u %s%s", load.jobs, load.jobs == 1 ? "" : "s", load.ranks, d->rank,
		 load.ranks == 1 ? "" : "s");
	if (!h->draining) {
		rs_notify_status(h->opt.notify, "serving %s", counts);
		return;
	}
	rs_notify_stopping(h->opt.notify, left_ms);
	rs_notify_status(h->opt.notify, "draining: %s, at most %u s more", counts, (left_ms + 999) / 1000);
}

void host_ready(struct host *h)
{
	host_notify(h);
	if (rs_notify_on(h->opt.notify))
		rs_notify_ready(h->opt.notify);
}

static void host_on_tick(uv_timer_t *timer)
{
	struct host *h = timer->data;
	uint64_t now = uv_now(h->opt.loop);

	host_ports_tick(h);
	host_notify(h);
	if (rs_notify_due(h->opt.notify, now) && h->opt.daemon->turned(h->opt.ctx))
		rs_notify_alive(h->opt.notify, now);
	if (h->opt.daemon->tick)
		h->opt.daemon->tick(h->opt.ctx); /* may close the host */
}

void host_wake(void *host)
{
	uv_async_send(&((struct host *)host)->wake);
}

static void host_on_wake(uv_async_t *wake)
{
	struct host *h = wake->data;

	host_events_take(h);
	host_answers_take(h);
	if (!h->draining || h->told)
		return;
	h->told = true;
	h->opt.daemon->drain(h->opt.ctx, h->deadline_ms);
	if (h->opt.daemon->tick)
		h->opt.daemon->tick(h->opt.ctx);
}

void host_drain(struct host *h, const char *by, uint32_t timeout_ms)
{
	struct host_load load = h->opt.daemon->load(h->opt.ctx);

	if (!h->draining || timeout_ms) {
		h->drain_limit_ms = timeout_ms ? timeout_ms : h->drain_ms;
		h->deadline_ms = uv_now(h->opt.loop) + h->drain_limit_ms;
		h->told = false;
	}
	h->draining = true;
	host_notify(h);
	rs_log(h->opt.log, RS_LOG_INFO, "draining", rs_kv_s("by", by), rs_kv_u("jobs", load.jobs),
	       rs_kv_u("ranks", load.ranks), rs_kv_u("left_ms", host_drain_left_ms(h)));
	if (h->control)
		service_draining(control_uv_service(h->control));
	host_wake(h);
}

void host_on_drain(void *host, uint32_t timeout_ms, struct service_drained *ret)
{
	struct host *h = host;

	ret->already = h->draining;
	host_drain(h, "control-service", timeout_ms);
	ret->jobs = h->opt.daemon->load(h->opt.ctx).jobs;
	ret->left_ms = host_drain_left_ms(h);
}

static void host_on_signal(uv_signal_t *signal, int number)
{
	struct host *h = signal->data;
	char result[SERVICE_RESULT];
	struct rs_err e;

	if (number == SIGHUP) {
		host_reload(h, result, &e);
		return;
	}
	if (h->signalled)
		_exit(1);
	h->signalled = true;
	host_drain(h, number == SIGTERM ? "SIGTERM" : "SIGINT", 0);
}

void host_init(struct host *h, const struct host_options *opt)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

	*h = (struct host){.opt = *opt, .as_read = *opt->as_read, .drain_ms = opt->cfg->timeouts.drain_ms};
	h->as_read.reducers = NULL;
	h->as_read.sharding.owner = NULL;
	h->thread = pthread_self();
	h->started_ms = uv_now(opt->loop);
	h->lines_end = &h->lines;
	pthread_mutex_init(&h->lock, NULL);
	uv_async_init(opt->loop, &h->wake, host_on_wake);
	uv_timer_init(opt->loop, &h->tick);
	h->wake.data = h->tick.data = h;
	host_answers_init(h);
	uv_timer_start(&h->tick, host_on_tick, RS_NOTIFY_TICK_MS, RS_NOTIFY_TICK_MS);
	for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		uv_signal_init(opt->loop, &h->signals[i]);
		h->signals[i].data = h;
		uv_signal_start(&h->signals[i], host_on_signal, numbers[i]);
	}
}

void host_close(struct host *h)
{
	host_events_stop(h);
	if (h->control)
		control_uv_close(h->control);
	host_answers_close(h);
	for (unsigned i = 0; i < sizeof h->signals / sizeof h->signals[0]; i++)
		uv_close((uv_handle_t *)&h->signals[i], NULL);
	uv_close((uv_handle_t *)&h->tick, NULL);
	uv_close((uv_handle_t *)&h->wake, NULL);
}

void host_free(struct host *h)
{
	host_answers_free(h);
	host_events_free(h);
	control_uv_free(h->control);
	unauth_free(h->unauth);
	free(h->events);
	pthread_mutex_destroy(&h->lock);
}
