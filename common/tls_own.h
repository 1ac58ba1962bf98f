/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of a context's own certificate before a peer sees it. The context has
 * a certificate. */
#ifndef RS_COMMON_TLS_OWN_H
#define RS_COMMON_TLS_OWN_H

#include "common/tls.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns the whole days until the certificate expires, and the date; "" if there is no
 * certificate. */
int tls_own_days(const SSL_CTX *ctx, char ret_date[TLS_EXPIRY_TEXT]);

/* When a certificate ends, in seconds since 1970; both are 0 if there is none. */
struct tls_validity {
	int64_t expires_s;
	int64_t renew_s; /* from then on it should be renewed: 30 days before, or a third of its life if that is less */
};
struct tls_validity tls_own_validity(const SSL_CTX *ctx);
/* Does the same for a certificate in PEM. */
struct tls_validity tls_pem_validity(const char *pem);

/* Returns whether the certificate is for a host name or a numeric address, as a worker
 * checks it. */
bool tls_own_is_for(const SSL_CTX *ctx, const char *name);

/* Verifies the certificate as a peer would that trusts the context's authorities. Errors:
 * RS_ECONFIG with the reason, RS_ENOMEM. */
int tls_own_verify(SSL_CTX *ctx, bool reducer, struct rs_err *e);

#endif
