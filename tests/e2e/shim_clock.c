/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a process: its clock differs from that of the machine by the
 * seconds that the file which REDUCTION_CLOCK names has, an int64_t. faults.py writes
 * it. Time since the start goes on evenly, as on a machine whose clock is set. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *step; /* NULL: there is none */

__attribute__((constructor)) static void open_step(void)
{
	const char *path = getenv("REDUCTION_CLOCK");
	void *map;
	int fd;

	if (!path)
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		abort(); /* a test without a step would pass */
	close(fd);
	step = map;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, ret); /* other libraries' constructors need it first */

	if (clock == CLOCK_REALTIME && step)
		ret->tv_sec += *step;
	return rc;
}

__attribute__((visibility("default"))) time_t time(time_t *ret)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}
