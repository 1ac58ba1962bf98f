/* SPDX-License-Identifier: Apache-2.0 */
/* What the control groups of this process allow it, of version 2 and of version 1. */
#ifndef RS_COMMON_GROUP_LIMITS_H
#define RS_COMMON_GROUP_LIMITS_H

#include <stdint.h>

/* Bytes; UINT64_MAX: no group has a limit. */
struct rs_group_memory {
	uint64_t limit; /* the lowest limit of the groups */
	uint64_t left;  /* until a group reaches its limit; files that are only cached do not count */
};

/* Reads the limits of the groups of this process. What cannot be read counts as no limit.
 * root: "" but for tests, the folder that has /proc and /sys. Any thread. */
void rs_group_memory_read(struct rs_group_memory *ret, const char *root);

/* Returns how many CPUs this process can use at a time, at least 1: those that its
 * affinity and its control groups' cpusets have (sched_getaffinity(2)), or fewer if the
 * CPU time of a group is limited. A limit of 1.5 CPUs counts as 2. root: as above. Any
 * thread. */
unsigned rs_usable_cpus(const char *root);

#endif
