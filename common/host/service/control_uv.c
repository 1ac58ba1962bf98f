/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: the module hands a call over on one of its threads -> it waits in
 * `arrived` for the loop -> the service says what to answer -> sent, one message at a
 * time, as the client takes them -> ended. Failure modes: more calls arrive than there is
 * room for: refused at once, on the module's thread; the client goes, or does not read:
 * the call is dropped, or waits with the one message that it holds, and nobody waits for
 * it. */
#include "common/host/service/control_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

enum {
	ARRIVED_MAX = 64,
	FLUSH_NS = 200000000, /* for the last messages when the service stops */
};

/* One call. Invariant: message is the only message of the call that is not sent yet. */
struct control_call {
	LIST_ENTRY(control_call) link; /* in control_uv.calls */
	struct rpc_call *rpc;
	struct service_call *call;
	uint8_t *message; /* the next message, for which the client had no room; NULL: none */
	size_t len;
};

/* The context of one method for the gRPC module. */
struct control_method {
	struct control_uv *owner;
	enum service_method method;
};

/* Connects the gRPC module to the services. Invariant: the first arrived_n entries of
 * `arrived` are calls without an owner yet; after `stopped` none is added. */
struct control_uv {
	const struct rpc_api *rpc;
	struct service *service;
	struct control_method methods[SERVICE_METHODS];
	uv_async_t async; /* calls have arrived, or can continue */
	void (*also)(void *user);
	void *also_user;
	LIST_HEAD(, control_call) calls;
	char stopped_why[40]; /* constant */

	uv_mutex_t mutex; /* protects the following fields */
	struct {
		struct rpc_call *rpc;
		enum service_method method;
	} arrived[ARRIVED_MAX];
	unsigned arrived_n;
	bool stopped;
	bool woken;      /* since control_uv_wait() looked last */
	uv_cond_t moved; /* woken was set */
};

/* Wakes the loop, from any thread. */
static void wake(void *user)
{
	struct control_uv *c = user;

	uv_mutex_lock(&c->mutex);
	c->woken = true;
	uv_cond_signal(&c->moved);
	uv_mutex_unlock(&c->mutex);
	uv_async_send(&c->async);
}

/* Waits, without the loop, until a call can continue. Returns false after the time. */
static bool control_uv_wait(struct control_uv *c, uint64_t until_ns)
{
	uint64_t now_ns = uv_hrtime();

	uv_mutex_lock(&c->mutex);
	for (; !c->woken && now_ns < until_ns; now_ns = uv_hrtime())
		uv_cond_timedwait(&c->moved, &c->mutex, until_ns - now_ns);
	c->woken = false;
	uv_mutex_unlock(&c->mutex);
	return now_ns < until_ns;
}

/* Takes a new call, on a thread of the module. */
static void on_call(void *user, struct rpc_call *rpc)
{
	const struct control_method *m = user;
	struct control_uv *c = m->owner;
	bool taken = false, stopped;

	uv_mutex_lock(&c->mutex);
	stopped = c->stopped;
	if (!stopped && c->arrived_n < ARRIVED_MAX) {
		c->arrived[c->arrived_n].rpc = rpc;
		c->arrived[c->arrived_n++].method = m->method;
		taken = true;
	}
	uv_mutex_unlock(&c->mutex);
	if (taken)
		wake(c);
	else if (stopped)
		c->rpc->call_end(rpc, RPC_CODE_UNAVAILABLE, c->stopped_why, NULL, 0);
	else
		c->rpc->call_end(rpc, RPC_CODE_RESOURCE_EXHAUSTED, "the limit of calls at the same time is reached",
				 NULL, 0);
}

static void call_free(struct control_uv *c, struct control_call *call, enum rpc_code code, const char *why)
{
	c->rpc->call_end(call->rpc, code, why, NULL, 0);
	LIST_REMOVE(call, link);
	service_call_free(call->call);
	free(call->message);
	free(call);
}

/* Continues a call as far as possible. May free it. */
static void advance(struct control_uv *c, struct control_call *call)
{
	struct service_out out;

	for (;;) {
		if (c->rpc->call_gone(call->rpc)) {
			call_free(c, call, RPC_CODE_CANCELLED, "");
			return;
		}
		if (service_cut_off(call->call, &out)) {
			call_free(c, call, out.code, out.why);
			return;
		}
		if (call->message) {
			if (!c->rpc->call_send(call->rpc, call->message, call->len))
				return;
			free(call->message);
			call->message = NULL;
		}
		switch (service_next(call->call, &out)) {
		case SERVICE_WAIT:
			return;
		case SERVICE_SEND:
			call->message = out.message;
			call->len = out.len;
			break;
		case SERVICE_END:
			call_free(c, call, out.code, out.why);
			return;
		}
	}
}

