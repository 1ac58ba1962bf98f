/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/plan/plan.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

enum { MACHINES_MAX = 64 };

/* A network of up to MACHINES_MAX machines, not on the heap. */
struct fixed_net {
	struct plan_machine machine[MACHINES_MAX];
	struct plan_rack rack;
	unsigned order[MACHINES_MAX];
	struct plan_net net;
};

static void add_machine(struct fixed_net *f, double rate, unsigned workers, unsigned reducers)
{
	f->net.machine = f->machine;
	f->net.order = f->order;
	f->net.rack = &f->rack;
	f->net.racks_n = f->net.places_n = 1;
	f->order[f->net.machines_n] = f->net.machines_n;
	f->machine[f->net.machines_n++] = (struct plan_machine){"", rate, workers, reducers, 0};
	f->net.workers += workers;
	f->rack = (struct plan_rack){f->net.workers, 0, f->net.machines_n};
}

/* Makes n workers, g of them with a reducer, and k machines that only reduce, with links
 * of rate 1. */
static void make_equal(struct fixed_net *f, unsigned n, unsigned k, unsigned g)
{
	memset(f, 0, sizeof *f);
	for (unsigned i = 0; i < n; i++)
		add_machine(f, 1, 1, i < g);
	for (unsigned i = 0; i < k; i++)
		add_machine(f, 1, 0, 1);
}

/* Numbers that are the same in every run. */
static uint32_t draw(uint32_t *state, uint32_t below)
{
	*state = *state * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)*state * below) >> 32);
}

static void make_random(struct fixed_net *f, uint32_t seed)
{
	unsigned n = 2 + draw(&seed, 12), k = draw(&seed, 10);

	memset(f, 0, sizeof *f);
	for (unsigned left = n; left;) { /* sometimes several workers on a machine */
		unsigned here = draw(&seed, 4) ? 1 : 1 + draw(&seed, left);

		add_machine(f, 1 + draw(&seed, 100), here, draw(&seed, 2));
		left -= here;
	}
	for (unsigned i = 0; i < k; i++)
		add_machine(f, 1 + draw(&seed, 100), 0, 1 + draw(&seed, 2));
	f->machine[0].reducers = 1;
}

/* Returns whether all shares can be placed so that no link needs longer. */
static bool is_feasible(const struct plan_net *net, double time)
{
	double most = 0, least = 0;

	for (unsigned m = 0; m < net->machines_n; m++) {
		double w = net->machine[m].workers, each = net->workers - 2 * w, room = time * net->machine[m].rate - w;

		if (net->machine[m].reducers == 0 || each == 0) {
			if (room < 0)
				return false;
			most += net->machine[m].reducers > 0;
		} else if (each > 0) {
			if (room < 0)
				return false;
			most += fmin(1, room / each);
		} else {
			if (room / each > 1)
				return false;
			most += 1;
			least += fmax(0, room / each);
		}
	}
	return least <= 1 && most >= 1;
}

static double bisect(const struct plan_net *net)
{
	double low = 0, high = 1e9;

	while (high - low > 1e-10 * high) {
		double middle = (low + high) / 2;

		if (is_feasible(net, middle))
			high = middle;
		else
			low = middle;
	}
	return high;
}

/* T * B / M for n workers and k machines that only reduce. */
static const struct {
	unsigned n, k;
	double mixed, dedicated, ring;
} bounds[] = {
    {8, 2, 1.4737, 4, 1.75},       {8, 4, 1.2727, 2, 1.75}, {8, 8, 1, 1, 1.75}, {4, 4, 1, 1, 1.5},
    {6, 2, 60.0 / 44, 3, 5.0 / 3}, {4, 0, 1.5, 0, 1.5},     {2, 1, 1, 2, 1},    {3, 5, 1, 1, 4.0 / 3},
};

START_TEST(bounds_are_those_of_the_design)
{
	unsigned n = bounds[_i].n, k = bounds[_i].k;
	struct fixed_net f;

	make_equal(&f, n, k, n);
	ck_assert_double_eq_tol(plan_equal_time(n, k, n), bounds[_i].mixed, 1e-4);
	ck_assert_double_eq_tol(plan_ring(&f.net, 1), bounds[_i].ring, 1e-12);
	ck_assert_double_eq(plan_least(&f.net), 1);
	if (k)
		ck_assert_double_eq(plan_equal_time(n, k, 0), bounds[_i].dedicated);
	if (k <= n)
		ck_assert_double_eq_tol(plan_equal_time(n, k, n),
					fmax(1, 2.0 * n * (n - 1) / (n * n + k * n - 2.0 * k)), 1e-12);
}
END_TEST

START_TEST(best_shares_have_the_time_of_the_closed_form)
{
	static const unsigned ns[] = {2, 3, 4, 5, 8, 16, 31};
	double share[MACHINES_MAX];
	struct fixed_net f;

	for (unsigned i = 0; i < sizeof ns / sizeof ns[0]; i++) {
		for (unsigned k = 0; k <= ns[i] + 2; k += 1 + ns[i] / 8) {
			for (unsigned g = k ? 0 : 1; g <= ns[i]; g += 1 + ns[i] / 8) {
				double closed = plan_equal_time(ns[i], k, g);

				make_equal(&f, ns[i], k, g);
				ck_assert_double_eq_tol(closed, bisect(&f.net), 1e-7 * closed);
				plan_best(&f.net, share);
				ck_assert_double_eq_tol(plan_time(&f.net, share), closed, 1e-9 * closed);
			}
		}
	}
}
END_TEST

