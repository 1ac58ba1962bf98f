/* SPDX-License-Identifier: Apache-2.0 */
/* Workers over gRPC: handles calls of reduction.v1.Reducer/Exchange as server_uv.c
 * handles TCP connections. server.max_connections counts both together. */
#include "server/run/server_streams.h"

#include "server/run/server_worker.h"

#include <stdio.h>

/* Checks that there is room for one more stream, or makes room. */
static int server_streams_on_room(void *ctx, struct control_refused *refused)
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
	/* a refused stream takes memory until its peer has read the reason, so their
	 * number is limited */
	if (grpc_handshakes_count(s->streams) >= REFUSED_MAX)
		grpc_handshakes_make_room(s->streams, refused->message);
	return RS_EREFUSED;
}

static const char *server_streams_transport_name(const struct server *s)
{
	return s->cfg->security.tls == TLS_OFF ? "grpc" : "grpc+tls";
}

static int server_streams_on_admit(void *ctx, struct rpc_stream *stream, const struct handshake_result *who,
				   struct control_refused *refused)
{
	struct server *s = ctx;
	struct registry_admit admit;
	char peer[RPC_PEER_MAX];
	struct rs_err e;
	int rc;

	s->host.rpc->stream_peer(stream, peer);
	rc = server_admit(s, who, peer, server_streams_transport_name(s), &admit, refused);
	if (rc)
		return rc;
	admit.session.weight = who->weight;
	host_trust(&s->host, peer);
	rc = lane_thread_attach_stream(s->lanes[admit.thread], s->host.rpc, s->host.rpc_server, stream, &admit,
				       &who->welcome, &e);
	if (rc)
		return server_unadmit(s, &admit, &e, refused);
	registry_admitted(s->registry, admit.stripe.job);
	return RS_OK;
}

static void server_streams_on_turned_away(void *ctx, struct rpc_stream *stream, const char *job,
					  const struct rs_err *why)
{
	struct server *s = ctx;
	char peer[RPC_PEER_MAX];

	s->host.rpc->stream_peer(stream, peer);
	server_log_refused(s, peer, server_streams_transport_name(s), job, why);
}

_Static_assert((int)GRPC_HANDSHAKE_NAMES >= (int)TLS_NAMES_MAX, "names have room");

int server_streams_method(void *ctx, struct rpc_method *ret, struct rs_err *e)
{
	struct server *s = ctx;
	struct grpc_handshakes_options opt = {
	    .loop = &s->loop,
	    .rpc = s->host.rpc,
	    .timeout_ms = s->cfg->timeouts.handshake_ms,
	    .policy = admission_policy(&s->admission),
	    .names = tls_pem_names,
	    .room = server_streams_on_room,
	    .admit = server_streams_on_admit,
	    .turned_away = server_streams_on_turned_away,
	    .ctx = s,
	};
	int rc = grpc_handshakes_new(&s->streams, &opt, e);

	if (!rc)
		*ret = grpc_handshakes_method(s->streams);
	return rc;
}

void server_streams_refused(void *ctx, const char *peer, const struct rs_err *why)
{
	server_log_refused(ctx, peer, server_streams_transport_name(ctx), "", why);
}
