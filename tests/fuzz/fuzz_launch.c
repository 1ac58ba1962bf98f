/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of launchers: the lines of the input are NAME=value; a name may be
 * abbreviated to its first letters, as A= for the first known one. For any values the
 * result is consistent, or the error names a variable. */
#include "tests/fuzz/fuzz.h"

#include "config/launch.h"

#include <string.h>

static const char *const names[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_LOCALID",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NODEID",
    "SLURM_STEP_NUM_NODES",
    "SLURM_NNODES",
    "SLURM_HET_SIZE",
    "SLURM_STEP_NODELIST",
    "SLURMD_NODENAME",
    "SLURM_STEP_ID",
    "SLURM_STEPID",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_LOCAL_RANK",
    "PMI_LOCAL_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
};
enum { NAMES = sizeof names / sizeof names[0] };

struct environment {
	char *value[NAMES]; /* NULL: not set */
};

static const char *get(void *ctx, const char *name)
{
	const struct environment *env = ctx;

	for (unsigned i = 0; i < NAMES; i++)
		if (strcmp(names[i], name) == 0)
			return env->value[i];
	must(!"the list of names above is complete");
	return NULL;
}

static void read_line(struct environment *env, char *line)
{
	unsigned i;

	if (line[0] >= 'A' && line[0] < 'A' + NAMES && line[1] == '=') {
		env->value[line[0] - 'A'] = line + 2;
		return;
	}
	for (i = 0; i < NAMES; i++) {
		size_t n = strlen(names[i]);

		if (strncmp(line, names[i], n) == 0 && line[n] == '=')
			env->value[i] = line + n + 1;
	}
}

static void check_found(const struct rs_launch *l)
{
	must(l->rank >= -1 && l->world_size >= -1 && l->local_rank >= -1 && l->local_world_size >= -1);
	must(l->node_rank >= -1 && l->nodes >= -1 && l->generation >= -1);
	must(l->world_size != 0 && l->local_world_size != 0 && l->nodes != 0);
	must(l->world_size < 0 || l->rank < l->world_size);
	must(l->local_world_size < 0 || l->local_rank < l->local_world_size);
	must(l->nodes < 0 || l->node_rank < l->nodes);
	must(l->world_size < 0 || l->local_world_size <= l->world_size);
	must(!l->nodes_said || (l->node_rank >= 0 && l->nodes > 0));
	must(strcmp(l->source, "none") != 0 ? l->rank >= 0 && l->world_size > 0
					    : l->rank < 0 && l->world_size < 0 && l->generation < 0);
}

static bool is_untouched(const struct rs_launch *l)
{
	return l->rank == 7 && l->world_size == 7 && l->local_rank == 7 && l->local_world_size == 7 &&
	       l->node_rank == 7 && l->nodes == 7 && l->generation == 7 && strcmp(l->source, "x") == 0 &&
	       !l->nodes_said;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_launch l = {7, 7, 7, 7, 7, 7, 7, "x", false};
	struct environment env = {0};
	struct rs_err e = {0};
	char *text = malloc(size + 1), *rest = text, *line;
	int rc;

	must(text);
	memcpy(text, data, size);
	text[size] = '\0';
	while ((line = strsep(&rest, "\n")))
		read_line(&env, line);
	rc = rs_launch_detect(&l, get, &env, &e);
	if (rc) {
		must(rc == RS_ECONFIG && e.code == rc && strstr(e.msg, "environment variable "));
		must(is_untouched(&l));
	} else {
		check_found(&l);
	}
	free(text);
	return 0;
}
