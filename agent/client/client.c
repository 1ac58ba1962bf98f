/* SPDX-License-Identifier: Apache-2.0 */
/* The backend. The happy path of an operation: its memory is found or a stage is taken, it gets an entry among the
 * pending operations, SUBMIT, FILLED as more input is copied in; the reader (reader.c) copies out what has landed,
 * receives DONE, copies the rest out of the stage and calls done(). Failure modes: the agent cannot provide memory
 * (submit returns the error); the agent ends the job (ABORT) or exits (its end of the socket closes): the reader fails
 * all pending operations with that reason, and every later call gets it, too. */
#include "agent/client/client.h"
#include "agent/client/open.h"
#include "common/dtype.h"
#include "proto/frame.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static struct client *client_from(struct backend *b)
{
	_Static_assert(offsetof(struct client, base) == 0, "base is first");
	return (struct client *)b;
}

static int client_broken(const struct client *c, struct rs_err *e)
{
	*e = c->err;
	return e->code;
}

int client_ask(struct client *c, const union local_message *m, enum local_type type, union local_message *ret,
	       int *ret_fd, struct rs_err *e)
{
	int rc = RS_OK, fd = -1;

	pthread_mutex_lock(&c->ask_lock);
	pthread_mutex_lock(&c->lock);
	c->replied = false;
	pthread_mutex_unlock(&c->lock);
	client_send(c->fd, m); /* a failure means that the agent is lost, which the reader finds, too */
	pthread_mutex_lock(&c->lock);
	while (!c->replied && !c->broken)
		pthread_cond_wait(&c->changed, &c->lock);
	if (!c->replied) {
		rc = client_broken(c, e);
	} else {
		fd = c->reply_fd;
		c->reply_fd = -1;
		c->replied = false;
		if (c->reply.head.type != type)
			rc = rs_fail(e, RS_EPROTO, "the agent at %s answered with %s, expected %s", c->path,
				     local_type_name(c->reply.head.type), local_type_name(type));
		else
			*ret = c->reply;
	}
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&c->ask_lock);
	if (rc && fd >= 0)
		close(fd);
	else if (!rc)
		*ret_fd = fd;
	return rc;
}

/* Returns whether an operation is copied in pieces. For a small one the messages and wake-ups would take longer than
 * they save. */
static bool client_in_pieces(size_t bytes)
{
	return bytes >= CLIENT_PIECES_MIN * (size_t)CLIENT_PIECE;
}

static size_t client_stage_head(size_t bytes)
{
	return client_in_pieces(bytes) ? CLIENT_STAGE_HEAD : 0;
}

/* Returns the bytes of the ring for an operation: whole chunks if it is smaller than the operation. */
static size_t client_ring_bytes(const struct client *c, size_t bytes)
{
	size_t ring = (c->ring_bytes + c->chunk_bytes - 1) / c->chunk_bytes * c->chunk_bytes;

	return bytes < ring ? bytes : ring;
}

static void client_set_offsets(struct local_submit *s, const struct client_buffer *send, const void *from,
			       const struct client_buffer *recv, const void *to)
{
	s->send_buffer = send->id;
	s->send_offset = (uint64_t)((const char *)from - send->map);
	s->recv_buffer = recv->id;
	s->recv_offset = (uint64_t)((const char *)to - recv->map);
}

/* Chooses the memory of an operation. Both buffers are shared: nothing is copied. Only recv is shared: the input is
 * copied to recv, where the result will overwrite it. Otherwise a stage receives the result, and the input too unless
 * send is shared. */
static int client_plan_memory(struct client *c, const struct backend_request *req, struct client_op *op,
			      struct local_submit *s, struct rs_err *e)
{
	const struct client_buffer *send, *recv;
	size_t head = client_stage_head(op->bytes);
	int rc;

	if (op->bytes == 0)
		return RS_OK;
	pthread_mutex_lock(&c->lock);
	send = client_find(c, req->send, op->bytes);
	recv = client_find(c, req->recv, op->bytes);
	pthread_mutex_unlock(&c->lock);
	op->ring = op->bytes;
	if (recv) {
		op->to = send ? NULL : req->recv;
		client_set_offsets(s, send ? send : recv, send ? req->send : req->recv, recv, req->recv);
		return RS_OK;
	}
	if (client_in_pieces(op->bytes))
		op->ring = client_ring_bytes(c, op->bytes);
	rc = client_stage_take(c, head + op->ring, &op->stage, e);
	if (rc)
		return rc;
	recv = op->stage;
	op->to = send ? NULL : op->stage->map + head;
	client_set_offsets(s, send ? send : recv, send ? req->send : op->to, recv, recv->map + head);
	if (client_in_pieces(op->bytes)) {
		s->ring = op->ring;
		atomic_store_explicit((_Atomic uint64_t *)op->stage->map, 0, memory_order_relaxed);
	}
	return RS_OK;
}

