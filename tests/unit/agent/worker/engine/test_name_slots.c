/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that share a name. The random worlds have ranks whose lookups differ, reducers
 * that follow the rule of registry_check_shared(), and machines that come and go: in the
 * end each slot has the same machine on all ranks. */
#include "agent/worker/engine/name_slots.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4, RANKS = 3, MACHINES = 6, WORLDS = 3000, ROUNDS = 400 };

static void found(struct name_slots *s, const char *words)
{
	char addresses[MACHINES + 1][RS_ADDRESS_MAX];
	struct rs_err e;
	unsigned n = 0;

	for (const char *w = words; *w; w++)
		snprintf(addresses[n++], RS_ADDRESS_MAX, "10.0.0.%c:7600", *w);
	ck_assert_int_eq(name_slots_found(s, (const char(*)[RS_ADDRESS_MAX])addresses, n, &e), RS_OK);
}

static void init(struct name_slots *s)
{
	static const unsigned reducers[SLOTS] = {1, 3, 4, 7};
	struct rs_err e;

	ck_assert_int_eq(name_slots_init(s, reducers, SLOTS, &e), RS_OK);
	for (unsigned i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(s->slots[i].reducer, reducers[i]);
}

/* Returns the letter of the machine that is chosen; '-': none. */
static char choose(struct name_slots *s, unsigned slot, const char *open, bool leads)
{
	bool is_open[SLOTS];
	const char *at;

	for (unsigned i = 0; i < SLOTS; i++)
		is_open[i] = open[i] == 'o';
	at = name_slots_choose(s, slot, is_open, leads);
	return at ? at[strlen("10.0.0.")] : '-';
}

/* All ranks begin with the same choice, in the order of addresses. */
START_TEST(all_ranks_begin_alike)
{
	struct name_slots s;

	init(&s);
	ck_assert_int_eq(choose(&s, 0, "    ", _i == 0), '-');
	found(&s, "5252");
	ck_assert_uint_eq(s.machines_n, 2);
	ck_assert_int_eq(choose(&s, 0, "    ", _i == 0), '2');
	ck_assert_int_eq(choose(&s, 1, "o   ", _i == 0), '5');
	ck_assert_int_eq(choose(&s, 2, "oo  ", _i == 0), '-');
	ck_assert_str_eq(s.slots[2].at, "");
	found(&s, "1529");
	ck_assert_int_eq(choose(&s, 3, "oo  ", _i == 0), _i ? '9' : '1');
	name_slots_close(&s);
}
END_TEST

/* Rank 0 keeps a machine that fails while the name has it, unless another one is free. */
START_TEST(rank_0_keeps_a_machine)
{
	struct name_slots s;

	init(&s);
	found(&s, "12");
	choose(&s, 1, "    ", true);
	for (unsigned i = 0; i < 3 * NAME_TRIES; i++)
		ck_assert_int_eq(choose(&s, 0, " o  ", true), '2');
	found(&s, "123");
	ck_assert_int_eq(choose(&s, 0, " o  ", true), '3');
	for (unsigned i = 1; i < NAME_TRIES; i++)
		ck_assert_int_eq(choose(&s, 0, " o  ", true), '3');
	name_slots_joined(&s, 0);
	ck_assert_int_eq(choose(&s, 0, " o  ", true), '3');
	found(&s, "124");
	ck_assert_int_eq(choose(&s, 0, " o  ", true), '2');
	/* it gives each machine to one slot, also while no connection is open */
	ck_assert_int_eq(choose(&s, 2, "    ", true), '4');
	/* a machine that says that it fills another slot gets that one */
	name_slots_told(&s, 2, 3);
	ck_assert_int_eq(choose(&s, 2, "    ", true), '-');
	ck_assert_int_eq(choose(&s, 3, "    ", true), '4');
	name_slots_close(&s);
}
END_TEST

/* Another rank follows what machines say, and tries one after another. */
START_TEST(others_follow)
{
	struct name_slots s;

	init(&s);
	found(&s, "123");
	ck_assert_int_eq(choose(&s, 0, "    ", false), '1');
	name_slots_told(&s, 0, 2); /* machine 1 fills slot 2 */
	ck_assert_int_eq(choose(&s, 2, "    ", false), '1');
	name_slots_joined(&s, 2);
	ck_assert_int_eq(choose(&s, 0, "  o ", false), '2');
	name_slots_told(&s, 0, -1); /* rank 0 has not come there */
	ck_assert_int_eq(choose(&s, 0, "  o ", false), '3');
	ck_assert_int_eq(choose(&s, 0, "  o ", false), '2');
	name_slots_joined(&s, 0);
	/* the machine of slot 2 is lost: it is tried once before others */
	found(&s, "1234");
	ck_assert_int_eq(choose(&s, 2, "o   ", false), '1');
	ck_assert_int_eq(choose(&s, 2, "o   ", false), '3');
	ck_assert_int_eq(choose(&s, 2, "o   ", false), '4');
	/* it is back, lost again, and has another slot when it is back */
	ck_assert_int_eq(choose(&s, 2, "o   ", false), '1');
	name_slots_joined(&s, 2);
	found(&s, "123");
	ck_assert_int_eq(choose(&s, 2, "o   ", false), '1');
	name_slots_told(&s, 2, 3);
	ck_assert_int_eq(choose(&s, 3, "o   ", false), '1');
	ck_assert_int_eq(choose(&s, 2, "o  o", false), '3');
	/* another machine says that it fills slot 0 */
	name_slots_told(&s, 2, 0);
	ck_assert_int_eq(choose(&s, 0, "   o", false), '3');
	name_slots_close(&s);
}
END_TEST

struct machine {
	bool up;
	int slot;        /* in the job that it has; -1: it has none */
	unsigned joined; /* ranks, a bit for each */
};

struct world {
	struct name_slots ranks[RANKS];
	struct machine machines[MACHINES];
	int at[RANKS][SLOTS]; /* machine to which a connection is open; -1: none */
	unsigned most;        /* addresses in an answer of the name server */
};

static unsigned below(unsigned n)
{
	return (unsigned)(random() % n);
}

/* A rank looks the name up: some of the machines that run, in any order. */
static void look_up(struct world *w, unsigned rank)
{
	char words[MACHINES + 1] = "";
	unsigned n = 0, first = below(MACHINES);

	for (unsigned i = 0; i < MACHINES && n < w->most; i++)
		if (w->machines[(first + i) % MACHINES].up)
			words[n++] = (char)('1' + (first + i) % MACHINES);
	found(&w->ranks[rank], words);
}

static void leave(struct world *w, unsigned machine)
{
	for (unsigned r = 0; r < RANKS; r++)
		for (unsigned k = 0; k < SLOTS; k++)
			if (w->at[r][k] == (int)machine)
				w->at[r][k] = -1;
	w->machines[machine].slot = -1;
	w->machines[machine].joined = 0;
}

/* A rank sends HELLO for a slot, if it has no connection for it. */
static void attempt(struct world *w, unsigned rank, unsigned slot)
{
	char open[SLOTS + 1] = "    ", letter;
	struct machine *m;

	if (w->at[rank][slot] >= 0)
		return;
	for (unsigned k = 0; k < SLOTS; k++)
		open[k] = w->at[rank][k] >= 0 ? 'o' : ' ';
	letter = choose(&w->ranks[rank], slot, open, rank == 0);
	if (letter == '-')
		return;
	m = &w->machines[letter - '1'];
	if (!m->up)
		return;
	if (rank && !(m->joined & 1)) {
		name_slots_told(&w->ranks[rank], slot, -1);
		return;
	}
	if (m->slot >= 0 && m->slot != (int)slot) {
		name_slots_told(&w->ranks[rank], slot, m->slot);
		return;
	}
	m->slot = (int)slot;
	m->joined |= 1U << rank;
	w->at[rank][slot] = letter - '1';
	name_slots_joined(&w->ranks[rank], slot);
}

static void change(struct world *w)
{
	unsigned i = below(MACHINES);

	leave(w, i);
	w->machines[i].up = below(2);
}

/* Returns how many slots have a machine that all ranks have joined. */
static unsigned filled(const struct world *w)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MACHINES; i++)
		n += w->machines[i].joined == (1U << RANKS) - 1;
	return n;
}

