/* SPDX-License-Identifier: Apache-2.0 */
/* reduction-agent: command line, configuration, log. */
#include "agent/node/daemon/agentd.h"
#include "common/descriptors.h"
#include "common/host/cmdline.h"
#include "common/loop_uv.h"
#include "config/schema.h"
#include "config/value.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
	     "Without --config it finds the reducers in CLUSTER_SPEC, TF_CONFIG or a heterogeneous job of\n"
	     "Slurm, if there is one.\n"
	     "SIGHUP reads the configuration again: jobs that start later use it, running jobs keep theirs.\n",
    .flags = flags,
    .flags_n = sizeof flags / sizeof flags[0],
    .refuses = check_agent_start,
    .check = check_agent,
    .role = CHECK_AGENT,
    .cluster_role = RS_CLUSTER_WORKER,
};

int main(int argc, char **argv)
{
	_Atomic unsigned lost = 0;
	struct rs_log log = {.fd = STDERR_FILENO, .lost = &lost};
	struct cmdline_start st;
	struct rs_notify notify;
	struct agentd a;
	struct rs_err e;
	int rc;

	rs_descriptors_hold_standard();
	rs_loop_own_libuv();
	if (!cmdline_start(&cmdline, argc, argv, &st, &rc))
		return rc;
	signal(SIGPIPE, SIG_IGN);
	cmdline_raise_descriptors();
	rs_notify_open(&notify);
	log.level = st.cfg.logging.level;
	log.json = st.cfg.logging.json;
	rs_log_find_journal(&log);
	cmdline_log_source(&st, &log);
	rc = agentd_open(&a, &st.cfg, st.cfg.agent.socket, true, &log, &e);
	if (!rc) {
		a.config_file = st.file;
		a.as_read = &st.as_read;
		rc = agentd_control_start(&a, &e);
		if (rc)
			agentd_stop(&a, 0);
		else if (rs_notify_on(&notify))
			a.notify = &notify;
		agentd_serve(&a);
	}
	rs_notify_close(&notify);
	rs_config_close(&st.cfg);
	if (rc)
		fprintf(stderr, "%sreduction-agent: %s\n", rs_log_priority(RS_LOG_ERROR, log.journal), e.msg);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
