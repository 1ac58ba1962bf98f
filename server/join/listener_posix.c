/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/listener.h"

#include "common/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_loopback(const struct sockaddr *sa)
{
	struct rs_endpoint end;

	return rs_endpoint_of_sockaddr(&end, sa) && rs_endpoint_is_loopback(&end);
}

/* Resolves host:port. The caller frees the list. */
static int resolve(const struct rs_host_port *at, const char *address, struct addrinfo **ret, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_ADDRCONFIG};
	int rc = getaddrinfo(at->host[0] ? at->host : NULL, at->port, &hints, ret);

	return rc ? rs_fail(e, RS_ECONFIG, "cannot listen on %s: %s", address, gai_strerror(rc)) : RS_OK;
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
	/* sin_port and sin6_port have the same offset */
	((struct sockaddr_in *)sa)->sin_port = ((struct sockaddr_in *)&first)->sin_port;
}

/* Refuses to listen on an address that other machines can reach without authentication. */
static int refuse_open(const char *address, struct rs_err *e)
{
	return rs_fail(
	    e, RS_ECONFIG,
	    "%s is not a loopback address and this reducer has no authentication: every machine that reaches it could "
	    "read and change gradients; give each job a secret (server.secrets_dir), or require certificates "
	    "(security.tls: mutual), or set --insecure (server.insecure: true) if the network is trusted",
	    address);
}

int listener_open(const char *address, bool not_loopback_ok, int fds[LISTENER_MAX], struct rs_err *e)
{
	struct addrinfo *list, *ai;
	struct rs_host_port at;
	int n = 0, rc = rs_host_port_split(&at, address, true, e);

	if (!rc)
		rc = resolve(&at, address, &list, e);
	if (rc)
		return rc;
	for (ai = list; ai && n < LISTENER_MAX; ai = ai->ai_next) {
		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		if (!not_loopback_ok && !is_loopback(ai->ai_addr)) {
			rc = refuse_open(address, e);
			break;
		}
		if (n > 0 && strcmp(at.port, "0") == 0)
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
	return rc ? rc : rs_fail(e, RS_ECONFIG, "%s is not an address of this machine", address);
}

int listener_check(const char *address, bool not_loopback_ok, struct rs_err *e)
{
	struct addrinfo *list;
	struct rs_host_port at;
	int rc = rs_host_port_split(&at, address, true, e);

	if (!rc)
		rc = resolve(&at, address, &list, e);
	if (rc)
		return rc;
	for (const struct addrinfo *ai = list; ai && !rc; ai = ai->ai_next)
		if (!not_loopback_ok && !is_loopback(ai->ai_addr))
			rc = refuse_open(address, e);
	freeaddrinfo(list);
	return rc;
}

/* Writes an address as text. rc is the result of the call that filled sa. */
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
