/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path is: handshake, then records of 16 KiB, several of them with one system
 * call. OpenSSL reads and writes the socket through our BIO. The BIO never lets a write
 * wait: it keeps what the socket does not take, and no further record is made while more
 * than TCP_CONN_GATHER bytes are kept. So the data of a record count as sent once the
 * record is made, and the caller may send something else next, as with a plain socket.
 * Failure modes are: the socket fails, the peer closes it without ending TLS, an alert, a
 * certificate that is not accepted, damaged records. */
#include "common/tcp_conn.h"

#include "common/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	HANDSHAKE_STEPS = 16,
	KEEPALIVE_S = 30, /* well below the minute or more for which NATs remember a silent connection */
	/* The most records without data (such as those that announce new keys) that one
	 * call reads, and the most bytes that it reads beyond those that were asked for.
	 * Without them a peer could occupy a thread for ever. */
	EMPTY_RECORDS_MAX = 64,
	OVERREAD_MAX = 32 << 10,
};

/* AES-GCM is safe for 2^24.5 full records under one key (RFC 8446, 5.5). */
static const uint64_t RECORDS_PER_KEY = 1 << 22;

static int bio_write(BIO *b, const char *data, size_t n, size_t *written)
{
	struct tcp_conn *c = BIO_get_data(b);
	ssize_t sent = 0;

	BIO_clear_retry_flags(b);
	if (c->out_n == 0 && !c->gathering) {
		do
			sent = send(c->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		while (sent < 0 && errno == EINTR);
		if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
			c->error = errno;
			return 0;
		}
		sent = sent < 0 ? 0 : sent;
	}

	n -= (size_t)sent;
	if (n > 0 && !c->out)
		c->out = malloc(TCP_CONN_OUT);
	if (n > 0 && !c->out) {
		c->error = ENOMEM;
		return 0;
	}
	if (n > 0 && c->out_at + c->out_n + n > TCP_CONN_OUT) {
		c->error = ENOBUFS;
		return 0;
	}
	if (n > 0)
		memcpy(c->out + c->out_at + c->out_n, data + sent, n);

	c->out_n += (unsigned)n;
	*written = n + (size_t)sent;
	return 1;
}

/* Copies up to n bytes out of `in`. Returns how many. */
static size_t read_buffered(struct tcp_conn *c, char *data, size_t n)
{
	if (n > c->in_n)
		n = c->in_n;
	memcpy(data, c->in + c->in_at, n);
	c->in_at += (unsigned)n;
	c->in_n -= (unsigned)n;
	return n;
}

/* Frees `in` if it is empty. */
static void release_input(struct tcp_conn *c)
{
	if (c->in_n > 0)
		return;
	free(c->in);
	c->in = NULL;
	c->in_at = 0;
}

/* Fills `in` from the socket. False: nothing was received. */
static bool refill(struct tcp_conn *c)
{
	ssize_t rc;

	if (!c->in)
		c->in = malloc(TCP_CONN_IN);
	if (!c->in) {
		c->error = ENOMEM;
		return false;
	}
	do
		rc = recv(c->fd, c->in, TCP_CONN_IN, MSG_DONTWAIT);
	while (rc < 0 && errno == EINTR);
	if (rc > 0) {
		c->socket_empty = rc < TCP_CONN_IN; /* the next poll reports more */
		c->allowance -= (size_t)rc < c->allowance ? (size_t)rc : c->allowance;
		c->in_at = 0;
		c->in_n = (unsigned)rc;
		/* a reducer without TLS sends a frame instead */
		c->not_tls = !c->received_any && rc > 1 && memcmp(c->in, "RS", 2) == 0;
		c->received_any = true;
	} else if (rc == 0) {
		c->eof = true;
	} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
		c->socket_empty = c->needs_input = true;
	} else {
		c->error = errno;
	}
	return rc > 0;
}

static int bio_read(BIO *b, char *data, size_t n, size_t *got)
{
	struct tcp_conn *c = BIO_get_data(b);

	BIO_clear_retry_flags(b);
	if (c->in_n == 0) {
		if (c->socket_empty || !c->allowance)
			c->needs_input = c->socket_empty;
		else if (!refill(c) && !c->needs_input)
			return 0;
	}
	if (c->not_tls)
		return 0;
	if (c->in_n == 0) {
		BIO_set_retry_read(b);
		return 0;
	}
	*got = read_buffered(c, data, n);
	return 1;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	const struct tcp_conn *c = BIO_get_data(b);

	(void)num;
	(void)ptr;
	if (cmd == BIO_CTRL_EOF)
		return c->eof;
	return cmd == BIO_CTRL_FLUSH;
}

