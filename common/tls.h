/* SPDX-License-Identifier: Apache-2.0 */
/* The TLS 1.3 setup of a reducer or a worker: certificates, keys, authorities. A context
 * is an OpenSSL SSL_CTX. Each connection (common/tcp_conn.h) holds a reference to its
 * context, so a context may be replaced and freed while connections go on. Any thread may
 * use a finished context.
 *
 * TLS 1.3 only; both sides negotiate the protocol name "reduction/1" by ALPN; AES-128-GCM
 * comes first if the processor has instructions for it, else ChaCha20-Poly1305; no early
 * data. A reducer issues tickets and stores no sessions; the keys of its tickets live as
 * long as its context. */
#ifndef RS_COMMON_TLS_H
#define RS_COMMON_TLS_H

#include "common/error.h"

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tls_mode {
	TLS_OFF,
	TLS_ON,     /* the reducer shows a certificate */
	TLS_MUTUAL, /* the worker shows a certificate too */
};

enum {
	TLS_BINDING = 32,        /* bytes of a channel binding, which only the two ends of one TLS connection know */
	TLS_NAMES_MAX = 512,     /* bytes of a certificate's names, terminator included */
	TLS_EXPIRY_TEXT = 40,    /* bytes of a date, terminator included */
	TLS_TICKET_S = 600,      /* seconds for which a connection may be resumed without certificates */
	TLS_HELLO_MAX = 8 << 10, /* most bytes of a ClientHello; common ones have less than 2 KiB */
	TLS_FIRST = 9,           /* bytes that tls_beginning needs for a decision */
};

/* Whether a connection that begins with these bytes speaks TLS. */
enum tls_beginning {
	TLS_BEGINS,
	TLS_MAY_BEGIN,   /* n < TLS_FIRST, and so far the bytes look like TLS */
	TLS_BEGINS_LONG, /* its ClientHello has more than TLS_HELLO_MAX bytes, for which OpenSSL would allocate memory
			    at once */
	TLS_BEGINS_NOT,
};
enum tls_beginning tls_beginning(const uint8_t *first, size_t n);

/* Returns the name, version and date of the OpenSSL that is loaded. Static storage. */
const char *tls_library(void);

/* Names of PEM files; "" for none. They are only used during a call. */
struct tls_files {
	const char *certificate; /* the own certificate, then the chain up to the authority */
	const char *key;
	const char *authority; /* the certificates that sign those of the peers; "": the system's (workers) */
};

/* Makes the context of a reducer (mode TLS_ON or TLS_MUTUAL). Release it with
 * SSL_CTX_free. Errors: RS_ECONFIG with the file and the problem (it cannot be read,
 * others may read the key, it is not PEM, the key does not fit, the certificate has
 * expired or is not valid yet), RS_ENOMEM. */
int tls_reducer(SSL_CTX **ret, enum tls_mode mode, const struct tls_files *files, struct rs_err *e);

/* Makes the context of a worker, in the same way. */
int tls_worker(SSL_CTX **ret, enum tls_mode mode, const struct tls_files *files, struct rs_err *e);

/* The file that a problem is about. */
enum tls_file { TLS_FILE_CERTIFICATE, TLS_FILE_KEY, TLS_FILE_AUTHORITY, TLS_FILE_NONE };

/* Checks that the files that a side needs are named. Errors: RS_ECONFIG. */
int tls_check_named(bool reducer, enum tls_mode mode, const struct tls_files *f, struct rs_err *e);

/* Calls problem() for each error that tls_reducer or tls_worker would find, not only for
 * the first. */
void tls_check(bool reducer, enum tls_mode mode, const struct tls_files *files,
	       void (*problem)(void *user, enum tls_file file, const struct rs_err *e), void *user);

/* Writes the names in the context's own certificate, as tls_peer_names does, and the end
 * of its validity, for logs. Both are empty if the context has no certificate. */
void tls_own_certificate(const SSL_CTX *ctx, char names[TLS_NAMES_MAX], char expiry[TLS_EXPIRY_TEXT]);

/* Writes the names in the peer's certificate: all its DNS names, or else its common name,
 * separated by commas; "" if there is no certificate or no name. Names with characters
 * other than letters, digits and "._-*@ " are left out, and so are names that do not
 * fit. */
void tls_peer_names(const SSL *ssl, char names[TLS_NAMES_MAX]);
/* Does the same for a certificate, which may be NULL. */
void tls_names(const X509 *cert, char names[TLS_NAMES_MAX]);

/* Does the same for a certificate in PEM. */
void tls_pem_names(const char *pem, char names[TLS_NAMES_MAX]);

/* The contents of the files, for gRPC, which makes its own contexts; NULL for a file that
 * is not given. */
struct tls_texts {
	char *certificate, *key, *authority; /* owned */
};
/* Reads the files, and checks only that key and certificate belong together if both are
 * named. Errors: RS_ECONFIG as above, RS_ENOMEM. */
int tls_texts_load(struct tls_texts *ret, const struct tls_files *files, struct rs_err *e);
void tls_texts_free(struct tls_texts *t);

/* Computes RFC 9266's "tls-exporter" channel binding of a connection whose handshake is
 * done. Errors: RS_EINTERNAL. */
int tls_binding(SSL *ssl, uint8_t ret[TLS_BINDING], struct rs_err *e);

#endif
