/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses and traces, one of each at a time for all calls.
 *
 * The happy path of a status: the service requests it -> the daemon makes it and asks its
 * threads -> their answers are counted -> after the last one the daemon completes it. A
 * trace: the daemon gives its threads traces -> each records and ends when it has
 * everything -> the last end completes the answer. Failure modes: operations that do not
 * come: the time limit ends all traces. The client goes: the same. */
#include "common/host/host_state.h"
#include "common/host/service/history.h"
#include "common/version.h"

enum { TRACE_AGAIN_MS = 1000 }; /* when traces are told again to end */

void host_answered(void *host)
{
	struct host *h = host;

	atomic_fetch_add(&h->answered, 1);
	host_wake(h);
}

static void host_on_collect(void *ctx)
{
	struct host *h = ctx;

	h->requested = true;
	h->due = 0;
	h->status = h->opt.daemon->collect(h->opt.ctx, &h->due);
	host_wake(h); /* it may be complete already, but the service must not get it here */
}

static void host_event_counts(const struct host *h, struct status_reply *to)
{
	const struct events *all = h->events;
	unsigned n = all ? all->counts_n : 0;

	to->m.n_events = n;
	to->m.events = status_reply_messages(to, &reduction__v1__event_count__descriptor, n);
	for (unsigned i = 0; to->m.events && i < n; i++) {
		to->m.events[i]->event = status_reply_text(to, all->counts[i].name);
		to->m.events[i]->count = all->counts[i].n;
	}
}

void host_status(const struct host *h, struct status_reply *to)
{
	to->m.software = (char *)"reduction " RS_VERSION;
	to->m.grpc_address = status_reply_text(to, h->grpc_name);
	to->m.http_address = status_reply_text(to, h->http ? http_port_name(h->http) : "");
	to->m.unix_ms = host_unix_ms();
	to->m.up_ms = uv_now(h->opt.loop) - h->started_ms;
	to->m.started_unix_ms = h->started_unix_ms;
	host_process(to);
	host_network(to, h->renewal.cfg.plan.bandwidth);
	to->m.drain_left_ms = host_drain_left_ms(h);
	to->m.drain_because = status_reply_text(to, h->because);
	to->m.certificate_unix_s = h->renewal.validity.expires_s;
	to->m.certificate_renew_unix_s = h->renewal.validity.renew_s;
	host_event_counts(h, to);
}

static void host_take_status(struct host *h)
{
	struct status_reply *reply = NULL;

	h->due -= atomic_exchange(&h->answered, 0);
	if (!h->requested || h->due)
		return;
	h->requested = false;
	if (h->status)
		reply = h->opt.daemon->complete(h->opt.ctx, h->status);
	service_status(control_uv_service(h->control), reply);
	h->opt.daemon->status_free(h->status);
	h->status = NULL;
}

static void host_on_trace_end(void *ctx)
{
	struct host *h = ctx;

	h->opt.daemon->trace_end(h->opt.ctx);
}

static void host_on_trace_limit(uv_timer_t *timer)
{
	host_on_trace_end(timer->data);
}

static int host_on_trace(void *ctx, const struct trace_request *r, struct rs_err *e)
{
	struct host *h = ctx;
	int rc = h->opt.daemon->trace(h->opt.ctx, r, &h->traces, e);

	if (rc)
		return rc;
	h->tracing = true;
	uv_timer_start(&h->trace_limit, host_on_trace_limit, r->limit_ms, TRACE_AGAIN_MS);
	host_wake(h); /* there may be no trace at all */
	return RS_OK;
}

/* Passes the traces on if all have ended. Ends the others early if they cannot add
 * anything: an operation was missed, or the end of all operations is known. */
static void host_take_traces(struct host *h)
{
	bool all = true, missed = false;
	uint32_t done = 0, jobs = 1;
	struct trace *first = h->traces;

	if (!h->tracing)
		return;
	for (const struct trace *t = first; t; t = t->next) {
		if (!atomic_load(&t->ended)) {
			all = false;
			continue;
		}
		missed |= t->missed;
		done |= t->done;
		jobs = t->ranges_n;
	}
	if (!all) {
		if (!h->opt.daemon->worker && (missed || done == (1u << jobs) - 1))
			host_on_trace_end(h);
		return;
	}
	for (struct trace *t = h->opt.daemon->worker ? NULL : first; t; t = t->next)
		t->done = done; /* that of a job is true for all of its lanes */
	h->tracing = false;
	h->traces = NULL;
	uv_timer_stop(&h->trace_limit);
	service_traced(control_uv_service(h->control), first);
}

static uint64_t host_on_clock_us(void *ctx)
{
	(void)ctx;
	return uv_hrtime() / 1000;
}

void host_answers_tick(struct host *h)
{
	uint64_t now = uv_now(h->opt.loop);

	if (!h->control || now - h->sampled_ms < HISTORY_MS)
		return;
	h->sampled_ms = now;
	service_sample(control_uv_service(h->control));
}

void host_answers_options(struct host *h, struct service_options *so)
{
	so->collect = host_on_collect;
	so->trace = host_on_trace;
	so->trace_end = host_on_trace_end;
	so->clock_us = host_on_clock_us;
	so->worker = h->opt.daemon->worker;
}

void host_answers_init(struct host *h)
{
	uv_timer_init(h->opt.loop, &h->trace_limit);
	h->trace_limit.data = h;
}

void host_answers_take(struct host *h)
{
	if (!h->control)
		return;
	host_take_status(h);
	host_take_traces(h);
}

void host_answers_close(struct host *h)
{
	uv_close((uv_handle_t *)&h->trace_limit, NULL);
}

void host_answers_free(struct host *h)
{
	h->opt.daemon->status_free(h->status);
	trace_free(h->traces);
}
