/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that come over gRPC: what server_uv.c does for TCP connections, for calls of reduction.v1.Reducer/Exchange.
 * They count as connections do: limits.connections is for both together. */
#include "server/run/server_priv.h"

#include <stdio.h>

/* May there be one more beside those that are here? */
static int on_room(void *ctx, struct control_refused *refused)
{
	struct server *s = ctx;
	unsigned n = s->sessions + server_greeted(s);

	*refused = (struct control_refused){.code = RS_EREFUSED, .retry = true};
	snprintf(refused->message, sizeof refused->message,
		 "this reducer has %u connections, as many as its limits.connections allows", n);
	if (n < s->max_connections)
		return RS_OK;
	if (s->sessions < s->max_connections && (grpc_greetings_make_room(s->streams, refused->message) ||
						 greetings_make_room(s->greetings, refused->message)))
		return RS_OK;
	/* to be told why takes a while and memory: only so many at once */
	if (grpc_greetings_count(s->streams) >= REFUSED_MAX)
		grpc_greetings_make_room(s->streams, refused->message);
	return RS_EREFUSED;
}

static const char *transport_name(const struct server *s)
{
	return s->cfg->security.tls == TLS_OFF ? "grpc" : "grpc+tls";
}

static int on_hello(void *ctx, struct rpc_stream *stream, const struct handshake_result *who,
		    struct control_refused *refused)
{
	struct server *s = ctx;
	struct registry_admit admit;
	char peer[RPC_PEER_MAX];
	struct rs_err e;
	int rc;

	s->rpc->stream_peer(stream, peer);
	rc = server_admit(s, who, peer, transport_name(s), &admit, refused);
	if (rc)
		return rc;
	server_streams_admitted(s, peer);
	rc =
	    lane_thread_attach_stream(s->lanes[admit.thread], s->rpc, s->rpc_server, stream, &admit, &who->welcome, &e);
	if (rc)
		return server_unadmit(s, &admit, &e, refused);
	registry_admitted(s->registry, admit.stripe.job);
	return RS_OK;
}

static void on_turned_away(void *ctx, struct rpc_stream *stream, const struct rs_err *why)
{
	struct server *s = ctx;
	char peer[RPC_PEER_MAX];

	s->rpc->stream_peer(stream, peer);
	server_log_refused(s, peer, transport_name(s), why);
}

_Static_assert((int)GRPC_GREETING_NAMES >= (int)TLS_NAMES_MAX, "names have room");

int server_streams_init(struct server *s, struct rs_err *e)
{
	struct grpc_greetings_options opt = {
	    .loop = &s->loop,
	    .rpc = s->rpc,
	    .timeout_ms = s->cfg->timeouts.handshake_ms,
	    .policy = admission_policy(&s->admission),
	    .names = tls_pem_names,
	    .room = on_room,
	    .hello = on_hello,
	    .turned_away = on_turned_away,
	    .ctx = s,
	};

	return grpc_greetings_new(&s->streams, &opt, e);
}

static void on_stranger_refused(void *ctx, const char *peer, const struct rs_err *why)
{
	server_log_refused(ctx, peer, transport_name(ctx), why);
}

static void on_look(uv_timer_t *timer)
{
	struct server *s = timer->data;

	strangers_look(s->strangers, uv_now(&s->loop));
}

int server_streams_guard(struct server *s, struct rs_err *e)
{
	struct strangers_options opt = {
	    .address = s->cfg->server.grpc,
	    .port = s->rpc->server_port(s->rpc_server),
	    .refused = on_stranger_refused,
	    .ctx = s,
	};
	int rc = strangers_new(&s->strangers, &opt, e);

	if (rc)
		return rc;
	uv_timer_init(&s->loop, &s->look);
	s->look.data = s;
	uv_timer_start(&s->look, on_look, STRANGERS_LOOK_MS, STRANGERS_LOOK_MS);
	return RS_OK;
}

void server_streams_admitted(struct server *s, const char *peer)
{
	if (s->strangers) /* else the server could not start */
		strangers_admit(s->strangers, peer);
}
