/* SPDX-License-Identifier: Apache-2.0 */
#include "config/launch.h"

#include "config/nodelist.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The variables of one launcher; NULL if it has none. In a list the first that is set
 * counts. */
struct launcher {
	const char *source;
	const char *sign; /* a variable that must be set too; NULL: none */
	const char *rank;
	const char *world_size[3];
	const char *local_rank;
	const char *local_world_size;
	const char *tasks_per_node[2]; /* Slurm's "2(x3),1": the tasks of each node */
	const char *tasks_limit;       /* most tasks of a node; the exact number if it matches the total */
	const char *node_rank;
	const char *nodes[2];
	const char *generation;
};

/* The launchers in order of precedence: the first whose rank and world size are set
 * counts. torchrun may run under the others, and mpirun under Slurm; then the outer
 * variables describe the tasks of the outer launcher. srun sets PMI_RANK too, and knows
 * more than PMI does; but MPICH's own launcher, which sets MPI_LOCALRANKID, may run under
 * srun. */
static const struct launcher launchers[] = {
    {
	.source = "torchrun",
	.rank = "RANK",
	.world_size = {"WORLD_SIZE"},
	.local_rank = "LOCAL_RANK",
	.local_world_size = "LOCAL_WORLD_SIZE",
	.node_rank = "GROUP_RANK",
	.nodes = {"GROUP_WORLD_SIZE"},
	.generation = "TORCHELASTIC_RESTART_COUNT",
    },
    {
	.source = "openmpi",
	.rank = "OMPI_COMM_WORLD_RANK",
	.world_size = {"OMPI_COMM_WORLD_SIZE"},
	.local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
	.local_world_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    {
	.source = "mpich",
	.sign = "MPI_LOCALRANKID",
	.rank = "PMI_RANK",
	.world_size = {"PMI_SIZE"},
	.local_rank = "MPI_LOCALRANKID",
	.local_world_size = "MPI_LOCALNRANKS",
    },
    {
	.source = "slurm",
	.rank = "SLURM_PROCID",
	.world_size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
	.local_rank = "SLURM_LOCALID",
	.tasks_per_node = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"},
	.tasks_limit = "SLURM_NTASKS_PER_NODE",
	.node_rank = "SLURM_NODEID",
	.nodes = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
    },
    {
	.source = "pmi",
	.rank = "PMI_RANK",
	.world_size = {"PMI_SIZE"},
	.local_rank = "PMI_LOCAL_RANK",
	.local_world_size = "PMI_LOCAL_SIZE",
    },
};

/* Variables that launchers of several processes set, also those whose ranks are not
 * read. */
static const char *const sizes[] = {
    "WORLD_SIZE",         "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",     "MV2_COMM_WORLD_SIZE",
    "JSM_NAMESPACE_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS",
};
static const char *const ranks[] = {
    "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK", "PALS_RANKID", "PMIX_RANK",
};
/* One of these is set in the steps of srun, and not in the script of sbatch, where
 * SLURM_PROCID is 0. */
static const char *const slurm_step[] = {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"};

/* The source of variables, and where errors go. */
struct environment {
	rs_getenv_fn get;
	void *ctx;
	struct rs_err *e;
};

const char *rs_launch_look_up(rs_getenv_fn get, void *ctx, const char *name)
{
	const char *value = get ? get(ctx, name) : getenv(name);

	return value && value[0] ? value : NULL;
}

/* name NULL: the launcher has no such variable. */
static const char *look_up(const struct environment *env, const char *name)
{
	return name ? rs_launch_look_up(env->get, env->ctx, name) : NULL;
}

/* Returns the value of the first of n names that is set; NULL if none is. */
static const char *first_set(const struct environment *env, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (look_up(env, names[i]))
			return names[i];
	return NULL;
}

#define FIRST_SET(env, names) first_set((env), (names), COUNT(names))

int rs_launch_number(rs_getenv_fn get, void *ctx, const char *name, int64_t min, int64_t max, int64_t *ret,
		     struct rs_err *e)
{
	const char *text = rs_launch_look_up(get, ctx, name);
	char *end;
	long long v;

	*ret = -1;
	if (!text)
		return RS_OK;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || *end || text[0] < '0' || text[0] > '9' || v < min || v > max)
		return rs_fail(e, RS_ECONFIG,
			       "environment variable %s: found \"%.40s\", expected a whole number from %" PRId64
			       " to %" PRId64,
			       name, text, min, max);
	*ret = v;
	return RS_OK;
}

/* Does the same; -1 if name is NULL. */
static int read_number(const struct environment *env, const char *name, int64_t min, int64_t max, int64_t *ret)
{
	*ret = -1;
	return name ? rs_launch_number(env->get, env->ctx, name, min, max, ret, env->e) : RS_OK;
}

/* A variable and the field for its value; all fields are -1 while they are unknown. */
struct field {
	const char *name;
	int min;
	int *ret;
};

static int read_fields(const struct environment *env, const struct field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int64_t v;
		int rc = read_number(env, fields[i].name, fields[i].min, INT_MAX, &v);

		if (rc)
			return rc;
		*fields[i].ret = (int)v;
	}
	return RS_OK;
}

