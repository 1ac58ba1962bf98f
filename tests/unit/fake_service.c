/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_service.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_drain(void *ctx, uint32_t timeout_ms, const char *because, struct service_drained *ret)
{
	struct fake_service *w = ctx;

	*ret = (struct service_drained){.jobs = 3, .left_ms = timeout_ms ? timeout_ms : 30000, .already = w->drains++};
	w->timeout_ms = timeout_ms;
	snprintf(w->because, sizeof w->because, "%s", because ? because : "(none)");
	service_draining(w->s);
}

static int on_reload(void *ctx, char result[SERVICE_RESULT], struct rs_err *e)
{
	struct fake_service *w = ctx;

	w->reloads++;
	if (w->reload_fails)
		return rs_fail(e, RS_ECONFIG, "a.yaml:3: bad");
	snprintf(result, SERVICE_RESULT, "taken over");
	return RS_OK;
}

static void on_collect(void *ctx)
{
	((struct fake_service *)ctx)->collects++;
}

static int on_trace(void *ctx, const struct trace_request *r, struct rs_err *e)
{
	struct fake_service *w = ctx;

	if (w->trace_fails)
		return rs_fail(e, RS_ENOMEM, "no memory");
	w->traces++;
	w->asked = *r;
	return RS_OK;
}

static void on_trace_end(void *ctx)
{
	((struct fake_service *)ctx)->trace_ends++;
}

static uint64_t on_clock_us(void *ctx)
{
	(void)ctx;
	return 4711;
}

static void on_wake(void *ctx)
{
	((struct fake_service *)ctx)->wakes++;
}

static bool on_own(void *ctx, const struct service_peer *peer)
{
	(void)ctx;
	return strcmp(peer->address, FSERVICE_OTHER_USER) != 0;
}

static void on_granted(void *ctx, const struct service_peer *peer)
{
	(void)peer;
	((struct fake_service *)ctx)->grants++;
}

static void on_denied(void *ctx, const struct service_peer *peer, const char *method, const char *why)
{
	struct fake_service *w = ctx;

	w->denials++;
	snprintf(w->denied, sizeof w->denied, "%s %s %s", peer->address, method, why);
}

void fservice_open(struct fake_service *w, bool tokens)
{
	struct service_token read = {(const uint8_t *)FSERVICE_READ_TOKEN, strlen(FSERVICE_READ_TOKEN)};
	struct service_token admin = {(const uint8_t *)FSERVICE_ADMIN_TOKEN, strlen(FSERVICE_ADMIN_TOKEN)};

	memset(w, 0, sizeof *w);
	events_init(&w->events);
	events_init(&w->jobs);
	w->s = service_new(&(struct service_options){.process = "reducer",
						     .section = "security",
						     .health = "reduction.v1.Reducer",
						     .events = &w->events,
						     .jobs = &w->jobs,
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
						     .wake_ctx = w});
	ck_assert_ptr_nonnull(w->s);
	if (tokens)
		service_tokens(w->s, read, admin);
}

const struct service_peer fservice_here = {.address = "127.0.0.1:4711"};

struct service_call *fservice_begin(struct fake_service *w, enum service_method m, const ProtobufCMessage *request)
{
	uint8_t bytes[SERVICE_REQUEST_MAX];
	size_t len = request ? protobuf_c_message_pack(request, bytes) : 0;
	struct service_call *c = service_begin(w->s, m, &fservice_here, bytes, len);

	ck_assert_ptr_nonnull(c);
	return c;
}

void fservice_expect_end(struct service_call *c, enum rpc_code code, const char *says)
{
	struct service_out out;

	ck_assert_int_eq(service_next(c, &out), SERVICE_END);
	ck_assert_msg(out.code == code && strstr(out.why, says), "%d %s", out.code, out.why);
	ck_assert_int_eq(code == RPC_CODE_OK, out.why[0] == '\0');
	service_call_free(c);
}

void *fservice_expect_message(struct service_call *c, const ProtobufCMessageDescriptor *type)
{
	struct service_out out;
	void *m;

	ck_assert_int_eq(service_next(c, &out), SERVICE_SEND);
	m = protobuf_c_message_unpack(type, NULL, out.len, out.message);
	ck_assert_ptr_nonnull(m);
	free(out.message);
	return m;
}

void fservice_expect_wait(struct service_call *c)
{
	struct service_out out;

	ck_assert_int_eq(service_next(c, &out), SERVICE_WAIT);
}
