/* SPDX-License-Identifier: Apache-2.0 */
/* A server: some threads, each with a completion queue on which calls arrive and are served.
 *
 * The happy path: server_start -> a call arrives -> its method's handler gets it. Failure modes: an unknown method, too
 * many calls: refused with a status. */
#include "common/rpc/grpc_priv.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	REQUESTS = 4,        /* calls that a queue can take before its thread has looked */
	STREAMS_MAX = 64,    /* calls at the same time on one connection: workers have one */
	HEADERS_MAX = 16384, /* bytes of a call's headers */
	LAST_WORDS_MS = 500, /* that a server's end waits for clients to take what it has told them */
};

struct worker;

/* The wait for a call. */
struct request {
	struct op op;
	struct worker *worker;
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array headers;
};

struct worker {
	struct queue queue; /* first */
	struct rpc_server *server;
	struct request requests[REQUESTS];
	struct waiting waiting;
};

struct rpc_server {
	grpc_server *server;
	struct rpc_method *methods;
	unsigned methods_n, calls_max;
	uint32_t handshake_ms;
	struct live live; /* calls */
	unsigned port;
	struct worker *workers;
	unsigned workers_n;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool down; /* no call is left */
	struct op shutdown;
	struct keys keys;
};

/* A call that is refused. */
struct refusal {
	struct op op;
	grpc_call *call;
	struct rpc_server *server;
	int cancelled;
};

static void on_refused(struct op *op, bool ok)
{
	struct refusal *r = (struct refusal *)op;

	(void)ok;
	grpc_call_unref(r->call);
	live_remove(&r->server->live);
	free(r);
}

static void refuse(struct rpc_server *s, grpc_call *call, grpc_status_code code, const char *why)
{
	struct refusal *r = calloc(1, sizeof *r);
	grpc_slice text = grpc_slice_from_static_string(why);
	grpc_op ops[3];

	memset(ops, 0, sizeof ops);
	ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
	ops[1].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
	ops[1].data.send_status_from_server.status = code;
	ops[1].data.send_status_from_server.status_details = &text;
	ops[2].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
	if (r) {
		*r = (struct refusal){.op = {on_refused}, .call = call, .server = s};
		ops[2].data.recv_close_on_server.cancelled = &r->cancelled;
		op_starts(&r->op);
		if (grpc_call_start_batch(call, ops, 3, &r->op, NULL) == GRPC_CALL_OK)
			return;
	}
	free(r);
	grpc_call_unref(call);
	live_remove(&s->live);
}

static const struct rpc_method *find(const struct rpc_server *s, grpc_slice path)
{
	for (unsigned i = 0; i < s->methods_n; i++)
		if (grpc_slice_str_cmp(path, s->methods[i].path) == 0)
			return &s->methods[i];
	return NULL;
}

static void dispatch(struct request *r)
{
	struct rpc_server *s = r->worker->server;
	const struct rpc_method *m = find(s, r->details.method);
	unsigned others = live_add(&s->live);
	struct rpc_stream *stream;

	if (!m) {
		refuse(s, r->call, GRPC_STATUS_UNIMPLEMENTED, "this reducer has no such method");
	} else if (others >= s->calls_max) {
		refuse(s, r->call, GRPC_STATUS_RESOURCE_EXHAUSTED, "this reducer has as many calls as it may");
	} else if (m->kind == RPC_STREAM) {
		stream = stream_accept(r->call, r->worker->queue.cq, &s->live);
		if (stream)
			m->stream(m->user, stream);
		else
			refuse(s, r->call, GRPC_STATUS_RESOURCE_EXHAUSTED, "this reducer has no memory");
	} else if (!call_accept(r->call, &r->headers, m, &r->worker->waiting, &s->live)) {
		refuse(s, r->call, GRPC_STATUS_RESOURCE_EXHAUSTED, "this reducer has no memory");
	}
}

static void request_next(struct request *r)
{
	grpc_completion_queue *cq = r->worker->queue.cq;

	grpc_call_details_init(&r->details);
	grpc_metadata_array_init(&r->headers);
	op_starts(&r->op);
	grpc_server_request_call(r->worker->server->server, &r->call, &r->details, &r->headers, cq, cq, &r->op);
}

static void on_call(struct op *op, bool ok)
{
	struct request *r = (struct request *)op;

	if (ok)
		dispatch(r);
	grpc_metadata_array_destroy(&r->headers);
	grpc_call_details_destroy(&r->details);
	if (ok)
		request_next(r);
}

static void on_tick(struct queue *q)
{
	struct worker *w = (struct worker *)q;

	/* the first tick may come at once */
	waiting_tick(&w->waiting, w->server->handshake_ms / QUEUE_TICK_MS + 2);
}

static void on_shutdown(struct op *op, bool ok)
{
	struct rpc_server *s = (struct rpc_server *)((char *)op - offsetof(struct rpc_server, shutdown));

	(void)ok;
	pthread_mutex_lock(&s->lock);
	s->down = true;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static grpc_server *make_server(const struct rpc_server_options *opt)
{
	grpc_arg args[] = {
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_ALLOW_REUSEPORT, .value.integer = 0},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_MAX_CONCURRENT_STREAMS, .value.integer = STREAMS_MAX},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_MAX_METADATA_SIZE, .value.integer = HEADERS_MAX},
	    {.type = GRPC_ARG_INTEGER,
	     .key = (char *)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
	     .value.integer = MESSAGE_MAX},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_HTTP2_MAX_FRAME_SIZE, .value.integer = FRAME_BYTES},
	    /* nobody compresses gradients, and a small compressed message may be a large one */
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
	    /* the streams' own heartbeats find a lost worker; this is for connections that carry none */
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_KEEPALIVE_TIME_MS, .value.integer = (int)opt->detect_ms},
	    {.type = GRPC_ARG_INTEGER,
	     .key = (char *)GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
	     .value.integer = (int)opt->detect_ms},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, .value.integer = 1},
	    {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, .value.integer = 0},
	};
	grpc_channel_args all = {.num_args = sizeof args / sizeof args[0], .args = args};

	return grpc_server_create(&all, NULL);
}

