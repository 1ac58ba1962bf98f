/* SPDX-License-Identifier: Apache-2.0 */
/* The user at the other end of a TCP connection within this machine. */
#ifndef RS_COMMON_PEER_H
#define RS_COMMON_PEER_H

#include <stdbool.h>

/* Returns whether the client of a connection from this loopback address to a port of
 * this process belongs to root or to the user of this process. False too if the kernel
 * does not say so, as in another namespace. Reads /proc/self/net. Any thread. */
bool rs_peer_is_own(const char *address, unsigned port);

#endif