/* Returns the entry of node `node` in Slurm's list "2(x3),1" (two tasks on each of three
 * nodes, then one); 0 if the list is malformed or too short. */
static int tasks_on_node(const char *list, int node)
{
	while (*list >= '1' && *list <= '9') {
		char *end;
		long tasks = strtol(list, &end, 10), times = 1;

		if (strncmp(end, "(x", 2) == 0) {
			times = strtol(end + 2, &end, 10);
			if (*end++ != ')')
				return 0;
		}
		if (tasks > INT_MAX || times < 1)
			return 0;
		if (node < times)
			return (int)tasks;
		node -= (int)times;
		if (*end != ',')
			return 0;
		list = end + 1;
	}
	return 0;
}

/* Returns the position of this node in Slurm's lists. That is node_rank, except in a step
 * over several components of a heterogeneous job, where the lists are sorted by the names
 * of nodes, and node_rank is not. */
static int place_in_lists(const struct environment *env, int node_rank)
{
	const char *nodes = look_up(env, "SLURM_STEP_NODELIST"), *name = look_up(env, "SLURMD_NODENAME");
	struct nodelist list;
	struct rs_err e;
	int place;

	if (!look_up(env, "SLURM_HET_SIZE") || !nodes || !name || nodelist_read(&list, "", nodes, &e))
		return node_rank;
	place = nodelist_find(&list, name);
	nodelist_close(&list);
	return place >= 0 ? place : node_rank;
}

/* Fills in what Slurm says about the number of tasks on this node; ret has all else. */
static int read_tasks_per_node(const struct environment *env, const struct launcher *l, struct rs_launch *ret)
{
	const char *name = FIRST_SET(env, l->tasks_per_node);
	const char *list = look_up(env, name);
	int64_t limit;
	int rc;

	if (list && ret->node_rank >= 0) {
		ret->local_world_size = tasks_on_node(list, place_in_lists(env, ret->node_rank));
		if (ret->local_world_size > 0)
			return RS_OK;
		return rs_fail(env->e, RS_ECONFIG,
			       "environment variable %s: found \"%.40s\", expected a list such as 2(x3),1 that covers "
			       "node %d",
			       name, list, ret->node_rank);
	}
	rc = read_number(env, l->tasks_limit, 1, INT_MAX, &limit);
	if (rc == RS_OK && limit * ret->nodes == ret->world_size)
		ret->local_world_size = (int)limit;
	return rc;
}

/* Two values: the first must be below the second, or at most equal to it. -1 where
 * unknown. */
struct order {
	const char *name;
	int value;
	const char *whole_name;
	int whole;
	bool equal;
};

static int check_order(const struct environment *env, const struct order *orders, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct order *o = &orders[i];
		int most = o->equal ? o->whole : o->whole - 1;

		if (o->value >= 0 && o->whole >= 0 && o->value > most)
			return rs_fail(env->e, RS_ECONFIG,
				       "environment variable %s: found %d, expected at most %d since %s is %d", o->name,
				       o->value, most, o->whole_name, o->whole);
	}
	return RS_OK;
}

/* Derives node numbers from the ranks, if ranks are assigned node by node in equal
 * parts. */
static int derive_nodes(const struct environment *env, const struct launcher *l, struct rs_launch *ret)
{
	int local = ret->local_world_size;

	if (local < 1 || ret->world_size % local)
		return RS_OK;
	if (ret->nodes < 0) {
		ret->nodes = ret->world_size / local;
		if (ret->node_rank >= ret->nodes)
			return rs_fail(env->e, RS_ECONFIG,
				       "environment variable %s: found %d, expected at most %d since %d ranks with %d "
				       "on each node are %d nodes",
				       l->node_rank, ret->node_rank, ret->nodes - 1, ret->world_size, local,
				       ret->nodes);
	}
	if (ret->node_rank < 0 && ret->nodes == ret->world_size / local &&
	    (ret->local_rank < 0 || ret->rank % local == ret->local_rank))
		ret->node_rank = ret->rank / local;
	return RS_OK;
}

