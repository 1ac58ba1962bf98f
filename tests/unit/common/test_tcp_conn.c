/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection carries and how it ends, with TLS and without. */
#include "tests/unit/fake_tcp_pair.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Fills bytes that depend on their position. */
static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 31 + (i >> 8) * 17 + (i >> 16));
}

enum { TOTAL = 300000 };

/* Sends what is accepted of [at, TOTAL) in iovecs of `piece` bytes, 3 at a time. */
static size_t push(struct tcp_conn *w, size_t at, size_t piece)
{
	static uint8_t data[TOTAL];
	struct iovec iov[3];
	unsigned n = 0;
	ssize_t sent;

	for (size_t i = data[TOTAL - 1] ? TOTAL : 0; i < TOTAL; i++)
		data[i] = byte_at(i);
	for (size_t from = at; n < 3 && from < TOTAL; n++, from += piece)
		iov[n] = (struct iovec){data + from, from + piece > TOTAL ? TOTAL - from : piece};
	if (!n)
		return 0;
	sent = tcp_conn_send(w, iov, n);
	must(sent > 0 || (sent < 0 && errno == EAGAIN));
	return sent < 0 ? 0 : (size_t)sent;
}

static size_t pull(struct tcp_conn *w, size_t at, size_t piece)
{
	static uint8_t data[1 << 18];
	struct iovec iov[2] = {{data, piece / 3 + 1}, {data + piece / 3 + 1, piece}};
	ssize_t got = tcp_conn_recv(w, iov, 2);

	must(got > 0 || (got < 0 && errno == EAGAIN));
	for (ssize_t i = 0; i < got; i++)
		must(data[i] == byte_at(at + (size_t)i));
	return got < 0 ? 0 : (size_t)got;
}

static const struct {
	size_t out, in;
	int buffer; /* of the socket; 0: the system's */
} splits[] = {
    {1, 1000, 0},      {48, 65536, 0},   {1000, 7, 0},        {16384, 16384, 0}, {16383, 16385, 0},   {16385, 16383, 0},
    {32768, 32816, 0}, {100000, 333, 0}, {100000, 100000, 0}, {5000, 5000, 1},   {100000, 100000, 1}, {70000, 1, 1},
};

/* Both directions, with sockets that fill up again and again; a side waits only if
 * nothing can move. */
START_TEST(test_splits)
{
	for (int secure = 0; secure < 2; secure++) {
		size_t sent[2] = {0}, got[2] = {0};
		unsigned idle = 0;
		struct tcp_pair p;

		(secure ? tcp_pair_up : tcp_pair_plain)(&p, splits[_i].buffer);
		while (got[0] < TOTAL || got[1] < TOTAL) {
			size_t before = sent[0] + sent[1] + got[0] + got[1];

			sent[0] += push(&p.worker, sent[0], splits[_i].out);
			sent[1] += push(&p.reducer, sent[1], splits[_i].out);
			must(tcp_conn_flush(&p.worker) && tcp_conn_flush(&p.reducer));
			if (got[0] < TOTAL)
				got[0] += pull(&p.reducer, got[0], splits[_i].in);
			if (got[1] < TOTAL)
				got[1] += pull(&p.worker, got[1], splits[_i].in);
			idle = sent[0] + sent[1] + got[0] + got[1] == before ? idle + 1 : 0;
			must(idle < 10);
		}
		ck_assert(!tcp_conn_unsent(&p.worker) && !tcp_conn_unsent(&p.reducer));
		tcp_pair_close(&p);
	}
}
END_TEST

/* Data of the last read may be buffered inside while the descriptor is not readable. */
START_TEST(test_pending)
{
	char out[5000], in[5000];
	struct iovec all = {out, sizeof out}, part = {in, 100};
	unsigned reads = 0;
	struct tcp_pair p;

	memset(out, 7, sizeof out);
	tcp_pair_up(&p, 0);
	must(tcp_conn_recv(&p.reducer, &part, 1) == -1 && errno == EAGAIN);
	ck_assert_msg(!tcp_conn_pending(&p.reducer), "nothing was sent");
	must(tcp_conn_send(&p.worker, &all, 1) == sizeof out);
	for (;; reads++) {
		ssize_t got = tcp_conn_recv(&p.reducer, &part, 1);

		must(got == 100);
		if (!tcp_conn_pending(&p.reducer))
			break;
		must(recv(p.reducer.fd, in, 1, MSG_PEEK) == -1 && errno == EAGAIN);
	}
	ck_assert_uint_eq(reads, 49);
	tcp_pair_close(&p);
}
END_TEST

