/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: the module hands a stream over on one of its threads -> it waits in `arrived` for the loop -> what
 * handshake.h says -> hello() takes the stream away. Failure modes: garbage, another version, a refusal: REFUSED is
 * sent and the stream finished, and it is closed when gRPC has delivered that, or soon. Whoever is too slow for any of
 * it is closed at the deadline. More streams than there is room for: refused, with the reason. */
#include "server/join/handshake_grpc.h"

#include "server/join/deadlines.h"

#include <stdlib.h>

enum { ARRIVED_MAX = 256 /* that the loop has not looked at */ };

struct greeting {
	struct deadline deadline;
	struct grpc_handshakes *all;
	struct wakeup wakeup;
	struct rpc_stream *stream;
	struct handshake shake;
	char names[GRPC_HANDSHAKE_NAMES]; /* in its certificate */
};

struct grpc_handshakes {
	struct grpc_handshakes_options opt;
	struct wakeups wakeups;
	uv_timer_t tick;
	uv_async_t arrival;
	struct deadlines deadlines;

	uv_mutex_t mutex; /* what follows */
	struct rpc_stream *arrived[ARRIVED_MAX];
	unsigned arrived_n;
	bool stopped;
};

/* Forgets a greeting, whose stream has another owner. */
static void greeting_free(struct greeting *g)
{
	deadlines_remove(&g->all->deadlines, &g->deadline);
	wakeup_close(&g->wakeup);
	handshake_close(&g->shake);
	free(g);
}

static void greeting_close(struct greeting *g)
{
	g->all->opt.rpc->stream_close(g->stream, RPC_CODE_OK, NULL);
	greeting_free(g);
}

static void report(struct greeting *g, const struct control_refused *refused)
{
	struct rs_err why;

	rs_fail(&why, refused->code, "%s", refused->message);
	g->all->opt.turned_away(g->all->opt.ctx, g->stream, &why);
}

static void send_refused(struct grpc_handshakes *all, struct rpc_stream *s, const struct control_refused *refused)
{
	uint8_t frame[HANDSHAKE_FRAME_MAX];
	uint32_t len = handshake_pack_refused(frame, refused);

	/* the first bytes on this stream, but for a CHALLENGE: there is room for them */
	all->opt.rpc->stream_send(s, &(struct iovec){frame, len}, 1);
	all->opt.rpc->stream_finish(s);
}

static void greeting_refuse(struct greeting *g, const struct control_refused *refused)
{
	report(g, refused);
	send_refused(g->all, g->stream, refused);
	deadlines_leave(&g->all->deadlines, &g->deadline, uv_now(g->all->opt.loop));
}

/* The peer has finished (0), or the stream broke. */
static void greeting_lost(struct greeting *g, ssize_t rc)
{
	struct control_refused lost = handshake_refusal_closed(handshake_missing(&g->shake));
	enum rpc_code code = RPC_CODE_OK;
	struct rs_err e = {0};

	if (rc < 0)
		g->all->opt.rpc->stream_error(g->stream, &e);
	if (e.code == RS_EPROTO) {
		lost = handshake_refusal(&e);
		code = RPC_CODE_INVALID_ARGUMENT;
	}
	report(g, &lost);
	g->all->opt.rpc->stream_close(g->stream, code, lost.message);
	greeting_free(g);
}

static void greeting_admit(struct greeting *g, const struct handshake_result *who)
{
	struct control_refused refused = {0};
	struct grpc_handshakes *all = g->all;

	/* as soon as it is its lane's, it may be woken there, or closed */
	all->opt.rpc->stream_waker(g->stream, (struct rpc_waker){0});
	if (all->opt.hello(all->opt.ctx, g->stream, who, &refused) == RS_OK) {
		greeting_free(g);
		return;
	}
	all->opt.rpc->stream_waker(g->stream, wakeup_waker(&g->wakeup));
	greeting_refuse(g, &refused);
}

/* A refused one: its end says that the peer has been told. */
static void greeting_discard(struct greeting *g)
{
	uint8_t nobody[4096];
	ssize_t got;

	do
		got = g->all->opt.rpc->stream_recv(g->stream, &(struct iovec){nobody, sizeof nobody}, 1);
	while (got > 0);
	if (got != RPC_AGAIN)
		greeting_close(g);
}

static void greeting_read(struct greeting *g)
{
	const struct rpc_api *rpc = g->all->opt.rpc;
	struct handshake_result res;

	if (g->deadline.leaves) {
		greeting_discard(g);
		return;
	}
	for (;;) {
		uint8_t *at;
		size_t want = handshake_target(&g->shake, &at);
		ssize_t got = rpc->stream_recv(g->stream, &(struct iovec){at, want}, 1);

		if (got == RPC_AGAIN)
			return;
		if (got <= 0) {
			greeting_lost(g, got);
			return;
		}
		switch (handshake_received(&g->shake, (size_t)got, &res)) {
		case HANDSHAKE_MORE:
			break;
		case HANDSHAKE_SEND:
			/* as in send_refused: there is room */
			if (rpc->stream_send(g->stream, &(struct iovec){res.frame, res.frame_len}, 1) < 0) {
				greeting_lost(g, 0);
				return;
			}
			break;
		case HANDSHAKE_ADMIT:
			greeting_admit(g, &res);
			return;
		case HANDSHAKE_REFUSED:
			greeting_refuse(g, &res.refused);
			return;
		}
	}
}

