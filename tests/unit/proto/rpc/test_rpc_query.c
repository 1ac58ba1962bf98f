/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with one request in the gRPC module, and how the module is loaded and listens. */
#include "tests/unit/fake_rpc.h"

#include <stdlib.h>
#include <string.h>

START_TEST(a_call_gets_a_response)
{
	struct rpc_query *a = frpc_query("how much?", 9, 0);
	struct rpc_call *c = frpc_call();
	enum rpc_code code = RPC_CODE_OK;
	const uint8_t *bytes;
	char peer[RPC_PEER_MAX];
	struct rs_err e;
	size_t len;

	bytes = frpc.api->call_request(c, &len);
	ck_assert_uint_eq(len, 9);
	ck_assert_mem_eq(bytes, "how much?", 9);
	ck_assert_str_eq(frpc.api->call_header(c, "authorization"), "Bearer secret");
	ck_assert_ptr_null(frpc.api->call_header(c, "cookie"));
	frpc.api->call_peer(c, peer);
	ck_assert_msg(!strncmp(peer, "127.0.0.1:", 10), "%s", peer);
	ck_assert_int_eq(frpc.api->query_next(a, 1, &bytes, &len, &code, &e), RPC_AGAIN);
	frpc.api->call_end(c, RPC_CODE_OK, NULL, "that much", 9);
	ck_assert_int_eq(frpc.api->query_next(a, 0, &bytes, &len, &code, &e), 1);
	ck_assert_uint_eq(len, 9);
	ck_assert_mem_eq(bytes, "that much", 9);
	ck_assert_int_eq(frpc.api->query_next(a, 0, &bytes, &len, &code, &e), 0);
	frpc.api->query_free(a);
}
END_TEST

START_TEST(a_refused_call_has_a_status_and_a_message)
{
	struct rpc_query *a = frpc_query("", 0, 0);
	enum rpc_code code = RPC_CODE_OK;
	const uint8_t *bytes;
	struct rs_err e;
	size_t len;

	frpc.api->call_end(frpc_call(), RPC_CODE_PERMISSION_DENIED, "it is not for you", NULL, 0);
	ck_assert_int_eq(frpc.api->query_next(a, 0, &bytes, &len, &code, &e), RPC_BROKEN);
	ck_assert_int_eq(code, RPC_CODE_PERMISSION_DENIED);
	ck_assert_msg(strstr(e.msg, "it is not for you"), "%s", e.msg);
	frpc.api->query_free(a);
}
END_TEST

/* A stream of events: a slow reader stops the writer, the writer is woken when it may
 * continue, and a disconnect is seen. */
START_TEST(a_response_of_many_messages)
{
	enum { MESSAGES = 200, BYTES = 100000 };
	struct rpc_query *a = frpc_query("events", 6, 0);
	struct rpc_call *c = frpc_call();
	uint8_t *message = malloc(BYTES);
	unsigned sent = 0, got = 0, seen = frpc_wakes();
	enum rpc_code code = RPC_CODE_OK;
	const uint8_t *bytes;
	bool refused = false;
	struct rs_err e;
	size_t len;

	while (got < MESSAGES) {
		while (sent < MESSAGES) {
			memset(message, (int)sent, BYTES);
			if (!frpc.api->call_send(c, message, BYTES))
				break;
			sent++;
		}
		refused |= sent < MESSAGES;
		int rc = frpc.api->query_next(a, 10, &bytes, &len, &code, &e);
		if (rc == RPC_AGAIN)
			continue;
		ck_assert_int_eq(rc, 1);
		ck_assert_uint_eq(len, BYTES);
		ck_assert_uint_eq(bytes[BYTES - 1], (uint8_t)got++);
	}
	ck_assert(refused);
	ck_assert_uint_ne(seen, frpc_wakes()); /* of `it goes on` */
	ck_assert(!frpc.api->call_gone(c));
	frpc.api->query_free(a);
	for (seen = frpc_wakes(); !frpc.api->call_gone(c);)
		seen = frpc_woken_after(seen);
	ck_assert(!frpc.api->call_send(c, "x", 1));
	frpc.api->call_end(c, RPC_CODE_OK, NULL, NULL, 0);
	free(message);
}
END_TEST

/* Sends until nothing more is accepted: the client does not read. */
static void fill(struct rpc_call *c, const uint8_t *message, size_t len)
{
	unsigned seen = frpc_wakes();

	do {
		while (frpc.api->call_send(c, message, len))
			continue;
	} while (frpc_woken_within(&seen, 100));
}

/* A client that does not read its response keeps its place for a while if no other call
 * needs it, but not forever. */
