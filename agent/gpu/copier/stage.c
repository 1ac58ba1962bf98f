/* SPDX-License-Identifier: Apache-2.0 */
/* Stages: memory of the backend that devices copy from and to. Pinning takes far longer
 * than an operation, so stages are kept and used again. */
#include "agent/gpu/copier/state.h"
#include "common/assert.h"

#include <stdlib.h>

static int stage_new(struct copier *c, uint64_t bytes, int device, struct copier_stage **ret, struct rs_err *e)
{
	struct copier_stage *s = calloc(1, sizeof *s);
	void *memory;
	int rc;

	if (!s)
		return rs_oom(e, 0, "an operation");
	rc = c->backend->v->alloc(c->backend, BACKEND_RING_HEAD + bytes, &memory, e);
	if (rc)
		goto free_stage;
	rc = cuda_pin(c->cuda, device, memory, BACKEND_RING_HEAD + bytes, e);
	if (rc)
		goto free_memory;
	s->memory = memory;
	s->bytes = bytes;
	s->device = device;
	*ret = s;
	return RS_OK;

free_memory:
	c->backend->v->free(c->backend, memory);
free_stage:
	free(s);
	return rc;
}

static void stage_free(struct copier *c, struct copier_stage *s)
{
	cuda_unpin(c->cuda, s->device, s->memory);
	c->backend->v->free(c->backend, s->memory);
	free(s);
}

/* Takes the smallest idle stage that is large enough and not far too large. With lock
 * held. */
static struct copier_stage *stage_find(struct copier *c, uint64_t bytes)
{
	struct copier_stage **best = NULL, *s;

	for (struct copier_stage **at = &c->idle; *at; at = &(*at)->next)
		if ((*at)->bytes >= bytes && (*at)->bytes <= 4 * bytes && (!best || (*at)->bytes < (*best)->bytes))
			best = at;
	if (!best)
		return NULL;
	s = *best;
	*best = s->next;
	return s;
}

/* Frees an idle stage. With lock held, which it releases meanwhile. Returns whether there
 * was one. */
static bool stage_trim(struct copier *c)
{
	struct copier_stage *s = c->idle;

	if (!s)
		return false;
	rs_assert(c->stage_bytes >= s->bytes);
	c->idle = s->next;
	c->stage_bytes -= s->bytes;
	pthread_mutex_unlock(&c->lock);
	stage_free(c, s);
	pthread_mutex_lock(&c->lock);
	return true;
}

/* Makes a stage; first frees idle ones, then waits for operations to end, if there is no
 * room. With lock held. */
static int stage_make(struct copier *c, uint64_t bytes, int device, struct copier_stage **ret, struct rs_err *e)
{
	int rc;

	while (c->stage_bytes + bytes > c->backend->ring_limit && stage_trim(c))
		;
	if (c->stage_bytes + bytes > c->backend->ring_limit && c->stages_busy > 0)
		return rs_fail(e, RS_ENOMEM, "other operations use the memory");
	pthread_mutex_unlock(&c->lock);
	rc = stage_new(c, bytes, device, ret, e);
	pthread_mutex_lock(&c->lock);
	if (!rc)
		c->stage_bytes += bytes;
	return rc;
}

int copier_stage_take(struct copier *c, uint64_t bytes, uint64_t most, int device, struct copier_stage **ret,
		      struct rs_err *e)
{
	uint64_t size = COPIER_STAGE_MIN;
	struct copier_stage *s;
	int rc = RS_OK;

	while (size < bytes)
		size *= 2;
	size = size < most ? size : most;
	pthread_mutex_lock(&c->lock);
	while (!(s = stage_find(c, bytes))) {
		rc = stage_make(c, size, device, &s, e);
		if (!rc)
			break;
		if (rc != RS_EREFUSED && rc != RS_ENOMEM)
			break;
		if (stage_trim(c))
			continue;
		if (c->stages_busy == 0)
			break;
		pthread_cond_wait(&c->freed, &c->lock);
	}
	if (s)
		c->stages_busy++;
	pthread_mutex_unlock(&c->lock);
	if (!s)
		return rc;
	*ret = s;
	return RS_OK;
}

void copier_stage_give(struct copier *c, struct copier_stage *stage)
{
	pthread_mutex_lock(&c->lock);
	rs_assert(c->stages_busy > 0);
	stage->next = c->idle;
	c->idle = stage;
	c->stages_busy--;
	pthread_cond_broadcast(&c->freed);
	pthread_mutex_unlock(&c->lock);
}

void copier_stages_free(struct copier *c)
{
	while (c->idle) {
		struct copier_stage *s = c->idle;

		c->idle = s->next;
		stage_free(c, s);
	}
}