static void on_woken(struct wakeup *w)
{
	greeting_read((struct greeting *)((char *)w - offsetof(struct greeting, wakeup)));
}

static void greeting_new(struct grpc_handshakes *all, struct rpc_stream *s)
{
	struct control_refused refused = {.code = RS_EREFUSED, .retry = true};
	struct greeting *g = calloc(1, sizeof *g);
	char pem[RPC_CERTIFICATE_MAX];
	bool refuse;

	if (!g) {
		all->opt.rpc->stream_close(s, RPC_CODE_RESOURCE_EXHAUSTED, "this reducer has no memory");
		return;
	}
	g->all = all;
	g->stream = s;
	wakeup_init(&g->wakeup, &all->wakeups, on_woken);
	handshake_init(&g->shake, &all->opt.policy);
	all->opt.rpc->stream_certificate(s, pem);
	if (pem[0])
		all->opt.names(pem, g->names);
	handshake_set_channel(&g->shake, &(struct handshake_channel){.peer = pem[0] ? g->names : NULL});
	refuse = all->opt.room(all->opt.ctx, &refused); /* it does not count itself */
	deadlines_add(&all->deadlines, &g->deadline, uv_now(all->opt.loop));
	all->opt.rpc->stream_waker(s, wakeup_waker(&g->wakeup));
	if (refuse)
		greeting_refuse(g, &refused);
	else
		greeting_read(g);
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
		greeting_new(all, arrived[i]);
}

/* On a thread of the module. */
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

static void give_up(struct greeting *g)
{
	struct control_refused refused =
	    handshake_refusal_timeout(handshake_missing(&g->shake), g->all->opt.timeout_ms);

	greeting_refuse(g, &refused);
}

static void on_tick(uv_timer_t *timer)
{
	struct grpc_handshakes *all = timer->data;
	struct deadline *d;

	while ((d = deadlines_due(&all->deadlines, uv_now(all->opt.loop)))) {
		if (d->leaves)
			greeting_close((struct greeting *)d);
		else
			give_up((struct greeting *)d);
	}
}

int grpc_handshakes_new(struct grpc_handshakes **ret, const struct grpc_handshakes_options *opt, struct rs_err *e)
{
	struct grpc_handshakes *all = calloc(1, sizeof *all);
	int rc;

	if (!all)
		return rs_fail(e, RS_ENOMEM, "no memory for handshakes");
	all->opt = *opt;
	deadlines_init(&all->deadlines, opt->timeout_ms);
	if (uv_mutex_init(&all->mutex)) {
		rc = rs_fail(e, RS_ENOMEM, "a mutex cannot be made");
		goto free_all;
	}
	rc = wakeups_init(&all->wakeups, opt->loop, e);
	if (rc)
		goto destroy_mutex;
	if (uv_async_init(opt->loop, &all->arrival, on_arrival)) {
		rc = rs_fail(e, RS_EIO, "an event cannot be made");
		goto close_wakeups;
	}
	all->arrival.data = all;
	uv_timer_init(opt->loop, &all->tick);
	all->tick.data = all;
	uv_timer_start(&all->tick, on_tick, DEADLINES_TICK_MS, DEADLINES_TICK_MS);
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
	return deadlines_count(&all->deadlines);
}

bool grpc_handshakes_make_room(struct grpc_handshakes *all, const char *why)
{
	struct greeting *g = (struct greeting *)deadlines_oldest(&all->deadlines);
	struct control_refused refused = {.message = ""};

	if (!g)
		return false;
	if (!g->deadline.leaves) {
		refused = handshake_refusal_displaced(handshake_missing(&g->shake), why);
		report(g, &refused);
	}
	/* unlike a frame, a status waits for nobody who does not read */
	all->opt.rpc->stream_close(g->stream, RPC_CODE_RESOURCE_EXHAUSTED, refused.message);
	greeting_free(g);
	return true;
}

void grpc_handshakes_stop(struct grpc_handshakes *all)
{
	struct deadline *d;

	uv_mutex_lock(&all->mutex);
	all->stopped = true;
	uv_mutex_unlock(&all->mutex);
	on_arrival(&all->arrival);
	while ((d = deadlines_oldest(&all->deadlines)))
		greeting_close((struct greeting *)d);
}

void grpc_handshakes_close(struct grpc_handshakes *all)
{
	uv_close((uv_handle_t *)&all->arrival, NULL);
	uv_close((uv_handle_t *)&all->tick, NULL);
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
