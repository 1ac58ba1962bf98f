/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/lane_load.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000 };

/* Returns the time for which this thread was ready to run and had no core, in ns; 0: the
 * kernel does not count it. It reads the file without stdio, because a lane that runs
 * allocates nothing. */
static uint64_t lane_load_starved_ns(void)
{
	char text[64], *end; /* "RAN WAITED SLICES", the first two in ns */
	int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	strtoull(text, &end, 10);
	return strtoull(end, NULL, 10);
}

void lane_load_tick(struct lane_load *l, uint64_t now_ns)
{
	uint64_t ns, waited_ns;
	struct timespec ts;

	if (now_ns - l->busy_from_ns < SECOND_NS)
		return;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	ns = (uint64_t)ts.tv_sec * SECOND_NS + (uint64_t)ts.tv_nsec;
	l->busy_permil = (uint32_t)((ns - l->busy_ns) * 1000 / (now_ns - l->busy_from_ns));
	waited_ns = lane_load_starved_ns();
	l->starved_permil =
	    waited_ns > l->starved_ns ? (uint32_t)((waited_ns - l->starved_ns) * 1000 / (now_ns - l->busy_from_ns)) : 0;
	l->busy_ns = ns;
	l->starved_ns = waited_ns;
	l->busy_from_ns = now_ns;
}
