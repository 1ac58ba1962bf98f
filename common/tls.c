/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tls.h"
#include "common/credential.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

enum {
	CHAIN_MAX =
	    32
	    << 10, /* bytes of certificates that a peer may send; each unauthenticated peer may cost as much memory */
	CHAIN_DEPTH = 8,
	FILE_MAX = 1 << 20, /* bytes of a PEM file; the system's authorities have a quarter of that */
};

/* The protocol name as in ALPN, with its length in front. */
static const unsigned char protocol[] = "\x0breduction/1";
enum { PROTOCOL_LEN = sizeof protocol - 1 };

/* Returns the last error in OpenSSL's queue of this thread as text for the end of a
 * sentence, and empties the queue. Static storage or buf. */
static const char *tls_error_text(char *buf, size_t size)
{
	unsigned long code = ERR_peek_last_error();
	const char *text = ERR_reason_error_string(code);

	if (!text && ERR_SYSTEM_ERROR(code)) {
		errno = (int)ERR_GET_REASON(code);
		snprintf(buf, size, "%m");
		text = buf;
	}
	ERR_clear_error();
	return text ? text : "OpenSSL gives no reason";
}

const char *tls_library(void)
{
	return OpenSSL_version(OPENSSL_VERSION);
}

enum tls_beginning tls_beginning(const uint8_t *first, size_t n)
{
	/* a TLS record of type handshake, of any version but SSL 2's, that holds a
	 * ClientHello and its length */
	static const struct {
		uint8_t at, value;
	} fixed[] = {{0, 0x16}, {1, 3}, {5, 1}};

	for (unsigned i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		if (n > fixed[i].at && first[fixed[i].at] != fixed[i].value)
			return TLS_BEGINS_NOT;
	if (n < TLS_FIRST)
		return TLS_MAY_BEGIN;
	return (first[6] << 16 | first[7] << 8 | first[8]) > TLS_HELLO_MAX ? TLS_BEGINS_LONG : TLS_BEGINS;
}

static int fail_file(struct rs_err *e, const char *what, const char *file)
{
	char buf[128];

	return rs_fail(e, RS_ECONFIG, "%s %s: %s", what, file, tls_error_text(buf, sizeof buf));
}

/* Reads a file into a BIO in memory. It is opened once, so that the file that is checked
 * is the file that is read. */
static int read_file(BIO **ret, const char *what, const char *file, bool secret, struct rs_err *e)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = RS_OK;
	struct stat st;
	char buf[4096];
	ssize_t got;
	BIO *bio;

	if (fd < 0)
		return rs_fail_sys(e, RS_ECONFIG, errno, "%s %s cannot be opened%s", what, rs_credential_name(file),
				   rs_credential_hint(file));
	bio = BIO_new(BIO_s_mem());
	if (!bio)
		rc = rs_oom(e, 0, "%s", file);
	else if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
		rc = rs_fail(e, RS_ECONFIG, "%s %s is not a file of at most %d KiB", what, file, FILE_MAX >> 10);
	else if (secret && (st.st_mode & (S_IROTH | S_IWOTH)))
		rc = rs_fail(e, RS_ECONFIG,
			     "%s %s may be read or written by everybody (mode %04o); expected at most 0640", what, file,
			     st.st_mode & 07777);
	while (!rc && (got = read(fd, buf, sizeof buf)) != 0) {
		if (got < 0)
			rc = rs_fail_sys(e, RS_ECONFIG, errno, "%s %s cannot be read", what, file);
		else if (BIO_write(bio, buf, (int)got) != got)
			rc = rs_oom(e, 0, "%s", file);
	}
	OPENSSL_cleanse(buf, sizeof buf);
	close(fd);
	if (rc)
		BIO_free(bio);
	else
		*ret = bio;
	return rc;
}

/* Fails for a file that holds no block of the kind that was searched for. */
static int fail_pem(struct rs_err *e, const char *what, const char *file, const char *expected)
{
	char buf[128];

	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return fail_file(e, what, file);
	tls_error_text(buf, sizeof buf);
	return rs_fail(e, RS_ECONFIG, "%s %s holds no %s in PEM form", what, file, expected);
}

