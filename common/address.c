/* SPDX-License-Identifier: Apache-2.0 */
#include "common/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

/* Reads a port. 0 is valid only for listening; UINT16_MAX + 1: not a port. */
static unsigned long port_of(const char *text)
{
	size_t n = strspn(text, "0123456789");
	unsigned long port = n > 0 && !text[n] ? strtoul(text, NULL, 10) : UINT16_MAX + 1UL;

	return port <= UINT16_MAX ? port : UINT16_MAX + 1UL;
}

int rs_host_port_split(struct rs_host_port *ret, const char *text, bool listen, struct rs_err *e)
{
	const char *colon = strrchr(text, ':'), *host = text;
	size_t len = colon ? (size_t)(colon - text) : 0;
	unsigned long port = colon ? port_of(colon + 1) : 0;
	bool bracketed = len > 2 && host[0] == '[' && host[len - 1] == ']';
	bool all = listen && colon && (len == 0 || (len == 1 && host[0] == '*'));

	if (bracketed) {
		host++;
		len -= 2;
	}
	if (!all && (len == 0 || strcspn(host, bracketed ? "[]" : "[]:*") != len))
		return rs_fail(e, RS_ECONFIG, "\"%s\" is not an address; host:port or [IPv6]:port was expected", text);
	if (len >= sizeof ret->host)
		return rs_fail(e, RS_ECONFIG, "the host of an address has %zu bytes, at most %zu were expected: \"%s\"",
			       len, sizeof ret->host - 1, text);
	if (port > UINT16_MAX || (port == 0 && !listen))
		return rs_fail(e, RS_ECONFIG,
			       "\"%s\" is not an address; host:port with a port of %d to 65535 was expected", text,
			       listen ? 0 : 1);
	*ret = (struct rs_host_port){0};
	memcpy(ret->host, host, all ? 0 : len);
	snprintf(ret->port, sizeof ret->port, "%lu", port);
	return RS_OK;
}

static void put_v4(struct rs_endpoint *end, const struct in_addr *a)
{
	memcpy(end->ip, mapped, sizeof mapped);
	memcpy(end->ip + sizeof mapped, a, sizeof *a);
}

bool rs_endpoint_of_sockaddr(struct rs_endpoint *ret, const struct sockaddr *sa)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;

	if (sa->sa_family == AF_INET) {
		put_v4(ret, &v4->sin_addr);
		memcpy(ret->port, &v4->sin_port, sizeof ret->port);
	} else if (sa->sa_family == AF_INET6) {
		memcpy(ret->ip, &v6->sin6_addr, sizeof ret->ip);
		memcpy(ret->port, &v6->sin6_port, sizeof ret->port);
	} else {
		return false;
	}
	return true;
}

bool rs_endpoint_of_text(struct rs_endpoint *ret, const char *text)
{
	struct rs_host_port split;
	struct in_addr v4;
	struct rs_err e;
	uint16_t port;

	if (rs_host_port_split(&split, text, true, &e))
		return false;
	port = htons((uint16_t)strtoul(split.port, NULL, 10));
	memcpy(ret->port, &port, sizeof ret->port);
	if (text[0] == '[') {
		split.host[strcspn(split.host, "%")] = '\0';
		return inet_pton(AF_INET6, split.host, ret->ip) == 1;
	}
	if (inet_pton(AF_INET, split.host, &v4) != 1)
		return false;
	put_v4(ret, &v4);
	return true;
}

static bool is_v4(const struct rs_endpoint *end)
{
	return memcmp(end->ip, mapped, sizeof mapped) == 0;
}

void rs_endpoint_print(const struct rs_endpoint *end, char buf[static RS_ENDPOINT_TEXT])
{
	char ip[INET6_ADDRSTRLEN];

	if (is_v4(end))
		snprintf(buf, RS_ENDPOINT_TEXT, "%s:%u", inet_ntop(AF_INET, end->ip + sizeof mapped, ip, sizeof ip),
			 rs_endpoint_port(end));
	else
		snprintf(buf, RS_ENDPOINT_TEXT, "[%s]:%u", inet_ntop(AF_INET6, end->ip, ip, sizeof ip),
			 rs_endpoint_port(end));
}

bool rs_endpoint_is_loopback(const struct rs_endpoint *end)
{
	static const uint8_t v6[16] = {[15] = 1};

	return is_v4(end) ? end->ip[sizeof mapped] == IN_LOOPBACKNET : memcmp(end->ip, v6, sizeof v6) == 0;
}

bool rs_endpoint_is_any(const struct rs_endpoint *end)
{
	static const uint8_t none[16];
	size_t from = is_v4(end) ? sizeof mapped : 0;

	return memcmp(end->ip + from, none, sizeof none - from) == 0;
}

bool rs_endpoint_same_host(const struct rs_endpoint *a, const struct rs_endpoint *b)
{
	return memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

bool rs_socket_cookie(int fd, uint64_t *ret)
{
	socklen_t len = sizeof *ret;

	return getsockopt(fd, SOL_SOCKET, SO_COOKIE, ret, &len) == 0;
}
