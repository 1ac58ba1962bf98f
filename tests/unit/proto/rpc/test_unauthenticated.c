/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rpc/unauthenticated.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CROWD = 150 };

/* A listening socket that replaces gRPC's, and the refusals of its connections. */
struct port {
	int fd;
	struct unauth *unauth;
	unsigned refused;
	char peer[80]; /* the last one */
};

struct connection {
	int client, server;
	char peer[80]; /* as gRPC writes it */
};

static void on_refused(void *ctx, const char *peer, const struct rs_err *why)
{
	struct port *p = ctx;

	p->refused++;
	snprintf(p->peer, sizeof p->peer, "%s", peer);
	ck_assert_str_eq(why->msg, "it sent more than an unauthenticated connection may: 64 KiB at once, then 8 KiB/s");
}

/* Listens on this address of IPv6, also on IPv4 if the address covers it. `host`: the
 * host that unauth_new gets. */
static void port_open(struct port *p, const char *ip, const char *host)
{
	struct sockaddr_in6 sa = {.sin6_family = AF_INET6};
	struct unauth_options opt = {.refused = on_refused, .ctx = p};
	socklen_t len = sizeof sa;
	int off = 0;
	char address[100];
	struct rs_err e;

	memset(p, 0, sizeof *p);
	ck_assert_int_eq(inet_pton(AF_INET6, ip, &sa.sin6_addr), 1);
	p->fd = socket(AF_INET6, SOCK_STREAM, 0);
	ck_assert_int_eq(setsockopt(p->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off), 0);
	ck_assert_int_eq(bind(p->fd, (struct sockaddr *)&sa, sizeof sa), 0);
	ck_assert_int_eq(listen(p->fd, CROWD), 0);
	ck_assert_int_eq(getsockname(p->fd, (struct sockaddr *)&sa, &len), 0);
	opt.port = ntohs(sa.sin6_port);
	snprintf(address, sizeof address, "%s:%u", host, opt.port);
	opt.address = address;
	ck_assert_msg(unauth_new(&p->unauth, &opt, &e) == RS_OK, "%s", e.msg);
}

static void port_close(struct port *p)
{
	unauth_free(p->unauth);
	close(p->fd);
}

static void sockets_close(struct connection *c)
{
	close(c->client);
	close(c->server);
}