START_TEST(all_ranks_agree_in_the_end)
{
	for (unsigned seed = 0; seed < WORLDS; seed++) {
		struct world w = {.most = 1 + seed % MACHINES};
		unsigned up = 0, round = 0;

		srandom(seed);
		memset(w.at, -1, sizeof w.at);
		for (unsigned r = 0; r < RANKS; r++)
			init(&w.ranks[r]);
		for (unsigned i = 0; i < MACHINES; i++)
			leave(&w, i);
		for (unsigned i = 0; i < ROUNDS; i++) {
			if (i < ROUNDS / 2 && below(8) == 0)
				change(&w);
			look_up(&w, below(RANKS));
			attempt(&w, below(RANKS), below(SLOTS));
		}
		for (unsigned i = 0; i < MACHINES; i++)
			up += w.machines[i].up;
		up = up < SLOTS ? up : SLOTS;
		while (filled(&w) < up && round++ < 100 * ROUNDS) {
			look_up(&w, below(RANKS));
			attempt(&w, below(RANKS), below(SLOTS));
		}
		ck_assert_msg(filled(&w) == up, "seed %u: %u of %u slots are filled", seed, filled(&w), up);
		for (unsigned r = 0; r < RANKS; r++)
			name_slots_close(&w.ranks[r]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("name_slots");
	TCase *tc = tcase_create("slots");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, all_ranks_begin_alike, 0, 2);
	tcase_add_test(tc, rank_0_keeps_a_machine);
	tcase_add_test(tc, others_follow);
	tcase_add_test(tc, all_ranks_agree_in_the_end);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
