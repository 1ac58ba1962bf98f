/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_tcp_pair.h"

#include "common/tls.h"

#include <check.h>
#include <sys/socket.h>

struct certs tcp_pair_certs;

void tcp_pair_setup(void)
{
	static const struct cert list[] = {
	    {.name = "ca", .cn = "authority"},
	    {.name = "not_tls", .cn = "another authority"},
	    {.name = "r0", .issuer = "ca", .cn = "r0", .sans = "DNS:localhost,IP:127.0.0.1"},
	    {.name = "spoof", .issuer = "not_tls", .cn = "r0", .sans = "DNS:localhost"},
	    {.name = "w", .issuer = "ca", .cn = "resnet"},
	    {.name = "stranger", .issuer = "not_tls", .cn = "resnet"},
	    /* until it is used: an expired certificate is refused at the start */
	    {.name = "short", .issuer = "ca", .cn = "short", .sans = "DNS:localhost", .from_s = -3600, .till_s = 1},
	};

	certs_init(&tcp_pair_certs);
	for (unsigned i = 0; i < sizeof list / sizeof list[0]; i++)
		certs_make(&tcp_pair_certs, &list[i]);
}

void tcp_pair_teardown(void)
{
	certs_close(&tcp_pair_certs);
}

void tcp_pair_sockets(int fds[2], int buffer)
{
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
	for (int i = 0; buffer && i < 2; i++)
		setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
}

void tcp_pair_shake(struct tcp_pair *p, enum tcp_conn_progress *w, enum tcp_conn_progress *r, struct rs_err *we,
		    struct rs_err *re)
{
	*w = *r = TCP_CONN_WAIT;
	for (int i = 0; i < 50 && (*w == TCP_CONN_WAIT || *r == TCP_CONN_WAIT); i++) {
		if (*w == TCP_CONN_WAIT)
			*w = tcp_conn_handshake(&p->worker, we);
		if (*r == TCP_CONN_WAIT)
			*r = tcp_conn_handshake(&p->reducer, re);
	}
}

void tcp_pair_begin(struct tcp_pair *p, SSL_CTX *worker, SSL_CTX *reducer, const char *name, int buffer)
{
	struct rs_err e;
	int fds[2];

	tcp_pair_sockets(fds, buffer);
	must(tcp_conn_connect(&p->worker, fds[0], worker, name, &p->session, &e) == RS_OK);
	must(tcp_conn_accept(&p->reducer, fds[1], reducer, "", 0, &e) == RS_OK);
}

void tcp_pair_up(struct tcp_pair *p, int buffer)
{
	SSL_CTX *worker = certs_worker(&tcp_pair_certs, "w", "ca"),
		*reducer = certs_reducer(&tcp_pair_certs, TLS_MUTUAL, "r0", "ca");
	enum tcp_conn_progress w, r;
	struct rs_err we = {0}, re = {0};

	*p = (struct tcp_pair){.session = NULL};
	tcp_pair_begin(p, worker, reducer, "localhost", buffer);
	tcp_pair_shake(p, &w, &r, &we, &re);
	ck_assert_msg(w == TCP_CONN_UP && r == TCP_CONN_UP, "%s / %s", we.msg, re.msg);
	SSL_CTX_free(worker); /* the connections hold them */
	SSL_CTX_free(reducer);
}

void tcp_pair_plain(struct tcp_pair *p, int buffer)
{
	int fds[2];

	*p = (struct tcp_pair){.session = NULL};
	tcp_pair_sockets(fds, buffer);
	tcp_conn_plain(&p->worker, fds[0]);
	tcp_conn_plain(&p->reducer, fds[1]);
}

void tcp_pair_close(struct tcp_pair *p)
{
	tcp_conn_close(&p->worker);
	tcp_conn_close(&p->reducer);
	SSL_SESSION_free(p->session);
}
