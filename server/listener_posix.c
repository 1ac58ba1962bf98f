/* SPDX-License-Identifier: Apache-2.0 */
#include "server/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int listener_split(const char *address, char *host, size_t host_size, char *port, size_t port_size, struct rs_err *e)
{
	const char *colon = strrchr(address, ':');
	const char *from = address;
	size_t len = colon ? (size_t)(colon - address) : 0;

	if (colon && len >= 2 && address[0] == '[' && colon[-1] == ']') {
		from++;
		len -= 2;
	} else if (!colon || memchr(address, ':', len)) {
		colon = NULL;
	}
	if (!colon || !colon[1] || len >= host_size || strlen(colon + 1) >= port_size)
		return rs_fail(e, RS_ECONFIG, "address \"%s\" is not of the form host:port or [v6]:port", address);
	/* getaddrinfo would take 65537 for 1 */
	if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || strtoul(colon + 1, NULL, 10) > 65535)
		return rs_fail(e, RS_ECONFIG, "address \"%s\": the port is not a number from 0 to 65535", address);
	memcpy(host, from, len);
	host[len] = '\0';
	if (strcmp(host, "*") == 0)
		host[0] = '\0';
	strcpy(port, colon + 1);
	return RS_OK;
}

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24 == 127;
	return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

static int open_one(const struct addrinfo *ai, const char *address, struct rs_err *e)
{
	int one = 1, fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "no socket for %s", address);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	rs_fail_sys(e, RS_EIO, errno, "cannot listen on %s", address);
	close(fd);
	return RS_EIO;
}

static void set_port(struct sockaddr *sa, int from_fd)
{
	struct sockaddr_storage first;
	socklen_t len = sizeof first;

	if (getsockname(from_fd, (struct sockaddr *)&first, &len))
		return;
	/* sin_port and sin6_port are at the same place */
	((struct sockaddr_in *)sa)->sin_port = ((struct sockaddr_in *)&first)->sin_port;
}

/* An address that everybody can reach needs something that keeps strangers out. */
static int refuse_open(const char *address, struct rs_err *e)
{
	return rs_fail(
	    e, RS_ECONFIG,
	    "%s is not a loopback address and this reducer has no authentication: anybody who reaches it could "
	    "read and change gradients; give each job a secret (security.secrets), or ask for certificates "
	    "(security.tls: mutual), or say --insecure (security.insecure: true) if the network is yours alone",
	    address);
}

int listener_open(const char *address, bool not_loopback_ok, int fds[LISTENER_MAX], struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_ADDRCONFIG}, *list, *ai;
	char host[256], port[32];
	int n = 0, rc = listener_split(address, host, sizeof host, port, sizeof port, e);

	if (rc)
		return rc;
	rc = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
	if (rc)
		return rs_fail(e, RS_ECONFIG, "cannot listen on %s: %s", address, gai_strerror(rc));
	rc = RS_OK;
	for (ai = list; ai && n < LISTENER_MAX; ai = ai->ai_next) {
		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		if (!not_loopback_ok && !is_loopback(ai->ai_addr)) {
			rc = refuse_open(address, e);
			break;
		}
		if (n > 0 && strcmp(port, "0") == 0)
			set_port(ai->ai_addr, fds[0]);
		rc = open_one(ai, address, e);
		if (rc < 0)
			break;
		fds[n++] = rc;
		rc = RS_OK;
	}
	freeaddrinfo(list);
	if (!rc && n)
		return n;
	while (n > 0)
		close(fds[--n]);
	return rc ? rc : rs_fail(e, RS_ECONFIG, "%s stands for no address of this machine", address);
}

int listener_check(const char *address, bool not_loopback_ok, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_ADDRCONFIG}, *list;
	char host[256], port[32];
	int rc = listener_split(address, host, sizeof host, port, sizeof port, e);

	if (rc)
		return rc;
	rc = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
	if (rc)
		return rs_fail(e, RS_ECONFIG, "cannot listen on %s: %s", address, gai_strerror(rc));
	for (const struct addrinfo *ai = list; ai && !rc; ai = ai->ai_next)
		if (!not_loopback_ok && !is_loopback(ai->ai_addr))
			rc = refuse_open(address, e);
	freeaddrinfo(list);
	return rc;
}

/* rc: of the call that has filled sa. */
static void address_text(int rc, const struct sockaddr_storage *sa, socklen_t len, char *buf, size_t size)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (rc || getnameinfo((const struct sockaddr *)sa, len, host, sizeof host, port, sizeof port,
			      NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(buf, size, "unknown");
	else
		snprintf(buf, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

void listener_name(int fd, char *buf, size_t size)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof sa;
	int rc = getsockname(fd, (struct sockaddr *)&sa, &len);

	address_text(rc, &sa, len, buf, size);
}

void listener_peer(int fd, char *buf, size_t size)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof sa;
	int rc = getpeername(fd, (struct sockaddr *)&sa, &len);

	address_text(rc, &sa, len, buf, size);
}
