/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/tcp.h"

#include <linux/inet_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TCP_BBR_UNIT = 256 }; /* a gain of 1 */

/* Returns whether the connection has a congestion control such as BBR. */
static bool tcp_is_paced(int fd)
{
	char name[16] = "";
	socklen_t len = sizeof name - 1;

	return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0 && strncmp(name, "bbr", 3) == 0;
}

/* Returns the bytes a second that BBR says the connection can carry; 0 while it starts,
 * which its gain tells: 2.89, later at most 1.25. */
static uint64_t tcp_estimate(int fd)
{
	union tcp_cc_info info = {0};
	socklen_t len = sizeof info;

	if (getsockopt(fd, IPPROTO_TCP, TCP_CC_INFO, &info, &len) < 0 || len < sizeof info.bbr ||
	    info.bbr.bbr_pacing_gain > 2 * TCP_BBR_UNIT)
		return 0;
	return (uint64_t)info.bbr.bbr_bw_hi << 32 | info.bbr.bbr_bw_lo;
}

bool tcp_signal(int fd, struct window_signal *ret)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return false;
	ret->rtt_us = info.tcpi_rtt;
	ret->min_rtt_us = info.tcpi_min_rtt;
	ret->lost = info.tcpi_total_retrans;
	ret->paced = info.tcpi_min_rtt >= RS_LONG_US && tcp_is_paced(fd);
	ret->estimate = ret->paced ? tcp_estimate(fd) : 0;
	return true;
}

bool tcp_busy(int fd, uint64_t *ret_us)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return false;
	*ret_us = info.tcpi_busy_time;
	return true;
}

static bool tcp_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	struct rs_endpoint one, other;

	return rs_endpoint_of_sockaddr(&one, (const struct sockaddr *)a) &&
	       rs_endpoint_of_sockaddr(&other, (const struct sockaddr *)b) && rs_endpoint_same_host(&one, &other);
}

enum tcp_peer tcp_peer(int fd)
{
	struct sockaddr_storage a = {0}, b = {0};
	socklen_t alen = sizeof a, blen = sizeof b;

	if (getsockname(fd, (struct sockaddr *)&a, &alen) || getpeername(fd, (struct sockaddr *)&b, &blen) ||
	    a.ss_family != b.ss_family)
		return TCP_PEER_FAR;
	if (memcmp(&a, &b, sizeof a) == 0)
		return TCP_PEER_SELF;
	return tcp_same_host(&a, &b) ? TCP_PEER_LOCAL : TCP_PEER_FAR;
}

void tcp_source(int fd, char buf[static RS_ENDPOINT_TEXT])
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof sa;
	struct rs_endpoint end;

	buf[0] = '\0';
	if (!getsockname(fd, (struct sockaddr *)&sa, &len) && rs_endpoint_of_sockaddr(&end, (struct sockaddr *)&sa))
		rs_endpoint_print(&end, buf);
}

bool tcp_reaches_itself(const struct sockaddr *peer, socklen_t len)
{
	struct sockaddr_storage to = {0}, from = {0};
	socklen_t from_len = sizeof from;
	int fd = socket(peer->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool same;

	if (fd < 0)
		return false;
	memcpy(&to, peer, len);
	/* nothing is sent: connect selects the source address */
	same = connect(fd, peer, len) == 0 && getsockname(fd, (struct sockaddr *)&from, &from_len) == 0 &&
	       tcp_same_host(&from, &to);
	close(fd);
	return same;
}
