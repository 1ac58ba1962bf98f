/* SPDX-License-Identifier: Apache-2.0 */
/* The control and health services: clients call with any headers and requests, read or do
 * not read, while events happen, statuses are made and the reducer drains and stops. No
 * call gets more than its rights, every refusal has a message, every message has the
 * right type, and calls and memory stay within their limits. */
#include "tests/fuzz/fuzz.h"

#include "common/host/service/service.h"
#include "common/utf8.h"
#include "proto/health.pb-c.h"
#include "proto/reduction.pb-c.h"
#include "server/jobs/status.h"

#include <string.h>
#include <strings.h>

#define READ  "read-read-read-read"
#define ADMIN "admin-admin-admin"

enum {
	STEPS = 400,
	CALLS = 160, /* more than there are places */
	JOBS = 3,
	RANKS = 4,
	LANES = 2,
	HEAP = 4 << 20,
};

struct world {
	struct fuzz_input in;
	struct service *s;
	struct events events;
	struct service_call *calls[CALLS];
	enum service_method methods[CALLS];
	bool has_read, has_admin; /* tokens */
	bool may_read, may_steer; /* rights of the current caller */
	bool collecting, tracing, draining, stopped;
	struct trace_request asked;
	unsigned did, denied, granted;
};

static void on_drain(void *ctx, uint32_t timeout_ms, const char *because, struct service_drained *ret)
{
	struct world *w = ctx;

	must(w->may_steer && !w->stopped && (!because || because[0]));
	w->did++;
	*ret = (struct service_drained){.jobs = 3, .left_ms = timeout_ms, .already = w->draining};
	w->draining = true;
	service_draining(w->s);
}

static int on_reload(void *ctx, char result[SERVICE_RESULT], struct rs_err *e)
{
	struct world *w = ctx;

	must(w->may_steer && !w->stopped);
	w->did++;
	if (fuzz_u8(&w->in) & 1)
		return rs_fail(e, RS_ECONFIG, "it is wrong");
	fuzz_text(&w->in, result, SERVICE_RESULT);
	rs_utf8_clean(result);
	return RS_OK;
}

static void on_collect(void *ctx)
{
	struct world *w = ctx;

	must(w->may_read && !w->stopped && !w->collecting);
	w->did++;
	w->collecting = true;
}

static int on_trace(void *ctx, const struct trace_request *r, struct rs_err *e)
{
	struct world *w = ctx;

	must(w->may_read && !w->stopped && !w->tracing);
	must(r->ranges_n && r->ranges_n <= TRACE_RANGES && r->operations <= TRACE_OPERATIONS);
	must(r->records <= TRACE_RECORDS && r->limit_ms <= TRACE_LIMIT_MS);
	w->did++;
	if (fuzz_u8(&w->in) & 1)
		return rs_fail(e, RS_ENOMEM, "there is no memory");
	w->asked = *r;
	w->tracing = true;
	return RS_OK;
}

static void on_trace_end(void *ctx)
{
	must(((struct world *)ctx)->tracing);
}

static uint64_t on_clock_us(void *ctx)
{
	return fuzz_number(&((struct world *)ctx)->in);
}

/* Processes with an even length of their address are of this user. */
static bool on_own(void *ctx, const struct service_peer *peer)
{
	(void)ctx;
	return strlen(peer->address) % 2 == 0;
}

static void on_granted(void *ctx, const struct service_peer *peer)
{
	(void)peer;
	((struct world *)ctx)->granted++;
}

static void on_denied(void *ctx, const struct service_peer *peer, const char *method, const char *why)
{
	(void)peer;
	must(method[0] && why[0] && !strstr(why, READ) && !strstr(why, ADMIN));
	((struct world *)ctx)->denied++;
}

static void on_wake(void *ctx)
{
	(void)ctx;
}

static bool shows(const char *authorization, const char *token)
{
	return authorization && strncasecmp(authorization, "Bearer ", 7) == 0 && strcmp(authorization + 7, token) == 0;
}

