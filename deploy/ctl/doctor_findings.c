/* SPDX-License-Identifier: Apache-2.0 */
/* The list of findings, and when one of several stands out. */
#include "deploy/ctl/doctor.h"

#include <string.h>

void findings_put(struct findings *all, const struct finding *f)
{
	unsigned i = all->n;

	while (i > 0 && all->at[i - 1].score < f->score)
		i--;
	if (i == FINDINGS_MAX)
		return;
	if (all->n < FINDINGS_MAX)
		all->n++;
	memmove(&all->at[i + 1], &all->at[i], (all->n - 1 - i) * sizeof all->at[0]);
	all->at[i] = *f;
}

bool doctor_stands_out(uint64_t permil, uint64_t all, size_t n)
{
	return permil >= LATE_PERMIL && n > 1 && permil >= LATE_TIMES * (all - permil) / (n - 1);
}
