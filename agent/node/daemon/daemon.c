/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path of a status: the hub fills in jobs and local ranks -> each job's engine is asked for its report -> the
 * last answer completes the status. A trace: the hub names the engines of the jobs -> each engine gets a trace.
 * Failure modes: no memory for a report: the status lacks the reducers of that job. An engine ends before it has
 * answered: the same. It ends while it records: its trace ends as it is. */
#include "agent/node/daemon/daemon.h"

#include "agent/node/core/status_pack.h"
#include "common/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct host_load daemon_on_load(void *ctx)
{
	const struct agent_daemon *d = ctx;

	return (struct host_load){.jobs = local_hub_jobs(d->a.hub), .ranks = local_hub_clients(d->a.hub)};
}

static bool daemon_on_turned(void *ctx)
{
	return agentd_engines_answer(&((struct agent_daemon *)ctx)->a);
}

static void daemon_on_drain(void *ctx, uint64_t deadline_ms)
{
	agentd_drain(&((struct agent_daemon *)ctx)->a, deadline_ms);
}

static int daemon_on_reload(void *ctx, struct rs_config *fresh, struct rs_err *e)
{
	return agentd_take_config(&((struct agent_daemon *)ctx)->a, fresh, e);
}

static void daemon_fill(const struct agent_daemon *d, struct local_status_agent *to)
{
	snprintf(to->software, sizeof to->software, "reduction %s", RS_VERSION);
	memcpy(to->host, d->a.host, sizeof to->host);
	memcpy(to->socket, d->a.socket.path, sizeof to->socket);
	snprintf(to->grpc, sizeof to->grpc, "%s", host_grpc_name(&d->host));
	snprintf(to->http, sizeof to->http, "%s", host_http_name(&d->host));
	to->pid = (uint32_t)getpid();
	to->unix_ms = host_unix_ms();
	to->up_ms = uv_now(&d->a.loop) - d->host.started_ms;
	to->drain_left_ms = host_drain_left_ms(&d->host);
}

static void *daemon_on_collect(void *ctx, unsigned *ret_due)
{
	struct agent_daemon *d = ctx;
	struct local_status *st = local_hub_status(d->a.hub, uv_now(&d->a.loop));

	if (st)
		daemon_fill(d, &st->agent);
	for (unsigned i = 0; st && i < st->jobs_n; i++) {
		struct local_status_job *j = &st->jobs[i];

		j->report = j->engine ? exchange_report_new(j->cfg->reducers_n, j->cfg->sharding.shards) : NULL;
		if (!j->report)
			continue;
		++*ret_due;
		agentd_engine_ask(j->engine, j->report, host_answered, &d->host);
	}
	return st;
}

/* Nothing is left to do: the engines have filled their reports. */
static void daemon_on_complete(void *ctx, void *status)
{
	(void)ctx;
	(void)status;
}

static void daemon_on_status_free(void *status)
{
	local_status_free(status);
}

/* Adds a trace of one range. */
static int daemon_add_trace(struct agent_daemon *d, const struct trace_request *r, unsigned range, const void *engine,
			    struct rs_err *e)
{
	struct trace_request one = *r;
	uint32_t most = TRACE_TOTAL / r->ranges_n;
	struct trace *t;

	one.ranges[0] = r->ranges[range];
	one.ranges_n = 1;
	t = trace_new(&one, r->records < most ? r->records : most);
	if (!t)
		return rs_fail(e, RS_ENOMEM, "the agent on %s has no memory for a trace", d->a.host);
	t->next = d->traces_n ? d->traces[d->traces_n - 1].trace : NULL;
	d->traces[d->traces_n].engine = engine;
	d->traces[d->traces_n++].trace = t;
	return RS_OK;
}

static int daemon_on_trace(void *ctx, const struct trace_request *r, struct trace **ret, struct rs_err *e)
{
	struct agent_daemon *d = ctx;
	struct local_status *st = local_hub_status(d->a.hub, uv_now(&d->a.loop));
	int rc = st ? RS_OK : rs_fail(e, RS_ENOMEM, "the agent on %s has no memory for a trace", d->a.host);

	d->traces_n = 0;
	for (unsigned i = 0; !rc && i < r->ranges_n; i++)
		for (unsigned j = 0; !rc && j < st->jobs_n; j++)
			if (st->jobs[j].engine && st->jobs[j].generation == r->ranges[i].generation &&
			    strcmp(st->jobs[j].name, r->ranges[i].job) == 0 && d->traces_n < TRACE_RANGES)
				rc = daemon_add_trace(d, r, i, st->jobs[j].engine, e);
	local_status_free(st);
	*ret = d->traces_n ? d->traces[d->traces_n - 1].trace : NULL;
	if (rc) {
		trace_free(*ret);
		*ret = NULL;
		return rc;
	}
	for (unsigned i = 0; i < d->traces_n; i++)
		agentd_engine_trace(&d->a, d->traces[i].engine, d->traces[i].trace, host_wake, &d->host);
	return RS_OK;
}

