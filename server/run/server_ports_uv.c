/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/server_ports.h"

#include "config/check/check.h"
#include "server/run/server_streams.h"

#include <stdlib.h>

int server_ports_open(struct server *s, struct rs_err *e)
{
	const char *state = s->cfg->server.state_dir;
	struct host_ports ports = {
	    .grpc = s->cfg->server.grpc,
	    .http = s->cfg->server.http,
	    .http_tls = s->cfg->server.http_tls,
	    .grpc_tls = true,
	    .state_dir = state[0] ? state : getenv("STATE_DIRECTORY"),
	    .threads = s->lanes_n, /* receiving takes as much processor time here as summing takes in the lanes */
	    .calls_max = s->max_connections,
	    .method = server_streams_method,
	    .refused = server_streams_refused,
	};
	int rc = RS_OK;

	if (ports.grpc[0])
		rc = listener_check(ports.grpc, s->cfg->server.insecure || check_authenticates(s->cfg), e);
	return rc ? rc : host_open_ports(&s->host, &ports, e);
}

void server_ports_stop(struct server *s)
{
	host_stop(&s->host);
}

void server_ports_close(struct server *s)
{
	if (s->streams)
		grpc_handshakes_stop(s->streams);
	host_stop_grpc(&s->host);
	if (s->streams)
		grpc_handshakes_close(s->streams);
	host_close(&s->host);
}

void server_ports_free(struct server *s)
{
	host_free(&s->host);
	grpc_handshakes_free(s->streams);
}
