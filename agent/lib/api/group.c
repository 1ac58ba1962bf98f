/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/lib/api/group.h"
#include "agent/lib/api/group_copy.h"
#include "proto/frame.h"

#include <endian.h>
#include <string.h>

/* The tensors of one shared operation. Invariant: of.tensors and of.count are the number
 * and total elements of the chain, with the zeros behind each tensor, and of.priority is
 * the highest that one of them gives. */
struct share {
	struct reduction_request *last; /* chained by next, the last one first */
	struct operation of;
	reduction_wire wire; /* of all tensors */
	unsigned block;      /* a tensor takes a multiple of so many elements */
	bool device;         /* a tensor that is not empty is on a GPU */
};

/* Returns the elements of which a tensor takes a multiple in a shared operation of this
 * kind. */
static unsigned group_block(const struct reduction_comm *c, const struct backend_request *base)
{
	struct operation large = {
	    .count = OPERATION_SMALL + 1, .dtype = base->of.dtype, .op = base->of.op, .size = base->of.size};

	comm_choose_wire(c, &large, base->wire);
	return rs_wire_has_blocks(large.up) || rs_wire_has_blocks(large.down) ? RS_WIRE_BLOCK : 1;
}

/* Returns the elements that a tensor takes. */
static uint64_t group_elems(const struct operation *of, unsigned block)
{
	return (of->count + block - 1) / block * block;
}

static uint32_t group_hash(uint32_t hash, const struct operation *of)
{
	struct {
		uint64_t count;
		uint32_t before, name_hash;
	} one = {.count = htole64(of->count), .before = htole32(hash), .name_hash = htole32(of->name_hash)};

	return frame_checksum(&one, sizeof one);
}

static void group_share_add(struct share *s, struct reduction_request *req)
{
	const struct operation *of = &req->base.of;

	req->started = true;
	req->next = s->last;
	s->last = req;
	s->device |= req->base.device != 0 && of->count > 0;
	s->of.tensors++;
	s->of.count += group_elems(of, s->block);
	s->of.name_hash = group_hash(s->of.name_hash, of);
	if (s->of.priority == OPERATION_AUTO || (of->priority != OPERATION_AUTO && of->priority > s->of.priority))
		s->of.priority = of->priority;
}

/* Returns the tensors that share an operation with `first`, including it, up to the first
 * one that does not fit. */
static struct share group_collect(const struct reduction_comm *c, struct reduction_request *first)
{
	const struct operation *a = &first->base.of;
	struct share s = {.of = {.dtype = a->dtype, .op = a->op, .size = a->size, .priority = OPERATION_AUTO},
			  .wire = first->base.wire,
			  .block = group_block(c, &first->base)};
	uint64_t room = GROUP_OP_MAX - group_elems(a, s.block) * a->size, bytes;

	group_share_add(&s, first);
	for (struct reduction_request *req = first->follows; req; req = req->follows) {
		const struct operation *b = &req->base.of;

		if (req->started || b->dtype != a->dtype || b->op != a->op || req->base.wire != s.wire ||
		    operation_bytes(b) > GROUP_SMALL_MAX)
			continue;
		bytes = group_elems(b, s.block) * b->size;
		if (bytes > room)
			break;
		room -= bytes;
		group_share_add(&s, req);
	}
	s.of.name_hash = s.of.name_hash ? s.of.name_hash : 1; /* 0 means: no name */
	comm_choose_wire(c, &s.of, s.wire);
	return s;
}

/* A shared operation has ended; on the backend's thread. */
static void group_shared_done(struct backend_request *base, const struct rs_err *err)
{
	struct group_stage *stage = (struct group_stage *)base;
	struct reduction_request *last = stage->last;
	struct reduction_comm *c = last->comm;
	const char *from = stage->memory + operation_bytes(&base->of);
	unsigned block = group_block(c, base);
	struct rs_err e;

	if (err)
		comm_failed(c, err, &e);
	for (struct reduction_request *r = last; r && !err; r = r->next) {
		size_t bytes = operation_bytes(&r->base.of);

		from -= group_elems(&r->base.of, block) * r->base.of.size;
		if (bytes > 0)
			memcpy(r->base.recv, from, bytes);
	}
	group_stages_give(&c->stages, stage);
	request_complete_all(last, err ? &e : NULL);
}

/* Starts a shared operation with tensors on GPUs, which the copier collects. */
static int group_start_copied(struct reduction_comm *c, const struct share *s, struct rs_err *e)
{
	struct backend_request base = {.of = s->of};

	return group_copy_start(c, &base, s->last, s->block, e);
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
	stage->base = (struct backend_request){
	    .send = stage->memory, .recv = stage->memory, .of = s->of, .wire = s->wire, .done = group_shared_done};
	to = stage->memory + operation_bytes(&stage->base.of);
	for (const struct reduction_request *req = s->last; req; req = req->next) {
		size_t bytes = operation_bytes(&req->base.of);
		size_t place = group_elems(&req->base.of, s->block) * s->of.size;

		to -= place;
		if (bytes > 0)
			memcpy(to, req->base.send, bytes);
		memset(to + bytes, 0, place - bytes);
	}
	rc = comm_submit(c, &stage->base, e);
	if (rc)
		group_stages_give(&c->stages, stage);
	return rc;
}

static int group_start_single(struct reduction_comm *c, struct reduction_request *req, struct rs_err *e)
{
	comm_choose_wire(c, &req->base.of, req->base.wire);
	return comm_submit(c, &req->base, e);
}

void group_start(struct reduction_comm *c, struct reduction_request *first)
{
	struct rs_err e;

	pthread_mutex_lock(&c->order);
	for (struct reduction_request *req = first; req; req = req->follows) {
		struct share s = {.last = req};
		int rc;

		if (req->started)
			continue;
		req->next = NULL;
		if (operation_bytes(&req->base.of) <= GROUP_SMALL_MAX)
			s = group_collect(c, req);
		if (s.of.tensors > 1 && s.device)
			rc = group_start_copied(c, &s, &e);
		else
			rc = s.of.tensors > 1 ? group_start_shared(c, &s, &e) : group_start_single(c, req, &e);
		if (rc)
			request_complete_all(s.last, &e);
	}
	pthread_mutex_unlock(&c->order);
}
