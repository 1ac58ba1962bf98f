/* SPDX-License-Identifier: Apache-2.0 */
#include "common/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void rs_assert_failed(const char *file, int line, const char *condition)
{
	dprintf(STDERR_FILENO, "reduction: %s:%d: a bug: %s does not hold; please report it\n", file, line, condition);
	abort();
}

void rs_assert_sound(const char *file, int line, const char *broken)
{
	if (!broken)
		return;
	dprintf(STDERR_FILENO, "reduction: %s:%d: a bug: %s; please report it\n", file, line, broken);
	abort();
}
