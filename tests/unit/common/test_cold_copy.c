/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cold_copy.h"

#include <check.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 300, ROOM = MOST + 64, MARK = 0xee };

static const size_t sizes[] = {0, 1, 15, 16, 63, 64, 65, 127, 128, 256, MOST};

/* Every size, at every alignment of both sides: the bytes arrive, and none beside them
 * changes. */
START_TEST(copies_exactly)
{
	size_t n = sizes[_i];
	_Alignas(64) uint8_t from[ROOM], to[ROOM];

	for (unsigned i = 0; i < ROOM; i++)
		from[i] = (uint8_t)(i * 7 + 1);
	for (unsigned a = 0; a < 32; a++)
		for (unsigned b = 0; b < 32; b++) {
			memset(to, MARK, sizeof to);
			rs_cold_copy(to + a, from + b, n);
			ck_assert(memcmp(to + a, from + b, n) == 0);
			for (size_t i = 0; i < ROOM; i++)
				if ((i < a || i >= a + n) && to[i] != MARK)
					ck_abort_msg("%zu bytes to %u: byte %zu has changed", n, a, i);
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cold_copy");
	TCase *tc = tcase_create("copies");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, copies_exactly, 0, sizeof sizes / sizeof sizes[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
