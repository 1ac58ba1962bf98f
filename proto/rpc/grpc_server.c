/* SPDX-License-Identifier: Apache-2.0 */
/* A server: some threads, each with a completion queue on which calls arrive and are
 * served.
 *
 * The happy path: server_start -> a call arrives -> its method's handler gets it. Failure
 * modes: An unknown method or too many calls: the call is refused with a status, unless
 * an older call waits for a client that does nothing; then the older one is ended. No
 * descriptor is left for a connection: gRPC's listening socket then never accepts again,
 * which gRPC reports only in its log; the port is closed and opened again, and calls of
 * the old port go on. */
#include "proto/rpc/grpc_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	PORTS_MAX = 4,       /* at the same time, see `ports` */
	STOP_GRACE_MS = 500, /* time that server_stop gives clients to take their last messages */
};

/* A queue of a server, on which calls arrive. */
struct worker {
	struct rpc_queue queue; /* first */
	struct rpc_server *server;
};

/* One server. Invariant: `port` is NULL or one of `ports`. */
struct rpc_server {
	struct rpc_server_options opt; /* its strings and methods are not used */
	struct rpc_method *methods;
	struct live live;    /* calls that have a place */
	struct live refused; /* calls that are being refused */
	struct waiting waiting;
	struct worker *workers, **worker_list;
	unsigned workers_n;
	struct keys keys;
	struct log_sink sink;
	_Atomic bool deaf; /* accepts no more connections */

	pthread_mutex_t lock; /* protects the following fields */
	pthread_cond_t changed;
	char address[300];             /* with the actual port */
	unsigned port_number;          /* as address: set when it was opened for the first time, then constant */
	struct port *port;             /* the port that listens; NULL: it could not be opened again yet */
	struct port *ports[PORTS_MAX]; /* open ports, including those whose last calls go on; NULL: free */
	unsigned ports_n;              /* ports that are being freed */
	bool stopping;
};

struct rpc_queue *worker_queue(struct worker *w)
{
	return &w->queue;
}

/* A call that is refused. */
struct refusal {
	struct op op;
	grpc_call *call;
	struct rpc_server *server;
	int cancelled;
};

static void server_on_refused(struct op *op, bool ok)
{
	struct refusal *r = (struct refusal *)op;

	(void)ok;
	grpc_call_unref(r->call);
	live_remove(&r->server->refused);
	free(r);
}

static void server_refuse(struct rpc_server *s, grpc_call *call, grpc_status_code code, const char *why)
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
	live_add(&s->refused);
	if (r) {
		*r = (struct refusal){.op = {server_on_refused}, .call = call, .server = s};
		ops[2].data.recv_close_on_server.cancelled = &r->cancelled;
		op_release(&r->op);
		if (grpc_call_start_batch(call, ops, 3, &r->op, NULL) == GRPC_CALL_OK)
			return;
	}
	free(r);
	grpc_call_unref(call);
	live_remove(&s->refused);
}

static const struct rpc_method *server_find(const struct rpc_server *s, grpc_slice path)
{
	for (unsigned i = 0; i < s->opt.methods_n; i++)
		if (grpc_slice_str_cmp(path, s->methods[i].path) == 0)
			return &s->methods[i];
	return NULL;
}

/* Reserves a place for a call; live_remove releases it. */
static bool server_take_place(struct rpc_server *s)
{
	if (live_add(&s->live) < s->opt.calls_max || waiting_end_oldest(&s->waiting))
		return true;
	live_remove(&s->live);
	return false;
}

/* Passes a call that has a place to its method. False: out of memory for it. */
static bool server_hand_over(struct worker *w, struct arrival *r, const struct rpc_method *m)
{
	struct rpc_server *s = w->server;
	struct rpc_stream *stream;

	if (m->kind == RPC_CALL)
		return call_accept(r->call, &r->headers, m, &s->waiting, &s->live);
	stream = stream_accept(r->call, w->queue.cq, &s->waiting, &s->live);
	if (stream)
		m->stream(m->user, stream);
	return stream;
}

