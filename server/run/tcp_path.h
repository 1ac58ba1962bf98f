/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of the path of a TCP connection. */
#ifndef RS_SERVER_RUN_TCP_PATH_H
#define RS_SERVER_RUN_TCP_PATH_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_path {
	uint32_t rtt_us, min_rtt_us; /* round trip: smoothed; the smallest one lately */
	uint64_t retransmits;        /* segments that were sent again */
	uint64_t busy_us;            /* time with bytes that were not acknowledged */
};

/* Returns false if the kernel does not say it. */
bool tcp_path(int fd, struct tcp_path *ret);

#endif
