/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_environment.h"

#include <stddef.h>
#include <string.h>

const char *fake_getenv(void *ctx, const char *name)
{
	const char *const *env = ctx;
	size_t n = strlen(name);

	for (; *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}
