/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mpi/shim.h"
#include "agent/mpi/job.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* MPI's functions have no context: the only variable state that nothing owns. */
static struct {
	pthread_mutex_t lock;
	_Atomic(struct shim *) ready; /* NULL: MPI was not called yet */
	struct shim shim;
} the = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF. */
static int shim_on_finalize(mpi_handle comm, int key, void *value, void *shim)
{
	struct shim *s = shim;
	char text[1024];

	(void)comm, (void)key, (void)value;
	job_close_all(s);
	if (s->rank == 0) {
		report_text(&s->report, s->settings.min_bytes, text, sizeof text);
		fprintf(stderr, "reduction-mpi: %s\n", text);
	}
	return MPI_SUCCEEDED;
}

static int null_copy(mpi_handle comm, int key, void *extra, void *from, void *to, int *flag)
{
	(void)comm, (void)key, (void)extra, (void)from, (void)to;
	*flag = 0; /* a communicator does not inherit a job */
	return MPI_SUCCEEDED;
}

/* Prepares what needs no other rank. */
static void shim_start(struct shim *s)
{
	const struct mpi_functions *call = &s->mpi.call;
	char why[256];
	int key, rc;

	call->comm_rank(s->mpi.comm_world, &s->rank);
	if (settings_read(&s->settings, why, sizeof why)) {
		shim_say(s, "%s", why);
		call->abort(s->mpi.comm_world, 1);
	}
	if (s->settings.use == SETTINGS_OFF)
		return;
	pthread_mutex_init(&s->lock, NULL);
	rc = call->comm_create_keyval((void *)null_copy, (void *)job_on_free, &s->key, s);
	rc = rc ? rc : call->comm_create_keyval((void *)null_copy, (void *)shim_on_finalize, &key, s);
	rc = rc ? rc : call->comm_set_attr(s->mpi.comm_self, key, s);
	if (rc)
		shim_say(s, "MPI has created no attribute: all calls go to MPI");
	s->active = !rc;
}

struct shim *shim_get(const void *caller)
{
	struct shim *s = atomic_load_explicit(&the.ready, memory_order_acquire);
	char why[256];
	int begun = 0, ended = 0;

	if (s)
		return s;
	pthread_mutex_lock(&the.lock);
	s = &the.shim;
	if (!atomic_load(&the.ready)) {
		if (!s->mpi.call.initialized && mpi_find(&s->mpi, caller, why, sizeof why)) {
			fprintf(stderr, "reduction-mpi: %s\n", why);
			abort();
		}
		s->mpi.call.initialized(&begun);
		s->mpi.call.finalized(&ended);
		if (begun && !ended) {
			shim_start(s);
			atomic_store_explicit(&the.ready, s, memory_order_release);
		}
	}
	pthread_mutex_unlock(&the.lock);
	return s;
}
