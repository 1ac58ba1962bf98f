/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator that fails on request. A test uses it by linking with -Wl,--wrap for
 * malloc, calloc, realloc and posix_memalign (tests/module.mk). Any thread. */
#ifndef RS_TESTS_UNIT_FAKE_MEMORY_H
#define RS_TESTS_UNIT_FAKE_MEMORY_H

#include <stdbool.h>

/* Makes the n-th allocation from now on fail, n >= 1; for_good: and all later ones. */
void memory_fail_at(unsigned n, bool for_good);
/* Ends that: no allocation fails any more. */
void memory_unlimited(void);
/* Returns whether an allocation has failed since memory_fail_at. */
bool memory_failed(void);
/* Counts one allocation. Returns whether it must fail. For wrappers of further
 * functions. */
bool memory_runs_out(void);

#endif