/* True at the end of a list of PEM blocks, which OpenSSL reports as an error. */
static bool pem_ended(void)
{
	unsigned long code = ERR_peek_last_error();

	if (ERR_GET_LIB(code) != ERR_LIB_PEM || ERR_GET_REASON(code) != PEM_R_NO_START_LINE)
		return false;
	ERR_clear_error();
	return true;
}

static void date_text(const ASN1_TIME *t, char text[TLS_EXPIRY_TEXT])
{
	struct tm tm;

	text[0] = '\0';
	if (ASN1_TIME_to_tm(t, &tm))
		snprintf(text, TLS_EXPIRY_TEXT, "%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year + 1900, tm.tm_mon + 1,
			 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

static int check_dates(const X509 *cert, const char *file, struct rs_err *e)
{
	char date[TLS_EXPIRY_TEXT];

	if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) {
		date_text(X509_get0_notAfter(cert), date);
		return rs_fail(e, RS_ECONFIG, "the certificate in %s has expired on %s", file, date);
	}
	if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0) {
		date_text(X509_get0_notBefore(cert), date);
		return rs_fail(e, RS_ECONFIG,
			       "the certificate in %s is not valid before %s; is this machine's clock right?", file,
			       date);
	}
	return RS_OK;
}

/* Loads the own certificate, then those between it and the authority. */
static int use_chain(SSL_CTX *ctx, const char *file, struct rs_err *e)
{
	X509 *cert;
	BIO *bio;
	int rc = read_file(&bio, "security.certificate", file, false, e);

	if (rc)
		return rc;
	cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL);
	if (!cert) {
		rc = fail_pem(e, "security.certificate", file, "certificate");
		goto free_bio;
	}
	rc = check_dates(cert, file, e);
	if (!rc && SSL_CTX_use_certificate(ctx, cert) != 1)
		rc = fail_file(e, "security.certificate", file);
	X509_free(cert);
	while (!rc && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)))
		if (SSL_CTX_add0_chain_cert(ctx, cert) != 1) {
			X509_free(cert);
			rc = fail_file(e, "security.certificate", file);
		}
	if (!rc && !pem_ended())
		rc = fail_file(e, "security.certificate", file);
free_bio:
	BIO_free(bio);
	return rc;
}

/* Refuses a passphrase: OpenSSL would ask for it on the terminal, which a daemon does not
 * have. */
static int no_passphrase(char *buf, int size, int writing, void *ctx)
{
	(void)writing;
	(void)ctx;
	if (size > 0)
		buf[0] = '\0';
	return -1;
}

/* Checks a key that was read, and that it belongs to the certificate, if there is one.
 * OpenSSL's own texts do not name the files. */
static int check_key(EVP_PKEY *key, const char *file, const X509 *cert, const char *certificate, struct rs_err *e)
{
	int rc = RS_OK;

	if (!key)
		rc = rs_fail(e, RS_ECONFIG, "security.key %s holds no private key in PEM form without a passphrase",
			     file);
	else if (cert && X509_check_private_key(cert, key) != 1)
		rc =
		    rs_fail(e, RS_ECONFIG, "the key in %s does not belong to the certificate in %s", file, certificate);
	ERR_clear_error();
	return rc;
}

static int use_key(SSL_CTX *ctx, const char *file, const char *certificate, struct rs_err *e)
{
	EVP_PKEY *key;
	BIO *bio;
	int rc = read_file(&bio, "security.key", file, true, e);

	if (rc)
		return rc;
	key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
	BIO_free(bio);
	rc = check_key(key, file, SSL_CTX_get0_certificate(ctx), certificate, e);
	if (!rc && SSL_CTX_use_PrivateKey(ctx, key) != 1)
		rc = fail_file(e, "security.key", file);
	EVP_PKEY_free(key);
	return rc;
}

static int use_authority(SSL_CTX *ctx, const char *file, bool ask, struct rs_err *e)
{
	X509_STORE *store = SSL_CTX_get_cert_store(ctx);
	unsigned n = 0;
	X509 *cert;
	BIO *bio;
	int rc = read_file(&bio, "security.authority", file, false, e);

	if (rc)
		return rc;
	for (; !rc && (cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL)); n++) {
		/* `ask`: tell clients which authorities are accepted */
		if (X509_STORE_add_cert(store, cert) != 1 || (ask && SSL_CTX_add_client_CA(ctx, cert) != 1))
			rc = fail_file(e, "security.authority", file);
		X509_free(cert);
	}
	if (!rc && n == 0)
		rc = fail_pem(e, "security.authority", file, "certificate");
	else if (!rc && !pem_ended())
		rc = fail_file(e, "security.authority", file);
	BIO_free(bio);
	return rc;
}

