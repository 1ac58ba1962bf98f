/* SPDX-License-Identifier: Apache-2.0 */
/* The interface that the module gives to the program that has loaded it. */
#include "proto/rpc/grpc_priv.h"

__attribute__((visibility("default"))) const struct rpc_api *reduction_rpc(void);

const struct rpc_api *reduction_rpc(void)
{
	static const struct rpc_api api = {
	    .version = RPC_VERSION,
	    .server_start = server_start,
	    .server_port = server_port,
	    .server_reload = server_reload,
	    .server_stop = server_stop,
	    .client_new = client_new,
	    .client_free = client_free,
	    .client_queue = client_queue,
	    .server_queue = server_queue,
	    .queue_take = queue_take,
	    .queue_leave = queue_leave,
	    .queue_serve = queue_serve,
	    .queue_kick = queue_kick,
	    .query = query,
	    .query_next = query_next,
	    .query_free = query_free,
	    .stream_open = stream_open,
	    .stream_up = stream_up,
	    .stream_waker = stream_waker,
	    .stream_recv = stream_recv,
	    .stream_send = stream_send,
	    .stream_finish = stream_finish,
	    .stream_error = stream_error,
	    .stream_peer = stream_peer,
	    .stream_certificate = stream_certificate,
	    .stream_close = stream_close,
	    .call_request = call_request,
	    .call_header = call_header,
	    .call_peer = call_peer,
	    .call_waker = call_waker,
	    .call_send = call_send,
	    .call_gone = call_gone,
	    .call_end = call_end,
	};

	return &api;
}