/* Chooses the caller and its rights. */
static void make_peer(struct world *w, struct service_peer *peer, char address[80], char header[200])
{
	static const char *const addresses[] = {"127.0.0.1:1", "[::1]:2", "10.0.0.1:3", "?"};
	static const char *const headers[] = {NULL, "Bearer " READ, "Bearer " ADMIN, "bearer nonsense"};
	uint8_t who = fuzz_u8(&w->in);
	bool local;

	*peer = (struct service_peer){.address = addresses[who & 3], .authorization = headers[who >> 2 & 3]};
	if (who & 16) {
		fuzz_text(&w->in, address, 80);
		peer->address = address;
	}
	if (who & 32) {
		memcpy(header, "Bearer ", 7);
		fuzz_text(&w->in, who & 64 ? header : header + 7, 190);
		peer->authorization = header;
	}
	local = service_is_local(peer->address);
	must(who & 16 || local == !(who & 2));
	w->may_steer = w->has_admin ? shows(peer->authorization, ADMIN) : local && on_own(w, peer);
	w->may_read = w->has_read ? shows(peer->authorization, READ) : local;
	w->may_read |= w->has_admin && shows(peer->authorization, ADMIN);
	w->may_steer |= w->has_admin && shows(peer->authorization, ADMIN);
}

/* A request of the method's type, or any bytes. */
static size_t make_request(struct world *w, enum service_method method, uint8_t buf[2 * SERVICE_REQUEST_MAX])
{
	Reduction__V1__StatusRequest status = REDUCTION__V1__STATUS_REQUEST__INIT;
	Reduction__V1__EventsRequest events = REDUCTION__V1__EVENTS_REQUEST__INIT;
	Reduction__V1__DrainRequest drain = REDUCTION__V1__DRAIN_REQUEST__INIT;
	Reduction__V1__TraceRequest trace = REDUCTION__V1__TRACE_REQUEST__INIT;
	Reduction__V1__TraceRange range = REDUCTION__V1__TRACE_RANGE__INIT, *ranges[TRACE_RANGES + 1];
	Grpc__Health__V1__HealthCheckRequest health = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
	char text[2 * CONTROL_JOB];
	uint8_t how = fuzz_u8(&w->in);
	const uint8_t *raw;
	size_t len;

	if (how & 1) {
		raw = fuzz_bytes(&w->in, SERVICE_REQUEST_MAX, &len);
		memcpy(buf, raw, len);
		return len;
	}
	if (how & 2) /* only the length matters */
		return fuzz_number(&w->in) % (2 * SERVICE_REQUEST_MAX);
	fuzz_text(&w->in, text, sizeof text);
	status.job = events.job = health.service = range.job = text;
	for (unsigned i = 0; i < TRACE_RANGES + 1; i++)
		ranges[i] = &range;
	trace.n_ranges = how >> 3 > TRACE_RANGES ? TRACE_RANGES + 1 : how >> 3;
	trace.ranges = ranges;
	if (method == SERVICE_TRACE) {
		trace.operations = (uint32_t)fuzz_number(&w->in);
		range.from = fuzz_number(&w->in);
	}
	status.without_ranks = how & 4;
	events.past_only = how & 4;
	if (method == SERVICE_EVENTS)
		events.from = fuzz_number(&w->in);
	if (method == SERVICE_DRAIN)
		drain.timeout_ms = (uint32_t)fuzz_number(&w->in);
	return protobuf_c_message_pack(method == SERVICE_STATUS   ? &status.base
				       : method == SERVICE_EVENTS ? &events.base
				       : method == SERVICE_DRAIN  ? &drain.base
				       : method == SERVICE_TRACE  ? &trace.base
								  : &health.base,
				       buf);
}

static void begin(struct world *w)
{
	static uint8_t request[2 * SERVICE_REQUEST_MAX];
	enum service_method method = fuzz_below(&w->in, SERVICE_METHODS);
	enum service_right right = service_methods[method].right;
	unsigned did = w->did, denied = w->denied, granted = w->granted, i = 0;
	char address[80], header[200];
	struct service_peer peer;
	struct service_out out;
	uint8_t *exact;
	size_t len;
	bool may;

	while (i < CALLS && w->calls[i])
		i++;
	if (i == CALLS)
		return;
	make_peer(w, &peer, address, header);
	may = right == RIGHT_NONE || (right == RIGHT_READ ? w->may_read : w->may_steer);
	memset(request, 0, sizeof request);
	len = make_request(w, method, request);
	exact = malloc(len + 1); /* the sanitizer finds reads past the end */
	must(exact);
	memcpy(exact, request, len);
	w->calls[i] = service_begin(w->s, method, &peer, exact, len);
	free(exact);
	must(w->calls[i]);
	w->methods[i] = method;
	must(w->denied == denied + !may && w->granted == granted + (may && right != RIGHT_NONE));
	if (may)
		return;
	must(w->did == did && service_cut_off(w->calls[i], &out));
	must(out.code == RPC_CODE_PERMISSION_DENIED || out.code == RPC_CODE_UNAUTHENTICATED);
}

static void check_text(const char *text)
{
	for (size_t n; *text; text += n) {
		n = rs_utf8_length(text); /* libraries other than protobuf-c refuse invalid UTF-8 */
		must(n > 0);
	}
}

