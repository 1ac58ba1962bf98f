/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of handshakes: decides which worker may join which job on this reducer,
 * according to the configuration and its files. A secret is read at each handshake, so
 * files with secrets can be added, changed and removed while the reducer runs. One
 * thread. */
#ifndef RS_SERVER_JOIN_ADMISSION_H
#define RS_SERVER_JOIN_ADMISSION_H

#include "common/log.h"
#include "config/config.h"
#include "server/join/certificates.h"
#include "server/join/handshake.h"

/* Invariant: the certificates and rules of access are those of the last configuration
 * that was loaded completely. */
struct admission {
	const struct rs_config *cfg;
	const struct rs_log *log;
	struct rs_log_limit limit; /* of log lines about unusable files */
	struct certificates certificates;
};

/* Borrows cfg and log. Errors: RS_ECONFIG if server.secrets_dir is not a readable
 * directory; those of certificates_load.
 */
int admission_init(struct admission *a, const struct rs_config *cfg, const struct rs_log *log, struct rs_err *e);
void admission_close(struct admission *a);

/* Replaces certificates and rules of access by those of a newer configuration, which is
 * not kept. Errors: those of certificates_load; then nothing changes. */
int admission_reload(struct admission *a, const struct rs_config *cfg, struct rs_err *e);

/* Returns the policy, which is valid as long as *a. */
struct handshake_policy admission_policy(struct admission *a);

/* Logs, now and then, how many log lines were left out. */
void admission_tick(struct admission *a, uint64_t now_ms);

#endif
