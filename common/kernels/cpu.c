/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kernels/cpu.h"

bool rs_cpu_always(void)
{
	return true;
}

bool rs_cpu_never(void)
{
	return false;
}

#if defined(__x86_64__)

#include <cpuid.h>

enum {
	XCR0_SSE_AVX = 0x06, /* xmm and ymm registers are saved at a context switch */
	XCR0_AVX512 = 0xe0,  /* so are mask registers, upper zmm halves, zmm16-31 */
};
#define LEAF1_ECX_AVX    (bit_OSXSAVE | bit_AVX | bit_F16C | bit_FMA)
#define LEAF7_EBX_AVX512 (bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ)

/* Checks the processor and the operating system. An operating system that does not save
 * the registers would corrupt them, so the processor's answer alone is not enough. */
static bool x86_supports(unsigned leaf1_ecx, unsigned leaf7_ebx, unsigned xcr0)
{
	unsigned a, b, c, d, low, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1_ecx) != leaf1_ecx)
		return false;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & leaf7_ebx) != leaf7_ebx)
		return false;
	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (low & xcr0) == xcr0;
}

bool rs_cpu_avx2(void)
{
	return x86_supports(LEAF1_ECX_AVX, bit_AVX2, XCR0_SSE_AVX);
}

bool rs_cpu_avx512(void)
{
	return x86_supports(LEAF1_ECX_AVX, bit_AVX2 | LEAF7_EBX_AVX512, XCR0_SSE_AVX | XCR0_AVX512);
}

#endif
