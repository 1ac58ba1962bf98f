/* SPDX-License-Identifier: Apache-2.0 */
#include "common/address.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOST_255                                                                                                       \
	"a123456789.b123456789.c123456789.d123456789.e123456789.f123456789.g123456789.h123456789.i123456789."          \
	"j123456789.k123456789.l123456789.m123456789.n123456789.o123456789.p123456789.q123456789.r123456789."          \
	"s123456789.t123456789.u123456789.v123456789.w123456789.xy"
_Static_assert(sizeof HOST_255 == sizeof((struct rs_host_port *)0)->host, "the longest host");

static const struct {
	const char *text, *host, *port;
	const char *want; /* else a part of the error when connecting, */
	bool listen;      /* and whether listening is allowed */
} splits[] = {
    {"localhost:7600", "localhost", "7600", NULL, true},
    {"127.0.0.1:1", "127.0.0.1", "1", NULL, true},
    {"h:65535", "h", "65535", NULL, true},
    {"h:007600", "h", "7600", NULL, true},
    {"[::1]:7600", "::1", "7600", NULL, true},
    {"[fe80::1%eth0]:80", "fe80::1%eth0", "80", NULL, true},
    {HOST_255 ":65535", HOST_255, "65535", NULL, true},
    {"[" HOST_255 "]:65535", HOST_255, "65535", NULL, true},
    {HOST_255 "z:1", NULL, NULL, "has 256 bytes, at most 255", false},
    {":80", "", "80", "\":80\" is not an address", true},
    {"*:80", "", "80", "\"*:80\" is not an address", true},
    {"*:0", "", "0", "\"*:0\" is not an address", true},
    {"h:0", "h", "0", "with a port of 1 to 65535", true},
    {"", NULL, NULL, "\"\" is not an address; host:port or [IPv6]:port was expected", false},
    {"h", NULL, NULL, "\"h\" is not an address", false},
    {"*", NULL, NULL, "\"*\" is not an address", false},
    {"**:80", NULL, NULL, "\"**:80\" is not an address", false},
    {"[*]:", NULL, NULL, "\"[*]:\" is not an address", false},
    {"[]:80", NULL, NULL, "\"[]:80\" is not an address", false},
    {"::1:80", NULL, NULL, "\"::1:80\" is not an address; host:port or [IPv6]:port was expected", false},
    {"[::1]", NULL, NULL, "\"[::1]\" is not an address", false},
    {"[::1:80", NULL, NULL, "\"[::1:80\" is not an address", false},
    {"[[::1]]:80", NULL, NULL, "\"[[::1]]:80\" is not an address", false},
    {"h:", NULL, NULL, "\"h:\" is not an address; host:port with a port of 1 to 65535 was expected", false},
    {"h:65536", NULL, NULL, "with a port of 1 to 65535", false},
    {"h:99999999999999999999999", NULL, NULL, "with a port of 1 to 65535", false},
    {"h:-1", NULL, NULL, "with a port of 1 to 65535", false},
    {"h:+1", NULL, NULL, "with a port of 1 to 65535", false},
    {"h: 1", NULL, NULL, "with a port of 1 to 65535", false},
    {"h:1x", NULL, NULL, "with a port of 1 to 65535", false},
    {"h:http", NULL, NULL, "with a port of 1 to 65535", false},
    {"[::1]:x", NULL, NULL, "\"[::1]:x\" is not an address; host:port with a port", false},
};

START_TEST(host_and_port)
{
	const int row = _i / 2;
	bool listen = _i % 2;
	struct rs_host_port at;
	struct rs_err e = {0};

	memset(&at, 0xa5, sizeof at);
	if (listen ? !splits[row].listen : splits[row].want != NULL) {
		ck_assert_int_eq(rs_host_port_split(&at, splits[row].text, listen, &e), RS_ECONFIG);
		ck_assert_msg(listen || strstr(e.msg, splits[row].want), "%s", e.msg);
		return;
	}
	ck_assert_int_eq(rs_host_port_split(&at, splits[row].text, listen, &e), RS_OK);
	ck_assert_str_eq(at.host, splits[row].host);
	ck_assert_str_eq(at.port, splits[row].port);
}
END_TEST

