/* SPDX-License-Identifier: Apache-2.0 */
/* An operation on a device's memory. The happy path: a stage and a queue are taken, the
 * queue waits for the caller's stream -> the pipeline says which pieces are copied ->
 * fences say which copies are complete -> the backend learns how much is in the ring, and
 * says how much has landed -> the backend is done, the last piece is copied in, and the
 * request is done. Failure modes: a copy cannot be queued or fails: the job is ended with
 * the reason; the backend fails: no further copy starts. The request is done when the
 * backend has ended and no copy runs. */
#include "agent/gpu/copier/state.h"
#include "agent/gpu/core/shards.h"
#include "common/assert.h"
#include "proto/frame.h"
#include "proto/operation.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)PIPELINE_OUT == (int)CUDA_OUT && (int)PIPELINE_IN == (int)CUDA_IN, "the directions are the same");

static void op_on_landed(struct backend_request *ring, uint64_t bytes)
{
	struct copier_op *op = (struct copier_op *)ring;
	uint64_t before = atomic_exchange(&op->landed, bytes);

	if (before / op->pipe.piece != bytes / op->pipe.piece || bytes == op->pipe.bytes)
		copier_wake(op->copier);
}

static void op_on_done(struct backend_request *ring, const struct rs_err *err)
{
	struct copier_op *op = (struct copier_op *)ring;
	struct copier *c = op->copier;

	if (err)
		op->backend_err = *err;
	atomic_store(&op->backend_done, true);
	copier_wake(c);
}

static struct copier_queue *op_queue(struct copier_op *op, int device)
{
	for (unsigned i = 0; i < op->queues_n; i++)
		if (op->queues[i].device == device)
			return &op->queues[i];
	return NULL;
}

/* Makes the device wait for the tensors' streams. */
static int op_mark(struct copier_op *op, struct rs_err *e)
{
	const struct copier_tensor *before = NULL; /* the last one whose stream is waited for */

	for (unsigned i = 0; i < op->tensors_n; i++) {
		const struct copier_tensor *t = &op->tensors[i];
		struct copier_queue *q;
		int rc;

		if (t->device < 0 || t->bytes == 0)
			continue;
		q = op_queue(op, t->device);
		if (!q) {
			q = &op->queues[op->queues_n];
			q->device = t->device;
			rc = cuda_take(op->copier->cuda, t->device, &q->q, e);
			if (rc)
				return rc;
			op->queues_n++;
		} else if (before && before->device == t->device && before->stream == t->stream) {
			continue;
		}
		rc = cuda_mark(q->q, t->stream, e);
		if (rc)
			return rc;
		before = t;
	}
	return RS_OK;
}

static unsigned op_urgency(const struct operation *of)
{
	if (of->priority == OPERATION_AUTO) /* as exchange_priority() */
		return operation_is_small(of) || operation_is_gather(of) ? OPERATION_AUTO : 0;
	return of->priority;
}

/* Returns the bytes of a piece: whole chunks, so few that a ring has places for them. */
static uint64_t op_piece(const struct backend *b, const struct operation *of)
{
	uint64_t chunk = backend_span(b, of), piece = backend_ring_bytes(b, of) / (PIPELINE_PLACES / 2);

	piece = piece > COPIER_PIECE ? piece : COPIER_PIECE;
	return (piece + chunk - 1) / chunk * chunk;
}

/* Returns the bytes of a ring for any number of elements: what the backend can have under
 * way, and the pieces that are being copied. */
static uint64_t op_ring(const struct backend *b, const struct operation *of, uint64_t piece)
{
	return (backend_ring_bytes(b, of) + piece - 1) / piece * piece + 2 * PIPELINE_DEPTH * piece;
}

/* Returns whether the stage has all parts of a sharded operation as they stand in the
 * device's memory. */
static bool op_is_in_order(const struct backend *b, const struct operation *of)
{
	return of->sharded && !b->sharded_rings;
}

/* Sets what the backend gets. */
static void op_set_ring(struct copier_op *op, uint64_t bytes)
{
	const struct operation *of = &op->req->of;
	char *memory = op->stage->memory + BACKEND_RING_HEAD, *own = memory;

	if (op_is_in_order(op->copier->backend, of))
		own += operation_bytes(of) / of->parts * op->rank;
	op->ring = *op->req;
	op->ring.send = operation_is_gather(of) ? own : memory;
	op->ring.recv = operation_is_scatter(of) ? own : memory;
	op->ring.ring = bytes;
	op->ring.landed = op_on_landed;
	op->ring.done = op_on_done;
}

