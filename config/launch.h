/* SPDX-License-Identifier: Apache-2.0 */
/* The place of this process in its job, from the environment of the launcher: torchrun
 * (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE,
 * TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_RUN_ID), Slurm (SLURM_PROCID, SLURM_NTASKS,
 * SLURM_LOCALID, ...), Open MPI (OMPI_COMM_WORLD_*), MPICH and Intel MPI (PMI_RANK,
 * PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS), other launchers with PMI (PMI_RANK,
 * PMI_SIZE). */
#ifndef RS_CONFIG_LAUNCH_H
#define RS_CONFIG_LAUNCH_H

#include "common/error.h"

#include <stdbool.h>
#include <stdint.h>

/* The place of a process; -1 where unknown. Invariant: rank < world_size, local_rank <
 * local_world_size <= world_size and node_rank < nodes, where both are known. */
struct rs_launch {
	int rank, world_size;
	int local_rank, local_world_size;
	int node_rank, nodes;
	int64_t generation; /* TORCHELASTIC_RESTART_COUNT; -1: none */
	const char *source; /* "torchrun", "slurm", "openmpi", "mpich", "pmi" or "none"; static storage */
	bool nodes_said;    /* node_rank and nodes come from the launcher, and are not derived from the ranks */
};

/* A lookup like getenv, so that tests need no environment. */
typedef const char *(*rs_getenv_fn)(void *ctx, const char *name);

/* Returns a variable (get == NULL: getenv), or NULL if it is unset or empty: launch
 * scripts often pass unknown values as empty ones. */
const char *rs_launch_look_up(rs_getenv_fn get, void *ctx, const char *name);

/* Reads a variable that is a whole number from min to max; *ret is -1 if it is not set.
 * Errors: RS_ECONFIG naming the variable, its value and what was expected. */
int rs_launch_number(rs_getenv_fn get, void *ctx, const char *name, int64_t min, int64_t max, int64_t *ret,
		     struct rs_err *e);

/* Fills *ret from the environment (get == NULL: getenv). An environment without such
 * variables is no error (all -1, source "none"). Errors: RS_ECONFIG naming the variable,
 * its value and what was expected. */
int rs_launch_detect(struct rs_launch *ret, rs_getenv_fn get, void *ctx, struct rs_err *e);

/* Checks that a process whose rank nobody says is alone, as a program without a launcher
 * is. Errors: RS_ECONFIG naming the variable that shows a launcher of several processes.
 * Each of them would otherwise train alone. */
int rs_launch_check_alone(rs_getenv_fn get, void *ctx, struct rs_err *e);

#endif