START_TEST(shares_are_a_ratio_of_workers_and_reducers)
{
	double share[MACHINES_MAX], sum = 0;
	struct fixed_net f;

	make_equal(&f, 8, 2, 8);
	plan_best(&f.net, share);
	for (unsigned m = 0; m < f.net.machines_n; m++) {
		ck_assert_double_eq_tol(share[m] * 76, m < 8 ? 8 - 2 : 2 * (8 - 1), 1e-9);
		sum += share[m];
	}
	ck_assert_double_eq_tol(sum, 1, 1e-12);
}
END_TEST

/* Checks plan_best() for any network: the shares sum up to 1, the time is minimal,
 * machines without a reducer have none. */
START_TEST(best_shares_of_any_network)
{
	double share[MACHINES_MAX], sum = 0, time;
	struct fixed_net f;

	make_random(&f, (uint32_t)_i);
	plan_best(&f.net, share);
	time = plan_time(&f.net, share);
	ck_assert_double_eq_tol(time, bisect(&f.net), 1e-6 * time + 1e-9);
	ck_assert_double_ge(time, plan_least(&f.net) * (1 - 1e-9));
	for (unsigned m = 0; m < f.net.machines_n; m++) {
		ck_assert_double_ge(share[m], 0);
		ck_assert(f.machine[m].reducers > 0 || share[m] == 0);
		sum += share[m];
	}
	ck_assert_double_eq_tol(sum, 1, 1e-9);
}
END_TEST

/* Links of three reducers: alone, on a worker's machine, and on the machine of two
 * workers; and of two more workers. */
static const double grids[][5] = {
    {1, 1, 1, 1, 1}, {10, 1, 1, 1, 1}, {1, 10, 10, 1, 1}, {0.5, 1, 2, 4, 8}, {3, 7, 2, 5, 4}, {2, 0.3, 9, 1, 0.9},
};

/* Checks that no point of a grid of shares of the first three machines is faster than the
 * best shares. */
static void check_grid(const struct plan_net *net)
{
	enum { STEPS = 400 };
	double share[5] = {0}, best = INFINITY, found;

	plan_best(net, share);
	found = plan_time(net, share);
	ck_assert_double_eq(share[3] + share[4], 0);
	for (int a = 0; a <= STEPS; a++) {
		for (int b = 0; a + b <= STEPS; b++) {
			share[0] = (double)a / STEPS;
			share[1] = (double)b / STEPS;
			share[2] = 1 - share[0] - share[1];
			best = fmin(best, plan_time(net, share));
		}
	}
	ck_assert_double_ge(best, found * (1 - 1e-7));
	ck_assert_double_le(best, found * 1.02);
}

START_TEST(no_point_of_a_grid_is_faster)
{
	const double *rate = grids[_i];
	struct fixed_net f;

	memset(&f, 0, sizeof f);
	add_machine(&f, rate[0], 0, 1);
	add_machine(&f, rate[1], 1, 1);
	add_machine(&f, rate[2], 2, 1);
	add_machine(&f, rate[3], 1, 0);
	add_machine(&f, rate[4], 1, 0);
	check_grid(&f.net);
}
END_TEST

/* The same in two or three racks, with uplinks that limit the time or do not. */
START_TEST(no_point_of_a_grid_is_faster_with_racks)
{
	static const double uplinks[] = {0.3, 1, 3, 10, 1000};
	const double *rate = grids[_i % COUNT(grids)];
	struct fixed_net f;
	struct rs_err e = {0};

	for (unsigned racks = 2; racks <= 3; racks++) {
		for (unsigned u = 0; u < sizeof uplinks / sizeof uplinks[0]; u++) {
			memset(&f, 0, sizeof f);
			add_machine(&f, rate[0], 0, 1);
			add_machine(&f, rate[1], 1, 1);
			add_machine(&f, rate[2], 2, 1);
			add_machine(&f, rate[3], 1, 0);
			add_machine(&f, rate[4], 1, 0);
			f.net.racks_n = racks;
			f.net.uplink = uplinks[u];
			f.net.rack = NULL;
			f.net.order = NULL;
			ck_assert_int_eq(plan_net_spread(&f.net, &e), RS_OK);
			check_grid(&f.net);
			free(f.net.rack);
			free(f.net.order);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan_shares");
	TCase *tc = tcase_create("plan_shares");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 30); /* sanitizers included */
	tcase_add_loop_test(tc, bounds_are_those_of_the_design, 0, COUNT(bounds));
	tcase_add_test(tc, best_shares_have_the_time_of_the_closed_form);
	tcase_add_test(tc, shares_are_a_ratio_of_workers_and_reducers);
	tcase_add_loop_test(tc, best_shares_of_any_network, 0, 200);
	tcase_add_loop_test(tc, no_point_of_a_grid_is_faster, 0, COUNT(grids));
	tcase_add_loop_test(tc, no_point_of_a_grid_is_faster_with_racks, 0, COUNT(grids));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