/* Copies the next piece in, as far as the ring has room. Returns its bytes. Only the thread that fills. */
static size_t client_fill_piece(struct client_op *op)
{
	size_t room = atomic_load_explicit(&op->copied, memory_order_acquire) + op->ring - op->filled;
	size_t n = op->bytes - op->filled, at = op->filled % op->ring;

	if (client_in_pieces(op->bytes) && n > CLIENT_PIECE)
		n = CLIENT_PIECE;
	if (n > room)
		n = room;
	if (n > op->ring - at)
		n = op->ring - at;
	if (op->to && op->to + at != (const char *)op->req->send + op->filled)
		memcpy(op->to + at, (const char *)op->req->send + op->filled, n);
	op->filled += n;
	return n;
}

/* Copies input in and sends FILLED while there is room. The caller has set `filling`. */
static void client_fill(struct client *c, uint64_t seq)
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
		/* the reader may have made room meanwhile and left the rest to this thread */
		more = !c->broken && op->filled < op->bytes && op->filled < op->copied + op->ring;
		if (!more) {
			op->filling = false;
			pthread_cond_broadcast(&c->changed);
		}
		pthread_mutex_unlock(&c->lock);
	}
}

/* Waits for a free entry in the ring of operations. With lock held. */
static int client_wait_for_room(struct client *c, struct rs_err *e)
{
	while (!c->broken && c->next_seq - c->oldest >= c->ops_n)
		pthread_cond_wait(&c->changed, &c->lock);
	return c->broken ? client_broken(c, e) : RS_OK;
}

/* Returns whether the agent counts landed results of the operation. */
static bool client_uses_ring(const struct client_op *op)
{
	return op->stage && client_in_pieces(op->bytes);
}

