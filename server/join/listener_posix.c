/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/listener.h"

#include "common/address.h"
#include "config/check/check.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int open_one(const struct addrinfo *ai, const char *address, struct rs_err *e)
{
	int one = 1, fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return check_listen_no_socket(e, errno, address);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	check_listen_failed(e, errno, address);
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

int listener_open(const char *address, bool not_loopback_ok, int fds[LISTENER_MAX], struct rs_err *e)
{
	struct addrinfo *list, *ai;
	bool any_port = strcmp(strrchr(address, ':') ? strrchr(address, ':') : "", ":0") == 0;
	int n = 0, rc = check_listen(&list, address, not_loopback_ok, e);

	if (rc)
		return rc;
	for (ai = list; ai && n < LISTENER_MAX; ai = ai->ai_next) {
		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		if (n > 0 && any_port)
			set_port(ai->ai_addr, fds[0]);
		rc = open_one(ai, address, e);
		if (rc == RS_EUNSUPPORTED)
			continue;
		if (rc < 0)
			break;
		fds[n++] = rc;
		rc = RS_OK;
	}
	freeaddrinfo(list);
	if (n && (!rc || rc == RS_EUNSUPPORTED)) /* a kernel without IPv6 */
		return n;
	while (n > 0)
		close(fds[--n]);
	return rc ? rc : rs_fail(e, RS_ECONFIG, "%s is not an address of this machine", address);
}

int listener_check(const char *address, bool not_loopback_ok, struct rs_err *e)
{
	struct addrinfo *list;
	int rc = check_listen(&list, address, not_loopback_ok, e);

	if (!rc)
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

bool listener_is_direct(int fd, const char *source)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof sa;
	struct rs_endpoint seen, named;

	return rs_endpoint_of_text(&named, source) && !getpeername(fd, (struct sockaddr *)&sa, &len) &&
	       rs_endpoint_of_sockaddr(&seen, (const struct sockaddr *)&sa) && memcmp(&seen, &named, sizeof seen) == 0;
}
