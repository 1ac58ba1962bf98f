/* SPDX-License-Identifier: Apache-2.0 */
/* Memory shared with the agent: buffers of client_alloc, and stages for operations on
 * other memory. */
#include "agent/lib/client/client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DETACH_STEP = 1 << 22 }; /* bytes that are copied at a time */

static int memory_map_reply(const struct local_alloced *a, int fd, struct client_buffer *b, struct rs_err *e)
{
	void *map;

	if (a->code)
		return client_failure(e, a->code, a->message);
	if (fd < 0)
		return rs_fail(e, RS_EPROTO, "the agent sent no descriptor for shared memory");
	/* the pages exist; mapping them all now keeps page faults out of the
	 * operations */
	map = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (map == MAP_FAILED)
		return rs_fail(e, RS_ENOMEM, "cannot map %llu bytes of the agent's shared memory",
			       (unsigned long long)a->bytes);
	b->map = map;
	b->bytes = a->bytes;
	b->id = a->buffer;
	return RS_OK;
}

static int memory_buffer_new(struct client *c, size_t bytes, struct client_buffer **ret, struct rs_err *e)
{
	struct client_buffer *b = calloc(1, sizeof *b);
	union local_message m;
	int fd = -1, rc;

	if (!b)
		return rs_oom(e, 0, "a buffer");
	local_init(&m, LOCAL_ALLOC);
	m.alloc.bytes = bytes;
	rc = client_ask(c, &m, LOCAL_ALLOCED, &m, &fd, e);
	if (!rc)
		rc = memory_map_reply(&m.alloced, fd, b, e);
	if (fd >= 0)
		close(fd);
	if (rc) {
		free(b);
		return rc;
	}
	*ret = b;
	return RS_OK;
}

/* Unmaps a buffer and sends FREE. Without lock held. */
static void memory_buffer_free(struct client *c, struct client_buffer *b)
{
	union local_message m;

	munmap(b->map, b->bytes);
	local_init(&m, LOCAL_FREE);
	m.free.buffer = b->id;
	client_send(c->fd, &m); /* if the agent is lost there is nothing to free */
	free(b);
}

