/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on known numbers that count the callbacks of the exchange. */
#ifndef RS_TESTS_UNIT_FAKE_OPS_H
#define RS_TESTS_UNIT_FAKE_OPS_H

#include "tests/unit/fake_reducer.h"

struct fake_op {
	struct exchange_op op;
	int done;
	struct rs_err err;
	uint64_t filled, landed; /* elements */
};

/* Sets the callbacks. */
void ops_submit(struct reducers *f, struct fake_op *o, struct exchange_op op);
/* Submits a sum. */
void ops_submit_floats(struct reducers *f, struct fake_op *o, const float *send, float *recv, uint64_t count);

/* Allocates exactly this size, so that the sanitizer sees an access past the end; free()
 * it. */
float *ops_numbers(size_t n);
/* Checks that the elements are what fake reducers return. */
void ops_expect_tripled(const float *x, size_t n);

#endif
