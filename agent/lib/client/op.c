/* SPDX-License-Identifier: Apache-2.0 */
/* A pending operation, from its first piece to its end: copying input in, copying results
 * out, DONE. */
#include "agent/lib/client/client.h"
#include "common/assert.h"

#include <stdatomic.h>
#include <string.h>

/* Returns whether an operation is copied in pieces. For a small one the messages and
 * wake-ups would take longer than they save. */
bool client_in_pieces(size_t bytes)
{
	return bytes >= CLIENT_PIECES_MIN * (size_t)CLIENT_PIECE;
}

size_t client_stage_head(size_t bytes)
{
	return client_in_pieces(bytes) ? CLIENT_STAGE_HEAD : 0;
}

/* Copies the next piece in, as far as the ring has room. Returns its bytes. Only the
 * thread that fills. */
size_t client_fill_piece(struct client_op *op)
{
	size_t room = atomic_load_explicit(&op->copied, memory_order_acquire) + op->ring - op->filled;
	size_t n = op->bytes - op->filled, at = op->filled % op->ring;

	if (client_in_pieces(op->bytes) && n > CLIENT_PIECE)
		n = CLIENT_PIECE;
	if (n > room)
		n = room;
	if (n > op->ring - at)
		n = op->ring - at;
	rs_assert(at + n <= op->ring && op->filled + n <= op->bytes);
	if (op->to && op->to + at != (const char *)op->req->send + op->filled)
		memcpy(op->to + at, (const char *)op->req->send + op->filled, n);
	op->filled += n;
	return n;
}

/* Copies input in and sends FILLED while there is room. The caller has set `filling`. */
void client_fill(struct client *c, uint64_t seq)
{
	struct client_op *op = &c->ops[seq % c->ops_n];
	union local_message m;
	bool more = true;

	local_init(&m, LOCAL_FILLED);
	m.filled.seq = seq;
	while (more) {
		while (client_fill_piece(op) > 0) {
			m.filled.count = op->filled / op->size;
			client_send(c->fd, &m); /* if it fails, the reader fails this operation with all others */
		}
		pthread_mutex_lock(&c->lock);
		/* the reader may have made room meanwhile and left the rest to this
		 * thread */
		more = !c->broken && op->filled < op->bytes && op->filled < op->copied + op->ring;
		if (!more) {
			op->filling = false;
			pthread_cond_broadcast(&c->changed);
		}
		pthread_mutex_unlock(&c->lock);
	}
}

void client_filled(struct backend *b, struct backend_request *req, uint64_t bytes)
{
	struct client *c = (struct client *)b;
	union local_message m;

	if (req->of.sharded && bytes < operation_bytes(&req->of))
		return; /* the agent takes it as a whole */
	local_init(&m, LOCAL_FILLED);
	m.filled.seq = (uintptr_t)req->impl;
	m.filled.count = bytes / req->of.size;
	client_send(c->fd, &m); /* if it fails, the reader fails this operation with all others */
}

/* Removes the operation. With lock held. */
static void client_remove_op(struct client *c, struct client_op *op)
{
	rs_assert(op->req && c->ring_ops >= (op->counter != NULL));
	c->ring_ops -= op->counter != NULL;
	if (op->stage)
		client_stage_give(c, op->stage);
	rs_assert(!op->filling);
	*op = (struct client_op){0};
	while (c->oldest < c->next_seq && !c->ops[c->oldest % c->ops_n].req)
		c->oldest++;
}

/* Returns the pending operation of this seq, or NULL. */
static struct client_op *client_find_op(struct client *c, uint64_t seq)
{
	struct client_op *op = &c->ops[seq % c->ops_n];
	bool known;

	pthread_mutex_lock(&c->lock);
	known = seq >= c->oldest && seq < c->next_seq && op->req;
	pthread_mutex_unlock(&c->lock);
	return known ? op : NULL;
}

/* The reader: copies out the first `bytes` bytes of the result, as far as they were not
 * copied out before. */
static void client_copy_out(struct client_op *op, size_t bytes)
{
	const char *from = op->stage->map + client_stage_head(op->bytes);
	size_t copied = op->copied;

	while (copied < bytes) {
		size_t at = copied % op->ring, n = bytes - copied;

		if (n > op->ring - at)
			n = op->ring - at;
		rs_assert(copied + n <= op->bytes && at + n <= op->ring);
		memcpy((char *)op->req->recv + copied, from + at, n);
		copied += n;
	}
	atomic_store_explicit(&op->copied, copied, memory_order_release);
}

/* The reader: copies out what has landed and, unless another thread does it, copies in
 * what there is room for. */
static void client_read_counter(struct client *c, uint64_t seq)
{
	struct client_op *op = &c->ops[seq % c->ops_n];
	uint64_t landed = atomic_load_explicit(op->counter, memory_order_acquire) * op->size;
	bool fills;

	if (landed <= op->copied || landed > op->bytes)
		return;
	if (op->req->ring) {
		atomic_store_explicit(&op->copied, landed, memory_order_relaxed);
		op->req->landed(op->req, landed);
		return;
	}
	client_copy_out(op, landed);
	pthread_mutex_lock(&c->lock);
	fills = !op->filling && op->filled < op->bytes;
	op->filling |= fills;
	pthread_mutex_unlock(&c->lock);
	if (fills)
		client_fill(c, seq);
}

void client_read_counters(struct client *c)
{
	uint64_t from, to;

	pthread_mutex_lock(&c->lock);
	from = c->oldest;
	to = c->ring_ops ? c->next_seq : from;
	pthread_mutex_unlock(&c->lock);
	for (; from < to; from++)
		if (c->ops[from % c->ops_n].req && c->ops[from % c->ops_n].counter)
			client_read_counter(c, from);
}

/* Waits until no other thread fills the operation. With lock held. */
static void client_wait_filled(struct client *c, const struct client_op *op)
{
	while (op->filling)
		pthread_cond_wait(&c->changed, &c->lock);
}

int client_op_done(struct client *c, const struct local_done *m, struct rs_err *e)
{
	struct client_op *op = client_find_op(c, m->seq);
	struct backend_request *req;
	struct rs_err err;

	if (!op)
		return rs_fail(e, RS_EPROTO, "the agent at %s ended operation %llu, which is not pending", c->path,
			       (unsigned long long)m->seq);
	req = op->req;
	if (!m->code && op->result)
		memcpy(req->recv, op->result, op->result_bytes);
	else if (!m->code && op->stage)
		client_copy_out(op, op->bytes);
	atomic_store(&c->can_shard, m->can_shard != 0);
	pthread_mutex_lock(&c->lock);
	client_wait_filled(c, op);
	client_remove_op(c, op);
	c->ops_done += m->code == 0;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (m->code)
		client_failure(&err, m->code, m->message);
	req->done(req, m->code ? &err : NULL);
	return RS_OK;
}

void client_fail_pending(struct client *c, const struct rs_err *why, bool detach)
{
	struct backend_request *req;
	struct client_op *op;

	pthread_mutex_lock(&c->lock);
	if (!c->broken) { /* else it was aborted, which ended the connection */
		c->broken = true;
		c->err = *why;
		if (c->closing)
			rs_fail(&c->err, RS_ECLOSED, "the communicator is closed");
	}
	pthread_cond_broadcast(&c->changed);
	while (c->oldest < c->next_seq) {
		op = &c->ops[c->oldest % c->ops_n];
		client_wait_filled(c, op);
		req = op->req;
		client_remove_op(c, op);
		pthread_mutex_unlock(&c->lock);
		if (detach && !req->ring)
			client_memory_detach(c, req);
		req->done(req, &c->err);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
}
