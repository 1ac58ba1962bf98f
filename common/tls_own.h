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

/* Returns when the certificate expires, in seconds since 1970; 0: there is no
 * certificate. */
int64_t tls_own_expiry(const SSL_CTX *ctx);

/* Returns whether the certificate is for a host name or a numeric address, as a worker
 * checks it. */
bool tls_own_is_for(const SSL_CTX *ctx, const char *name);

/* Verifies the certificate as a peer would that trusts the context's authorities. Errors:
 * RS_ECONFIG with the reason, RS_ENOMEM. */
int tls_own_verify(SSL_CTX *ctx, bool reducer, struct rs_err *e);

#endif