/* After a full socket the next data offered may differ from the refused data. */
START_TEST(test_other_data_after_full_socket)
{
	static char a[100000], b[100000], in[200000];
	struct iovec ia = {a, sizeof a}, ib = {b, sizeof b}, ii = {in, sizeof in};
	ssize_t sent_a, sent_b, got, total = 0;
	struct tcp_pair p;

	memset(a, 'a', sizeof a);
	memset(b, 'b', sizeof b);
	tcp_pair_up(&p, 1);
	sent_a = tcp_conn_send(&p.worker, &ia, 1);
	must(sent_a > 0 && sent_a < (ssize_t)sizeof a && tcp_conn_unsent(&p.worker));
	must(tcp_conn_send(&p.worker, &ia, 1) == -1 && errno == EAGAIN);
	for (;;) {
		got = tcp_conn_recv(&p.reducer, &ii, 1);
		must(got > 0 || errno == EAGAIN);
		if (got > 0) {
			must(memchr(in, 'b', (size_t)got) == NULL);
			total += got;
		}
		must(tcp_conn_flush(&p.worker));
		if (!tcp_conn_unsent(&p.worker) && total == sent_a)
			break;
	}
	sent_b = tcp_conn_send(&p.worker, &ib, 1);
	must(sent_b > 0);
	while ((got = tcp_conn_recv(&p.reducer, &ii, 1)) < 0)
		must(errno == EAGAIN && tcp_conn_flush(&p.worker));
	must(memchr(in, 'a', (size_t)got) == NULL);
	tcp_pair_close(&p);
}
END_TEST

/* Closing one direction leaves the other one open. */
START_TEST(test_shutdown)
{
	for (int secure = 0; secure < 2; secure++) {
		char out[] = "last words", in[100];
		struct iovec o = {out, sizeof out}, i = {in, sizeof in};
		struct tcp_pair p;

		(secure ? tcp_pair_up : tcp_pair_plain)(&p, 0);
		must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
		tcp_conn_shutdown(&p.worker);
		tcp_conn_shutdown(&p.worker);
		must(tcp_conn_recv(&p.reducer, &i, 1) == sizeof out);
		must(!secure || tcp_conn_pending(&p.reducer)); /* the end, which poll may not report */
		must(tcp_conn_recv(&p.reducer, &i, 1) == 0);
		must(tcp_conn_recv(&p.reducer, &i, 1) == 0);
		must(tcp_conn_send(&p.reducer, &o, 1) == sizeof out);
		must(tcp_conn_recv(&p.worker, &i, 1) == sizeof out);
		must(tcp_conn_recv(&p.worker, &i, 1) == -1 && errno == EAGAIN);
		tcp_conn_shutdown(&p.reducer);
		must(tcp_conn_recv(&p.worker, &i, 1) == 0);
		tcp_pair_close(&p);
	}
}
END_TEST

static unsigned openssl_calls;
void __real_ERR_clear_error(void);
void __wrap_ERR_clear_error(void);

/* The linker puts this function before OpenSSL's (tests/module.mk). */
void __wrap_ERR_clear_error(void)
{
	openssl_calls++;
	__real_ERR_clear_error();
}

/* A paced socket: the kernel spaces segments out, and has no other limit than before. */
START_TEST(test_pace)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	unsigned long rate = 0;
	socklen_t len = sizeof rate;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &len), 0);
	ck_assert_uint_eq(rate, ULONG_MAX);
	tcp_conn_pace(fd, 1000000);
	ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &len), 0);
	ck_assert_uint_eq(rate, 1000000);
	tcp_conn_pace(fd, 0);
	ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &len), 0);
	ck_assert_uint_lt(rate, ULONG_MAX);
	ck_assert_uint_ge(rate, UINT32_MAX - 1);
	close(fd);
}
END_TEST

/* Without TLS a connection never calls OpenSSL: its first call allocates, and OpenSSL 3.5
 * hangs if there is no memory.
 */