/* Connects to this address of IPv4 or IPv6. */
static void connect_to(struct connection *c, const struct port *p, const char *ip)
{
	struct sockaddr_in6 sa;
	socklen_t len = sizeof sa;
	char text[INET6_ADDRSTRLEN];
	int one = 1;

	ck_assert_int_eq(getsockname(p->fd, (struct sockaddr *)&sa, &len), 0);
	ck_assert_int_eq(inet_pton(AF_INET6, ip, &sa.sin6_addr), 1);
	c->client = socket(AF_INET6, SOCK_STREAM, 0);
	setsockopt(c->client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	ck_assert_int_eq(connect(c->client, (struct sockaddr *)&sa, sizeof sa), 0);
	c->server = accept(p->fd, (struct sockaddr *)&sa, &len);
	ck_assert_int_ge(c->server, 0);
	if (IN6_IS_ADDR_V4MAPPED(&sa.sin6_addr))
		snprintf(c->peer, sizeof c->peer, "%s:%u",
			 inet_ntop(AF_INET, sa.sin6_addr.s6_addr + 12, text, sizeof text), ntohs(sa.sin6_port));
	else
		snprintf(c->peer, sizeof c->peer, "[%s]:%u", inet_ntop(AF_INET6, &sa.sin6_addr, text, sizeof text),
			 ntohs(sa.sin6_port));
}

/* Sends so many bytes and reads them, as gRPC would. */
static void pour(struct connection *c, unsigned bytes)
{
	static char buf[1024];

	ck_assert_uint_eq(bytes % sizeof buf, 0);
	for (unsigned i = 0; i < bytes; i += sizeof buf) {
		ck_assert_int_eq(send(c->client, buf, sizeof buf, 0), sizeof buf);
		ck_assert_int_eq(recv(c->server, buf, sizeof buf, MSG_WAITALL), sizeof buf);
	}
}

/* Neither can read from the other. */
static bool is_down(const struct connection *c)
{
	char byte;
	bool down = recv(c->server, &byte, 1, MSG_DONTWAIT) == 0;

	/* the kernel may deliver the end later */
	ck_assert_int_eq(recv(c->client, &byte, 1, down ? 0 : MSG_DONTWAIT), down ? 0 : -1);
	return down;
}

/* Bytes that are sent before a scan. */
struct step {
	unsigned at_ms, bytes;
};

static const struct row {
	const char *name, *ip, *host, *to;
	bool admitted;
	struct step steps[4];
	bool refused;
} rows[] = {
    {"little", "::", "[::]", "::1", false, {{50, 4096}}, false},
    {"as much as it may", "::", "[::]", "::1", false, {{50, UNAUTH_BYTES}}, false},
    {"more", "::", "[::]", "::1", false, {{50, UNAUTH_BYTES + 1024}}, true},
    {"more in parts", "::", "[::]", "::1", false, {{50, UNAUTH_BYTES}, {100, 1024}}, true},
    {"what a second adds", "::", "[::]", "::1", false, {{50, UNAUTH_BYTES}, {1050, UNAUTH_BYTES_PER_S}}, false},
    {"and more", "::", "[::]", "::1", false, {{50, UNAUTH_BYTES}, {1050, UNAUTH_BYTES_PER_S + 1024}}, true},
    {"nothing is saved", "::", "[::]", "::1", false, {{50, 1024}, {600000, UNAUTH_BYTES}, {600050, 1024}}, true},
    {"who is admitted", "::", "[::]", "::1", true, {{50, 4 * UNAUTH_BYTES}}, false},
    {"over IPv4", "::", "0.0.0.0", "::ffff:127.0.0.1", false, {{50, UNAUTH_BYTES + 1024}}, true},
    {"admitted over IPv4", "::", "*", "::ffff:127.0.0.1", true, {{50, 4 * UNAUTH_BYTES}}, false},
    {"one address", "::ffff:127.0.0.1", "127.0.0.1", "::ffff:127.0.0.1", false, {{50, UNAUTH_BYTES + 1024}}, true},
    {"a name", "::ffff:127.0.0.1", "localhost", "::ffff:127.0.0.1", false, {{50, UNAUTH_BYTES + 1024}}, true},
    {"IPv6 alone", "::1", "[::1]", "::1", false, {{50, UNAUTH_BYTES + 1024}}, true},
    {"the port of another address",
     "::ffff:127.0.0.2",
     "127.0.0.1",
     "::ffff:127.0.0.2",
     false,
     {{50, 4 * UNAUTH_BYTES}},
     false},
};

START_TEST(connections_above_the_limit_are_refused)
{
	const struct row *row = &rows[_i];
	struct connection c;
	struct port p;

	port_open(&p, row->ip, row->host);
	connect_to(&c, &p, row->to);
	if (row->admitted)
		unauth_trust(p.unauth, c.peer);
	for (unsigned i = 0; i < 4 && row->steps[i].at_ms; i++) {
		ck_assert_msg(p.refused == 0, "%s: step %u", row->name, i);
		pour(&c, row->steps[i].bytes);
		unauth_scan(p.unauth, row->steps[i].at_ms);
	}
	ck_assert_msg(p.refused == row->refused && is_down(&c) == row->refused, "%s", row->name);
	ck_assert_str_eq(p.peer, row->refused ? c.peer : "");
	unauth_scan(p.unauth, 700000);
	ck_assert_uint_eq(p.refused, row->refused); /* once */
	sockets_close(&c);
	port_close(&p);
}
END_TEST

/* A peer that sends until there is no room learns that gRPC, which has read all of it,
 * has closed the connection. */
START_TEST(a_peer_that_waits_for_room_gets_a_reset)
{
	static char buf[65536];
	struct connection c;
	struct pollfd p = {.fd = -1};
	struct port port;

	port_open(&port, "::", "[::]");
	connect_to(&c, &port, "::1");
	p.fd = c.client;
	while (poll(&(struct pollfd){.fd = c.client, .events = POLLOUT}, 1, 300) == 1)
		send(c.client, buf, sizeof buf, MSG_DONTWAIT);
	unauth_scan(port.unauth, 50);
	ck_assert_uint_eq(port.refused, 1);
	while (recv(c.server, buf, sizeof buf, 0) > 0)
		;
	close(c.server);
	ck_assert_int_eq(poll(&p, 1, 20000), 1);
	ck_assert_int_ne(p.revents & (POLLERR | POLLHUP), 0);
	close(c.client);
	port_close(&port);
}
END_TEST

/* A new connection with a reused descriptor starts with no bytes, and is not trusted. */
START_TEST(a_reused_descriptor_starts_a_new_connection)
{
	struct connection first, second;
	struct port p;
	int fd;

	port_open(&p, "::", "[::]");
	for (unsigned admitted = 0; admitted < 2; admitted++) {
		connect_to(&first, &p, "::1");
		if (admitted)
			unauth_trust(p.unauth, first.peer);
		pour(&first, UNAUTH_BYTES);
		unauth_scan(p.unauth, 50);
		fd = first.server;
		sockets_close(&first);
		connect_to(&second, &p, "::1");
		ck_assert_int_eq(second.server, fd);
		pour(&second, UNAUTH_BYTES);
		unauth_scan(p.unauth, 50);
		ck_assert_uint_eq(p.refused, admitted);
		pour(&second, 1024);
		unauth_scan(p.unauth, 50);
		ck_assert_uint_eq(p.refused, admitted + 1);
		sockets_close(&second);
	}
	port_close(&p);
}
END_TEST

/* More connections are trusted between two scans than the list holds; some twice, some
 * already closed. */
START_TEST(more_trusted_connections_than_the_list_holds)
{
	static struct connection c[CROWD];
	struct port p;

	port_open(&p, "::", "[::]");
	for (unsigned i = 0; i < CROWD; i++) {
		connect_to(&c[i], &p, i % 2 ? "::1" : "::ffff:127.0.0.1");
		unauth_trust(p.unauth, c[i].peer);
		unauth_trust(p.unauth, c[i].peer);
		unauth_trust(p.unauth, "[::1]:1");
	}
	for (unsigned i = 0; i < CROWD; i++)
		pour(&c[i], UNAUTH_BYTES + 1024);
	unauth_scan(p.unauth, 50);
	ck_assert_uint_eq(p.refused, 0);
	for (unsigned i = 0; i < CROWD; i++)
		sockets_close(&c[i]);
	port_close(&p);
}
END_TEST

/* An invalid address trusts no connection and does no harm. */
START_TEST(an_invalid_address_is_ignored)
{
	static const char *const texts[] = {"?",      "",       "unknown",         "[::1]",
					    "host:1", "[::1:1", "127.0.0.1:99999", "unix:a"};
	struct port p;

	port_open(&p, "::", "[::]");
	for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++)
		unauth_trust(p.unauth, texts[i]);
	unauth_scan(p.unauth, 50);
	port_close(&p);
}
END_TEST

