/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path is: handshake, then records of 16 KiB, some of them with one system call on either side. OpenSSL reads
 * and writes the socket through a BIO of ours, which never says that a write has to wait: what the socket does not take
 * is kept, and no further record is made while that is much. So a record's data count as sent once it is made, and
 * whoever calls may send something else next, as with a plain socket. Failure modes are: the socket fails, the peer
 * closes it without ending TLS, an alert, a certificate that is not accepted, damaged records. */
#include "common/wire.h"

#include "common/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	HANDSHAKE_STEPS = 16,
	/* Records without data, such as those that announce new keys, that a call takes, and bytes that it may read
	 * beyond those that were asked for: a peer that sends nothing else would keep a thread for good. */
	EMPTY_MAX = 64,
	BYTES_BESIDE = 32 << 10,
};

/* AES-GCM keeps its promises for 2^24.5 full records under one key (RFC 8446, 5.5). */
static const uint64_t RECORDS_OF_A_KEY = 1 << 22;

static int bio_write(BIO *b, const char *data, size_t n, size_t *written)
{
	struct wire *w = BIO_get_data(b);
	ssize_t sent = 0;

	BIO_clear_retry_flags(b);
	if (w->out_n == 0 && !w->gathering) {
		do
			sent = send(w->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		while (sent < 0 && errno == EINTR);
		if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
			w->error = errno;
			return 0;
		}
		sent = sent < 0 ? 0 : sent;
	}
	n -= (size_t)sent;
	if (n > 0 && !w->out)
		w->out = malloc(WIRE_OUT);
	if (n > 0 && !w->out) {
		w->error = ENOMEM;
		return 0;
	}
	if (n > 0 && w->out_at + w->out_n + n > WIRE_OUT) {
		w->error = ENOBUFS;
		return 0;
	}
	if (n > 0)
		memcpy(w->out + w->out_at + w->out_n, data + sent, n);
	w->out_n += (unsigned)n;
	*written = n + (size_t)sent;
	return 1;
}

/* Takes from what was read already. */
static size_t take_in(struct wire *w, char *data, size_t n)
{
	if (n > w->in_n)
		n = w->in_n;
	memcpy(data, w->in + w->in_at, n);
	w->in_at += (unsigned)n;
	w->in_n -= (unsigned)n;
	return n;
}

/* Nothing is kept: the memory may go. */
static void drop_in(struct wire *w)
{
	if (w->in_n > 0)
		return;
	free(w->in);
	w->in = NULL;
	w->in_at = 0;
}

/* A frame in place of TLS, from a reducer that has none, stays unread: the caller may want to. */
static bool is_foreign(struct wire *w)
{
	char first[2];

	if (!w->greeted && recv(w->fd, first, sizeof first, MSG_PEEK | MSG_DONTWAIT) == sizeof first) {
		w->greeted = true;
		w->foreign = memcmp(first, "RS", sizeof first) == 0;
	}
	return w->foreign;
}

/* Fills `in`. False when nothing came. */
static bool refill(struct wire *w)
{
	ssize_t rc;

	if (!w->in)
		w->in = malloc(WIRE_IN);
	if (!w->in) {
		w->error = ENOMEM;
		return false;
	}
	do
		rc = recv(w->fd, w->in, WIRE_IN, MSG_DONTWAIT);
	while (rc < 0 && errno == EINTR);
	if (rc > 0) {
		w->dry = rc < WIRE_IN; /* the next poll tells when there is more */
		w->allowance -= (size_t)rc < w->allowance ? (size_t)rc : w->allowance;
		w->in_at = 0;
		w->in_n = (unsigned)rc;
	} else if (rc == 0) {
		w->eof = true;
	} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
		w->dry = w->starved = true;
	} else {
		w->error = errno;
	}
	return rc > 0;
}

