/* SPDX-License-Identifier: Apache-2.0 */
/* The control and health services of the daemon.
 *
 * The happy path of a status: the service requests it -> the hub fills in jobs and local ranks -> each job's engine is
 * asked for its report -> the last answer completes the status. One status is made at a time for all calls. An event is
 * made where a line is logged, on any thread, and goes to the service through a list. Failure modes: no memory for a
 * report: the status lacks the reducers of that job. An engine ends before it has answered: the same. No memory for the
 * status: the calls end with an error. More lines than the list has room for: their events are missing. */
#include "agent/node/core/status_pack.h"
#include "agent/node/daemon/agentd.h"
#include "agent/node/daemon/trace.h"
#include "common/auth.h"
#include "common/host/http/port.h"
#include "common/host/service/control_uv.h"
#include "common/version.h"
#include "config/tls_texts.h"
#include "proto/rpc/unauthenticated.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	CALLS_BESIDE = 64,      /* calls above the service's limits, which are refused with a sentence */
	DENIED_LINES_PER_S = 5, /* in the log */
	LINES_MAX = 256,        /* lines that wait to become events */
};

/* A line that waits to become an event. */
struct line {
	struct line *next;
	struct event event;
};

/* The services and their port. Invariant: with `requested`, `due` of the reports in `collecting` are not filled or not
 * counted yet. */
struct agentd_control {
	const struct rpc_api *rpc;
	struct rpc_server *server;
	struct control_uv *uv;
	struct http_port *http;
	struct unauth *unauth; /* NULL with a UNIX socket, and without a gRPC port */
	uv_timer_t scan;       /* calls unauth_scan; only with `unauth` */
	struct agentd_socket socket;
	char name[RS_ADDRESS_MAX];
	struct events events;
	struct rs_log_limit denied;
	uint64_t started_ms;
	bool requested;                  /* the service waits for a status */
	struct local_status *collecting; /* NULL: no memory */
	unsigned due;
	struct agentd_trace trace;
	uv_async_t wake; /* there are lines or answers, or a status or a trace is complete */

	pthread_mutex_t lock; /* protects the following fields; any thread */
	struct line *lines, **lines_end;
	unsigned lines_n;
	unsigned answered; /* answers that have not been counted yet */
};

static int64_t control_unix_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Receives a line of the agent's log, on any thread. */
static void control_on_line(void *ctx, enum rs_log_level level, const char *event, const struct rs_kv *kv, unsigned n)
{
	struct agentd *a = ctx;
	struct agentd_control *c = a->control;
	struct line *line = level <= RS_LOG_INFO ? malloc(sizeof *line) : NULL;

	if (!line)
		return;
	event_make(&line->event, control_unix_ms(), level, event, kv, n);
	line->next = NULL;
	pthread_mutex_lock(&c->lock);
	if (c->lines_n < LINES_MAX) {
		*c->lines_end = line;
		c->lines_end = &line->next;
		c->lines_n++;
		line = NULL;
	}
	pthread_mutex_unlock(&c->lock);
	free(line);
	uv_async_send(&c->wake);
}

/* Takes the lines, and returns the number of answers that have come. */
static unsigned control_take(struct agentd_control *c, struct line **ret)
{
	unsigned answered;

	pthread_mutex_lock(&c->lock);
	*ret = c->lines;
	c->lines = NULL;
	c->lines_end = &c->lines;
	c->lines_n = 0;
	answered = c->answered;
	c->answered = 0;
	pthread_mutex_unlock(&c->lock);
	return answered;
}

static void control_fill_agent(struct agentd *a, struct local_status_agent *to)
{
	struct agentd_control *c = a->control;
	uint64_t now = uv_now(&a->loop);

	snprintf(to->software, sizeof to->software, "reduction %s", RS_VERSION);
	memcpy(to->host, a->host, sizeof to->host);
	memcpy(to->socket, a->socket.path, sizeof to->socket);
	memcpy(to->grpc, c->name, sizeof to->grpc);
	if (c->http)
		snprintf(to->http, sizeof to->http, "%s", http_port_name(c->http));
	to->pid = (uint32_t)getpid();
	to->unix_ms = control_unix_ms();
	to->up_ms = now - c->started_ms;
	if (a->stopping && a->drain_by_ms > now)
		to->drain_left_ms = (uint32_t)(a->drain_by_ms - now);
}

/* The report of an engine is filled. On any thread. */
static void control_on_answer(void *user)
{
	const struct agentd *a = user;
	struct agentd_control *c = a->control;

	pthread_mutex_lock(&c->lock);
	c->answered++;
	pthread_mutex_unlock(&c->lock);
	uv_async_send(&c->wake);
}

