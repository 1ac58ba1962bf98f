/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the module for gRPC, and its queues. */
#include "tests/unit/fake_rpc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint8_t pattern(size_t at)
{
	return (uint8_t)(at * 31 + at / 251);
}

/* Moves `bytes` from one end to the other with buffers of these sizes, as far as possible
 * without waiting. */
struct flow {
	struct rpc_stream *from, *to;
	size_t bytes, sent, received, write, read;
};

static bool flow_step(struct flow *f)
{
	static uint8_t out[1 << 20], in[1 << 20];
	bool moved = false;
	ssize_t n;

	if (f->sent < f->bytes) {
		size_t want = f->bytes - f->sent < f->write ? f->bytes - f->sent : f->write;
		size_t half = want / 3;
		struct iovec iov[2] = {{out, half}, {out + half, want - half}};

		for (size_t i = 0; i < want; i++)
			out[i] = pattern(f->sent + i);
		n = frpc.api->stream_send(f->from, iov, 2);
		ck_assert_int_ne(n, RPC_BROKEN);
		moved = n > 0;
		f->sent += n > 0 ? (size_t)n : 0;
		if (f->sent == f->bytes)
			frpc.api->stream_finish(f->from);
	}
	if (f->received < f->bytes) {
		struct iovec iov[2] = {{in, f->read / 2}, {in + f->read / 2, f->read - f->read / 2}};

		n = frpc.api->stream_recv(f->to, iov, 2);
		ck_assert_int_ne(n, RPC_BROKEN);
		ck_assert_int_ne(n, 0);
		moved |= n > 0;
		for (ssize_t i = 0; i < n; i++)
			if (in[i] != pattern(f->received + (size_t)i))
				ck_abort_msg("byte %zu is wrong", f->received + (size_t)i);
		f->received += n > 0 ? (size_t)n : 0;
	}
	return moved;
}

/* Waits until recv returns something else than RPC_AGAIN. */
static ssize_t recv_end(struct rpc_stream *s)
{
	uint8_t byte;
	ssize_t n;

	for (unsigned seen = frpc_wakes();; seen = frpc_woken_after(seen)) {
		n = frpc.api->stream_recv(s, &(struct iovec){&byte, 1}, 1);
		if (n != RPC_AGAIN)
			return n;
	}
}

static const struct {
	size_t bytes, write, read;
} flows[] = {
    {1, 1, 1},
    {10, 3, 7},
    {100000, 1000, 64},
    {5000000, 1 << 20, 1 << 20},
    {5000000, 100000, 3333},
    {3 << 20, 32832, 262144},
    {1000, 1, 1 << 20},
};

START_TEST(bytes_go_both_ways)
{
	struct rpc_stream *c = frpc_open(), *s = frpc_stream();
	struct flow up = {c, s, flows[_i].bytes, 0, 0, flows[_i].write, flows[_i].read};
	struct flow down = {s, c, flows[_i].bytes, 0, 0, flows[_i].read, flows[_i].write};
	char peer[RPC_PEER_MAX];

	frpc.api->stream_peer(c, peer);
	ck_assert_str_eq(peer, frpc.address);
	frpc.api->stream_peer(s, peer);
	ck_assert_msg(!strncmp(peer, "127.0.0.1:", 10), "%s", peer);
	for (unsigned seen = frpc_wakes(); up.received < up.bytes || down.received < down.bytes;) {
		bool moved = flow_step(&up);

		/* a server that has finished has ended the call: close it last */
		if (up.received == up.bytes || down.sent + 2 * down.write < down.bytes)
			moved |= flow_step(&down);
		if (!moved)
			seen = frpc_woken_after(seen);
	}
	ck_assert(frpc.api->stream_up(c));
	ck_assert_int_eq(recv_end(s), 0);
	ck_assert_int_eq(recv_end(c), 0);
	frpc.api->stream_close(c, 0, NULL);
	frpc.api->stream_close(s, 0, NULL);
}
END_TEST