int copier_op_new(struct copier *c, unsigned rank, struct backend_request *req, const struct copier_tensor *tensors,
		  unsigned n, struct copier_op **ret, struct rs_err *e)
{
	bool in_order = op_is_in_order(c->backend, &req->of);
	uint64_t piece = op_piece(c->backend, &req->of);
	uint64_t bytes = in_order ? operation_bytes(&req->of) : backend_staged_bytes(c->backend, &req->of);
	uint64_t most = in_order ? bytes : op_ring(c->backend, &req->of, piece), ring = bytes < most ? bytes : most;
	bool broadcast = req->of.op == FRAME_OP_BROADCAST && !req->of.sharded;
	bool root = broadcast && req->of.root == rank;
	struct copier_op *op = calloc(1, sizeof *op + n * (sizeof *tensors + sizeof *op->queues));
	int device = -1, rc;

	if (!op)
		return rs_oom(e, sizeof *op + n * (sizeof *tensors + sizeof *op->queues), "an operation");
	op->copier = c;
	op->req = req;
	op->tensors_n = n;
	op->queues = (struct copier_queue *)&op->tensors[n];
	memcpy(op->tensors, tensors, n * sizeof *tensors);
	for (unsigned i = 0; i < n && device < 0; i++)
		device = tensors[i].bytes > 0 ? tensors[i].device : -1; /* that of an empty one was not checked */
	rc = copier_stage_take(c, ring, most, device, &op->stage, e);
	if (!rc)
		rc = op_mark(op, e);
	if (rc) {
		copier_op_free(op);
		return rc;
	}
	op->urgency = op_urgency(&req->of);
	op->rank = rank;
	op->chunk_elems = backend_chunk_elems(c->backend, &req->of);
	pipeline_init(&op->pipe, bytes, piece, ring, !broadcast || root, !root);
	op_set_ring(op, ring);
	*ret = op;
	return RS_OK;
}

void copier_op_free(struct copier_op *op)
{
	struct copier *c = op->copier;

	for (unsigned i = 0; i < op->queues_n; i++)
		cuda_give(op->queues[i].q);
	if (op->stage)
		copier_stage_give(c, op->stage);
	free(op);
}

/* Records the begin or the end of a part of pieces [from, until). */
static void op_note(struct copier_op *op, enum piece_part part, bool end, uint64_t from, uint64_t until)
{
	uint64_t now = from < until ? copier_trace_now() : 0;

	for (; from < until; from++) {
		struct piece_span *s = &op->pieces[from].part[part];

		if (end)
			s->end = now;
		else if (!s->end)
			s->begin = now;
	}
}

/* Records that the device has done the work of the caller's streams: copies that were
 * queued begin now. */
static void op_note_marked(struct copier_op *op, unsigned dir)
{
	const struct pipeline_side *side = dir == CUDA_OUT ? &op->pipe.out : &op->pipe.in;

	op_note(op, dir == CUDA_OUT ? PIECE_OUT : PIECE_IN, false, side->complete, side->started);
}

static void op_note_copy(struct copier_op *op, unsigned dir, bool end, uint64_t piece)
{
	if (op->pieces)
		op_note(op, dir == CUDA_OUT ? PIECE_OUT : PIECE_IN, end, piece, piece + 1);
}

/* Tells the backend how much is in the ring. */
static void op_announce(struct copier_op *op, uint64_t bytes)
{
	struct backend *b = op->copier->backend;

	if (op->pieces) {
		uint64_t until = pipeline_pieces(&op->pipe, bytes);

		op_note(op, PIECE_NETWORK, false, op->announced, until);
		op->announced = until;
	}
	b->v->filled(b, &op->ring, bytes);
}

/* Takes note of what the backend has done. */
static void op_look(struct copier_op *op)
{
	uint64_t before = op->pipe.landed;

	if (!op->pipe.ended && atomic_load(&op->backend_done))
		pipeline_end(&op->pipe, !op->backend_err.code);
	pipeline_landed(&op->pipe, atomic_load(&op->landed));
	if (op->pieces)
		op_note(op, PIECE_NETWORK, true, pipeline_pieces(&op->pipe, before),
			pipeline_pieces(&op->pipe, op->pipe.landed));
}

