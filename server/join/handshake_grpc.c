/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: the gRPC module hands over a stream on one of its threads -> the stream
 * waits in `arrived` for the loop -> handshake_conn.h. Failure modes: too many streams:
 * refused with the reason. A refused stream is finished, and closed when gRPC has
 * delivered REFUSED, or soon. */
#include "server/join/handshake_grpc.h"

#include "server/join/handshake_conn.h"

#include <stdlib.h>

enum { ARRIVED_MAX = 256 /* streams that the loop has not looked at */ };

/* One stream. */
struct grpc_handshake {
	struct handshake_conn conn;
	struct wakeup wakeup;
	struct rpc_stream *stream;
	bool bad_message;                 /* the peer sent something that is no message of the method */
	char names[GRPC_HANDSHAKE_NAMES]; /* in its certificate */
};

/* All streams. Invariant: `arrived` contains the streams that have no struct
 * grpc_handshake yet. */
struct grpc_handshakes {
	struct handshake_conns conns;
	struct grpc_handshakes_options opt;
	struct wakeups wakeups;
	uv_async_t arrival;

	uv_mutex_t mutex; /* protects the following fields */
	struct rpc_stream *arrived[ARRIVED_MAX];
	unsigned arrived_n;
	bool stopped;
};

static struct grpc_handshake *grpc_of(struct handshake_conn *c)
{
	return (struct grpc_handshake *)c;
}

static struct grpc_handshakes *grpc_all(const struct grpc_handshake *g)
{
	return (struct grpc_handshakes *)g->conn.all;
}

static const struct rpc_api *grpc_api(const struct grpc_handshake *g)
{
	return grpc_all(g)->opt.rpc;
}

static ssize_t grpc_recv(struct handshake_conn *c, void *at, size_t len)
{
	struct grpc_handshake *g = grpc_of(c);
	ssize_t got = grpc_api(g)->stream_recv(g->stream, &(struct iovec){at, len}, 1);

	return got == RPC_AGAIN ? HANDSHAKE_AGAIN : got;
}

/* Sends a frame. It is one of the first of the stream, so there is room for it. */
static bool grpc_send(struct handshake_conn *c, const void *frame, size_t len)
{
	struct grpc_handshake *g = grpc_of(c);

	return grpc_api(g)->stream_send(g->stream, &(struct iovec){(void *)frame, len}, 1) >= 0;
}

static void grpc_finish(struct handshake_conn *c)
{
	struct grpc_handshake *g = grpc_of(c);

	grpc_api(g)->stream_finish(g->stream);
}

/* Discards what arrives on a refused stream. Its end says that the peer has got the
 * reason. */
static bool grpc_discard(struct handshake_conn *c)
{
	struct grpc_handshake *g = grpc_of(c);
	uint8_t discarded[4096];
	ssize_t got;

	do
		got = grpc_api(g)->stream_recv(g->stream, &(struct iovec){discarded, sizeof discarded}, 1);
	while (got > 0);
	return got == RPC_AGAIN;
}

static int grpc_admit(struct handshake_conn *c, const struct handshake_result *who, struct control_refused *refused)
{
	struct grpc_handshake *g = grpc_of(c);
	const struct grpc_handshakes_options *opt = &grpc_all(g)->opt;
	int rc;

	/* the lane may wake or close the stream as soon as it has it */
	opt->rpc->stream_waker(g->stream, (struct rpc_waker){0});
	rc = opt->admit(opt->ctx, g->stream, who, refused);
	if (rc)
		opt->rpc->stream_waker(g->stream, wakeup_waker(&g->wakeup));
	return rc;
}

static void grpc_log_refused(struct handshake_conn *c, const struct rs_err *why)
{
	struct grpc_handshake *g = grpc_of(c);

	grpc_all(g)->opt.turned_away(grpc_all(g)->opt.ctx, g->stream, c->job, why);
}

static void grpc_explain(struct handshake_conn *c, ssize_t rc, struct control_refused *refused)
{
	struct grpc_handshake *g = grpc_of(c);
	struct rs_err e = {0};

	if (rc >= 0)
		return;
	grpc_api(g)->stream_error(g->stream, &e);
	g->bad_message = e.code == RS_EPROTO;
	if (g->bad_message)
		*refused = handshake_refusal(&e);
}

/* Closes a stream with a status. Unlike a frame, a status does not wait for a peer that
 * does not read. */
static void grpc_close(struct handshake_conn *c, enum handshake_close how, const struct control_refused *why)
{
	struct grpc_handshake *g = grpc_of(c);
	enum rpc_code code = RPC_CODE_OK;

	if (how == CLOSE_DISPLACED)
		code = RPC_CODE_RESOURCE_EXHAUSTED;
	else if (g->bad_message)
		code = RPC_CODE_INVALID_ARGUMENT;
	grpc_api(g)->stream_close(g->stream, code, how == CLOSE_DONE ? NULL : why->message);
}

static void grpc_free(struct handshake_conn *c)
{
	wakeup_close(&grpc_of(c)->wakeup);
	free(c);
}

static void on_woken(struct wakeup *w)
{
	struct grpc_handshake *g = (struct grpc_handshake *)((char *)w - offsetof(struct grpc_handshake, wakeup));

	handshake_conn_read(&g->conn);
}

