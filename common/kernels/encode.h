/* SPDX-License-Identifier: Apache-2.0 */
/* The encodings of common/wire.h; kernels.h has their layout and arithmetic. Each table
 * file includes this header after its float32 and bfloat16 kernels, and so compiles it
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
	BLOCK_ENCODED = RS_WIRE_SCALE + RS_WIRE_BLOCK, /* bytes */
	BLOCK_DECODED = RS_WIRE_BLOCK * sizeof(float)
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

/* Encodes a block that has a NaN or an infinity; `one` is the code of 1, `minus` that of
 * -1. */
static void encode_nonfinite(char *dst, const char *src, uint32_t amax, unsigned char one, unsigned char minus)
{
	const uint16_t scale = amax > F32_INFINITY ? BF16_NAN : BF16_INFINITY;
	unsigned char codes[BLOCK_ELEMENTS];

	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		uint32_t u = element_bits(src, i);

		codes[i] = amax > F32_INFINITY || (u & F32_MAGNITUDE) != F32_INFINITY ? 0 : u >> 31 ? minus : one;
	}
	memcpy(dst, &scale, RS_WIRE_SCALE);
	memcpy(dst + RS_WIRE_SCALE, codes, BLOCK_ELEMENTS);
}

static inline void put_block(char *dst, uint32_t scale, const uint32_t *codes)
{
	uint16_t high = (uint16_t)(scale >> 16);

	memcpy(dst, &high, RS_WIRE_SCALE);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
		dst[RS_WIRE_SCALE + i] = (char)codes[i];
}

/* The scale of fp8: its exponent is that of amax less 8, and one more if amax is above
 * 1.75 times its power of two. */
static inline uint32_t fp8_scale(uint32_t amax)
{
	uint32_t exponent = (amax + 0x1fffff) >> 23;

	return (exponent > 9 ? exponent - 8 : 1) << 23;
}

/* Returns 1 / scale of a power of two. */
static inline float fp8_inverse(uint32_t scale)
{
	return wire_float((UINT32_C(254) << 23) - scale);
}

