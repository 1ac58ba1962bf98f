/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/lib/api/group.h"
#include "agent/lib/api/group_copy.h"
#include "common/dtype.h"
#include "proto/frame.h"

#include <endian.h>
#include <string.h>

/* The tensors of one shared operation. Invariant: n and count are the number and total elements of the chain. */
struct share {
	struct reduction_request *last; /* chained by next, the last one first */
	unsigned n;
	uint64_t count;
	uint32_t hash; /* of all names and counts */
	int priority;  /* the highest given; below 0: none was given */
	bool device;   /* a tensor that is not empty is on a GPU */
};

static uint64_t group_bytes(const struct backend_request *b)
{
	return b->count * rs_dtype_size(b->dtype);
}

static uint32_t group_hash(uint32_t hash, const struct backend_request *b)
{
	struct {
		uint64_t count;
		uint32_t before, name_hash;
	} one = {.count = htole64(b->count), .before = htole32(hash), .name_hash = htole32(b->name_hash)};

	return frame_checksum(&one, sizeof one);
}

static void group_share_add(struct share *s, struct reduction_request *req)
{
	req->started = true;
	req->next = s->last;
	s->last = req;
	s->n++;
	s->device |= req->base.device != 0 && req->base.count > 0;
	s->count += req->base.count;
	s->hash = group_hash(s->hash, &req->base);
	if (req->base.priority > s->priority)
		s->priority = req->base.priority;
}

/* Returns the tensors that share an operation with `first`, including it, up to the first one that does not fit. */
static struct share group_collect(struct reduction_request *first)
{
	const struct backend_request *a = &first->base;
	uint64_t room = GROUP_OP_MAX - group_bytes(a);
	struct share s = {.priority = REDUCTION_PRIORITY_AUTO};

	group_share_add(&s, first);
	for (struct reduction_request *req = first->follows; req; req = req->follows) {
		const struct backend_request *b = &req->base;

		if (req->started || b->dtype != a->dtype || b->op != a->op || group_bytes(b) > GROUP_SMALL_MAX)
			continue;
		if (group_bytes(b) > room)
			break;
		room -= group_bytes(b);
		group_share_add(&s, req);
	}
	s.hash = s.hash ? s.hash : 1; /* 0 means: no name */
	return s;
}

/* A shared operation has ended; on the backend's thread. */
static void group_shared_done(struct backend_request *base, const struct rs_err *err)
{
	struct group_stage *stage = (struct group_stage *)base;
	struct reduction_request *last = stage->last;
	struct reduction_comm *c = last->comm;
	const char *from = stage->memory + group_bytes(base);
	struct rs_err e;

	if (err)
		comm_failed(c, err, &e);
	for (struct reduction_request *r = last; r && !err; r = r->next) {
		size_t bytes = group_bytes(&r->base);

		from -= bytes;
		if (bytes > 0)
			memcpy(r->base.recv, from, bytes);
	}
	group_stages_give(&c->stages, stage);
	request_complete_all(last, err ? &e : NULL);
}

/* Describes the shared operation, except where its memory is. */
static struct backend_request group_request(const struct share *s)
{
	return (struct backend_request){
	    .count = s->count,
	    .dtype = s->last->base.dtype,
	    .op = s->last->base.op,
	    .priority = s->priority,
	    .tensors = s->n,
	    .name_hash = s->hash,
	};
}

/* Starts a shared operation with tensors on GPUs, which the copier collects. */
static int group_start_copied(struct reduction_comm *c, const struct share *s, struct rs_err *e)
{
	struct backend_request base = group_request(s);

	return group_copy_start(c, &base, s->last, s->n, e);
}

static int group_start_shared(struct reduction_comm *c, const struct share *s, struct rs_err *e)
{
	struct group_stage *stage;
	char *to;
	int rc = group_stages_take(&c->stages, c->backend, &stage, e);

	if (rc) {
		comm_break(c, e);
		return rc;
	}
	stage->last = s->last;
	stage->base = group_request(s);
	stage->base.send = stage->base.recv = stage->memory;
	stage->base.done = group_shared_done;
	to = stage->memory + group_bytes(&stage->base);
	for (const struct reduction_request *req = s->last; req; req = req->next) {
		size_t bytes = group_bytes(&req->base);

		to -= bytes;
		if (bytes > 0)
			memcpy(to, req->base.send, bytes);
	}
	rc = comm_submit(c, &stage->base, e);
	if (rc)
		group_stages_give(&c->stages, stage);
	return rc;
}

void group_start(struct reduction_comm *c, struct reduction_request *first)
{
	struct rs_err e;

	pthread_mutex_lock(&c->order);
	for (struct reduction_request *req = first; req; req = req->follows) {
		struct share s = {.last = req, .n = 1};
		int rc;

		if (req->started)
			continue;
		req->next = NULL;
		if (group_bytes(&req->base) <= GROUP_SMALL_MAX)
			s = group_collect(req);
		if (s.n > 1 && s.device)
			rc = group_start_copied(c, &s, &e);
		else
			rc = s.n > 1 ? group_start_shared(c, &s, &e) : comm_submit(c, &req->base, &e);
		if (rc)
			request_complete_all(s.last, &e);
	}
	pthread_mutex_unlock(&c->order);
}