static const struct {
	const char *text, *print; /* print NULL: it is none */
	bool loopback, any;
} ends[] = {
    {"127.0.0.1:4711", "127.0.0.1:4711", true, false},
    {"127.8.9.10:1", "127.8.9.10:1", true, false},
    {"128.0.0.1:1", "128.0.0.1:1", false, false},
    {"0.0.0.0:80", "0.0.0.0:80", false, true},
    {"[::]:80", "[::]:80", false, true},
    {"[::1]:65535", "[::1]:65535", true, false},
    {"[::2]:0", "[::2]:0", false, false},
    {"[::ffff:127.0.0.1]:9", "127.0.0.1:9", true, false},
    {"[::ffff:10.0.0.1]:9", "10.0.0.1:9", false, false},
    {"[fe80::1%eth0]:9", "[fe80::1]:9", false, false},
    {"[2001:db8:1:2:3:4:5:6]:256", "[2001:db8:1:2:3:4:5:6]:256", false, false},
    {"[127.0.0.1]:9", NULL, false, false},
    {"::1:9", NULL, false, false},
    {"*:9", NULL, false, false},
    {":9", NULL, false, false},
    {"localhost:9", NULL, false, false},
    {"127.0.0.1", NULL, false, false},
    {"unix:/run/x", NULL, false, false},
    {"unknown", NULL, false, false},
};

START_TEST(endpoints_from_text)
{
	char text[RS_ENDPOINT_TEXT];
	struct rs_endpoint end;

	ck_assert_int_eq(rs_endpoint_of_text(&end, ends[_i].text), ends[_i].print != NULL);
	if (!ends[_i].print)
		return;
	rs_endpoint_print(&end, text);
	ck_assert_str_eq(text, ends[_i].print);
	ck_assert_int_eq(rs_endpoint_is_loopback(&end), ends[_i].loopback);
	ck_assert_int_eq(rs_endpoint_is_any(&end), ends[_i].any);
}
END_TEST

START_TEST(endpoints_of_sockets_equal_those_from_text)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7600)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7600), .sin6_scope_id = 3};
	struct sockaddr other = {.sa_family = AF_UNIX};
	struct rs_endpoint a, b;

	v4.sin_addr.s_addr = htonl(0x0a000001);
	inet_pton(AF_INET6, "::ffff:10.0.0.1", &v6.sin6_addr);
	ck_assert(rs_endpoint_of_sockaddr(&a, (struct sockaddr *)&v4));
	ck_assert_uint_eq(rs_endpoint_port(&a), 7600);
	ck_assert(rs_endpoint_of_sockaddr(&b, (struct sockaddr *)&v6));
	ck_assert_mem_eq(&a, &b, sizeof a);
	ck_assert(rs_endpoint_of_text(&b, "10.0.0.1:7600"));
	ck_assert_mem_eq(&a, &b, sizeof a);
	ck_assert(rs_endpoint_of_text(&b, "10.0.0.1:7601"));
	ck_assert(memcmp(&a, &b, sizeof a) != 0);
	ck_assert(rs_endpoint_same_host(&a, &b));
	inet_pton(AF_INET6, "fe80::1", &v6.sin6_addr);
	ck_assert(rs_endpoint_of_sockaddr(&a, (struct sockaddr *)&v6));
	ck_assert(rs_endpoint_of_text(&b, "[fe80::1%3]:7600"));
	ck_assert_mem_eq(&a, &b, sizeof a);
	ck_assert(!rs_endpoint_of_sockaddr(&a, &other));
}
END_TEST

START_TEST(a_cookie_identifies_a_socket)
{
	int fds[2], more;
	uint64_t a, b;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	more = dup(fds[0]);
	ck_assert(rs_socket_cookie(fds[0], &a) && rs_socket_cookie(fds[1], &b));
	ck_assert_uint_ne(a, b);
	ck_assert(rs_socket_cookie(more, &b));
	ck_assert_uint_eq(a, b);
	close(fds[0]);
	close(fds[1]);
	close(more);
	ck_assert(!rs_socket_cookie(more, &b));
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert(!rs_socket_cookie(fds[0], &b));
	close(fds[0]);
	close(fds[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("address");
	TCase *t = tcase_create("address");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, host_and_port, 0, 2 * sizeof splits / sizeof splits[0]);
	tcase_add_loop_test(t, endpoints_from_text, 0, sizeof ends / sizeof ends[0]);
	tcase_add_test(t, endpoints_of_sockets_equal_those_from_text);
	tcase_add_test(t, a_cookie_identifies_a_socket);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
