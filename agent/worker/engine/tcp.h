/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows of a TCP connection. In a file of its own, since <linux/tcp.h>,
 * which has the whole TCP_INFO, conflicts with <netinet/tcp.h>, which <uv.h> includes. */
#ifndef RS_AGENT_WORKER_ENGINE_TCP_H
#define RS_AGENT_WORKER_ENGINE_TCP_H

#include "agent/worker/core/window.h"
#include "common/address.h"

#include <sys/socket.h>

/* Reads the kernel's signals; sets all members but ret->local_bytes. Returns false if the
 * kernel does not provide them. */
bool tcp_signal(int fd, struct window_signal *ret);

/* Reads for how long the connection had bytes that were not acknowledged, since it was
 * made, in microseconds. Returns false if the kernel does not say it. */
bool tcp_busy(int fd, uint64_t *ret_us);

enum tcp_peer {
	TCP_PEER_FAR,
	TCP_PEER_LOCAL, /* on this machine */
	TCP_PEER_SELF,  /* the same socket */
};

/* Returns where the other end of a connected socket is; TCP_PEER_FAR also if the kernel
 * does not say. */
enum tcp_peer tcp_peer(int fd);

/* Writes the address of this end of a connected socket; "" if it is not known. */
void tcp_source(int fd, char buf[static RS_ENDPOINT_TEXT]);

/* Returns whether data that is sent to this address stays on this machine, according to
 * the kernel's routes. */
bool tcp_reaches_itself(const struct sockaddr *peer, socklen_t len);

#endif
