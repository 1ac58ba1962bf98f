/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load.h"

#include "bench/bench.h"

#include <stdlib.h>

/* Returns the limit up to which whole numbers are exact in the dtype. Integers wrap in
 * the same way on both sides, so they have room enough. */
static unsigned exact_limit(enum rs_dtype dtype)
{
	return dtype == RS_FLOAT16 ? 2048 : dtype == RS_BFLOAT16 ? 256 : 1000000;
}

/* Returns element i of a rank of this class, 0..most. Neighbours differ, and so do
 * classes. */
static long value(unsigned most, unsigned class, uint32_t i)
{
	return (long)((i * UINT64_C(7) + class * 13) % (most + 1));
}

int load_data_init(struct load_data *d, enum rs_dtype dtype, unsigned ranks, uint32_t chunk_elems, struct rs_err *e)
{
	unsigned most = exact_limit(dtype) / ranks;
	size_t n = (size_t)chunk_elems + LOAD_PERIOD;

	*d = (struct load_data){.elem = rs_dtype_size(dtype)};
	if (most == 0)
		return rs_fail(e, RS_EINVAL, "sums of %u ranks in %s are not exact, so they cannot be checked: use %s",
			       ranks, rs_dtype_name(dtype), "at most 256 ranks, or another dtype");
	d->expected = calloc(n, d->elem);
	for (unsigned c = 0; c < LOAD_CLASSES; c++)
		d->mine[c] = calloc(n, d->elem);
	for (unsigned c = 0; c < LOAD_CLASSES; c++)
		if (!d->mine[c] || !d->expected) {
			load_data_close(d);
			return rs_oom(e, 0, "the contributions");
		}
	for (uint32_t i = 0; i < n; i++) {
		long sum = 0;

		for (unsigned c = 0; c < LOAD_CLASSES; c++) {
			long members = ranks / LOAD_CLASSES + (c < ranks % LOAD_CLASSES);

			bench_store(d->mine[c] + i * d->elem, dtype, value(most, c, i));
			sum += members * value(most, c, i);
		}
		bench_store(d->expected + i * d->elem, dtype, sum);
	}
	return RS_OK;
}

void load_data_close(struct load_data *d)
{
	free(d->expected);
	for (unsigned c = 0; c < LOAD_CLASSES; c++)
		free(d->mine[c]);
}