/* A flood has taken all descriptors. */
START_TEST(a_scan_needs_no_descriptor)
{
	struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
	struct connection c;
	struct port p;

	port_open(&p, "::", "[::]");
	connect_to(&c, &p, "::1");
	pour(&c, UNAUTH_BYTES + 1024);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (dup(p.fd) >= 0)
		;
	ck_assert_int_eq(errno, EMFILE);
	unauth_scan(p.unauth, 50);
	ck_assert_uint_eq(p.refused, 1);
	ck_assert(is_down(&c));
	/* no reference is kept: the peer sees the end after gRPC has closed it */
	unauth_scan(p.unauth, 100);
	sockets_close(&c);
	ck_assert_int_ge(dup(p.fd), 0);
	ck_assert_int_ge(dup(p.fd), 0);
	ck_assert_int_eq(dup(p.fd), -1);
	port_close(&p);
}
END_TEST

START_TEST(no_such_host)
{
	struct unauth_options opt = {.address = "nonsense", .port = 7601};
	struct unauth *s;
	struct rs_err e;

	ck_assert_int_eq(unauth_new(&s, &opt, &e), RS_ECONFIG);
	ck_assert_ptr_nonnull(strstr(e.msg, "\"nonsense\" is not an address; host:port"));
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("unauthenticated");
	Suite *suite = suite_create("unauthenticated");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, cases);
	tcase_add_loop_test(cases, connections_above_the_limit_are_refused, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(cases, a_peer_that_waits_for_room_gets_a_reset);
	tcase_add_test(cases, a_reused_descriptor_starts_a_new_connection);
	tcase_add_test(cases, more_trusted_connections_than_the_list_holds);
	tcase_add_test(cases, an_invalid_address_is_ignored);
	tcase_add_test(cases, a_scan_needs_no_descriptor);
	tcase_add_test(cases, no_such_host);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
