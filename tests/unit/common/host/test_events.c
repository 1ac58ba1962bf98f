/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/service/events.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct events all;

static void open_events(void)
{
	memset(&all, 0xa5, sizeof all);
	events_init(&all);
}

static const char *field(const struct event *ev, unsigned i)
{
	const char *at = ev->text;

	ck_assert_uint_lt(i, 2 * ev->fields_n);
	while (i--)
		at += strlen(at) + 1;
	return at;
}

START_TEST(fields_become_text)
{
	const struct event *ev;

	open_events();
	ck_assert_ptr_null(events_get(&all, 1));
	ck_assert_uint_eq(events_oldest(&all), all.next);
	events_add(&all, 1700000000123, RS_LOG_WARN, "rank-lost",
		   (const struct rs_kv[]){rs_kv_s("job", "train a \"b\""), rs_kv_u("rank", UINT64_MAX),
					  rs_kv_i("code", -6), rs_kv_d("seconds", 0.25), rs_kv_s("none", NULL)},
		   5);
	ev = events_get(&all, 1);
	ck_assert_ptr_nonnull(ev);
	ck_assert_uint_eq(ev->sequence, 1);
	ck_assert_int_eq(ev->unix_ms, 1700000000123);
	ck_assert_int_eq(ev->level, RS_LOG_WARN);
	ck_assert_str_eq(ev->name, "rank-lost");
	ck_assert_uint_eq(ev->fields_n, 5);
	ck_assert_str_eq(field(ev, 0), "job");
	ck_assert_str_eq(field(ev, 1), "train a \"b\"");
	ck_assert_str_eq(field(ev, 3), "18446744073709551615");
	ck_assert_str_eq(field(ev, 5), "-6");
	ck_assert_str_eq(field(ev, 7), "0.25");
	ck_assert_str_eq(field(ev, 9), "");
}
END_TEST

START_TEST(the_latest_events_are_kept)
{
	open_events();
	for (unsigned i = 1; i <= 3 * EVENTS_KEPT + 7; i++) {
		events_add(&all, i, RS_LOG_INFO, "e", &(struct rs_kv){"i", RS_KV_UINT, {.u = i}}, 1);
		ck_assert_ptr_nonnull(events_get(&all, i));
		ck_assert_ptr_null(events_get(&all, i + 1));
	}
	ck_assert_uint_eq(events_oldest(&all), 2 * EVENTS_KEPT + 8);
	for (uint64_t n = events_oldest(&all); n < all.next; n++)
		ck_assert_uint_eq(events_get(&all, n)->sequence, n);
	ck_assert_ptr_null(events_get(&all, events_oldest(&all) - 1));
	ck_assert_ptr_null(events_get(&all, 0));
	ck_assert_ptr_null(events_get(&all, UINT64_MAX));
}
END_TEST

static void add_named(const char *name)
{
	events_add(&all, 0, RS_LOG_INFO, name, NULL, 0);
}

START_TEST(names_are_counted)
{
	struct event ev;
	char name[EVENT_NAME];
	uint64_t sum = 0;

	open_events();
	ck_assert_uint_eq(all.counts_n, 0);
	add_named("rebalanced");
	add_named("slot-taken");
	add_named("rebalanced");
	event_make(&ev, 0, RS_LOG_INFO, "slot-taken", NULL, 0);
	events_put(&all, &ev);
	ck_assert_uint_eq(all.counts_n, 2);
	ck_assert_str_eq(all.counts[0].name, "rebalanced");
	ck_assert(all.counts[0].n == 2 && all.counts[1].n == 2);
	for (unsigned i = 0; i < 2 * EVENTS_KINDS; i++) {
		snprintf(name, sizeof name, "kind-%u", i);
		add_named(name);
	}
	add_named("slot-taken");
	ck_assert_uint_eq(all.counts_n, EVENTS_KINDS);
	ck_assert_str_eq(all.counts[EVENTS_KINDS - 1].name, "other");
	ck_assert_uint_eq(all.counts[1].n, 3);
	for (unsigned i = 0; i < all.counts_n; i++)
		sum += all.counts[i].n;
	ck_assert_uint_eq(sum, all.next - 1);
}
END_TEST

/* For any input an event has its size, and its text is well-formed. */
START_TEST(long_values_are_cut)
{
	char value[2 * EVENT_TEXT];
	const struct event *ev;

	for (size_t n = EVENT_TEXT - 40; n < EVENT_TEXT + 40; n++) {
		memset(value, 0, sizeof value);
		for (size_t i = 0; i + 1 < n; i += 2)
			memcpy(value + i, "\xc3\xa4", 2);
		open_events();
		events_add(&all, 0, RS_LOG_INFO, "a name that is longer than thirty-two bytes",
			   (const struct rs_kv[]){rs_kv_s("reason", value), rs_kv_s("peer", "127.0.0.1:1")}, 2);
		ev = events_get(&all, 1);
		ck_assert_uint_eq(strlen(ev->name), EVENT_NAME - 1);
		ck_assert_uint_le(ev->text_len, EVENT_TEXT);
		ck_assert_uint_ge(ev->fields_n, 1);
		ck_assert_str_eq(field(ev, 0), "reason");
		ck_assert_uint_eq(strlen(field(ev, 1)) % 2, 0);
		ck_assert_int_eq(strncmp(field(ev, 1), value, strlen(field(ev, 1))), 0);
		ck_assert_uint_ge(strlen(field(ev, 1)), n < EVENT_TEXT - 10 ? n / 2 * 2 : EVENT_TEXT - 20);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("events");
	TCase *t = tcase_create("events");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, fields_become_text);
	tcase_add_test(t, the_latest_events_are_kept);
	tcase_add_test(t, names_are_counted);
	tcase_add_test(t, long_values_are_cut);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
