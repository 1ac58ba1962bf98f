/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/host_state.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void host_on_tick(uv_timer_t *timer)
{
	struct host *h = timer->data;
	uint64_t now = uv_now(h->opt.loop);

	host_ports_tick(h);
	host_answers_tick(h);
	host_renewal_tick(h);
	host_notice_tick(h);
	host_notify(h);
	if (rs_notify_due(h->opt.notify, now) && h->opt.daemon->turned(h->opt.ctx))
		rs_notify_alive(h->opt.notify, now);
	if (h->opt.daemon->tick)
		h->opt.daemon->tick(h->opt.ctx); /* may close the host */
}

static void host_on_wake(uv_async_t *wake)
{
	struct host *h = wake->data;

	host_events_take(h);
	host_answers_take(h);
	host_tell_drain(h);
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
	if (number == SIGPWR) { /* SIGTERM usually follows, which must not count as the second signal */
		host_drain(h, "SIGPWR", NULL, 0);
		return;
	}
	if (h->signalled)
		_exit(1);
	h->signalled = true;
	host_drain(h, number == SIGTERM ? "SIGTERM" : "SIGINT", NULL, 0);
}

void host_init(struct host *h, const struct host_options *opt)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGPWR};
	struct rs_stamp stamps[HOST_STAMPS];

	*h = (struct host){.opt = *opt, .as_read = *opt->as_read, .drain_ms = opt->cfg->timeouts.drain_ms};
	h->as_read.reducers = NULL;
	h->as_read.sharding.owner = NULL;
	h->as_read.groups = NULL;
	h->as_read.groups_n = 0;
	h->as_read.relays = NULL;
	h->records.fd = -1;
	h->thread = pthread_self();
	h->started_ms = uv_now(opt->loop);
	h->started_unix_ms = host_unix_ms();
	h->lines_end = &h->lines;
	pthread_mutex_init(&h->lock, NULL);
	uv_async_init(opt->loop, &h->wake, host_on_wake);
	uv_timer_init(opt->loop, &h->tick);
	h->wake.data = h->tick.data = h;
	host_answers_init(h);
	host_stamps(opt->cfg, stamps);
	host_renewal_take(h, opt->cfg, stamps);
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
	for (unsigned i = 0; i < sizeof h->signals / sizeof h->signals[0]; i++) {
		int number = h->signals[i].signum;

		uv_close((uv_handle_t *)&h->signals[i], NULL);
		/* it ends in good order, and one that comes late must not change that;
		 * SIGINT is for people who do not want to wait */
		if (number != SIGINT)
			signal(number, SIG_IGN);
	}
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
	free(h->jobs);
	record_file_close(&h->records);
	pthread_mutex_destroy(&h->lock);
}
