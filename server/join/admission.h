/* SPDX-License-Identifier: Apache-2.0 */
/* Who may join which job on this reducer: the handshakes' policy, as the configuration and the files that it names say.
 * Files
 * with secrets are read at each handshake, so that they come, change and go while the reducer runs. One thread. */
#ifndef RS_SERVER_JOIN_ADMISSION_H
#define RS_SERVER_JOIN_ADMISSION_H

#include "common/log.h"
#include "config/config.h"
#include "server/join/certificates.h"
#include "server/join/handshake.h"

struct admission {
	const struct rs_config *cfg;
	const struct rs_log *log;
	struct rs_log_limit limit; /* of lines about files that cannot be used */
	struct certificates certificates;
};

/* cfg and log are borrowed. Errors: RS_ECONFIG when security.secrets is no directory that can be read; those of
 * certificates_load. */
int admission_init(struct admission *a, const struct rs_config *cfg, const struct rs_log *log, struct rs_err *e);
void admission_close(struct admission *a);

/* Takes certificates and rules of access from a newer configuration, which is not kept. After an error, those of
 * certificates_load, everything is as it was. */
int admission_reload(struct admission *a, const struct rs_config *cfg, struct rs_err *e);

/* For as long as *a lives. */
struct handshake_policy admission_policy(struct admission *a);

/* Tells how many lines were left out, once in a while. */
void admission_tick(struct admission *a, uint64_t now_ms);

/* Whether strangers are kept out, so that this reducer may listen where they are. */
bool admission_authenticates(const struct rs_config *cfg);

#endif
