/* SPDX-License-Identifier: Apache-2.0 */
/* How large a socket buffer (net.ipv4.tcp_rmem, tcp_wmem) must be. */
#ifndef RS_COMMON_SOCKET_BUFFER_H
#define RS_COMMON_SOCKET_BUFFER_H

#include <stdint.h>

/* A buffer has room for half as many bytes in flight: the kernel counts its own
 * structures too. Since Linux 6.6 it may be more: the kernel measures the ratio. */
enum { SOCKET_OVERHEAD = 2 };

/* Returns the buffer, in whole MiB, that has room for twice as many bytes in flight. */
static inline uint64_t socket_buffer(double in_flight)
{
	uint64_t mib = UINT64_C(1) << 20;

	return ((uint64_t)(2 * SOCKET_OVERHEAD * in_flight) / mib + 1) * mib;
}

#endif
