/* SPDX-License-Identifier: Apache-2.0 */
/* The backend. The happy path of an operation: its memory is found or a stage is taken,
 * it gets an entry among the pending operations, SUBMIT, FILLED as more input is copied
 * in; the reader (reader.c) copies out what has landed, receives DONE, copies the rest
 * out of the stage and calls done(). Failure modes: the agent cannot provide memory
 * (submit returns the error); the agent ends the job (ABORT) or exits (its end of the
 * socket closes): the reader fails all pending operations with that reason, and every
 * later call gets it, too. */
#include "agent/lib/client/client.h"
#include "agent/lib/client/open.h"
#include "common/assert.h"

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

/* Returns the bytes of the ring for an operation. */
static size_t client_ring_bytes(const struct client *c, const struct operation *of)
{
	size_t bytes = operation_bytes(of), ring = backend_ring_bytes(&c->base, of);

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

/* Chooses the memory of an operation. Both buffers are shared: nothing is copied. Only
 * recv is shared: the input is copied to recv, where the result will overwrite it.
 * Otherwise a stage receives the result, and the input too unless send is shared. */
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
		op->ring = client_ring_bytes(c, &req->of);

	rc = client_stage_take(c, head + op->ring, &op->stage, e);
	if (rc)
		return rc;
	recv = op->stage;
	op->to = send ? NULL : op->stage->map + head;
	client_set_offsets(s, send ? send : recv, send ? req->send : op->to, recv, recv->map + head);
	if (client_in_pieces(op->bytes)) {
		s->ring = op->ring;
		op->counter = (_Atomic uint64_t *)op->stage->map;
		atomic_store_explicit(op->counter, 0, memory_order_relaxed);
	}
	return RS_OK;
}

/* The memory of a sharded operation. If both buffers are shared, nothing is copied here;
 * with a ring the submitter copies. Else a stage has all parts: the input is copied there
 * as a whole, and the result comes to where it belongs among them. */
static int client_plan_sharded(struct client *c, const struct backend_request *req, struct client_op *op,
			       struct local_submit *s, struct rs_err *e)
{
	size_t send_bytes = client_send_bytes(&req->of), recv_bytes = client_recv_bytes(&req->of);
	const struct client_buffer *send, *recv;
	char *from, *to, *own;
	int rc;

	op->ring = op->bytes;
	op->filled = req->ring ? 0 : op->bytes;
	if (op->bytes == 0)
		return RS_OK;
	pthread_mutex_lock(&c->lock);
	send = client_find(c, req->send, send_bytes);
	recv = client_find(c, req->recv, recv_bytes);
	pthread_mutex_unlock(&c->lock);
	if (send && recv) {
		client_set_offsets(s, send, req->send, recv, req->recv);
		return RS_OK;
	}
	rs_assert(!req->ring);
	rc = client_stage_take(c, op->bytes, &op->stage, e);
	if (rc)
		return rc;
	own = op->stage->map + op->bytes / req->of.parts * c->rank;
	from = operation_is_gather(&req->of) ? own : op->stage->map;
	to = operation_is_gather(&req->of) ? op->stage->map : own;
	memcpy(from, req->send, send_bytes);
	op->result = to;
	op->result_bytes = recv_bytes;
	client_set_offsets(s, op->stage, from, op->stage, to);
	return RS_OK;
}

/* The memory of an operation whose submitter copies: its ring is in shared memory. */
static int client_plan_ring(struct client *c, const struct backend_request *req, struct client_op *op,
			    struct local_submit *s, struct rs_err *e)
{
	const struct client_buffer *b;

	pthread_mutex_lock(&c->lock);
	b = client_find(c, req->recv, req->ring);
	pthread_mutex_unlock(&c->lock);
	if (!b)
		return rs_fail(e, RS_EINTERNAL, "a ring is not in memory of this communicator");
	client_set_offsets(s, b, req->send, b, req->recv);
	op->ring = req->ring;
	if (!client_in_pieces(op->bytes))
		return RS_OK;
	s->ring = op->ring;
	s->landed_offset = s->recv_offset - CLIENT_STAGE_HEAD;
	op->counter = (_Atomic uint64_t *)(b->map + s->landed_offset);
	atomic_store_explicit(op->counter, 0, memory_order_relaxed);
	return RS_OK;
}

