/* SPDX-License-Identifier: Apache-2.0 */
/* A query of a client and its answer, for programs that block: one request, any number of
 * messages. The next message is requested once the last one was taken, so that a slow
 * reader delays only itself. */
#include "proto/rpc/grpc_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One operation of a query. */
struct query_op {
	struct op op;
	struct rpc_query *query;
};

/* One query of a client. Invariant: `refs` counts the owner and every operation in
 * progress; the last of them frees the query. */
struct rpc_query {
	grpc_channel *channel;
	grpc_call *call;
	struct live *live;
	enum client_security own;
	_Atomic unsigned refs;
	pthread_mutex_t lock; /* protects the following fields */
	pthread_cond_t changed;
	bool under_way; /* a message was requested */
	bool last;      /* no more messages will arrive */
	bool ended;     /* the status has arrived */
	grpc_byte_buffer *in, *received;
	uint8_t *message; /* that query_next returned; owned */
	grpc_metadata_array headers, trailers;
	grpc_status_code status;
	grpc_slice details;
	struct query_op begin, rx, end;
};

static void ask_unref(struct rpc_query *a)
{
	struct live *live = a->live;

	if (atomic_fetch_sub(&a->refs, 1) != 1)
		return;
	if (a->received)
		grpc_byte_buffer_destroy(a->received);
	if (a->call)
		grpc_call_unref(a->call);
	if (a->channel)
		grpc_channel_destroy(a->channel);
	grpc_slice_unref(a->details);
	grpc_metadata_array_destroy(&a->headers);
	grpc_metadata_array_destroy(&a->trailers);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	free(a->message);
	free(a);
	live_remove(live);
}

static bool query_start(struct rpc_query *a, struct query_op *op, const grpc_op *ops, size_t n)
{
	atomic_fetch_add(&a->refs, 1);
	op_release(&op->op);
	if (grpc_call_start_batch(a->call, ops, n, &op->op, NULL) == GRPC_CALL_OK)
		return true;
	atomic_fetch_sub(&a->refs, 1);
	return false;
}

static struct rpc_query *ask_of(struct op *op)
{
	return ((struct query_op *)op)->query;
}

/* With the lock. */
static void query_receive(struct rpc_query *a)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &a->in};

	if (a->under_way || a->last || a->received)
		return;
	a->in = NULL;
	a->under_way = query_start(a, &a->rx, &op, 1);
	a->last = !a->under_way;
}

static void query_on_message(struct op *op, bool ok)
{
	struct rpc_query *a = ask_of(op);

	pthread_mutex_lock(&a->lock);
	a->under_way = false;
	a->received = ok ? a->in : NULL;
	a->last = !a->received;
	pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
	ask_unref(a);
}

static void query_on_ended(struct op *op, bool ok)
{
	struct rpc_query *a = ask_of(op);

	(void)ok;
	pthread_mutex_lock(&a->lock);
	a->ended = true;
	pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
	ask_unref(a);
}

static void query_on_done(struct op *op, bool ok)
{
	(void)ok;
	ask_unref(ask_of(op));
}

static void query_tag(struct rpc_query *a, struct query_op *op, void (*done)(struct op *op, bool ok))
{
	op->op.done = done;
	op->query = a;
}

static struct rpc_query *ask_new(void)
{
	struct rpc_query *a = calloc(1, sizeof *a);
	pthread_condattr_t attr;

	if (!a)
		return NULL;
	atomic_init(&a->refs, 1);
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->changed, &attr);
	pthread_condattr_destroy(&attr);
	a->details = grpc_empty_slice();
	grpc_metadata_array_init(&a->headers);
	grpc_metadata_array_init(&a->trailers);
	query_tag(a, &a->begin, query_on_done);
	query_tag(a, &a->rx, query_on_message);
	query_tag(a, &a->end, query_on_ended);
	return a;
}

/* Sends the request, and requests the answer. */
static void query_begin(struct rpc_query *a, const struct rpc_query_options *opt)
{
	grpc_metadata header = {.key = grpc_slice_from_copied_string(opt->header ? opt->header : ""),
				.value = grpc_slice_from_copied_string(opt->value ? opt->value : "")};
	grpc_slice slice = grpc_slice_from_copied_buffer(opt->request, opt->request_len);
	grpc_byte_buffer *request = grpc_raw_byte_buffer_create(&slice, 1);
	grpc_op ops[4], end = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};

	memset(ops, 0, sizeof ops);
	ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
	ops[0].data.send_initial_metadata.count = opt->header ? 1 : 0;
	ops[0].data.send_initial_metadata.metadata = &header;
	ops[1].op = GRPC_OP_SEND_MESSAGE;
	ops[1].data.send_message.send_message = request;
	ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
	ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
	ops[3].data.recv_initial_metadata.recv_initial_metadata = &a->headers;
	end.data.recv_status_on_client.trailing_metadata = &a->trailers;
	end.data.recv_status_on_client.status = &a->status;
	end.data.recv_status_on_client.status_details = &a->details;
	query_start(a, &a->end, &end, 1);
	query_start(a, &a->begin, ops, 4);
	pthread_mutex_lock(&a->lock);
	query_receive(a);
	pthread_mutex_unlock(&a->lock);
	grpc_byte_buffer_destroy(request);
	grpc_slice_unref(slice);
	grpc_slice_unref(header.key);
	grpc_slice_unref(header.value);
}

