/* SPDX-License-Identifier: Apache-2.0 */
#include "common/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { MOST = 64 };

int rs_descriptors_check(unsigned n, int *ret_highest, struct rs_err *e)
{
	unsigned opened = 0;
	int fds[MOST], highest = -1, rc = 0;

	while (opened < n && opened < MOST && !rc) {
		fds[opened] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (fds[opened] >= 0)
			opened++;
		else
			rc = errno;
	}
	for (unsigned i = 0; i < opened; i++) {
		highest = fds[i] > highest ? fds[i] : highest;
		close(fds[i]);
	}
	if (ret_highest)
		*ret_highest = highest;
	if (rc != EMFILE && rc != ENFILE)
		return RS_OK; /* another reason is not about descriptors */
	return rs_fail_sys(e, RS_EIO, rc, "%u more file descriptors are needed, %u can be opened (limit: ulimit -n)", n,
			   opened);
}

void rs_descriptors_hold_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}
