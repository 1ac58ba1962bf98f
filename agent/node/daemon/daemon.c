/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path of a status: the hub fills in jobs and local ranks -> each job's engine
 * is asked for its report -> the last answer completes the status. A trace: the hub names
 * the engines of the jobs -> each engine gets a trace. Failure modes: no memory for a
 * report: the status lacks the reducers of that job. An engine ends before it has
 * answered: the same. It ends while it records: its trace ends as it is. */
#include "agent/node/daemon/daemon.h"

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

static void *daemon_on_collect(void *ctx, unsigned *ret_due)
{
	struct agent_daemon *d = ctx;
	struct local_status *st = local_hub_status(d->a.hub, uv_now(&d->a.loop));
	Reduction__V1__AgentStatus *a;

	if (!st)
		return NULL;
	host_status(&d->host, &st->reply);
	a = st->reply.m.agent;
	a->host = status_reply_text(&st->reply, d->a.host);
	a->socket = status_reply_text(&st->reply, d->a.socket.path);
	a->pid = (uint32_t)getpid();
	for (size_t i = 0; i < a->n_jobs; i++) {
		struct local_status_engine *e = &st->engines[i];

		e->report = e->engine ? exchange_report_new(e->cfg->reducers_n, e->cfg->sharding.shards) : NULL;
		if (!e->report)
			continue;
		++*ret_due;
		agentd_engine_ask(e->engine, e->report, host_answered, &d->host);
	}
	return st;
}

static struct status_reply *daemon_on_complete(void *ctx, void *status)
{
	(void)ctx;
	return local_status_finish(status);
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
		return rs_oom(e, 0, "a trace in the agent on %s", d->a.host);
	t->next = d->traces_n ? d->traces[d->traces_n - 1].trace : NULL;
	d->traces[d->traces_n].engine = engine;
	d->traces[d->traces_n++].trace = t;
	return RS_OK;
}

static int daemon_on_trace(void *ctx, const struct trace_request *r, struct trace **ret, struct rs_err *e)
{
	struct agent_daemon *d = ctx;
	struct local_status *st = local_hub_status(d->a.hub, uv_now(&d->a.loop));
	int rc = st ? RS_OK : rs_oom(e, 0, "a trace in the agent on %s", d->a.host);

	d->traces_n = 0;
	for (unsigned i = 0; !rc && i < r->ranges_n; i++)
		for (size_t j = 0; !rc && j < st->reply.m.agent->n_jobs; j++) {
			const Reduction__V1__AgentJob *job = st->reply.m.agent->jobs[j];

			if (st->engines[j].engine && job->generation == r->ranges[i].generation &&
			    strcmp(job->name, r->ranges[i].job) == 0 && d->traces_n < TRACE_RANGES)
				rc = daemon_add_trace(d, r, i, st->engines[j].engine, e);
		}
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
	for (size_t i = 0; st && i < st->reply.m.agent->n_jobs; i++) {
		struct local_status_engine *e = &st->engines[i];

		if (e->engine != engine)
			continue;
		e->engine = NULL;
		if (!e->report || e->report->filled)
			continue;
		free(e->report);
		e->report = NULL;
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
