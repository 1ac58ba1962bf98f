/* SPDX-License-Identifier: Apache-2.0 */
/* NEON of 64-bit ARM, which every such processor has; see vec.h for the primitives.
 * NEON's own maximum and minimum are not used: they order -0 before +0, which `a > b ? a
 * : b` does not. */
#include "common/kernels/impl.h"

#if defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>

typedef float32x4_t vec_f32;
typedef float64x2_t vec_f64;
typedef uint32x4_t mask_f32;
typedef uint64x2_t mask_f64;
enum { F32_LANES = 4, F64_LANES = 2 };

static inline vec_f32 get_f32(const void *p)
{
	return vreinterpretq_f32_u8(vld1q_u8(p));
}

static inline void put_f32(void *p, vec_f32 v)
{
	vst1q_u8(p, vreinterpretq_u8_f32(v));
}

static inline vec_f32 max_f32(vec_f32 a, vec_f32 b)
{
	return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline vec_f32 min_f32(vec_f32 a, vec_f32 b)
{
	return vbslq_f32(vcltq_f32(a, b), a, b);
}

static inline mask_f32 unordered_f32(vec_f32 a, vec_f32 b)
{
	return vmvnq_u32(vandq_u32(vceqq_f32(a, a), vceqq_f32(b, b)));
}

static inline bool any_f32(mask_f32 m)
{
	return vmaxvq_u32(m) != 0;
}

static inline vec_f32 select_f32(mask_f32 m, vec_f32 a, vec_f32 b)
{
	return vbslq_f32(m, a, b);
}

static inline vec_f32 quiet_f32(vec_f32 a)
{
	return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(F32_QUIET)));
}

static inline vec_f32 nan_f32(void)
{
	return vreinterpretq_f32_u32(vdupq_n_u32(F32_NAN_BITS));
}

static inline vec_f32 get_f16(const void *p)
{
	return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

static inline void put_f16(void *p, vec_f32 v)
{
	vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(v)));
}

static inline vec_f32 get_bf16(const void *p)
{
	return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p))), 16));
}

static inline void put_bf16(void *p, vec_f32 v)
{
	uint32x4_t bits = vreinterpretq_u32_f32(v), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
	uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
	vec_f32 both = select_f32(unordered_f32(v, v), quiet_f32(v), vreinterpretq_f32_u32(rounded));

	vst1_u8(p, vreinterpret_u8_u16(vshrn_n_u32(vreinterpretq_u32_f32(both), 16)));
}

static inline vec_f64 get_f64(const void *p)
{
	return vreinterpretq_f64_u8(vld1q_u8(p));
}

static inline void put_f64(void *p, vec_f64 v)
{
	vst1q_u8(p, vreinterpretq_u8_f64(v));
}

static inline vec_f64 max_f64(vec_f64 a, vec_f64 b)
{
	return vbslq_f64(vcgtq_f64(a, b), a, b);
}

static inline vec_f64 min_f64(vec_f64 a, vec_f64 b)
{
	return vbslq_f64(vcltq_f64(a, b), a, b);
}

static inline mask_f64 unordered_f64(vec_f64 a, vec_f64 b)
{
	return vreinterpretq_u64_u32(vmvnq_u32(vreinterpretq_u32_u64(vandq_u64(vceqq_f64(a, a), vceqq_f64(b, b)))));
}

static inline bool any_f64(mask_f64 m)
{
	return vmaxvq_u32(vreinterpretq_u32_u64(m)) != 0;
}

static inline vec_f64 select_f64(mask_f64 m, vec_f64 a, vec_f64 b)
{
	return vbslq_f64(m, a, b);
}

static inline vec_f64 quiet_f64(vec_f64 a)
{
	return vreinterpretq_f64_u64(vorrq_u64(vreinterpretq_u64_f64(a), vdupq_n_u64(F64_QUIET)));
}

static inline vec_f64 nan_f64(void)
{
	return vreinterpretq_f64_u64(vdupq_n_u64(F64_NAN_BITS));
}

#include "common/kernels/vec.h"

#include "common/kernels/encode.h"

KERNELS_TABLE(neon, rs_cpu_always);

#else

const struct rs_kernels rs_kernels_neon = {.name = "neon", .usable = rs_cpu_never};

#endif