START_TEST(responses_that_are_not_read)
{
	enum { BYTES = 1000000 };
	struct rpc_query *deaf[3 * FRPC_CALLS_MAX], *a;
	uint8_t *message = calloc(1, BYTES);
	enum rpc_code code = RPC_CODE_OK;
	const uint8_t *bytes;
	struct rs_err e;
	size_t len;

	for (unsigned i = 0; i < 3 * FRPC_CALLS_MAX; i++) { /* the last ones end before those that wait */
		deaf[i] = frpc_query("events", 6, 0);
		struct rpc_call *c = frpc_call();

		fill(c, message, BYTES);
		frpc.api->call_end(c, RPC_CODE_OK, NULL, NULL, 0);
	}
	a = frpc_query("?", 1, 0);
	frpc.api->call_end(frpc_call(), RPC_CODE_OK, NULL, "!", 1);
	ck_assert_int_eq(frpc.api->query_next(a, 0, &bytes, &len, &code, &e), 1);
	frpc.api->query_free(a);
	for (unsigned i = 0; i < 3 * FRPC_CALLS_MAX; i++)
		frpc.api->query_free(deaf[i]);
	free(message);
}
END_TEST

START_TEST(a_request_that_is_too_long)
{
	uint8_t *request = calloc(1, RPC_REQUEST_MAX + 1);
	struct rpc_query *a = frpc_query(request, RPC_REQUEST_MAX + 1, 0);
	enum rpc_code code = RPC_CODE_OK;
	const uint8_t *bytes;
	struct rs_err e;
	size_t len;

	ck_assert_int_eq(frpc.api->query_next(a, 0, &bytes, &len, &code, &e), RPC_BROKEN);
	ck_assert_int_eq(code, RPC_CODE_RESOURCE_EXHAUSTED);
	frpc.api->query_free(a);
	free(request);
}
END_TEST

/* gRPC does not start such a call, and would report nothing. */
START_TEST(a_header_that_cannot_be_sent)
{
	struct rpc_query_options opt = {.address = frpc.address,
					.path = "/test.Ask/Ask",
					.request = "",
					.header = "authorization",
					.value = "a\nb"};
	struct rpc_query *a;
	struct rs_err e;

	ck_assert_int_eq(frpc.api->query(&a, frpc.client, &opt, &e), RS_EINVAL);
	ck_assert_msg(strstr(e.msg, "authorization"), "%s", e.msg);
}
END_TEST

START_TEST(a_call_without_a_response_times_out)
{
	struct rpc_query *a = frpc_query("?", 1, 3000); /* enough to reach the server */
	enum rpc_code code = RPC_CODE_OK;
	const uint8_t *bytes;
	struct rs_err e;
	size_t len;

	ck_assert_int_eq(frpc.api->query_next(a, 0, &bytes, &len, &code, &e), RPC_BROKEN);
	ck_assert_int_eq(code, RPC_CODE_DEADLINE_EXCEEDED);
	frpc.api->query_free(a);
	frpc.api->call_end(frpc_call(), RPC_CODE_OK, NULL, NULL, 0);
}
END_TEST

START_TEST(an_address_in_use)
{
	struct rpc_server_options opt = {.address = frpc.address, .threads = 1, .handshake_ms = 100, .detect_ms = 1000};
	struct rpc_server *another;
	struct rs_err e;

	ck_assert_int_eq(frpc.api->server_start(&another, &opt, &e), RS_EIO);
	ck_assert_msg(strstr(e.msg, frpc.address) && strstr(e.msg, "in use"), "%s", e.msg);
}
END_TEST

START_TEST(a_file_that_is_not_the_module)
{
	const struct rpc_api *none = NULL;
	struct rs_err e;

	ck_assert_int_eq(rpc_load_file(&none, "/dev/null", &e), RS_EUNSUPPORTED);
	ck_assert_msg(strstr(e.msg, "/dev/null"), "%s", e.msg);
	ck_assert_ptr_null(none);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rpc_query");
	TCase *tc = tcase_create("rpc_query");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, frpc_setup, frpc_teardown);
	tcase_add_test(tc, a_call_gets_a_response);
	tcase_add_test(tc, a_refused_call_has_a_status_and_a_message);
	tcase_add_test(tc, a_response_of_many_messages);
	tcase_add_test(tc, responses_that_are_not_read);
	tcase_add_test(tc, a_request_that_is_too_long);
	tcase_add_test(tc, a_header_that_cannot_be_sent);
	tcase_add_test(tc, a_call_without_a_response_times_out);
	tcase_add_test(tc, an_address_in_use);
	tcase_add_test(tc, a_file_that_is_not_the_module);
	suite_add_tcase(s, tc);
	return frpc_run(s) ? EXIT_SUCCESS : EXIT_FAILURE;
}
