/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's struct tcp_info, which libuv's header includes, has no smallest round
 * trip; only the kernel's has. */
#include "server/run/tcp_path.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

bool tcp_path(int fd, struct tcp_path *ret)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return false;
	*ret = (struct tcp_path){info.tcpi_rtt, info.tcpi_min_rtt, info.tcpi_total_retrans, info.tcpi_busy_time};
	return true;
}