static void grpc_add(struct grpc_handshakes *all, struct rpc_stream *s)
{
	struct control_refused refused = {.code = RS_EREFUSED, .retry = true};
	struct grpc_handshake *g = calloc(1, sizeof *g);
	char pem[RPC_CERTIFICATE_MAX];
	bool refuse;

	if (!g) {
		all->opt.rpc->stream_close(s, RPC_CODE_RESOURCE_EXHAUSTED,
					   "out of memory for a handshake in this reducer");
		return;
	}
	g->stream = s;
	wakeup_init(&g->wakeup, &all->wakeups, on_woken);
	all->opt.rpc->stream_certificate(s, pem);
	if (pem[0])
		all->opt.names(pem, g->names);
	refuse = all->opt.room(all->opt.ctx, &refused); /* before it counts itself */
	handshake_conn_init(&g->conn, &all->conns);
	handshake_set_channel(&g->conn.handshake, &(struct handshake_channel){.peer = pem[0] ? g->names : NULL});
	all->opt.rpc->stream_waker(s, wakeup_waker(&g->wakeup));
	if (refuse)
		handshake_conn_refuse(&g->conn, &refused);
	else
		handshake_conn_read(&g->conn);
}

static void on_arrival(uv_async_t *async)
{
	struct grpc_handshakes *all = async->data;
	struct rpc_stream *arrived[ARRIVED_MAX];
	unsigned n;

	uv_mutex_lock(&all->mutex);
	n = all->arrived_n;
	for (unsigned i = 0; i < n; i++)
		arrived[i] = all->arrived[i];
	all->arrived_n = 0;
	uv_mutex_unlock(&all->mutex);
	for (unsigned i = 0; i < n; i++)
		grpc_add(all, arrived[i]);
}

/* Takes a new stream, on a thread of the module. */
static void on_stream(void *user, struct rpc_stream *s)
{
	struct grpc_handshakes *all = user;
	bool taken = false, stopped;

	uv_mutex_lock(&all->mutex);
	stopped = all->stopped;
	if (!stopped && all->arrived_n < ARRIVED_MAX) {
		all->arrived[all->arrived_n++] = s;
		taken = true;
	}
	uv_mutex_unlock(&all->mutex);
	if (taken)
		uv_async_send(&all->arrival);
	else
		all->opt.rpc->stream_close(s, RPC_CODE_UNAVAILABLE,
					   stopped ? "this reducer has stopped" : "this reducer is too busy");
}

int grpc_handshakes_new(struct grpc_handshakes **ret, const struct grpc_handshakes_options *opt, struct rs_err *e)
{
	static const struct handshake_transport transport = {
	    .recv = grpc_recv,
	    .send = grpc_send,
	    .finish = grpc_finish,
	    .discard = grpc_discard,
	    .admit = grpc_admit,
	    .log_refused = grpc_log_refused,
	    .explain = grpc_explain,
	    .close = grpc_close,
	    .free = grpc_free,
	};
	struct grpc_handshakes *all = calloc(1, sizeof *all);
	int rc;

	if (!all)
		return rs_oom(e, 0, "handshakes");
	all->opt = *opt;
	if (uv_mutex_init(&all->mutex)) {
		rc = rs_fail(e, RS_ENOMEM, "cannot create a mutex");
		goto free_all;
	}
	rc = wakeups_init(&all->wakeups, opt->loop, e);
	if (rc)
		goto destroy_mutex;
	if (uv_async_init(opt->loop, &all->arrival, on_arrival)) {
		rc = rs_fail(e, RS_EIO, "cannot create an event");
		goto close_wakeups;
	}
	all->arrival.data = all;
	handshake_conns_init(&all->conns, opt->loop, opt->timeout_ms, &transport, &opt->policy);
	*ret = all;
	return RS_OK;

close_wakeups:
	wakeups_close(&all->wakeups);
	uv_run(opt->loop, UV_RUN_NOWAIT);
	wakeups_destroy(&all->wakeups);
destroy_mutex:
	uv_mutex_destroy(&all->mutex);
free_all:
	free(all);
	return rc;
}

struct rpc_method grpc_handshakes_method(struct grpc_handshakes *all)
{
	return (struct rpc_method){
	    .path = "/reduction.v1.Reducer/Exchange", .kind = RPC_STREAM, .stream = on_stream, .user = all};
}

unsigned grpc_handshakes_count(const struct grpc_handshakes *all)
{
	return handshake_conns_count(&all->conns);
}

bool grpc_handshakes_make_room(struct grpc_handshakes *all, const char *why)
{
	return handshake_conns_make_room(&all->conns, why);
}

void grpc_handshakes_stop(struct grpc_handshakes *all)
{
	uv_mutex_lock(&all->mutex);
	all->stopped = true;
	uv_mutex_unlock(&all->mutex);
	on_arrival(&all->arrival);
	handshake_conns_clear(&all->conns);
}

void grpc_handshakes_close(struct grpc_handshakes *all)
{
	uv_close((uv_handle_t *)&all->arrival, NULL);
	handshake_conns_close(&all->conns);
	wakeups_close(&all->wakeups);
}

void grpc_handshakes_free(struct grpc_handshakes *all)
{
	if (!all)
		return;
	wakeups_destroy(&all->wakeups);
	uv_mutex_destroy(&all->mutex);
	free(all);
}
