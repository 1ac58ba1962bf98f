/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kernels/impl.h"

#include <stdio.h>
#include <string.h>

/* slowest first */
static const struct rs_kernels *const tables[] = {&rs_kernels_scalar, &rs_kernels_neon, &rs_kernels_avx2,
						  &rs_kernels_avx512};
enum { TABLE_NR = sizeof tables / sizeof tables[0] };

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

/* Checks the processor and the operating system. An operating system that does not save the registers would corrupt
 * them, so the processor's answer alone is not enough. */
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

const struct rs_kernels *rs_kernels_usable(unsigned i)
{
	for (unsigned t = 0; t < TABLE_NR; t++)
		if (tables[t]->usable() && i-- == 0)
			return tables[t];
	return NULL;
}

/* Writes the usable names: "auto, scalar, avx2". */
static void list_usable(char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "auto");
	const struct rs_kernels *k;

	for (unsigned i = 0; (k = rs_kernels_usable(i)) && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, ", %s", k->name);
}

int rs_kernels_select(const char *name, const struct rs_kernels **ret, struct rs_err *e)
{
	bool any = strcmp(name, "auto") == 0;
	char names[80];

	for (unsigned t = TABLE_NR; t-- > 0;) {
		if (!any && strcmp(name, tables[t]->name) != 0)
			continue;
		if (tables[t]->usable()) {
			*ret = tables[t];
			return RS_OK;
		}
		if (!any) {
			list_usable(names, sizeof names);
			return rs_fail(e, RS_EINVAL, "kernels \"%s\" do not run on this machine, expected one of %s",
				       name, names);
		}
	}
	list_usable(names, sizeof names);
	return rs_fail(e, RS_EINVAL, "there are no kernels \"%.40s\", expected one of %s", name, names);
}