START_TEST(test_plain_without_openssl)
{
	char out[] = "last words", in[100];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct tcp_pair p;

	tcp_pair_plain(&p, 0);
	openssl_calls = 0;
	must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
	tcp_conn_shutdown(&p.worker);
	must(tcp_conn_recv(&p.reducer, &i, 1) == sizeof out);
	must(tcp_conn_recv(&p.reducer, &i, 1) == 0);
	tcp_pair_close(&p);
	ck_assert_uint_eq(openssl_calls, 0);
	tcp_pair_up(&p, 0);
	ck_assert_uint_gt(openssl_calls, 0);
	tcp_pair_close(&p);
}
END_TEST

/* While a record waits for the socket, the shutdown waits behind it. */
START_TEST(test_shutdown_of_a_full_socket)
{
	static char out[100000], in[100000];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	ssize_t sent, got, total = 0;
	struct tcp_pair p;

	tcp_pair_up(&p, 1);
	sent = tcp_conn_send(&p.worker, &o, 1);
	must(sent > 0 && tcp_conn_unsent(&p.worker));
	tcp_conn_shutdown(&p.worker);
	while ((got = tcp_conn_recv(&p.reducer, &i, 1)) != 0) {
		must(got > 0 || errno == EAGAIN);
		total += got > 0 ? got : 0;
		must(tcp_conn_flush(&p.worker));
	}
	must(total == sent);
	must(recv(p.reducer.fd, in, 1, 0) == 0); /* the socket is closed too */
	tcp_pair_close(&p);
}
END_TEST

/* An attacker cuts the connection: without TLS this looks like its end. */
START_TEST(test_truncated)
{
	char out[] = "words", in[100], reason[TCP_CONN_REASON];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct tcp_pair p;

	tcp_pair_up(&p, 0);
	must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
	shutdown(p.worker.fd, SHUT_WR);
	must(tcp_conn_recv(&p.reducer, &i, 1) == sizeof out);
	must(tcp_conn_recv(&p.reducer, &i, 1) == -1 && errno == EPROTO);
	ck_assert_str_eq(tcp_conn_reason(&p.reducer, reason), "it closed the connection without ending TLS first");
	tcp_pair_close(&p);
	tcp_pair_plain(&p, 0);
	shutdown(p.worker.fd, SHUT_WR);
	must(tcp_conn_recv(&p.reducer, &i, 1) == 0);
	ck_assert_str_eq(tcp_conn_reason(&p.reducer, reason), "it closed the connection");
	tcp_pair_close(&p);
}
END_TEST

/* Each bit of a record is checked, and data after a damaged record is refused too. */
START_TEST(test_damaged)
{
	char out[100] = "words", in[200], raw[200], reason[TCP_CONN_REASON];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct tcp_pair p;
	ssize_t n;
	int fds[2];

	tcp_pair_up(&p, 0);
	tcp_pair_sockets(fds, 0);
	must(dup2(fds[0], p.worker.fd) >= 0); /* what it sends now goes elsewhere */
	must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
	n = recv(fds[1], raw, sizeof raw, 0);
	must(n == sizeof out + 22);
	raw[50] ^= 1;
	close(fds[0]);
	tcp_pair_sockets(fds, 0);
	must(dup2(fds[0], p.reducer.fd) >= 0);
	must(send(fds[1], raw, (size_t)n, 0) == n);
	raw[50] ^= 1;
	must(send(fds[1], raw, (size_t)n, 0) == n);
	must(tcp_conn_recv(&p.reducer, &i, 1) == -1 && errno == EPROTO);
	ck_assert_msg(strstr(tcp_conn_reason(&p.reducer, reason), "bad record mac"), "%s", reason);
	must(tcp_conn_recv(&p.reducer, &i, 1) == -1 && errno == EPROTO);
	must(tcp_conn_send(&p.reducer, &o, 1) == -1 && errno == EPROTO);
	close(fds[0]);
	close(fds[1]);
	tcp_pair_close(&p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tcp_conn");
	TCase *tc = tcase_create("tcp_conn");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, tcp_pair_setup, tcp_pair_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_splits, 0, (int)(sizeof splits / sizeof splits[0]));
	tcase_add_test(tc, test_pending);
	tcase_add_test(tc, test_other_data_after_full_socket);
	tcase_add_test(tc, test_shutdown);
	tcase_add_test(tc, test_pace);
	tcase_add_test(tc, test_plain_without_openssl);
	tcase_add_test(tc, test_shutdown_of_a_full_socket);
	tcase_add_test(tc, test_truncated);
	tcase_add_test(tc, test_damaged);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
