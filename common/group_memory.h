/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the control groups of this process allow it, of version 2 and of
 * version 1. */
#ifndef RS_COMMON_GROUP_MEMORY_H
#define RS_COMMON_GROUP_MEMORY_H

#include <stdint.h>

/* Bytes; UINT64_MAX: no group has a limit. */
struct rs_group_memory {
	uint64_t limit; /* the lowest limit of the groups */
	uint64_t
	    left; /* what can be allocated before a group reaches its limit; files that are only cached do not count */
};

/* Reads the limits of the groups of this process. What cannot be read counts as no limit.
 * root: "" but for tests, the folder that has /proc and /sys. Any thread. */
void rs_group_memory_read(struct rs_group_memory *ret, const char *root);

#endif
