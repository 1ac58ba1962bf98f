/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that count what the exchange tells of them, on numbers that are known. */
#ifndef RS_TESTS_UNIT_FAKE_OPS_H
#define RS_TESTS_UNIT_FAKE_OPS_H

#include "tests/unit/fake_reducer.h"

struct fake_op {
	struct exchange_op op;
	int done;
	struct rs_err err;
	uint64_t filled, landed; /* elements */
};

/* Fills in the functions. */
void ops_submit(struct reducers *f, struct fake_op *o, struct exchange_op op);
/* A sum. */
void ops_submit_floats(struct reducers *f, struct fake_op *o, const float *send, float *recv, uint64_t count);

/* From memory of exactly this size, so that the sanitizer sees a step past its end; to be freed. */
float *ops_numbers(size_t n);
/* What they are when fake reducers have summed them. */
void ops_expect_tripled(const float *x, size_t n);

#endif
