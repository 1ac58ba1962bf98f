/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators. XLA makes one for each set of devices that has a collective, by
 * MPIABI_Comm_split of all processes. The happy path: an all-reduce tells all ranks the
 * colors and keys; ranks of one color form a group, whose job is opened unless it is that
 * of all ranks. Failure modes: a process with several devices, whose keys are not 0 to
 * size - 1; then the communicator is broken, since XLA ignores errors here. */
#include "agent/jax/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a rank tells in MPIABI_Comm_split. */
struct split {
	int64_t color, key, rank;
};

static bool is_group(const struct jax_group *g, const int *members, int size)
{
	return g->size == size && memcmp(g->members, members, (size_t)size * sizeof members[0]) == 0;
}

/* Writes the 16 digits of a group's name: FNV-1a of its members. */
static void print_digits(const int *members, int size, char ret[17])
{
	uint64_t hash = 0xcbf29ce484222325;

	for (int i = 0; i < size; i++)
		for (int shift = 0; shift < 32; shift += 8)
			hash = (hash ^ ((uint32_t)members[i] >> shift & 0xff)) * 0x100000001b3;
	snprintf(ret, 17, "%016" PRIx64, hash);
}

/* Opens the job of a group. Its ranks talk to the reducers themselves, since a node may
 * have any number of them. */
static int open_group(struct jax_group *g)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;
	char digits[17];
	reduction_error e;

	if (g->size == 1)
		return JAX_SUCCESS;
	print_digits(g->members, g->size, digits);
	for (int i = 0; i < g->size; i++)
		if (g->members[i] == jax_state.world.rank)
			opt.rank = i;
	opt.world_size = g->size;
	opt.run = jax_state.run;
	opt.group = digits;
	opt.mode = REDUCTION_MODE_DIRECT;
	return reduction_open(&g->comm, &opt, &e) ? jax_fail_error("opening a group of processes", &e) : JAX_SUCCESS;
}

struct jax_group *jax_group_of(const int *members, int size)
{
	struct jax_group *g;
	bool closing;

	pthread_mutex_lock(&jax_state.lock);
	for (g = jax_state.groups; g && !is_group(g, members, size); g = g->next)
		;
	pthread_mutex_unlock(&jax_state.lock);
	if (g)
		return g;
	g = calloc(1, sizeof *g + (size_t)size * sizeof members[0]);
	if (!g) {
		jax_fail("out of memory for a communicator");
		return NULL;
	}
	g->size = size;
	memcpy(g->members, members, (size_t)size * sizeof members[0]);
	if (open_group(g)) {
		free(g);
		return NULL;
	}
	pthread_mutex_lock(&jax_state.lock);
	g->next = jax_state.groups;
	jax_state.groups = g;
	closing = jax_state.world.broken[0] != '\0';
	pthread_mutex_unlock(&jax_state.lock);
	if (closing) {
		jax_fail("the job was closed while a group of processes was opened");
		return NULL;
	}
	return g;
}

static void break_comm(struct jax_comm *c, const char *why)
{
	if (!c->broken[0])
		snprintf(c->broken, sizeof c->broken, "%.507s", why);
}

/* Lets all calls fail, and those in progress end. */
static void end_calls(const char *why)
{
	for (struct jax_comm *c = jax_state.comms; c; c = c->next)
		break_comm(c, why);
	break_comm(&jax_state.world, why);
	for (struct jax_group *g = jax_state.groups; g && jax_state.calls; g = g->next)
		if (g->comm)
			reduction_abort(g->comm, why, NULL);
	while (jax_state.calls)
		pthread_cond_wait(&jax_state.idle, &jax_state.lock);
}

void jax_close_all(const char *why)
{
	struct jax_group *g, *next;

	pthread_mutex_lock(&jax_state.lock);
	end_calls(why);
	for (struct jax_comm *c = jax_state.comms; c; c = c->next) {
		break_comm(c, why);
		c->group = NULL;
		c->requests = NULL; /* MPIABI_Wait frees them */
	}
	jax_state.world.group = NULL;
	jax_state.world.requests = NULL;
	g = jax_state.groups;
	jax_state.groups = NULL;
	pthread_mutex_unlock(&jax_state.lock);
	for (; g; g = next) {
		next = g->next;
		if (g->comm)
			reduction_close(g->comm, NULL);
		free(g);
	}
}

