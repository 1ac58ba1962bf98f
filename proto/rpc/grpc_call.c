/* SPDX-License-Identifier: Apache-2.0 */
/* A call of a server with one request and an answer of any number of messages. The
 * handler gets the call once the request is complete. A call is ended after a while if
 * the client does not send its request or take the end of the answer. As in
 * grpc_stream.c, the owner (first the wait for the request, then the handler) holds a
 * reference, and so does every operation. */
#include "proto/rpc/grpc_priv.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One operation of a call. */
struct call_op {
	struct op op;
	struct rpc_call *call;
};

/* One call of a server. Invariant: `refs` counts the owner and every operation in
 * progress; the last of them frees the call. */
struct rpc_call {
	grpc_call *call;
	const struct rpc_method *method;
	_Atomic unsigned refs;
	struct live *live;
	struct waiting *waiting;
	struct waiter waiter;

	grpc_metadata_array headers;
	char *value; /* the last header that was requested; owned */
	grpc_byte_buffer *in;
	uint8_t *request; /* owned */
	size_t request_len;

	pthread_mutex_t lock; /* protects the following fields, and the start of operations that send */
	struct rpc_waker waker;
	bool begun;     /* the headers of the answer have been sent */
	bool under_way; /* a message is being sent */
	bool ending;    /* call_end was called: */
	grpc_byte_buffer *last;
	grpc_status_code code;
	char why[256];

	_Atomic bool ended;
	int cancelled;
	struct call_op rx, tx, end, finish;
};

