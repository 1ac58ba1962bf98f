/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine's connections need for TLS (security.tls): the files, read again when connections are made anew, and
 * for each reducer the session that its next connections resume. All on the engine's thread, once it runs. */
#ifndef RS_AGENT_ENGINE_TLS_H
#define RS_AGENT_ENGINE_TLS_H

#include "common/log.h"
#include "common/tls.h"
#include "config/config.h"

#include <stdbool.h>

enum { ENGINE_TLS_LINES = 3 }; /* about reducers with which there is no TLS, in a second */

/* One reducer. */
struct engine_tls_peer {
	char name[RS_HOST_MAX]; /* that its certificate has to be for */
	SSL_SESSION *session;   /* NULL: there is none yet */
	const void *leader;     /* the connection that is to bring one, while the others wait; NULL: none */
};

/* By which a file is known to be another one than before. */
struct engine_tls_file {
	uint64_t inode, bytes, changed_ns;
};

enum { ENGINE_TLS_FILES = 3 };

struct engine_tls {
	const struct rs_config *cfg;
	const struct rs_log *log;
	SSL_CTX *ctx;                                   /* NULL: security.tls is off */
	struct engine_tls_file files[ENGINE_TLS_FILES]; /* as they were read */
	struct engine_tls_peer *peers;                  /* [cfg->reducers_n]; NULL: off */
	struct rs_log_limit limit;
};

/* Errors: those of tls_worker. cfg and log must stay valid. */
int engine_tls_init(struct engine_tls *t, const struct rs_config *cfg, const struct rs_log *log, struct rs_err *e);
void engine_tls_close(struct engine_tls *t);

/* Whether this connection to a reducer may be made now, or had better wait until another one has brought a session:
 * without one a handshake takes the reducer several times as long. Who may is the leader until it says otherwise. */
bool engine_tls_may_connect(struct engine_tls *t, unsigned reducer, const void *conn);
/* The connection does not lead any more: it has a session, never will have one, or is gone. True: others waited. */
bool engine_tls_release(struct engine_tls *t, unsigned reducer, const void *conn);

/* Reads the files again if they have changed. Where they are bad now, what was read before stays in use and the log
 * says why. */
void engine_tls_refresh(struct engine_tls *t);

/* There is no TLS with a reducer, for this reason: a line in the log, since the engine goes on trying. */
void engine_tls_failed(struct engine_tls *t, unsigned reducer, const char *reason, uint64_t now_ms);

/* When engine_tls_failed was called more often than it could log: says so. */
void engine_tls_tell(struct engine_tls *t, uint64_t now_ms);

#endif
