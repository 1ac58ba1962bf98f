/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer's TLS certificate (security.tls), and the rules that say which worker
 * certificate may join which job (access). Both are read at the start and on SIGHUP, and
 * the certificate when its files change. One thread. */
#ifndef RS_SERVER_JOIN_CERTIFICATES_H
#define RS_SERVER_JOIN_CERTIFICATES_H

#include "common/log.h"
#include "common/tls.h"
#include "config/config.h"
#include "proto/control.h"

#include <stdbool.h>

/* Invariant: rules is NULL exactly if rules_n is 0. */
struct certificates {
	SSL_CTX *ctx;            /* NULL: security.tls is off */
	bool mutual;             /* workers must show a certificate */
	struct rs_access *rules; /* owned */
	unsigned rules_n;
};

/* Loads the certificate and the rules of a configuration. Errors: RS_ENOMEM, those of
 * tls_reducer. *ret is set only on success. */
int certificates_load(struct certificates *ret, const struct rs_config *cfg, struct rs_err *e);
void certificates_close(struct certificates *c);

/* Replaces the certificate alone by that of the files, which may be others now. Errors:
 * those of tls_reducer; then nothing changes. */
int certificates_renew(struct certificates *c, const struct rs_config *cfg, struct rs_err *e);

/* Logs the certificate and its expiry date; nothing if TLS is off. */
void certificates_log(const struct certificates *c, const struct rs_log *log, const char *event);

/* Checks that the owner of a certificate with these names (as of tls_peer_names) may join
 * a job, and with which weight (access.weight). Without mutual TLS every worker may.
 * Errors: RS_EREFUSED, with the sentence for the peer in *refused. */
int certificates_may_join(const struct certificates *c, const char *names, const char *job, double *ret_weight,
			  struct control_refused *refused);

#endif
