/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/service/service.h"

#include "common/address.h"
#include "common/auth.h"
#include "common/host/service/history.h"
#include "common/host/service/service_pack.h"
#include "proto/control.h"
#include "proto/health.pb-c.h"
#include "proto/reduction.pb-c.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#define CONTROL "/reduction.v1.Control/"
#define HEALTH  "/grpc.health.v1.Health/"

const struct service_method_info service_methods[SERVICE_METHODS] = {
    [SERVICE_STATUS] = {CONTROL "Status", "Status", RIGHT_READ},
    [SERVICE_DRAIN] = {CONTROL "Drain", "Drain", RIGHT_ADMIN},
    [SERVICE_RELOAD] = {CONTROL "Reload", "Reload", RIGHT_ADMIN},
    [SERVICE_EVENTS] = {CONTROL "Events", "Events", RIGHT_READ},
    [SERVICE_TRACE] = {CONTROL "Trace", "Trace", RIGHT_READ},
    [SERVICE_CHECK] = {HEALTH "Check", "Check", RIGHT_NONE},
    [SERVICE_WATCH] = {HEALTH "Watch", "Watch", RIGHT_NONE},
};

/* One call, with the fields of its request. Invariant: `code` is RPC_CODE_OK unless the
 * call is refused. */
struct service_call {
	LIST_ENTRY(service_call) link; /* in service.calls */
	struct service *service;
	enum service_method method;
	enum rpc_code code; /* refused: not RPC_CODE_OK */
	struct rs_err why;
	struct service_bytes answer; /* sent next */
	bool answered;               /* `answer` is the last message */
	bool placed;                 /* it is counted in controls_n or watches_n */
	char name[CONTROL_JOB];      /* STATUS, EVENTS: only this job; CHECK, WATCH: the service */
	bool without_ranks, history; /* STATUS */
	const struct events *events; /* EVENTS: those that it reads */
	uint64_t next_event, until;  /* EVENTS: number of the next event; the first number not to send */
	int last_health;             /* WATCH: the last health sent; 0: none */
	struct trace *traces;        /* TRACE: to send; owned */
};

/* Invariant: controls_n and watches_n count the calls in the list with `placed`: calls
 * with the right that they require, and watches of health. A check of health is answered
 * at once and is not counted. */
struct service {
	struct service_options opt;
	struct auth_secret read, admin;
	LIST_HEAD(, service_call) calls; /* the newest first */
	unsigned controls_n, watches_n;
	bool collecting; /* a status was requested */
	bool sampling;   /* that status becomes a sample */
	struct history history;
	bool tracing;                /* a trace was requested */
	struct service_call *tracer; /* for this call; NULL: it has gone */
	bool draining, stopping;
};

struct service *service_new(const struct service_options *opt)
{
	struct service *s = calloc(1, sizeof *s);

	if (s)
		s->opt = *opt;
	return s;
}

void service_free(struct service *s)
{
	if (!s)
		return;
	auth_secret_clear(&s->read);
	auth_secret_clear(&s->admin);
	free(s);
}

static void set_token(struct auth_secret *to, struct service_token from)
{
	auth_secret_clear(to);
	to->len = from.len < sizeof to->bytes ? from.len : sizeof to->bytes;
	if (to->len)
		memcpy(to->bytes, from.bytes, to->len);
}

void service_tokens(struct service *s, struct service_token read, struct service_token admin)
{
	set_token(&s->read, read);
	set_token(&s->admin, admin);
}

bool service_is_local(const char *address)
{
	struct rs_endpoint end;

	if (rpc_is_unix(address))
		return true;
	return rs_endpoint_of_text(&end, address) && rs_endpoint_is_loopback(&end);
}

