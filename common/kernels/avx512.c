/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 F, BW, VL, DQ; see vec.h for the primitives. The conversion of AVX512_BF16 is
 * not used: it flushes denormals to zero. */
#include "common/kernels/impl.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

#include <immintrin.h>

typedef __m512 vec_f32;
typedef __m512d vec_f64;
typedef __mmask16 mask_f32;
typedef __mmask8 mask_f64;
enum { F32_LANES = 16, F64_LANES = 8 };

static inline vec_f32 get_f32(const void *p)
{
	return _mm512_loadu_ps(p);
}

static inline void put_f32(void *p, vec_f32 v)
{
	_mm512_storeu_ps(p, v);
}

static inline vec_f32 max_f32(vec_f32 a, vec_f32 b)
{
	return _mm512_max_ps(a, b);
}

static inline vec_f32 min_f32(vec_f32 a, vec_f32 b)
{
	return _mm512_min_ps(a, b);
}

static inline mask_f32 unordered_f32(vec_f32 a, vec_f32 b)
{
	return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}

static inline bool any_f32(mask_f32 m)
{
	return m != 0;
}

static inline vec_f32 select_f32(mask_f32 m, vec_f32 a, vec_f32 b)
{
	return _mm512_mask_blend_ps(m, b, a);
}

static inline vec_f32 quiet_f32(vec_f32 a)
{
	return _mm512_or_ps(a, _mm512_castsi512_ps(_mm512_set1_epi32((int)F32_QUIET)));
}

static inline vec_f32 nan_f32(void)
{
	return _mm512_castsi512_ps(_mm512_set1_epi32((int)F32_NAN_BITS));
}

/* Without the empty asm, clang 14 splits comparisons of the converted vector into single
 * elements, ten times slower. */
static inline vec_f32 get_f16(const void *p)
{
	vec_f32 v = _mm512_cvtph_ps(_mm256_loadu_si256(p));

	__asm__("" : "+v"(v));
	return v;
}

static inline void put_f16(void *p, vec_f32 v)
{
	_mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec_f32 get_bf16(const void *p)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

static inline void put_bf16(void *p, vec_f32 v)
{
	__m512i bits = _mm512_castps_si512(v),
		odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
	vec_f32 both = select_f32(unordered_f32(v, v), quiet_f32(v), _mm512_castsi512_ps(rounded));

	_mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(both), 16)));
}

static inline vec_f64 get_f64(const void *p)
{
	return _mm512_loadu_pd(p);
}

static inline void put_f64(void *p, vec_f64 v)
{
	_mm512_storeu_pd(p, v);
}

static inline vec_f64 max_f64(vec_f64 a, vec_f64 b)
{
	return _mm512_max_pd(a, b);
}

static inline vec_f64 min_f64(vec_f64 a, vec_f64 b)
{
	return _mm512_min_pd(a, b);
}

static inline mask_f64 unordered_f64(vec_f64 a, vec_f64 b)
{
	return _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q);
}

static inline bool any_f64(mask_f64 m)
{
	return m != 0;
}

static inline vec_f64 select_f64(mask_f64 m, vec_f64 a, vec_f64 b)
{
	return _mm512_mask_blend_pd(m, b, a);
}

static inline vec_f64 quiet_f64(vec_f64 a)
{
	return _mm512_or_pd(a, _mm512_castsi512_pd(_mm512_set1_epi64((long long)F64_QUIET)));
}

static inline vec_f64 nan_f64(void)
{
	return _mm512_castsi512_pd(_mm512_set1_epi64((long long)F64_NAN_BITS));
}

#include "common/kernels/vec.h"

#include "common/kernels/encode.h"

KERNELS_TABLE(avx512, rs_cpu_avx512);

#else

const struct rs_kernels rs_kernels_avx512 = {.name = "avx512", .usable = rs_cpu_never};

#endif