static void op_piece_passed(struct copier_op *op, unsigned dir, uint64_t piece)
{
	if (--op->waiting[dir][piece % PIPELINE_PLACES] > 0)
		return;
	op_note_copy(op, dir, true, piece);
	pipeline_copied(&op->pipe, dir, piece);
}

/* Takes note of fences up to the n-th. */
static void op_passed(struct copier_op *op, struct copier_queue *q, unsigned dir, uint64_t n)
{
	for (; q->seen[dir] < n; q->seen[dir]++) {
		uint64_t piece = q->piece[dir][q->seen[dir] % CUDA_FENCES];

		if (piece == COPIER_MARK)
			op_note_marked(op, dir);
		else
			op_piece_passed(op, dir, piece);
	}
}

static void op_fail(struct copier_op *op, const struct rs_err *why)
{
	pipeline_fail(&op->pipe);
	if (op->err.code)
		return;
	op->err = *why;
	op->copier->failed(op->copier->user, why);
}

/* Waits for a queue that cannot be followed any more. */
static void op_abandon(struct copier_op *op, struct copier_queue *q, const struct rs_err *why)
{
	op_fail(op, why);
	cuda_wait(q->q);
	for (unsigned dir = 0; dir < 2; dir++)
		op_passed(op, q, dir, q->added[dir]);
}

static void op_poll(struct copier_op *op)
{

	for (unsigned i = 0; i < op->queues_n; i++) {
		struct copier_queue *q = &op->queues[i];

		for (unsigned dir = 0; dir < 2; dir++) {
			struct rs_err e;
			uint64_t n;

			if (q->seen[dir] == q->added[dir])
				continue;
			if (cuda_poll(q->q, dir, &n, &e))
				op_abandon(op, q, &e);
			else
				op_passed(op, q, dir, n);
		}
	}
}

/* Copies bytes [at, at + n) of the operation that belong to one tensor, which starts at
 * byte `first`. */
static int op_copy_part(struct copier_op *op, unsigned dir, const struct copier_tensor *t, char *place, uint64_t first,
			uint64_t at, uint64_t n, struct rs_err *e)
{
	const char *from = (const char *)t->send + (at - first);
	char *to = (char *)t->recv + (at - first);

	if (t->device < 0) {
		memcpy(dir == CUDA_OUT ? place : to, dir == CUDA_OUT ? from : place, n);
		return RS_OK;
	}
	if (dir == CUDA_OUT)
		return cuda_copy_out(op_queue(op, t->device)->q, place, from, n, e);
	return cuda_copy_in(op_queue(op, t->device)->q, to, place, n, e);
}

static char *op_place(const struct copier_op *op, const struct pipeline_step *s)
{
	return op->stage->memory + BACKEND_RING_HEAD + s->offset;
}

static int op_copy_shard(struct copier_op *op, unsigned dir, char *place, const struct shards_copy *copy,
			 struct rs_err *e)
{
	struct cuda_queue *q = op->queues[0].q;
	const struct copier_tensor *t = op->tensors;

	if (dir == CUDA_OUT)
		return cuda_copy_out(q, place + copy->place, (const char *)t->send + copy->at, copy->bytes, e);
	return cuda_copy_in(q, (char *)t->recv + copy->at, place + copy->place, copy->bytes, e);
}

/* Starts the copies of a piece of a sharded operation. */
static int op_copy_shards(struct copier_op *op, unsigned dir, const struct pipeline_step *s, struct rs_err *e)
{
	bool own_only = (dir == CUDA_OUT) == operation_is_gather(&op->req->of);
	struct shards shards = {
	    .of = &op->req->of, .chunk_elems = op->chunk_elems, .own_only = own_only, .own = op->rank};
	struct shards_copy copy;
	int rc = RS_OK;

	if (op_is_in_order(op->copier->backend, &op->req->of)) {
		copy = shards_in_order(&op->req->of, own_only, op->rank, s->at, s->bytes);
		return copy.bytes ? op_copy_shard(op, dir, op_place(op, s), &copy, e) : RS_OK;
	}
	shards_begin(&shards, s->at, s->bytes);
	while (!rc && shards_next(&shards, &copy))
		rc = op_copy_shard(op, dir, op_place(op, s), &copy, e);
	return rc;
}

