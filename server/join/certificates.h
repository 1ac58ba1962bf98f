/* SPDX-License-Identifier: Apache-2.0 */
/* What a reducer shows and asks for with TLS (security.tls), and which certificate may join which job (access). Read
 * when the reducer starts and on SIGHUP. One thread. */
#ifndef RS_SERVER_JOIN_CERTIFICATES_H
#define RS_SERVER_JOIN_CERTIFICATES_H

#include "common/log.h"
#include "common/tls.h"
#include "config/config.h"
#include "proto/control.h"

#include <stdbool.h>

struct certificates {
	SSL_CTX *ctx; /* NULL: security.tls is off */
	bool mutual;
	struct rs_access *rules; /* owned */
	unsigned rules_n;
};

/* Errors: those of tls_reducer. *ret is set only on success. */
int certificates_load(struct certificates *ret, const struct rs_config *cfg, struct rs_err *e);
void certificates_close(struct certificates *c);

/* A line that says which certificate is shown, and until when. Nothing where TLS is off. */
void certificates_log(const struct certificates *c, const struct rs_log *log, const char *event);

/* May the owner of a certificate with these names (as tls_peer_names) join this job? Anybody may where workers show
 * none. An error, RS_EREFUSED, comes with the sentence for the peer. */
int certificates_may_join(const struct certificates *c, const char *names, const char *job,
			  struct control_refused *refused);

#endif
