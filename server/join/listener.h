/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets. */
#ifndef RS_SERVER_JOIN_LISTENER_H
#define RS_SERVER_JOIN_LISTENER_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { LISTENER_MAX = 8 }; /* addresses one name may stand for */

/* Binds and listens on every address that host:port stands for (rs_host_port_split), non-blocking. With port 0 all get
 * the same free port. Returns how many descriptors are in fds, or an error: RS_ECONFIG when an address is not loopback
 * and not_loopback_ok is false, or cannot be resolved; RS_EIO when it cannot be bound. */
int listener_open(const char *address, bool not_loopback_ok, int fds[LISTENER_MAX], struct rs_err *e);

/* Does listener_open's rule about loopback allow this address? For who binds it elsewhere. Errors: RS_ECONFIG. */
int listener_check(const char *address, bool not_loopback_ok, struct rs_err *e);

/* The numeric address a socket is bound to, as "127.0.0.1:7600" or "[::1]:7600". */
void listener_name(int fd, char *buf, size_t size);
/* As listener_name, of the other end of a connection. */
void listener_peer(int fd, char *buf, size_t size);

#endif
