/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path of a status: the registry fills in jobs and ranks -> each lane is asked
 * for its report -> the last answer completes the status. Failure modes: no memory for a
 * report: the status lacks the counts of that lane. */
#include "server/run/server_control.h"

#include "common/version.h"
#include "server/run/server_lifecycle.h"
#include "server/run/server_trace.h"

#include <stdlib.h>

static struct host_load server_control_on_load(void *ctx)
{
	const struct server *s = ctx;

	return (struct host_load){.jobs = registry_jobs(s->registry), .ranks = registry_ranks(s->registry)};
}

static bool server_control_on_turned(void *ctx)
{
	const struct server *s = ctx;
	bool turned = true;

	for (unsigned i = 0; i < s->lanes_n; i++)
		turned &= lane_thread_turned(s->lanes[i]);
	return turned;
}

/* Fills in the properties of the process. */
static void server_control_fill_server(struct server *s, struct status_reply *to)
{
	char address[RS_ADDRESS_MAX] = "";

	host_status(&s->host, to);
	if (s->listening_n)
		listener_name(s->listening[0].fd, address, sizeof address);
	to->m.address = status_reply_text(to, address);
	to->m.cpu = (char *)s->kernels->name;
	for (unsigned i = 0; i < STATUS_REFUSALS; i++)
		to->m.refusals[i]->count = s->refused[i];
	to->m.connections = s->sessions;
	to->m.connections_max = s->max_connections;
}

static void *server_control_on_collect(void *ctx, unsigned *ret_due)
{
	struct server *s = ctx;
	struct status *st;

	registry_set_time(s->registry, uv_now(&s->loop));
	st = registry_status(s->registry);
	if (!st)
		return NULL;
	server_control_fill_server(s, &st->reply);
	for (unsigned i = 0; i < s->lanes_n; i++)
		*ret_due += lane_thread_report(s->lanes[i], host_answered, &s->host);
	return st;
}

static struct status_reply *server_control_on_complete(void *ctx, void *status)
{
	struct server *s = ctx;

	for (unsigned i = 0; i < s->lanes_n; i++) {
		struct lane_report *report = lane_thread_take_report(s->lanes[i]);

		if (report)
			status_add(status, report);
		free(report);
	}
	return status_finish(status);
}

static void server_control_on_status_free(void *status)
{
	status_free(status);
}

static const char *const fixed[] = {"server.listen",   "server.grpc",          "server.http",
				    "server.http_tls", "server.lanes",         "server.cpu",
				    "server.insecure", "server.http_insecure", "server.secrets_dir",
				    "server.secret",   "server.state_dir",     "server.notice",
				    "timeouts.detect", "timeouts.stopped",     "timeouts.handshake",
				    "security.tls",    "logging.format",       NULL};

static const struct host_daemon reducer = {
    .process = "reducer",
    .section = "server",
    .health = "reduction.v1.Reducer",
    .rank = "rank",
    .taken = "logging.level, limits, certificates, access and tokens taken over",
    .fixed = fixed,
    .load = server_control_on_load,
    .tick = server_on_tick,
    .turned = server_control_on_turned,
    .drain = server_on_drain,
    .reload = server_on_reload,
    .renew = server_on_renew,
    .collect = server_control_on_collect,
    .complete = server_control_on_complete,
    .status_free = server_control_on_status_free,
    .trace = server_on_trace,
    .trace_end = server_on_trace_end,
};

void server_control_init(struct server *s, const struct server_options *opt)
{
	host_init(&s->host, &(struct host_options){.daemon = &reducer,
						   .ctx = s,
						   .loop = &s->loop,
						   .cfg = opt->cfg,
						   .config_file = opt->config_file,
						   .notice = opt->cfg->server.notice,
						   .as_read = opt->as_read,
						   .log = opt->log,
						   .notify = opt->notify});
}
