/* SPDX-License-Identifier: Apache-2.0 */
/* The hub: messages of clients, timeouts, and its end. */
#include "agent/node/core/buffer.h"
#include "agent/node/core/job.h"
#include "agent/node/core/progress.h"
#include "agent/node/core/submit.h"
#include "agent/node/core/text.h"
#include "common/assert.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	LINES_PER_S = 5,      /* log lines for each event that a client can cause */
	JOB_LINES_PER_S = 50, /* log lines for jobs; many of them may be normal */
};

int local_hub_new(struct local_hub **ret, const struct local_hub_options *opt, struct rs_err *e)
{
	struct local_hub *h = calloc(1, sizeof *h);

	if (!h)
		return rs_oom(e, 0, "the agent");
	h->cfg = opt->cfg;
	h->kernels = opt->kernels;
	h->log = opt->log;
	h->ports = *opt->ports;
	h->ctx = opt->ctx;
	h->ops = opt->cfg->job.max_ops;
	h->unjoined_end = &h->unjoined;
	h->limits[LOCAL_LIMITED_REFUSED] = (struct rs_log_limit){.event = "client-refused", .per_s = LINES_PER_S};
	h->limits[LOCAL_LIMITED_DROPPED] = (struct rs_log_limit){.event = "client-dropped", .per_s = LINES_PER_S};
	h->limits[LOCAL_LIMITED_JOBS] = (struct rs_log_limit){.event = "job", .per_s = JOB_LINES_PER_S};
	snprintf(h->host, sizeof h->host, "%s", opt->host);
	*ret = h;
	return RS_OK;
}

void local_hub_set_config(struct local_hub *h, const struct rs_config *cfg)
{
	h->cfg = cfg;
}

bool local_hub_uses_config(const struct local_hub *h, const struct rs_config *cfg)
{
	for (const struct local_job *j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link))
		if (j->cfg == cfg)
			return true;
	return h->cfg == cfg;
}

void local_hub_free(struct local_hub *h)
{
	if (!h)
		return;
	rs_assert(!h->clients && !h->unjoined && LIST_EMPTY(&h->jobs) && h->shm_used == 0);
	free(h);
}

int local_client_new(struct local_client **ret, struct local_hub *h, uint32_t pid, void *user, uint64_t now_ms,
		     struct rs_err *e)
{
	struct local_client *c;

	if (h->draining)
		return rs_fail(e, RS_EREFUSED, "the agent on %s is stopping", h->host);
	h->now_ms = now_ms;
	if (h->clients_n >= LOCAL_CLIENTS_MAX &&
	    !local_hub_make_room(h, "the agent serves its maximum number of clients"))
		return rs_fail(e, RS_EREFUSED, "the agent on %s already has %u clients, the limit", h->host,
			       h->clients_n);
	c = calloc(1, sizeof *c);
	if (!c)
		return rs_oom(e, 0, "a client in the agent on %s", h->host);
	c->hub = h;
	c->user = user;
	c->pid = pid;
	c->deadline_ms = now_ms + h->cfg->timeouts.handshake_ms;
	c->at = h->unjoined_end;
	*c->at = c;
	h->unjoined_end = &c->next;
	h->clients_n++;
	*ret = c;
	return RS_OK;
}

/* Dismisses a client: tells it why, ends its job, closes. */
static void local_client_dismiss(struct local_client *c, const struct rs_err *why, bool retry)
{
	enum local_type type = LOCAL_REFUSED;
	struct local_hub *h = c->hub;
	struct rs_err how, broke;

	if (local_may_log(h, LOCAL_LIMITED_DROPPED))
		rs_log(h->log, RS_LOG_WARN, "client-dropped", rs_kv_u("pid", c->pid), rs_kv_s("reason", why->msg));
	rs_fail(&how, why->code, "the agent on %s dropped this process: %s", h->host, why->msg);
	if (c->state == CLIENT_JOINED) {
		type = LOCAL_ABORT;
		rs_fail(&broke, why->code, "broke the local protocol: %s", why->msg);
		local_job_lost(c, broke.msg);
	}
	local_client_leave(c, type, &how, retry);
}

bool local_hub_make_room(struct local_hub *h, const char *why)
{
	struct rs_err e;

	if (!h->unjoined)
		return false;
	rs_fail(&e, RS_EREFUSED, "it has not sent HELLO and %s: a newer connection takes its place", why);
	local_client_dismiss(h->unjoined, &e, true);
	return true;
}

void *local_client_user(const struct local_client *c)
{
	return c->user;
}

static void local_client_violation(struct local_client *c, const struct rs_err *why)
{
	local_client_dismiss(c, why, false);
}

static void local_client_send_counters(struct local_client *c)
{
	struct local_hub *h = c->hub;
	union local_message m;

	local_init(&m, LOCAL_COUNTERS);
	if (c->job->engine && !c->job->freeing)
		h->ports.engine_stats(h->ctx, c->job->engine, &m.counters.tx_bytes, &m.counters.rx_bytes);
	h->ports.send(h->ctx, c, &m, -1);
}