/* Checks the header: gRPC does not start a call with an invalid header, and gives no
 * reason. */
static bool query_can_be_sent(const char *value)
{
	grpc_slice slice = grpc_slice_from_copied_string(value);
	bool good = grpc_header_nonbin_value_is_legal(slice);

	grpc_slice_unref(slice);
	return good;
}

int query(struct rpc_query **ret, struct rpc_client *c, const struct rpc_query_options *opt, struct rs_err *e)
{
	struct rpc_query *a;
	gpr_timespec by = gpr_inf_future(GPR_CLOCK_MONOTONIC);
	grpc_slice path;

	if (opt->header && !query_can_be_sent(opt->value))
		return rs_fail(e, RS_EINVAL, "the header %s has characters that gRPC cannot send", opt->header);
	a = ask_new();
	if (!a)
		return rs_oom(e, 0, "a gRPC call");
	a->live = &c->live;
	a->own = client_security(opt->tls);
	live_add(a->live);
	a->channel = client_channel(opt->address, opt->authority, opt->tls, ANSWER_MAX, !opt->timeout_ms, e);
	if (!a->channel) {
		ask_unref(a);
		return e->code;
	}
	if (opt->timeout_ms)
		by = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(opt->timeout_ms, GPR_TIMESPAN));
	path = grpc_slice_from_copied_string(opt->path);
	a->call =
	    grpc_channel_create_call(a->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue.cq, path, NULL, by, NULL);
	grpc_slice_unref(path);
	query_begin(a, opt);
	*ret = a;
	return RS_OK;
}

/* Waits until a message or the end has arrived; false: timeout. With the lock. */
static bool query_wait_for(struct rpc_query *a, uint32_t wait_ms)
{
	struct timespec by;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &by);
	by.tv_sec += wait_ms / 1000;
	by.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	if (by.tv_nsec >= 1000000000) {
		by.tv_sec++;
		by.tv_nsec -= 1000000000;
	}
	while (!a->received && !(a->last && a->ended) && rc != ETIMEDOUT)
		rc = wait_ms ? pthread_cond_timedwait(&a->changed, &a->lock, &by)
			     : pthread_cond_wait(&a->changed, &a->lock);
	return a->received || (a->last && a->ended);
}

/* Returns the message that has arrived, as contiguous bytes. With the lock. */
static int query_take(struct rpc_query *a, const uint8_t **ret, size_t *ret_len, enum rpc_code *code, struct rs_err *e)
{
	size_t len = grpc_byte_buffer_length(a->received), at = 0;
	grpc_byte_buffer_reader reader;
	grpc_slice *slice;

	free(a->message);
	a->message = malloc(len + 1);
	if (!a->message || !grpc_byte_buffer_reader_init(&reader, a->received)) {
		*code = RPC_CODE_RESOURCE_EXHAUSTED;
		rs_oom(e, len, "an answer");
		return RPC_BROKEN;
	}
	while (grpc_byte_buffer_reader_peek(&reader, &slice)) {
		memcpy(a->message + at, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
		at += GRPC_SLICE_LENGTH(*slice);
	}
	grpc_byte_buffer_reader_destroy(&reader);
	grpc_byte_buffer_destroy(a->received);
	a->received = NULL;
	query_receive(a);
	*ret = a->message;
	*ret_len = len;
	return 1;
}

int query_next(struct rpc_query *a, uint32_t wait_ms, const uint8_t **ret, size_t *ret_len, enum rpc_code *code,
	       struct rs_err *e)
{
	char details[384];
	int rc;

	pthread_mutex_lock(&a->lock);
	if (!query_wait_for(a, wait_ms)) {
		rc = RPC_AGAIN;
	} else if (a->received) {
		rc = query_take(a, ret, ret_len, code, e);
	} else if (a->status == GRPC_STATUS_OK) {
		rc = 0;
	} else {
		*code = (enum rpc_code)a->status;
		slice_text(a->details, details, sizeof details);
		status_text(a->status, details, a->own, e);
		rc = RPC_BROKEN;
	}
	pthread_mutex_unlock(&a->lock);
	return rc;
}

void query_free(struct rpc_query *a)
{
	grpc_call_cancel(a->call, NULL);
	ask_unref(a);
}
