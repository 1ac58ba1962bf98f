/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/wire_ref.h"
#include "tests/unit/kernels_ref.h"

#include <math.h>
#include <string.h>

double wref_value(unsigned wire, unsigned code)
{
	int exponent = code >> 3 & 15, fraction = code & 7;
	double v;

	if (wire == RS_WIRE_FP16)
		return (double)kref_load(RS_FLOAT16, (uint16_t)code);
	if (wire == RS_WIRE_INT4)
		return (code & 15) < 8 ? code & 15 : (double)(code & 15) - 16;
	if (wire == RS_WIRE_INT8)
		return code < 128 ? code : (double)code - 256;
	v = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);
	return code & 0x80 ? -v : v;
}

unsigned wref_largest(unsigned wire)
{
	return wire == RS_WIRE_FP16 ? 0x7800 : wire == RS_WIRE_FP8 ? 126 : wire == RS_WIRE_INT8 ? 127 : 7;
}

float wref_scale(unsigned wire, float amax)
{
	float least = 0x1p-126f, exact = (float)((double)amax / wref_value(wire, wref_largest(wire))), scale;

	if (wire == RS_WIRE_FP16) {
		for (scale = least; (double)amax >= 32768 * (double)scale;)
			scale *= 2;
		return scale;
	}
	scale = kref_bits_float(kref_float_bits(exact) & 0xffff0000);
	if (scale < exact)
		scale = kref_bits_float(kref_float_bits(scale) + 0x10000);
	return scale < least ? least : scale;
}

uint32_t wref_hash(uint64_t key, uint64_t index)
{
	uint64_t state = key + UINT64_C(0x9e3779b97f4a7c15) * (index >> 32), z = kref_random(&state);
	uint64_t x = (index ^ z) & 0xffffffff;

	x = (x ^ x / 65536) * 0x7feb352d % (UINT64_C(1) << 32);
	x = ((x ^ x / 32768) + z / (UINT64_C(1) << 32)) % (UINT64_C(1) << 32);
	x = x * 0x846ca68b % (UINT64_C(1) << 32);
	return (uint32_t)(x ^ x / 65536);
}

/* The code of a magnitude, among 0 .. wref_largest(). */
static unsigned float_code(unsigned wire, double v, bool random, uint32_t r)
{
	unsigned low = 0, high = wref_largest(wire), places = wire == RS_WIRE_FP16 ? 13 : 20;
	double below, step;

	v = fmin(v, wref_value(wire, high));
	while (low < high) {
		unsigned middle = (low + high + 1) / 2;

		if (wref_value(wire, middle) <= v)
			low = middle;
		else
			high = middle - 1;
	}
	below = wref_value(wire, low);
	step = wref_value(wire, low + 1) - below;
	if (random)
		return low + (floor(ldexp((v - below) / step, (int)places)) + (r & ((1u << places) - 1)) >=
			      ldexp(1, (int)places));
	if (v - below == step / 2)
		return low + (low & 1);
	return low + (v - below > step / 2);
}

static unsigned int_code(unsigned wire, float v, bool random, uint32_t r)
{
	double most = wref_largest(wire), d = fmin(fmax((double)v, -most), most);
	int code;

	if (random)
		code = (int)floor((trunc(ldexp(d, 24)) + (r & 0xffffff)) / 0x1p24);
	else
		code = (int)nearbyint(d);
	return (unsigned)code;
}

static unsigned code_of(unsigned wire, float x, float scale, bool random, uint32_t r)
{
	float v = x * (1 / scale);
	unsigned sign = signbit(x) != 0;

	if (wire == RS_WIRE_FP16)
		return sign << 15 | float_code(wire, fabs((double)v), random, r);
	if (wire == RS_WIRE_FP8)
		return sign << 7 | float_code(wire, fabs((double)v), random, r);
	return int_code(wire, v, random, r);
}

/* The code of 1 or -1. */
static unsigned one_of(unsigned wire, bool minus)
{
	if (wire == RS_WIRE_FP16)
		return minus ? 0xbc00 : 0x3c00;
	if (wire == RS_WIRE_FP8)
		return minus ? 0xb8 : 0x38;
	return minus ? UINT32_MAX : 1;
}

