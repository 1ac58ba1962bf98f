/* SPDX-License-Identifier: Apache-2.0 */
/* The encodings of common/wire.h; kernels.h has their layout and arithmetic. Each table
 * file includes this header after its kernels of floats, and so compiles it
 * for its own instructions: all tables compute the same by construction.
 *
 * The form matters, as in loops.h: each loop has the constant count of a block, an
 * incomplete block is copied into a whole one. Codes go to a local array first: it cannot
 * overlap the source, and encoding in place must not overwrite what is still to be read.
 * Subnormal operands are avoided, since many processors take 100 cycles for each. */
#ifndef RS_COMMON_KERNELS_ENCODE_H
#define RS_COMMON_KERNELS_ENCODE_H

#include "common/kernels/impl.h"

#include <string.h>

enum {
	BLOCK_ELEMENTS = RS_WIRE_BLOCK,
	BLOCK_DECODED = RS_WIRE_BLOCK * sizeof(float), /* bytes */
	/* bytes of an encoded block */
	BLOCK_bf16 = 2 * RS_WIRE_BLOCK,
	BLOCK_fp16 = RS_WIRE_BLOCK_BYTES,
	BLOCK_fp8 = RS_WIRE_SCALE + RS_WIRE_BLOCK,
	BLOCK_int8 = RS_WIRE_SCALE + RS_WIRE_BLOCK,
	BLOCK_int4 = RS_WIRE_SCALE + RS_WIRE_BLOCK / 2
};

#define F32_MAGNITUDE UINT32_C(0x7fffffff)
#define F32_INFINITY  UINT32_C(0x7f800000)
#define F32_MIN       UINT32_C(0x00800000) /* 2^-126 */
#define BF16_INFINITY 0x7f80
#define BF16_NAN      0x7fc0

static inline uint32_t wire_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	return u;
}

static inline float wire_float(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static inline uint32_t element_bits(const char *s, size_t i)
{
	uint32_t u;

	memcpy(&u, s + i * sizeof u, sizeof u);
	return u;
}

/* Returns the largest magnitude of a block, as bits: above F32_INFINITY if a NaN is in
 * it. */
static inline uint32_t block_amax(const char *s)
{
	uint32_t max = 0;

	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		uint32_t u = element_bits(s, i) & F32_MAGNITUDE;

		max = u > max ? u : max;
	}
	return max;
}

/* Sets the codes of a block that has a NaN or an infinity; `one` is the code of 1,
 * `minus` that of -1. Returns its scale. */
static uint32_t nonfinite_codes(uint32_t *codes, const char *src, uint32_t amax, uint32_t one, uint32_t minus)
{
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		uint32_t u = element_bits(src, i);

		codes[i] = amax > F32_INFINITY || (u & F32_MAGNITUDE) != F32_INFINITY ? 0 : u >> 31 ? minus : one;
	}
	return amax > F32_INFINITY ? F32_NAN_BITS : F32_INFINITY;
}

static inline void put_scale(char *dst, uint32_t scale)
{
	uint16_t high = (uint16_t)(scale >> 16);

	memcpy(dst, &high, RS_WIRE_SCALE);
}

