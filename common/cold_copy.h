/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RS_COMMON_COLD_COPY_H
#define RS_COMMON_COLD_COPY_H

#include <stddef.h>

/* As memcpy(), for a destination that is not read soon: it takes no place in the caches,
 * so what is there stays. Fast if `to` is a multiple of 16. Any thread. */
void rs_cold_copy(void *restrict to, const void *restrict from, size_t n);

#endif
