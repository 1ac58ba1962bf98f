/* SPDX-License-Identifier: Apache-2.0 */
/* The gRPC and HTTP ports, with the control service behind them. */
#include "common/host/host_state.h"
#include "common/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CALLS_BESIDE = 64,      /* calls above the service's limits, which are refused with a sentence */
	DENIED_LINES_PER_S = 5, /* in the log */
};

void host_trust(struct host *h, const char *peer)
{
	if (h->unauth)
		unauth_trust(h->unauth, peer);
}

/* Only members of its group can connect to a UNIX socket. */
static bool host_on_own(void *ctx, const struct service_peer *peer)
{
	const struct host *h = ctx;

	return rpc_is_unix(h->ports.grpc) ||
	       (h->rpc_server && rs_peer_is_own(peer->address, h->rpc->server_port(h->rpc_server)));
}

static void host_on_granted(void *ctx, const struct service_peer *peer)
{
	host_trust(ctx, peer->address);
}

static void host_on_denied(void *ctx, const struct service_peer *peer, const char *method, const char *why)
{
	struct host *h = ctx;

	if (rs_log_limit_pass(&h->denied, uv_now(h->opt.loop)))
		rs_log(h->opt.log, RS_LOG_WARN, "control-denied", rs_kv_s("peer", peer->address),
		       rs_kv_s("method", method), rs_kv_s("reason", why));
}

static void host_on_refused(void *ctx, const char *peer, const struct rs_err *why)
{
	struct host *h = ctx;

	if (h->ports.refused)
		h->ports.refused(h->opt.ctx, peer, why);
	else if (rs_log_limit_pass(&h->denied, uv_now(h->opt.loop)))
		rs_log(h->opt.log, RS_LOG_WARN, "control-denied", rs_kv_s("peer", peer), rs_kv_s("reason", why->msg));
}

void host_ports_tick(struct host *h)
{
	rs_log_limit_report(&h->denied, h->opt.log, RS_LOG_WARN, uv_now(h->opt.loop));
}

/* Logs a line of gRPC, on any of its threads. There can be many. */
static void host_on_rpc_log(void *ctx, const char *line)
{
	const struct host *h = ctx;

	rs_log(h->opt.log, RS_LOG_DEBUG, "grpc", rs_kv_s("text", line));
}

static void host_on_scan(uv_timer_t *timer)
{
	struct host *h = timer->data;

	unauth_scan(h->unauth, uv_now(h->opt.loop));
}

/* Limits what connections of a TCP port may send before they have shown a right. Only
 * members of its group can connect to a UNIX socket. */
static int host_guard(struct host *h, struct rs_err *e)
{
	struct unauth_options opt = {
	    .address = h->ports.grpc,
	    .port = h->rpc->server_port(h->rpc_server),
	    .refused = host_on_refused,
	    .ctx = h,
	};
	int rc = unauth_new(&h->unauth, &opt, e);

	if (rc)
		return rc;
	uv_timer_init(h->opt.loop, &h->scan);
	h->scan.data = h;
	return uv_timer_start(&h->scan, host_on_scan, UNAUTH_SCAN_MS, UNAUTH_SCAN_MS);
}

