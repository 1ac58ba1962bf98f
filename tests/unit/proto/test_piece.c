/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/piece.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	uint32_t len;
	unsigned head;
} lengths[] = {{1, 2}, {127, 2}, {128, 3}, {16383, 3}, {16384, 4}, {262144, 4}, {2097152, 5}, {UINT32_MAX, 6}};

START_TEST(round_trip)
{
	uint8_t head[PIECE_HEAD_MAX];
	unsigned n = piece_head(head, lengths[_i].len);
	size_t message = n + (size_t)lengths[_i].len;

	ck_assert_uint_eq(n, lengths[_i].head);
	for (unsigned have = 0; have < n; have++)
		ck_assert_int_eq(piece_parse(head, have, message), 0);
	ck_assert_int_eq(piece_parse(head, n, message), (int)n);
	ck_assert_int_eq(piece_parse(head, sizeof head, message), (int)n);
	ck_assert_int_eq(piece_parse(head, n, message + 1), -1);
	ck_assert_int_eq(piece_parse(head, n, message - 1), -1);
}
END_TEST

static const struct {
	const char *what;
	uint8_t bytes[8];
	size_t have, message;
	int expected;
} cases[] = {
    {"another field", {0x12, 1, 7}, 3, 3, -1},
    {"another type of the field", {0x08, 1}, 2, 2, -1},
    {"the tag alone", {0x0a}, 1, 1, 0},
    {"empty data, said in full", {0x0a, 0}, 2, 2, 2},
    {"a longer way to say 1", {0x0a, 0x81, 0}, 3, 4, 3},
    {"a length that never ends", {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff}, 6, 100, -1},
    {"a field behind the data", {0x0a, 1, 7, 0x12, 0}, 5, 5, -1},
};

START_TEST(received_pieces_are_parsed)
{
	ck_assert_int_eq(piece_parse(cases[_i].bytes, cases[_i].have, cases[_i].message), cases[_i].expected);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("piece");
	TCase *tc = tcase_create("piece");
	SRunner *r;
	int failed;

	tcase_add_loop_test(tc, round_trip, 0, sizeof lengths / sizeof lengths[0]);
	tcase_add_loop_test(tc, received_pieces_are_parsed, 0, sizeof cases / sizeof cases[0]);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