/* OpenSSL's interface makes this table by calls, so it cannot be a constant; it is made
 * once and never freed. */
static BIO_METHOD *method;
static pthread_once_t method_once = PTHREAD_ONCE_INIT;

static void make_method(void)
{
	method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tcp_conn");
	if (!method)
		return;
	BIO_meth_set_write_ex(method, bio_write);
	BIO_meth_set_read_ex(method, bio_read);
	BIO_meth_set_ctrl(method, bio_ctrl);
}

void tcp_conn_tune(int fd, uint32_t detect_ms)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &detect_ms, sizeof detect_ms);
	tcp_conn_keep_alive(fd);
}

void tcp_conn_keep_alive(int fd)
{
	int on = 1, idle_s = KEEPALIVE_S;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
}

void tcp_conn_pace(int fd, uint64_t most)
{
	unsigned long rate = ULONG_MAX - 1; /* ULONG_MAX: no pacing. Old kernels read 32 bits of it */

	if (most && most < rate)
		rate = (unsigned long)most;
	setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
}

void tcp_conn_plain(struct tcp_conn *c, int fd)
{
	*c = (struct tcp_conn){.fd = fd, .up = true};
}

/* Keeps a certificate that is not accepted, for tcp_conn_reason; OpenSSL does not keep
 * it. */
static int on_verify(int good, X509_STORE_CTX *store)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct tcp_conn *c = BIO_get_data(SSL_get_rbio(ssl));
	X509 *cert = X509_STORE_CTX_get0_cert(store);

	if (!good && !c->rejected && cert && X509_up_ref(cert))
		c->rejected = cert;
	return good;
}

static int tcp_conn_secure(struct tcp_conn *c, int fd, SSL_CTX *ctx, struct rs_err *e)
{
	BIO *bio;

	tcp_conn_plain(c, fd);
	pthread_once(&method_once, make_method);
	bio = method ? BIO_new(method) : NULL;
	if (bio)
		c->ssl = SSL_new(ctx);
	if (!c->ssl) {
		BIO_free(bio);
		ERR_clear_error();
		return rs_oom(e, 0, "TLS");
	}
	BIO_set_data(bio, c);
	BIO_set_init(bio, 1);
	SSL_set_bio(c->ssl, bio, bio);
	SSL_set_verify(c->ssl, SSL_CTX_get_verify_mode(ctx), on_verify);
	c->up = false;
	return RS_OK;
}

int tcp_conn_accept(struct tcp_conn *c, int fd, SSL_CTX *ctx, const void *first, size_t n, struct rs_err *e)
{
	int rc = tcp_conn_secure(c, fd, ctx, e);

	if (rc)
		return rc;
	c->in = malloc(TCP_CONN_IN);
	if (!c->in) {
		SSL_free(c->ssl);
		tcp_conn_plain(c, fd);
		return rs_oom(e, 0, "TLS");
	}
	memcpy(c->in, first, n);
	c->in_n = (unsigned)n;
	c->received_any = true;
	SSL_set_accept_state(c->ssl);
	return RS_OK;
}

static bool is_address(const char *name)
{
	struct in6_addr a;

	return inet_pton(AF_INET, name, &a) == 1 || inet_pton(AF_INET6, name, &a) == 1;
}

/* Resumes a copy of the session, since OpenSSL makes a resumed session unusable for later
 * connections. RFC 8446 C.4 recommends that a ticket is used once, so that an observer
 * cannot link connections; that does not matter here, since all connections go from one
 * address to one address at one time. */
static bool resume(SSL *ssl, SSL_SESSION *session)
{
	SSL_SESSION *copy = SSL_SESSION_dup(session);
	bool good = copy && SSL_set_session(ssl, copy);

	SSL_SESSION_free(copy);
	return good;
}

int tcp_conn_connect(struct tcp_conn *c, int fd, SSL_CTX *ctx, const char *name, SSL_SESSION **session,
		     struct rs_err *e)
{
	int rc = tcp_conn_secure(c, fd, ctx, e);
	int good;

	if (rc)
		return rc;
	SSL_set_connect_state(c->ssl);
	SSL_set_hostflags(c->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	/* SNI holds names only, never addresses */
	good = is_address(name) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(c->ssl), name)
				: SSL_set1_host(c->ssl, name) && SSL_set_tlsext_host_name(c->ssl, name);
	SSL_set_app_data(c->ssl, session);
	if (good && *session && SSL_SESSION_is_resumable(*session))
		good = resume(c->ssl, *session);
	if (good)
		return RS_OK;
	ERR_clear_error();
	SSL_free(c->ssl);
	tcp_conn_plain(c, fd);
	return rs_oom(e, 0, "TLS with %s", name);
}

