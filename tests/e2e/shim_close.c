/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a process: it says on standard error when a descriptor is
 * closed that is not open, which in a process with threads may be that of another one. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#pragma GCC visibility push(default)

int close(int fd)
{
	int (*real)(int);
	int rc;

	*(void **)&real = dlsym(RTLD_NEXT, "close");
	rc = real(fd);
	if (rc && errno == EBADF && fd >= 0) {
		dprintf(STDERR_FILENO, "shim_close: descriptor %d is not open\n", fd);
		errno = EBADF;
	}
	return rc;
}