static inline void put_fp8(char *dst, uint32_t scale, const uint32_t *codes)
{
	put_scale(dst, scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
		dst[RS_WIRE_SCALE + i] = (char)codes[i];
}

static inline void put_int8(char *dst, uint32_t scale, const uint32_t *codes)
{
	put_fp8(dst, scale, codes);
}

static inline void put_int4(char *dst, uint32_t scale, const uint32_t *codes)
{
	put_scale(dst, scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS / 2; i++)
		dst[RS_WIRE_SCALE + i] = (char)((codes[2 * i] & 15) | codes[2 * i + 1] << 4);
}

static inline void put_fp16(char *dst, uint32_t scale, const uint32_t *codes)
{
	uint16_t out[BLOCK_ELEMENTS];

	put_scale(dst, scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
		out[i] = (uint16_t)codes[i];
	memcpy(dst + RS_WIRE_SCALE, out, sizeof out);
}

/* Returns amax / largest, rounded up to bfloat16; `largest` is the largest code. */
static inline uint32_t scale_up(uint32_t amax, float largest)
{
	uint32_t scale = (wire_bits(wire_float(amax) / largest) + 0xffff) & 0xffff0000;

	return scale > F32_MIN ? scale : F32_MIN;
}

/* The power of two that leaves amax from 2^14 to 2^15. */
static inline uint32_t fp16_scale(uint32_t amax)
{
	uint32_t exponent = amax >> 23;

	return (exponent > 15 ? exponent - 14 : 1) << 23;
}

/* Returns 1 / scale of a power of two. */
static inline float fp16_inverse(uint32_t scale)
{
	return wire_float((UINT32_C(254) << 23) - scale);
}

/* Adding a power of two whose last bit has the value of the code's last bit makes the
 * processor round to nearest even there. */
static inline uint32_t fp8_nearest(uint32_t u, float inverse)
{
	uint32_t v = wire_bits(wire_float(u & F32_MAGNITUDE) * inverse), exponent = v & F32_INFINITY;
	uint32_t least = UINT32_C(121) << 23, power;

	exponent = exponent > least ? exponent : least;
	power = exponent + (UINT32_C(20) << 23);
	v = wire_bits(wire_float(v) + wire_float(power)) - power;
	return (u >> 24 & 0x80) | (((exponent - least) >> 20) + v);
}

/* The product is at most 448.0001, which is rounded to 448, so no code needs to be
 * limited. */
static inline void encode_block_fp8(char *dst, const char *src)
{
	uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale;
	float inverse;

	if (amax >= F32_INFINITY) {
		put_fp8(dst, nonfinite_codes(codes, src, amax, 0x38, 0xb8), codes);
		return;
	}
	scale = scale_up(amax, 448);
	inverse = 1 / wire_float(scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
		codes[i] = fp8_nearest(element_bits(src, i), inverse);
	put_fp8(dst, scale, codes);
}

/* The last bit of a sum with 1.5 * 2^23 has the value 1. The product is at most
 * 127.00003, or 7.000001, so no code needs to be limited. */
static inline uint32_t int_nearest(uint32_t u, float inverse)
{
	return wire_bits(wire_float(u) * inverse + 0x1.8p23f);
}

#define DEFINE_ENCODE_BLOCK_INT(wire, largest)                                                                         \
	static inline void encode_block_##wire(char *dst, const char *src)                                             \
	{                                                                                                              \
		uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale;                                         \
		float inverse;                                                                                         \
                                                                                                                       \
		if (amax >= F32_INFINITY) {                                                                            \
			put_##wire(dst, nonfinite_codes(codes, src, amax, 1, UINT32_MAX), codes);                      \
			return;                                                                                        \
		}                                                                                                      \
		scale = scale_up(amax, largest);                                                                       \
		inverse = 1 / wire_float(scale);                                                                       \
		for (size_t i = 0; i < BLOCK_ELEMENTS; i++)                                                            \
			codes[i] = int_nearest(element_bits(src, i), inverse);                                         \
		put_##wire(dst, scale, codes);                                                                         \
	}

DEFINE_ENCODE_BLOCK_INT(int8, 127)
DEFINE_ENCODE_BLOCK_INT(int4, 7)

static inline void encode_block_fp16(char *dst, const char *src)
{
	uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale = fp16_scale(amax);
	float scaled[BLOCK_ELEMENTS], inverse;

	if (amax >= F32_INFINITY) {
		put_fp16(dst, nonfinite_codes(codes, src, amax, 0x3c00, 0xbc00), codes);
		return;
	}
	inverse = fp16_inverse(scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
		scaled[i] = wire_float(element_bits(src, i)) * inverse;
	put_scale(dst, scale);
	store_float16(dst + RS_WIRE_SCALE, scaled, BLOCK_ELEMENTS);
}

/* The random bits of elements whose index has the same upper half. */
struct wire_seed {
	uint32_t first, second;
};

static inline struct wire_seed wire_seed(uint64_t key, uint64_t index)
{
	uint64_t z = key + UINT64_C(0x9e3779b97f4a7c15) * ((index >> 32) + 1);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	z ^= z >> 31;
	return (struct wire_seed){.first = (uint32_t)z, .second = (uint32_t)(z >> 32)};
}

static inline uint32_t wire_hash(struct wire_seed seed, uint32_t index)
{
	uint32_t x = index ^ seed.first;

	x = (x ^ x >> 16) * UINT32_C(0x7feb352d);
	x = (x ^ x >> 15) + seed.second;
	x = x * UINT32_C(0x846ca68b);
	return x ^ x >> 16;
}

static inline void random_block(uint32_t *r, uint64_t key, uint64_t index)
{
	struct wire_seed seed = wire_seed(key, index);
	uint32_t low = (uint32_t)index;

	if (low <= UINT32_MAX - (BLOCK_ELEMENTS - 1)) {
		for (uint32_t i = 0; i < BLOCK_ELEMENTS; i++)
			r[i] = wire_hash(seed, low + i);
		return;
	}
	for (uint64_t i = 0; i < BLOCK_ELEMENTS; i++)
		r[i] = wire_hash(wire_seed(key, index + i), (uint32_t)(index + i));
}

static inline void random_block_bf16(char *dst, const char *src, const uint32_t *r)
{
	uint16_t out[BLOCK_ELEMENTS];

	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		uint32_t u = element_bits(src, i), rounded = u + (r[i] & 0xffff);

		rounded = (u & F32_MAGNITUDE) > F32_INFINITY ? u | F32_QUIET : rounded;
		out[i] = (uint16_t)(rounded >> 16);
	}
	memcpy(dst, out, sizeof out);
}

/* The place of a magnitude among the codes, with 20 binary places for fp8 and 13 for
 * fp16: in each binade, and below the one of `least`, a linear function. */
static inline uint32_t float_place(float v, uint32_t least)
{
	uint32_t exponent = wire_bits(v) & F32_INFINITY;

	exponent = exponent > least ? exponent : least;
	return exponent - least + (uint32_t)(int32_t)(v * wire_float((UINT32_C(277) << 23) - exponent));
}

/* The place of a product among the codes, with 24 binary places. */
static inline int32_t int_place(float v, int32_t largest)
{
	int32_t place = (int32_t)(v * 0x1p24f), most = largest * (1 << 24);

	place = place < most ? place : most;
	return place > -most ? place : -most;
}

static inline void random_block_fp8(char *dst, const char *src, const uint32_t *r)
{
	uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale;
	float inverse;

	if (amax >= F32_INFINITY) {
		put_fp8(dst, nonfinite_codes(codes, src, amax, 0x38, 0xb8), codes);
		return;
	}
	scale = scale_up(amax, 448);
	inverse = 1 / wire_float(scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		uint32_t u = element_bits(src, i), most = UINT32_C(126) << 20;
		uint32_t place = float_place(wire_float(u & F32_MAGNITUDE) * inverse, UINT32_C(121) << 23);

		place = place < most ? place : most;
		codes[i] = (u >> 24 & 0x80) | (place + (r[i] & 0xfffff)) >> 20;
	}
	put_fp8(dst, scale, codes);
}

static inline void random_block_fp16(char *dst, const char *src, const uint32_t *r)
{
	uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale = fp16_scale(amax);
	float inverse;

	if (amax >= F32_INFINITY) {
		put_fp16(dst, nonfinite_codes(codes, src, amax, 0x3c00, 0xbc00), codes);
		return;
	}
	inverse = fp16_inverse(scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		uint32_t u = element_bits(src, i);
		uint32_t place = float_place(wire_float(u & F32_MAGNITUDE) * inverse, UINT32_C(113) << 23);

		codes[i] = (u >> 16 & 0x8000) | (place + (r[i] & 0x1fff)) >> 13;
	}
	put_fp16(dst, scale, codes);
}

#define DEFINE_RANDOM_BLOCK_INT(wire, largest)                                                                         \
	static inline void random_block_##wire(char *dst, const char *src, const uint32_t *r)                          \
	{                                                                                                              \
		uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale;                                         \
		float inverse;                                                                                         \
                                                                                                                       \
		if (amax >= F32_INFINITY) {                                                                            \
			put_##wire(dst, nonfinite_codes(codes, src, amax, 1, UINT32_MAX), codes);                      \
			return;                                                                                        \
		}                                                                                                      \
		scale = scale_up(amax, largest);                                                                       \
		inverse = 1 / wire_float(scale);                                                                       \
		for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {                                                          \
			int32_t place = int_place(wire_float(element_bits(src, i)) * inverse, largest);                \
                                                                                                                       \
			codes[i] = ((uint32_t)place + (r[i] & 0xffffff)) >> 24;                                        \
		}                                                                                                      \
		put_##wire(dst, scale, codes);                                                                         \
	}

DEFINE_RANDOM_BLOCK_INT(int8, 127)
DEFINE_RANDOM_BLOCK_INT(int4, 7)

/* bytes of an incomplete block of n elements */
#define REST_bf16(n) (2 * (n))
#define REST_fp16(n) (RS_WIRE_SCALE + 2 * (n))
#define REST_fp8(n)  (RS_WIRE_SCALE + (n))
#define REST_int8(n) (RS_WIRE_SCALE + (n))
#define REST_int4(n) (RS_WIRE_SCALE + ((n) + 1) / 2)

#define DEFINE_ENCODE(wire)                                                                                            \
	static void encode_##wire(void *dst, const void *src, size_t n)                                                \
	{                                                                                                              \
		char *d = dst, whole[BLOCK_DECODED] = {0}, out[BLOCK_##wire];                                          \
		const char *s = src;                                                                                   \
                                                                                                                       \
		for (; n >= BLOCK_ELEMENTS; n -= BLOCK_ELEMENTS, s += BLOCK_DECODED, d += BLOCK_##wire)                \
			encode_block_##wire(d, s);                                                                     \
		if (n == 0)                                                                                            \
			return;                                                                                        \
		memcpy(whole, s, n * sizeof(float));                                                                   \
		encode_block_##wire(out, whole);                                                                       \
		memcpy(d, out, REST_##wire(n));                                                                        \
	}

DEFINE_ENCODE(fp16)
DEFINE_ENCODE(fp8)
DEFINE_ENCODE(int8)
DEFINE_ENCODE(int4)

#define DEFINE_ENCODE_RANDOM(wire)                                                                                     \
	static void encode_random_##wire(void *dst, const void *src, size_t n, uint64_t key, uint64_t first)           \
	{                                                                                                              \
		char *d = dst, whole[BLOCK_DECODED] = {0}, out[BLOCK_##wire];                                          \
		const char *s = src;                                                                                   \
		uint32_t r[BLOCK_ELEMENTS];                                                                            \
                                                                                                                       \
		for (; n >= BLOCK_ELEMENTS; n -= BLOCK_ELEMENTS, s += BLOCK_DECODED, d += BLOCK_##wire) {              \
			random_block(r, key, first);                                                                   \
			random_block_##wire(d, s, r);                                                                  \
			first += BLOCK_ELEMENTS;                                                                       \
		}                                                                                                      \
		if (n == 0)                                                                                            \
			return;                                                                                        \
		memcpy(whole, s, n * sizeof(float));                                                                   \
		random_block(r, key, first);                                                                           \
		random_block_##wire(out, whole, r);                                                                    \
		memcpy(d, out, REST_##wire(n));                                                                        \
	}

DEFINE_ENCODE_RANDOM(bf16)
DEFINE_ENCODE_RANDOM(fp16)
DEFINE_ENCODE_RANDOM(fp8)
DEFINE_ENCODE_RANDOM(int8)
DEFINE_ENCODE_RANDOM(int4)

static void encode_random_same(void *dst, const void *src, size_t n, uint64_t key, uint64_t first)
{
	(void)key;
	(void)first;
	store_float32(dst, src, n);
}

/* The bits of a code in their places of a float32 are the value v of a normal number. A
 * subnormal code * 2^-9 gives v = 2^-7 * (1 + code / 8) instead: it is 2 * v - 2^-6,
 * which is less than v only below 2^-6. */
static inline float fp8_value(unsigned char code)
{
	uint32_t c = code;
	float v = wire_float(((c & 0x7f) << 20) + (UINT32_C(120) << 23)), subnormal = v + v - 0x1p-6f;

	v = v < subnormal ? v : subnormal;
	return wire_float(wire_bits(v) | (c & 0x80) << 24);
}

static inline float int8_value(unsigned char code)
{
	return (float)(signed char)code;
}

/* Decodes with a scale that is a NaN or an infinity; `mask` has the bits of a code that
 * are 0 in a zero. */
static void decode_nonfinite(char *dst, const unsigned char *codes, uint32_t scale, unsigned mask)
{
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		uint32_t sign = (scale ^ (uint32_t)codes[i] << 24) & ~F32_MAGNITUDE, u = sign | F32_INFINITY;

		if ((scale & F32_MAGNITUDE) > F32_INFINITY || (codes[i] & mask) == 0)
			u = F32_NAN_BITS;
		memcpy(dst + i * sizeof u, &u, sizeof u);
	}
}

/* __builtin_memcpy, because clang 14 does not vectorize what memcpy becomes with
 * _FORTIFY_SOURCE. */
#define DEFINE_DECODE_CODES(wire, mask)                                                                                \
	static inline void decode_codes_##wire(char *restrict dst, uint16_t high, const unsigned char *restrict codes) \
	{                                                                                                              \
		uint32_t scale = (uint32_t)high << 16;                                                                 \
                                                                                                                       \
		if ((scale & F32_INFINITY) == F32_INFINITY) {                                                          \
			decode_nonfinite(dst, codes, scale, mask);                                                     \
			return;                                                                                        \
		}                                                                                                      \
		for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {                                                          \
			float v = wire##_value(codes[i]) * wire_float(scale);                                          \
                                                                                                                       \
			__builtin_memcpy(dst + i * sizeof v, &v, sizeof v);                                            \
		}                                                                                                      \
	}

DEFINE_DECODE_CODES(fp8, 0x7f)
DEFINE_DECODE_CODES(int8, 0xff)

static inline uint16_t block_scale(const char *src)
{
	uint16_t high;

	memcpy(&high, src, RS_WIRE_SCALE);
	return high;
}

static inline void decode_block_fp8(char *restrict dst, const char *restrict src)
{
	decode_codes_fp8(dst, block_scale(src), (const unsigned char *)src + RS_WIRE_SCALE);
}

static inline void decode_block_int8(char *restrict dst, const char *restrict src)
{
	decode_codes_int8(dst, block_scale(src), (const unsigned char *)src + RS_WIRE_SCALE);
}

static inline void decode_block_int4(char *restrict dst, const char *restrict src)
{
	unsigned char codes[BLOCK_ELEMENTS];

	for (size_t i = 0; i < BLOCK_ELEMENTS / 2; i++) {
		unsigned char pair = (unsigned char)src[RS_WIRE_SCALE + i];

		codes[2 * i] = (unsigned char)(((pair & 15) ^ 8) - 8);
		codes[2 * i + 1] = (unsigned char)(((pair >> 4) ^ 8) - 8);
	}
	decode_codes_int8(dst, block_scale(src), codes);
}

static inline void decode_block_fp16(char *restrict dst, const char *restrict src)
{
	float values[BLOCK_ELEMENTS], scale = wire_float((uint32_t)block_scale(src) << 16);

	load_float16(values, src + RS_WIRE_SCALE, BLOCK_ELEMENTS);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		float v = values[i] * scale;
		uint32_t u = v == v ? wire_bits(v) : F32_NAN_BITS;

		__builtin_memcpy(dst + i * sizeof u, &u, sizeof u);
	}
}

#define DEFINE_DECODE(wire)                                                                                            \
	static void decode_##wire(void *acc, const void *src, size_t n)                                                \
	{                                                                                                              \
		char *a = acc, whole[BLOCK_##wire] = {0}, out[BLOCK_DECODED];                                          \
		const char *s = src;                                                                                   \
                                                                                                                       \
		for (; n >= BLOCK_ELEMENTS; n -= BLOCK_ELEMENTS, s += BLOCK_##wire, a += BLOCK_DECODED)                \
			decode_block_##wire(a, s);                                                                     \
		if (n == 0)                                                                                            \
			return;                                                                                        \
		memcpy(whole, s, REST_##wire(n));                                                                      \
		decode_block_##wire(out, whole);                                                                       \
		memcpy(a, out, n * sizeof(float));                                                                     \
	}                                                                                                              \
	static void add_##wire(void *acc, const void *src, size_t n)                                                   \
	{                                                                                                              \
		char *a = acc, out[BLOCK_DECODED];                                                                     \
		const char *s = src;                                                                                   \
                                                                                                                       \
		for (; n >= BLOCK_ELEMENTS; n -= BLOCK_ELEMENTS, s += BLOCK_##wire, a += BLOCK_DECODED) {              \
			decode_block_##wire(out, s);                                                                   \
			sum_float32(a, out, BLOCK_ELEMENTS);                                                           \
		}                                                                                                      \
		decode_##wire(out, s, n);                                                                              \
		sum_float32(a, out, n);                                                                                \
	}

DEFINE_DECODE(fp16)
DEFINE_DECODE(fp8)
DEFINE_DECODE(int8)
DEFINE_DECODE(int4)

#endif
