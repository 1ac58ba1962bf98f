/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/wire_ref.h"
#include "tests/unit/kernels_ref.h"

#include <math.h>
#include <string.h>

double wref_value(unsigned wire, unsigned code)
{
	int exponent = code >> 3 & 15, fraction = code & 7;
	double v;

	if (wire == RS_WIRE_INT8)
		return code < 128 ? code : (double)code - 256;
	v = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);
	return code & 0x80 ? -v : v;
}

float wref_scale(unsigned wire, float amax)
{
	float least = 0x1p-126f, exact = (float)((double)amax / 127), scale;

	if (wire == RS_WIRE_FP8) {
		for (scale = least; (double)amax > 448 * (double)scale;)
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

/* The code of x / scale among 0 .. 126, without a sign. */
static unsigned fp8_code(double v, bool random, uint32_t r)
{
	unsigned low = 0;
	double below, step;

	while (low < 126 && wref_value(RS_WIRE_FP8, low + 1) <= v)
		low++;
	below = wref_value(RS_WIRE_FP8, low);
	step = wref_value(RS_WIRE_FP8, low + 1) - below;
	if (random)
		return low + (floor(ldexp((v - below) / step, 20)) + (r & 0xfffff) >= 0x1p20);
	if (v - below == step / 2)
		return low + (low & 1);
	return low + (v - below > step / 2);
}

static unsigned int8_code(float v, bool random, uint32_t r)
{
	double d = fmin(fmax(v, -127), 127);
	int code;

	if (random)
		code = (int)floor((trunc(ldexp(d, 24)) + (r & 0xffffff)) / 0x1p24);
	else
		code = (int)nearbyint(d);
	return (unsigned)code & 0xff;
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
		unsigned sign = signbit(src[i]) ? 0x80 : 0, one = wire == RS_WIRE_FP8 ? sign | 0x38 : sign ? 0xff : 1;

		if (nan || inf)
			dst[2 + i] = (unsigned char)(nan || isfinite(src[i]) ? 0 : one);
		else if (wire == RS_WIRE_FP8)
			dst[2 + i] =
			    (unsigned char)(sign | fp8_code(fabs((double)src[i]) / (double)scale, rounding.random, r));
		else
			dst[2 + i] = (unsigned char)int8_code(src[i] * (1 / scale), rounding.random, r);
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
		dst += RS_WIRE_SCALE + RS_WIRE_BLOCK;
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
	src += i / RS_WIRE_BLOCK * (RS_WIRE_BLOCK + RS_WIRE_SCALE);
	memcpy(&half, src, sizeof half);
	value = wref_value(wire, src[RS_WIRE_SCALE + i % RS_WIRE_BLOCK]) * (double)kref_load(RS_BFLOAT16, half);
	return isnan(value) ? kref_bits_float(0x7fc00000) : (float)value;
}