/* A peer that does not read stops the sender, and nothing is lost after it reads
 * again. */
START_TEST(a_receiver_that_does_not_read_stops_the_sender)
{
	struct rpc_stream *c = frpc_open(), *s = frpc_stream();
	struct rpc_stream *from = _i ? s : c, *to = _i ? c : s;
	struct flow f = {from, to, 64 << 20, 0, 0, 1 << 20, 1 << 20};
	static uint8_t buffer[1 << 20];
	unsigned seen;

	do {
		seen = frpc_wakes();
		while (f.sent < f.bytes) {
			for (size_t i = 0; i < sizeof buffer; i++)
				buffer[i] = pattern(f.sent + i);
			ssize_t n = frpc.api->stream_send(from, &(struct iovec){buffer, sizeof buffer}, 1);
			if (n == RPC_AGAIN)
				break;
			ck_assert_int_gt(n, 0);
			f.sent += (size_t)n;
		}
		frpc_pass_ms(200); /* no event tells that nothing more will happen */
	} while (seen != frpc_wakes());
	ck_assert_uint_lt(f.sent, 16 << 20);
	for (seen = frpc_wakes(); f.received < f.bytes;)
		if (!flow_step(&f))
			seen = frpc_woken_after(seen);
	frpc.api->stream_close(c, 0, NULL);
	frpc.api->stream_close(s, 0, NULL);
}
END_TEST

/* Asking whether a stream has ended consumes no received bytes. */
START_TEST(the_end_of_a_stream_is_seen_without_reading)
{
	struct rpc_stream *c = frpc_open(), *s = frpc_stream();
	char got[4] = "";
	size_t len = 0;
	ssize_t end;

	ck_assert_int_eq(frpc.api->stream_send(s, &(struct iovec){"abc", 3}, 1), 3);
	frpc.api->stream_finish(s);
	for (unsigned seen = frpc_wakes(); (end = frpc.api->stream_recv(c, NULL, 0)) == RPC_AGAIN;) {
		if (len < 3 && frpc.api->stream_recv(c, &(struct iovec){got + len, 1}, 1) == 1)
			len++;
		else
			seen = frpc_woken_after(seen);
	}
	ck_assert_int_eq(end, 0);
	ck_assert_str_eq(got, "abc");
	frpc.api->stream_close(c, 0, NULL);
	frpc.api->stream_close(s, 0, NULL);
}
END_TEST

START_TEST(a_server_ends_a_stream_with_a_reason)
{
	struct rpc_stream *c = frpc_open(), *s = frpc_stream();
	struct rs_err e;

	frpc.api->stream_close(s, RPC_CODE_ABORTED, "the weather is bad");
	ck_assert_int_eq(recv_end(c), RPC_BROKEN);
	frpc.api->stream_error(c, &e);
	ck_assert_msg(strstr(e.msg, "ABORTED") && strstr(e.msg, "the weather is bad"), "%s", e.msg);
	ck_assert_int_eq(frpc.api->stream_send(c, &(struct iovec){"x", 1}, 1), RPC_BROKEN);
	frpc.api->stream_close(c, 0, NULL);
}
END_TEST

START_TEST(a_client_that_vanishes_is_noticed)
{
	struct rpc_stream *c = frpc_open(), *s = frpc_stream();
	struct rs_err e;

	frpc.api->stream_close(c, 0, NULL);
	ck_assert_int_eq(recv_end(s), RPC_BROKEN);
	frpc.api->stream_error(s, &e);
	ck_assert_msg(strstr(e.msg, "lost"), "%s", e.msg);
	frpc.api->stream_close(s, 0, NULL);
}
END_TEST

/* Opens a stream to this address and returns the reason of its failure. */
static void reason(const char *where, const char *path, struct rs_err *e)
{
	struct rpc_stream *c = frpc_open_at(where, path);

	ck_assert_int_eq(recv_end(c), RPC_BROKEN);
	frpc.api->stream_error(c, e);
	frpc.api->stream_close(c, 0, NULL);
}

