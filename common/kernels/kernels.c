/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kernels/impl.h"

#include <stdio.h>
#include <string.h>

/* slowest first */
static const struct rs_kernels *const tables[] = {&rs_kernels_scalar, &rs_kernels_neon, &rs_kernels_avx2,
						  &rs_kernels_avx512};
enum { TABLE_NR = sizeof tables / sizeof tables[0] };

const struct rs_kernels *rs_kernels_usable(unsigned i)
{
	for (unsigned t = 0; t < TABLE_NR; t++)
		if (tables[t]->usable() && i-- == 0)
			return tables[t];
	return NULL;
}

/* Writes the usable names: "auto, scalar, avx2". */
static void list_usable(char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "auto");
	const struct rs_kernels *k;

	for (unsigned i = 0; (k = rs_kernels_usable(i)) && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, ", %s", k->name);
}

int rs_kernels_select(const char *name, const struct rs_kernels **ret, struct rs_err *e)
{
	bool any = strcmp(name, "auto") == 0;
	char names[80];

	for (unsigned t = TABLE_NR; t-- > 0;) {
		if (!any && strcmp(name, tables[t]->name) != 0)
			continue;
		if (tables[t]->usable()) {
			*ret = tables[t];
			return RS_OK;
		}
		if (!any) {
			list_usable(names, sizeof names);
			return rs_fail(e, RS_EINVAL, "kernels \"%s\" do not run on this machine, expected one of %s",
				       name, names);
		}
	}
	list_usable(names, sizeof names);
	return rs_fail(e, RS_EINVAL, "there are no kernels \"%.40s\", expected one of %s", name, names);
}