static void control_on_collect(void *ctx)
{
	struct agentd *a = ctx;
	struct agentd_control *c = a->control;
	struct local_status *st = local_hub_status(a->hub, uv_now(&a->loop));

	c->requested = true;
	c->collecting = st;
	c->due = 0;
	if (st)
		control_fill_agent(a, &st->agent);
	for (unsigned i = 0; st && i < st->jobs_n; i++) {
		struct local_status_job *j = &st->jobs[i];

		j->report = j->engine ? exchange_report_new(j->cfg->reducers_n, j->cfg->sharding.shards) : NULL;
		if (!j->report)
			continue;
		c->due++;
		agentd_engine_ask(j->engine, j->report, control_on_answer, a);
	}
	uv_async_send(&c->wake); /* the status may be complete already, but the service must not get it here */
}

static void control_on_wake(uv_async_t *wake)
{
	struct agentd *a = wake->data;
	struct agentd_control *c = a->control;
	struct line *line, *next;
	struct trace *traces;

	c->due -= control_take(c, &line);
	for (; line; line = next) {
		next = line->next;
		events_put(&c->events, &line->event);
		free(line);
		service_event_added(control_uv_service(c->uv));
	}
	if (agentd_trace_take(&c->trace, &traces))
		service_traced(control_uv_service(c->uv), traces);
	if (!c->requested || c->due)
		return;
	c->requested = false;
	service_status(control_uv_service(c->uv), c->collecting);
	local_status_free(c->collecting);
	c->collecting = NULL;
}

static void control_engine_freed(struct agentd *a, const void *engine)
{
	struct agentd_control *c = a->control;

	agentd_trace_engine_freed(&c->trace, engine);
	for (unsigned i = 0; c->collecting && i < c->collecting->jobs_n; i++) {
		struct local_status_job *j = &c->collecting->jobs[i];

		if (j->engine != engine)
			continue;
		j->engine = NULL;
		if (!j->report || j->report->filled)
			continue;
		free(j->report);
		j->report = NULL;
		c->due--;
		uv_async_send(&c->wake);
	}
}

static void control_on_drain(void *ctx, uint32_t timeout_ms, struct service_drained *ret)
{
	struct agentd *a = ctx;
	uint64_t now = uv_now(&a->loop);
	uint32_t drain_ms = timeout_ms ? timeout_ms : a->cfg->timeouts.drain_ms;

	ret->already = a->stopping || atomic_load(&a->stop_requested);
	ret->jobs = local_hub_jobs(a->hub);
	if (!a->stopping) {
		/* not from within this call, which the end of the loop would close */
		agentd_stop(a, drain_ms);
		a->drain_by_ms = now + drain_ms;
		if (!ret->already)
			rs_log(a->log, RS_LOG_INFO, "stopping", rs_kv_s("by", "control-service"),
			       rs_kv_u("jobs", ret->jobs), rs_kv_u("clients", local_hub_clients(a->hub)),
			       rs_kv_u("drain_ms", drain_ms));
	} else if (timeout_ms) {
		a->drain_by_ms = now + timeout_ms;
		local_hub_drain(a->hub, now, a->drain_by_ms);
		agentd_arm(a);
		agentd_check_end_soon(a);
	}
	ret->left_ms = a->drain_by_ms > now ? (uint32_t)(a->drain_by_ms - now) : 0;
}

_Static_assert((int)AGENTD_RESULT == (int)SERVICE_RESULT, "a result has room");

static int control_on_reload(void *ctx, char result[SERVICE_RESULT], struct rs_err *e)
{
	return agentd_reload(ctx, result, e);
}

static int control_on_trace(void *ctx, const struct trace_request *r, struct rs_err *e)
{
	return agentd_trace_begin(&((struct agentd *)ctx)->control->trace, r, e);
}

static void control_on_trace_end(void *ctx)
{
	agentd_trace_end(&((struct agentd *)ctx)->control->trace);
}

static uint64_t control_on_clock_us(void *ctx)
{
	(void)ctx;
	return uv_hrtime() / 1000;
}

static void control_on_granted(void *ctx, const struct service_peer *peer)
{
	struct agentd *a = ctx;

	if (a->control->unauth)
		unauth_trust(a->control->unauth, peer->address);
}

