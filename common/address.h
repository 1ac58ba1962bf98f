/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: as people write them, and as the kernel has them. No names are resolved here. */
#ifndef RS_COMMON_ADDRESS_H
#define RS_COMMON_ADDRESS_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct rs_host_port {
	char host[256]; /* without brackets; "": all addresses */
	char port[sizeof "65535"];
};

/* Splits "host:port" or "[IPv6]:port". A port is digits alone, 1 to 65535: not all that getaddrinfo takes, which has
 * 65537 for 1. To listen, the port may be 0, any free one, and host "*" or "" stands for all addresses. Errors:
 * RS_ECONFIG. */
int rs_host_port_split(struct rs_host_port *ret, const char *text, bool listen, struct rs_err *e);

enum { RS_END_TEXT = sizeof "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535" };

/* One end of a connection, without an IPv6 zone. IPv4 addresses are in IPv6's form (RFC 4291, 2.5.5.2), as a socket for
 * both families has them. Without holes: may be compared byte by byte. */
struct rs_end {
	uint8_t ip[16];
	uint8_t port[2]; /* in network order */
};

static inline unsigned rs_end_port(const struct rs_end *end)
{
	return (unsigned)end->port[0] << 8 | end->port[1];
}
/* False when it is of another family. */
bool rs_end_of_sockaddr(struct rs_end *ret, const struct sockaddr *sa);
/* False when it is no numeric address with a port. A zone, which may be written in several ways, is left out. */
bool rs_end_of_text(struct rs_end *ret, const char *text);
void rs_end_print(const struct rs_end *end, char buf[static RS_END_TEXT]);
bool rs_end_is_loopback(const struct rs_end *end);
/* An address that stands for all of the machine's own, of one family or of both. */
bool rs_end_is_any(const struct rs_end *end);
bool rs_end_same_host(const struct rs_end *a, const struct rs_end *b);

/* The kernel's number of a socket, which no other one gets. False when fd is none. */
bool rs_socket_cookie(int fd, uint64_t *ret);

#endif