static void check_message(enum service_method method, const struct service_out *out)
{
	static const ProtobufCMessageDescriptor *const types[SERVICE_METHODS] = {
	    [SERVICE_STATUS] = &reduction__v1__status_reply__descriptor,
	    [SERVICE_DRAIN] = &reduction__v1__drain_reply__descriptor,
	    [SERVICE_RELOAD] = &reduction__v1__reload_reply__descriptor,
	    [SERVICE_EVENTS] = &reduction__v1__event__descriptor,
	    [SERVICE_TRACE] = &reduction__v1__trace_reply__descriptor,
	    [SERVICE_CHECK] = &grpc__health__v1__health_check_response__descriptor,
	    [SERVICE_WATCH] = &grpc__health__v1__health_check_response__descriptor,
	};
	ProtobufCMessage *m = protobuf_c_message_unpack(types[method], NULL, out->len, out->message);

	must(m && m->n_unknown_fields == 0);
	if (method == SERVICE_EVENTS) {
		const Reduction__V1__Event *ev = (const Reduction__V1__Event *)m;

		for (size_t i = 0; i < ev->n_fields; i++) {
			check_text(ev->fields[i]->key);
			check_text(ev->fields[i]->value);
		}
	}
	protobuf_c_message_free_unpacked(m, NULL);
	free(out->message);
}

static void go_on(struct world *w, unsigned i)
{
	struct service_out out = {0};
	bool cut;

	if (!w->calls[i])
		return;
	cut = service_cut_off(w->calls[i], &out);
	must(!cut || (out.code && out.why[0]));
	switch (service_next(w->calls[i], &out)) {
	case SERVICE_WAIT:
		must(!cut && !w->stopped);
		break;
	case SERVICE_SEND:
		must(!cut);
		check_message(w->methods[i], &out);
		break;
	case SERVICE_END:
		must((out.code == RPC_CODE_OK) == (out.why[0] == '\0'));
		must(strlen(out.why) < sizeof((struct rs_err *)0)->msg);
		service_call_free(w->calls[i]);
		w->calls[i] = NULL;
	}
}

static void happen(struct world *w)
{
	char keys[4][40], values[4][400];
	struct rs_kv kv[4];
	unsigned n = fuzz_below(&w->in, 5);

	for (unsigned i = 0; i < n; i++) {
		fuzz_text(&w->in, keys[i], sizeof keys[i]);
		fuzz_text(&w->in, values[i], sizeof values[i]);
		kv[i] = rs_kv_s(keys[i], values[i]);
		if (keys[i][0] == 'j')
			kv[i].key = "job";
	}
	for (unsigned again = fuzz_u8(&w->in) == 255 ? 2 * EVENTS_KEPT : 1; again; again--)
		events_add(&w->events, (int64_t)fuzz_number(&w->in), RS_LOG_INFO, "event", kv, n);
	service_event_added(w->s);
}

/* Returns any text, as UTF-8. */
static char *some_text(struct world *w, struct status *st)
{
	char text[CONTROL_LABEL];

	fuzz_text(&w->in, text, sizeof text);
	return status_reply_text(&st->reply, text);
}

static void make_job(struct world *w, struct status *st, unsigned i)
{
	Reduction__V1__JobStatus *job = status_job(st, i, i, RANKS);

	must(job);
	job->state = (Reduction__V1__JobStatus__State)fuzz_below(&w->in, 5);
	job->name = some_text(w, st);
	job->reason = "somebody is lost";
	for (unsigned r = 0; r < RANKS; r++) {
		job->ranks[r]->label = some_text(w, st);
		job->ranks[r]->waited_permil = (uint32_t)fuzz_number(&w->in);
	}
}

/* Makes the status of a lane, of known and unknown jobs. */
static void report(struct world *w, struct status *st, unsigned thread)
{
	struct lane_report_session sessions[RANKS];
	struct lane_report_stripe stripe = {.job = fuzz_below(&w->in, JOBS + 1), .chunks = fuzz_number(&w->in)};
	struct lane_report r = {
	    .thread = thread, .second_ms = (uint32_t)fuzz_number(&w->in), .stripes = &stripe, .sessions = sessions};

	r.stripes_n = fuzz_below(&w->in, 2);
	for (; r.sessions_n < fuzz_below(&w->in, RANKS + 1); r.sessions_n++)
		sessions[r.sessions_n] = (struct lane_report_session){
		    .rank = r.sessions_n,
		    .total = {fuzz_number(&w->in), fuzz_number(&w->in), fuzz_number(&w->in), 0, fuzz_number(&w->in), 0,
			      0, 0, 0, 0},
		    .second = {0, 0, fuzz_number(&w->in), fuzz_number(&w->in), 0, 0, 0, 0, 0, 0},
		    .silent_ms = (uint32_t)fuzz_number(&w->in)};
	stripe.sessions_n = r.sessions_n;
	status_add(st, &r);
}