static int read_launcher(const struct environment *env, const struct launcher *l, struct rs_launch *ret)
{
	const char *world = FIRST_SET(env, l->world_size), *nodes = FIRST_SET(env, l->nodes);
	const char *local = l->local_world_size ? l->local_world_size : FIRST_SET(env, l->tasks_per_node);
	const struct field fields[] = {
	    {l->rank, 0, &ret->rank},
	    {world, 1, &ret->world_size},
	    {l->local_rank, 0, &ret->local_rank},
	    {l->local_world_size, 1, &ret->local_world_size},
	    {l->node_rank, 0, &ret->node_rank},
	    {nodes, 1, &ret->nodes},
	};
	int rc;

	rc = read_fields(env, fields, COUNT(fields));
	if (rc == RS_OK)
		rc = read_number(env, l->generation, 0, INT64_MAX, &ret->generation);
	if (rc == RS_OK && !l->local_world_size)
		rc = read_tasks_per_node(env, l, ret);
	if (rc)
		return rc;
	if (!local)
		local = l->tasks_limit;
	const struct order orders[] = {
	    {l->rank, ret->rank, world, ret->world_size, false},
	    {l->local_rank, ret->local_rank, local, ret->local_world_size, false},
	    {local, ret->local_world_size, world, ret->world_size, true},
	    {l->node_rank, ret->node_rank, nodes, ret->nodes, false},
	};
	rc = check_order(env, orders, COUNT(orders));
	if (rc)
		return rc;
	ret->source = l->source;
	ret->nodes_said = ret->node_rank >= 0 && ret->nodes >= 0;
	return derive_nodes(env, l, ret);
}

/* Returns the first variable that says that a launcher has started several processes, or
 * may have; NULL: none. */
static const char *find_others(const struct environment *env)
{
	for (size_t i = 0; i < COUNT(sizes); i++) {
		const char *size = look_up(env, sizes[i]);

		if (size && strcmp(size, "1") != 0)
			return sizes[i];
	}
	/* a process that is alone may have a rank too, but then the launcher says that it
	 * is */
	return FIRST_SET(env, sizes) ? NULL : FIRST_SET(env, ranks);
}

/* Returns whether this is the script of sbatch, of which there is one for all tasks. */
static bool is_batch_script(const struct environment *env, const struct launcher *l)
{
	const char *rank = look_up(env, l->rank);

	return strcmp(l->source, "slurm") == 0 && strcmp(rank, "0") == 0 && !FIRST_SET(env, slurm_step);
}

static bool is_started_by(const struct environment *env, const struct launcher *l)
{
	return (!l->sign || look_up(env, l->sign)) && look_up(env, l->rank) && FIRST_SET(env, l->world_size) &&
	       !is_batch_script(env, l);
}

int rs_launch_check_alone(rs_getenv_fn get, void *ctx, struct rs_err *e)
{
	const struct environment env = {.get = get, .ctx = ctx, .e = e};
	const char *others = find_others(&env);

	if (!others)
		return RS_OK;
	if (strncmp(others, "SLURM_", 6) == 0)
		return rs_fail(e, RS_ECONFIG,
			       "environment variable %s is %.20s, but srun has not started this process: start the "
			       "training with srun, torchrun or mpirun, or set RANK and WORLD_SIZE for each process",
			       others, look_up(&env, others));
	return rs_fail(e, RS_ECONFIG,
		       "environment variable %s is %.20s, so a launcher has started several processes, but it does not "
		       "say which one of how many this is: set REDUCTION_RANK and REDUCTION_WORLD_SIZE for each "
		       "process (of a process that trains alone: 0 and 1)",
		       others, look_up(&env, others));
}

int rs_launch_detect(struct rs_launch *ret, rs_getenv_fn get, void *ctx, struct rs_err *e)
{
	struct environment env = {.get = get, .ctx = ctx, .e = e};
	struct rs_launch launch = {.rank = -1,
				   .world_size = -1,
				   .local_rank = -1,
				   .local_world_size = -1,
				   .node_rank = -1,
				   .nodes = -1,
				   .generation = -1,
				   .source = "none"};

	for (size_t i = 0; i < COUNT(launchers); i++) {
		const struct launcher *l = &launchers[i];

		if (is_started_by(&env, l)) {
			int rc = read_launcher(&env, l, &launch);

			if (rc)
				return rc;
			break;
		}
	}
	*ret = launch;
	return RS_OK;
}
