/* SPDX-License-Identifier: Apache-2.0 */
/* The files of security.tls as text, for gRPC, which makes no use of the contexts of common/tls.h. */
#ifndef RS_CONFIG_TLS_TEXTS_H
#define RS_CONFIG_TLS_TEXTS_H

#include "common/tls.h"
#include "config/config.h"

enum rs_tls_side {
	RS_TLS_REDUCER, /* shows its certificate, and with mutual TLS wants one that the authority has signed */
	RS_TLS_WORKER,  /* the other way round; whoever asks the control service too */
};

/* Reads those that this side needs; NULL in *ret stands for the others, and for all where TLS is off. Errors: those of
 * tls_texts_load. */
int rs_config_tls_texts(struct tls_texts *ret, enum rs_tls_side side, const struct rs_config *cfg, struct rs_err *e);

#endif
