/* SPDX-License-Identifier: Apache-2.0 */
/* The files of security.tls: as a context, and as text for gRPC, which does not use the
 * contexts of common/tls.h. */
#ifndef RS_CONFIG_TLS_TEXTS_H
#define RS_CONFIG_TLS_TEXTS_H

#include "common/tls.h"
#include "config/config.h"

enum rs_tls_side {
	RS_TLS_REDUCER, /* reducer: shows its certificate; with mutual TLS it requires one that the authority has signed
			 */
	RS_TLS_WORKER,  /* worker or client of the control service: verifies the reducer; with mutual TLS it shows its
			   certificate */
};

/* Reads the files that this side needs; the other fields of *ret are NULL, and all are if
 * TLS is off. Errors: those of tls_texts_load. */
int rs_config_tls_texts(struct tls_texts *ret, enum rs_tls_side side, const struct rs_config *cfg, struct rs_err *e);

/* Returns the files of security.tls; they point into cfg. */
struct tls_files rs_config_tls_files(const struct rs_config *cfg);

/* Makes the context of a side, for TCP; TLS is not off. Release it with SSL_CTX_free.
 * Errors: those of tls_reducer. */
int rs_config_tls_context(SSL_CTX **ret, enum rs_tls_side side, const struct rs_config *cfg, struct rs_err *e);

#endif
