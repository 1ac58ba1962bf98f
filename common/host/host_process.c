/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of this process, for Prometheus' standard metrics. A part that
 * cannot be read is 0. */
#include "common/host/host_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void process_memory(Reduction__V1__ProcessStatus *to)
{
	unsigned long virtual = 0, resident = 0;
	char text[128];
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return;
	text[n] = '\0';
	if (sscanf(text, "%lu %lu", &virtual, &resident) != 2)
		return;
	to->virtual_bytes = (uint64_t) virtual * (uint64_t)sysconf(_SC_PAGESIZE);
	to->resident_bytes = (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Counts the open descriptors, without the one that reads the folder. */
static uint32_t process_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	if (!d)
		return 0;
	for (const struct dirent *entry; (entry = readdir(d));)
		n += entry->d_name[0] != '.';
	closedir(d);
	return n - 1;
}

static uint64_t process_us(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

void host_process(struct status_reply *to)
{
	Reduction__V1__ProcessStatus *p = status_reply_message(to, &reduction__v1__process_status__descriptor);
	struct rlimit limit;
	struct rusage usage;

	if (!p)
		return;
	if (getrusage(RUSAGE_SELF, &usage) == 0)
		p->cpu_us = process_us(&usage.ru_utime) + process_us(&usage.ru_stime);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		p->descriptors_max = limit.rlim_cur;
	p->descriptors = process_descriptors();
	process_memory(p);
	to->m.process = p;
}