int tls_check_named(bool reducer, enum tls_mode mode, const struct tls_files *f, struct rs_err *e)
{
	if (reducer && mode == TLS_MUTUAL && !f->authority[0])
		return rs_fail(
		    e, RS_ECONFIG,
		    "security.tls: mutual needs security.authority, the certificates that sign those of workers");
	if ((reducer || mode == TLS_MUTUAL) && (!f->certificate[0] || !f->key[0]))
		return rs_fail(e, RS_ECONFIG,
			       "security.tls needs security.certificate and security.key, and %s is empty",
			       f->certificate[0] ? "security.key" : "security.certificate");
	return RS_OK;
}

/* Trusts the system's authorities. An OpenSSL that was brought from another distribution
 * may look for them where this one does not have them. */
static int use_system_authorities(SSL_CTX *ctx, struct rs_err *e)
{
	static const char *const files[] = {
	    "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu */
	    "/etc/pki/tls/certs/ca-bundle.crt",   /* RHEL, Amazon Linux */
	};
	bool found = getenv(X509_get_default_cert_file_env()) || getenv(X509_get_default_cert_dir_env()) ||
		     access(X509_get_default_cert_dir(), F_OK) == 0;

	if (SSL_CTX_set_default_verify_paths(ctx) != 1)
		return fail_file(e, "the system's", "authorities");
	for (unsigned i = 0; !found && i < sizeof files / sizeof files[0]; i++)
		found = access(files[i], R_OK) == 0 && SSL_CTX_load_verify_file(ctx, files[i]) == 1;
	ERR_clear_error();
	return RS_OK;
}

/* Loads one of the files that a side needs. */
static int load_file(SSL_CTX *ctx, enum tls_mode mode, bool reducer, const struct tls_files *f, enum tls_file which,
		     struct rs_err *e)
{
	bool own = reducer || mode == TLS_MUTUAL;

	if (which == TLS_FILE_CERTIFICATE)
		return own ? use_chain(ctx, f->certificate, e) : RS_OK;
	if (which == TLS_FILE_KEY)
		return own ? use_key(ctx, f->key, f->certificate, e) : RS_OK;
	if (f->authority[0])
		return use_authority(ctx, f->authority, reducer, e);
	return reducer ? RS_OK : use_system_authorities(ctx, e);
}

/* Returns whether a file is named; only the authority may be left out. */
static bool is_named(const struct tls_files *f, enum tls_file which)
{
	return (which == TLS_FILE_CERTIFICATE ? f->certificate : which == TLS_FILE_KEY ? f->key : "-")[0] != '\0';
}

static int load_files(SSL_CTX *ctx, enum tls_mode mode, bool reducer, const struct tls_files *f, struct rs_err *e)
{
	int rc = tls_check_named(reducer, mode, f, e);

	for (enum tls_file which = TLS_FILE_CERTIFICATE; !rc && which < TLS_FILE_NONE; which++)
		rc = load_file(ctx, mode, reducer, f, which, e);
	return rc;
}

static bool has_aes(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_cpu_supports("aes");
#elif defined(__aarch64__)
	return getauxval(AT_HWCAP) & HWCAP_AES;
#else
	return false;
#endif
}

static int configure(SSL_CTX *ctx)
{
	SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE |
				     SSL_OP_PRIORITIZE_CHACHA);
	SSL_CTX_clear_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_LEGACY_SERVER_CONNECT);
	/* a call reads at most one record, so that records without data cannot occupy a
	 * thread */
	SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_NO_AUTO_CHAIN);
	SSL_CTX_set_max_cert_list(ctx, CHAIN_MAX);
	SSL_CTX_set_verify_depth(ctx, CHAIN_DEPTH);
	SSL_CTX_set_security_level(ctx, 2);
	SSL_CTX_set_timeout(ctx, TLS_TICKET_S);
	return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
	       SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
	       SSL_CTX_set_ciphersuites(ctx, has_aes() ? "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:"
							 "TLS_AES_256_GCM_SHA384"
						       : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:"
							 "TLS_AES_256_GCM_SHA384") == 1 &&
	       SSL_CTX_set1_groups_list(ctx, "X25519:P-256:P-384") == 1;
}