static void call_unref(struct rpc_call *c)
{
	struct live *live = c->live;

	if (atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	waiting_remove(&c->waiter);
	grpc_metadata_array_destroy(&c->headers);
	if (c->last)
		grpc_byte_buffer_destroy(c->last);
	grpc_call_unref(c->call);
	pthread_mutex_destroy(&c->lock);
	free(c->value);
	free(c->request);
	free(c);
	live_remove(live);
}

static bool call_start(struct rpc_call *c, struct call_op *op, const grpc_op *ops, size_t n)
{
	atomic_fetch_add(&c->refs, 1);
	op_release(&op->op);
	if (grpc_call_start_batch(c->call, ops, n, &op->op, NULL) == GRPC_CALL_OK)
		return true;
	atomic_fetch_sub(&c->refs, 1);
	return false;
}

static struct rpc_call *call_of(struct op *op)
{
	return ((struct call_op *)op)->call;
}

static grpc_byte_buffer *call_buffer_of(const void *message, size_t len)
{
	grpc_slice slice = grpc_slice_from_copied_buffer(message, len);
	grpc_byte_buffer *bb = grpc_raw_byte_buffer_create(&slice, 1);

	grpc_slice_unref(slice);
	return bb;
}

/* Sends the end of the call, unless a message is still being sent. With the lock. */
static void call_finish_start(struct rpc_call *c)
{
	grpc_slice why = grpc_slice_from_static_string(c->why);
	grpc_op ops[3];
	unsigned n = 0;

	if (c->under_way)
		return;
	memset(ops, 0, sizeof ops);
	if (!c->begun)
		ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
	if (c->last) {
		ops[n].op = GRPC_OP_SEND_MESSAGE;
		ops[n++].data.send_message.send_message = c->last;
	}
	ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
	ops[n].data.send_status_from_server.status = c->code;
	ops[n++].data.send_status_from_server.status_details = &why;
	call_start(c, &c->finish, ops, n);
}

static void call_on_sent(struct op *op, bool ok)
{
	struct rpc_call *c = call_of(op);

	(void)ok; /* then the client has disconnected too */
	pthread_mutex_lock(&c->lock);
	c->under_way = false;
	if (c->ending)
		call_finish_start(c);
	else if (c->waker.wake)
		c->waker.wake(c->waker.user);
	pthread_mutex_unlock(&c->lock);
	call_unref(c);
}

static void call_on_ended(struct op *op, bool ok)
{
	struct rpc_call *c = call_of(op);

	(void)ok;
	atomic_store(&c->ended, true);
	pthread_mutex_lock(&c->lock);
	if (c->waker.wake)
		c->waker.wake(c->waker.user);
	pthread_mutex_unlock(&c->lock);
	call_unref(c);
}

static void call_on_done(struct op *op, bool ok)
{
	(void)ok;
	call_unref(call_of(op));
}

/* Copies the request out of gRPC's slices. False: it is too long, or there is no
 * memory. */
static bool call_take_request(struct rpc_call *c)
{
	grpc_byte_buffer_reader reader;
	grpc_slice *slice;
	size_t at = 0;

	c->request_len = grpc_byte_buffer_length(c->in);
	if (c->request_len > RPC_REQUEST_MAX || !grpc_byte_buffer_reader_init(&reader, c->in))
		return false;
	c->request = malloc(c->request_len + 1);
	while (c->request && grpc_byte_buffer_reader_peek(&reader, &slice)) {
		memcpy(c->request + at, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
		at += GRPC_SLICE_LENGTH(*slice);
	}
	grpc_byte_buffer_reader_destroy(&reader);
	return c->request;
}

static void call_on_request(struct op *op, bool ok)
{
	struct rpc_call *c = call_of(op);
	bool arrived = ok && c->in, taken = arrived && call_take_request(c);

	waiting_remove(&c->waiter);
	if (c->in)
		grpc_byte_buffer_destroy(c->in);
	c->in = NULL;
	if (taken)
		c->method->call(c->method->user, c);
	else if (arrived)
		call_end(c, RPC_CODE_RESOURCE_EXHAUSTED, "the request is too long", NULL, 0);
	else
		call_end(c, RPC_CODE_INVALID_ARGUMENT, "the call brought no request", NULL, 0);
	call_unref(c);
}

static void call_tag(struct rpc_call *c, struct call_op *op, void (*done)(struct op *op, bool ok))
{
	op->op.done = done;
	op->call = c;
}

struct rpc_call *call_accept(grpc_call *call, grpc_metadata_array *headers, const struct rpc_method *method,
			     struct waiting *waiting, struct live *live)
{
	struct rpc_call *c = calloc(1, sizeof *c);
	grpc_op request = {.op = GRPC_OP_RECV_MESSAGE}, end = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

	if (!c)
		return NULL;
	atomic_init(&c->refs, 1);
	pthread_mutex_init(&c->lock, NULL);
	c->call = call;
	c->method = method;
	c->live = live;
	c->waiting = waiting;
	c->headers = *headers;
	grpc_metadata_array_init(headers);
	call_tag(c, &c->rx, call_on_request);
	call_tag(c, &c->tx, call_on_sent);
	call_tag(c, &c->end, call_on_ended);
	call_tag(c, &c->finish, call_on_done);
	end.data.recv_close_on_server.cancelled = &c->cancelled;
	request.data.recv_message.recv_message = &c->in;
	waiting_add(&c->waiter, waiting, call, "no request came in time");
	call_start(c, &c->end, &end, 1);
	if (!call_start(c, &c->rx, &request, 1)) {
		waiting_remove(&c->waiter);
		call_end(c, RPC_CODE_UNAVAILABLE, "the server is stopping", NULL, 0);
	}
	return c;
}

const uint8_t *call_request(const struct rpc_call *c, size_t *ret_len)
{
	*ret_len = c->request_len;
	return c->request;
}

const char *call_header(const struct rpc_call *c, const char *key)
{
	struct rpc_call *self = (struct rpc_call *)c; /* keeps the copy */

	for (size_t i = 0; i < c->headers.count; i++) {
		const grpc_metadata *m = &c->headers.metadata[i];
		size_t len = GRPC_SLICE_LENGTH(m->value);

		if (grpc_slice_str_cmp(m->key, key) != 0)
			continue;
		free(self->value);
		self->value = malloc(len + 1);
		if (self->value)
			slice_text(m->value, self->value, len + 1);
		return self->value;
	}
	return NULL;
}

void call_peer(const struct rpc_call *c, char buf[RPC_PEER_MAX])
{
	call_peer_text(c->call, buf);
}

void call_waker(struct rpc_call *c, struct rpc_waker w)
{
	pthread_mutex_lock(&c->lock);
	c->waker = w;
	pthread_mutex_unlock(&c->lock);
}

bool call_send(struct rpc_call *c, const void *message, size_t len)
{
	grpc_op ops[2];
	unsigned n = 0;
	grpc_byte_buffer *bb;
	bool sent = false;

	memset(ops, 0, sizeof ops);
	pthread_mutex_lock(&c->lock);
	if (!c->under_way && !atomic_load(&c->ended)) {
		bb = call_buffer_of(message, len);
		if (!c->begun)
			ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
		ops[n].op = GRPC_OP_SEND_MESSAGE;
		ops[n++].data.send_message.send_message = bb;
		c->begun = true;
		sent = c->under_way = call_start(c, &c->tx, ops, n);
		grpc_byte_buffer_destroy(bb);
	}
	pthread_mutex_unlock(&c->lock);
	return sent;
}

bool call_gone(const struct rpc_call *c)
{
	return atomic_load(&c->ended);
}

void call_end(struct rpc_call *c, enum rpc_code code, const char *why, const void *message, size_t len)
{
	pthread_mutex_lock(&c->lock);
	c->waker = (struct rpc_waker){0};
	c->ending = true;
	c->code = (grpc_status_code)code;
	snprintf(c->why, sizeof c->why, "%s", why ? why : "");
	if (message)
		c->last = call_buffer_of(message, len);
	if (!atomic_load(&c->ended))
		call_finish_start(c);
	pthread_mutex_unlock(&c->lock);
	waiting_add(&c->waiter, c->waiting, c->call, "the answer was not taken in time");
	call_unref(c);
}
