/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a daemon: a drain, what causes it, and what the service manager hears of
 * it. */
#include "common/host/host_state.h"
#include "common/utf8.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
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

void host_wake(void *host)
{
	uv_async_send(&((struct host *)host)->wake);
}

/* Returns whether the file of this program is gone, as after an upgrade. */
static bool host_is_replaced(void)
{
	static const char gone[] = " (deleted)";
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe);

	return n > (ssize_t)sizeof gone && memcmp(exe + n - (sizeof gone - 1), gone, sizeof gone - 1) == 0;
}

void host_notify(struct host *h)
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
		rs_notify_status(h->opt.notify, "serving %s%s", counts,
				 host_is_replaced() ? "; restart needed: there is a new version" : "");
		return;
	}
	rs_notify_stopping(h->opt.notify, left_ms);
	rs_notify_status(h->opt.notify, "draining: %s, at most %u s more", counts, (left_ms + 999) / 1000);
}

void host_notice_tick(struct host *h)
{
	struct host_notice notice;

	if (!h->draining && host_notice_read(h, &notice))
		host_drain(h, "notice", notice.because, notice.left_ms);
}

void host_tell_drain(struct host *h)
{
	if (!h->draining || h->told)
		return;
	h->told = true;
	h->opt.daemon->drain(h->opt.ctx, h->deadline_ms);
	if (h->opt.daemon->tick)
		h->opt.daemon->tick(h->opt.ctx);
}

void host_ready(struct host *h)
{
	host_notify(h);
	if (rs_notify_on(h->opt.notify))
		rs_notify_ready(h->opt.notify);
	/* before the loop accepts anything */
	host_notice_tick(h);
	host_tell_drain(h);
}

/* Remembers why the daemon drains, for its status: the first reason. */
static void host_remember_cause(struct host *h, const char *by, const char *because)
{
	if (!h->because[0])
		snprintf(h->because, sizeof h->because, "%s", because && because[0] ? because : by);
	rs_utf8_clean(h->because);
}

void host_drain(struct host *h, const char *by, const char *because, uint32_t timeout_ms)
{
	struct host_load load = h->opt.daemon->load(h->opt.ctx);
	struct host_notice notice;

	/* a signal that the machine's end has caused says nothing itself */
	if (!h->draining && !because && host_notice_read(h, &notice)) {
		because = notice.because;
		timeout_ms = timeout_ms ? timeout_ms : notice.left_ms;
	}
	host_remember_cause(h, by, because);
	if (!h->draining || timeout_ms) {
		h->drain_limit_ms = timeout_ms ? timeout_ms : h->drain_ms;
		h->deadline_ms = uv_now(h->opt.loop) + h->drain_limit_ms;
		h->told = false;
	}
	h->draining = true;
	host_notify(h);
	rs_log(h->opt.log, RS_LOG_INFO, "draining", rs_kv_s("by", by), rs_kv_u("jobs", load.jobs),
	       rs_kv_u("ranks", load.ranks), rs_kv_u("left_ms", host_drain_left_ms(h)), rs_kv_s("because", h->because));
	if (h->control)
		service_draining(control_uv_service(h->control));
	host_wake(h);
}

void host_on_drain(void *host, uint32_t timeout_ms, const char *because, struct service_drained *ret)
{
	struct host *h = host;

	ret->already = h->draining;
	host_drain(h, "control-service", because, timeout_ms);
	ret->jobs = h->opt.daemon->load(h->opt.ctx).jobs;
	ret->left_ms = host_drain_left_ms(h);
}
