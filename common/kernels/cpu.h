/* SPDX-License-Identifier: Apache-2.0 */
/* Which instructions can be used here. */
#ifndef RS_COMMON_KERNELS_CPU_H
#define RS_COMMON_KERNELS_CPU_H

#include <stdbool.h>

/* Return whether both the processor and the operating system support the instructions
 * that the file of that name is compiled for; false on another architecture. */
bool rs_cpu_always(void);
bool rs_cpu_never(void);
bool rs_cpu_avx2(void);
bool rs_cpu_avx512(void);

#endif