static int bio_read(BIO *b, char *data, size_t n, size_t *got)
{
	struct wire *w = BIO_get_data(b);

	BIO_clear_retry_flags(b);
	if (w->in_n == 0) {
		if (is_foreign(w))
			return 0;
		if (w->dry || !w->allowance)
			w->starved = w->dry;
		else if (!refill(w) && !w->starved)
			return 0;
	}
	if (w->in_n == 0) {
		BIO_set_retry_read(b);
		return 0;
	}
	*got = take_in(w, data, n);
	return 1;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	const struct wire *w = BIO_get_data(b);

	(void)num;
	(void)ptr;
	if (cmd == BIO_CTRL_EOF)
		return w->eof;
	return cmd == BIO_CTRL_FLUSH;
}

/* OpenSSL wants this table made by calls, so it cannot be a constant; it is made once and stays. */
static BIO_METHOD *method;
static pthread_once_t method_once = PTHREAD_ONCE_INIT;

static void make_method(void)
{
	method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "wire");
	if (!method)
		return;
	BIO_meth_set_write_ex(method, bio_write);
	BIO_meth_set_read_ex(method, bio_read);
	BIO_meth_set_ctrl(method, bio_ctrl);
}

void wire_plain(struct wire *w, int fd)
{
	*w = (struct wire){.fd = fd, .up = true};
}

/* Keeps the certificate that is not accepted, for the reason: OpenSSL does not. */
static int on_verify(int good, X509_STORE_CTX *store)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct wire *w = BIO_get_data(SSL_get_rbio(ssl));
	X509 *cert = X509_STORE_CTX_get0_cert(store);

	if (!good && !w->unaccepted && cert && X509_up_ref(cert))
		w->unaccepted = cert;
	return good;
}

static int wire_secure(struct wire *w, int fd, SSL_CTX *ctx, struct rs_err *e)
{
	BIO *bio;

	wire_plain(w, fd);
	pthread_once(&method_once, make_method);
	bio = method ? BIO_new(method) : NULL;
	if (bio)
		w->ssl = SSL_new(ctx);
	if (!w->ssl) {
		BIO_free(bio);
		ERR_clear_error();
		return rs_fail(e, RS_ENOMEM, "there is no memory for TLS");
	}
	BIO_set_data(bio, w);
	BIO_set_init(bio, 1);
	SSL_set_bio(w->ssl, bio, bio);
	SSL_set_verify(w->ssl, SSL_CTX_get_verify_mode(ctx), on_verify);
	w->up = false;
	return RS_OK;
}

int wire_accept(struct wire *w, int fd, SSL_CTX *ctx, const void *first, size_t n, struct rs_err *e)
{
	int rc = wire_secure(w, fd, ctx, e);

	if (rc)
		return rc;
	w->in = malloc(WIRE_IN);
	if (!w->in) {
		SSL_free(w->ssl);
		wire_plain(w, fd);
		return rs_fail(e, RS_ENOMEM, "there is no memory for TLS");
	}
	memcpy(w->in, first, n);
	w->in_n = (unsigned)n;
	w->greeted = true;
	SSL_set_accept_state(w->ssl);
	return RS_OK;
}

static bool is_address(const char *name)
{
	struct in6_addr a;

	return inet_pton(AF_INET, name, &a) == 1 || inet_pton(AF_INET6, name, &a) == 1;
}

/* To resume a session with a copy of it, since OpenSSL makes one that was resumed unusable for the connections that
 * follow (RFC 8446 C.4 would have tickets used once, lest an observer links the connections: ours come from one address
 * to one address at one time). */
static bool resume(SSL *ssl, SSL_SESSION *session)
{
	SSL_SESSION *copy = SSL_SESSION_dup(session);
	bool good = copy && SSL_set_session(ssl, copy);

	SSL_SESSION_free(copy);
	return good;
}

int wire_connect(struct wire *w, int fd, SSL_CTX *ctx, const char *name, SSL_SESSION **session, struct rs_err *e)
{
	int rc = wire_secure(w, fd, ctx, e);
	int good;

	if (rc)
		return rc;
	SSL_set_connect_state(w->ssl);
	SSL_set_hostflags(w->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	/* SNI is for names alone */
	good = is_address(name) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(w->ssl), name)
				: SSL_set1_host(w->ssl, name) && SSL_set_tlsext_host_name(w->ssl, name);
	SSL_set_app_data(w->ssl, session);
	if (good && *session && SSL_SESSION_is_resumable(*session))
		good = resume(w->ssl, *session);
	if (good)
		return RS_OK;
	ERR_clear_error();
	SSL_free(w->ssl);
	wire_plain(w, fd);
	return rs_fail(e, RS_ENOMEM, "there is no memory for TLS with %s", name);
}

