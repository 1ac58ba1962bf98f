/* SPDX-License-Identifier: Apache-2.0 */
/* One gRPC server: the address it listens on, its settings for connections, and the wait
 * for its calls. Our server has one such port that accepts calls, and possibly older ones
 * whose last calls go on. */
#include "common/address.h"
#include "proto/rpc/grpc_priv.h"

#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	REQUESTS = 4, /* calls that a queue can take before its thread has processed any */
	/* Concurrent calls on one connection. Workers have one; each costs 10 KB before
	 * our code sees it. Peak memory when a client opens 6000 connections with that
	 * many calls each: 64 3.3 GB, 16 1.0 GB, 4 0.35 GB. */
	STREAMS_MAX = 8,
	PING_INTERVAL_MS = 2000, /* minimum for a client whose connection is silent */
	HEADERS_MAX = 16384,     /* bytes of a call's headers */
};

/* The wait for a call on one queue. */
struct request {
	struct op op;
	struct port *port;
	struct worker *worker;
	struct arrival arrival;
};

/* Every requested call, and the shutdown of the server, holds a reference. */
struct port {
	grpc_server *server;
	struct port_options opt;
	_Atomic unsigned refs;
	struct op shutdown;
	struct request requests[];
};

static void port_unref(struct port *p)
{
	struct port_options opt;

	if (atomic_fetch_sub(&p->refs, 1) != 1)
		return;
	opt = p->opt;
	opt.closing(opt.owner, p);
	grpc_server_destroy(p->server);
	free(p);
	opt.closed(opt.owner);
}

static void port_request_next(struct request *r)
{
	grpc_completion_queue *cq = worker_queue(r->worker)->cq;
	grpc_server *server = r->port->server;
	struct arrival *a = &r->arrival;

	grpc_call_details_init(&a->details);
	grpc_metadata_array_init(&a->headers);
	op_release(&r->op);
	grpc_server_request_call(server, &a->call, &a->details, &a->headers, cq, cq, &r->op);
}

static void port_on_call(struct op *op, bool ok)
{
	struct request *r = (struct request *)op;

	if (ok)
		r->port->opt.arrived(r->worker, &r->arrival);
	grpc_metadata_array_destroy(&r->arrival.headers);
	grpc_call_details_destroy(&r->arrival.details);
	if (ok)
		port_request_next(r);
	else
		port_unref(r->port);
}

static void port_on_shutdown(struct op *op, bool ok)
{
	(void)ok;
	port_unref((struct port *)((char *)op - offsetof(struct port, shutdown)));
}

static grpc_server *port_make_server(const struct port_options *opt)
{
	grpc_arg args[] = {
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_ALLOW_REUSEPORT, .value.integer = 0},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_MAX_CONCURRENT_STREAMS, .value.integer = STREAMS_MAX},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_MAX_METADATA_SIZE, .value.integer = HEADERS_MAX},
	    /* checked when the whole message has arrived: its sender has to be bounded
	     * too, see rpc_server_options */
	    {.type = GRPC_ARG_INTEGER,
	     .key = (char *)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
	     .value.integer = MESSAGE_MAX},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_HTTP2_MAX_FRAME_SIZE, .value.integer = FRAME_BYTES},
	    /* no client compresses gradients, and a small compressed message may be a
	     * large one */
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, .value.integer = 0},
	    {.type = GRPC_ARG_INTEGER,
	     .key = (char *)GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
	     .value.integer = 1},
	    {.type = GRPC_ARG_INTEGER,
	     .key = (char *)GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
	     .value.integer = (int)opt->handshake_ms},
	    {.type = GRPC_ARG_INTEGER,
	     .key = (char *)GRPC_ARG_MAX_CONNECTION_IDLE_MS,
	     .value.integer = (int)opt->handshake_ms},
	    /* the streams' own heartbeats detect a lost worker; this is for connections
	     * without them */
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_KEEPALIVE_TIME_MS, .value.integer = (int)opt->detect_ms},
	    {.type = GRPC_ARG_INTEGER,
	     .key = (char *)GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
	     .value.integer = (int)opt->detect_ms},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, .value.integer = 1},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, .value.integer = 0},
	    /* a client that reads events may send keepalives while there are none: gRPC's
	     * default is 5 minutes */
	    {.type = GRPC_ARG_INTEGER,
	     .key = (char *)GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
	     .value.integer = PING_INTERVAL_MS},
	};
	grpc_channel_args all = {.num_args = sizeof args / sizeof args[0], .args = args};

	/* no GRPC_ARG_RESOURCE_QUOTA: beyond it gRPC ends the oldest streams first, which
	 * are those of running jobs */
	return grpc_server_create(&all, NULL);
}

