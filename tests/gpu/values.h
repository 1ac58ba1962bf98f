/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a check send, and what must come back: an oracle of its own, in
 * float64. Types and operations have the numbers of NCCL and of reduction.h. */
#ifndef RS_TESTS_GPU_VALUES_H
#define RS_TESTS_GPU_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	VALUES_TYPES = 10,
	VALUES_OPS = 5,
	VALUES_PERIOD = 262139, /* elements after which the values repeat: a prime, so pieces differ */
};

struct value_type {
	const char *name;
	size_t bytes;
	bool real;
	int bits; /* of a float's mantissa, with the hidden one */
};
extern const struct value_type value_types[VALUES_TYPES];

/* Returns a number that depends on all three, the same on all ranks. */
uint32_t value_mixed(uint32_t a, uint32_t b, uint32_t c);

/* Writes what a rank sends. */
void values_fill(uint8_t *to, size_t count, int type, int op, int rank);

/* Compares a result: integers, products, minima and maxima are exact; a sum or average of
 * floats is within the bound of its roundings. More than VALUES_PERIOD elements must be
 * exact, as sums of float32 are here. Stores the largest error in units of the bound.
 * False: `why` names the element. */
bool values_check(const uint8_t *got, size_t count, int type, int op, int ranks, double *largest, char *why,
		  size_t room);

#endif