static void collected(struct world *w)
{
	unsigned jobs = fuzz_below(&w->in, JOBS + 1);
	struct status *st = NULL;

	if (!w->collecting)
		return;
	if (fuzz_u8(&w->in) != 255)
		st = status_new(jobs, LANES);
	for (unsigned i = 0; st && i < jobs; i++)
		make_job(w, st, i);
	for (unsigned i = 0; st && i < LANES; i++)
		report(w, st, i);
	w->collecting = false;
	service_status(w->s, st ? status_finish(st) : NULL);
	status_free(st);
}

/* Ends the trace, with a few records. */
static void traced(struct world *w)
{
	struct trace *t;

	if (!w->tracing)
		return;
	t = trace_new(&w->asked, 8);
	must(t);
	for (unsigned n = fuzz_below(&w->in, 20); n; n--) {
		trace_add_source(t, fuzz_below(&w->in, t->ranges_n), 0, 1, fuzz_number(&w->in));
		trace_put(t, &(struct trace_record){.at_us = fuzz_number(&w->in)});
	}
	w->tracing = false;
	service_traced(w->s, t);
}

static void give_tokens(struct world *w)
{
	uint8_t which = fuzz_u8(&w->in);

	w->has_read = which & 1;
	w->has_admin = which & 2;
	service_tokens(w->s, (struct service_token){(const uint8_t *)READ, w->has_read ? strlen(READ) : 0},
		       (struct service_token){(const uint8_t *)ADMIN, w->has_admin ? strlen(ADMIN) : 0});
}

/* Returns calls that have a place and wait. */
static void count_places(struct world *w)
{
	unsigned watches = 0, others = 0;
	struct service_out out;

	for (unsigned i = 0; i < CALLS; i++) {
		if (!w->calls[i] || service_cut_off(w->calls[i], &out))
			continue;
		watches += w->methods[i] == SERVICE_WATCH;
		others += w->methods[i] != SERVICE_WATCH && w->methods[i] != SERVICE_CHECK;
	}
	must(watches <= SERVICE_WATCHES_MAX && others <= SERVICE_CALLS_MAX);
}

static bool step(struct world *w)
{
	uint8_t what = fuzz_u8(&w->in);
	unsigned i = what >> 4;
	struct fuzz_input at;

	switch (what & 15) {
	case 0:
		return w->in.left > 0;
	case 1:
	case 2:
	case 3:
		begin(w);
		break;
	case 4: /* many calls */
		for (at = w->in, i = 8 * i + 1; i; i--) {
			w->in = at;
			begin(w);
		}
		break;
	case 5:
	case 6:
	case 7:
		go_on(w, fuzz_below(&w->in, CALLS));
		break;
	case 8:
		for (i = 0; i < CALLS; i++)
			go_on(w, i);
		break;
	case 9:
		i = fuzz_below(&w->in, CALLS);
		service_call_free(w->calls[i]);
		w->calls[i] = NULL;
		break;
	case 10:
	case 11:
		happen(w);
		break;
	case 12:
		collected(w);
		break;
	case 13:
		collected(w);
		traced(w);
		break;
	case 14:
		give_tokens(w);
		break;
	default:
		w->stopped |= i == 15;
		if (w->stopped)
			service_stop(w->s);
		else
			service_draining(w->s);
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;
	struct world *w = &world;
	size_t before = fuzz_heap();
	struct service_options opt = {.events = &w->events,
				      .drain = on_drain,
				      .reload = on_reload,
				      .collect = on_collect,
				      .trace = on_trace,
				      .trace_end = on_trace_end,
				      .clock_us = on_clock_us,
				      .own = on_own,
				      .granted = on_granted,
				      .denied = on_denied,
				      .ctx = w,
				      .wake = on_wake,
				      .wake_ctx = w};

	memset(w, 0, sizeof *w);
	w->in = (struct fuzz_input){data, size};
	events_init(&w->events);
	w->s = service_new(&opt);
	must(w->s);
	give_tokens(w);
	for (unsigned i = 0; i < STEPS && step(w); i++)
		count_places(w);
	must(fuzz_heap() < before + HEAP);
	for (unsigned i = 0; i < CALLS; i++)
		service_call_free(w->calls[i]);
	service_free(w->s);
	return 0;
}
