/* SPDX-License-Identifier: Apache-2.0 */
#include "common/spin.h"

#include <check.h>
#include <stdlib.h>

/* One wait for an event that happens after so many nanoseconds, polled every 10 us. True:
 * it was seen before the sleep. */
static bool wait_for(struct rs_spin *s, uint64_t *now_ns, uint64_t comes_ns, bool *ret_slept_at_once)
{
	uint64_t from = *now_ns;
	bool look = rs_spin_begin(s, *now_ns);

	*ret_slept_at_once = !look;
	while (look && *now_ns - from < comes_ns) {
		look = rs_spin_more(s, *now_ns);
		*now_ns += look ? 10000 : 0;
	}
	if (look)
		rs_spin_found(s);
	if (*now_ns - from < comes_ns)
		*now_ns = from + comes_ns;
	return look;
}

START_TEST(short_waits_are_polled)
{
	struct rs_spin s = {0};
	uint64_t now = 12345;
	bool slept;

	for (unsigned i = 0; i < 1000; i++)
		ck_assert(wait_for(&s, &now, i % 90 * 1000, &slept));
}
END_TEST

/* Long waits sleep at once, except fewer and fewer of them; one short wait resets
 * that. */
START_TEST(long_waits_poll_little)
{
	struct rs_spin s = {0};
	uint64_t now = 0;
	unsigned looked = 0;
	bool slept;

	for (unsigned i = 0; i < 20000; i++) {
		ck_assert(!wait_for(&s, &now, 1000000, &slept));
		looked += !slept;
	}
	ck_assert_uint_le(looked, 10 + 20000 / RS_SPIN_PAUSE + 1);
	ck_assert_uint_ge(looked, 20000 / (RS_SPIN_PAUSE + 1));
	for (unsigned i = 0; i <= RS_SPIN_PAUSE; i++)
		wait_for(&s, &now, 20000, &slept);
	for (unsigned i = 0; i < 100; i++)
		ck_assert(wait_for(&s, &now, 20000, &slept));
}
END_TEST

START_TEST(one_long_wait_costs_one_sleep)
{
	struct rs_spin s = {0};
	uint64_t now = 0;
	bool slept;

	for (unsigned i = 0; i < 100; i++) {
		ck_assert(!wait_for(&s, &now, 1000000, &slept) && !slept);
		ck_assert(!wait_for(&s, &now, 20000, &slept) && slept);
		ck_assert(wait_for(&s, &now, 20000, &slept));
	}
}
END_TEST

/* A loop that finds work each time stays awake; one that then finds none sleeps after
 * RS_SPIN_NS. */
START_TEST(an_idle_loop_sleeps_after_the_polling_time)
{
	struct rs_spin s = {0};
	uint64_t now = 777;
	unsigned looks = 0;

	ck_assert(!rs_spin_stay_awake(&s, false, now));
	for (unsigned i = 0; i < 1000; i++, now += 90000)
		ck_assert(rs_spin_stay_awake(&s, true, now));
	while (rs_spin_stay_awake(&s, false, now)) {
		now += 10000;
		looks++;
	}
	ck_assert_uint_ge(looks, 1);
	ck_assert_uint_le(looks, RS_SPIN_NS / 10000);
	/* which was in vain */
	ck_assert(!rs_spin_stay_awake(&s, true, now));
	ck_assert(!rs_spin_stay_awake(&s, false, now));
	ck_assert(rs_spin_stay_awake(&s, true, now));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("spin");
	TCase *t = tcase_create("spin");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, short_waits_are_polled);
	tcase_add_test(t, long_waits_poll_little);
	tcase_add_test(t, one_long_wait_costs_one_sleep);
	tcase_add_test(t, an_idle_loop_sleeps_after_the_polling_time);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
