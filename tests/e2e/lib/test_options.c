/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* Where reduction_open takes its settings from, and what it says about wrong ones. No
 * reducer is there: settings that are accepted end with the connect timeout, whose
 * sentence names the reducer and so the configuration that was used.
 */
#include "agent/lib/include/reduction.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCEPTED    .code = REDUCTION_ETIMEOUT, .says = "reducer listed at 127.0.0.1:1"
#define NODE_OF_TWO "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"

/* What differs from the defaults. env: NAME=VALUE. The numbers are one more than the
 * options: 0 is -1. */
static const struct {
	const char *name;
	const char *env[6];
	const char *job, *agent_socket, *wire;
	int mode, rank, world_size, local_rank, local_world_size, node_rank, nodes, deterministic;
	long long generation;
	int code; /* 0: any error */
	const char *says;
} rows[] = {
    {"defaults", ACCEPTED},
    {"torchrun", {"RANK=3", "WORLD_SIZE=4"}, ACCEPTED},
    {"ranks that nothing tells from those of another training",
     {NODE_OF_TWO, "REDUCTION_RUN="},
     .code = REDUCTION_ECONFIG,
     .says = "Set REDUCTION_RUN to the same text on all its ranks"},
    {"MPICH and Intel MPI",
     {"PMI_RANK=2", "PMI_SIZE=3", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2", "REDUCTION_RANK=3"},
     .code = REDUCTION_EINVAL,
     .says = "rank 3 is not a rank of 3"},
    {"a launcher whose ranks are unknown",
     {"PMI_SIZE=3"},
     .code = REDUCTION_ECONFIG,
     .says = "PMI_SIZE is 3, so a launcher has started several processes"},
    {"sbatch without srun",
     {"SLURM_PROCID=0", "SLURM_NTASKS=4"},
     .code = REDUCTION_ECONFIG,
     .says = "SLURM_NTASKS is 4, but srun has not started this process"},
    {"a process that trains alone beside them",
     {"SLURM_PROCID=0", "SLURM_NTASKS=4", "REDUCTION_WORLD_SIZE=1"},
     ACCEPTED},
    {"REDUCTION_ goes before the launcher",
     {"RANK=0", "WORLD_SIZE=2", "REDUCTION_RANK=4"},
     .code = REDUCTION_EINVAL,
     .says = "rank 4 is not a rank of 2"},
    {"options go before both",
     {"RANK=0", "WORLD_SIZE=2", "REDUCTION_RANK=4", "REDUCTION_WORLD_SIZE=5"},
     .rank = 9,
     .world_size = 7,
     .code = REDUCTION_EINVAL,
     .says = "rank 8 is not a rank of 6"},
    {"a world without a rank", {"REDUCTION_WORLD_SIZE=2"}, .code = REDUCTION_EINVAL, .says = "set RANK"},
    {"no number", {"REDUCTION_RANK=two"}, .code = REDUCTION_ECONFIG, .says = "REDUCTION_RANK is \"two\""},
    {"too large", {"REDUCTION_WORLD_SIZE=5000"}, .code = REDUCTION_ECONFIG, .says = "1 to 4096"},
    {"the launcher's number", {"RANK=x", "WORLD_SIZE=2"}, .code = REDUCTION_ECONFIG, .says = "RANK"},
    {"a negative option", .rank = -4, .code = REDUCTION_EINVAL, .says = "rank is -5"},
    {"a world of none", .world_size = 1, .code = REDUCTION_EINVAL, .says = "world_size is 0"},
    {"generation", {"REDUCTION_GENERATION=-2"}, .code = REDUCTION_ECONFIG, .says = "REDUCTION_GENERATION"},
    {"large generation", .generation = 4294967297, .code = REDUCTION_EINVAL, .says = "generation is 4294967296"},
    {"job", {"REDUCTION_JOB=a b"}, .code = REDUCTION_EINVAL, .says = "\"a b\" is not a job name"},
    {"job option", {"REDUCTION_JOB=a b"}, .job = "ab", ACCEPTED},
    {"empty variables are not set",
     {"REDUCTION_JOB=", "REDUCTION_RANK=", "RANK=", "REDUCTION_MODE=", "REDUCTION_AGENT="},
     ACCEPTED},
    {"agent's place", .agent_socket = "/nonexistent/agent", .rank = 1, .world_size = 3, .code = REDUCTION_ECONFIG,
     .says = "set LOCAL_RANK"},
    {"odd nodes", .agent_socket = "/nonexistent/agent", .rank = 1, .world_size = 4, .local_rank = 1,
     .local_world_size = 3, .code = REDUCTION_ECONFIG, .says = "3 processes are not nodes of 2"},
    {"local rank", .agent_socket = "/nonexistent/agent", .rank = 1, .world_size = 5, .local_rank = 3,
     .local_world_size = 3, .code = REDUCTION_EINVAL, .says = "local rank 2 is not a rank of 2"},
    {"nodes of different size", .agent_socket = "/nonexistent/agent", .rank = 1, .world_size = 4, .local_rank = 1,
     .local_world_size = 3, .node_rank = 1, .nodes = 3, .says = "/nonexistent/agent"},
    {"a node that is not there", .rank = 1, .world_size = 4, .node_rank = 3, .nodes = 3, .code = REDUCTION_EINVAL,
     .says = "node_rank is 2 and nodes is 2: a node of 1 to 3"},
    {"a node without the number of nodes", .rank = 1, .world_size = 4, .node_rank = 1, .code = REDUCTION_EINVAL,
     .says = "node_rank is 0 and nodes is -1"},
    {"deterministic", .deterministic = 3, .code = REDUCTION_EINVAL, .says = "deterministic is 2, 0 to 1"},
    {"deterministic by a variable",
     {"REDUCTION_DETERMINISTIC=yes"},
     .code = REDUCTION_ECONFIG,
     .says = "REDUCTION_DETERMINISTIC is \"yes\""},
    {"local rank of direct", .mode = REDUCTION_MODE_DIRECT + 1, .rank = 1, .world_size = 5, .local_rank = 3,
     .local_world_size = 3, ACCEPTED},
    {"the launcher's node",
     {NODE_OF_TWO},
     .code = REDUCTION_ETIMEOUT,
     .says = "local rank 0, whose process serves this node (none does with REDUCTION_MODE=direct): gave up"},
    {"direct on the launcher's node", {NODE_OF_TWO}, .mode = REDUCTION_MODE_DIRECT + 1, ACCEPTED},
    {"a node of each process",
     {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2"},
     ACCEPTED},
    {"nodes that are concluded", {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, ACCEPTED},
    {"nodes that are concluded, as asked for",
     {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "REDUCTION_MODE=node"},
     .code = REDUCTION_ETIMEOUT,
     .says = "@reduction/local-rank-0/default/"},
    {"a node without a place", .mode = REDUCTION_MODE_NODE + 1, .rank = 1, .world_size = 3, .code = REDUCTION_ECONFIG,
     .says = "set LOCAL_RANK"},

    /* encodings */
    {"an encoding", {"REDUCTION_WIRE=up=fp8,down=bf16"}, ACCEPTED},
    {"no encoding",
     {"REDUCTION_WIRE=fp4"},
     .code = REDUCTION_ECONFIG,
     .says = "REDUCTION_WIRE: found \"fp4\", expected same, bf16, fp8, int8, fp16 or int4, or as up=fp8,down=bf16,"},
    {"an encoding option goes before the environment", {"REDUCTION_WIRE=fp4"}, .wire = "int8", ACCEPTED},
    {"an empty encoding option does not",
     {"REDUCTION_WIRE=fp4"},
     .wire = "",
     .code = REDUCTION_ECONFIG,
     .says = "REDUCTION_WIRE: found \"fp4\""},
    {"no encoding in an option",
     {"REDUCTION_WIRE=fp8"},
     .wire = "up",
     .code = REDUCTION_EINVAL,
     .says = "wire: found \"up\""},

    /* modes */
    {"direct by environment", {NODE_OF_TWO, "REDUCTION_MODE=direct"}, ACCEPTED},
    {"node by environment",
     {NODE_OF_TWO, "REDUCTION_MODE=node"},
     .code = REDUCTION_ETIMEOUT,
     .says = "@reduction/local-rank-0/default/"},
    {"agent by environment",
     {"REDUCTION_MODE=agent"},
     .code = REDUCTION_ETIMEOUT,
     .says = "no agent is listening on /nonexistent/default"},
    {"auto by environment", {"REDUCTION_MODE=auto"}, ACCEPTED},
    {"a socket by environment is mode agent", {"REDUCTION_AGENT=/nonexistent/agent"}, .says = "/nonexistent/agent"},
    {"also with auto",
     {"REDUCTION_AGENT=/nonexistent/agent", "REDUCTION_MODE=auto"},
     .says = "no agent is listening on /nonexistent/agent"},
    {"an unknown mode",
     {"REDUCTION_MODE=Direct"},
     .code = REDUCTION_ECONFIG,
     .says = "REDUCTION_MODE is \"Direct\", auto, agent, node or direct was expected"},
    {"a mode in place of a socket",
     {"REDUCTION_AGENT=direct"},
     .code = REDUCTION_ECONFIG,
     .says = "REDUCTION_AGENT is \"direct\", the path of an agent's socket was expected: to choose a mode, set "
	     "REDUCTION_MODE"},
    {"another mode in place of a socket",
     {"REDUCTION_AGENT=node", "REDUCTION_MODE=node"},
     .code = REDUCTION_ECONFIG,
     .says = "REDUCTION_AGENT is \"node\""},
    {"a contradiction in the environment",
     {"REDUCTION_AGENT=/nonexistent/agent", "REDUCTION_MODE=direct"},
     .code = REDUCTION_ECONFIG,
     .says = "REDUCTION_MODE is direct, which uses no agent, but REDUCTION_AGENT is \"/nonexistent/agent\": leave one"},
    {"a mode option", .mode = REDUCTION_MODE_AGENT + 1, .says = "no agent is listening on /nonexistent/default"},
    {"a socket option", .agent_socket = "/nonexistent/agent", .says = "no agent is listening on /nonexistent/agent"},
    {"a mode and a socket option", .mode = REDUCTION_MODE_AGENT + 1, .agent_socket = "/nonexistent/agent",
     .says = "no agent is listening on /nonexistent/agent"},
    {"auto and a socket option", .mode = REDUCTION_MODE_AUTO + 1, .agent_socket = "/nonexistent/agent",
     .says = "no agent is listening on /nonexistent/agent"},
    {"an empty socket option", .agent_socket = "", ACCEPTED},
    {"a mode option that is none", .mode = 6, .code = REDUCTION_EINVAL, .says = "mode is 5, -1 to 3 were expected"},
    {"a negative mode option", .mode = -2, .code = REDUCTION_EINVAL, .says = "mode is -3, -1 to 3 were expected"},
    {"a mode in place of a socket option", .agent_socket = "auto", .code = REDUCTION_EINVAL,
     .says = "agent_socket is \"auto\", the path of an agent's socket was expected: to choose a mode, set mode"},
    {"a contradiction of options", .mode = REDUCTION_MODE_NODE + 1, .agent_socket = "/nonexistent/agent",
     .code = REDUCTION_EINVAL,
     .says = "mode is node, which uses no agent, but agent_socket is \"/nonexistent/agent\": leave one of them out"},
    {"a mode option goes before the environment's mode",
     {"REDUCTION_MODE=agent"},
     .mode = REDUCTION_MODE_DIRECT + 1,
     ACCEPTED},
    {"auto, too", {"REDUCTION_MODE=agent"}, .mode = REDUCTION_MODE_AUTO + 1, ACCEPTED},
    {"a mode option goes before the environment's socket",
     {"REDUCTION_AGENT=/nonexistent/agent"},
     .mode = REDUCTION_MODE_DIRECT + 1,
     ACCEPTED},
    {"a mode option uses the environment's socket",
     {"REDUCTION_AGENT=/nonexistent/agent", "REDUCTION_MODE=direct"},
     .mode = REDUCTION_MODE_AGENT + 1,
     .says = "no agent is listening on /nonexistent/agent"},
    {"a socket option goes before the environment",
     {"REDUCTION_MODE=direct"},
     .agent_socket = "/nonexistent/agent",
     .says = "no agent is listening on /nonexistent/agent"},
};

static const char *const cleared[] = {
    "REDUCTION_JOB",
    "REDUCTION_AGENT",
    "REDUCTION_MODE",
    "REDUCTION_WIRE",
    "REDUCTION_RANK",
    "REDUCTION_WORLD_SIZE",
    "REDUCTION_GENERATION",
    "REDUCTION_LOCAL_RANK",
    "REDUCTION_LOCAL_WORLD_SIZE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "REDUCTION_DETERMINISTIC",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMI_SIZE",
};

static bool run(size_t i)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;
	reduction_comm *comm = NULL;
	reduction_error err;
	bool ok;
	int rc;

	for (size_t k = 0; k < sizeof cleared / sizeof *cleared; k++)
		unsetenv(cleared[k]);
	setenv("REDUCTION_JOB", "default", 1);
	setenv("REDUCTION_RUN", "options", 1); /* else several ranks are refused */
	for (size_t k = 0; k < sizeof rows[i].env / sizeof *rows[i].env && rows[i].env[k]; k++)
		putenv((char *)rows[i].env[k]);
	opt.job = rows[i].job;
	opt.mode = (reduction_mode)(rows[i].mode - 1);
	opt.agent_socket = rows[i].agent_socket;
	opt.wire = rows[i].wire;
	opt.rank = rows[i].rank - 1;
	opt.world_size = rows[i].world_size - 1;
	opt.local_rank = rows[i].local_rank - 1;
	opt.local_world_size = rows[i].local_world_size - 1;
	opt.node_rank = rows[i].node_rank - 1;
	opt.nodes = rows[i].nodes - 1;
	opt.deterministic = rows[i].deterministic - 1;
	opt.generation = rows[i].generation - 1;
	opt.connect_timeout_ms = 30;
	rc = reduction_open(&comm, &opt, &err);
	ok = rc < 0 && rc == err.code && !comm && (!rows[i].code || rc == rows[i].code) &&
	     strstr(err.message, rows[i].says);
	printf("%s %s: %d %s\n", ok ? "ok  " : "FAIL", rows[i].name, rc, err.message);
	return ok;
}

int main(void)
{
	char path[] = "/tmp/reduction-options-XXXXXX";
	int fd = mkstemp(path);
	bool ok = fd >= 0;

	if (!ok)
		return 1;
	dprintf(fd, "reducers: [{id: listed, address: \"127.0.0.1:1\"}]\nagent: {socket: /nonexistent/default}\n");
	close(fd);
	setenv("REDUCTION_CONFIG", path, 1);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		ok = run(i) && ok;
	unlink(path);
	return ok ? 0 : 1;
}