/* Returns the number of shared buffers that start at or below p. */
static unsigned memory_count_below(const struct client *c, const void *p)
{
	unsigned low = 0, high = c->shared_n;

	while (low < high) {
		unsigned mid = low + (high - low) / 2;

		if ((uintptr_t)c->shared[mid]->map <= (uintptr_t)p)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct client_buffer *client_find(const struct client *c, const void *p, size_t bytes)
{
	unsigned n = memory_count_below(c, p);
	const struct client_buffer *b = n ? c->shared[n - 1] : NULL;
	size_t offset = b ? (size_t)((const char *)p - b->map) : 0;

	return b && offset <= b->bytes && bytes <= b->bytes - offset ? b : NULL;
}

static int memory_remember(struct client *c, struct client_buffer *b, struct rs_err *e)
{
	unsigned at, space = c->shared_space ? 2 * c->shared_space : 16;
	struct client_buffer **bigger;

	if (c->shared_n == c->shared_space) {
		bigger = realloc(c->shared, space * sizeof *bigger);
		if (!bigger)
			return rs_oom(e, space * sizeof *bigger, "%u buffers", space);
		c->shared = bigger;
		c->shared_space = space;
	}
	at = memory_count_below(c, b->map);
	memmove(&c->shared[at + 1], &c->shared[at], (c->shared_n - at) * sizeof c->shared[0]);
	c->shared[at] = b;
	c->shared_n++;
	return RS_OK;
}

int client_alloc(struct client *c, size_t bytes, void **ret, struct rs_err *e)
{
	struct client_buffer *b;
	int rc = memory_buffer_new(c, bytes, &b, e);

	if (rc)
		return rc;
	pthread_mutex_lock(&c->lock);
	rc = memory_remember(c, b, e);
	pthread_mutex_unlock(&c->lock);
	if (rc) {
		memory_buffer_free(c, b);
		return rc;
	}
	*ret = b->map;
	return RS_OK;
}

void client_free(struct client *c, void *buf)
{
	struct client_buffer *b = NULL;
	unsigned at;

	pthread_mutex_lock(&c->lock);
	at = memory_count_below(c, buf);
	if (at > 0 && c->shared[at - 1]->map == buf) {
		b = c->shared[at - 1];
		memmove(&c->shared[at - 1], &c->shared[at], (c->shared_n - at) * sizeof c->shared[0]);
		c->shared_n--;
	}
	pthread_mutex_unlock(&c->lock);
	if (b)
		memory_buffer_free(c, b);
}

static size_t memory_class_bytes(unsigned cls)
{
	return (size_t)CLIENT_STAGE_MIN / 4 * (4 + cls % 4) << cls / 4;
}

static unsigned memory_class(size_t bytes)
{
	unsigned cls = 0;

	while (memory_class_bytes(cls) < bytes)
		cls++;
	return cls;
}

static struct client_buffer *memory_pop_idle(struct client *c, unsigned cls)
{
	struct client_buffer *b = c->idle[cls];

	if (b)
		c->idle[cls] = b->next;
	return b;
}

/* Returns idle stages to the agent until `room` more bytes are within the limit, the
 * largest first. Called with lock held; releases it meanwhile. Returns whether there was
 * one. */
static bool memory_trim(struct client *c, size_t room)
{
	struct client_buffer *b;
	bool any = false;

	for (unsigned cls = CLIENT_STAGE_CLASSES; cls-- > 0;) {
		while (c->stage_bytes + room > c->stage_limit && (b = memory_pop_idle(c, cls))) {
			c->stage_bytes -= b->bytes;
			pthread_mutex_unlock(&c->lock);
			memory_buffer_free(c, b);
			pthread_mutex_lock(&c->lock);
			any = true;
		}
	}
	return any;
}

/* Asks the agent for a new stage. Called with lock held; releases it meanwhile. */
static int memory_stage_new(struct client *c, size_t bytes, struct client_buffer **ret, struct rs_err *e)
{
	int rc;

	pthread_mutex_unlock(&c->lock);
	rc = memory_buffer_new(c, bytes, ret, e);
	pthread_mutex_lock(&c->lock);
	if (!rc)
		c->stage_bytes += (*ret)->bytes;
	return rc;
}

int client_stage_take(struct client *c, size_t bytes, struct client_buffer **ret, struct rs_err *e)
{
	unsigned cls = memory_class(bytes);
	size_t size = memory_class_bytes(cls);
	struct client_buffer *b;
	int rc = RS_OK;

	pthread_mutex_lock(&c->lock);
	while (!(b = memory_pop_idle(c, cls))) {
		if (c->broken) {
			*e = c->err;
			rc = e->code;
			break;
		}
		memory_trim(c, size);
		if (c->stages_busy == 0 || c->stage_bytes + size <= c->stage_limit) {
			rc = memory_stage_new(c, size, &b, e);
			if (!rc)
				break;
			/* the agent's memory is used up: first free idle stages, then
			 * wait for operations to end */
			if (rc != RS_EREFUSED && rc != RS_ENOMEM)
				break;
			if (memory_trim(c, c->stage_limit))
				continue;
			if (c->stages_busy == 0)
				break;
		}
		pthread_cond_wait(&c->changed, &c->lock);
	}
	if (b)
		c->stages_busy++;
	pthread_mutex_unlock(&c->lock);
	if (!b)
		return rc;
	*ret = b;
	return RS_OK;
}

void client_stage_give(struct client *c, struct client_buffer *stage)
{
	unsigned cls = memory_class(stage->bytes);

	stage->next = c->idle[cls];
	c->idle[cls] = stage;
	c->stages_busy--;
}

/* Replaces pages by copies of themselves, which no other process maps. Pages that do not
 * fit into memory stay. */
static void memory_detach_pages(char *at, char *end)
{
	while (at < end) {
		size_t n = end - at < DETACH_STEP ? (size_t)(end - at) : DETACH_STEP;
		void *copy = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (copy == MAP_FAILED)
			return;
		memcpy(copy, at, n);
		if (mremap(copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
			munmap(copy, n);
		at += n;
	}
}

static void memory_detach(struct client *c, const void *p, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), first, end;
	const struct client_buffer *b;
	char *map;

	pthread_mutex_lock(&c->lock);
	b = client_find(c, p, bytes);
	map = b ? b->map : NULL;
	pthread_mutex_unlock(&c->lock);
	if (!map)
		return;
	first = (size_t)((const char *)p - map);
	end = first + bytes;
	memory_detach_pages(map + first / page * page, map + (end + page - 1) / page * page);
}

void client_memory_detach(struct client *c, const struct backend_request *req)
{
	if (operation_bytes(&req->of) == 0)
		return;
	memory_detach(c, req->recv, client_recv_bytes(&req->of));
	if (req->send != req->recv)
		memory_detach(c, req->send, client_send_bytes(&req->of));
}

void client_memory_close(struct client *c)
{
	struct client_buffer *b;

	/* they belong to the caller, who may still read what it did not free: as with the
	 * direct backend they stay mapped */
	for (unsigned i = 0; i < c->shared_n; i++)
		free(c->shared[i]);
	free(c->shared);
	for (unsigned cls = 0; cls < CLIENT_STAGE_CLASSES; cls++) {
		while ((b = memory_pop_idle(c, cls))) {
			munmap(b->map, b->bytes);
			free(b);
		}
	}
}
