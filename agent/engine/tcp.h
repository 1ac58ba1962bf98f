/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows of a TCP connection. Apart from the other connection code, since <linux/tcp.h>, which knows the
 * whole TCP_INFO, and <netinet/tcp.h>, which <uv.h> brings along, do not go together. */
#ifndef RS_AGENT_ENGINE_TCP_H
#define RS_AGENT_ENGINE_TCP_H

#include "agent/core/window.h"

#include <sys/socket.h>

/* False when it does not say. Sets all but ret->local_bytes. */
bool tcp_signal(int fd, struct window_signal *ret);

enum tcp_peer {
	TCP_PEER_FAR,
	TCP_PEER_LOCAL, /* on this machine */
	TCP_PEER_SELF,  /* the very same socket */
};

/* Where the other end of a connected socket is; TCP_PEER_FAR also when the kernel does not say. */
enum tcp_peer tcp_peer(int fd);

/* Whether what is sent to this address stays on this machine, as the kernel's routes have it. */
bool tcp_reaches_itself(const struct sockaddr *peer, socklen_t len);

#endif
