/* SPDX-License-Identifier: Apache-2.0 */
/* What a reducer or a worker is set up with for TLS 1.3: certificates, keys, authorities. A context is an OpenSSL
 * SSL_CTX; connections (common/tcp_conn.h) hold it for as long as they need it, so that it may be replaced and freed at
 * any time while they go on. A context belongs to any thread once it is made.
 *
 * TLS 1.3 alone, the protocol's name "reduction/1" by ALPN on both sides, AES-128-GCM first where the processor has
 * instructions for it and ChaCha20-Poly1305 where it has not, no early data. A reducer gives out tickets and keeps
 * nothing for them; their keys live and die with its context. */
#ifndef RS_COMMON_TLS_H
#define RS_COMMON_TLS_H

#include "common/error.h"

#include <openssl/ssl.h>
#include <stddef.h>
#include <stdint.h>

enum tls_mode {
	TLS_OFF,
	TLS_ON,     /* the reducer shows a certificate */
	TLS_MUTUAL, /* the worker too */
};

enum {
	TLS_BINDING = 32,        /* bytes of what only the two ends of one TLS connection know */
	TLS_NAMES_MAX = 512,     /* bytes of a certificate's names, terminator included */
	TLS_EXPIRY_TEXT = 40,    /* bytes of a date, terminator included */
	TLS_TICKET_S = 600,      /* for which a connection may be resumed without certificates */
	TLS_HELLO_MAX = 8 << 10, /* bytes of a ClientHello that are taken; common ones have less than 2 KiB */
	TLS_FIRST = 9,           /* bytes after which tls_beginning knows */
};

/* What a connection is that begins with these bytes. */
enum tls_beginning {
	TLS_BEGINS,
	TLS_MAY_BEGIN,   /* n < TLS_FIRST, and so far it looks like TLS */
	TLS_BEGINS_LONG, /* with a ClientHello of more than TLS_HELLO_MAX bytes, for which memory would be taken at once
			  */
	TLS_BEGINS_NOT,
};
enum tls_beginning tls_beginning(const uint8_t *first, size_t n);

/* PEM files; "" where there is none. Must stay valid during a call only. */
struct tls_files {
	const char *certificate; /* with the chain up to the authority, the own one first */
	const char *key;
	const char
	    *authority; /* certificates that those of the peers are to be signed by; "": the system's (workers) */
};

/* For a reducer (mode TLS_ON or TLS_MUTUAL). To be released with SSL_CTX_free. Errors: RS_ECONFIG with the file and
 * what is wrong with it (it cannot be read, others may read the key, it is no PEM, the key does not fit, the
 * certificate has expired or is not valid yet), RS_ENOMEM. */
int tls_reducer(SSL_CTX **ret, enum tls_mode mode, const struct tls_files *files, struct rs_err *e);

/* For a worker; the same. */
int tls_worker(SSL_CTX **ret, enum tls_mode mode, const struct tls_files *files, struct rs_err *e);

/* The names in the context's own certificate as tls_peer_names gives them, and until when it is valid, for logs; both
 * empty when it has none. */
void tls_own_certificate(const SSL_CTX *ctx, char names[TLS_NAMES_MAX], char expiry[TLS_EXPIRY_TEXT]);

/* The names in the certificate that the peer has shown: all its DNS names, else its common name, separated by commas;
 * "" when it has shown none or has no name. Names with other characters than letters, digits and those in "._-*@ " are
 * left out, and those for which there is no room. */
void tls_peer_names(const SSL *ssl, char names[TLS_NAMES_MAX]);
/* The same of any certificate, which may be NULL. */
void tls_names(const X509 *cert, char names[TLS_NAMES_MAX]);

/* The same of one in PEM. */
void tls_pem_names(const char *pem, char names[TLS_NAMES_MAX]);

/* The files' text, for who makes a context of it elsewhere; NULL where there is no file. */
struct tls_texts {
	char *certificate, *key, *authority; /* owned */
};
/* Errors: RS_ECONFIG as above, of files that cannot be read, RS_ENOMEM. What is in them is not looked at. */
int tls_texts_load(struct tls_texts *ret, const struct tls_files *files, struct rs_err *e);
void tls_texts_free(struct tls_texts *t);

/* RFC 9266's "tls-exporter" of a connection whose handshake is done. Errors: RS_EINTERNAL. */
int tls_binding(SSL *ssl, uint8_t ret[TLS_BINDING], struct rs_err *e);

/* What is left in OpenSSL's queue of this thread's errors, as words for the end of a sentence; empties the queue.
 * Static storage or buf. */
const char *tls_error_text(char *buf, size_t size);

#endif