START_TEST(an_unknown_method_is_refused)
{
	struct rs_err e;

	reason(frpc.address, "/test.Bytes/Nothing", &e);
	ck_assert_msg(strstr(e.msg, "UNIMPLEMENTED") && strstr(e.msg, "no such method"), "%s", e.msg);
}
END_TEST

/* A socket on loopback that listens, or only keeps its port. */
static int tcp_socket(bool listens, char *name, size_t size)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert(!bind(fd, (struct sockaddr *)&a, sizeof a) && !getsockname(fd, (struct sockaddr *)&a, &len));
	if (listens)
		ck_assert(!listen(fd, 5));
	snprintf(name, size, "127.0.0.1:%u", ntohs(a.sin_port));
	return fd;
}

START_TEST(connecting_to_a_closed_port_fails)
{
	char name[64];
	int fd = tcp_socket(false, name, sizeof name);
	struct rs_err e;

	reason(name, "/test.Bytes/Exchange", &e);
	ck_assert_msg(strcmp(e.msg, "connection refused") == 0, "%s", e.msg);
	close(fd);
}
END_TEST

static const char *const foreign[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "RS\1\3 a frame of ours, not of HTTP/2"};

START_TEST(a_peer_without_grpc_is_reported)
{
	char name[64];
	int fd = tcp_socket(true, name, sizeof name), peer;
	struct rpc_stream *c = frpc_open_at(name, "/test.Bytes/Exchange");
	struct rs_err e;

	peer = accept(fd, NULL, NULL);
	ck_assert_int_gt(write(peer, foreign[_i], strlen(foreign[_i])), 0);
	ck_assert_int_eq(recv_end(c), RPC_BROKEN);
	frpc.api->stream_error(c, &e);
	ck_assert_msg(strstr(e.msg, "does not speak gRPC"), "%s", e.msg);
	frpc.api->stream_close(c, 0, NULL);
	close(peer);
	close(fd);
}
END_TEST

/* Moves bytes between two sockets, on a thread of its own, until it is to stop. */
struct relay {
	int fd[2];
	atomic_bool stop;
};

static void *relay_run(void *arg)
{
	struct relay *r = arg;
	struct pollfd p[2] = {{.fd = r->fd[0], .events = POLLIN}, {.fd = r->fd[1], .events = POLLIN}};
	char buf[4096];
	ssize_t n;

	while (!atomic_load(&r->stop)) {
		poll(p, 2, 10);
		for (unsigned i = 0; i < 2; i++)
			if (p[i].revents && (n = read(p[i].fd, buf, sizeof buf)) > 0)
				ck_assert_int_eq(write(p[!i].fd, buf, (size_t)n), n);
	}
	return NULL;
}

/* A connection ends, or is reset, as by a NAT that has forgotten it. The relay leaves a
 * byte of the client unread, which makes close() a reset. */
START_TEST(a_reset_is_told_from_other_losses)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char name[64];
	int fd = tcp_socket(true, name, sizeof name), to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct rpc_stream *c, *s;
	struct relay r = {.stop = false};
	pthread_t thread;
	struct rs_err e;

	a.sin_port = htons((uint16_t)atoi(strrchr(frpc.address, ':') + 1));
	ck_assert(!connect(to, (struct sockaddr *)&a, sizeof a));
	c = frpc_open_at(name, "/test.Bytes/Exchange");
	r.fd[0] = accept(fd, NULL, NULL);
	r.fd[1] = to;
	ck_assert(!pthread_create(&thread, NULL, relay_run, &r));
	s = frpc_stream();
	ck_assert_int_eq(frpc.api->stream_send(s, &(struct iovec){"x", 1}, 1), 1);
	ck_assert_int_eq(recv_end(c), 1);
	atomic_store(&r.stop, true);
	pthread_join(thread, NULL);
	ck_assert_int_eq(frpc.api->stream_send(c, &(struct iovec){"y", 1}, 1), 1);
	ck_assert_int_eq(poll(&(struct pollfd){.fd = r.fd[0], .events = POLLIN}, 1, 20000), 1);
	if (_i)
		close(r.fd[0]);
	else
		shutdown(r.fd[0], SHUT_WR);
	ck_assert_int_eq(recv_end(c), RPC_BROKEN);
	ck_assert_int_eq(frpc.api->stream_error(c, &e), _i ? RS_LOSS_RESET : RS_LOSS_OTHER);
	if (!_i)
		close(r.fd[0]);
	close(to);
	close(fd);
	frpc.api->stream_close(c, 0, NULL);
	frpc.api->stream_close(s, 0, NULL);
}
END_TEST

