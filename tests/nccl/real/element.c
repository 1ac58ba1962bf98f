/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/real/fake.h"

#include <string.h>

size_t element_size(enum kernel_type type)
{
	return type == KERNEL_FLOAT16 || type == KERNEL_BFLOAT16 ? 2 : 4;
}

/* A finite binary16 that is zero or normal: the tests use no other. */
static double half_get(uint16_t bits)
{
	uint32_t wide = (uint32_t)(bits & 0x7fff) << 13;
	float f;

	if (!wide)
		return 0;
	wide += (uint32_t)(127 - 15) << 23;
	wide |= (uint32_t)(bits & 0x8000) << 16;
	memcpy(&f, &wide, sizeof f);
	return (double)f;
}

static uint32_t bits_of(double value)
{
	float f = (float)value;
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

/* Rounds to the nearest, to even in the middle. */
static uint16_t narrow(uint32_t bits, unsigned dropped)
{
	return (uint16_t)((bits + ((1U << (dropped - 1)) - 1) + (bits >> dropped & 1)) >> dropped);
}

double element_get(enum kernel_type type, const void *at)
{
	int32_t i;
	uint16_t h;
	uint32_t wide;
	float f;

	switch (type) {
	case KERNEL_INT32:
		memcpy(&i, at, sizeof i);
		return i;
	case KERNEL_FLOAT16:
		memcpy(&h, at, sizeof h);
		return half_get(h);
	case KERNEL_BFLOAT16:
		memcpy(&h, at, sizeof h);
		wide = (uint32_t)h << 16;
		memcpy(&f, &wide, sizeof f);
		return (double)f;
	default:
		memcpy(&f, at, sizeof f);
		return (double)f;
	}
}

void element_put(enum kernel_type type, void *at, double value)
{
	uint32_t bits = bits_of(value);
	int32_t i = (int32_t)value;
	uint16_t h;

	switch (type) {
	case KERNEL_INT32:
		memcpy(at, &i, sizeof i);
		break;
	case KERNEL_FLOAT16:
		h = value == 0 ? 0 : narrow((bits & 0x7fffffff) - ((uint32_t)(127 - 15) << 23), 13);
		h |= (uint16_t)(bits >> 16 & 0x8000);
		memcpy(at, &h, sizeof h);
		break;
	case KERNEL_BFLOAT16:
		h = narrow(bits, 16);
		memcpy(at, &h, sizeof h);
		break;
	default:
		memcpy(at, &bits, sizeof bits);
	}
}

static double combined(enum kernel_op op, double a, double b)
{
	switch (op) {
	case KERNEL_PROD:
		return a * b;
	case KERNEL_MAX:
		return a > b ? a : b;
	case KERNEL_MIN:
		return a < b ? a : b;
	default:
		return a + b;
	}
}

void element_reduce(const struct kernel *k, void *into, const void *from, size_t n)
{
	size_t size = element_size(k->type);
	char *a = into;
	const char *b = from;

	for (size_t i = 0; i < n; i++)
		element_put(k->type, a + i * size,
			    combined(k->op, element_get(k->type, a + i * size), element_get(k->type, b + i * size)));
}

void element_scale(enum kernel_type type, void *at, size_t n, double factor)
{
	size_t size = element_size(type);
	char *a = at;

	for (size_t i = 0; i < n; i++)
		element_put(type, a + i * size, element_get(type, a + i * size) * factor);
}
