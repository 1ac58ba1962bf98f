/* SPDX-License-Identifier: Apache-2.0 */
/* Did NCCL use the reducers? The answer is in its log (NCCL_DEBUG=INFO,
 * NCCL_DEBUG_SUBSYS=INIT,NET,TUNING). */
#ifndef RS_TESTS_GPU_NCCL_LOG_H
#define RS_TESTS_GPU_NCCL_LOG_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether the log of rank 0 proves that every all-reduce went through the
 * plugin's CollNet. `why` gets the line that proves it, or what is missing or wrong. */
bool nccl_log_proves(const char *text, char *why, size_t room);

#endif