void wire_move(struct wire *to, struct wire *from)
{
	*to = *from;
	if (to->ssl)
		BIO_set_data(SSL_get_rbio(to->ssl), to);
	*from = (struct wire){.fd = -1};
}

/* Notes why a call of OpenSSL failed. Returns errno. */
static int broken(struct wire *w)
{
	if (!w->error && !w->eof && !w->code)
		w->code = ERR_peek_error(); /* the first, of which those that follow are consequences */
	ERR_clear_error();
	return w->error ? w->error : EPROTO;
}

static enum wire_progress fail(struct wire *w, struct rs_err *e)
{
	char buf[WIRE_REASON];
	int code = w->error ? RS_EIO : RS_EPROTO;

	rs_fail(e, code, "%s", wire_reason(w, buf));
	return WIRE_FAILED;
}

enum wire_progress wire_handshake(struct wire *w, struct rs_err *e)
{
	int rc = 0;

	if (w->up)
		return WIRE_UP;
	if (!wire_flush(w))
		return fail(w, e);
	w->dry = w->starved = false;
	w->allowance = BYTES_BESIDE;
	ERR_clear_error();
	for (int i = 0; i < HANDSHAKE_STEPS && rc != 1; i++) {
		rc = SSL_do_handshake(w->ssl);
		if (rc != 1 && SSL_get_error(w->ssl, rc) != SSL_ERROR_WANT_READ) {
			broken(w);
			return fail(w, e);
		}
		if (rc != 1 && w->starved) {
			drop_in(w);
			return WIRE_WAIT;
		}
	}
	if (rc == 1) {
		const unsigned char *chosen;
		unsigned n;

		SSL_get0_alpn_selected(w->ssl, &chosen, &n);
		if (n == 0)
			w->code = ERR_PACK(ERR_LIB_SSL, 0, SSL_R_NO_APPLICATION_PROTOCOL);
		w->up = n > 0;
		w->more = true; /* data may have come along */
	}
	return w->up ? WIRE_UP : fail(w, e);
}

/* What a read that gave nothing means: EAGAIN, 0 for the end of the stream, or another errno. */
static int read_nothing(struct wire *w, int rc)
{
	int why = SSL_get_error(w->ssl, rc);

	if (why == SSL_ERROR_WANT_READ)
		return EAGAIN;
	return why == SSL_ERROR_ZERO_RETURN ? 0 : broken(w);
}

static ssize_t secure_recv(struct wire *w, const struct iovec *iov, unsigned n, bool inside)
{
	size_t total = 0, at = 0, got;
	unsigned empty = 0;

	if (w->code) {
		errno = EPROTO;
		return -1;
	}
	w->dry = inside;
	w->starved = false;
	w->allowance = BYTES_BESIDE;
	for (unsigned k = 0; k < n; k++)
		w->allowance += iov[k].iov_len;
	ERR_clear_error();
	while (n) {
		int rc, what;

		if (at == iov->iov_len) {
			at = 0;
			iov++;
			n--;
			continue;
		}
		rc = SSL_read_ex(w->ssl, (char *)iov->iov_base + at, iov->iov_len - at, &got);
		if (rc == 1) {
			at += got;
			total += got;
			continue;
		}
		what = read_nothing(w, rc);
		if (what == EAGAIN && w->in_n > 0 && ++empty < EMPTY_MAX)
			continue;
		drop_in(w);
		/* Behind data, the end and what is wrong are told by the next call, for which no poll may ask */
		w->more = what == EAGAIN ? !w->starved : total > 0;
		if (total > 0 || what == 0)
			return (ssize_t)total;
		errno = what;
		return -1;
	}
	w->more = w->in_n > 0 || SSL_has_pending(w->ssl);
	drop_in(w);
	return (ssize_t)total;
}