void tcp_conn_move(struct tcp_conn *to, struct tcp_conn *from)
{
	*to = *from;
	if (to->ssl)
		BIO_set_data(SSL_get_rbio(to->ssl), to);
	*from = (struct tcp_conn){.fd = -1};
}

/* Records why a call of OpenSSL failed. Returns errno. */
static int note_failure(struct tcp_conn *c)
{
	if (!c->error && !c->eof && !c->code)
		c->code = ERR_peek_error(); /* the first error; later ones follow from it */
	ERR_clear_error();
	return c->error ? c->error : EPROTO;
}

static enum tcp_conn_progress fail(struct tcp_conn *c, struct rs_err *e)
{
	char buf[TCP_CONN_REASON];
	int code = c->error ? RS_EIO : RS_EPROTO;

	rs_fail(e, code, "%s", tcp_conn_reason(c, buf));
	return TCP_CONN_FAILED;
}

enum tcp_conn_progress tcp_conn_handshake(struct tcp_conn *c, struct rs_err *e)
{
	int rc = 0;

	if (c->up)
		return TCP_CONN_UP;
	if (!tcp_conn_flush(c))
		return fail(c, e);
	c->socket_empty = c->needs_input = false;
	c->allowance = OVERREAD_MAX;
	ERR_clear_error();
	for (int i = 0; i < HANDSHAKE_STEPS && rc != 1; i++) {
		rc = SSL_do_handshake(c->ssl);
		if (rc != 1 && SSL_get_error(c->ssl, rc) != SSL_ERROR_WANT_READ) {
			note_failure(c);
			return fail(c, e);
		}
		if (rc != 1 && c->needs_input) {
			release_input(c);
			return TCP_CONN_WAIT;
		}
	}
	if (rc == 1) {
		const unsigned char *chosen;
		unsigned n;

		SSL_get0_alpn_selected(c->ssl, &chosen, &n);
		if (n == 0)
			c->code = ERR_PACK(ERR_LIB_SSL, 0, SSL_R_NO_APPLICATION_PROTOCOL);
		c->up = n > 0;
		c->pending = true; /* data may have arrived with it */
	}
	return c->up ? TCP_CONN_UP : fail(c, e);
}

/* Returns why a read gave no data: EAGAIN, 0 for the end of the stream, or another
 * errno. */
static int why_no_data(struct tcp_conn *c, int rc)
{
	int why = SSL_get_error(c->ssl, rc);

	if (why == SSL_ERROR_WANT_READ)
		return EAGAIN;
	return why == SSL_ERROR_ZERO_RETURN ? 0 : note_failure(c);
}

static ssize_t tls_recv(struct tcp_conn *c, const struct iovec *iov, unsigned n, bool inside)
{
	size_t total = 0, at = 0, got;
	unsigned empty = 0;

	if (c->code) {
		errno = EPROTO;
		return -1;
	}
	c->socket_empty = inside;
	c->needs_input = false;
	c->allowance = OVERREAD_MAX;
	for (unsigned k = 0; k < n; k++)
		c->allowance += iov[k].iov_len;
	ERR_clear_error();
	while (n) {
		int rc, what;

		if (at == iov->iov_len) {
			at = 0;
			iov++;
			n--;
			continue;
		}
		rc = SSL_read_ex(c->ssl, (char *)iov->iov_base + at, iov->iov_len - at, &got);
		if (rc == 1) {
			at += got;
			total += got;
			continue;
		}
		what = why_no_data(c, rc);
		if (what == EAGAIN && c->in_n > 0 && ++empty < EMPTY_RECORDS_MAX)
			continue;
		release_input(c);
		/* after data, the next call reports the end or the error; no poll may ask
		 * for that call */
		c->pending = what == EAGAIN ? !c->needs_input : total > 0;
		if (total > 0 || what == 0)
			return (ssize_t)total;
		errno = what;
		return -1;
	}
	c->pending = c->in_n > 0 || SSL_has_pending(c->ssl);
	release_input(c);
	return (ssize_t)total;
}

