/* SPDX-License-Identifier: Apache-2.0 */
/* The expected result of a reduction, computed without the kernels. The elements are
 * small whole numbers whose sums are exact in the accumulator in every order and must be
 * rounded in a half type: rounding twice gives another result than rounding once. */
#ifndef RS_TESTS_UNIT_ORACLE_H
#define RS_TESTS_UNIT_ORACLE_H

#include "common/dtype.h"

#include <stdint.h>

/* Element i of a rank's contribution to operation seq, written at element `at` of buf;
 * wide: as float32. */
void oracle_fill(void *buf, uint64_t at, unsigned dtype, bool wide, unsigned op, unsigned rank, uint64_t seq,
		 uint64_t i);

/* Element i of the result, written at element `at` of buf. */
void oracle_result(void *buf, uint64_t at, unsigned dtype, unsigned op, unsigned world, uint64_t processes,
		   uint64_t seq, uint64_t i);

/* The nearest float16 or bfloat16, ties to the even code. */
uint16_t oracle_half(unsigned dtype, double x);
/* The value of a float16 or bfloat16 code. */
double oracle_half_value(unsigned dtype, uint16_t code);

#endif
