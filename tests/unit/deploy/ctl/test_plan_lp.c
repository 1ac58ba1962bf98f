/* SPDX-License-Identifier: Apache-2.0 */
/* Small linear programs: known ones, and random ones against the best corner. */
#include "deploy/ctl/plan/lp.h"

#include <check.h>
#include <math.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

enum { ROWS = 6, COLUMNS = 3 };

/* Rows a x >= b, with b in front; the costs, and the solution, whose cost counts if
 * several are equally good. */
static const struct {
	double row[ROWS][1 + COLUMNS], cost[COLUMNS];
	double best; /* -1: there is no solution */
} programs[] = {
    {{{1, 1, 1, 0}}, {1, 2, 0}, 1},
    {{{4, 1, 1, 0}, {-3, -1, 0, 0}}, {1, 2, 0}, 5},
    {{{0, 1, -1, 0}}, {1, 1, 1}, 0},
    /* an equation as two rows */
    {{{2, 1, 1, 1}, {-2, -1, -1, -1}, {1, 0, 1, -1}}, {3, 1, 1}, 2},
    {{{2, 1, 1, 1}, {-2, -1, -1, -1}, {1, 0, 1, -1}}, {3, 1, 0}, 1.5},
    /* contradictions */
    {{{2, 1, 0, 0}, {-1, -1, 0, 0}}, {1, 1, 1}, -1},
    {{{1, -1, -1, 0}}, {1, 1, 1}, -1},
    /* columns without costs, and rows that say the same */
    {{{1, 1, 1, 1}, {1, 1, 1, 1}, {2, 2, 2, 2}}, {0, 0, 0}, 0},
    {{{3, 1, 2, 0}, {3, 2, 1, 0}, {0, 1, -1, 0}, {0, -1, 1, 0}}, {1, 1, 5}, 2},
};

/* Solves a program. Returns the cost, -1 if there is no solution, and checks the rows. */
static double solve(const double row[ROWS][1 + COLUMNS], const double cost[COLUMNS], double x[COLUMNS])
{
	struct rs_err e = {0};
	double sum = 0;
	bool found;
	struct lp lp;

	ck_assert_int_eq(lp_init(&lp, ROWS, COLUMNS, &e), RS_OK);
	for (unsigned r = 0; r < ROWS; r++) {
		memcpy(lp_row(&lp, r), row[r] + 1, COLUMNS * sizeof(double));
		lp_row(&lp, r)[COLUMNS] = -row[r][0];
	}
	memcpy(lp_row(&lp, ROWS), cost, COLUMNS * sizeof(double));
	found = lp_solve(&lp, x);
	lp_close(&lp);
	if (!found)
		return -1;
	for (unsigned r = 0; r < ROWS; r++) {
		double left = 0;

		for (unsigned c = 0; c < COLUMNS; c++)
			left += row[r][1 + c] * x[c];
		ck_assert_double_ge(left, row[r][0] - 1e-7);
	}
	for (unsigned c = 0; c < COLUMNS; c++) {
		ck_assert_double_ge(x[c], 0);
		sum += cost[c] * x[c];
	}
	return sum;
}

START_TEST(known_programs)
{
	double x[COLUMNS];

	ck_assert_double_eq_tol(solve(programs[_i].row, programs[_i].cost, x), programs[_i].best, 1e-6);
}
END_TEST

/* Numbers that are the same in every run. */
static int draw(uint32_t *state, int least, int most)
{
	*state = *state * 1664525 + 1013904223;
	return least + (int)(((uint64_t)*state * (uint64_t)(most - least + 1)) >> 32);
}

/* Checks that no point of a grid is allowed and costs less. */
START_TEST(no_point_of_a_grid_costs_less)
{
	double row[ROWS][1 + COLUMNS], cost[COLUMNS], x[COLUMNS], found, best = INFINITY;
	uint32_t state = (uint32_t)_i;

	for (unsigned r = 0; r < ROWS; r++)
		for (unsigned c = 0; c <= COLUMNS; c++)
			row[r][c] = draw(&state, -3, 3);
	for (unsigned c = 0; c < COLUMNS; c++)
		cost[c] = draw(&state, 0, 3);
	found = solve(row, cost, x);
	for (unsigned at = 0; at < 41 * 41 * 41; at++) {
		double point[COLUMNS], sum = 0;
		bool allowed = true;

		for (unsigned c = 0, rest = at; c < COLUMNS; c++, rest /= 41) {
			point[c] = rest % 41 / 4.0;
			sum += cost[c] * point[c];
		}
		for (unsigned r = 0; r < ROWS; r++)
			allowed =
			    allowed && row[r][1] * point[0] + row[r][2] * point[1] + row[r][3] * point[2] >= row[r][0];
		if (allowed)
			best = fmin(best, sum);
	}
	if (found < 0)
		ck_assert(isinf(best));
	else
		ck_assert_double_ge(best, found - 1e-6);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan_lp");
	TCase *tc = tcase_create("plan_lp");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 30); /* sanitizers included */
	tcase_add_loop_test(tc, known_programs, 0, COUNT(programs));
	tcase_add_loop_test(tc, no_point_of_a_grid_costs_less, 0, 100);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
