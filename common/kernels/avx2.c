/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 with F16C; see vec.h for the primitives. */
#include "common/kernels/impl.h"

#if defined(__AVX2__) && defined(__F16C__)

#include <immintrin.h>

typedef __m256 vec_f32;
typedef __m256d vec_f64;
typedef __m256i mask_f32;
typedef __m256i mask_f64;
enum { F32_LANES = 8, F64_LANES = 4 };

static inline vec_f32 get_f32(const void *p)
{
	return _mm256_loadu_ps(p);
}

static inline void put_f32(void *p, vec_f32 v)
{
	_mm256_storeu_ps(p, v);
}

static inline vec_f32 max_f32(vec_f32 a, vec_f32 b)
{
	return _mm256_max_ps(a, b);
}

static inline vec_f32 min_f32(vec_f32 a, vec_f32 b)
{
	return _mm256_min_ps(a, b);
}

static inline mask_f32 unordered_f32(vec_f32 a, vec_f32 b)
{
	return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}

static inline bool any_f32(mask_f32 m)
{
	return !_mm256_testz_si256(m, m);
}

static inline vec_f32 select_f32(mask_f32 m, vec_f32 a, vec_f32 b)
{
	return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m));
}

static inline vec_f32 quiet_f32(vec_f32 a)
{
	return _mm256_or_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32((int)F32_QUIET)));
}

static inline vec_f32 nan_f32(void)
{
	return _mm256_castsi256_ps(_mm256_set1_epi32((int)F32_NAN_BITS));
}

/* Without the empty asm, clang 14 splits comparisons of the converted vector into single
 * elements, ten times slower. */
static inline vec_f32 get_f16(const void *p)
{
	vec_f32 v = _mm256_cvtph_ps(_mm_loadu_si128(p));

	__asm__("" : "+x"(v));
	return v;
}

static inline void put_f16(void *p, vec_f32 v)
{
	_mm_storeu_si128(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec_f32 get_bf16(const void *p)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

static inline void put_bf16(void *p, vec_f32 v)
{
	__m256i bits = _mm256_castps_si256(v),
		odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	__m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
	vec_f32 both = select_f32(unordered_f32(v, v), quiet_f32(v), _mm256_castsi256_ps(rounded));
	__m256i high = _mm256_srli_epi32(_mm256_castps_si256(both), 16);
	/* packing works within 128-bit halves: bring the results of both halves
	 * together */
	__m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);

	_mm_storeu_si128(p, _mm256_castsi256_si128(packed));
}

static inline vec_f64 get_f64(const void *p)
{
	return _mm256_loadu_pd(p);
}

static inline void put_f64(void *p, vec_f64 v)
{
	_mm256_storeu_pd(p, v);
}

static inline vec_f64 max_f64(vec_f64 a, vec_f64 b)
{
	return _mm256_max_pd(a, b);
}

static inline vec_f64 min_f64(vec_f64 a, vec_f64 b)
{
	return _mm256_min_pd(a, b);
}

static inline mask_f64 unordered_f64(vec_f64 a, vec_f64 b)
{
	return _mm256_castpd_si256(_mm256_cmp_pd(a, b, _CMP_UNORD_Q));
}

static inline bool any_f64(mask_f64 m)
{
	return !_mm256_testz_si256(m, m);
}

static inline vec_f64 select_f64(mask_f64 m, vec_f64 a, vec_f64 b)
{
	return _mm256_blendv_pd(b, a, _mm256_castsi256_pd(m));
}

static inline vec_f64 quiet_f64(vec_f64 a)
{
	return _mm256_or_pd(a, _mm256_castsi256_pd(_mm256_set1_epi64x((long long)F64_QUIET)));
}

static inline vec_f64 nan_f64(void)
{
	return _mm256_castsi256_pd(_mm256_set1_epi64x((long long)F64_NAN_BITS));
}

#include "common/kernels/vec.h"

#include "common/kernels/encode.h"

KERNELS_TABLE(avx2, rs_cpu_avx2);

#else

const struct rs_kernels rs_kernels_avx2 = {.name = "avx2", .usable = rs_cpu_never};

#endif