/* Starts the copies of a piece. */
static int op_copy_parts(struct copier_op *op, unsigned dir, const struct pipeline_step *s, struct rs_err *e)
{
	char *place = op_place(op, s);
	uint64_t first = 0, at = s->at, end = s->at + s->bytes;
	int rc = RS_OK;

	for (unsigned i = 0; i < op->tensors_n && first < end && !rc; i++) {
		const struct copier_tensor *t = &op->tensors[i];
		uint64_t last = first + t->bytes < end ? first + t->bytes : end;

		if (last > at) {
			rc = op_copy_part(op, dir, t, place + (at - s->at), first, at, last - at, e);
			at = last;
		}
		first += t->bytes + t->gap;
		last = first < end ? first : end;
		if (last > at && dir == CUDA_OUT)
			memset(place + (at - s->at), 0, last - at);
		at = last > at ? last : at;
	}
	return rc;
}

/* Starts a piece's copies and puts a fence behind them on each device. */
static void op_copy(struct copier_op *op, unsigned dir, const struct pipeline_step *s)
{
	uint8_t *waiting = &op->waiting[dir][s->piece % PIPELINE_PLACES];
	struct rs_err e;

	op_note_copy(op, dir, false, s->piece);
	*waiting = 1; /* so that the piece is not complete before all fences are there */
	if (op->req->of.sharded ? op_copy_shards(op, dir, s, &e) : op_copy_parts(op, dir, s, &e))
		op_fail(op, &e);
	for (unsigned i = 0; i < op->queues_n; i++) {
		struct copier_queue *q = &op->queues[i];

		if (cuda_fence(q->q, dir, &e)) {
			op_abandon(op, q, &e);
			continue;
		}
		rs_assert(q->added[dir] - q->seen[dir] < CUDA_FENCES);
		q->piece[dir][q->added[dir]++ % CUDA_FENCES] = s->piece;
		++*waiting;
	}
	op_piece_passed(op, dir, s->piece);
}

/* Adds fences before the first copies of operations that are recorded. */
static void op_add_marks(struct copier_op *op)
{
	const bool uses[2] = {op->pipe.sends, op->pipe.receives};

	op->marked = true;
	for (unsigned i = 0; i < op->queues_n; i++)
		for (unsigned dir = 0; dir < 2; dir++) {
			struct copier_queue *q = &op->queues[i];
			struct rs_err e;

			if (!uses[dir])
				continue;
			if (cuda_fence(q->q, dir, &e))
				op_abandon(op, q, &e);
			else
				q->piece[dir][q->added[dir]++ % CUDA_FENCES] = COPIER_MARK;
		}
}

/* Returns whether all fences are passed: those of operations that are recorded and fail
 * may not be. */
static bool op_quiet(const struct copier_op *op)
{
	for (unsigned i = 0; i < op->queues_n; i++)
		for (unsigned dir = 0; dir < 2; dir++)
			if (op->queues[i].seen[dir] < op->queues[i].added[dir])
				return false;
	return true;
}

static void op_end(struct copier_op *op)
{
	struct backend_request *req = op->req;
	struct rs_err err = op->err.code ? op->err : op->backend_err;

	copier_op_free(op);
	req->done(req, err.code ? &err : NULL);
}

bool copier_op_run(struct copier_op *op)
{
	struct pipeline_step s;

	if (op->pieces && !op->marked)
		op_add_marks(op);
	op_look(op);
	op_poll(op);
	while ((s = pipeline_next(&op->pipe)).kind != PIPELINE_WAIT) {
		switch (s.kind) {
		case PIPELINE_COPY_OUT:
			op_copy(op, CUDA_OUT, &s);
			break;
		case PIPELINE_COPY_IN:
			op_copy(op, CUDA_IN, &s);
			break;
		case PIPELINE_ANNOUNCE:
			op_announce(op, s.bytes);
			break;
		default:
			if (!op_quiet(op))
				return false;
			op_end(op);
			return true;
		}
	}
	return false;
}
