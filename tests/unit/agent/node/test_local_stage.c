/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/hub_state.h"
#include "agent/node/core/stage.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MIN = LOCAL_STAGE_MIN };

/* A hub that only makes memory, and counts it. */
struct counter {
	size_t now, made;
	bool none;
};

static void *stage_new(void *ctx, size_t bytes)
{
	struct counter *n = ctx;

	if (n->none)
		return NULL;
	n->now += bytes;
	n->made++;
	return malloc(bytes);
}

static void stage_free(void *ctx, void *stage, size_t bytes)
{
	struct counter *n = ctx;

	n->now -= bytes;
	free(stage);
}

static struct counter count;
static struct local_hub hub;
static struct local_stages s;

static void setup(void)
{
	count = (struct counter){0};
	hub = (struct local_hub){.ctx = &count, .ports = {.stage_new = stage_new, .stage_free = stage_free}};
	s = (struct local_stages){.limit = 4 * MIN};
}

static void teardown(void)
{
	local_stages_close(&s, &hub);
	ck_assert_uint_eq(count.now, 0);
}

START_TEST(stages_are_recycled)
{
	void *a = local_stage_take(&s, MIN - 5, &hub), *b;

	memset(a, 1, MIN - 5);
	local_stage_give(&s, a, MIN - 5);
	b = local_stage_take(&s, 1, &hub);
	ck_assert_ptr_eq(a, b);
	ck_assert_uint_eq(count.made, 1);
	local_stage_give(&s, b, 1);
}
END_TEST

START_TEST(sizes_are_rounded_up)
{
	static const struct {
		size_t bytes, size;
	} sizes[] = {{1, MIN}, {MIN, MIN}, {MIN + 1, 2 * MIN}, {2 * MIN, 2 * MIN}, {2 * MIN + 1, 4 * MIN}};

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		void *p = local_stage_take(&s, sizes[i].bytes, &hub);

		ck_assert_uint_eq(s.busy_bytes, sizes[i].size);
		memset(p, 2, sizes[i].bytes);
		local_stage_give(&s, p, sizes[i].bytes);
		ck_assert_uint_eq(s.busy_bytes, 0);
	}
}
END_TEST

START_TEST(one_stage_is_always_granted_and_more_up_to_the_limit)
{
	void *a, *b;

	ck_assert(local_stage_fits(&s, 100 * MIN));
	a = local_stage_take(&s, 3 * MIN, &hub);
	ck_assert(!local_stage_fits(&s, 1));
	local_stage_give(&s, a, 3 * MIN);
	a = local_stage_take(&s, 2 * MIN, &hub);
	ck_assert(local_stage_fits(&s, 2 * MIN));
	ck_assert(!local_stage_fits(&s, 2 * MIN + 1));
	b = local_stage_take(&s, 2 * MIN, &hub);
	ck_assert(!local_stage_fits(&s, 1));
	local_stage_give(&s, b, 2 * MIN);
	local_stage_give(&s, a, 2 * MIN);
}
END_TEST

START_TEST(idle_stages_are_freed_for_others)
{
	void *p[4];

	for (int i = 0; i < 4; i++)
		p[i] = local_stage_take(&s, MIN, &hub);
	for (int i = 0; i < 4; i++)
		local_stage_give(&s, p[i], MIN);
	ck_assert_uint_eq(s.idle_bytes, 4 * MIN);
	p[0] = local_stage_take(&s, 2 * MIN, &hub);
	ck_assert_uint_eq(s.idle_bytes, 2 * MIN);
	ck_assert_uint_eq(count.now, 4 * MIN);
	local_stage_give(&s, p[0], 2 * MIN);
}
END_TEST

START_TEST(no_memory)
{
	count.none = true;
	ck_assert_ptr_null(local_stage_take(&s, 1, &hub));
	ck_assert_uint_eq(s.busy_bytes, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("local_stage");
	TCase *t = tcase_create("local_stage");
	SRunner *r = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, stages_are_recycled);
	tcase_add_test(t, sizes_are_rounded_up);
	tcase_add_test(t, one_stage_is_always_granted_and_more_up_to_the_limit);
	tcase_add_test(t, idle_stages_are_freed_for_others);
	tcase_add_test(t, no_memory);
	suite_add_tcase(suite, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
