/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels must compute, written differently from them: half types by arithmetic
 * instead of bits, float32 by way of double. And the values with which they are
 * tested. */
#ifndef RS_TESTS_UNIT_KERNELS_REF_H
#define RS_TESTS_UNIT_KERNELS_REF_H

#include "common/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An element or accumulator of any dtype; the narrower ones are at its start. */
union kref_element {
	int8_t i8;
	uint8_t u8;
	int32_t i32;
	uint32_t u32;
	int64_t i64;
	uint64_t u64;
	uint16_t h;
	float f;
	double d;
};

uint32_t kref_float_bits(float f);
float kref_bits_float(uint32_t u);

/* Converts between float32 and a half type. */
float kref_load(unsigned dtype, uint16_t h);
uint16_t kref_store(unsigned dtype, float f);
/* Returns the accumulator after one more element, and after the division of an
 * average. */
union kref_element kref_reduce(unsigned dtype, unsigned op, const union kref_element *acc,
			       const union kref_element *src);
union kref_element kref_divide(unsigned dtype, const union kref_element *acc, uint64_t divisor);

/* The dtype of the accumulators. */
unsigned kref_acc_dtype(unsigned dtype);
/* Numbers that are the same in every run. */
uint64_t kref_random(uint64_t *state);
/* Returns the i-th special value of a dtype, wrapping around; n gets the number of
 * values. */
union kref_element kref_special(unsigned dtype, size_t i, size_t *n);
/* Fills n elements with random bits, every third one a special value. `calm`: small
 * numbers only, so that vectors without any NaN occur too. */
void kref_fill(unsigned dtype, unsigned char *p, size_t n, uint64_t seed, bool calm);

#endif