static int context_new(SSL_CTX **ret, const SSL_METHOD *method, struct rs_err *e)
{
	SSL_CTX *ctx = SSL_CTX_new(method);
	char buf[128];

	if (ctx && configure(ctx)) {
		*ret = ctx;
		return RS_OK;
	}
	SSL_CTX_free(ctx);
	return rs_fail(e, RS_ENOMEM, "TLS cannot be set up: %s", tls_error_text(buf, sizeof buf));
}

/* Chooses the protocol. A client that offers protocols must offer ours; whether one was
 * chosen at all is checked after the handshake. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *outlen, const unsigned char *in,
			   unsigned int inlen, void *ctx)
{
	(void)ssl;
	(void)ctx;
	if (SSL_select_next_proto((unsigned char **)out, outlen, protocol, PROTOCOL_LEN, in, inlen) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	return SSL_TLSEXT_ERR_OK;
}

int tls_reducer(SSL_CTX **ret, enum tls_mode mode, const struct tls_files *f, struct rs_err *e)
{
	SSL_CTX *ctx;
	int rc = context_new(&ctx, TLS_server_method(), e);

	if (rc)
		return rc;
	rc = load_files(ctx, mode, true, f, e);
	if (rc) {
		SSL_CTX_free(ctx);
		return rc;
	}
	if (mode == TLS_MUTUAL)
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_session_id_context(ctx, protocol, PROTOCOL_LEN);
	SSL_CTX_set_num_tickets(ctx, 1); /* a worker keeps one, for its other connections */
	SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
	*ret = ctx;
	return RS_OK;
}

/* Stores a new ticket in place of the previous one, see tcp_conn_connect. */
static int keep_session(SSL *ssl, SSL_SESSION *session)
{
	SSL_SESSION **slot = SSL_get_app_data(ssl);

	SSL_SESSION_free(*slot);
	*slot = session;
	return 1; /* we keep the reference */
}

int tls_worker(SSL_CTX **ret, enum tls_mode mode, const struct tls_files *f, struct rs_err *e)
{
	SSL_CTX *ctx;
	int rc = context_new(&ctx, TLS_client_method(), e);

	if (rc)
		return rc;
	rc = load_files(ctx, mode, false, f, e);
	/* unlike the other functions, this one returns 0 for success */
	if (!rc && SSL_CTX_set_alpn_protos(ctx, protocol, PROTOCOL_LEN))
		rc = rs_oom(e, 0, "TLS");
	if (rc) {
		SSL_CTX_free(ctx);
		return rc;
	}
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(ctx, keep_session);
	*ret = ctx;
	return RS_OK;
}

void tls_check(bool reducer, enum tls_mode mode, const struct tls_files *files,
	       void (*problem)(void *user, enum tls_file file, const struct rs_err *e), void *user)
{
	SSL_CTX *ctx;
	struct rs_err e;

	if (context_new(&ctx, reducer ? TLS_server_method() : TLS_client_method(), &e)) {
		problem(user, TLS_FILE_NONE, &e);
		return;
	}
	if (tls_check_named(reducer, mode, files, &e))
		problem(user, TLS_FILE_NONE, &e);
	for (enum tls_file which = TLS_FILE_CERTIFICATE; which < TLS_FILE_NONE; which++)
		if (is_named(files, which) && load_file(ctx, mode, reducer, files, which, &e))
			problem(user, which, &e);
	SSL_CTX_free(ctx);
}

/* Appends a name of a certificate to a list. The peer has chosen the name, so only
 * harmless characters are accepted. */
static void add_name(char names[TLS_NAMES_MAX], const ASN1_STRING *s)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*@ ";
	size_t have = strlen(names), n;
	unsigned char *text;
	int len = ASN1_STRING_to_UTF8(&text, s);

	if (len < 0) {
		ERR_clear_error();
		return;
	}
	n = (size_t)len;
	if (n > 0 && strspn((char *)text, good) == n && have + n + 2 <= TLS_NAMES_MAX) {
		if (have)
			names[have++] = ',';
		memcpy(names + have, text, n);
		names[have + n] = '\0';
	}
	OPENSSL_free(text);
}

