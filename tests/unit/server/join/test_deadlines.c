/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/deadlines.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 400, NAMES = 26 };

/* Connections are called a, b, c. A step happens at a time: '+' adds one, '!' lets it
 * leave, '-' removes it. */
struct step {
	uint64_t at_ms;
	char what, who;
};

static const struct row {
	const char *name;
	struct step steps[8];
	uint64_t at_ms;
	const char *due;  /* due at that time, in this order: 'a' has waited too long, 'A' left */
	const char *left; /* then the rest by age, the first to be replaced in front */
} rows[] = {
    {"nobody", {{0}}, UINT64_MAX, "", ""},
    {"one that waits", {{7, '+', 'a'}}, 7 + WAIT_MS - 1, "", "a"},
    {"one that has waited", {{7, '+', 'a'}}, 7 + WAIT_MS, "a", "A"},
    {"those that came first are due first", {{0, '+', 'a'}, {1, '+', 'b'}, {2, '+', 'c'}}, WAIT_MS + 1, "ab", "ABc"},
    {"those of the same time", {{5, '+', 'a'}, {5, '+', 'b'}, {5, '+', 'c'}}, 5 + WAIT_MS, "abc", "ABC"},
    {"one that leaves", {{0, '+', 'a'}, {9, '!', 'a'}}, 9 + DEADLINES_LEAVE_MS - 1, "", "A"},
    {"one that has had the time to leave", {{0, '+', 'a'}, {9, '!', 'a'}}, 9 + DEADLINES_LEAVE_MS, "A", ""},
    {"leaving begins on request",
     {{0, '+', 'a'}, {0, '+', 'b'}, {3, '!', 'b'}, {4, '!', 'a'}},
     3 + DEADLINES_LEAVE_MS,
     "B",
     "A"},
    {"who leaves goes before who waits", {{0, '+', 'a'}, {1, '+', 'b'}, {2, '!', 'b'}}, 3, "", "Ba"},
    {"both queues are due",
     {{0, '+', 'a'}, {1, '!', 'a'}, {600, '+', 'b'}, {700, '+', 'c'}},
     1 + DEADLINES_LEAVE_MS,
     "Ab",
     "Bc"},
    {"the first goes", {{0, '+', 'a'}, {1, '+', 'b'}, {2, '-', 'a'}}, WAIT_MS, "", "b"},
    {"the last goes", {{0, '+', 'a'}, {1, '+', 'b'}, {2, '-', 'b'}, {3, '+', 'c'}}, WAIT_MS + 3, "ac", "AC"},
    {"one in the middle goes", {{0, '+', 'a'}, {1, '+', 'b'}, {2, '+', 'c'}, {3, '-', 'b'}}, WAIT_MS + 2, "ac", "AC"},
    {"one that leaves goes",
     {{0, '+', 'a'}, {1, '+', 'b'}, {2, '!', 'a'}, {2, '!', 'b'}, {3, '-', 'a'}},
     2 + DEADLINES_LEAVE_MS,
     "B",
     ""},
    {"one comes again", {{0, '+', 'a'}, {1, '!', 'a'}, {2, '-', 'a'}, {900, '+', 'a'}}, 900, "", "a"},
};

static struct deadlines all;
static struct deadline of[NAMES];

/* Checks the invariant. */
static unsigned check_queue(const struct deadline_queue *q, bool leaves)
{
	const struct deadline *before = NULL;
	unsigned n = 0;

	for (const struct deadline *d = TAILQ_FIRST(&q->list); d; before = d, d = TAILQ_NEXT(d, link), n++) {
		ck_assert_int_eq(d->leaves, leaves);
		ck_assert(!before || before->at_ms <= d->at_ms);
	}
	ck_assert_ptr_eq(TAILQ_EMPTY(&q->list) ? NULL : TAILQ_LAST(&q->list, deadline_list), before);
	ck_assert_uint_eq(q->n, n);
	return n;
}

static void check(void)
{
	ck_assert_uint_eq(deadlines_count(&all), check_queue(&all.waiting, false) + check_queue(&all.leaving, true));
}

static void do_step(const struct step *s)
{
	struct deadline *d = &of[s->who - 'a'];

	if (s->what == '+')
		deadlines_add(&all, d, s->at_ms);
	else if (s->what == '!')
		deadlines_leave(&all, d, s->at_ms);
	else
		deadlines_remove(&all, d);
	check();
}

static char name_of(const struct deadline *d)
{
	return (char)((d->leaves ? 'A' : 'a') + (d - of));
}

START_TEST(deadlines_are_due_in_order)
{
	const struct row *row = &rows[_i];
	char due[NAMES] = "", left[NAMES] = "";
	struct deadline *d;

	memset(&all, 0xa5, sizeof all);
	memset(of, 0xa5, sizeof of);
	deadlines_init(&all, WAIT_MS);
	for (const struct step *s = row->steps; s->what; s++)
		do_step(s);
	while ((d = deadlines_due(&all, row->at_ms))) {
		due[strlen(due)] = name_of(d);
		if (d->leaves)
			deadlines_remove(&all, d);
		else
			deadlines_leave(&all, d, row->at_ms);
		check();
	}
	ck_assert_msg(strcmp(due, row->due) == 0, "%s: \"%s\" were due, not \"%s\"", row->name, due, row->due);
	while ((d = deadlines_oldest(&all))) {
		left[strlen(left)] = name_of(d);
		deadlines_remove(&all, d);
		check();
	}
	ck_assert_msg(strcmp(left, row->left) == 0, "%s: \"%s\" were left, not \"%s\"", row->name, left, row->left);
	ck_assert_uint_eq(deadlines_count(&all), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("deadlines");
	TCase *t = tcase_create("deadlines");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, deadlines_are_due_in_order, 0, sizeof rows / sizeof rows[0]);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