/* Returns true if the header is "Bearer TOKEN" with this token. */
static bool is_token(const char *authorization, const struct auth_secret *token)
{
	static const char scheme[] = "Bearer ";
	const char *given;

	if (!authorization || !token->len || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
		return false;
	given = authorization + sizeof scheme - 1;
	return strlen(given) == token->len && CRYPTO_memcmp(given, token->bytes, token->len) == 0;
}

/* Checks that a client has the right that a method requires. */
static enum rpc_code authorize(const struct service *s, enum service_right right, const struct service_peer *peer,
			       struct rs_err *e)
{
	const char *section = s->opt.section, *file = right == RIGHT_ADMIN ? "admin_token" : "read_token";
	const struct auth_secret *token = right == RIGHT_ADMIN ? &s->admin : &s->read;

	if (right == RIGHT_NONE || is_token(peer->authorization, &s->admin) || is_token(peer->authorization, token))
		return RPC_CODE_OK;
	if (!token->len) {
		bool local = service_is_local(peer->address);

		if (right == RIGHT_READ ? local || peer->certified : local && s->opt.own(s->opt.ctx, peer))
			return RPC_CODE_OK;
		rs_fail(e, RS_EREFUSED, "permission denied: this %s has no %s.%s, so only %s may do this",
			s->opt.process, section, file,
			right == RIGHT_READ ? "callers on a loopback address"
					    : "root and its own user, on a loopback address,");
		return RPC_CODE_PERMISSION_DENIED;
	}
	if (is_token(peer->authorization, &s->read)) {
		rs_fail(e, RS_EREFUSED,
			"permission denied: the token is that of %s.read_token, and this requires that of %s.%s",
			section, section, file);
		return RPC_CODE_PERMISSION_DENIED;
	}
	if (peer->authorization)
		rs_fail(e, RS_EREFUSED, "permission denied: the token is not that of this %s's %s.%s", s->opt.process,
			section, file);
	else
		rs_fail(e, RS_EREFUSED, "permission denied: send the token from %s.%s (reductionctl --token FILE)",
			section, file);
	return RPC_CODE_UNAUTHENTICATED;
}

static void refuse(struct service_call *c, enum rpc_code code, const char *why)
{
	c->code = code;
	rs_fail(&c->why, RS_EREFUSED, "%s", why);
}

static void refuse_stopped(struct service_call *c)
{
	c->code = RPC_CODE_UNAVAILABLE;
	rs_fail(&c->why, RS_EREFUSED, "this %s has stopped", c->service->opt.process);
}

static void refuse_memory(struct service_call *c)
{
	c->code = RPC_CODE_RESOURCE_EXHAUSTED;
	rs_fail(&c->why, RS_EREFUSED, "out of memory for the answer in this %s", c->service->opt.process);
}

/* Sets the last message of a call. */
static void answer(struct service_call *c, struct service_bytes bytes)
{
	if (bytes.at) {
		c->answer = bytes;
		c->answered = true;
	} else {
		refuse_memory(c);
	}
}

/* Stores the name of a job or service. Returns false if it is longer than any name. */
static bool take_name(struct service_call *c, const char *name)
{
	if (strlen(name) >= sizeof c->name)
		return false;
	strcpy(c->name, name);
	return true;
}

/* Returns the health of a service; 0: there is none of this name. */
static int health(const struct service *s, const char *name)
{
	bool well = !s->stopping;

	if (!name[0] || (s->opt.health && strcmp(name, s->opt.health) == 0))
		well = well && !s->draining; /* no new jobs */
	else if (strcmp(name, "reduction.v1.Control") != 0)
		return 0;
	return well ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
		    : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
}

/* Calls that come meanwhile get the same status, so it is made once. */
static void collect(struct service *s)
{
	if (s->collecting)
		return;
	s->collecting = true;
	s->opt.collect(s->opt.ctx);
}

void service_sample(struct service *s)
{
	s->sampling = true;
	collect(s);
}

static void begin_status(struct service_call *c, const ProtobufCMessage *request)
{
	const Reduction__V1__StatusRequest *m = (const Reduction__V1__StatusRequest *)request;
	struct service *s = c->service;

	if (!take_name(c, m->job)) {
		refuse(c, RPC_CODE_INVALID_ARGUMENT, "the name of the job is too long");
		return;
	}
	c->without_ranks = m->without_ranks;
	c->history = m->history;
	collect(s);
}

static void begin_drain(struct service_call *c, const ProtobufCMessage *request)
{
	const Reduction__V1__DrainRequest *m = (const Reduction__V1__DrainRequest *)request;
	struct service_drained d = {0};

	c->service->opt.drain(c->service->opt.ctx, m->timeout_ms, m->because[0] ? m->because : NULL, &d);
	answer(c, service_pack_drained(d.jobs, d.left_ms, d.already));
}

static void begin_reload(struct service_call *c, const ProtobufCMessage *request)
{
	char result[SERVICE_RESULT] = "";

	(void)request;
	if (c->service->opt.reload(c->service->opt.ctx, result, &c->why))
		c->code = RPC_CODE_FAILED_PRECONDITION;
	else
		answer(c, service_pack_reloaded(result));
}

static void begin_events(struct service_call *c, const ProtobufCMessage *request)
{
	const Reduction__V1__EventsRequest *m = (const Reduction__V1__EventsRequest *)request;
	const struct events *events = m->ended_jobs ? c->service->opt.jobs : c->service->opt.events;

	c->events = events;
	if (!take_name(c, m->job)) {
		refuse(c, RPC_CODE_INVALID_ARGUMENT, "the name of the job is too long");
		return;
	}
	c->next_event = m->from || m->past_only ? m->from : events->next;
	c->until = m->past_only ? events->next : UINT64_MAX;
}

/* Takes the ranges of a request. Returns false if it asks for too much. */
static bool take_ranges(struct trace_request *ret, const Reduction__V1__TraceRequest *m)
{
	if (m->n_ranges == 0 || m->n_ranges > TRACE_RANGES)
		return false;
	for (size_t i = 0; i < m->n_ranges; i++) {
		const Reduction__V1__TraceRange *r = m->ranges[i];

		if (strlen(r->job) >= sizeof ret->ranges[i].job || r->from > FRAME_SEQ_MAX)
			return false;
		strcpy(ret->ranges[i].job, r->job);
		ret->ranges[i].generation = r->generation;
		ret->ranges[i].from = r->from;
	}
	ret->ranges_n = (unsigned)m->n_ranges;
	ret->operations = m->operations;
	ret->records = m->records ? m->records : TRACE_RECORDS;
	ret->limit_ms = m->limit_ms ? m->limit_ms : TRACE_LIMIT_DEFAULT_MS;
	return m->operations <= TRACE_OPERATIONS && ret->records <= TRACE_RECORDS && ret->limit_ms <= TRACE_LIMIT_MS;
}

static void begin_trace(struct service_call *c, const ProtobufCMessage *request)
{
	const Reduction__V1__TraceRequest *m = (const Reduction__V1__TraceRequest *)request;
	struct trace_request r = {.ranges_n = 0};
	struct service *s = c->service;

	if (m->operations == 0) {
		answer(c, service_pack_trace(NULL, s->opt.clock_us(s->opt.ctx), s->opt.worker));
	} else if (!take_ranges(&r, m)) {
		refuse(
		    c, RPC_CODE_INVALID_ARGUMENT,
		    "found a request out of bounds, expected 1 to 16 ranges, at most 10000 operations, 65536 records "
		    "and 60000 ms");
	} else if (s->tracing) {
		refuse(c, RPC_CODE_RESOURCE_EXHAUSTED, "another trace is running; try again later");
	} else if (s->opt.trace(s->opt.ctx, &r, &c->why)) {
		c->code = RPC_CODE_RESOURCE_EXHAUSTED;
	} else {
		s->tracing = true;
		s->tracer = c;
	}
}

static void refuse_unknown(struct service_call *c)
{
	const char *health = c->service->opt.health;

	c->code = RPC_CODE_NOT_FOUND;
	rs_fail(&c->why, RS_EREFUSED,
		"there is no service of that name, expected an empty one%s%s or reduction.v1.Control",
		health ? ", " : "", health ? health : "");
}

static void begin_health(struct service_call *c, const ProtobufCMessage *request)
{
	const Grpc__Health__V1__HealthCheckRequest *m = (const Grpc__Health__V1__HealthCheckRequest *)request;

	if (!take_name(c, m->service))
		strcpy(c->name, "?"); /* like every other unknown name */
	if (c->method == SERVICE_WATCH)
		return;
	if (health(c->service, c->name))
		answer(c, service_pack_health(health(c->service, c->name)));
	else
		refuse_unknown(c);
}

static const struct {
	const ProtobufCMessageDescriptor *request;
	void (*begin)(struct service_call *c, const ProtobufCMessage *request);
} begins[SERVICE_METHODS] = {
    [SERVICE_STATUS] = {&reduction__v1__status_request__descriptor, begin_status},
    [SERVICE_DRAIN] = {&reduction__v1__drain_request__descriptor, begin_drain},
    [SERVICE_RELOAD] = {&reduction__v1__reload_request__descriptor, begin_reload},
    [SERVICE_EVENTS] = {&reduction__v1__events_request__descriptor, begin_events},
    [SERVICE_TRACE] = {&reduction__v1__trace_request__descriptor, begin_trace},
    [SERVICE_CHECK] = {&grpc__health__v1__health_check_request__descriptor, begin_health},
    [SERVICE_WATCH] = {&grpc__health__v1__health_check_request__descriptor, begin_health},
};

static unsigned *places(struct service *s, enum service_method method)
{
	return service_methods[method].right == RIGHT_NONE ? &s->watches_n : &s->controls_n;
}

static void leave_place(struct service_call *c)
{
	if (c->placed)
		--*places(c->service, c->method);
	c->placed = false;
}

/* Ends the oldest watch to make room. Watches require no right, so otherwise any client
 * could block health probes forever.
 */
static void end_oldest_watch(struct service *s)
{
	struct service_call *oldest = NULL;

	for (struct service_call *c = LIST_FIRST(&s->calls); c; c = LIST_NEXT(c, link))
		if (c->placed && c->method == SERVICE_WATCH)
			oldest = c;
	leave_place(oldest);
	refuse(oldest, RPC_CODE_RESOURCE_EXHAUSTED,
	       "the limit of health watches (64) is reached: a newer call replaces this one");
	s->opt.wake(s->opt.wake_ctx);
}

static void take_place(struct service_call *c)
{
	struct service *s = c->service;

	if (c->method == SERVICE_CHECK)
		return;
	if (c->method == SERVICE_WATCH && s->watches_n == SERVICE_WATCHES_MAX)
		end_oldest_watch(s);
	c->placed = true;
	++*places(s, c->method);
}

/* Checks the rights and limits of a call, before its request is parsed. */
static void admit(struct service_call *c, const struct service_peer *peer, size_t len)
{
	struct service *s = c->service;
	const struct service_method_info *info = &service_methods[c->method];

	c->code = authorize(s, info->right, peer, &c->why);
	if (c->code) {
		s->opt.denied(s->opt.ctx, peer, info->name, c->why.msg);
		return;
	}
	if (info->right != RIGHT_NONE)
		s->opt.granted(s->opt.ctx, peer);
	if (s->stopping)
		refuse_stopped(c);
	else if (info->right != RIGHT_NONE && s->controls_n == SERVICE_CALLS_MAX)
		refuse(c, RPC_CODE_RESOURCE_EXHAUSTED, "the limit of calls at the same time is reached");
	else if (len > SERVICE_REQUEST_MAX)
		refuse(c, RPC_CODE_INVALID_ARGUMENT, "the request is longer than 4096 bytes");
	else
		take_place(c);
}

struct service_call *service_begin(struct service *s, enum service_method method, const struct service_peer *peer,
				   const void *request, size_t len)
{
	struct service_call *c = calloc(1, sizeof *c);
	ProtobufCMessage *m;

	if (!c)
		return NULL;
	c->service = s;
	c->method = method;
	LIST_INSERT_HEAD(&s->calls, c, link);
	admit(c, peer, len);
	if (c->code)
		return c;
	m = protobuf_c_message_unpack(begins[method].request, NULL, len, request);
	if (m)
		begins[method].begin(c, m);
	else
		refuse(c, RPC_CODE_INVALID_ARGUMENT, "the request is not a message of the type of this method");
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
	return c;
}

void service_call_free(struct service_call *c)
{
	if (!c)
		return;
	LIST_REMOVE(c, link);
	leave_place(c);
	if (c->service->tracer == c) {
		c->service->tracer = NULL;
		c->service->opt.trace_end(c->service->opt.ctx);
	}
	trace_free(c->traces);
	free(c->answer.at);
	free(c);
}

static enum service_step end(const struct service_call *c, struct service_out *ret)
{
	*ret = (struct service_out){.code = c->code, .why = c->code ? c->why.msg : ""};
	return SERVICE_END;
}

/* Returns the step for a message. Without memory the call ends. */
static enum service_step send_out(struct service_call *c, struct service_bytes bytes, struct service_out *ret)
{
	if (!bytes.at) {
		refuse_memory(c);
		return end(c, ret);
	}
	*ret = (struct service_out){.message = bytes.at, .len = bytes.len};
	return SERVICE_SEND;
}

static enum service_step next_event(struct service_call *c, struct service_out *ret)
{
	const struct events *events = c->events;

	if (c->next_event < events_oldest(events))
		c->next_event = events_oldest(events);
	while (c->next_event < events->next && c->next_event < c->until) {
		const struct event *ev = events_get(events, c->next_event++);

		if (!c->name[0] || event_names_job(ev, c->name))
			return send_out(c, service_pack_event(ev), ret);
	}
	return c->next_event >= c->until || c->service->stopping ? end(c, ret) : SERVICE_WAIT;
}

/* Packs one trace at a time, as the client takes them. */
static enum service_step next_trace(struct service_call *c, struct service_out *ret)
{
	struct service *s = c->service;
	struct trace *t = c->traces;
	struct service_bytes bytes;

	if (!t)
		return end(c, ret);
	c->traces = t->next;
	t->next = NULL;
	bytes = service_pack_trace(t, s->opt.clock_us(s->opt.ctx), s->opt.worker);
	trace_free(t);
	return send_out(c, bytes, ret);
}

static enum service_step next_health(struct service_call *c, struct service_out *ret)
{
	int now = health(c->service, c->name);

	if (!now)
		now = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
	if (now != c->last_health) {
		c->last_health = now;
		return send_out(c, service_pack_health(now), ret);
	}
	if (!c->service->stopping)
		return SERVICE_WAIT;
	refuse_stopped(c);
	return end(c, ret);
}

bool service_cut_off(const struct service_call *c, struct service_out *ret)
{
	if (!c->code)
		return false;
	end(c, ret);
	return true;
}

enum service_step service_next(struct service_call *c, struct service_out *ret)
{
	struct service_bytes bytes = c->answer;

	if (c->code)
		return end(c, ret);
	if (bytes.at) {
		c->answer.at = NULL;
		return send_out(c, bytes, ret);
	}
	if (c->answered)
		return end(c, ret);
	if (c->method == SERVICE_TRACE && c->service->tracer != c)
		return next_trace(c, ret);
	if (c->method == SERVICE_EVENTS)
		return next_event(c, ret);
	if (c->method == SERVICE_WATCH)
		return next_health(c, ret);
	if (!c->service->stopping)
		return SERVICE_WAIT;
	refuse_stopped(c);
	return end(c, ret);
}

void service_status(struct service *s, struct status_reply *status)
{
	s->collecting = false;
	if (s->sampling && status)
		history_add(&s->history, &status->m);
	s->sampling = false;
	for (struct service_call *c = LIST_FIRST(&s->calls); c; c = LIST_NEXT(c, link)) {
		if (c->method != SERVICE_STATUS || c->code || c->answered)
			continue;
		if (status)
			status->m.n_samples = 0;
		if (status && c->history)
			history_put(&s->history, &status->m);
		answer(c, status ? status_reply_pack(status, c->name, c->without_ranks) : (struct service_bytes){0});
	}
	s->opt.wake(s->opt.wake_ctx);
}

void service_traced(struct service *s, struct trace *first)
{
	struct service_call *c = s->tracer;

	s->tracing = false;
	s->tracer = NULL;
	if (!c) {
		trace_free(first);
		return;
	}
	c->traces = first;
	s->opt.wake(s->opt.wake_ctx);
}

void service_event_added(struct service *s)
{
	if (!LIST_EMPTY(&s->calls))
		s->opt.wake(s->opt.wake_ctx);
}

void service_draining(struct service *s)
{
	s->draining = true;
	s->opt.wake(s->opt.wake_ctx);
}

void service_stop(struct service *s)
{
	s->stopping = true;
	s->opt.wake(s->opt.wake_ctx);
}