/* Tells all ranks the colors and keys of all. */
static int exchange(struct jax_comm *c, struct split own, struct split *all)
{
	reduction_error e;

	memset(all, 0, (size_t)c->size * sizeof *all);
	all[c->rank] = own;
	if (c->size == 1)
		return JAX_SUCCESS;
	return reduction_all_reduce(c->group->comm, all, all, (size_t)c->size * 3, REDUCTION_INT64, REDUCTION_SUM, &e)
		   ? jax_fail_error("making a communicator", &e)
		   : JAX_SUCCESS;
}

static int by_key(const void *a, const void *b)
{
	const struct split *x = a, *y = b;

	return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Keeps the ranks of a color, in the order of their keys. Returns how many; 0: the keys
 * are not those of one device in each process. XLA's key is the rank of a device. */
static int choose(struct split *all, int size, int64_t color)
{
	int n = 0;

	for (int i = 0; i < size; i++)
		if (all[i].color == color)
			all[n++] = all[i];
	qsort(all, (size_t)n, sizeof all[0], by_key);
	for (int i = 0; i < n; i++)
		if (all[i].key != i)
			return 0;
	return n;
}

/* Makes the communicator of a color. */
static int split(struct jax_comm *c, struct jax_comm *ret, int color, int key)
{
	struct split *all = calloc((size_t)c->size, sizeof *all);
	int *members = calloc((size_t)c->size, sizeof *members);
	int rc = JAX_ERROR, n;

	if (!all || !members) {
		jax_fail("out of memory for a communicator");
		goto free_both;
	}
	if (exchange(c, (struct split){color, key, c->rank}, all))
		goto free_both;
	n = choose(all, c->size, color);
	if (!n) {
		jax_fail(
		    "a process has several CPU devices in one computation: reducers need one device in each process "
		    "(jax_num_cpu_devices=1, no --xla_force_host_platform_device_count)");
		goto free_both;
	}
	for (int i = 0; i < n; i++) {
		members[i] = c->group->members[all[i].rank];
		if (all[i].rank == c->rank)
			ret->rank = i;
	}
	ret->size = n;
	ret->group = jax_group_of(members, n);
	rc = ret->group ? JAX_SUCCESS : JAX_ERROR;

free_both:
	free(members);
	free(all);
	return rc;
}

JAX_EXPORT int MPIABI_Comm_split(jax_handle comm, int color, int key, jax_handle *ret)
{
	struct jax_comm *c = NULL, *made = calloc(1, sizeof *made);
	char why[JAX_ERROR_TEXT];
	bool begun;
	int len, rc;

	*ret = MPIABI_COMM_NULL;
	if (!made)
		return jax_fail("out of memory for a communicator");
	made->size = 1;
	begun = jax_begin(comm, &c);
	rc = begun ? split(c, made, color, key) : JAX_ERROR;
	if (rc) {
		MPIABI_Error_string(rc, why, &len);
		break_comm(made, why);
	}
	pthread_mutex_lock(&jax_state.lock);
	made->next = jax_state.comms;
	jax_state.comms = made;
	pthread_mutex_unlock(&jax_state.lock);
	*ret = (jax_handle)made;
	return begun ? jax_end(rc) : rc;
}

/* Groups stay open until the job is closed: XLA makes a communicator of the same ranks
 * again. */
JAX_EXPORT int MPIABI_Comm_free(jax_handle *comm)
{
	*comm = MPIABI_COMM_NULL;
	return JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Comm_rank(jax_handle comm, int *rank)
{
	*rank = comm == MPIABI_COMM_NULL ? 0 : jax_comm_of(comm)->rank;
	return JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Comm_size(jax_handle comm, int *size)
{
	*size = comm == MPIABI_COMM_NULL ? 1 : jax_comm_of(comm)->size;
	return JAX_SUCCESS;
}
