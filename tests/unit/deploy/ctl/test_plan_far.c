/* SPDX-License-Identifier: Apache-2.0 */
/* What the planner says of links with a long round trip. */
#include "deploy/ctl/plan/plan.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MIB     (1024.0 * 1024)
#define TWO(of) "reducers: [{id: a, address: a" of "}, {id: b, address: b" of "}]\n"

static const struct plan_sockets defaults = {.rmem = {4096, 131072, 6 << 20}, .wmem = {4096, 16384, 4 << 20}};

/* 125 MB in 1 s over links of 1 Gbit/s; chunks of 64 KiB. */
#define PLAN "plan: {workers: 2, bytes: 125M, bandwidth: 1gbit}\nsharding: {chunk_bytes: 64KiB}\n"

/* A configuration, and what its plan has with Linux's socket buffers. Times in ms. */
static const struct {
	const char *what, *text;
	double rtt, time, product, product_each, socket_time;
	unsigned connections, window, lanes;
	uint64_t retained, buffer;
} rows[] = {
    {"no round trip is given", PLAN TWO(""), 0, 0, 0, 0, 0, 2, 32, 0, 0, 1 << 20},
    {"a short one", PLAN TWO(", rtt: 9ms"), 0, 0, 0, 0, 0, 2, 32, 0, 0, 1 << 20},
    /* 4 x 1.25 MB on 2 connections are 39 chunks; 2 priorities of 2 x 39 + 1 results of
     * 64 KiB and scales */
    {"10 ms", PLAN TWO(", rtt: 10ms"), 10, 1010, 1.25e6, 625e3, 0, 2, 39, 0, 2 * 79 * 66560, 3 << 20},
    {"100 ms, sockets too small", PLAN TWO(", rtt: 100ms"), 100, 1100, 12.5e6, 6.25e6, 6.25e6 / (2 * MIB) * 1000 + 100,
     2, 382, 3, 2 * 765 * 66560, 24 << 20},
    {"100 ms, several lanes", PLAN TWO(", rtt: 100ms, lanes: 3"), 100, 1100, 12.5e6, 12.5e6 / 6, 0, 6, 128, 0,
     2 * 769 * 66560, 8 << 20},
    {"no results are retained", PLAN "job: {failover: fail}\n" TWO(", rtt: 100ms, lanes: 4"), 100, 1100, 12.5e6,
     12.5e6 / 8, 0, 8, 96, 0, 0, 6 << 20},
    /* the largest window of chunks of 1 KiB */
    {"the windows limit",
     "plan: {workers: 2, bytes: 125M, bandwidth: 1gbit}\nsharding: {chunk_bytes: 1KiB}\n" TWO(", rtt: 100ms"), 100,
     6.25e6 / MIB * 1000 + 100, 12.5e6, 6.25e6, 6.25e6 / MIB * 1000 + 100, 2, 1024, 3, 2 * 2049 * 1088, 24 << 20},
    /* half of the bytes go over the long link */
    {"one of two links is long", PLAN "reducers: [{id: a, address: a, rtt: 100ms}, {id: b, address: b}]\n", 100, 1100,
     6.25e6, 6.25e6, 6.25e6 / (2 * MIB) * 1000 + 100, 2, 382, 3, 2 * 765 * 66560, 24 << 20},
};

static void make(struct plan *p, struct rs_config *cfg, const char *text)
{
	struct rs_err e = {0};

	ck_assert_msg(rs_config_parse(cfg, "f", text, strlen(text), &e) == RS_OK, "%s", e.msg);
	ck_assert_msg(plan_make(p, cfg, &e) == RS_OK, "%s", e.msg);
	plan_far_sockets(p, cfg, &defaults);
}

START_TEST(what_long_links_need)
{
	const struct plan_far *far;
	struct rs_config cfg;
	struct plan p;

	make(&p, &cfg, rows[_i].text);
	far = &p.far;
	ck_assert_msg(far->window == rows[_i].window, "%s: %u", rows[_i].what, far->window);
	ck_assert_uint_eq(far->connections, rows[_i].connections);
	ck_assert_double_eq_tol(1000 * far->rtt, rows[_i].rtt, 1e-6);
	ck_assert_double_eq_tol(1000 * far->time, rows[_i].time, 1e-3);
	ck_assert_double_eq_tol(far->product, rows[_i].product, 1);
	ck_assert_double_eq_tol(far->product_each, rows[_i].product_each, 1);
	ck_assert_double_eq_tol(1000 * far->socket_time, rows[_i].socket_time, 1e-3);
	ck_assert_uint_eq(far->lanes, rows[_i].lanes);
	ck_assert_uint_eq(far->retained, rows[_i].retained);
	ck_assert_uint_eq(plan_far_buffer(&p), rows[_i].buffer);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

static char *printed(const struct plan *p, const struct rs_config *cfg, bool json)
{
	size_t size;
	char *text;
	FILE *out = open_memstream(&text, &size);

	ck_assert(out);
	if (json)
		plan_print_far_json(p, out);
	else
		plan_print_far(p, cfg, "# ", out);
	fclose(out);
	return text;
}

/* Rows of the table above, and a part of what is printed. */
static const struct {
	unsigned row;
	bool json;
	const char *says;
} texts[] = {
    {0, true, "\"long_links\":null,"},
    {2, false, "# long links, round trip 10 ms: this all-reduce takes 1.01 s, a small one at least 10 ms\n"},
    {2, false, "socket buffers with Linux's defaults hold 2 MiB"},
    {2, false, "which is enough\n"},
    {2, true, "\"sockets_suffice\":true,\"socket_time_s\":null,\"lanes\":null,"},
    {3, false, "so this all-reduce takes 3.08 s; set `lanes: 3` for each reducer"},
    {3, false, "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 25165824\" net.ipv4.tcp_wmem=\"4096 16384 25165824\"\n"},
    {3, true, "\"socket_bytes\":2097152,\"sockets_suffice\":false,\"socket_time_s\":3.08"},
    {3, true, "\"lanes\":3,\"buffer_bytes\":25165824},"},
    {6, false, "that limits the speed: set a larger sharding.chunk_bytes, or more lanes\n"},
};

START_TEST(what_is_printed)
{
	struct rs_config cfg;
	struct plan p;
	char *text;

	make(&p, &cfg, rows[texts[_i].row].text);
	text = printed(&p, &cfg, texts[_i].json);
	ck_assert_msg(strstr(text, texts[_i].says), "%s", text);
	free(text);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

/* A window needs memory in reducers too. */
START_TEST(reducers_need_memory_for_windows)
{
	uint64_t memory[2];

	for (unsigned i = 0; i < 2; i++) {
		struct rs_config cfg;
		struct plan p;
		char *text;

		make(&p, &cfg,
		     i ? PLAN "server: {memory: 64MiB}\n" TWO(", rtt: 100ms")
		       : PLAN "server: {memory: 64MiB}\n" TWO(""));
		memory[i] = p.needs.memory;
		text = printed(&p, &cfg, false);
		ck_assert((strstr(text, "server.memory is too little") != NULL) == (i > 0));
		free(text);
		plan_close(&p);
		rs_config_close(&cfg);
	}
	ck_assert_double_eq_tol((double)memory[1] / (double)memory[0], 382.0 / 32, 0.5);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan_far");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, what_long_links_need, 0, sizeof rows / sizeof rows[0]);
	tcase_add_loop_test(tc, what_is_printed, 0, sizeof texts / sizeof texts[0]);
	tcase_add_test(tc, reducers_need_memory_for_windows);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