static inline uint32_t int8_scale(uint32_t amax)
{
	uint32_t scale = (wire_bits(wire_float(amax) / 127) + 0xffff) & 0xffff0000;

	return scale > F32_MIN ? scale : F32_MIN;
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

static inline void encode_block_fp8(char *dst, const char *src)
{
	uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale = fp8_scale(amax);
	float inverse;

	if (amax >= F32_INFINITY) {
		encode_nonfinite(dst, src, amax, 0x38, 0xb8);
		return;
	}
	inverse = fp8_inverse(scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
		codes[i] = fp8_nearest(element_bits(src, i), inverse);
	put_block(dst, scale, codes);
}

/* The last bit of a sum with 1.5 * 2^23 has the value 1. The product is at most
 * 127.00003, so no code needs to be limited. */
static inline uint32_t int8_nearest(uint32_t u, float inverse)
{
	return wire_bits(wire_float(u) * inverse + 0x1.8p23f);
}

static inline void encode_block_int8(char *dst, const char *src)
{
	uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale;
	float inverse;

	if (amax >= F32_INFINITY) {
		encode_nonfinite(dst, src, amax, 1, 0xff);
		return;
	}
	scale = int8_scale(amax);
	inverse = 1 / wire_float(scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++)
		codes[i] = int8_nearest(element_bits(src, i), inverse);
	put_block(dst, scale, codes);
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

/* The place of a magnitude among the codes, with 20 binary places: in each binade, and
 * below 2^-6, a linear function. */
static inline uint32_t fp8_place(float v)
{
	uint32_t exponent = wire_bits(v) & F32_INFINITY, least = UINT32_C(121) << 23;

	exponent = exponent > least ? exponent : least;
	return exponent - least + (uint32_t)(int32_t)(v * wire_float((UINT32_C(277) << 23) - exponent));
}

/* The place of a product among the codes, with 24 binary places. */
static inline int32_t int8_place(float v)
{
	int32_t place = (int32_t)(v * 0x1p24f), most = 127 << 24;

	place = place < most ? place : most;
	return place > -most ? place : -most;
}

static inline void random_block_fp8(char *dst, const char *src, const uint32_t *r)
{
	uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale = fp8_scale(amax);
	float inverse;

	if (amax >= F32_INFINITY) {
		encode_nonfinite(dst, src, amax, 0x38, 0xb8);
		return;
	}
	inverse = fp8_inverse(scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		uint32_t u = element_bits(src, i), place = fp8_place(wire_float(u & F32_MAGNITUDE) * inverse);

		codes[i] = ((u >> 24 & 0x80) | (place + (r[i] & 0xfffff)) >> 20);
	}
	put_block(dst, scale, codes);
}

static inline void random_block_int8(char *dst, const char *src, const uint32_t *r)
{
	uint32_t codes[BLOCK_ELEMENTS], amax = block_amax(src), scale;
	float inverse;

	if (amax >= F32_INFINITY) {
		encode_nonfinite(dst, src, amax, 1, 0xff);
		return;
	}
	scale = int8_scale(amax);
	inverse = 1 / wire_float(scale);
	for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {
		int32_t place = int8_place(wire_float(element_bits(src, i)) * inverse);

		codes[i] = ((uint32_t)place + (r[i] & 0xffffff)) >> 24;
	}
	put_block(dst, scale, codes);
}

#define DEFINE_ENCODE(wire)                                                                                            \
	static void encode_##wire(void *dst, const void *src, size_t n)                                                \
	{                                                                                                              \
		char *d = dst, whole[BLOCK_DECODED] = {0}, out[BLOCK_ENCODED];                                         \
		const char *s = src;                                                                                   \
                                                                                                                       \
		for (; n >= BLOCK_ELEMENTS; n -= BLOCK_ELEMENTS, s += BLOCK_DECODED, d += BLOCK_ENCODED)               \
			encode_block_##wire(d, s);                                                                     \
		if (n == 0)                                                                                            \
			return;                                                                                        \
		memcpy(whole, s, n * sizeof(float));                                                                   \
		encode_block_##wire(out, whole);                                                                       \
		memcpy(d, out, RS_WIRE_SCALE + n);                                                                     \
	}

DEFINE_ENCODE(fp8)
DEFINE_ENCODE(int8)

/* block: bytes of an encoded block; rest: those of an incomplete one of n elements */
#define DEFINE_ENCODE_RANDOM(wire, block, rest)                                                                        \
	static void encode_random_##wire(void *dst, const void *src, size_t n, uint64_t key, uint64_t first)           \
	{                                                                                                              \
		char *d = dst, whole[BLOCK_DECODED] = {0}, out[block];                                                 \
		const char *s = src;                                                                                   \
		uint32_t r[BLOCK_ELEMENTS];                                                                            \
                                                                                                                       \
		for (; n >= BLOCK_ELEMENTS; n -= BLOCK_ELEMENTS, s += BLOCK_DECODED, d += (block)) {                   \
			random_block(r, key, first);                                                                   \
			random_block_##wire(d, s, r);                                                                  \
			first += BLOCK_ELEMENTS;                                                                       \
		}                                                                                                      \
		if (n == 0)                                                                                            \
			return;                                                                                        \
		memcpy(whole, s, n * sizeof(float));                                                                   \
		random_block(r, key, first);                                                                           \
		random_block_##wire(out, whole, r);                                                                    \
		memcpy(d, out, rest);                                                                                  \
	}

DEFINE_ENCODE_RANDOM(bf16, 2 * BLOCK_ELEMENTS, 2 * n)
DEFINE_ENCODE_RANDOM(fp8, BLOCK_ENCODED, RS_WIRE_SCALE + n)
DEFINE_ENCODE_RANDOM(int8, BLOCK_ENCODED, RS_WIRE_SCALE + n)

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
#define DEFINE_DECODE(wire, mask)                                                                                      \
	static inline void decode_block_##wire(char *restrict dst, const char *restrict src)                           \
	{                                                                                                              \
		const unsigned char *codes = (const unsigned char *)src + RS_WIRE_SCALE;                               \
		uint16_t high;                                                                                         \
		uint32_t scale;                                                                                        \
                                                                                                                       \
		memcpy(&high, src, RS_WIRE_SCALE);                                                                     \
		scale = (uint32_t)high << 16;                                                                          \
		if ((scale & F32_INFINITY) == F32_INFINITY) {                                                          \
			decode_nonfinite(dst, codes, scale, mask);                                                     \
			return;                                                                                        \
		}                                                                                                      \
		for (size_t i = 0; i < BLOCK_ELEMENTS; i++) {                                                          \
			float v = wire##_value(codes[i]) * wire_float(scale);                                          \
                                                                                                                       \
			__builtin_memcpy(dst + i * sizeof v, &v, sizeof v);                                            \
		}                                                                                                      \
	}                                                                                                              \
	static void decode_##wire(void *acc, const void *src, size_t n)                                                \
	{                                                                                                              \
		char *a = acc, whole[BLOCK_ENCODED] = {0}, out[BLOCK_DECODED];                                         \
		const char *s = src;                                                                                   \
                                                                                                                       \
		for (; n >= BLOCK_ELEMENTS; n -= BLOCK_ELEMENTS, s += BLOCK_ENCODED, a += BLOCK_DECODED)               \
			decode_block_##wire(a, s);                                                                     \
		if (n == 0)                                                                                            \
			return;                                                                                        \
		memcpy(whole, s, RS_WIRE_SCALE + n);                                                                   \
		decode_block_##wire(out, whole);                                                                       \
		memcpy(a, out, n * sizeof(float));                                                                     \
	}                                                                                                              \
	static void add_##wire(void *acc, const void *src, size_t n)                                                   \
	{                                                                                                              \
		char *a = acc, out[BLOCK_DECODED];                                                                     \
		const char *s = src;                                                                                   \
                                                                                                                       \
		for (; n >= BLOCK_ELEMENTS; n -= BLOCK_ELEMENTS, s += BLOCK_ENCODED, a += BLOCK_DECODED) {             \
			decode_block_##wire(out, s);                                                                   \
			sum_float32(a, out, BLOCK_ELEMENTS);                                                           \
		}                                                                                                      \
		decode_##wire(out, s, n);                                                                              \
		sum_float32(a, out, n);                                                                                \
	}

DEFINE_DECODE(fp8, 0x7f)
DEFINE_DECODE(int8, 0xff)

#endif