static void daemon_on_trace_end(void *ctx)
{
	struct agent_daemon *d = ctx;

	for (unsigned i = 0; i < d->traces_n; i++)
		if (d->traces[i].engine)
			agentd_engine_trace(&d->a, d->traces[i].engine, NULL, NULL, NULL);
}

static void daemon_on_engine_freed(struct agentd *a, const void *engine)
{
	struct agent_daemon *d = a->hooks_ctx;
	struct local_status *st = d->host.status;

	for (unsigned i = 0; d->host.tracing && i < d->traces_n; i++) {
		if (d->traces[i].engine != engine)
			continue;
		d->traces[i].engine = NULL;
		d->traces[i].trace->ended = true;
		host_wake(&d->host);
	}
	for (unsigned i = 0; st && i < st->jobs_n; i++) {
		struct local_status_job *j = &st->jobs[i];

		if (j->engine != engine)
			continue;
		j->engine = NULL;
		if (!j->report || j->report->filled)
			continue;
		free(j->report);
		j->report = NULL;
		host_answered(&d->host);
	}
}

static void daemon_on_close(struct agentd *a)
{
	struct agent_daemon *d = a->hooks_ctx;

	host_stop(&d->host);
	host_stop_grpc(&d->host);
	host_close(&d->host);
}

static void daemon_on_free(struct agentd *a)
{
	struct agent_daemon *d = a->hooks_ctx;

	host_free(&d->host);
	agentd_socket_close(&d->grpc);
}

static const struct agentd_hooks hooks = {
    .engine_freed = daemon_on_engine_freed,
    .close = daemon_on_close,
    .free = daemon_on_free,
};

static const char *const fixed[] = {"agent.socket", "agent.grpc",  "agent.http",     "agent.http_tls",
				    "agent.cpu",    "job.max_ops", "logging.format", NULL};

static const struct host_daemon agent = {
    .process = "agent",
    .section = "agent",
    .rank = "local rank",
    .taken = "new jobs use the configuration, running jobs keep theirs",
    .fixed = fixed,
    .worker = true,
    .load = daemon_on_load,
    .turned = daemon_on_turned,
    .drain = daemon_on_drain,
    .reload = daemon_on_reload,
    .collect = daemon_on_collect,
    .complete = daemon_on_complete,
    .status_free = daemon_on_status_free,
    .pack = local_status_pack,
    .trace = daemon_on_trace,
    .trace_end = daemon_on_trace_end,
};

/* Makes the path of a UNIX socket free for gRPC. */
static int daemon_claim(struct agent_daemon *d, const char *address, struct rs_err *e)
{
	const char *path = strchr(address, ':') + 1;

	if (strcmp(path, d->a.socket.path) == 0)
		rs_fail(e, RS_ECONFIG, "%s is also agent.socket, expected another path", path);
	else if (agentd_socket_claim(&d->grpc, path, e) == RS_OK)
		return RS_OK;
	return rs_wrap(e, "agent.grpc");
}

int agent_daemon_start(struct agent_daemon *d, struct host_process *p, struct rs_err *e)
{
	const struct rs_config *cfg = &p->start.cfg;
	struct host_ports ports = {
	    .grpc = cfg->agent.grpc, .http = cfg->agent.http, .http_tls = cfg->agent.http_tls, .threads = 1};
	int rc = RS_OK;

	d->grpc = (struct agentd_socket){.fd = -1, .lock_fd = -1};
	d->a.hooks = &hooks;
	d->a.hooks_ctx = d;
	host_init(&d->host, &(struct host_options){.daemon = &agent,
						   .ctx = d,
						   .loop = &d->a.loop,
						   .cfg = cfg,
						   .config_file = p->start.file,
						   .as_read = &p->start.as_read,
						   .log = d->a.log,
						   .notify = &p->notify});
	if (rpc_is_unix(ports.grpc))
		rc = daemon_claim(d, ports.grpc, e);
	return rc ? rc : host_open_ports(&d->host, &ports, e);
}