static int local_client_on_message(struct local_client *c, union local_message *m, uint64_t now_ms, struct rs_err *e)
{
	if (c->state == CLIENT_NEW && m->head.type != LOCAL_HELLO)
		return rs_fail(e, RS_EPROTO, "%s before HELLO", local_type_name(m->head.type));
	switch (m->head.type) {
	case LOCAL_HELLO:
		if (c->state != CLIENT_NEW)
			return rs_fail(e, RS_EPROTO, "a second HELLO");
		if (c->pid)
			m->hello.pid = c->pid;
		local_job_hello(c, &m->hello, now_ms);
		return RS_OK;
	case LOCAL_ALLOC:
		if (c->allocating)
			return rs_fail(e, RS_EPROTO, "ALLOC before the last one was answered");
		local_buffer_alloc(c, m->alloc.bytes);
		return RS_OK;
	case LOCAL_FREE:
		return local_buffer_drop(c, m->free.buffer, e);
	case LOCAL_SUBMIT:
		return local_job_submit(c, &m->submit, e);
	case LOCAL_FILLED:
		return local_job_filled(c, &m->filled, e);
	case LOCAL_STATS:
		local_client_send_counters(c);
		return RS_OK;
	case LOCAL_PONG: /* its arrival is all that it says */
		return RS_OK;
	case LOCAL_ABORT:
		local_job_abort(c, m->failure.message);
		break;
	default: /* GOODBYE: local_check passes no other type */
		local_job_goodbye(c);
		break;
	}

	local_client_leave(c, LOCAL_ABORT, NULL, false);
	return RS_OK;
}

void local_client_message(struct local_client *c, union local_message *m, size_t n, uint64_t now_ms)
{
	struct rs_err e;

	if (c->state == CLIENT_LEAVING)
		return;
	c->hub->now_ms = now_ms;
	c->unanswered = 0;
	if (local_check(m, n, true, &e) || local_client_on_message(c, m, now_ms, &e))
		local_client_violation(c, &e);
}

bool local_client_ended(struct local_client *c, const char *how, bool exited)
{
	if (c->state == CLIENT_JOINED && exited)
		return true;
	if (c->state == CLIENT_JOINED) {
		local_job_lost(c, how);
		local_client_set_state(c, CLIENT_LEAVING);
	}
	return !c->awaits;
}

void local_client_lost(struct local_client *c, const char *how)
{
	struct local_hub *h = c->hub;

	if (c->state == CLIENT_JOINED)
		local_job_lost(c, how);
	local_buffers_orphan(c);
	local_client_unlink(c);
	h->clients_n--;
	free(c);
}

/* Not all local ranks have joined in time: ends the job and names those that are
 * missing. */
static void local_hub_gathering_late(struct local_job *j)
{
	char missing[256];
	unsigned n = local_job_missing(j, missing);
	struct rs_err e;

	rs_fail(&e, RS_ETIMEOUT,
		"%u of %u local ranks of job %s did not connect to the agent on %s in time: local rank%s %s", n,
		j->members_n, j->name, j->hub->host, n == 1 ? "" : "s", missing);
	local_job_fail(j, &e);
}

/* Says for which local ranks a job waits: after 3 s, 6 s, 12 s, ..., then every
 * minute. */
static void local_hub_report_waiting(struct local_job *j, uint64_t now_ms)
{
	uint64_t waited_ms = now_ms - j->opened_ms;
	char text[LOCAL_WAITING_TEXT];

	j->report_ms = now_ms + (waited_ms < EXCHANGE_REPORT_MS ? waited_ms : EXCHANGE_REPORT_MS);
	if (!local_may_log(j->hub, LOCAL_LIMITED_JOBS))
		return;
	local_job_waiting_text(j, now_ms, text, sizeof text);
	rs_log(j->hub->log, RS_LOG_WARN, "waiting", rs_kv_s("job", j->name), rs_kv_s("reason", text));
}

static void local_hub_stop_job(struct local_job *j)
{
	struct rs_err e;

	rs_fail(&e, RS_ECLOSED, "the agent on %s was stopped", j->hub->host);
	local_job_fail(j, &e);
}

static uint64_t local_client_silent_ms(const struct local_client *c)
{
	return (uint64_t)c->unanswered * c->ping_interval_ms;
}

/* Returns whether a process whose library does not answer is only late: it exists, so it
 * is stopped or gets no processor. Logged once. */
static bool local_client_is_stopped(struct local_client *c)
{
	struct local_hub *h = c->hub;

	if (local_client_silent_ms(c) >= h->cfg->timeouts.stopped_ms || !h->ports.runs(h->ctx, c))
		return false;
	if (c->unanswered == LOCAL_PINGS_PER_DETECT)
		rs_log(
		    h->log, RS_LOG_WARN, "client-stopped", rs_kv_u("pid", c->pid), rs_kv_s("job", c->job->name),
		    rs_kv_u("local_rank", c->local_rank), rs_kv_u("silent_ms", local_client_silent_ms(c)),
		    rs_kv_s("reason", "its process exists, but does not answer: it is stopped or gets no processor"));
	return true;
}

