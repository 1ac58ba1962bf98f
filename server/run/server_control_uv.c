/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of the control service, and the status that it reports.
 *
 * The happy path of a status: the service requests it -> the registry fills in jobs and ranks -> each lane is asked for
 * its report -> the reports come through the mailbox, and the last one completes the status. One status is made at a
 * time for all calls. Failure modes: no memory for a report: the status lacks the counts of that lane. No memory for
 * the status: the calls end with an error. */
#include "server/run/server_control.h"

#include "config/check/check.h"

#include "common/tls_own.h"
#include "common/version.h"
#include "server/jobs/status_pack.h"
#include "server/run/server_lifecycle.h"
#include "server/run/server_port.h"
#include "server/run/server_streams.h"
#include "server/run/server_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DENIED_LINES_PER_S = 5 }; /* in the log */

static void on_drain(void *ctx, uint32_t timeout_ms, struct service_drained *ret)
{
	struct server *s = ctx;
	uint64_t now = uv_now(&s->loop);

	ret->already = s->draining;
	if (!s->draining || timeout_ms)
		server_drain(s, "control-service", timeout_ms ? timeout_ms : s->cfg->timeouts.drain_ms);
	ret->jobs = registry_jobs(s->registry);
	ret->left_ms = s->deadline_ms > now ? (uint32_t)(s->deadline_ms - now) : 0;
}

static int on_reload(void *ctx, char result[SERVICE_RESULT], struct rs_err *e)
{
	return server_reload(ctx, result, SERVICE_RESULT, e);
}

/* Fills in the properties of the process. */
static void fill_server(struct server *s, struct status_server *to)
{
	uint64_t now = uv_now(&s->loop);

	snprintf(to->software, sizeof to->software, "reduction %s", RS_VERSION);
	if (s->listening_n)
		listener_name(s->listening[0].fd, to->address, sizeof to->address);
	snprintf(to->grpc, sizeof to->grpc, "%s", s->grpc_name);
	if (s->http)
		snprintf(to->http, sizeof to->http, "%s", http_port_name(s->http));
	snprintf(to->cpu, sizeof to->cpu, "%s", s->kernels->name);
	to->unix_ms = journal_unix_ms();
	to->up_ms = now - s->started_ms;
	if (s->draining && s->deadline_ms > now)
		to->drain_left_ms = (uint32_t)(s->deadline_ms - now);
	to->certificate_unix_s = tls_own_expiry(s->admission.certificates.ctx);
	memcpy(to->refused, s->refused, sizeof to->refused);
	to->connections = s->sessions;
	to->connections_max = s->max_connections;
}

static void on_collect(void *ctx)
{
	struct server *s = ctx;

	registry_set_time(s->registry, uv_now(&s->loop));
	s->collecting = registry_status(s->registry);
	if (s->collecting)
		fill_server(s, &s->collecting->server);
	s->reports_due = s->lanes_n;
	for (unsigned i = 0; i < s->lanes_n; i++)
		if (!lane_thread_report(s->lanes[i]))
			server_control_reported(s, s->lanes[i]);
}

void server_control_reported(struct server *s, struct lane_thread *lane)
{
	struct lane_report *report;
	struct status *st;

	/* the lanes have stopped and freed their reports */
	if (!s->lanes_n)
		return;
	report = lane_thread_take_report(lane);
	if (report && s->collecting)
		status_add(s->collecting, report);
	free(report);
	if (--s->reports_due > 0)
		return;
	st = s->collecting;
	s->collecting = NULL;
	service_status(control_uv_service(s->control), st);
	status_free(st);
}

static void on_granted(void *ctx, const struct service_peer *peer)
{
	server_streams_trust(ctx, peer->address);
}

static void on_denied(void *ctx, const struct service_peer *peer, const char *method, const char *why)
{
	struct server *s = ctx;

	if (rs_log_limit_pass(&s->limits[LIMITED_DENIED], uv_now(&s->loop)))
		journal(&s->journal, RS_LOG_WARN, "control-denied", rs_kv_s("peer", peer->address),
			rs_kv_s("method", method), rs_kv_s("reason", why));
}

static void on_event_added(void *ctx)
{
	struct server *s = ctx;

	service_event_added(control_uv_service(s->control));
}

static int check_grpc(struct server *s, struct rs_err *e)
{
	int rc = listener_check(s->cfg->server.grpc, s->cfg->server.insecure || check_authenticates(s->cfg), e);

	return rc ? rc : rpc_load(&s->rpc, e);
}

static int start_http(struct server *s, struct rs_err *e)
{
	struct http_options opt = {.address = s->cfg->server.http,
				   .process = "reducer",
				   .control = s->control,
				   .tls = s->cfg->server.http_tls,
				   .files = rs_config_tls_files(s->cfg)};
	int rc = http_port_start(&s->http, &opt, e);

	if (rc)
		return rs_wrap(e, "server.http");
	journal(&s->journal, RS_LOG_INFO, "http-ready", rs_kv_s("address", http_port_name(s->http)),
		rs_kv_s("tls", s->cfg->server.http_tls == TLS_OFF ? "off" : "on"));
	return RS_OK;
}

int server_control_start(struct server *s, struct rs_err *e)
{
	struct service_options so = {
	    .process = "reducer",
	    .section = "security",
	    .health = "reduction.v1.Reducer",
	    .events = &s->journal.events,
	    .drain = on_drain,
	    .reload = on_reload,
	    .collect = on_collect,
	    .pack = status_pack,
	    .granted = on_granted,
	    .denied = on_denied,
	    .ctx = s,
	};
	int rc;

	if (!s->cfg->server.grpc[0] && !s->cfg->server.http[0])
		return RS_OK;
	server_trace_options(&so);
	s->limits[LIMITED_DENIED] = (struct rs_log_limit){.event = "control-denied", .per_s = DENIED_LINES_PER_S};
	rc = s->cfg->server.grpc[0] ? check_grpc(s, e) : RS_OK;
	if (!rc)
		rc = control_uv_new(&s->control, &s->loop, s->rpc, &so, e);
	if (!rc)
		rc = server_port_init_tokens(s, e);
	if (!rc && s->rpc)
		rc = server_streams_init(s, e);
	if (!rc && s->rpc)
		rc = server_port_start(s, e);
	if (!rc && s->cfg->server.http[0])
		rc = start_http(s, e);
	if (rc)
		return rc; /* server_control_stop follows */
	s->journal.event_added = on_event_added;
	s->journal.ctx = s;
	return RS_OK;
}

void server_control_stop(struct server *s)
{
	if (!s->control)
		return;
	s->journal.event_added = NULL;
	http_port_stop(s->http);
	s->http = NULL;
	control_uv_stop(s->control);
}

void server_control_close(struct server *s)
{
	if (s->streams)
		grpc_handshakes_stop(s->streams);
	if (s->unauth)
		uv_close((uv_handle_t *)&s->scan, NULL);
	if (s->rpc_server)
		s->rpc->server_stop(s->rpc_server);
	if (s->streams)
		grpc_handshakes_close(s->streams);
	if (s->control)
		control_uv_close(s->control);
}

void server_control_free(struct server *s)
{
	status_free(s->collecting);
	server_trace_free(s);
	control_uv_free(s->control);
	grpc_handshakes_free(s->streams);
	unauth_free(s->unauth);
}