static void begin(struct control_uv *c, struct rpc_call *rpc, enum service_method method)
{
	struct control_call *call = calloc(1, sizeof *call);
	char address[RPC_PEER_MAX];
	struct service_peer peer = {.address = address, .authorization = c->rpc->call_header(rpc, "authorization")};
	const void *request;
	size_t len;

	c->rpc->call_peer(rpc, address);
	request = c->rpc->call_request(rpc, &len);
	if (call)
		call->call = service_begin(c->service, method, &peer, request, len);
	if (!call || !call->call) {
		free(call);
		c->rpc->call_end(rpc, RPC_CODE_RESOURCE_EXHAUSTED, "out of memory for the call", NULL, 0);
		return;
	}
	call->rpc = rpc;
	LIST_INSERT_HEAD(&c->calls, call, link);
	c->rpc->call_waker(rpc, (struct rpc_waker){wake, c});
}

static void take_arrived(struct control_uv *c)
{
	for (;;) {
		struct rpc_call *rpc = NULL;
		enum service_method method = SERVICE_METHODS;

		uv_mutex_lock(&c->mutex);
		if (c->arrived_n) {
			rpc = c->arrived[0].rpc;
			method = c->arrived[0].method;
			c->arrived_n--;
			for (unsigned i = 0; i < c->arrived_n; i++)
				c->arrived[i] = c->arrived[i + 1];
		}
		uv_mutex_unlock(&c->mutex);
		if (!rpc)
			return;
		begin(c, rpc, method);
	}
}

static void advance_all(struct control_uv *c)
{
	struct control_call *next;

	for (struct control_call *call = LIST_FIRST(&c->calls); call; call = next) {
		next = LIST_NEXT(call, link);
		advance(c, call);
	}
}

static void on_async(uv_async_t *async)
{
	struct control_uv *c = async->data;

	take_arrived(c);
	advance_all(c);
	if (c->also)
		c->also(c->also_user);
}

void control_uv_also(struct control_uv *c, void (*advance_calls)(void *user), void *user)
{
	c->also = advance_calls;
	c->also_user = user;
}

void control_uv_wake(struct control_uv *c)
{
	wake(c);
}

int control_uv_new(struct control_uv **ret, uv_loop_t *loop, const struct rpc_api *rpc,
		   const struct service_options *opt, struct rs_err *e)
{
	struct control_uv *c = calloc(1, sizeof *c);
	struct service_options so = *opt;
	int rc;

	if (!c)
		return rs_oom(e, 0, "the control service");
	so.wake = wake;
	so.wake_ctx = c;
	c->rpc = rpc;
	snprintf(c->stopped_why, sizeof c->stopped_why, "this %s has stopped", opt->process);
	for (unsigned i = 0; i < SERVICE_METHODS; i++)
		c->methods[i] = (struct control_method){c, i};
	rc = uv_mutex_init(&c->mutex);
	if (rc) {
		rc = rs_fail(e, RS_ENOMEM, "cannot create a mutex: %s", uv_strerror(rc));
		goto free_control;
	}
	rc = uv_cond_init(&c->moved);
	if (rc) {
		rc = rs_fail(e, RS_ENOMEM, "cannot create a condition: %s", uv_strerror(rc));
		goto destroy_mutex;
	}
	c->service = service_new(&so);
	if (!c->service) {
		rc = rs_oom(e, 0, "the control service");
		goto destroy_cond;
	}
	rc = uv_async_init(loop, &c->async, on_async);
	if (rc) {
		rc = rs_fail(e, RS_EIO, "cannot create an event: %s", uv_strerror(rc));
		goto free_service;
	}
	c->async.data = c;
	*ret = c;
	return RS_OK;

free_service:
	service_free(c->service);
destroy_cond:
	uv_cond_destroy(&c->moved);
destroy_mutex:
	uv_mutex_destroy(&c->mutex);
free_control:
	free(c);
	return rc;
}

void control_uv_methods(struct control_uv *c, struct rpc_method methods[SERVICE_METHODS])
{
	for (unsigned i = 0; i < SERVICE_METHODS; i++)
		methods[i] = (struct rpc_method){
		    .path = service_methods[i].path, .kind = RPC_CALL, .call = on_call, .user = &c->methods[i]};
}

struct service *control_uv_service(struct control_uv *c)
{
	return c->service;
}

void control_uv_stop(struct control_uv *c)
{
	uint64_t until_ns = uv_hrtime() + FLUSH_NS;

	uv_mutex_lock(&c->mutex);
	c->stopped = true;
	uv_mutex_unlock(&c->mutex);
	service_stop(c->service);
	do {
		take_arrived(c);
		advance_all(c);
	} while (!LIST_EMPTY(&c->calls) && control_uv_wait(c, until_ns));
	while (!LIST_EMPTY(&c->calls))
		call_free(c, LIST_FIRST(&c->calls), RPC_CODE_UNAVAILABLE, c->stopped_why);
}

void control_uv_close(struct control_uv *c)
{
	uv_close((uv_handle_t *)&c->async, NULL);
}

void control_uv_free(struct control_uv *c)
{
	if (!c)
		return;
	service_free(c->service);
	uv_cond_destroy(&c->moved);
	uv_mutex_destroy(&c->mutex);
	free(c);
}
