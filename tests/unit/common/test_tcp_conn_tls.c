/* SPDX-License-Identifier: Apache-2.0 */
/* The TLS of a connection: certificates, peers without it, sessions, keys. */
#include "common/tls.h"
#include "tests/unit/fake_tcp_pair.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The errors of both sides if certificates do not match; NULL: that side reports no
 * error. */
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

/* TLS 1.3 lets a worker finish before the reducer has checked its certificate: the
 * worker's first read gets the error. */
START_TEST(test_mismatched_certificates)
{
	SSL_CTX *reducer = certs_reducer(&tcp_pair_certs, misfits[_i].reducer_authority ? TLS_MUTUAL : TLS_ON,
					 misfits[_i].reducer, misfits[_i].reducer_authority);
	SSL_CTX *worker = certs_worker(&tcp_pair_certs, misfits[_i].worker, misfits[_i].worker_authority);
	bool expires = strcmp(misfits[_i].reducer, "short") == 0 ||
		       (misfits[_i].worker && strcmp(misfits[_i].worker, "short") == 0);
	struct rs_err we = {0}, re = {0};
	struct tcp_pair p = {.session = NULL};
	enum tcp_conn_progress w, r;
	char in[10];
	struct iovec i = {in, sizeof in};

	if (expires) { /* as X509's clock sees it, which has seconds */
		X509 *cert = SSL_CTX_get0_certificate(misfits[_i].worker ? worker : reducer);

		while (X509_cmp_current_time(X509_get0_notAfter(cert)) > 0)
			usleep(20000);
	}
	tcp_pair_begin(&p, worker, reducer, misfits[_i].name, 0);
	tcp_pair_shake(&p, &w, &r, &we, &re);
	ck_assert_int_eq(r, TCP_CONN_FAILED);
	ck_assert_msg(strstr(re.msg, misfits[_i].at_reducer), "%s: %s", misfits[_i].what, re.msg);
	if (w == TCP_CONN_UP) {
		must(tcp_conn_recv(&p.worker, &i, 1) == -1 && errno == EPROTO);
		tcp_conn_reason(&p.worker, we.msg);
	}
	ck_assert_msg(strstr(we.msg, misfits[_i].at_worker), "%s: %s", misfits[_i].what, we.msg);
	tcp_pair_close(&p);
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
			*reducer = certs_reducer(&tcp_pair_certs, TLS_ON, "r0", NULL);
		struct rs_err we = {0}, re = {0};
		struct tcp_pair p = {.session = NULL};
		enum tcp_conn_progress w, r;

		SSL_CTX_set_max_proto_version(worker, cases[k].max);
		if (cases[k].alpn)
			SSL_CTX_set_alpn_protos(worker, (const unsigned char *)cases[k].alpn,
						(unsigned)strlen(cases[k].alpn));
		tcp_pair_begin(&p, worker, reducer, "localhost", 0);
		tcp_pair_shake(&p, &w, &r, &we, &re);
		ck_assert_msg(w == TCP_CONN_FAILED && r == TCP_CONN_FAILED, "%u: %s / %s", k, we.msg, re.msg);
		ck_assert_msg(strstr(we.msg, cases[k].at_worker) && strstr(re.msg, cases[k].at_reducer), "%u: %s / %s",
			      k, we.msg, re.msg);
		tcp_pair_close(&p);
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
	SSL_CTX *worker = certs_worker(&tcp_pair_certs, NULL, "ca");

	for (unsigned k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		SSL_SESSION *session = NULL;
		struct rs_err e;
		struct tcp_conn w;
		int fds[2];

		tcp_pair_sockets(fds, 0);
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
	SSL_CTX *worker = certs_worker(&tcp_pair_certs, NULL, "ca"),
		*reducer = certs_reducer(&tcp_pair_certs, TLS_ON, "r0", NULL);

	for (size_t n = 1; n <= 64; n += 21) {
		struct rs_err we = {0}, re = {0};
		struct tcp_pair p = {.session = NULL};
		enum tcp_conn_progress w, r;
		char first[64];
		int fds[2];

		tcp_pair_sockets(fds, 0);
		must(tcp_conn_connect(&p.worker, fds[0], worker, "127.0.0.1", &p.session, &we) == RS_OK);
		must(tcp_conn_handshake(&p.worker, &we) == TCP_CONN_WAIT);
		must(recv(fds[1], first, n, 0) == (ssize_t)n);
		must(tcp_conn_accept(&p.reducer, fds[1], reducer, first, n, &re) == RS_OK);
		tcp_pair_shake(&p, &w, &r, &we, &re);
		ck_assert_msg(w == TCP_CONN_UP && r == TCP_CONN_UP, "%s / %s", we.msg, re.msg);
		tcp_pair_close(&p);
	}
	SSL_CTX_free(worker);
	SSL_CTX_free(reducer);
}
END_TEST

/* The second lane shows no certificate but has the same name, and so has the third, which
 * resumes the session of the first, since the second has brought no new one. New keys end
 * that. */
START_TEST(test_resumption)
{
	SSL_CTX *worker = certs_worker(&tcp_pair_certs, "w", "ca"),
		*reducer = certs_reducer(&tcp_pair_certs, TLS_MUTUAL, "r0", "ca");
	SSL_SESSION *session = NULL;

	for (int round = 0; round < 4; round++) {
		struct rs_err we = {0}, re = {0};
		struct tcp_pair p = {.session = session};
		enum tcp_conn_progress w, r;
		char names[TLS_NAMES_MAX], in[10];
		struct iovec i = {in, sizeof in};

		if (round == 3) { /* as SIGHUP does */
			SSL_CTX_free(reducer);
			reducer = certs_reducer(&tcp_pair_certs, TLS_MUTUAL, "r0", "ca");
		}
		tcp_pair_begin(&p, worker, reducer, "localhost", 0);
		tcp_pair_shake(&p, &w, &r, &we, &re);
		ck_assert_msg(w == TCP_CONN_UP && r == TCP_CONN_UP, "%s / %s", we.msg, re.msg);
		ck_assert_int_eq(SSL_session_reused(p.reducer.ssl), round == 1 || round == 2);
		tls_peer_names(p.reducer.ssl, names);
		ck_assert_str_eq(names, "resnet");
		if (round != 1)
			must(tcp_conn_recv(&p.worker, &i, 1) == -1 && errno == EAGAIN); /* the ticket is no data */
		session = p.session;
		must(session);
		p.session = NULL;
		tcp_pair_close(&p);
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
	struct tcp_pair p, q;

	tcp_pair_up(&p, 0);
	tcp_pair_up(&q, 0);
	must(tls_binding(p.worker.ssl, a, &e) == RS_OK && tls_binding(p.reducer.ssl, b, &e) == RS_OK);
	must(tls_binding(q.reducer.ssl, c, &e) == RS_OK);
	ck_assert(memcmp(a, b, sizeof a) == 0);
	ck_assert(memcmp(a, c, sizeof a) != 0);
	tcp_pair_close(&p);
	tcp_pair_close(&q);
}
END_TEST

/* Keys are replaced before they have encrypted too much; data in flight stays
 * readable. */
START_TEST(test_new_keys)
{
	char out[3], in[30];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct tcp_pair p;

	tcp_pair_up(&p, 0);
	p.worker.records = (1 << 22) - 2;
	for (int k = 0; k < 4; k++) {
		memset(out, 'a' + k, sizeof out);
		must(tcp_conn_send(&p.worker, &o, 1) == sizeof out);
	}
	ck_assert_uint_eq(p.worker.records, 1);
	must(tcp_conn_recv(&p.reducer, &i, 1) == 12);
	ck_assert(memcmp(in, "aaabbbcccddd", 12) == 0);
	tcp_pair_close(&p);
}
END_TEST

/* A peer that only announces or requests new keys: writes 6,000 such records into the
 * reducer's socket, then one byte of data. */
static void announce_keys(struct tcp_pair *p, int how)
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
	struct tcp_pair p;
	char in[10];
	struct iovec i = {in, sizeof in};
	unsigned turns = 0;
	ssize_t n;

	tcp_pair_up(&p, 0);
	announce_keys(&p, SSL_KEY_UPDATE_NOT_REQUESTED);
	for (; (n = tcp_conn_recv(&p.reducer, &i, 1)) < 0; turns++)
		must(errno == EAGAIN && tcp_conn_pending(&p.reducer) && turns < 100);
	ck_assert_msg(turns >= 2, "%u turns for 6,000 records without data", turns);
	ck_assert(n == 1 && in[0] == 'x' && !tcp_conn_unsent(&p.reducer));
	tcp_pair_close(&p);
}
END_TEST

/* A peer that requests new keys and does not read them costs no memory. */
START_TEST(test_key_update_requests)
{
	char in[10], reason[TCP_CONN_REASON];
	struct iovec i = {in, sizeof in};
	struct tcp_pair p;

	tcp_pair_up(&p, 0);
	announce_keys(&p, SSL_KEY_UPDATE_REQUESTED);
	while (tcp_conn_recv(&p.reducer, &i, 1) < 0 && errno == EAGAIN)
		must(tcp_conn_pending(&p.reducer));
	ck_assert_str_eq(tcp_conn_reason(&p.reducer, reason), "it asks for new TLS keys and does not read them");
	tcp_pair_close(&p);
}
END_TEST

/* What TLS 1.2 permitted at any time. */
START_TEST(test_no_renegotiation)
{
	struct tcp_pair p;

	tcp_pair_up(&p, 0);
	ck_assert_int_eq(SSL_renegotiate(p.worker.ssl), 0);
	ck_assert_int_eq(SSL_renegotiate(p.reducer.ssl), 0);
	ck_assert_int_eq(SSL_version(p.reducer.ssl), TLS1_3_VERSION);
	tcp_pair_close(&p);
}
END_TEST

START_TEST(test_moved_session)
{
	char out[] = "words", in[30];
	struct iovec o = {out, sizeof out}, i = {in, sizeof in};
	struct tcp_conn moved;
	struct tcp_pair p;

	tcp_pair_up(&p, 0);
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
	Suite *suite = suite_create("tcp_conn_tls");
	TCase *tc = tcase_create("tcp_conn_tls");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, tcp_pair_setup, tcp_pair_teardown);
	tcase_set_timeout(tc, 60);
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
