/* SPDX-License-Identifier: Apache-2.0 */
/* The user at the other end of a connection, with real sockets of this process; as root
 * also with one of another user. */
#include "common/peer.h"

#include "common/address.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

/* Connects to a new listener: over IPv4, IPv6, or IPv4 in IPv6's form. */
struct pair {
	int listener, client;
	unsigned port;
	char address[RS_ENDPOINT_TEXT]; /* of the client */
};

static const char *const hosts[] = {"127.0.0.1", "::1", "::ffff:127.0.0.1"};

static struct sockaddr_storage address_of(const char *host, unsigned port, socklen_t *len)
{
	struct sockaddr_storage ret = {0};
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&ret;
	struct sockaddr_in *four = (struct sockaddr_in *)&ret;

	if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons((uint16_t)port);
		*len = sizeof *four;
		return ret;
	}
	ck_assert_int_eq(inet_pton(AF_INET6, host, &six->sin6_addr), 1);
	six->sin6_family = AF_INET6;
	six->sin6_port = htons((uint16_t)port);
	*len = sizeof *six;
	return ret;
}

static unsigned name_of(int fd, char text[RS_ENDPOINT_TEXT])
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof sa;
	struct rs_endpoint end;

	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	ck_assert(rs_endpoint_of_sockaddr(&end, (struct sockaddr *)&sa));
	rs_endpoint_print(&end, text);
	return rs_endpoint_port(&end);
}

static bool pair_open(struct pair *p, const char *host)
{
	char text[RS_ENDPOINT_TEXT];
	socklen_t len;
	struct sockaddr_storage sa = address_of(host, 0, &len);

	p->listener = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	p->client = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (p->listener < 0 || bind(p->listener, (struct sockaddr *)&sa, len)) {
		close(p->listener);
		close(p->client);
		return false; /* there is no IPv6 */
	}
	ck_assert_int_eq(listen(p->listener, 1), 0);
	p->port = name_of(p->listener, text);
	sa = address_of(host, p->port, &len);
	ck_assert_int_eq(connect(p->client, (struct sockaddr *)&sa, len), 0);
	name_of(p->client, p->address);
	return true;
}

static void pair_close(struct pair *p)
{
	close(p->listener);
	close(p->client);
}

START_TEST(own_sockets_are_found)
{
	struct pair p;

	if (!pair_open(&p, hosts[_i]))
		return;
	ck_assert(rs_peer_is_own(p.address, p.port));
	ck_assert(!rs_peer_is_own(p.address, p.port + 1)); /* of another port */
	ck_assert(!rs_peer_is_own("127.0.0.1:1", p.port));
	ck_assert(!rs_peer_is_own("nonsense", p.port));
	pair_close(&p);
	ck_assert(!rs_peer_is_own(p.address, p.port));
}
END_TEST

START_TEST(others_are_not_trusted)
{
	struct pair p;
	pid_t pid;
	int status;

	if (geteuid())
		return; /* only root can become somebody else */
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		/* root's socket is trusted, and an own one */
		bool good = pair_open(&p, hosts[0]) && !setuid(NOBODY) && rs_peer_is_own(p.address, p.port);

		pair_close(&p);
		good = good && pair_open(&p, hosts[0]) && rs_peer_is_own(p.address, p.port);
		_exit(good ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(seteuid(NOBODY), 0);
	ck_assert(pair_open(&p, hosts[0]));
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert(!rs_peer_is_own(p.address, p.port));
	pair_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("peer");
	TCase *t = tcase_create("peer");
	SRunner *r;
	int failed;

	tcase_add_loop_test(t, own_sockets_are_found, 0, sizeof hosts / sizeof hosts[0]);
	tcase_add_test(t, others_are_not_trusted);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
