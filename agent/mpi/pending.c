/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mpi/pending.h"
#include "agent/mpi/job.h"

#include <stdlib.h>
#include <string.h>

/* An operation that was started. MPI calls query when the program has waited for the
 * request, and then free. */
struct pending {
	struct pending *next;
	struct shim *shim; /* the job may be freed before the program waits */
	reduction_request *request;
	mpi_handle mpi_request;
	int result; /* of query: 0, or MPI's error; set before the request is complete */
};

static int pending_query(void *pending, void *status)
{
	struct pending *p = pending;
	const struct mpi *m = &p->shim->mpi;

	m->call.status_set_elements(status, m->byte, 0);
	m->call.status_set_cancelled(status, 0);
	memcpy((char *)status + m->status_source, &m->undefined, sizeof m->undefined);
	memcpy((char *)status + m->status_tag, &m->undefined, sizeof m->undefined);
	return p->result;
}

static int pending_free(void *pending)
{
	free(pending);
	return MPI_SUCCEEDED;
}

static int pending_cancel(void *pending, int complete)
{
	(void)pending, (void)complete; /* MPI forbids it for collectives */
	return MPI_SUCCEEDED;
}

static void pending_end(struct pending *p)
{
	struct shim *s = p->shim;
	reduction_error e;

	if (reduction_wait(p->request, -1, &e)) {
		shim_say(s, "%s", e.message);
		p->result = s->mpi.err_other;
	}
	s->mpi.call.grequest_complete(p->mpi_request); /* may free p */
}

static void *waiter_run(void *waiter)
{
	struct waiter *w = waiter;
	struct pending *p;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (!w->first && !w->ending)
			pthread_cond_wait(&w->more, &w->lock);
		p = w->first;
		if (!p)
			break;
		w->first = p->next;
		if (!w->first)
			w->last = &w->first;
		pthread_mutex_unlock(&w->lock);
		pending_end(p);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void waiter_init(struct waiter *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	w->first = NULL;
	w->last = &w->first;
	w->running = w->ending = false;
}

void waiter_close(struct waiter *w)
{
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
	if (w->running)
		pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->more);
	pthread_mutex_destroy(&w->lock);
}

/* Starts the thread if it does not run. */
static int waiter_start(struct waiter *w)
{
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	if (!w->running)
		rc = pthread_create(&w->thread, NULL, waiter_run, w);
	w->running = w->running || !rc;
	pthread_mutex_unlock(&w->lock);
	return rc;
}

static void waiter_add(struct waiter *w, struct pending *p)
{
	pthread_mutex_lock(&w->lock);
	*w->last = p;
	w->last = &p->next;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
}

int pending_all_reduce(struct job *job, const void *send, void *recv, size_t count, reduction_dtype dtype,
		       reduction_op op, void *request)
{
	const struct mpi *m = &job->shim->mpi;
	struct pending *p = calloc(1, sizeof *p);
	reduction_error e;

	if (!p || waiter_start(&job->waiter)) {
		free(p);
		shim_say(job->shim, "no memory or no thread for a non-blocking operation");
		return m->err_other;
	}
	p->shim = job->shim;
	if (reduction_all_reduce_async(job->comm, send, recv, count, dtype, op, NULL, &p->request, &e)) {
		free(p);
		shim_say(job->shim, "%s", e.message);
		return m->err_other;
	}
	m->call.grequest_start((void *)pending_query, (void *)pending_free, (void *)pending_cancel, p, request);
	p->mpi_request = mpi_load(m, request);
	waiter_add(&job->waiter, p);
	return MPI_SUCCEEDED;
}
