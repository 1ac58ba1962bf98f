/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a connection in one thread, over a socket pair. */
#include "common/tcp_conn.h"

#include "common/tls.h"
#include "tests/unit/fake_certs.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define must(condition) ((condition) ? (void)0 : ck_abort_msg("this does not hold: %s", #condition))

static struct certs certs;

static void setup(void)
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

	certs_init(&certs);
	for (unsigned i = 0; i < sizeof list / sizeof list[0]; i++)
		certs_make(&certs, &list[i]);
}

static void teardown(void)
{
	certs_close(&certs);
}

struct pair {
	struct tcp_conn worker, reducer;
	SSL_SESSION *session;
};

static void sockets(int fds[2], int buffer)
{
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
	for (int i = 0; buffer && i < 2; i++)
		setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
}

/* Runs both sides until neither makes progress. */
static void shake(struct pair *p, enum tcp_conn_progress *w, enum tcp_conn_progress *r, struct rs_err *we,
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

static void pair_begin(struct pair *p, SSL_CTX *worker, SSL_CTX *reducer, const char *name, int buffer)
{
	struct rs_err e;
	int fds[2];

	sockets(fds, buffer);
	must(tcp_conn_connect(&p->worker, fds[0], worker, name, &p->session, &e) == RS_OK);
	must(tcp_conn_accept(&p->reducer, fds[1], reducer, "", 0, &e) == RS_OK);
}

/* Makes a connection with mutual TLS. */
static void pair_up(struct pair *p, int buffer)
{
	SSL_CTX *worker = certs_worker(&certs, "w", "ca"), *reducer = certs_reducer(&certs, TLS_MUTUAL, "r0", "ca");
	enum tcp_conn_progress w, r;
	struct rs_err we = {0}, re = {0};

	*p = (struct pair){.session = NULL};
	pair_begin(p, worker, reducer, "localhost", buffer);
	shake(p, &w, &r, &we, &re);
	ck_assert_msg(w == TCP_CONN_UP && r == TCP_CONN_UP, "%s / %s", we.msg, re.msg);
	SSL_CTX_free(worker); /* the connections hold them */
	SSL_CTX_free(reducer);
}

static void pair_plain(struct pair *p, int buffer)
{
	int fds[2];

	*p = (struct pair){.session = NULL};
	sockets(fds, buffer);
	tcp_conn_plain(&p->worker, fds[0]);
	tcp_conn_plain(&p->reducer, fds[1]);
}

static void pair_close(struct pair *p)
{
	tcp_conn_close(&p->worker);
	tcp_conn_close(&p->reducer);
	SSL_SESSION_free(p->session);
}

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

/* Both directions, with sockets that fill up again and again; a side waits only if nothing can move. */
START_TEST(test_splits)
{
	for (int secure = 0; secure < 2; secure++) {
		size_t sent[2] = {0}, got[2] = {0};
		unsigned idle = 0;
		struct pair p;

		(secure ? pair_up : pair_plain)(&p, splits[_i].buffer);
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
		pair_close(&p);
	}
}
END_TEST

/* Data of the last read may be buffered inside while the descriptor is not readable. */
START_TEST(test_pending)
{
	char out[5000], in[5000];
	struct iovec all = {out, sizeof out}, part = {in, 100};
	unsigned reads = 0;
	struct pair p;

	memset(out, 7, sizeof out);
	pair_up(&p, 0);
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
	pair_close(&p);
}
END_TEST

/* After a full socket the next data offered may differ from the refused data. */
START_TEST(test_other_data_after_full_socket)
{
	static char a[100000], b[100000], in[200000];
	struct iovec ia = {a, sizeof a}, ib = {b, sizeof b}, ii = {in, sizeof in};
	ssize_t sent_a, sent_b, got, total = 0;
	struct pair p;

	memset(a, 'a', sizeof a);
	memset(b, 'b', sizeof b);
	pair_up(&p, 1);
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
	pair_close(&p);
}
END_TEST

/* Closing one direction leaves the other one open. */
START_TEST(test_shutdown)
{
	for (int secure = 0; secure < 2; secure++) {
		char out[] = "last words", in[100];
		struct iovec o = {out, sizeof out}, i = {in, sizeof in};
		struct pair p;

		(secure ? pair_up : pair_plain)(&p, 0);
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
		pair_close(&p);
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

/* Without TLS a connection never calls OpenSSL: its first call allocates, and OpenSSL 3.5 hangs if there is no memory.
 */
START_TEST(test_plain_without_openssl)
{
	char out[] = "last words", in[100];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct pair p;

	pair_plain(&p, 0);
	openssl_calls = 0;
	must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
	tcp_conn_shutdown(&p.worker);
	must(tcp_conn_recv(&p.reducer, &i, 1) == sizeof out);
	must(tcp_conn_recv(&p.reducer, &i, 1) == 0);
	pair_close(&p);
	ck_assert_uint_eq(openssl_calls, 0);
	pair_up(&p, 0);
	ck_assert_uint_gt(openssl_calls, 0);
	pair_close(&p);
}
END_TEST

/* While a record waits for the socket, the shutdown waits behind it. */
START_TEST(test_shutdown_of_a_full_socket)
{
	static char out[100000], in[100000];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	ssize_t sent, got, total = 0;
	struct pair p;

	pair_up(&p, 1);
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
	pair_close(&p);
}
END_TEST

/* An attacker cuts the connection: without TLS this looks like its end. */
START_TEST(test_truncated)
{
	char out[] = "words", in[100], reason[TCP_CONN_REASON];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct pair p;

	pair_up(&p, 0);
	must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
	shutdown(p.worker.fd, SHUT_WR);
	must(tcp_conn_recv(&p.reducer, &i, 1) == sizeof out);
	must(tcp_conn_recv(&p.reducer, &i, 1) == -1 && errno == EPROTO);
	ck_assert_str_eq(tcp_conn_reason(&p.reducer, reason), "it closed the connection without ending TLS first");
	pair_close(&p);
	pair_plain(&p, 0);
	shutdown(p.worker.fd, SHUT_WR);
	must(tcp_conn_recv(&p.reducer, &i, 1) == 0);
	ck_assert_str_eq(tcp_conn_reason(&p.reducer, reason), "it closed the connection");
	pair_close(&p);
}
END_TEST

/* Each bit of a record is checked, and data after a damaged record is refused too. */
START_TEST(test_damaged)
{
	char out[100] = "words", in[200], raw[200], reason[TCP_CONN_REASON];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct pair p;
	ssize_t n;
	int fds[2];

	pair_up(&p, 0);
	sockets(fds, 0);
	must(dup2(fds[0], p.worker.fd) >= 0); /* what it sends now goes elsewhere */
	must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
	n = recv(fds[1], raw, sizeof raw, 0);
	must(n == sizeof out + 22);
	raw[50] ^= 1;
	close(fds[0]);
	sockets(fds, 0);
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
	pair_close(&p);
}
END_TEST

/* The errors of both sides if certificates do not match; NULL: that side reports no error. */
static const struct {
	const char *what, *name;
	const char *reducer, *reducer_authority; /* the authority: mutual TLS */
	const char *worker, *worker_authority;
	const char *at_worker, *at_reducer;
} misfits[] = {
    {"another name", "elsewhere", "r0", NULL, NULL, "ca", "its certificate is for localhost, not for",
     "does not accept"},
    {"another address", "127.0.0.2", "r0", NULL, NULL, "ca", "its certificate is for localhost, not for",
     "does not accept"},
    {"another authority", "localhost", "spoof", NULL, NULL, "ca",
     "its certificate (localhost) is not accepted: unable to get local issuer certificate", "unknown CA"},
    {"expired", "localhost", "short", NULL, NULL, "ca",
     "its certificate (localhost) is not accepted: certificate has expired", "certificate expired"},
    {"no certificate of the worker", "localhost", "r0", "ca", NULL, "ca", "its security.tls is mutual",
     "it shows no certificate, and security.tls: mutual asks for one"},
    {"a not_tls certificate of the worker", "localhost", "r0", "ca", "stranger", "ca",
     "does not accept the certificate",
     "its certificate (resnet) is not accepted: unable to get local issuer certificate"},
    {"an expired one", "localhost", "r0", "ca", "short", "ca", "does not accept the certificate",
     "its certificate (localhost) is not accepted: certificate has expired"},
};

/* TLS 1.3 lets a worker finish before the reducer has checked its certificate: the worker's first read gets the
 * error. */
START_TEST(test_mismatched_certificates)
{
	SSL_CTX *reducer = certs_reducer(&certs, misfits[_i].reducer_authority ? TLS_MUTUAL : TLS_ON,
					 misfits[_i].reducer, misfits[_i].reducer_authority);
	SSL_CTX *worker = certs_worker(&certs, misfits[_i].worker, misfits[_i].worker_authority);
	bool expires = strcmp(misfits[_i].reducer, "short") == 0 ||
		       (misfits[_i].worker && strcmp(misfits[_i].worker, "short") == 0);
	struct rs_err we = {0}, re = {0};
	struct pair p = {.session = NULL};
	enum tcp_conn_progress w, r;
	char in[10];
	struct iovec i = {in, sizeof in};

	if (expires) { /* as X509's clock sees it, which has seconds */
		X509 *cert = SSL_CTX_get0_certificate(misfits[_i].worker ? worker : reducer);

		while (X509_cmp_current_time(X509_get0_notAfter(cert)) > 0)
			usleep(20000);
	}
	pair_begin(&p, worker, reducer, misfits[_i].name, 0);
	shake(&p, &w, &r, &we, &re);
	ck_assert_int_eq(r, TCP_CONN_FAILED);
	ck_assert_msg(strstr(re.msg, misfits[_i].at_reducer), "%s: %s", misfits[_i].what, re.msg);
	if (w == TCP_CONN_UP) {
		must(tcp_conn_recv(&p.worker, &i, 1) == -1 && errno == EPROTO);
		tcp_conn_reason(&p.worker, we.msg);
	}
	ck_assert_msg(strstr(we.msg, misfits[_i].at_worker), "%s: %s", misfits[_i].what, we.msg);
	pair_close(&p);
	SSL_CTX_free(worker);
	SSL_CTX_free(reducer);
}
END_TEST

/* TLS 1.2 alone, other protocols or none over TLS: a client's attempts to downgrade. */
START_TEST(test_downgrade)
{
	static const struct {
		int max;
		const char *alpn, *at_worker, *at_reducer;
	} cases[] = {
	    {TLS1_2_VERSION, "\x0breduction/1", "this version of TLS", "does not speak TLS 1.3"},
	    {TLS1_3_VERSION, "\x08http/1.1", "another protocol", "another protocol"},
	    {TLS1_3_VERSION, NULL, "another protocol", "another protocol"},
	};
	for (unsigned k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		SSL_CTX *worker = SSL_CTX_new(TLS_client_method()),
			*reducer = certs_reducer(&certs, TLS_ON, "r0", NULL);
		struct rs_err we = {0}, re = {0};
		struct pair p = {.session = NULL};
		enum tcp_conn_progress w, r;

		SSL_CTX_set_max_proto_version(worker, cases[k].max);
		if (cases[k].alpn)
			SSL_CTX_set_alpn_protos(worker, (const unsigned char *)cases[k].alpn,
						(unsigned)strlen(cases[k].alpn));
		pair_begin(&p, worker, reducer, "localhost", 0);
		shake(&p, &w, &r, &we, &re);
		ck_assert_msg(w == TCP_CONN_FAILED && r == TCP_CONN_FAILED, "%u: %s / %s", k, we.msg, re.msg);
		ck_assert_msg(strstr(we.msg, cases[k].at_worker) && strstr(re.msg, cases[k].at_reducer), "%u: %s / %s",
			      k, we.msg, re.msg);
		pair_close(&p);
		SSL_CTX_free(worker);
		SSL_CTX_free(reducer);
	}
}
END_TEST

/* The error of a side with TLS if the other one has none. */
START_TEST(test_plain_peers)
{
	static const struct {
		const char *said, *reason;
		bool not_tls;
	} cases[] = {
	    {"RSxxxxxxxxxxxx", "it does not speak TLS", true},
	    {"RSxxxxxxxxxxxx", "it does not speak TLS", true},
	    {"HTTP/1.1 400 Bad Request\r\n\r\n", "it does not speak TLS", false},
	    {"SSH-2.0-OpenSSH_9.2p1\r\n", "it does not speak TLS", false},
	};
	SSL_CTX *worker = certs_worker(&certs, NULL, "ca");

	for (unsigned k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		SSL_SESSION *session = NULL;
		struct rs_err e;
		struct tcp_conn w;
		int fds[2];

		sockets(fds, 0);
		must(tcp_conn_connect(&w, fds[0], worker, "localhost", &session, &e) == RS_OK);
		/* at once, or later */
		must(k % 2 || tcp_conn_handshake(&w, &e) == TCP_CONN_WAIT);
		must(send(fds[1], cases[k].said, strlen(cases[k].said), 0) > 0);
		must(tcp_conn_handshake(&w, &e) == TCP_CONN_FAILED);
		ck_assert_str_eq(e.msg, cases[k].reason);
		ck_assert(w.not_tls == cases[k].not_tls);
		if (cases[k].not_tls)
			ck_assert_mem_eq(w.in + w.in_at, cases[k].said, strlen(cases[k].said));
		tcp_conn_close(&w);
		close(fds[1]);
	}
	SSL_CTX_free(worker);
}
END_TEST

/* The reducer may have read the first bytes before it knew that they are TLS. */
START_TEST(test_first_bytes)
{
	SSL_CTX *worker = certs_worker(&certs, NULL, "ca"), *reducer = certs_reducer(&certs, TLS_ON, "r0", NULL);

	for (size_t n = 1; n <= 64; n += 21) {
		struct rs_err we = {0}, re = {0};
		struct pair p = {.session = NULL};
		enum tcp_conn_progress w, r;
		char first[64];
		int fds[2];

		sockets(fds, 0);
		must(tcp_conn_connect(&p.worker, fds[0], worker, "127.0.0.1", &p.session, &we) == RS_OK);
		must(tcp_conn_handshake(&p.worker, &we) == TCP_CONN_WAIT);
		must(recv(fds[1], first, n, 0) == (ssize_t)n);
		must(tcp_conn_accept(&p.reducer, fds[1], reducer, first, n, &re) == RS_OK);
		shake(&p, &w, &r, &we, &re);
		ck_assert_msg(w == TCP_CONN_UP && r == TCP_CONN_UP, "%s / %s", we.msg, re.msg);
		pair_close(&p);
	}
	SSL_CTX_free(worker);
	SSL_CTX_free(reducer);
}
END_TEST

/* The second lane shows no certificate but has the same name, and so has the third, which resumes the session of the
 * first, since the second has brought no new one. New keys end that. */
START_TEST(test_resumption)
{
	SSL_CTX *worker = certs_worker(&certs, "w", "ca"), *reducer = certs_reducer(&certs, TLS_MUTUAL, "r0", "ca");
	SSL_SESSION *session = NULL;

	for (int round = 0; round < 4; round++) {
		struct rs_err we = {0}, re = {0};
		struct pair p = {.session = session};
		enum tcp_conn_progress w, r;
		char names[TLS_NAMES_MAX], in[10];
		struct iovec i = {in, sizeof in};

		if (round == 3) { /* as SIGHUP does */
			SSL_CTX_free(reducer);
			reducer = certs_reducer(&certs, TLS_MUTUAL, "r0", "ca");
		}
		pair_begin(&p, worker, reducer, "localhost", 0);
		shake(&p, &w, &r, &we, &re);
		ck_assert_msg(w == TCP_CONN_UP && r == TCP_CONN_UP, "%s / %s", we.msg, re.msg);
		ck_assert_int_eq(SSL_session_reused(p.reducer.ssl), round == 1 || round == 2);
		tls_peer_names(p.reducer.ssl, names);
		ck_assert_str_eq(names, "resnet");
		if (round != 1)
			must(tcp_conn_recv(&p.worker, &i, 1) == -1 && errno == EAGAIN); /* the ticket is no data */
		session = p.session;
		must(session);
		p.session = NULL;
		pair_close(&p);
	}
	SSL_SESSION_free(session);
	SSL_CTX_free(worker);
	SSL_CTX_free(reducer);
}
END_TEST

START_TEST(test_binding)
{
	uint8_t a[TLS_BINDING], b[TLS_BINDING], c[TLS_BINDING];
	struct rs_err e;
	struct pair p, q;

	pair_up(&p, 0);
	pair_up(&q, 0);
	must(tls_binding(p.worker.ssl, a, &e) == RS_OK && tls_binding(p.reducer.ssl, b, &e) == RS_OK);
	must(tls_binding(q.reducer.ssl, c, &e) == RS_OK);
	ck_assert(memcmp(a, b, sizeof a) == 0);
	ck_assert(memcmp(a, c, sizeof a) != 0);
	pair_close(&p);
	pair_close(&q);
}
END_TEST

/* Keys are replaced before they have encrypted too much; data in flight stays readable. */
START_TEST(test_new_keys)
{
	char out[3], in[30];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct pair p;

	pair_up(&p, 0);
	p.worker.records = (1 << 22) - 2;
	for (int k = 0; k < 4; k++) {
		memset(out, 'a' + k, sizeof out);
		must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
	}
	ck_assert_uint_eq(p.worker.records, 1);
	must(tcp_conn_recv(&p.reducer, &i, 1) == 12);
	ck_assert(memcmp(in, "aaabbbcccddd", 12) == 0);
	pair_close(&p);
}
END_TEST

/* A peer that only announces or requests new keys: writes 6,000 such records into the reducer's socket, then one
 * byte of data. */
static void announce_keys(struct pair *p, int how)
{
	static char raw[200000];
	char in[10], out[] = "x";
	struct iovec i = {in, sizeof in}, o = {out, 1};
	ssize_t n, len = 0;

	must(tcp_conn_recv(&p->worker, &i, 1) == -1); /* the ticket */
	for (int k = 0; k <= 6000; k++) {
		must(k == 6000 ? tcp_conn_send(&p->worker, &o, 1) == 1
			       : SSL_key_update(p->worker.ssl, how) && SSL_do_handshake(p->worker.ssl) == 1);
		n = recv(p->reducer.fd, raw + len, sizeof raw - (size_t)len, 0);
		must(n > 0);
		len += n;
	}
	must(send(p->worker.fd, raw, (size_t)len, 0) == len);
}

/* It does not block the reducer for long. */
START_TEST(test_new_keys_only)
{
	struct pair p;
	char in[10];
	struct iovec i = {in, sizeof in};
	unsigned turns = 0;
	ssize_t n;

	pair_up(&p, 0);
	announce_keys(&p, SSL_KEY_UPDATE_NOT_REQUESTED);
	for (; (n = tcp_conn_recv(&p.reducer, &i, 1)) < 0; turns++)
		must(errno == EAGAIN && tcp_conn_pending(&p.reducer) && turns < 100);
	ck_assert_msg(turns >= 2, "%u turns for 6,000 records without data", turns);
	ck_assert(n == 1 && in[0] == 'x' && !tcp_conn_unsent(&p.reducer));
	pair_close(&p);
}
END_TEST

/* A peer that requests new keys and does not read them costs no memory. */
START_TEST(test_key_update_requests)
{
	char in[10], reason[TCP_CONN_REASON];
	struct iovec i = {in, sizeof in};
	struct pair p;

	pair_up(&p, 0);
	announce_keys(&p, SSL_KEY_UPDATE_REQUESTED);
	while (tcp_conn_recv(&p.reducer, &i, 1) < 0 && errno == EAGAIN)
		must(tcp_conn_pending(&p.reducer));
	ck_assert_str_eq(tcp_conn_reason(&p.reducer, reason), "it asks for new TLS keys and does not read them");
	pair_close(&p);
}
END_TEST

/* What TLS 1.2 permitted at any time. */
START_TEST(test_no_renegotiation)
{
	struct pair p;

	pair_up(&p, 0);
	ck_assert_int_eq(SSL_renegotiate(p.worker.ssl), 0);
	ck_assert_int_eq(SSL_renegotiate(p.reducer.ssl), 0);
	ck_assert_int_eq(SSL_version(p.reducer.ssl), TLS1_3_VERSION);
	pair_close(&p);
}
END_TEST

START_TEST(test_moved_session)
{
	char out[] = "words", in[30];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct tcp_conn moved;
	struct pair p;

	pair_up(&p, 0);
	tcp_conn_move(&moved, &p.reducer);
	must(tcp_conn_send(&moved, &o, 1) == sizeof out);
	must(tcp_conn_recv(&p.worker, &i, 1) == sizeof out);
	must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
	must(tcp_conn_recv(&moved, &i, 1) == sizeof out);
	tcp_conn_close(&moved);
	tcp_conn_close(&p.worker);
	SSL_SESSION_free(p.session);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tcp_conn");
	TCase *tc = tcase_create("tcp_conn");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_splits, 0, (int)(sizeof splits / sizeof splits[0]));
	tcase_add_test(tc, test_pending);
	tcase_add_test(tc, test_other_data_after_full_socket);
	tcase_add_test(tc, test_shutdown);
	tcase_add_test(tc, test_plain_without_openssl);
	tcase_add_test(tc, test_shutdown_of_a_full_socket);
	tcase_add_test(tc, test_truncated);
	tcase_add_test(tc, test_damaged);
	tcase_add_loop_test(tc, test_mismatched_certificates, 0, (int)(sizeof misfits / sizeof misfits[0]));
	tcase_add_test(tc, test_downgrade);
	tcase_add_test(tc, test_plain_peers);
	tcase_add_test(tc, test_first_bytes);
	tcase_add_test(tc, test_resumption);
	tcase_add_test(tc, test_binding);
	tcase_add_test(tc, test_new_keys);
	tcase_add_test(tc, test_new_keys_only);
	tcase_add_test(tc, test_key_update_requests);
	tcase_add_test(tc, test_no_renegotiation);
	tcase_add_test(tc, test_moved_session);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