/* gRPC says only that it cannot listen: asks the system for the reason. */
static int why_not(const char *address, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
	const char *colon = strrchr(address, ':');
	int rc = RS_OK, one = 1, fd;
	char host[256];

	snprintf(host, sizeof host, "%.*s", (int)(colon ? colon - address : 0),
		 address[0] == '[' ? address + 1 : address);
	host[strcspn(host, "]")] = '\0';
	if (!colon || getaddrinfo(host, colon + 1, &hints, &list))
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

static int listen_on(struct rpc_server *s, const struct rpc_server_options *opt, struct rs_err *e)
{
	grpc_server_credentials *creds;
	int port;

	if (opt->tls && keys_init(&s->keys, opt->tls, e))
		return e->code;
	creds = opt->tls ? server_credentials(&s->keys, e) : grpc_insecure_server_credentials_create();
	if (!creds)
		return e->code;
	port = grpc_server_add_http2_port(s->server, opt->address, creds);
	grpc_server_credentials_release(creds);
	if (port <= 0)
		return why_not(opt->address, e);
	s->port = (unsigned)port;
	return RS_OK;
}

static int start_workers(struct rpc_server *s, unsigned n, struct rs_err *e)
{
	char name[16];

	s->workers = calloc(n, sizeof *s->workers);
	if (!s->workers)
		return rs_fail(e, RS_ENOMEM, "there is no memory for gRPC's threads");
	for (; s->workers_n < n; s->workers_n++) {
		struct worker *w = &s->workers[s->workers_n];
		int rc;

		w->server = s;
		snprintf(name, sizeof name, "rpc %u", s->workers_n);
		rc = queue_start(&w->queue, name, on_tick, e);
		if (rc)
			return rc;
		grpc_server_register_completion_queue(s->server, w->queue.cq, NULL);
	}
	return RS_OK;
}

static void server_free(struct rpc_server *s)
{
	live_close(&s->live);
	for (unsigned i = 0; i < s->workers_n; i++)
		queue_stop(&s->workers[i].queue);
	keys_close(&s->keys);
	free(s->workers);
	free(s->methods);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	free(s);
	grpc_release();
}

/* Ends what the server still has, after clients had time to take how their calls have ended, and waits for it. It must
 * have a worker. */
static void shut_down(struct rpc_server *s)
{
	struct timespec by;
	int rc = 0;

	s->shutdown.done = on_shutdown;
	op_starts(&s->shutdown);
	grpc_server_shutdown_and_notify(s->server, s->workers[0].queue.cq, &s->shutdown);
	clock_gettime(CLOCK_MONOTONIC, &by);
	by.tv_nsec += LAST_WORDS_MS * 1000000L;
	by.tv_sec += by.tv_nsec / 1000000000;
	by.tv_nsec %= 1000000000;
	pthread_mutex_lock(&s->lock);
	while (!s->down && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&s->changed, &s->lock, &by);
	pthread_mutex_unlock(&s->lock);
	grpc_server_cancel_all_calls(s->server);
	pthread_mutex_lock(&s->lock);
	while (!s->down)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

int server_start(struct rpc_server **ret, const struct rpc_server_options *opt, struct rs_err *e)
{
	struct rpc_server *s = calloc(1, sizeof *s);
	pthread_condattr_t attr;
	int rc;

	if (!s)
		return rs_fail(e, RS_ENOMEM, "there is no memory for a gRPC server");
	grpc_use();
	live_init(&s->live);
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	s->calls_max = opt->calls_max;
	s->handshake_ms = opt->handshake_ms;
	s->methods_n = opt->methods_n;
	s->methods = calloc(opt->methods_n + 1, sizeof *s->methods);
	s->server = make_server(opt);
	rc = s->methods ? start_workers(s, opt->threads, e) : rs_fail(e, RS_ENOMEM, "there is no memory for methods");
	if (!rc) {
		for (unsigned i = 0; i < opt->methods_n; i++)
			s->methods[i] = opt->methods[i];
		rc = listen_on(s, opt, e);
	}
	if (rc) {
		if (s->workers_n)
			shut_down(s);
		grpc_server_destroy(s->server);
		server_free(s);
		return rc;
	}
	grpc_server_start(s->server);
	for (unsigned i = 0; i < s->workers_n; i++)
		for (unsigned k = 0; k < REQUESTS; k++) {
			struct request *r = &s->workers[i].requests[k];

			r->op.done = on_call;
			r->worker = &s->workers[i];
			request_next(r);
		}
	*ret = s;
	return RS_OK;
}

unsigned server_port(const struct rpc_server *s)
{
	return s->port;
}

int server_reload(struct rpc_server *s, const struct rpc_tls *tls, struct rs_err *e)
{
	return keys_change(&s->keys, tls, e);
}

void server_stop(struct rpc_server *s)
{
	shut_down(s);
	grpc_server_destroy(s->server);
	server_free(s);
}