ssize_t wire_recv(struct wire *w, struct iovec *iov, unsigned n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t got;

	if (w->ssl)
		return secure_recv(w, iov, n, false);
	do
		got = recvmsg(w->fd, &m, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
		w->error = errno;
	return got;
}

ssize_t wire_recv_inside(struct wire *w, struct iovec *iov, unsigned n)
{
	return secure_recv(w, iov, n, true);
}

bool wire_flush(struct wire *w)
{
	ssize_t sent;

	while (w->out_n > 0) {
		sent = send(w->fd, w->out + w->out_at, w->out_n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			memmove(w->out, w->out + w->out_at, w->out_n); /* room for more behind it */
			w->out_at = 0;
			return true;
		}
		if (sent < 0) {
			w->error = errno;
			return false;
		}
		w->out_at += (unsigned)sent;
		w->out_n -= (unsigned)sent;
	}
	free(w->out);
	w->out = NULL;
	w->out_at = 0;
	if (w->shut)
		shutdown(w->fd, SHUT_WR);
	return true;
}

/* Where the next record's data stand: in one piece where they can, else they are brought together. At least one iovec
 * has bytes from *at on. */
static const void *next_record(const struct iovec *iov, unsigned n, size_t at, uint8_t stage[WIRE_RECORD], size_t *len)
{
	size_t have = 0, more = iov->iov_len - at;

	if (more >= WIRE_RECORD || n == 1) {
		*len = more < WIRE_RECORD ? more : WIRE_RECORD;
		return (const char *)iov->iov_base + at;
	}
	for (; n && have < WIRE_RECORD; n--, iov++, at = 0) {
		more = iov->iov_len - at;
		if (more > WIRE_RECORD - have)
			more = WIRE_RECORD - have;
		memcpy(stage + have, (const char *)iov->iov_base + at, more);
		have += more;
	}
	*len = have;
	return stage;
}

/* One record. False: TLS is broken. */
static bool seal(struct wire *w, const void *data, size_t len)
{
	size_t done;

	if (++w->sealed > RECORDS_OF_A_KEY && SSL_key_update(w->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
		w->sealed = 0;
	/* always the whole of it, since the BIO takes all */
	if (SSL_write_ex(w->ssl, data, len, &done) == 1)
		return true;
	broken(w);
	return false;
}

static ssize_t secure_send(struct wire *w, const struct iovec *iov, unsigned n)
{
	uint8_t stage[WIRE_RECORD];
	size_t total = 0, all = 0, at = 0, len;
	bool good = true;
	const void *data;

	for (unsigned k = 0; k < n; k++)
		all += iov[k].iov_len;
	ERR_clear_error();
	while (good && total < all) {
		for (; at >= iov->iov_len; iov++, n--)
			at -= iov->iov_len;
		if (w->out_n > WIRE_GATHER && (!wire_flush(w) || w->out_n > WIRE_GATHER))
			break;
		data = next_record(iov, n, at, stage, &len);
		w->gathering = total + len < all;
		good = seal(w, data, len);
		at += good ? len : 0;
		total += good ? len : 0;
	}
	w->gathering = false;
	good = wire_flush(w) && good;
	if (total > 0) /* what is wrong comes again */
		return (ssize_t)total;
	errno = good ? EAGAIN : broken(w);
	return -1;
}

ssize_t wire_send(struct wire *w, struct iovec *iov, unsigned n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t sent;

	if (w->code || !wire_flush(w)) {
		errno = broken(w);
		return -1;
	}
	if (w->ssl)
		return secure_send(w, iov, n);
	do
		sent = sendmsg(w->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
		w->error = errno;
	return sent;
}

void wire_shutdown(struct wire *w)
{
	ERR_clear_error();
	if (w->ssl && w->up && !w->shut)
		SSL_shutdown(w->ssl);
	ERR_clear_error();
	w->shut = true;
	if (w->out_n == 0)
		shutdown(w->fd, SHUT_WR);
}

void wire_close(struct wire *w)
{
	if (w->ssl) {
		/* else OpenSSL would take the session for damaged and not resume it */
		SSL_set_shutdown(w->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
		SSL_free(w->ssl);
	}
	X509_free(w->unaccepted);
	free(w->in);
	free(w->out);
	close(w->fd);
	*w = (struct wire){.fd = -1};
}
