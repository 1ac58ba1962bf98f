/* SPDX-License-Identifier: Apache-2.0 */
/* The copier's thread. It sleeps until an operation is submitted, a fence is passed,
 * results land or the backend is done, and then lets each operation do what it can. */
#include "agent/gpu/copier/state.h"

#include <stdlib.h>
#include <time.h>

static void copier_notify(void *user)
{
	copier_wake(user);
}

static void copier_insert(struct copier *c, struct copier_op *op)
{
	struct copier_op **at = &c->ops;

	if (c->trace.pieces)
		op->pieces = pieces_add(c->trace.pieces, &op->pipe);
	while (*at && (*at)->urgency >= op->urgency)
		at = &(*at)->next;
	op->next = *at;
	*at = op;
}

/* Takes the operations that were submitted, in their order. With lock held. */
static void copier_take_submitted(struct copier *c)
{
	struct copier_op *oldest = NULL, *op;

	while ((op = c->submitted)) {
		c->submitted = op->next;
		op->next = oldest;
		oldest = op;
	}
	while ((op = oldest)) {
		oldest = op->next;
		copier_insert(c, op);
	}
}

static bool copier_copies(const struct copier *c)
{
	for (const struct copier_op *op = c->ops; op; op = op->next)
		if (op->pipe.out.running + op->pipe.in.running > 0 || op->pieces)
			return true;
	return false;
}

/* Sleeps until there is something to do; with copies that run, for COPIER_LOOK_MS at
 * most, since a device that fails may not say so. With lock held. */
static void copier_sleep(struct copier *c)
{
	bool copies = copier_copies(c);
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += COPIER_LOOK_MS * 1000000L;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (!c->signalled && !(c->stopping && !c->ops) && !rc)
		rc = copies ? pthread_cond_timedwait(&c->changed, &c->lock, &until)
			    : pthread_cond_wait(&c->changed, &c->lock);
	c->signalled = false;
}

static void *copier_main(void *arg)
{
	struct copier *c = arg;
	bool end;

	pthread_setname_np(pthread_self(), "reduction-copy");
	do {
		pthread_mutex_lock(&c->lock);
		copier_sleep(c);
		copier_take_submitted(c);
		end = c->stopping && !c->ops;
		pthread_mutex_unlock(&c->lock);
		for (struct copier_op **at = &c->ops; *at;) {
			struct copier_op *op = *at, *next = op->next;

			if (copier_op_run(op))
				*at = next;
			else
				at = &op->next;
		}
	} while (!end);
	return NULL;
}

int copier_new(struct copier **ret, struct backend *b, unsigned rank, const char *trace,
	       void (*failed)(void *user, const struct rs_err *why), void *user, struct rs_err *e)
{
	struct copier *c = calloc(1, sizeof *c);
	pthread_condattr_t monotonic;
	int rc;

	if (!c)
		return rs_oom(e, 0, "copies");
	c->backend = b;
	c->failed = failed;
	c->user = user;
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_cond_init(&c->freed, NULL);
	rc = cuda_open(&c->cuda, copier_notify, c, e);
	if (!rc && trace)
		rc = copier_trace_open(&c->trace, trace, rank, e);
	if (rc)
		goto close_cuda;
	rc = pthread_create(&c->thread, NULL, copier_main, c);
	if (rc) {
		rc = rs_fail_sys(e, RS_EIO, rc, "cannot start a thread");
		goto close_trace;
	}
	*ret = c;
	return RS_OK;

close_trace:
	copier_trace_close(&c->trace);
close_cuda:
	if (c->cuda)
		cuda_close(c->cuda);
	pthread_cond_destroy(&c->freed);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return rc;
}

int copier_check(struct copier *c, int device, const void *p, uint64_t bytes, struct rs_err *e)
{
	return bytes ? cuda_check(c->cuda, device, p, bytes, e) : RS_OK;
}

int copier_submit(struct copier *c, unsigned rank, struct backend_request *req, const struct copier_tensor *tensors,
		  unsigned n, struct rs_err *e)
{
	struct copier_op *op;
	int rc = copier_op_new(c, rank, req, tensors, n, &op, e);

	if (rc)
		return rc;
	rc = c->backend->v->submit(c->backend, &op->ring, e);
	if (rc) {
		copier_op_free(op);
		return rc;
	}
	pthread_mutex_lock(&c->lock);
	op->next = c->submitted;
	c->submitted = op;
	c->signalled = true;
	pthread_cond_signal(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return RS_OK;
}

void copier_free(struct copier *c)
{
	pthread_mutex_lock(&c->lock);
	c->stopping = true;
	pthread_cond_signal(&c->changed);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	copier_trace_close(&c->trace);
	copier_stages_free(c);
	cuda_close(c->cuda);
	pthread_cond_destroy(&c->freed);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
