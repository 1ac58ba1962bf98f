/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which connections send: fakes with a number of chunks each, and the order
 * of the sent chunks by letter. */
#include "agent/worker/engine/engine_uv.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { LINKS = 4 };

static char sent[32];
static unsigned left[LINKS], calls;

static bool service(struct conn *c)
{
	calls++;
	if (left[c->link] == 0)
		return false;
	left[c->link]--;
	sent[strlen(sent)] = (char)('a' + c->link);
	return true;
}

static const struct {
	const char *what;
	unsigned chunks[LINKS], first;
	const char *order;
} rows[] = {
    {"a chunk of each, then the next of each", {2, 2, 2, 2}, 0, "abcdabcd"},
    {"each rank begins elsewhere", {2, 2, 2, 2}, 3, "dabcdabc"},
    {"who has less leaves the rest to the others", {1, 3, 0, 2}, 1, "bdabdb"},
    {"nothing to send", {0, 0, 0, 0}, 2, ""},
};

START_TEST(links_are_served_in_turn)
{
	static const struct conn_ops ops = {.service = service};
	struct conn conns[LINKS], *at[LINKS];
	unsigned most = 0;

	memset(sent, 0, sizeof sent);
	calls = 0;
	for (unsigned i = 0; i < LINKS; i++) {
		conns[i] = (struct conn){.ops = &ops, .link = i};
		at[i] = &conns[i];
		left[i] = rows[_i].chunks[i];
		most = left[i] > most ? left[i] : most;
	}
	engine_serve(at, LINKS, rows[_i].first);
	if (strcmp(sent, rows[_i].order) != 0)
		ck_abort_msg("%s: %s was sent, expected was %s", rows[_i].what, sent, rows[_i].order);
	/* all are called once more, and then no more */
	ck_assert_uint_eq(calls, LINKS * (most + 1));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine_serve");
	TCase *t = tcase_create("engine_serve");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, links_are_served_in_turn, 0, sizeof rows / sizeof rows[0]);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
