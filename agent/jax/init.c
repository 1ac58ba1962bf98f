/* SPDX-License-Identifier: Apache-2.0 */
/* Start, end and errors. The happy path: reduction_jax_open(), MPIABI_Init_thread, calls,
 * MPIABI_Finalize, more calls, reduction_jax_close(): jax calls MPIABI_Finalize while
 * computations that the program has started go on. Failure mode: XLA ignores an error
 * of MPIABI_Init_thread and of MPIABI_Comm_split; then each later call returns it. */
#include "agent/jax/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const int mpiwrapper_version_major JAX_EXPORT = 2, mpiwrapper_version_minor JAX_EXPORT = 11,
				   mpiwrapper_version_patch JAX_EXPORT = 1;
const int mpiabi_version_major JAX_EXPORT = 2, mpiabi_version_minor JAX_EXPORT = 10,
			       mpiabi_version_patch JAX_EXPORT = 0;

static void take_group(struct jax_group *g, int rank)
{
	struct jax_comm *w = &jax_state.world;

	pthread_mutex_lock(&jax_state.lock);
	w->group = g;
	w->rank = rank;
	w->size = g->size;
	w->broken[0] = '\0';
	jax_state.groups = g;
	jax_state.failed[0] = '\0';
	jax_state.finalized = false;
	pthread_mutex_unlock(&jax_state.lock);
}

int reduction_jax_open(int rank, int world_size, const char *run, reduction_error *err)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;
	reduction_error own;
	struct jax_group *g;
	int rc;

	err = err ? err : &own;
	jax_close_all("jax.distributed was initialized again: the job of this communicator has ended");
	free(jax_state.run);
	jax_state.run = run ? strdup(run) : NULL;
	g = calloc(1, sizeof *g + (size_t)(world_size > 0 ? world_size : 1) * sizeof g->members[0]);
	if (!g || (run && !jax_state.run)) {
		free(g);
		err->code = REDUCTION_ENOMEM;
		snprintf(err->message, sizeof err->message, "out of memory for a communicator");
		return REDUCTION_ENOMEM;
	}
	opt.rank = rank;
	opt.world_size = world_size;
	opt.run = run;
	rc = reduction_open(&g->comm, &opt, err);
	if (rc) {
		free(g);
		return rc;
	}
	g->size = world_size;
	for (int i = 0; i < world_size; i++)
		g->members[i] = i;
	take_group(g, rank);
	return REDUCTION_OK;
}

void reduction_jax_close(void)
{
	jax_close_all("the job is closed, since the process ends");
}

int reduction_jax_failed(char *text)
{
	int failed;

	pthread_mutex_lock(&jax_state.lock);
	failed = jax_state.failed[0] != '\0';
	memcpy(text, jax_state.failed, sizeof jax_state.failed);
	pthread_mutex_unlock(&jax_state.lock);
	return failed;
}

void reduction_jax_loading(int loading)
{
	jax_state.loading = loading;
}

/* The last thing that MPItrampoline does before it looks up constants and functions. */
JAX_EXPORT void mpiwrapper_export_fortran_constants_(void)
{
	jax_state.loaded = true;
}

/* MPItrampoline ends the process if it wants another version. */
__attribute__((destructor)) static void say_why(void)
{
	if (jax_state.loading && !jax_state.loaded)
		fprintf(stderr,
			"reduction: this jaxlib wants another interface than version %d.%d of MPItrampoline's, which "
			"libreduction %s implements: use another version of jaxlib or of reduction\n",
			mpiabi_version_major, mpiabi_version_minor, reduction_version());
}

JAX_EXPORT int MPIABI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	(void)argc, (void)argv, (void)required;
	*provided = (int)MPIABI_THREAD_MULTIPLE;
	jax_state.initialized = true;
	return jax_state.world.broken[0] ? jax_fail("%s", jax_state.world.broken) : JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Initialized(int *flag)
{
	*flag = jax_state.initialized;
	return JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Finalize(void)
{
	jax_state.finalized = true;
	return JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Finalized(int *flag)
{
	*flag = jax_state.finalized;
	return JAX_SUCCESS;
}

/* XLA refuses to make communicators on other threads than the main one, and calls from
 * threads of a pool. Any thread may call this library. */
JAX_EXPORT int MPIABI_Is_thread_main(int *flag)
{
	*flag = 1;
	return JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Query_thread(int *provided)
{
	*provided = (int)MPIABI_THREAD_MULTIPLE;
	return JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Get_version(int *version, int *subversion)
{
	*version = 3;
	*subversion = 1;
	return JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Get_library_version(char *version, int *len)
{
	*len = snprintf(version, JAX_LIBRARY_TEXT, "libreduction %s", reduction_version());
	return JAX_SUCCESS;
}
