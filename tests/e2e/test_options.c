/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* Where reduction_open takes its settings from, and what it says about wrong ones. No reducer is there: settings that
 * are accepted end with the connect timeout, whose sentence names the reducer and so the configuration that was used.
 */
#include "agent/include/reduction.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCEPTED REDUCTION_ETIMEOUT, "reducer listed at 127.0.0.1:1"

/* Rows differ from {0, -1 or NULL everywhere}; env: NAME=VALUE. */
static const struct {
	const char *name;
	const char *env[6];
	const char *job, *agent;
	int rank, world_size, local_rank, local_world_size; /* one more than the option: 0 is -1 */
	long long generation;                               /* likewise */
	int code;
	const char *says;
} rows[] = {
    {"defaults", {0}, NULL, NULL, 0, 0, 0, 0, 0, ACCEPTED},
    {"torchrun", {"RANK=3", "WORLD_SIZE=4"}, NULL, NULL, 0, 0, 0, 0, 0, ACCEPTED},
    {"REDUCTION_ goes before the launcher",
     {"RANK=0", "WORLD_SIZE=2", "REDUCTION_RANK=4"},
     NULL,
     NULL,
     0,
     0,
     0,
     0,
     0,
     REDUCTION_EINVAL,
     "rank 4 is not a rank of 2"},
    {"options go before both",
     {"RANK=0", "WORLD_SIZE=2", "REDUCTION_RANK=4", "REDUCTION_WORLD_SIZE=5"},
     NULL,
     NULL,
     9,
     7,
     0,
     0,
     0,
     REDUCTION_EINVAL,
     "rank 8 is not a rank of 6"},
    {"a world without a rank", {"REDUCTION_WORLD_SIZE=2"}, NULL, NULL, 0, 0, 0, 0, 0, REDUCTION_EINVAL, "set RANK"},
    {"no number", {"REDUCTION_RANK=two"}, NULL, NULL, 0, 0, 0, 0, 0, REDUCTION_ECONFIG, "REDUCTION_RANK is \"two\""},
    {"too large", {"REDUCTION_WORLD_SIZE=5000"}, NULL, NULL, 0, 0, 0, 0, 0, REDUCTION_ECONFIG, "1 to 4096"},
    {"the launcher's number", {"RANK=x", "WORLD_SIZE=2"}, NULL, NULL, 0, 0, 0, 0, 0, REDUCTION_ECONFIG, "RANK"},
    {"a negative option", {0}, NULL, NULL, -4, 0, 0, 0, 0, REDUCTION_EINVAL, "rank is -5"},
    {"a world of none", {0}, NULL, NULL, 0, 1, 0, 0, 0, REDUCTION_EINVAL, "world_size is 0"},
    {"generation", {"REDUCTION_GENERATION=-2"}, NULL, NULL, 0, 0, 0, 0, 0, REDUCTION_ECONFIG, "REDUCTION_GENERATION"},
    {"large generation", {0}, NULL, NULL, 0, 0, 0, 0, 4294967297, REDUCTION_EINVAL, "generation is 4294967296"},
    {"job", {"REDUCTION_JOB=a b"}, NULL, NULL, 0, 0, 0, 0, 0, REDUCTION_EINVAL, "\"a b\" is not a job name"},
    {"job option", {"REDUCTION_JOB=a b"}, "ab", NULL, 0, 0, 0, 0, 0, ACCEPTED},
    {"empty variables are not set",
     {"REDUCTION_JOB=", "REDUCTION_RANK=", "RANK="},
     NULL,
     NULL,
     0,
     0,
     0,
     0,
     0,
     ACCEPTED},
    {"agent's place", {0}, NULL, "/nonexistent/agent", 1, 3, 0, 0, 0, REDUCTION_ECONFIG, "set LOCAL_RANK"},
    {"odd nodes", {0}, NULL, "/nonexistent/agent", 1, 4, 1, 3, 0, REDUCTION_ECONFIG, "3 processes are not nodes of 2"},
    {"local rank", {0}, NULL, "/nonexistent/agent", 1, 5, 3, 3, 0, REDUCTION_EINVAL, "local rank 2 is not a rank of 2"},
    {"local rank of direct", {0}, NULL, "direct", 1, 5, 3, 3, 0, ACCEPTED},
    {"direct by environment", {"REDUCTION_AGENT=direct"}, NULL, NULL, 0, 0, 0, 0, 0, ACCEPTED},
    {"the launcher's node",
     {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"},
     NULL,
     NULL,
     0,
     0,
     0,
     0,
     0,
     REDUCTION_ETIMEOUT,
     "local rank 0, whose process serves this node (none does with REDUCTION_AGENT=direct): gave up"},
    {"direct on the launcher's node",
     {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"},
     NULL,
     "direct",
     0,
     0,
     0,
     0,
     0,
     ACCEPTED},
    {"a node of each process",
     {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2"},
     NULL,
     NULL,
     0,
     0,
     0,
     0,
     0,
     ACCEPTED},
    {"nodes that are concluded",
     {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"},
     NULL,
     NULL,
     0,
     0,
     0,
     0,
     0,
     ACCEPTED},
    {"nodes that are concluded, as asked for",
     {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "REDUCTION_AGENT=node"},
     NULL,
     NULL,
     0,
     0,
     0,
     0,
     0,
     REDUCTION_ETIMEOUT,
     "@reduction/local-rank-0/default/"},
    {"a node without a place", {0}, NULL, "node", 1, 3, 0, 0, 0, REDUCTION_ECONFIG, "set LOCAL_RANK"},
    {"agent by environment",
     {"REDUCTION_AGENT=/nonexistent/agent"},
     NULL,
     NULL,
     0,
     0,
     0,
     0,
     0,
     0,
     "/nonexistent/agent"},
};

static const char *const cleared[] = {
    "REDUCTION_JOB",
    "REDUCTION_AGENT",
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
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
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
	for (size_t k = 0; k < sizeof rows[i].env / sizeof *rows[i].env && rows[i].env[k]; k++)
		putenv((char *)rows[i].env[k]);
	opt.job = rows[i].job;
	opt.agent = rows[i].agent;
	opt.rank = rows[i].rank - 1;
	opt.world_size = rows[i].world_size - 1;
	opt.local_rank = rows[i].local_rank - 1;
	opt.local_world_size = rows[i].local_world_size - 1;
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
