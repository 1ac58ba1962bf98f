/* SPDX-License-Identifier: Apache-2.0 */
/* Workers over gRPC: handles calls of reduction.v1.Reducer/Exchange as server_uv.c handles TCP connections.
 * server.max_connections counts both together. */
#include "server/run/server_streams.h"

#include "server/run/server_worker.h"

#include <stdio.h>

/* Checks that there is room for one more stream, or makes room. */
static int on_room(void *ctx, struct control_refused *refused)
{
	struct server *s = ctx;
	unsigned n = s->sessions + server_handshakes_count(s);

	*refused = (struct control_refused){.code = RS_EREFUSED, .retry = true};
	snprintf(refused->message, sizeof refused->message,
		 "this reducer has %u connections, as many as its server.max_connections allows", n);
	if (n < s->max_connections)
		return RS_OK;
	if (s->sessions < s->max_connections && (grpc_handshakes_make_room(s->streams, refused->message) ||
						 tcp_handshakes_make_room(s->handshakes, refused->message)))
		return RS_OK;
	/* a refused stream takes memory until its peer has read the reason, so their number is limited */
	if (grpc_handshakes_count(s->streams) >= REFUSED_MAX)
		grpc_handshakes_make_room(s->streams, refused->message);
	return RS_EREFUSED;
}

static const char *transport_name(const struct server *s)
{
	return s->cfg->security.tls == TLS_OFF ? "grpc" : "grpc+tls";
}

static int on_admit(void *ctx, struct rpc_stream *stream, const struct handshake_result *who,
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
	server_streams_trust(s, peer);
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

_Static_assert((int)GRPC_HANDSHAKE_NAMES >= (int)TLS_NAMES_MAX, "names have room");

int server_streams_init(struct server *s, struct rs_err *e)
{
	struct grpc_handshakes_options opt = {
	    .loop = &s->loop,
	    .rpc = s->rpc,
	    .timeout_ms = s->cfg->timeouts.handshake_ms,
	    .policy = admission_policy(&s->admission),
	    .names = tls_pem_names,
	    .room = on_room,
	    .admit = on_admit,
	    .turned_away = on_turned_away,
	    .ctx = s,
	};

	return grpc_handshakes_new(&s->streams, &opt, e);
}

static void on_unauth_refused(void *ctx, const char *peer, const struct rs_err *why)
{
	server_log_refused(ctx, peer, transport_name(ctx), why);
}

static void on_scan(uv_timer_t *timer)
{
	struct server *s = timer->data;

	unauth_scan(s->unauth, uv_now(&s->loop));
}

int server_streams_guard(struct server *s, struct rs_err *e)
{
	struct unauth_options opt = {
	    .address = s->cfg->server.grpc,
	    .port = s->rpc->server_port(s->rpc_server),
	    .refused = on_unauth_refused,
	    .ctx = s,
	};
	int rc = unauth_new(&s->unauth, &opt, e);

	if (rc)
		return rc;
	uv_timer_init(&s->loop, &s->scan);
	s->scan.data = s;
	uv_timer_start(&s->scan, on_scan, UNAUTH_SCAN_MS, UNAUTH_SCAN_MS);
	return RS_OK;
}

void server_streams_trust(struct server *s, const char *peer)
{
	if (s->unauth) /* NULL only if the server could not start */
		unauth_trust(s->unauth, peer);
}
