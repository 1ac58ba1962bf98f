/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: as text, and as the kernel stores them. Nothing here resolves names. */
#ifndef RS_COMMON_ADDRESS_H
#define RS_COMMON_ADDRESS_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* The two parts of an address. */
struct rs_host_port {
	char host[256]; /* without brackets; "": all addresses */
	char port[sizeof "65535"];
};

/* Splits "host:port" or "[IPv6]:port". A port consists of digits, 1 to 65535; getaddrinfo
 * would take more, such as 65537 for port 1. With `listen` the port may be 0 (any free
 * port), and host "*" or "" means all addresses. Errors: RS_ECONFIG. */
int rs_host_port_split(struct rs_host_port *ret, const char *text, bool listen, struct rs_err *e);

enum { RS_ENDPOINT_TEXT = sizeof "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535" };

/* One end of a connection, without an IPv6 zone. An IPv4 address is stored in IPv6's form
 * (RFC 4291, 2.5.5.2), as in a socket for both families. The struct has no padding, so it
 * may be compared byte by byte. */
struct rs_endpoint {
	uint8_t ip[16];
	uint8_t port[2]; /* network byte order */
};

static inline unsigned rs_endpoint_port(const struct rs_endpoint *end)
{
	return (unsigned)end->port[0] << 8 | end->port[1];
}
/* Copies a socket address. False: it is of another family than IPv4 and IPv6. */
bool rs_endpoint_of_sockaddr(struct rs_endpoint *ret, const struct sockaddr *sa);
/* Parses a numeric address with a port. False: it is not one. A zone is dropped, since
 * one zone can be written in several ways. */
bool rs_endpoint_of_text(struct rs_endpoint *ret, const char *text);
void rs_endpoint_print(const struct rs_endpoint *end, char buf[static RS_ENDPOINT_TEXT]);
bool rs_endpoint_is_loopback(const struct rs_endpoint *end);
/* True for the address that means all addresses of the machine, of one family or of
 * both. */
bool rs_endpoint_is_any(const struct rs_endpoint *end);
bool rs_endpoint_same_host(const struct rs_endpoint *a, const struct rs_endpoint *b);

/* Returns the kernel's number of a socket, which no other socket gets. False: fd is not a
 * socket. */
bool rs_socket_cookie(int fd, uint64_t *ret);

#endif