static int host_open_grpc(struct host *h, const struct host_files *files, struct rs_err *e)
{
	const char *address = h->ports.grpc, *colon = strrchr(address, ':');
	const struct rs_config *cfg = h->opt.cfg;
	struct rpc_tls tls = {files->texts.certificate, files->texts.key, files->texts.authority};
	struct rpc_method methods[SERVICE_METHODS + 1];
	struct rpc_server_options opt = {
	    .address = address,
	    .methods = methods,
	    .methods_n = SERVICE_METHODS,
	    .threads = h->ports.threads,
	    .handshake_ms = cfg->timeouts.handshake_ms,
	    .detect_ms = cfg->timeouts.detect_ms,
	    .calls_max = SERVICE_CALLS_MAX + SERVICE_WATCHES_MAX + CALLS_BESIDE + h->ports.calls_max,
	    .tls = tls.certificate ? &tls : NULL,
	    .log = host_on_rpc_log,
	    .user = h,
	};
	int rc = RS_OK;

	control_uv_methods(h->control, methods);
	if (h->ports.method)
		rc = h->ports.method(h->opt.ctx, &methods[opt.methods_n++], e);
	if (!rc)
		rc = h->rpc->server_start(&h->rpc_server, &opt, e);
	if (rc)
		return rc;
	if (rpc_is_unix(address))
		snprintf(h->grpc_name, sizeof h->grpc_name, "%s", address);
	else
		snprintf(h->grpc_name, sizeof h->grpc_name, "%.*s:%u", (int)(colon - address), address,
			 h->rpc->server_port(h->rpc_server));
	rs_log(h->opt.log, RS_LOG_INFO, "grpc-ready", rs_kv_s("address", h->grpc_name));
	return rpc_is_unix(address) ? RS_OK : host_guard(h, e);
}

static int host_open_http(struct host *h, struct rs_err *e)
{
	struct http_options opt = {.address = h->ports.http,
				   .process = h->opt.daemon->process,
				   .control = h->control,
				   .tls = h->ports.http_tls,
				   .files = rs_config_tls_files(h->opt.cfg)};
	int rc = http_port_start(&h->http, &opt, e);

	if (rc)
		return rc;
	rs_log(h->opt.log, RS_LOG_INFO, "http-ready", rs_kv_s("address", http_port_name(h->http)),
	       rs_kv_s("tls", h->ports.http_tls == TLS_OFF ? "off" : "on"));
	return RS_OK;
}

static int host_new_control(struct host *h, struct rs_err *e)
{
	struct service_options so = {
	    .process = h->opt.daemon->process,
	    .section = "security",
	    .health = h->opt.daemon->health,
	    .events = h->events,
	    .jobs = h->jobs,
	    .drain = host_on_drain,
	    .reload = host_on_reload,
	    .own = host_on_own,
	    .granted = host_on_granted,
	    .denied = host_on_denied,
	    .ctx = h,
	};

	if (!h->events || !h->jobs)
		return rs_oom(e, 0, "the control service");
	events_init(h->events);
	events_init(h->jobs);
	host_answers_options(h, &so);
	h->denied = (struct rs_log_limit){.event = "control-denied", .per_s = DENIED_LINES_PER_S};
	return control_uv_new(&h->control, h->opt.loop, h->rpc, &so, e);
}

int host_open_ports(struct host *h, const struct host_ports *ports, struct rs_err *e)
{
	const char *section = h->opt.daemon->section;
	struct host_files files;
	int rc = RS_OK;

	h->ports = *ports;
	if (!ports->grpc[0] && !ports->http[0])
		return RS_OK;
	if (ports->grpc[0] && rpc_load(&h->rpc, e))
		return rs_wrap(e, "%s.grpc", section);
	h->events = malloc(sizeof *h->events);
	h->jobs = malloc(sizeof *h->jobs);
	rc = host_new_control(h, e);
	if (rc)
		return rc;
	if (ports->state_dir && record_file_open(&h->records, ports->state_dir, h->jobs, e))
		return rs_wrap(e, "%s.state_dir", section);
	host_events_start(h);
	rc = host_files_read(h, h->opt.cfg, &files, e);
	if (!rc)
		host_set_tokens(h, &files);
	if (!rc && ports->grpc[0] && host_open_grpc(h, &files, e))
		rc = rs_wrap(e, "%s.grpc", section);
	host_files_close(&files);
	if (!rc && ports->http[0] && host_open_http(h, e))
		rc = rs_wrap(e, "%s.http", section);
	return rc;
}

void host_stop(struct host *h)
{
	http_port_stop(h->http);
	h->http = NULL;
	if (h->control)
		control_uv_stop(h->control);
}

void host_stop_grpc(struct host *h)
{
	if (h->unauth)
		uv_close((uv_handle_t *)&h->scan, NULL);
	if (h->rpc_server)
		host_end_grpc(h);
}
