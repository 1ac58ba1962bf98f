/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates for tests of TLS, made in a folder of their own with the tools of
 * deploy/make-certs.sh, some of them with invalid dates and names. */
#ifndef RS_TESTS_UNIT_FAKE_CERTS_H
#define RS_TESTS_UNIT_FAKE_CERTS_H

#include "common/tls.h"

struct certs {
	char dir[64];
};

/* The properties of a certificate. */
struct cert {
	const char *name;    /* its files: NAME.pem, NAME.key */
	const char *issuer;  /* of an earlier one; NULL: it signs itself and is an authority */
	const char *cn;      /* NULL: no common name */
	const char *sans;    /* as in OpenSSL's configuration, "DNS:a,IP:127.0.0.1"; NULL: none */
	long from_s, till_s; /* seconds from now on; both 0: from an hour ago for an hour */
};

/* Aborts the test on any error. */
void certs_init(struct certs *c);
void certs_make(const struct certs *c, const struct cert *what);
void certs_close(struct certs *c); /* removes the folder */

/* Returns DIR/NAME and a suffix; static storage, valid for the next 8 calls. */
const char *certs_file(const struct certs *c, const char *name, const char *suffix);

/* Returns a context from the certificates of these names; NULL: no such certificate. */
SSL_CTX *certs_reducer(const struct certs *c, enum tls_mode mode, const char *own, const char *authority);
SSL_CTX *certs_worker(const struct certs *c, const char *own, const char *authority);

#endif