void tls_names(const X509 *cert, char names[TLS_NAMES_MAX])
{
	GENERAL_NAMES *all = cert ? X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL) : NULL;
	const X509_NAME *subject = cert ? X509_get_subject_name(cert) : NULL;
	bool has_dns = false;
	int at;

	names[0] = '\0';
	for (int i = 0; i < sk_GENERAL_NAME_num(all); i++) {
		const GENERAL_NAME *one = sk_GENERAL_NAME_value(all, i);

		if (one->type != GEN_DNS)
			continue;
		has_dns = true;
		add_name(names, one->d.dNSName);
	}
	GENERAL_NAMES_free(all);
	at = has_dns || !subject ? -1 : X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
	if (at >= 0)
		add_name(names, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
	ERR_clear_error();
}

void tls_own_certificate(const SSL_CTX *ctx, char names[TLS_NAMES_MAX], char expiry[TLS_EXPIRY_TEXT])
{
	const X509 *cert = SSL_CTX_get0_certificate(ctx);

	tls_names(cert, names);
	expiry[0] = '\0';
	if (cert)
		date_text(X509_get0_notAfter(cert), expiry);
}

void tls_peer_names(const SSL *ssl, char names[TLS_NAMES_MAX])
{
	tls_names(SSL_get0_peer_certificate(ssl), names);
}

void tls_pem_names(const char *pem, char names[TLS_NAMES_MAX])
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

	tls_names(cert, names);
	X509_free(cert);
	BIO_free(bio);
}

static int load_text(char **ret, const char *what, const char *file, bool secret, struct rs_err *e)
{
	BIO *bio;
	char *bytes;
	long len;
	int rc;

	*ret = NULL;
	if (!file[0])
		return RS_OK;
	rc = read_file(&bio, what, file, secret, e);
	if (rc)
		return rc;
	len = BIO_get_mem_data(bio, &bytes);
	*ret = strndup(bytes, (size_t)len);
	BIO_free(bio);
	return *ret ? RS_OK : rs_oom(e, 0, "%s", what);
}

/* Checks that the texts are of one pair: files may be replaced while they are read. */
static int check_pair(const struct tls_texts *t, const struct tls_files *f, struct rs_err *e)
{
	BIO *certificate = BIO_new_mem_buf(t->certificate, -1), *key = BIO_new_mem_buf(t->key, -1);
	X509 *cert = certificate ? PEM_read_bio_X509_AUX(certificate, NULL, NULL, NULL) : NULL;
	EVP_PKEY *own = key ? PEM_read_bio_PrivateKey(key, NULL, no_passphrase, NULL) : NULL;
	int rc = cert ? check_key(own, f->key, cert, f->certificate, e)
		      : fail_pem(e, "security.certificate", f->certificate, "certificate");

	EVP_PKEY_free(own);
	X509_free(cert);
	BIO_free(key);
	BIO_free(certificate);
	return rc;
}

int tls_texts_load(struct tls_texts *ret, const struct tls_files *files, struct rs_err *e)
{
	struct tls_texts t = {.certificate = NULL};
	int rc = load_text(&t.certificate, "security.certificate", files->certificate, false, e);

	if (!rc)
		rc = load_text(&t.key, "security.key", files->key, true, e);
	if (!rc)
		rc = load_text(&t.authority, "security.authority", files->authority, false, e);
	if (!rc && t.certificate && t.key)
		rc = check_pair(&t, files, e);
	if (rc)
		tls_texts_free(&t);
	else
		*ret = t;
	return rc;
}

void tls_texts_free(struct tls_texts *t)
{
	if (t->key)
		OPENSSL_cleanse(t->key, strlen(t->key));
	free(t->certificate);
	free(t->key);
	free(t->authority);
	*t = (struct tls_texts){.certificate = NULL};
}

int tls_binding(SSL *ssl, uint8_t ret[TLS_BINDING], struct rs_err *e)
{
	static const char label[] = "EXPORTER-Channel-Binding";
	char buf[128];

	if (SSL_export_keying_material(ssl, ret, TLS_BINDING, label, sizeof label - 1, NULL, 0, 1) == 1)
		return RS_OK;
	return rs_fail(e, RS_EINTERNAL, "TLS gives no channel binding: %s", tls_error_text(buf, sizeof buf));
}
