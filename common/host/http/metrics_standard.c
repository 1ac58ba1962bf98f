/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/http/metrics_standard.h"

static void standard(struct metrics_out *o, enum metrics_type type, const char *name, const char *help, double value)
{
	metrics_family(o, type, name, help);
	metrics_sample(o, value, (const char *[]){NULL});
}

void metrics_standard(struct metrics_out *o, const Reduction__V1__StatusReply *m)
{
	const Reduction__V1__ProcessStatus *p = m->process;

	standard(o, METRICS_GAUGE, "process_start_time_seconds",
		 "Time when the process started, in seconds since 1970.", (double)m->started_unix_ms / 1e3);
	if (!p)
		return;
	standard(o, METRICS_COUNTER, "process_cpu_seconds", "Processor time of all threads.", (double)p->cpu_us / 1e6);
	standard(o, METRICS_GAUGE, "process_resident_memory_bytes", "Resident memory.", (double)p->resident_bytes);
	standard(o, METRICS_GAUGE, "process_virtual_memory_bytes", "Virtual memory.", (double)p->virtual_bytes);
	standard(o, METRICS_GAUGE, "process_open_fds", "Open file descriptors.", p->descriptors);
	standard(o, METRICS_GAUGE, "process_max_fds", "Most open file descriptors.", (double)p->descriptors_max);
}