/* Not even the library's own thread answers. */
static void local_client_silent(struct local_client *c)
{
	struct local_hub *h = c->hub;
	struct rs_err e;
	char how[80];

	snprintf(how, sizeof how, "was lost: nothing was heard from it for %.1f s",
		 (double)local_client_silent_ms(c) / 1000);
	rs_fail(&e, RS_EPEER, "the agent on %s dropped this process, which %s", h->host, how);
	rs_log(h->log, RS_LOG_WARN, "client-silent", rs_kv_u("pid", c->pid), rs_kv_s("job", c->job->name));
	local_job_lost(c, how);
	local_client_leave(c, LOCAL_ABORT, &e, false); /* read if the process ever continues */
}

/* Sends the next PING, or finds the client silent. Counts PINGs and not time, so that an
 * agent that was stopped itself does not blame others. */
static void local_client_ping(struct local_client *c, uint64_t now_ms)
{
	union local_message m;

	if (c->job->state == JOB_FAILED) { /* it has got ABORT and does not read any more */
		c->next_ping_ms = UINT64_MAX;
		return;
	}
	if (c->unanswered >= LOCAL_PINGS_PER_DETECT && !local_client_is_stopped(c)) {
		local_client_silent(c);
		return;
	}
	c->next_ping_ms = now_ms + c->ping_interval_ms;
	if (c->unanswered++ >= LOCAL_PINGS_PER_DETECT)
		return; /* it answers those that wait in its socket when it continues */
	local_init(&m, LOCAL_PING);
	c->hub->ports.send(c->hub->ctx, c, &m, -1);
}

void local_hub_tick(struct local_hub *h, uint64_t now_ms)
{
	struct rs_err e;

	h->now_ms = now_ms;
	for (struct local_client *c = h->clients; c; c = c->next)
		if (c->state == CLIENT_JOINED && c->next_ping_ms <= now_ms)
			local_client_ping(c, now_ms);
	while (h->unjoined && h->unjoined->deadline_ms <= now_ms) {
		rs_fail(&e, RS_ETIMEOUT, "no HELLO within %u ms", h->cfg->timeouts.handshake_ms);
		local_client_violation(h->unjoined, &e);
	}
	for (struct local_job *j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link)) {
		if (j->state == JOB_GATHERING && j->deadline_ms <= now_ms)
			local_hub_gathering_late(j);
		else if (j->state == JOB_GATHERING && j->report_ms <= now_ms)
			local_hub_report_waiting(j, now_ms);
		if (local_job_op_deadline(j) <= now_ms)
			local_job_op_late(j);
	}
	if (h->draining && h->drain_ms <= now_ms)
		for (struct local_job *j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link))
			local_hub_stop_job(j);
	for (unsigned i = 0; i < LOCAL_LIMITED_NR; i++)
		rs_log_limit_report(&h->limits[i], h->log, RS_LOG_WARN, now_ms);
}

uint64_t local_hub_next(const struct local_hub *h)
{
	uint64_t next = h->unjoined ? h->unjoined->deadline_ms : UINT64_MAX;

	for (unsigned i = 0; i < LOCAL_LIMITED_NR; i++)
		if (rs_log_limit_next(&h->limits[i]) < next)
			next = rs_log_limit_next(&h->limits[i]);
	for (const struct local_client *c = h->clients; c; c = c->next)
		if (c->state == CLIENT_JOINED && c->next_ping_ms < next)
			next = c->next_ping_ms;
	for (const struct local_job *j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link)) {
		if (j->state == JOB_GATHERING && j->deadline_ms < next)
			next = j->deadline_ms;
		if (j->state == JOB_GATHERING && j->report_ms < next)
			next = j->report_ms;
		if (h->draining && j->state < JOB_ENDING && h->drain_ms < next)
			next = h->drain_ms;
		if (local_job_op_deadline(j) < next)
			next = local_job_op_deadline(j);
	}
	return next;
}

void local_hub_drain(struct local_hub *h, uint64_t now_ms, uint64_t deadline_ms)
{
	h->draining = true;
	h->drain_ms = deadline_ms;
	for (struct local_job *j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link))
		if (j->state < JOB_RUNNING)
			local_hub_stop_job(j);
	local_hub_tick(h, now_ms);
}

bool local_hub_drained(const struct local_hub *h)
{
	for (const struct local_job *j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link))
		if (j->engine || j->state < JOB_ENDING)
			return false;
	return h->draining;
}

bool local_hub_gathered(const struct local_hub *h)
{
	const struct local_job *j = LIST_FIRST(&h->jobs);

	while (j && !j->gathered)
		j = LIST_NEXT(j, link);
	return j != NULL;
}

unsigned local_hub_clients(const struct local_hub *h)
{
	return h->clients_n;
}

unsigned local_hub_jobs(const struct local_hub *h)
{
	return h->jobs_n;
}