/* Waits for a free entry in the ring of operations. With lock held. */
static int client_wait_for_room(struct client *c, struct rs_err *e)
{
	while (!c->broken && c->next_seq - c->oldest >= c->ops_n)
		pthread_cond_wait(&c->changed, &c->lock);
	if (!c->broken)
		return RS_OK;
	*e = c->err;
	return e->code;
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
		c->ring_ops += op->counter != NULL;
		if (op->req->ring)
			op->req->impl = (void *)(uintptr_t)*ret_seq;
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static int client_submit(struct backend *b, struct backend_request *req, struct rs_err *e)
{
	struct client *c = client_from(b);
	struct client_op op = {.req = req, .bytes = operation_bytes(&req->of), .size = req->of.size};
	union local_message m;
	int rc;

	local_init(&m, LOCAL_SUBMIT);
	if (req->of.sharded)
		rc = client_plan_sharded(c, req, &op, &m.submit, e);
	else if (req->ring)
		rc = client_plan_ring(c, req, &op, &m.submit, e);
	else
		rc = client_plan_memory(c, req, &op, &m.submit, e);
	if (rc)
		return rc;
	if (!req->ring && !req->of.sharded) {
		if (op.to || op.ring < op.bytes)
			client_fill_piece(&op);
		else
			op.filled = op.bytes;
		op.filling = op.filled < op.bytes;
	}
	m.submit.missing = (op.bytes - op.filled) / op.size;
	m.submit.of = req->of;
	snprintf(m.submit.name, sizeof m.submit.name, "%s", req->name ? req->name : "");
	rc = client_add_op(c, &op, &m.submit.of.seq, e);
	if (rc)
		return rc;
	client_send(c->fd, &m); /* if it fails, the reader fails this operation with all others */
	if (op.filling)
		client_fill(c, m.submit.of.seq);
	return RS_OK;
}

static bool client_can_shard(struct backend *b)
{
	return atomic_load(&client_from(b)->can_shard);
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

/* Sends ABORT. The agent then ends the connection, when it does not use the memory of
 * pending operations any more, and the reader fails these. */
static void client_abort(struct backend *b, const struct rs_err *why)
{
	struct client *c = client_from(b);
	union local_message m;

	pthread_mutex_lock(&c->lock);
	if (!c->broken) {
		c->broken = true;
		c->err = *why;
	}
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	local_init(&m, LOCAL_ABORT);
	m.failure.code = why->code;
	local_put_text(m.failure.message, why->msg);
	client_send_now(c->fd, &m);
	client_reader_leave(c);
}

static void client_stop(struct backend *b)
{
	struct client *c = client_from(b);
	union local_message m;
	bool pending;

	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pending = c->oldest < c->next_seq;
	pthread_mutex_unlock(&c->lock);
	/* an agent that hangs must not block this thread */
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_sec = 1}, sizeof(struct timeval));
	local_init(&m, LOCAL_GOODBYE);
	client_send(c->fd, &m);
	if (pending)
		client_reader_leave(c);
	else
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
	    .filled = client_filled,
	    .wait = client_wait,
	    .can_shard = client_can_shard,
	    .alloc = client_alloc_buffer,
	    .free = client_free_buffer,
	    .stats = client_stats,
	    .abort = client_abort,
	    .stop = client_stop,
	    .close = client_close,
	};
	struct client *c = calloc(1, sizeof *c);
	struct client_grants all;
	const struct local_welcome *grants = &all.welcome;
	int rc;

	if (!c)
		return rs_oom(e, 0, "a communicator");
	rc = client_join(opt, &c->fd, &all, e);
	if (rc) {
		free(c);
		return rc;
	}

	c->base.v = &vtbl;
	c->rank = opt->rank;
	atomic_init(&c->can_shard, all.can_shard);
	c->base.priorities = grants->priorities;
	c->base.single_node = grants->single_node;
	c->reply_fd = -1;
	c->base.chunk_bytes = grants->chunk_bytes;
	c->base.decoded_bytes = grants->decoded_bytes;
	c->base.ring_bytes = grants->ring_bytes;
	c->base.wire_up = grants->wire_up;
	c->base.wire_down = grants->wire_down;
	c->ops_n = grants->ops < opt->cfg->job.max_ops ? grants->ops : opt->cfg->job.max_ops;
	c->stage_limit = grants->shm_bytes < CLIENT_STAGE_LIMIT ? grants->shm_bytes : CLIENT_STAGE_LIMIT;
	c->base.ring_limit = c->stage_limit;
	snprintf(c->path, sizeof c->path, "%s", opt->agent_path);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->ask_lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	c->ops = calloc(c->ops_n, sizeof *c->ops);
	rc = c->ops ? client_reader_start(c, opt->cfg, e)
		    : rs_oom(e, c->ops_n * sizeof *c->ops, "%u operations", c->ops_n);
	if (rc) {
		client_delete(c);
		return rc;
	}

	c->cfg = opt->cfg;
	*ret = &c->base;
	return RS_OK;
}