START_TEST(calls_above_the_limit_are_refused)
{
	struct rpc_stream *c[FRPC_CALLS_MAX], *s[FRPC_CALLS_MAX];
	struct rs_err e;

	for (unsigned i = 0; i < FRPC_CALLS_MAX; i++) {
		c[i] = frpc_open();
		s[i] = frpc_stream();
	}
	reason(frpc.address, "/test.Bytes/Exchange", &e);
	ck_assert_msg(strstr(e.msg, "RESOURCE_EXHAUSTED"), "%s", e.msg);
	for (unsigned i = 0; i < FRPC_CALLS_MAX; i++) {
		frpc.api->stream_close(c[i], 0, NULL);
		frpc.api->stream_close(s[i], 0, NULL);
	}
}
END_TEST

/* A call without a request ends without waiting for the client. */
START_TEST(a_call_without_a_request_ends)
{
	struct rs_err e;

	reason(frpc.address, "/test.Ask/Ask", &e);
	ck_assert_msg(strstr(e.msg, "no request"), "%s", e.msg);
}
END_TEST

START_TEST(a_kick_ends_a_wait)
{
	int64_t before = frpc_now_ms();

	frpc.api->queue_kick(frpc.served);
	frpc.api->queue_kick(frpc.served);
	frpc.api->queue_serve(frpc.served, -1);
	frpc.api->queue_serve(frpc.served, 50); /* both kicks were one */
	ck_assert_int_ge(frpc_now_ms() - before, 50);
}
END_TEST

/* State of the serving thread. */
static TCase *streams(const char *name, void (*begin)(void))
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, begin, frpc_teardown);
	tcase_add_loop_test(tc, bytes_go_both_ways, 0, sizeof flows / sizeof flows[0]);
	tcase_add_loop_test(tc, a_receiver_that_does_not_read_stops_the_sender, 0, 2);
	tcase_add_test(tc, the_end_of_a_stream_is_seen_without_reading);
	tcase_add_test(tc, a_server_ends_a_stream_with_a_reason);
	tcase_add_test(tc, an_unknown_method_is_refused);
	tcase_add_test(tc, connecting_to_a_closed_port_fails);
	if (begin != frpc_setup)
		tcase_add_test(tc, a_kick_ends_a_wait);
	return tc;
}

int main(void)
{
	Suite *s = suite_create("rpc");
	TCase *tc = streams("served by the module", frpc_setup);

	tcase_add_test(tc, a_client_that_vanishes_is_noticed);
	tcase_add_loop_test(tc, a_peer_without_grpc_is_reported, 0, sizeof foreign / sizeof foreign[0]);
	tcase_add_loop_test(tc, a_reset_is_told_from_other_losses, 0, 2);
	tcase_add_test(tc, calls_above_the_limit_are_refused);
	tcase_add_test(tc, a_call_without_a_request_ends);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, streams("client served here", frpc_setup_client_served));
	suite_add_tcase(s, streams("server served here", frpc_setup_server_served));
	return frpc_run(s) ? EXIT_SUCCESS : EXIT_FAILURE;
}
