/* SPDX-License-Identifier: Apache-2.0 */
/* Types and operations of MPI as those of libreduction. */
#include "agent/jax/state.h"

#include <complex.h>
#include <stdlib.h>

/* XLA sends booleans as uint8, and bfloat16 as float32. It refuses float16 itself. */
static const struct jax_type types[] = {
    {&MPIABI_FLOAT, REDUCTION_FLOAT32, 4, 1, false},
    {&MPIABI_DOUBLE, REDUCTION_FLOAT64, 8, 1, false},
    {&MPIABI_INT8_T, REDUCTION_INT8, 1, 1, false},
    {&MPIABI_CHAR, REDUCTION_INT8, 1, 1, false},
    {&MPIABI_UINT8_T, REDUCTION_UINT8, 1, 1, false},
    {&MPIABI_BYTE, REDUCTION_UINT8, 1, 1, false},
    {&MPIABI_C_BOOL, REDUCTION_UINT8, 1, 1, false},
    {&MPIABI_INT16_T, REDUCTION_INT32, 2, 1, true},
    {&MPIABI_UINT16_T, REDUCTION_UINT32, 2, 1, true},
    {&MPIABI_INT32_T, REDUCTION_INT32, 4, 1, false},
    {&MPIABI_INT, REDUCTION_INT32, 4, 1, false},
    {&MPIABI_UINT32_T, REDUCTION_UINT32, 4, 1, false},
    {&MPIABI_INT64_T, REDUCTION_INT64, 8, 1, false},
    {&MPIABI_UINT64_T, REDUCTION_UINT64, 8, 1, false},
    {&MPIABI_C_COMPLEX, REDUCTION_FLOAT32, 8, 2, false},
    {&MPIABI_C_FLOAT_COMPLEX, REDUCTION_FLOAT32, 8, 2, false},
    {&MPIABI_C_DOUBLE_COMPLEX, REDUCTION_FLOAT64, 16, 2, false},
};

bool jax_type_of(jax_handle type, int count, const char *what, const struct jax_type **ret)
{
	if (count < 0) { /* XLA's number of elements does not fit into the int that MPI has for it */
		jax_fail("%s of more than 2147483647 elements is not possible: split the array", what);
		return false;
	}
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (*types[i].handle == type) {
			*ret = &types[i];
			return true;
		}
	jax_fail("%s of this type is not supported by reducers", what);
	return false;
}

bool jax_op_of(jax_handle op, const struct jax_type *type, const char *what, reduction_op *ret)
{
	if (op == MPIABI_SUM)
		*ret = REDUCTION_SUM;
	else if (op == MPIABI_PROD)
		*ret = REDUCTION_PROD;
	else if (type->parts == 1 && (op == MPIABI_MIN || op == MPIABI_LAND))
		*ret = REDUCTION_MIN;
	else if (type->parts == 1 && (op == MPIABI_MAX || op == MPIABI_LOR))
		*ret = REDUCTION_MAX;
	else {
		jax_fail("%s with this operation is not supported by reducers", what);
		return false;
	}
	return true;
}

void jax_widen(const struct jax_type *t, const void *from, void *to, size_t count)
{
	const int16_t *small = from;
	const uint16_t *bits = from;
	int32_t *wide = to;
	uint32_t *wide_bits = to;

	for (size_t i = 0; i < count; i++)
		if (t->dtype == REDUCTION_INT32)
			wide[i] = small[i];
		else
			wide_bits[i] = bits[i];
}

void jax_narrow(const void *from, void *to, size_t count)
{
	const uint32_t *wide = from;
	uint16_t *small = to;

	for (size_t i = 0; i < count; i++)
		small[i] = (uint16_t)wide[i];
}

void jax_multiply_complex(const struct jax_type *t, void *acc, const void *x, size_t count)
{
	if (t->dtype == REDUCTION_FLOAT32)
		for (size_t i = 0; i < count; i++)
			((float complex *)acc)[i] *= ((const float complex *)x)[i];
	else
		for (size_t i = 0; i < count; i++)
			((double complex *)acc)[i] *= ((const double complex *)x)[i];
}
