/* SPDX-License-Identifier: Apache-2.0 */
#include "config/check/check.h"

#include "common/address.h"
#include "common/tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static bool is_loopback(const struct sockaddr *sa)
{
	struct rs_endpoint end;

	return rs_endpoint_of_sockaddr(&end, sa) && rs_endpoint_is_loopback(&end);
}

/* Refuses to listen on an address that other machines can reach without
 * authentication. */
static int refuse_open(const char *address, struct rs_err *e)
{
	return rs_fail(
	    e, RS_ECONFIG,
	    "%s is not a loopback address and this reducer has no authentication: every machine that reaches it could "
	    "read and change gradients; give each job a secret (server.secrets_dir, server.secret), or require "
	    "certificates "
	    "(security.tls: mutual), or set --insecure (server.insecure: true) if the network is trusted",
	    address);
}

/* Checks that an address says on which network card it is, if it is one that each card
 * has. */
static int check_card(const char *address, const struct rs_host_port *at, const struct sockaddr *sa, struct rs_err *e)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;

	if (sa->sa_family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) || v6->sin6_scope_id)
		return RS_OK;
	return rs_fail(
	    e, RS_ECONFIG,
	    "cannot listen on %s: it is link-local: add the network card of this machine, as in [%s%%eth0]:%s", address,
	    at->host, at->port);
}

/* The families of this machine's addresses do not matter: 0.0.0.0 can be listened on
 * before it has an IPv4 address, and where it gets none. */
int check_listen(struct addrinfo **ret, const char *address, bool not_loopback_ok, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct addrinfo *list;
	struct rs_host_port at;
	int rc = rs_host_port_split(&at, address, true, e);

	if (rc)
		return rc;
	rc = getaddrinfo(at.host[0] ? at.host : NULL, at.port, &hints, &list);
	if (rc)
		return rs_fail(e, RS_ECONFIG, "cannot listen on %s: %s", address,
			       strchr(at.host, '%') ? "this machine has no network card of that name"
						    : gai_strerror(rc));
	for (const struct addrinfo *ai = list; ai && !rc; ai = ai->ai_next)
		rc = check_card(address, &at, ai->ai_addr, e);
	for (const struct addrinfo *ai = list; ai && !rc; ai = ai->ai_next)
		if (!not_loopback_ok && !is_loopback(ai->ai_addr))
			rc = refuse_open(address, e);
	if (rc)
		freeaddrinfo(list);
	else
		*ret = list;
	return rc;
}

int check_listen_no_socket(struct rs_err *e, int sys, const char *address)
{
	return rs_fail_sys(e, sys == EAFNOSUPPORT ? RS_EUNSUPPORTED : RS_EIO, sys, "no socket for %s", address);
}

int check_listen_failed(struct rs_err *e, int sys, const char *address)
{
	return rs_fail_sys(e, RS_EIO, sys, "cannot listen on %s", address);
}

bool check_authenticates(const struct rs_config *cfg)
{
	return cfg->server.secrets_dir[0] || cfg->server.secret[0] || cfg->security.tls == TLS_MUTUAL;
}

/* Returns whether an address belongs to this machine: whether its host can be bound, with
 * any free port. */
static int check_own(const struct addrinfo *ai, const char *address, struct rs_err *e)
{
	struct sockaddr_storage any;
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = RS_OK;

	if (fd < 0)
		return check_listen_no_socket(e, errno, address);
	memcpy(&any, ai->ai_addr, ai->ai_addrlen);
	((struct sockaddr_in *)&any)->sin_port = 0; /* sin6_port has the same offset */
	if (bind(fd, (struct sockaddr *)&any, ai->ai_addrlen))
		rc = check_listen_failed(e, errno, address);
	close(fd);
	return rc;
}

/* Returns whether the host of an address is a name, which may differ between machines. */
static bool is_name(const char *address)
{
	struct rs_host_port at;
	struct rs_endpoint end;
	struct rs_err e;

	return rs_host_port_split(&at, address, true, &e) == RS_OK && at.host[0] && !rs_endpoint_of_text(&end, address);
}

static void check_one(struct check *c, const char *key, const char *address)
{
	bool open = c->cfg->server.insecure || check_authenticates(c->cfg);
	struct addrinfo *list = NULL;
	struct rs_err e;
	int rc = RS_OK;

	if (c->elsewhere && is_name(address))
		return;
	rc = check_listen(&list, address, open, &e);
	if (rc) {
		check_add(c, CHECK_ERROR, "server", -1, key, &e);
		return;
	}
	for (const struct addrinfo *ai = list; ai && !rc && !c->elsewhere; ai = ai->ai_next)
		if (ai->ai_family == AF_INET || ai->ai_family == AF_INET6)
			rc = check_own(ai, address, &e);
	if (rc == RS_EUNSUPPORTED && list->ai_next)
		rc = RS_OK; /* a kernel without IPv6 listens on the other address */
	freeaddrinfo(list);
	if (rc)
		check_add(c, CHECK_ERROR, "server", -1, key, &e);
}