static void server_dispatch(struct worker *w, struct arrival *r)
{
	struct rpc_server *s = w->server;
	const struct rpc_method *m = server_find(s, r->details.method);

	if (!m) {
		server_refuse(s, r->call, GRPC_STATUS_UNIMPLEMENTED, "there is no such method here");
	} else if (!server_take_place(s)) {
		server_refuse(s, r->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
			      "the limit of calls at the same time is reached");
	} else if (!server_hand_over(w, r, m)) {
		server_refuse(s, r->call, GRPC_STATUS_RESOURCE_EXHAUSTED, "out of memory for the call");
		live_remove(&s->live);
	}
}

static void server_on_port_closing(struct rpc_server *s, const struct port *p)
{
	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < PORTS_MAX; i++)
		if (s->ports[i] == p)
			s->ports[i] = NULL;
	pthread_mutex_unlock(&s->lock);
}

static void server_on_port_closed(struct rpc_server *s)
{
	pthread_mutex_lock(&s->lock);
	s->ports_n--;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* Opens a port; it becomes s->port. Errors: those of port_open, RS_EIO if there are too
 * many old ones. */
static int server_open_port(struct rpc_server *s, const char *address, struct rs_err *e)
{
	struct port_options po = {
	    .handshake_ms = s->opt.handshake_ms,
	    .detect_ms = s->opt.detect_ms,
	    .workers = s->worker_list,
	    .workers_n = s->workers_n,
	    .arrived = server_dispatch,
	    .closing = server_on_port_closing,
	    .closed = server_on_port_closed,
	    .owner = s,
	};
	const char *colon = strrchr(address, ':');
	struct port **place = NULL;
	unsigned number;
	int rc;

	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < PORTS_MAX && !place; i++)
		if (!s->ports[i])
			place = &s->ports[i];
	if (s->stopping || !place) {
		rc = rs_fail(e, RS_EIO, "the port cannot be opened at the moment");
	} else {
		rc = port_open(place, &po, address, s->opt.tls ? &s->keys : NULL, &number, e);
		s->ports_n += rc != RS_ENOMEM;
		s->port = rc ? NULL : *place;
		if (!rc && !s->port_number) {
			if (rpc_is_unix(address))
				snprintf(s->address, sizeof s->address, "%s", address);
			else
				snprintf(s->address, sizeof s->address, "%.*s:%u", (int)(colon ? colon - address : 0),
					 address, number);
			s->port_number = number;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* Opens the port again. The old one is closed first, since both cannot be bound; existing
 * connections go on. */
static void server_reopen(struct rpc_server *s)
{
	struct port *old;
	struct rs_err e;

	pthread_mutex_lock(&s->lock);
	old = s->stopping ? NULL : s->port;
	if (old)
		s->port = NULL;
	pthread_mutex_unlock(&s->lock);
	if (old)
		port_close(old); /* its socket is closed by the time of another tick */
	else if (server_open_port(s, s->address, &e) == RS_OK)
		atomic_store(&s->deaf, false);
}

static void server_on_tick(struct rpc_queue *q)
{
	struct worker *w = (struct worker *)q;

	if (w != w->server->workers)
		return;
	/* the first tick may come at once */
	waiting_tick(&w->server->waiting, w->server->opt.handshake_ms / QUEUE_TICK_MS + 2);
	if (atomic_load(&w->server->deaf))
		server_reopen(w->server);
}

/* Receives a line of gRPC's log, on any thread. */
static void server_on_log(struct log_sink *sink, const char *text)
{
	struct rpc_server *s = (struct rpc_server *)((char *)sink - offsetof(struct rpc_server, sink));

	if (strstr(text, "Failed accept4"))
		atomic_store(&s->deaf, true);
	if (s->opt.log)
		s->opt.log(s->opt.user, text);
}

static int server_start_workers(struct rpc_server *s, unsigned n, struct rs_err *e)
{
	char name[16];

	s->workers = calloc(n, sizeof *s->workers);
	s->worker_list = calloc(n, sizeof(struct worker *));
	if (!s->workers || !s->worker_list)
		return rs_oom(e, 0, "gRPC's threads");
	for (; s->workers_n < n; s->workers_n++) {
		struct worker *w = &s->workers[s->workers_n];
		int rc;

		s->worker_list[s->workers_n] = w;
		w->server = s;
		snprintf(name, sizeof name, "rpc %u", s->workers_n);
		rc = queue_start(&w->queue, name, server_on_tick, e);
		if (rc)
			return rc;
	}
	return RS_OK;
}

/* Frees a server after all its ports have been closed. */
static void server_free(struct rpc_server *s)
{
	pthread_mutex_lock(&s->lock);
	while (s->ports_n)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	live_close(&s->live);
	live_close(&s->refused);
	for (unsigned i = 0; i < s->workers_n; i++)
		queue_stop(&s->workers[i].queue);
	waiting_destroy(&s->waiting);
	log_remove(&s->sink);
	keys_close(&s->keys);
	free(s->workers);
	free(s->worker_list);
	free(s->methods);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	free(s);
	grpc_release();
}

static struct rpc_server *server_new(const struct rpc_server_options *opt, struct rs_err *e)
{
	struct rpc_server *s = calloc(1, sizeof *s);
	pthread_condattr_t attr;

	if (!s) {
		rs_oom(e, 0, "a gRPC server");
		return NULL;
	}
	if (grpc_use(e)) {
		free(s);
		return NULL;
	}
	s->opt = *opt;
	live_init(&s->live);
	live_init(&s->refused);
	waiting_init(&s->waiting);
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	s->methods = calloc(opt->methods_n + 1, sizeof *s->methods);
	for (unsigned i = 0; s->methods && i < opt->methods_n; i++)
		s->methods[i] = opt->methods[i];
	s->sink.log = server_on_log;
	log_add(&s->sink);
	return s;
}

int server_start(struct rpc_server **ret, const struct rpc_server_options *opt, struct rs_err *e)
{
	struct rpc_server *s = server_new(opt, e);
	int rc = RS_OK;

	if (!s)
		return e->code;
	if (!s->methods)
		rc = rs_oom(e, 0, "methods");
	if (!rc && opt->tls)
		rc = keys_init(&s->keys, opt->tls, e);
	if (!rc) {
		rc = server_start_workers(s, opt->threads, e);
		if (rc == RS_EIO)
			return rc; /* nothing of gRPC can be freed: queue_start */
	}
	if (!rc)
		rc = server_open_port(s, opt->address, e);
	if (rc) {
		server_free(s);
		return rc;
	}
	*ret = s;
	return RS_OK;
}

unsigned server_port(const struct rpc_server *s)
{
	return s->port_number;
}

struct rpc_queue *server_queue(struct rpc_server *s, unsigned i)
{
	return &s->workers[i].queue;
}

int server_reload(struct rpc_server *s, const struct rpc_tls *tls, struct rs_err *e)
{
	return keys_change(&s->keys, tls, e);
}

void server_stop(struct rpc_server *s)
{
	struct timespec by;
	struct port *port;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	port = s->port;
	s->port = NULL;
	pthread_mutex_unlock(&s->lock);
	if (port)
		port_close(port);
	clock_gettime(CLOCK_MONOTONIC, &by);
	by.tv_nsec += STOP_GRACE_MS * 1000000L;
	by.tv_sec += by.tv_nsec / 1000000000;
	by.tv_nsec %= 1000000000;
	pthread_mutex_lock(&s->lock);
	while (s->ports_n && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&s->changed, &s->lock, &by);
	for (unsigned i = 0; i < PORTS_MAX; i++)
		if (s->ports[i])
			port_cancel(s->ports[i]);
	pthread_mutex_unlock(&s->lock);
	server_free(s);
}
