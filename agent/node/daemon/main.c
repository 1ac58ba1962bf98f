/* SPDX-License-Identifier: Apache-2.0 */
/* reduction-agent: command line, configuration, log. */
#include "agent/node/daemon/daemon.h"
#include "config/schema.h"
#include "config/value.h"

static int main_take_socket(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	return cmdline_string(cfg->agent.socket, sizeof cfg->agent.socket, "--socket", arg, e);
}

static int main_take_grpc(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	const struct schema_key *key = schema_find("agent", "grpc");
	char expected[240];

	if (value_parse(key, arg, cfg))
		return RS_OK;
	value_expected(key, expected, sizeof expected);
	return rs_fail(e, RS_EINVAL, "found \"%s\", expected %s", arg, expected);
}

static int main_take_http(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	return cmdline_address(cfg->agent.http, sizeof cfg->agent.http, "--http", arg, e);
}

static int main_take_cpu(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	return cmdline_string(cfg->agent.cpu, sizeof cfg->agent.cpu, "--cpu", arg, e);
}

static const struct cmdline_flag flags[] = {
    {"socket", "PATH", "UNIX socket for training processes [/run/reduction/agent.sock]; its directory must exist",
     main_take_socket},
    {"grpc", "ADDRESS", "HOST:PORT or unix:PATH for health checks and reductionctl [no gRPC]", main_take_grpc},
    {"http", "HOST:PORT", "HTTP address for metrics, status page and health [no HTTP]", main_take_http},
    {"cpu", "NAME", "instruction set for sums: auto, scalar, avx2, avx512 or neon [auto: the fastest]", main_take_cpu},
};

static const struct cmdline cmdline = {
    .program = "reduction-agent",
    .purpose = "Adds up the gradients of this node's training processes and exchanges the sums with the reducers.",
    .notes = "Root, the agent's user and members of the socket's group may connect.\n"
	     "SIGTERM and SIGINT stop the agent: it accepts no new jobs, and running jobs may finish within\n"
	     "timeouts.drain [30s]. Jobs that have not finished then get an error. A second signal exits at once.\n"
	     "SIGPWR drains too, and does not count.\n"
	     "Without --config it finds the reducers in CLUSTER_SPEC, TF_CONFIG or a heterogeneous job of\n"
	     "Slurm, if there is one.\n"
	     "SIGHUP reads the configuration again: jobs that start later use it, running jobs keep theirs\n"
	     "except for the addresses of reducers, which they read again by themselves.\n",
    .flags = flags,
    .flags_n = sizeof flags / sizeof flags[0],
    .refuses = check_agent_start,
    .check = check_agent,
    .role = CHECK_AGENT,
    .cluster_role = RS_CLUSTER_WORKER,
};

int main(int argc, char **argv)
{
	struct host_process p;
	struct agent_daemon d;
	struct rs_err e;
	int rc;

	if (!host_process_open(&p, &cmdline, argc, argv, &rc))
		return rc;
	rc = agentd_open(&d.a, &p.start.cfg, p.start.cfg.agent.socket, &p.log, &e);
	if (!rc) {
		rc = agent_daemon_start(&d, &p, &e);
		if (rc)
			agentd_stop(&d.a, 0);
		else
			host_ready(&d.host);
		agentd_serve(&d.a);
	}
	return host_process_close(&p, rc ? &e : NULL);
}
