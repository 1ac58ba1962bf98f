/* SPDX-License-Identifier: Apache-2.0 */
/* At which rate each link may send, from what congestion control says of all of them. */
#include "agent/worker/core/exchange.h"
#include "agent/worker/core/link.h"

#include <check.h>

enum { LINKS = 3 };

/* Shards and estimate of each link, and what it may send; 0: any. */
static const struct {
	const char *what;
	bool relaying;
	unsigned shards[LINKS];
	uint64_t estimate[LINKS];
	uint64_t rate[LINKS];
} rows[] = {
    {"not BBR, or all start", false, {2, 2, 2}, {0, 0, 0}, {0, 0, 0}},
    {"equal shards, unequal luck", false, {2, 2, 2}, {3000000, 2000000, 1000000}, {2060000, 2060000, 2060000}},
    {"by shards", false, {4, 1, 1}, {2000000, 2000000, 2000000}, {4120000, 1030000, 1030000}},
    {"one starts, or is a short link", false, {2, 2, 2}, {3000000, 0, 1000000}, {0, 0, 0}},
    {"one has no shards, and starts", false, {1, 1, 0}, {3000000, 1000000, 0}, {2060000, 2060000, 0}},
    {"one has no shards any more", false, {1, 1, 0}, {3000000, 1000000, 9000000}, {2060000, 2060000, 0}},
    {"one connection", false, {6, 0, 0}, {3000000, 0, 0}, {3090000, 0, 0}},
    {"no view yet", false, {0, 0, 0}, {3000000, 1000000, 1000000}, {0, 0, 0}},
    {"100 Gbit/s and 4096 shards", false, {4096, 0, 0}, {12500000000, 0, 0}, {12875000000, 0, 0}},
    {"relays", true, {2, 2, 2}, {3000000, 2000000, 1000000}, {0, 0, 0}},
};

START_TEST(each_link_has_its_part)
{
	struct link links[LINKS] = {0};
	struct exchange x = {.links = links, .links_n = LINKS, .relaying = rows[_i].relaying};

	for (unsigned i = 0; i < LINKS; i++) {
		const struct window_signal s = {.estimate = rows[_i].estimate[i]};

		links[i].own.n = rows[_i].shards[i];
		exchange_set_path(&x, i, &s);
	}
	for (unsigned i = 0; i < LINKS; i++)
		ck_assert_uint_eq(exchange_pacing(&x, i), rows[_i].rate[i]);
}
END_TEST

/* A signal of a link with this estimate; returns what it may send then. */
static uint64_t signal_of(struct exchange *x, unsigned link, uint64_t estimate)
{
	const struct window_signal s = {.estimate = estimate, .paced = true, .min_rtt_us = 100000};

	exchange_signal(x, link, &s, 1000);
	return exchange_pacing(x, link);
}

/* Links that carry all that they may try more; those that do not keep to their parts. */
START_TEST(a_faster_link_is_found)
{
	struct link links[LINKS] = {0};
	struct exchange x = {.links = links, .links_n = LINKS};
	uint64_t pace[LINKS] = {0};

	for (unsigned i = 0; i < LINKS; i++) {
		window_init(&links[i].window, 1024, 4, true, true);
		lookahead_init(&links[i].lookahead);
		links[i].own.n = 1;
	}
	for (unsigned i = 0; i < LINKS; i++)
		ck_assert_uint_eq(signal_of(&x, i, 1000000), i < LINKS - 1 ? 0 : 1030000);
	for (unsigned i = 0; i < 10 * LINKS; i++)
		ck_assert_uint_eq(pace[i % LINKS] = signal_of(&x, i % LINKS, 1000000), 1030000);
	for (unsigned round = 0; round < 48; round++)
		for (unsigned i = 0; i < LINKS; i++)
			pace[i] = signal_of(&x, i, pace[i]);
	for (unsigned i = 0; i < LINKS; i++)
		ck_assert_uint_ge(pace[i], 5000000);
	for (unsigned i = 0; i < 8 * LINKS; i++)
		pace[i % LINKS] = signal_of(&x, i % LINKS, 1000000);
	for (unsigned i = 0; i < LINKS; i++)
		ck_assert_uint_eq(pace[i], 1030000);
	ck_assert_uint_eq(signal_of(&x, 1, 0),
			  0); /* it was made anew: the others have no limit until it has an estimate */
	ck_assert_uint_eq(signal_of(&x, 0, 2000000), 0);
	ck_assert_uint_eq(signal_of(&x, 1, 2000000), 1716666);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pacing");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, each_link_has_its_part, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(tc, a_faster_link_is_found);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