/* Adds the operation. On an error its stage is returned. */
static int client_add_op(struct client *c, const struct client_op *op, uint64_t *ret_seq, struct rs_err *e)
{
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = client_wait_for_room(c, e);
	if (rc) {
		if (op->stage)
			client_stage_give(c, op->stage);
	} else {
		*ret_seq = c->next_seq++;
		c->ops[*ret_seq % c->ops_n] = *op;
		c->ring_ops += client_uses_ring(op);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static int client_submit(struct backend *b, struct backend_request *req, struct rs_err *e)
{
	struct client *c = client_from(b);
	size_t size = rs_dtype_size(req->dtype);
	struct client_op op = {.req = req, .bytes = req->count * size, .size = size};
	union local_message m;
	int rc;

	local_init(&m, LOCAL_SUBMIT);
	rc = client_plan_memory(c, req, &op, &m.submit, e);
	if (rc)
		return rc;
	if (op.to || op.ring < op.bytes)
		client_fill_piece(&op);
	else
		op.filled = op.bytes;
	op.filling = op.filled < op.bytes;
	m.submit.missing = (op.bytes - op.filled) / size;
	m.submit.count = req->count;
	m.submit.dtype = (uint8_t)req->dtype;
	m.submit.op = (uint8_t)req->op;
	m.submit.root = req->root;
	m.submit.priority = (int16_t)(req->priority < INT16_MAX ? req->priority : INT16_MAX);
	m.submit.name_hash = req->name_hash;
	m.submit.tensors = req->tensors;
	snprintf(m.submit.name, sizeof m.submit.name, "%s", req->name ? req->name : "");
	rc = client_add_op(c, &op, &m.submit.seq, e);
	if (rc)
		return rc;
	client_send(c->fd, &m); /* if it fails, the reader fails this operation with all others */
	if (op.filling)
		client_fill(c, m.submit.seq);
	return RS_OK;
}

/* Removes the operation. With lock held. */
static void client_remove_op(struct client *c, struct client_op *op)
{
	c->ring_ops -= client_uses_ring(op);
	if (op->stage)
		client_stage_give(c, op->stage);
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

/* The reader: copies out the first `bytes` bytes of the result, as far as they were not copied out before. */
static void client_copy_out(struct client_op *op, size_t bytes)
{
	const char *from = op->stage->map + client_stage_head(op->bytes);
	size_t copied = op->copied;

	while (copied < bytes) {
		size_t at = copied % op->ring, n = bytes - copied;

		if (n > op->ring - at)
			n = op->ring - at;
		memcpy((char *)op->req->recv + copied, from + at, n);
		copied += n;
	}
	atomic_store_explicit(&op->copied, copied, memory_order_release);
}

/* The reader: copies out what has landed and, unless another thread does it, copies in what there is room for. */
static void client_read_counter(struct client *c, uint64_t seq)
{
	struct client_op *op = &c->ops[seq % c->ops_n];
	uint64_t landed = atomic_load_explicit((_Atomic uint64_t *)op->stage->map, memory_order_acquire) * op->size;
	bool fills;

	if (landed <= op->copied || landed > op->bytes)
		return;
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
		if (c->ops[from % c->ops_n].req && client_uses_ring(&c->ops[from % c->ops_n]))
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
	if (!m->code && op->stage)
		client_copy_out(op, op->bytes);
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

void client_fail_pending(struct client *c, const struct rs_err *why)
{
	struct backend_request *req;
	struct client_op *op;

	pthread_mutex_lock(&c->lock);
	c->broken = true;
	c->err = *why;
	if (c->closing)
		rs_fail(&c->err, RS_ECLOSED, "the communicator is closed");
	pthread_cond_broadcast(&c->changed);
	while (c->oldest < c->next_seq) {
		op = &c->ops[c->oldest % c->ops_n];
		client_wait_filled(c, op);
		req = op->req;
		client_remove_op(c, op);
		pthread_mutex_unlock(&c->lock);
		req->done(req, &c->err);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
}

static int client_alloc_buffer(struct backend *b, size_t bytes, void **ret, struct rs_err *e)
{
	return client_alloc(client_from(b), bytes, ret, e);
}

static void client_free_buffer(struct backend *b, void *buf)
{
	client_free(client_from(b), buf);
}

static int client_stats(struct backend *b, reduction_stats *ret, struct rs_err *e)
{
	struct client *c = client_from(b);
	union local_message m;
	int fd = -1, rc;

	local_init(&m, LOCAL_STATS);
	rc = client_ask(c, &m, LOCAL_COUNTERS, &m, &fd, e);
	if (rc)
		return rc;
	ret->tx_bytes = m.counters.tx_bytes;
	ret->rx_bytes = m.counters.rx_bytes;
	pthread_mutex_lock(&c->lock);
	ret->ops_done = c->ops_done;
	pthread_mutex_unlock(&c->lock);
	return RS_OK;
}

static void client_delete(struct client *c)
{
	client_memory_close(c);
	if (c->reply_fd >= 0)
		close(c->reply_fd);
	client_reader_close(c);
	close(c->fd);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->ask_lock);
	pthread_cond_destroy(&c->changed);
	free(c->ops);
	free(c);
}

static void client_stop(struct backend *b)
{
	struct client *c = client_from(b);
	union local_message m;

	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_mutex_unlock(&c->lock);
	/* an agent that hangs must not block this thread */
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_sec = 1}, sizeof(struct timeval));
	local_init(&m, LOCAL_GOODBYE);
	client_send(c->fd, &m);
	shutdown(c->fd, SHUT_RDWR); /* wakes the reader; messages that were sent still arrive */
	pthread_join(c->thread, NULL);
}

static void client_close(struct backend *b)
{
	struct client *c = client_from(b);
	struct rs_config *cfg = c->cfg;

	client_delete(c);
	rs_config_close(cfg);
	free(cfg);
}

int client_open(struct backend **ret, const struct backend_options *opt, struct rs_err *e)
{
	static const struct backend_vtbl vtbl = {
	    .submit = client_submit,
	    .wait = client_wait,
	    .alloc = client_alloc_buffer,
	    .free = client_free_buffer,
	    .stats = client_stats,
	    .stop = client_stop,
	    .close = client_close,
	};
	struct client *c = calloc(1, sizeof *c);
	struct local_welcome grants;
	int rc;

	if (!c)
		return rs_fail(e, RS_ENOMEM, "out of memory for a communicator");
	rc = client_join(opt, &c->fd, &grants, e);
	if (rc) {
		free(c);
		return rc;
	}
	c->base.v = &vtbl;
	c->base.priorities = grants.priorities;
	c->reply_fd = -1;
	c->ring_bytes = grants.ring_bytes;
	c->chunk_bytes = grants.chunk_bytes;
	c->ops_n = grants.ops < opt->cfg->limits.ops ? grants.ops : opt->cfg->limits.ops;
	c->stage_limit = grants.shm_bytes < CLIENT_STAGE_LIMIT ? grants.shm_bytes : CLIENT_STAGE_LIMIT;
	snprintf(c->path, sizeof c->path, "%s", opt->agent_path);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->ask_lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	c->ops = calloc(c->ops_n, sizeof *c->ops);
	rc = c->ops ? client_reader_start(c, opt->cfg->timeouts.detect_ms, e)
		    : rs_fail(e, RS_ENOMEM, "out of memory for a communicator");
	if (rc) {
		client_delete(c);
		return rc;
	}
	c->cfg = opt->cfg;
	*ret = &c->base;
	return RS_OK;
}