/* Returns whether two listening sockets cannot exist at the same time. */
static bool collide(const char *a, const char *b)
{
	struct rs_host_port x, y;
	struct rs_endpoint p, q;
	struct rs_err e;

	if (rs_host_port_split(&x, a, true, &e) || rs_host_port_split(&y, b, true, &e) || strcmp(x.port, "0") == 0 ||
	    strcmp(x.port, y.port) != 0)
		return false;
	if (!x.host[0] || !y.host[0] || strcmp(x.host, y.host) == 0)
		return true;
	return rs_endpoint_of_text(&p, a) && rs_endpoint_of_text(&q, b) &&
	       (rs_endpoint_is_any(&p) || rs_endpoint_is_any(&q)) && (a[0] == '[') == (b[0] == '[');
}

static void check_collide(struct check *c, const char *key, const char *address, const char *other, const char *taken)
{
	struct rs_err e;

	if (!collide(address, taken))
		return;
	rs_fail(&e, RS_ECONFIG, "found %s, expected another port than that of server.%s, %s", address, other, taken);
	check_add(c, CHECK_ERROR, "server", -1, key, &e);
}

/* Returns RS_OK if an HTTP port may serve other machines: only to clients that prove a
 * right, over TLS. */
static int check_http_reach(const struct check *c, const struct check_http_port *port, struct rs_err *e)
{
	if (port->insecure || port->tls == TLS_MUTUAL || (port->tls == TLS_ON && c->cfg->security.read_token[0]))
		return RS_OK;
	return rs_fail(
	    e, RS_ECONFIG,
	    "%s is not a loopback address: set %s.http_tls to mutual, or to on with a security.read_token, or "
	    "set %s.%s: true if the network is trusted",
	    port->address, port->section, port->section,
	    strcmp(port->section, "server") == 0 ? "http_insecure" : "insecure");
}

void check_http(struct check *c, const struct check_http_port *port)
{
	struct addrinfo *list = NULL;
	struct rs_err e;
	int rc = RS_OK;

	check_http_tls(c, port->section, port->tls);
	if (c->elsewhere && is_name(port->address))
		return;
	rc = check_listen(&list, port->address, true, &e);
	if (!rc && !c->elsewhere)
		rc = check_own(list, port->address, &e);
	for (const struct addrinfo *ai = list; ai && !rc; ai = ai->ai_next)
		if (!is_loopback(ai->ai_addr))
			rc = check_http_reach(c, port, &e);
	if (rc) {
		check_add(c, CHECK_ERROR, port->section, -1, "http", &e);
	} else if (!is_loopback(list->ai_addr) && port->tls != TLS_MUTUAL && !c->cfg->security.read_token[0]) {
		rs_fail(&e, RS_ECONFIG,
			"%s is not a loopback address and there is no security.read_token: other machines get "
			"nothing but health checks",
			port->address);
		check_add(c, CHECK_WARNING, port->section, -1, "http", &e);
	}
	if (list)
		freeaddrinfo(list);
}

void check_listens(struct check *c)
{
	const struct rs_config *cfg = c->cfg;
	struct rs_err e;

	if (cfg->server.state_dir[0] && !cfg->server.grpc[0] && !cfg->server.http[0]) {
		rs_fail(&e, RS_ECONFIG,
			"no records are kept, since without server.grpc or server.http nobody reads them");
		check_add(c, CHECK_WARNING, "server", -1, "state_dir", &e);
	}
	check_one(c, "listen", cfg->server.listen);
	if (cfg->server.grpc[0]) {
		check_one(c, "grpc", cfg->server.grpc);
		check_collide(c, "grpc", cfg->server.grpc, "listen", cfg->server.listen);
	}
	if (!cfg->server.http[0])
		return;
	check_http(c, &(struct check_http_port){.section = "server",
						.address = cfg->server.http,
						.tls = cfg->server.http_tls,
						.insecure = cfg->server.insecure || cfg->server.http_insecure});
	check_collide(c, "http", cfg->server.http, "listen", cfg->server.listen);
	if (cfg->server.grpc[0])
		check_collide(c, "http", cfg->server.http, "grpc", cfg->server.grpc);
}
