/* SPDX-License-Identifier: Apache-2.0 */
/* What reductionctl doctor says of relays: which one is slow, and what is only its
 * consequence or its cause. */
#include "deploy/ctl/doctor.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { RELAYS = 3, WINDOW_MS = 2000, FINDINGS = 4 };

/* How long chunks waited for the sums of each relay at home r9 in the window, in ms. */
static const struct {
	const char *what;
	unsigned n;
	uint64_t waited[RELAYS];
	uint32_t min_rtt_us; /* of relay r0 */
	bool is_new;         /* r0 was not there at the first look */
	unsigned score;      /* of r0; 0: it is not found */
} rows[] = {
    {"all alike", 3, {600, 620, 580}, 100, false, 0},
    {"one waits for long", 3, {1900, 100, 60}, 100, false, 950},
    {"more than the window", 3, {2100, 0, 0}, 100, false, 1000},
    {"three times the others", 3, {600, 200, 200}, 100, false, 300},
    {"less than that", 3, {598, 200, 200}, 100, false, 0},
    {"less than a tenth of the time", 3, {199, 0, 0}, 100, false, 0},
    {"nothing to compare with", 1, {1900}, 100, false, 0},
    {"another site", 3, {1900, 100, 60}, 10000, false, 0},
    {"almost another site", 3, {1900, 100, 60}, 9999, false, 950},
    {"it has just come", 3, {1900, 100, 60}, 100, true, 0},
};

START_TEST(a_slow_relay_stands_out)
{
	Reduction__V1__JobStatus jobs[2] = {REDUCTION__V1__JOB_STATUS__INIT, REDUCTION__V1__JOB_STATUS__INIT};
	Reduction__V1__RelayStatus relays[2][RELAYS], *lists[2][RELAYS];
	static char names[RELAYS][8] = {"r0", "r1", "r2"};
	struct findings all = {.n = 0};

	for (unsigned k = 0; k < 2; k++) {
		jobs[k].name = "resnet";
		jobs[k].relays = lists[k];
		for (unsigned i = k ? 0 : rows[_i].is_new; i < rows[_i].n; i++) {
			Reduction__V1__RelayStatus *r = &relays[k][i];

			reduction__v1__relay_status__init(r);
			r->reducer = names[i];
			r->waited_ms = 5000 + (k ? rows[_i].waited[i] : 0);
			r->min_rtt_us = i ? 100 : rows[_i].min_rtt_us;
			lists[k][jobs[k].n_relays++] = r;
		}
	}
	doctor_look_relays(&all, &jobs[0], &jobs[1], "r9", WINDOW_MS);
	ck_assert_msg(all.n == (rows[_i].score > 0), "%s: %u findings", rows[_i].what, all.n);
	if (!all.n)
		return;
	ck_assert_str_eq(all.at[0].id, "relay-slow");
	ck_assert_uint_eq(all.at[0].score, rows[_i].score);
	ck_assert_str_eq(all.at[0].process, "r0");
	ck_assert_str_eq(all.at[0].what, "relay r0 is slow: its group and all others wait for it");
	ck_assert_ptr_nonnull(strstr(all.at[0].evidence, "r9: in "));
	ck_assert_ptr_nonnull(strstr(all.at[0].evidence, " % of the time a chunk waited for the sum of relay r0"));
}
END_TEST

/* Findings as "ID PROCESS SCORE JOB". */
static const struct {
	const char *what;
	const char *found[FINDINGS], *kept[FINDINGS];
} settled[] = {
    {"ranks share the link of a slow relay", {"relay-slow r0 950 a", "rank-late r0 400 a"}, {"relay-slow r0 950 a"}},
    {"a late rank makes its relay late", {"relay-slow r0 900 a", "rank-late r0 600 a"}, {"rank-late r0 600 a"}},
    {"just not", {"relay-slow r0 900 a", "rank-late r0 599 a"}, {"relay-slow r0 900 a"}},
    {"a rank elsewhere", {"relay-slow r0 950 a", "rank-late r1 900 a"}, {"relay-slow r0 950 a", "rank-late r1 900 a"}},
    {"another job", {"relay-slow r0 950 a", "rank-late r0 400 b"}, {"relay-slow r0 950 a", "rank-late r0 400 b"}},
    {"a home waits for it", {"relay-slow r0 950 a", "reducer-slow r2 700 a"}, {"relay-slow r0 950 a"}},
    {"a slow reducer, and no relay",
     {"reducer-slow r2 700 a", "lane-busy r2 300 a"},
     {"reducer-slow r2 700 a", "lane-busy r2 300 a"}},
    {"a late rank: the home waits, too",
     {"relay-slow r0 900 a", "rank-late r0 800 a", "reducer-slow r2 700 a"},
     {"rank-late r0 800 a", "reducer-slow r2 700 a"}},
};

START_TEST(what_a_slow_relay_causes_is_left_out)
{
	struct findings all = {.n = 0};
	char ids[FINDINGS][20], text[120];
	unsigned n = 0;

	for (unsigned i = 0; i < FINDINGS && settled[_i].found[i]; i++) {
		struct finding f = {.id = ids[i]};

		ck_assert_int_eq(sscanf(settled[_i].found[i], "%19s %63s %u %255s", ids[i], f.process, &f.score, f.job),
				 4);
		findings_put(&all, &f);
	}
	doctor_settle_relays(&all);
	for (; n < FINDINGS && settled[_i].kept[n]; n++) {
		ck_assert_uint_lt(n, all.n);
		snprintf(text, sizeof text, "%s %.30s %u %.30s", all.at[n].id, all.at[n].process, all.at[n].score,
			 all.at[n].job);
		ck_assert_msg(strcmp(text, settled[_i].kept[n]) == 0, "%s: \"%s\"", settled[_i].what, text);
	}
	ck_assert_uint_eq(all.n, n);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("doctor_relays");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, a_slow_relay_stands_out, 0, sizeof rows / sizeof rows[0]);
	tcase_add_loop_test(tc, what_a_slow_relay_causes_is_left_out, 0, sizeof settled / sizeof settled[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
