/* SPDX-License-Identifier: Apache-2.0 */
/* The load of a thread, from the processor time that the kernel counts. So the data path
 * has no cost. */
#ifndef RS_SERVER_RUN_LANE_LOAD_H
#define RS_SERVER_RUN_LANE_LOAD_H

#include <stdint.h>

struct lane_load {
	uint32_t busy_permil;    /* share of the last second in which the thread ran, in 1/1000 */
	uint32_t starved_permil; /* share in which it waited for a core */
	/* Start of the current second: processor time of the thread, time for which it
	 * waited for a core, and time of the clock, in ns. */
	uint64_t busy_ns, starved_ns, busy_from_ns;
};

/* Measures the calling thread, which calls this often, with the time of a clock. */
void lane_load_tick(struct lane_load *l, uint64_t now_ns);

#endif