static void control_on_denied(void *ctx, const struct service_peer *peer, const char *method, const char *why)
{
	struct agentd *a = ctx;

	if (rs_log_limit_pass(&a->control->denied, uv_now(&a->loop)))
		rs_log(a->log, RS_LOG_WARN, "control-denied", rs_kv_s("peer", peer->address), rs_kv_s("method", method),
		       rs_kv_s("reason", why));
}

static void control_on_refused(void *ctx, const char *peer, const struct rs_err *why)
{
	struct agentd *a = ctx;

	if (rs_log_limit_pass(&a->control->denied, uv_now(&a->loop)))
		rs_log(a->log, RS_LOG_WARN, "control-denied", rs_kv_s("peer", peer), rs_kv_s("reason", why->msg));
}

static void control_on_scan(uv_timer_t *timer)
{
	struct agentd *a = timer->data;

	unauth_scan(a->control->unauth, uv_now(&a->loop));
	rs_log_limit_report(&a->control->denied, a->log, RS_LOG_WARN, uv_now(&a->loop));
}

/* Logs a line of gRPC, on any of its threads. There can be many. */
static void control_on_rpc_log(void *user, const char *line)
{
	const struct agentd *a = user;

	rs_log(a->log, RS_LOG_DEBUG, "grpc", rs_kv_s("text", line));
}

/* Loads a token, if there is one. */
static int control_load_token(struct auth_secret *token, const char *file, const char *key, struct rs_err *e)
{
	token->len = 0;
	return !file[0] || !auth_token_load(token, file, e) ? RS_OK : rs_wrap(e, "security.%s", key);
}

static int control_reload(struct agentd *a, const struct rs_config *cfg, struct rs_err *e)
{
	struct auth_secret read = {.len = 0}, admin = {.len = 0};
	struct tls_files files = rs_config_tls_files(cfg);
	int rc;

	if (!a->control->uv) /* it could not be opened, and the agent ends */
		return RS_OK;
	rc = control_load_token(&read, cfg->security.read_token, "read_token", e);
	if (!rc)
		rc = control_load_token(&admin, cfg->security.admin_token, "admin_token", e);
	if (!rc)
		rc = http_port_reload(a->control->http, &files, e);
	if (!rc)
		service_tokens(control_uv_service(a->control->uv), (struct service_token){read.bytes, read.len},
			       (struct service_token){admin.bytes, admin.len});
	auth_secret_clear(&read);
	auth_secret_clear(&admin);
	return rc;
}

/* Limits what connections of the TCP port may send before they have shown a right. Only members of its group can
 * connect to a UNIX socket. */
static int control_guard(struct agentd *a, struct rs_err *e)
{
	struct agentd_control *c = a->control;
	struct unauth_options opt = {
	    .address = a->cfg->agent.grpc,
	    .port = c->rpc->server_port(c->server),
	    .refused = control_on_refused,
	    .ctx = a,
	};
	int rc = unauth_new(&c->unauth, &opt, e);

	if (rc)
		return rc;
	uv_timer_init(&a->loop, &c->scan);
	c->scan.data = a;
	return uv_timer_start(&c->scan, control_on_scan, UNAUTH_SCAN_MS, UNAUTH_SCAN_MS);
}

static int control_open_port(struct agentd *a, struct rs_err *e)
{
	struct agentd_control *c = a->control;
	const char *address = a->cfg->agent.grpc, *colon = strrchr(address, ':');
	struct rpc_method methods[SERVICE_METHODS];
	struct rpc_server_options opt = {
	    .address = address,
	    .methods = methods,
	    .methods_n = SERVICE_METHODS,
	    .threads = 1,
	    .handshake_ms = a->cfg->timeouts.handshake_ms,
	    .detect_ms = a->cfg->timeouts.detect_ms,
	    .calls_max = SERVICE_CALLS_MAX + SERVICE_WATCHES_MAX + CALLS_BESIDE,
	    .log = control_on_rpc_log,
	    .user = a,
	};
	int rc = RS_OK;

	control_uv_methods(c->uv, methods);
	if (rpc_is_unix(address) && strcmp(colon + 1, a->socket.path) == 0)
		rc = rs_fail(e, RS_ECONFIG, "%s is also agent.socket, expected another path", colon + 1);
	else if (rpc_is_unix(address))
		rc = agentd_socket_claim(&c->socket, colon + 1, e);
	if (!rc)
		rc = c->rpc->server_start(&c->server, &opt, e);
	if (rc)
		return rc;
	if (rpc_is_unix(address))
		snprintf(c->name, sizeof c->name, "%s", address);
	else
		snprintf(c->name, sizeof c->name, "%.*s:%u", (int)(colon - address), address,
			 c->rpc->server_port(c->server));
	return rpc_is_unix(address) ? RS_OK : control_guard(a, e);
}

