/* SPDX-License-Identifier: Apache-2.0 */
#include "common/peer_process.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* Before Linux 6.5 there is only the number, which another process may have got since. */
static int peer_pidfd(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof cred;
	int pidfd;

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &(socklen_t){sizeof pidfd}))
		return pidfd;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.pid <= 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, cred.pid, 0);
}

bool rs_peer_process_runs(int fd)
{
	struct pollfd ended = {.fd = peer_pidfd(fd), .events = POLLIN};
	bool runs;

	if (ended.fd < 0)
		return false;
	runs = poll(&ended, 1, 0) == 0;
	close(ended.fd);
	return runs;
}
