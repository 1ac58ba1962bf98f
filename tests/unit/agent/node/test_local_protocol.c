/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/protocol.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Another implementation needs these sizes: they are written out here again. */
static const struct {
	unsigned type;
	const char *name;
	size_t bytes;
	enum { CLIENT = 1, AGENT = 2, BOTH = CLIENT | AGENT } from;
} types[] = {
    {LOCAL_HELLO, "HELLO", 496, CLIENT},    {LOCAL_WELCOME, "WELCOME", 48, AGENT},
    {LOCAL_REFUSED, "REFUSED", 528, AGENT}, {LOCAL_READY, "READY", 16, AGENT},
    {LOCAL_ALLOC, "ALLOC", 16, CLIENT},     {LOCAL_ALLOCED, "ALLOCED", 536, AGENT},
    {LOCAL_FREE, "FREE", 16, CLIENT},       {LOCAL_SUBMIT, "SUBMIT", 152, CLIENT},
    {LOCAL_DONE, "DONE", 536, AGENT},       {LOCAL_ABORT, "ABORT", 528, BOTH},
    {LOCAL_STATS, "STATS", 8, CLIENT},      {LOCAL_COUNTERS, "COUNTERS", 24, AGENT},
    {LOCAL_GOODBYE, "GOODBYE", 8, CLIENT},  {LOCAL_FILLED, "FILLED", 24, CLIENT},
    {LOCAL_LANDED, "LANDED", 8, AGENT},     {LOCAL_PING, "PING", 8, AGENT},
    {LOCAL_PONG, "PONG", 8, CLIENT},
};

START_TEST(each_type_is_accepted_from_the_sides_that_send_it)
{
	bool from_client = types[_i].from & CLIENT;
	union local_message m;
	struct rs_err e;

	local_init(&m, types[_i].type);
	ck_assert_str_eq(local_type_name(types[_i].type), types[_i].name);
	ck_assert_uint_eq(m.head.bytes, types[_i].bytes);
	for (int client = 0; client < 2; client++) {
		if (types[_i].from & (client ? CLIENT : AGENT)) {
			ck_assert_int_eq(local_check(&m, m.head.bytes, client, &e), 0);
		} else {
			ck_assert_int_eq(local_check(&m, m.head.bytes, client, &e), RS_EPROTO);
			ck_assert_ptr_nonnull(strstr(e.msg, "only the other side"));
		}
	}
	for (size_t n = 0; n < sizeof m; n++)
		if (n != types[_i].bytes)
			ck_assert_int_eq(local_check(&m, n, from_client, &e), RS_EPROTO);
	m.head.bytes++;
	ck_assert_int_eq(local_check(&m, types[_i].bytes, from_client, &e), RS_EPROTO);
}
END_TEST

START_TEST(other_versions_and_types_are_refused)
{
	union local_message m;
	struct rs_err e;

	local_init(&m, LOCAL_STATS);
	m.head.version = LOCAL_VERSION + 1;
	ck_assert_int_eq(local_check(&m, m.head.bytes, true, &e), RS_EPROTO);
	ck_assert_str_eq(e.msg, "version 10 of the local protocol, expected version 9");
	for (unsigned type = 0; type < 70000; type += type < 20 ? 1 : 777) {
		bool known = type >= 1 && type < LOCAL_TYPE_NR;

		local_init(&m, LOCAL_STATS);
		m.head.type = (uint16_t)type;
		if (!known && type < 65536)
			ck_assert_int_eq(local_check(&m, m.head.bytes, true, &e), RS_EPROTO);
		ck_assert_int_eq(strcmp(local_type_name(type), "type?") != 0, known);
	}
}
END_TEST

START_TEST(strings_are_terminated)
{
	union local_message m;
	struct rs_err e;

	local_init(&m, LOCAL_HELLO);
	memset(m.hello.job, 'x', sizeof m.hello.job);
	ck_assert_int_eq(local_check(&m, m.head.bytes, true, &e), 0);
	ck_assert_uint_eq(strlen(m.hello.job), sizeof m.hello.job - 1);
	memset(m.hello.run, 'x', sizeof m.hello.run);
	ck_assert_int_eq(local_check(&m, m.head.bytes, true, &e), 0);
	ck_assert_uint_eq(strlen(m.hello.run), sizeof m.hello.run - 1);
	local_init(&m, LOCAL_ABORT);
	memset(m.failure.message, 'x', sizeof m.failure.message);
	ck_assert_int_eq(local_check(&m, m.head.bytes, false, &e), 0);
	ck_assert_uint_eq(strlen(m.failure.message), sizeof m.failure.message - 1);
}
END_TEST

START_TEST(addresses)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
	struct sockaddr_un a;

	ck_assert_uint_eq(local_address(&a, "/run/x.sock"), sizeof a);
	ck_assert_int_eq(a.sun_family, AF_UNIX);
	ck_assert_str_eq(a.sun_path, "/run/x.sock");
	/* an abstract name has no terminator: it is as long as its address says */
	ck_assert_uint_eq(local_address(&a, "@x/y"), offsetof(struct sockaddr_un, sun_path) + 4);
	ck_assert_mem_eq(a.sun_path, "\0x/y", 4);
	memset(path, 'x', sizeof path);
	path[sizeof path - 1] = 0;
	ck_assert_uint_eq(local_address(&a, path), 0);
	path[sizeof path - 2] = 0;
	ck_assert_uint_eq(local_address(&a, path), sizeof a);
	ck_assert_str_eq(a.sun_path, path);
}
END_TEST

START_TEST(text_is_cut)
{
	char out[LOCAL_TEXT], in[2 * LOCAL_TEXT];

	memset(in, 'x', sizeof in);
	in[sizeof in - 1] = 0;
	local_put_text(out, in);
	ck_assert_uint_eq(strlen(out), LOCAL_TEXT - 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("local_protocol");
	TCase *t = tcase_create("local_protocol");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, each_type_is_accepted_from_the_sides_that_send_it, 0, sizeof types / sizeof types[0]);
	tcase_add_test(t, other_versions_and_types_are_refused);
	tcase_add_test(t, strings_are_terminated);
	tcase_add_test(t, addresses);
	tcase_add_test(t, text_is_cut);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
