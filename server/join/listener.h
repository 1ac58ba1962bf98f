/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets. */
#ifndef RS_SERVER_JOIN_LISTENER_H
#define RS_SERVER_JOIN_LISTENER_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { LISTENER_MAX = 8 }; /* most addresses of one name */

/* Binds non-blocking sockets to every address of host:port (rs_host_port_split) and
 * listens. With port 0 all get the same free port. Returns the number of descriptors in
 * fds, which the caller closes, or an error: RS_ECONFIG if the name cannot be resolved,
 * or an address is not loopback and not_loopback_ok is false; RS_EIO if it cannot be
 * bound. */
int listener_open(const char *address, bool not_loopback_ok, int fds[LISTENER_MAX], struct rs_err *e);

/* Applies the loopback rule of listener_open to an address that gRPC binds. Errors:
 * RS_ECONFIG. */
int listener_check(const char *address, bool not_loopback_ok, struct rs_err *e);

/* Writes the numeric address of a socket, such as "127.0.0.1:7600" or "[::1]:7600". */
void listener_name(int fd, char *buf, size_t size);
/* Writes the numeric address of the other end of a connection, as listener_name. */
void listener_peer(int fd, char *buf, size_t size);
/* Returns whether the other end of a connection has the address that the peer gives for
 * it. If not, a proxy or NAT is between. */
bool listener_is_direct(int fd, const char *source);

#endif
