/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/engine_tcp.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

bool tcp_signal(int fd, struct window_signal *ret)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return false;
	ret->rtt_us = info.tcpi_rtt;
	ret->min_rtt_us = info.tcpi_min_rtt;
	ret->lost = info.tcpi_total_retrans;
	return true;
}

enum tcp_peer tcp_peer(int fd)
{
	struct sockaddr_storage a = {0}, b = {0};
	socklen_t alen = sizeof a, blen = sizeof b;
	bool same;

	if (getsockname(fd, (struct sockaddr *)&a, &alen) || getpeername(fd, (struct sockaddr *)&b, &blen) ||
	    a.ss_family != b.ss_family)
		return TCP_PEER_FAR;
	if (memcmp(&a, &b, sizeof a) == 0)
		return TCP_PEER_SELF;
	if (a.ss_family == AF_INET)
		same = ((struct sockaddr_in *)&a)->sin_addr.s_addr == ((struct sockaddr_in *)&b)->sin_addr.s_addr;
	else
		same = memcmp(&((struct sockaddr_in6 *)&a)->sin6_addr, &((struct sockaddr_in6 *)&b)->sin6_addr,
			      sizeof(struct in6_addr)) == 0;
	return same ? TCP_PEER_LOCAL : TCP_PEER_FAR;
}