static int control_new(struct agentd *a, struct rs_err *e)
{
	struct agentd_control *c = calloc(1, sizeof *c);

	if (!c)
		return rs_fail(e, RS_ENOMEM, "no memory for the control service");
	c->socket.fd = c->socket.lock_fd = -1;
	c->denied = (struct rs_log_limit){.event = "control-denied", .per_s = DENIED_LINES_PER_S};
	c->lines_end = &c->lines;
	c->started_ms = uv_now(&a->loop);
	events_init(&c->events);
	pthread_mutex_init(&c->lock, NULL);
	uv_async_init(&a->loop, &c->wake, control_on_wake);
	c->wake.data = a;
	agentd_trace_init(&c->trace, a, &c->wake);
	a->control = c;
	return RS_OK;
}

static void control_draining(struct agentd *a)
{
	if (a->control->uv)
		service_draining(control_uv_service(a->control->uv));
}

static void control_close(struct agentd *a)
{
	struct agentd_control *c = a->control;

	http_port_stop(c->http);
	c->http = NULL;
	if (c->uv)
		control_uv_stop(c->uv);
	if (c->unauth)
		uv_close((uv_handle_t *)&c->scan, NULL);
	if (c->server)
		c->rpc->server_stop(c->server);
	a->log->tap = NULL; /* no other thread is left that logs */
	if (c->uv)
		control_uv_close(c->uv);
	agentd_trace_close(&c->trace);
	uv_close((uv_handle_t *)&c->wake, NULL);
}

static void control_free(struct agentd *a)
{
	struct agentd_control *c = a->control;
	struct line *next;

	a->control = NULL;
	a->hooks = NULL;
	for (struct line *line = c->lines; line; line = next) {
		next = line->next;
		free(line);
	}
	local_status_free(c->collecting);
	agentd_trace_free(&c->trace);
	control_uv_free(c->uv);
	unauth_free(c->unauth);
	agentd_socket_close(&c->socket);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static int control_open_http(struct agentd *a, struct rs_err *e)
{
	struct agentd_control *c = a->control;
	struct http_options opt = {.address = a->cfg->agent.http,
				   .process = "agent",
				   .control = c->uv,
				   .tls = a->cfg->agent.http_tls,
				   .files = rs_config_tls_files(a->cfg)};
	int rc = http_port_start(&c->http, &opt, e);

	if (rc)
		return rs_wrap(e, "agent.http");
	rs_log(a->log, RS_LOG_INFO, "http-ready", rs_kv_s("address", http_port_name(c->http)),
	       rs_kv_s("tls", a->cfg->agent.http_tls == TLS_OFF ? "off" : "on"));
	return RS_OK;
}

int agentd_control_start(struct agentd *a, struct rs_err *e)
{
	struct service_options so = {
	    .process = "agent",
	    .section = "security",
	    .drain = control_on_drain,
	    .reload = control_on_reload,
	    .collect = control_on_collect,
	    .pack = local_status_pack,
	    .trace = control_on_trace,
	    .trace_end = control_on_trace_end,
	    .clock_us = control_on_clock_us,
	    .worker = true,
	    .granted = control_on_granted,
	    .denied = control_on_denied,
	    .ctx = a,
	};
	static const struct agentd_hooks hooks = {
	    .draining = control_draining,
	    .engine_freed = control_engine_freed,
	    .reload = control_reload,
	    .close = control_close,
	    .free = control_free,
	};
	int rc;

	if (!a->cfg->agent.grpc[0] && !a->cfg->agent.http[0])
		return RS_OK;
	rc = control_new(a, e);
	if (rc)
		return rc;
	a->hooks = &hooks;
	so.events = &a->control->events;
	rc = a->cfg->agent.grpc[0] ? rpc_load(&a->control->rpc, e) : RS_OK;
	if (!rc)
		rc = control_uv_new(&a->control->uv, &a->loop, a->control->rpc, &so, e);
	if (!rc)
		rc = control_reload(a, a->cfg, e);
	a->log->tap = control_on_line;
	a->log->tap_ctx = a;
	if (!rc && a->control->rpc)
		rc = control_open_port(a, e);
	if (rc)
		return rs_wrap(e, "agent.%s", a->cfg->agent.grpc[0] ? "grpc" : "http");
	if (a->control->rpc)
		rs_log(a->log, RS_LOG_INFO, "grpc-ready", rs_kv_s("address", a->control->name));
	return a->cfg->agent.http[0] ? control_open_http(a, e) : RS_OK;
}
