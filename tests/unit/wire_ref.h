/* SPDX-License-Identifier: Apache-2.0 */
/* The encodings of common/kernels/kernels.h, written differently from the kernels: values
 * by ldexp, codes by a search among all of them, everything in double. */
#ifndef RS_TESTS_UNIT_WIRE_REF_H
#define RS_TESTS_UNIT_WIRE_REF_H

#include "common/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of a code of an encoding with blocks, without its scale. */
double wref_value(unsigned wire, unsigned code);
/* The largest code of a positive number. The values of those up to it ascend. */
unsigned wref_largest(unsigned wire);
/* The code of element i of a block. codes: behind the scale. */
unsigned wref_code(unsigned wire, const unsigned char *codes, size_t i);
/* The scale of a block whose largest magnitude is amax, finite. */
float wref_scale(unsigned wire, float amax);
/* The 32 random bits of an element. */
uint32_t wref_hash(uint64_t key, uint64_t index);
/* How encodings round. */
struct wref_rounding {
	bool random;
	uint64_t key, first;
};
/* Encodes n float32 elements, which begin with a block. */
void wref_encode(unsigned wire, unsigned char *dst, const float *src, size_t n, struct wref_rounding rounding);
/* The element of a code with a scale, or with RS_WIRE_BF16 and RS_WIRE_SAME the i-th. */
float wref_decode(unsigned wire, const unsigned char *src, size_t i);

#endif
