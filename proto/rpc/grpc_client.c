/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rpc/grpc_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WATCH_MS = 5000, WATCH_TIMEOUT_MS = 10000 };

static grpc_arg client_integer(const char *key, int value)
{
	return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

enum client_security client_security(const struct rpc_tls *tls)
{
	if (!tls)
		return CLIENT_PLAIN;
	return tls->certificate ? CLIENT_CERTIFICATE : CLIENT_TLS;
}

grpc_channel *client_channel(const char *address, const char *authority, const struct rpc_tls *tls, int message_max,
			     bool watched, struct rs_err *e)
{
	grpc_arg args[10] = {
	    /* a connection for each channel, not one for all with the same address: lanes
	     * must not delay each other */
	    client_integer(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
	    client_integer(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
	    /* the user of a stream reconnects itself, and knows what has to be sent
	     * again */
	    client_integer(GRPC_ARG_ENABLE_RETRIES, 0),
	    client_integer(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
	    client_integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, message_max),
	    client_integer(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, FRAME_BYTES),
	};
	grpc_channel_args all = {.num_args = 6, .args = args};
	grpc_channel_credentials *creds = tls ? client_credentials(tls, e) : grpc_insecure_credentials_create();
	grpc_channel *channel;

	if (!creds)
		return NULL;
	if (watched) {
		args[all.num_args++] = client_integer(GRPC_ARG_KEEPALIVE_TIME_MS, WATCH_MS);
		args[all.num_args++] = client_integer(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, WATCH_TIMEOUT_MS);
		args[all.num_args++] = client_integer(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
	}
	if (authority)
		args[all.num_args++] = (grpc_arg){.type = GRPC_ARG_STRING,
						  .key = (char *)GRPC_ARG_DEFAULT_AUTHORITY,
						  .value.string = (char *)authority};
	channel = grpc_channel_create(address, creds, &all);
	grpc_channel_credentials_release(creds);
	return channel;
}

int client_new(struct rpc_client **ret, struct rs_err *e)
{
	struct rpc_client *c = calloc(1, sizeof *c);
	int rc;

	if (!c)
		return rs_oom(e, 0, "a gRPC client");
	rc = grpc_use(e);
	if (rc) {
		free(c);
		return rc;
	}
	rc = queue_start(&c->queue, "rpc", NULL, e);
	if (rc)
		return rc; /* nothing of gRPC can be freed */
	live_init(&c->live);
	*ret = c;
	return RS_OK;
}

struct rpc_queue *client_queue(struct rpc_client *c)
{
	return &c->queue;
}

void client_free(struct rpc_client *c)
{
	live_close(&c->live);
	queue_stop(&c->queue);
	grpc_release();
	free(c);
}