/* gRPC reports only that it cannot listen; this asks the system for the reason. */
static int port_why_not(const char *address, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
	int rc, one = 1, fd;
	struct rs_host_port at;

	if (rpc_is_unix(address))
		return rs_fail(e, RS_EIO, "gRPC cannot listen on %s", address);
	rc = rs_host_port_split(&at, address, true, e);
	if (rc)
		return rc;
	if (getaddrinfo(at.host[0] ? at.host : NULL, at.port, &hints, &list))
		return rs_fail(e, RS_EIO, "gRPC cannot listen on %s: it cannot be resolved", address);
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen))
		rc = rs_fail_sys(e, RS_EIO, errno, "gRPC cannot listen on %s", address);
	if (fd >= 0)
		close(fd);
	freeaddrinfo(list);
	return rc ? rc : rs_fail(e, RS_EIO, "gRPC cannot listen on %s", address);
}

static int port_listen_on(struct port *p, const char *address, struct keys *keys, unsigned *ret_port, struct rs_err *e)
{
	grpc_server_credentials *creds = keys ? server_credentials(keys, e) : grpc_insecure_server_credentials_create();
	mode_t before = 0;
	int port;

	if (!creds)
		return e->code;
	if (rpc_is_unix(address))
		before = umask(0117); /* the socket has mode 0660 from the start */
	port = grpc_server_add_http2_port(p->server, address, creds);
	if (rpc_is_unix(address))
		umask(before);
	grpc_server_credentials_release(creds);
	if (port <= 0)
		return port_why_not(address, e);
	*ret_port = (unsigned)port;
	return RS_OK;
}

int port_open(struct port **ret, const struct port_options *opt, const char *address, struct keys *keys,
	      unsigned *ret_port, struct rs_err *e)
{
	unsigned n = opt->workers_n * REQUESTS;
	struct port *p = calloc(1, sizeof *p + n * sizeof p->requests[0]);
	int rc;

	if (!p)
		return rs_oom(e, sizeof *p + n * sizeof p->requests[0], "a gRPC server");
	p->opt = *opt;
	p->server = port_make_server(opt);
	p->shutdown.done = port_on_shutdown;
	for (unsigned i = 0; i < opt->workers_n; i++)
		grpc_server_register_completion_queue(p->server, worker_queue(opt->workers[i])->cq, NULL);
	rc = port_listen_on(p, address, keys, ret_port, e);
	if (rc) {
		atomic_init(&p->refs, 1);
		port_close(p);
		return rc;
	}
	atomic_init(&p->refs, n + 1);
	grpc_server_start(p->server);
	for (unsigned i = 0; i < n; i++) {
		p->requests[i].op.done = port_on_call;
		p->requests[i].port = p;
		p->requests[i].worker = opt->workers[i / REQUESTS];
		port_request_next(&p->requests[i]);
	}
	*ret = p;
	return RS_OK;
}

void port_close(struct port *p)
{
	grpc_server *server = p->server;
	grpc_completion_queue *cq = worker_queue(p->opt.workers[0])->cq;

	op_release(&p->shutdown); /* p may have been freed here */
	grpc_server_shutdown_and_notify(server, cq, &p->shutdown);
}

void port_cancel(struct port *p)
{
	grpc_server_cancel_all_calls(p->server);
}