/* Writes the code of element i of a block. */
static void put_code(unsigned wire, unsigned char *codes, size_t i, unsigned code)
{
	if (wire == RS_WIRE_FP16)
		memcpy(codes + 2 * i, &(uint16_t){(uint16_t)code}, 2);
	else if (wire == RS_WIRE_INT4 && i % 2)
		codes[i / 2] |= (unsigned char)(code << 4);
	else if (wire == RS_WIRE_INT4)
		codes[i / 2] = code & 15;
	else
		codes[i] = (unsigned char)code;
}

unsigned wref_code(unsigned wire, const unsigned char *codes, size_t i)
{
	uint16_t half;

	if (wire == RS_WIRE_FP16) {
		memcpy(&half, codes + 2 * i, sizeof half);
		return half;
	}
	return wire == RS_WIRE_INT4 ? codes[i / 2] >> i % 2 * 4 & 15 : codes[i];
}

static void encode_block(unsigned wire, unsigned char *dst, const float *src, size_t n, struct wref_rounding rounding)
{
	bool nan = false, inf = false;
	float amax = 0, scale;
	uint32_t bits;

	for (size_t i = 0; i < n; i++) {
		nan |= isnan(src[i]);
		inf |= isinf(src[i]);
		if (isfinite(src[i]))
			amax = fmaxf(amax, fabsf(src[i]));
	}
	scale = nan ? NAN : inf ? INFINITY : wref_scale(wire, amax);
	bits = nan ? 0x7fc00000 : kref_float_bits(scale);
	memcpy(dst, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
	for (size_t i = 0; i < n; i++) {
		uint32_t r = wref_hash(rounding.key, rounding.first + i);
		unsigned code = nan || isfinite(src[i]) ? 0 : one_of(wire, signbit(src[i]));

		if (!nan && !inf)
			code = code_of(wire, src[i], scale, rounding.random, r);
		put_code(wire, dst + RS_WIRE_SCALE, i, code);
	}
}

static uint16_t random_bf16(float x, uint32_t r)
{
	uint32_t bits = kref_float_bits(x);

	return isnan(x) ? kref_store(RS_BFLOAT16, x) : (uint16_t)((bits + (r & 0xffff)) / 65536);
}

void wref_encode(unsigned wire, unsigned char *dst, const float *src, size_t n, struct wref_rounding rounding)
{
	for (size_t i = 0; i < n && wire == RS_WIRE_BF16; i++) {
		uint32_t r = wref_hash(rounding.key, rounding.first + i);
		uint16_t half = rounding.random ? random_bf16(src[i], r) : kref_store(RS_BFLOAT16, src[i]);

		memcpy(dst + 2 * i, &half, 2);
	}
	if (wire == RS_WIRE_SAME && n > 0)
		memcpy(dst, src, n * sizeof *src);
	for (size_t i = 0; i < n && rs_wire_has_blocks(wire); i += RS_WIRE_BLOCK) {
		encode_block(wire, dst, src + i, n - i < RS_WIRE_BLOCK ? n - i : RS_WIRE_BLOCK, rounding);
		rounding.first += RS_WIRE_BLOCK;
		dst += rs_wire_bytes(wire, 0, RS_WIRE_BLOCK);
	}
}

float wref_decode(unsigned wire, const unsigned char *src, size_t i)
{
	uint16_t half;
	double value;
	float f;

	if (wire == RS_WIRE_SAME) {
		memcpy(&f, src + i * sizeof f, sizeof f);
		return f;
	}
	if (wire == RS_WIRE_BF16) {
		memcpy(&half, src + 2 * i, sizeof half);
		return kref_load(RS_BFLOAT16, half);
	}
	src += i / RS_WIRE_BLOCK * rs_wire_bytes(wire, 0, RS_WIRE_BLOCK);
	memcpy(&half, src, sizeof half);
	value = wref_value(wire, wref_code(wire, src + RS_WIRE_SCALE, i % RS_WIRE_BLOCK));
	value *= (double)kref_load(RS_BFLOAT16, half);
	return isnan(value) ? kref_bits_float(0x7fc00000) : (float)value;
}