ssize_t tcp_conn_recv(struct tcp_conn *c, struct iovec *iov, unsigned n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t got;

	if (c->ssl)
		return tls_recv(c, iov, n, false);
	do
		got = recvmsg(c->fd, &m, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
		c->error = errno;
	return got;
}

ssize_t tcp_conn_recv_inside(struct tcp_conn *c, struct iovec *iov, unsigned n)
{
	return tls_recv(c, iov, n, true);
}

bool tcp_conn_flush(struct tcp_conn *c)
{
	ssize_t sent;

	while (c->out_n > 0) {
		sent = send(c->fd, c->out + c->out_at, c->out_n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			memmove(c->out, c->out + c->out_at, c->out_n); /* makes room behind the bytes */
			c->out_at = 0;
			return true;
		}
		if (sent < 0) {
			c->error = errno;
			return false;
		}
		c->out_at += (unsigned)sent;
		c->out_n -= (unsigned)sent;
	}
	free(c->out);
	c->out = NULL;
	c->out_at = 0;
	if (c->end_queued)
		shutdown(c->fd, SHUT_WR);
	return true;
}

/* Returns the data of the next record: in place if one iovec holds them, else copied into
 * `buf`. Precondition: at least one iovec has bytes from `at` on. */
static const void *next_record(const struct iovec *iov, unsigned n, size_t at, uint8_t buf[TCP_CONN_RECORD],
			       size_t *len)
{
	size_t have = 0, more = iov->iov_len - at;

	if (more >= TCP_CONN_RECORD || n == 1) {
		*len = more < TCP_CONN_RECORD ? more : TCP_CONN_RECORD;
		return (const char *)iov->iov_base + at;
	}
	for (; n && have < TCP_CONN_RECORD; n--, iov++, at = 0) {
		more = iov->iov_len - at;
		if (more > TCP_CONN_RECORD - have)
			more = TCP_CONN_RECORD - have;
		memcpy(buf + have, (const char *)iov->iov_base + at, more);
		have += more;
	}
	*len = have;
	return buf;
}

/* Encrypts one record. False: TLS failed. */
static bool write_record(struct tcp_conn *c, const void *data, size_t len)
{
	size_t done;

	if (++c->records > RECORDS_PER_KEY && SSL_key_update(c->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
		c->records = 0;
	/* writes all of it, since the BIO takes everything */
	if (SSL_write_ex(c->ssl, data, len, &done) == 1)
		return true;
	note_failure(c);
	return false;
}

static ssize_t tls_send(struct tcp_conn *c, const struct iovec *iov, unsigned n)
{
	uint8_t buf[TCP_CONN_RECORD];
	size_t total = 0, all = 0, at = 0, len;
	bool good = true;
	const void *data;

	for (unsigned k = 0; k < n; k++)
		all += iov[k].iov_len;
	ERR_clear_error();
	while (good && total < all) {
		for (; at >= iov->iov_len; iov++, n--)
			at -= iov->iov_len;
		if (c->out_n > TCP_CONN_GATHER && (!tcp_conn_flush(c) || c->out_n > TCP_CONN_GATHER))
			break;
		data = next_record(iov, n, at, buf, &len);
		c->gathering = total + len < all;
		good = write_record(c, data, len);
		at += good ? len : 0;
		total += good ? len : 0;
	}
	c->gathering = false;
	good = tcp_conn_flush(c) && good;
	if (total > 0) /* the next call reports the error again */
		return (ssize_t)total;
	errno = good ? EAGAIN : note_failure(c);
	return -1;
}

ssize_t tcp_conn_send(struct tcp_conn *c, struct iovec *iov, unsigned n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t sent;

	if (c->code || !tcp_conn_flush(c)) {
		errno = note_failure(c);
		return -1;
	}
	if (c->ssl)
		return tls_send(c, iov, n);
	do
		sent = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
		c->error = errno;
	return sent;
}

void tcp_conn_shutdown(struct tcp_conn *c)
{
	/* Without TLS nothing of OpenSSL is called: OpenSSL 3.5 waits for itself for ever
	 * if its first call finds no memory. */
	if (c->ssl && c->up && !c->end_queued) {
		ERR_clear_error();
		SSL_shutdown(c->ssl);
		ERR_clear_error();
	}
	c->end_queued = true;
	if (c->out_n == 0)
		shutdown(c->fd, SHUT_WR);
}

void tcp_conn_close(struct tcp_conn *c)
{
	if (c->ssl) {
		/* without this OpenSSL would take the session for damaged and not resume
		 * it */
		SSL_set_shutdown(c->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
		SSL_free(c->ssl);
		X509_free(c->rejected);
	}
	free(c->in);
	free(c->out);
	close(c->fd);
	*c = (struct tcp_conn){.fd = -1};
}
