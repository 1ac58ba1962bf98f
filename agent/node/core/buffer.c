/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of clients. The happy path: ALLOC -> the driver makes it -> ALLOCED ->
 * operations refer to it -> FREE. Failure modes: over the limit or out of memory (ALLOCED
 * says so); the client leaves while its memory is being made or is in use (it stays until
 * the driver or the last operation releases it). */
#include "agent/node/core/buffer.h"
#include "common/assert.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PAGE = 4096 };

static void local_buffer_release_if_unused(struct local_buffer *b)
{
	struct local_hub *h = b->hub;

	if (b->owner || b->making || b->refs)
		return;
	rs_assert(h->shm_used >= b->bytes);
	if (b->map)
		h->ports.shm_free(h->ctx, b->map, b->bytes);
	h->shm_used -= b->bytes;
	free(b);
}

/* Takes the buffer away from its client. */
static void local_buffer_disown(struct local_buffer *b)
{
	rs_assert(b->id < b->owner->buffers_n && b->owner->buffers[b->id] == b);
	b->owner->buffers[b->id] = NULL;
	b->owner = NULL;
	local_buffer_release_if_unused(b);
}

static int local_buffer_free_id(struct local_client *c, uint32_t *ret, struct rs_err *e)
{
	struct local_buffer **bigger;
	uint32_t id = 0, n;

	while (id < c->buffers_n && c->buffers[id])
		id++;
	if (id == LOCAL_BUFFERS_MAX)
		return rs_fail(e, RS_EREFUSED, "this process already has %d shared buffers, the limit",
			       LOCAL_BUFFERS_MAX);
	if (id == c->buffers_n) {
		n = c->buffers_n ? 2 * c->buffers_n : 16;
		bigger = realloc(c->buffers, n * sizeof *bigger);
		if (!bigger)
			return rs_oom(e, n * sizeof *bigger, "%u buffers in the agent", n);
		for (uint32_t i = c->buffers_n; i < n; i++)
			bigger[i] = NULL;
		c->buffers = bigger;
		c->buffers_n = n;
	}
	*ret = id;
	return RS_OK;
}

static int local_buffer_start(struct local_client *c, uint64_t bytes, struct rs_err *e)
{
	struct local_hub *h = c->hub;
	uint64_t limit = h->cfg->agent.shm_bytes, rounded;
	struct local_buffer *b;
	uint32_t id = 0;
	int rc;

	rounded = bytes <= PAGE ? PAGE : (bytes + PAGE - 1) / PAGE * PAGE;
	if (rounded < bytes || rounded > limit || limit - rounded < h->shm_used)
		return rs_fail(e, RS_EREFUSED,
			       "the agent on %s cannot share %" PRIu64 " more bytes: %" PRIu64
			       " of agent.shm_bytes %" PRIu64 " are in use",
			       h->host, bytes, h->shm_used, limit);
	rc = local_buffer_free_id(c, &id, e);
	if (rc)
		return rc;
	b = calloc(1, sizeof *b);
	if (!b)
		return rs_oom(e, 0, "a buffer in the agent on %s", h->host);
	*b = (struct local_buffer){.hub = h, .owner = c, .id = id, .making = true, .bytes = rounded};
	rc = h->ports.shm_make(h->ctx, b, rounded, e);
	if (rc) {
		free(b);
		return rc;
	}
	rs_assert(!c->buffers[id] && !c->allocating);
	c->buffers[id] = b;
	c->allocating = true;
	h->shm_used += rounded;
	return RS_OK;
}

static void local_buffer_send_failure(struct local_client *c, const struct rs_err *err)
{
	union local_message m;

	local_init(&m, LOCAL_ALLOCED);
	m.alloced.code = err->code;
	local_put_text(m.alloced.message, err->msg);
	c->hub->ports.send(c->hub->ctx, c, &m, -1);
}

void local_buffer_alloc(struct local_client *c, uint64_t bytes)
{
	struct rs_err err;

	if (local_buffer_start(c, bytes, &err))
		local_buffer_send_failure(c, &err);
}

bool local_buffer_made(struct local_buffer *b, void *map, int fd, const struct rs_err *err)
{
	struct local_client *c = b->owner;
	struct local_hub *h = b->hub;
	union local_message m;

	rs_assert(b->making);
	b->making = false;
	b->map = map;
	if (!c) {
		local_buffer_release_if_unused(b);
		return false;
	}
	rs_assert(c->allocating);
	c->allocating = false;
	if (err) {
		local_buffer_send_failure(c, err);
		local_buffer_disown(b);
		return false;
	}
	local_init(&m, LOCAL_ALLOCED);
	m.alloced.buffer = b->id;
	m.alloced.bytes = b->bytes;
	h->ports.send(h->ctx, c, &m, fd);
	return true;
}

static struct local_buffer *local_buffer_find(struct local_client *c, uint32_t id)
{
	struct local_buffer *b = id < c->buffers_n ? c->buffers[id] : NULL;

	return b && !b->making ? b : NULL;
}

int local_buffer_drop(struct local_client *c, uint32_t id, struct rs_err *e)
{
	struct local_buffer *b = local_buffer_find(c, id);

	if (!b)
		return rs_fail(e, RS_EPROTO, "FREE of shared buffer %u, which does not exist", id);
	local_buffer_disown(b);
	return RS_OK;
}

void local_buffers_orphan(struct local_client *c)
{
	for (uint32_t i = 0; i < c->buffers_n; i++)
		if (c->buffers[i])
			local_buffer_disown(c->buffers[i]);
	free(c->buffers);
	c->buffers = NULL;
	c->buffers_n = 0;
}

int local_buffer_get(struct local_client *c, uint32_t id, uint64_t offset, uint64_t bytes, struct local_buffer **ret,
		     struct rs_err *e)
{
	struct local_buffer *b = local_buffer_find(c, id);

	if (!b)
		return rs_fail(e, RS_EPROTO, "SUBMIT names shared buffer %u, which does not exist", id);
	if (offset > b->bytes || bytes > b->bytes - offset)
		return rs_fail(e, RS_EPROTO,
			       "SUBMIT names %" PRIu64 " bytes at offset %" PRIu64
			       " of shared buffer %u, which has %" PRIu64,
			       bytes, offset, id, b->bytes);
	b->refs++;
	*ret = b;
	return RS_OK;
}

void local_buffer_put(struct local_buffer *b)
{
	if (!b)
		return;
	rs_assert(b->refs > 0);
	b->refs--;
	local_buffer_release_if_unused(b);
}
