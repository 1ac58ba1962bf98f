/* SPDX-License-Identifier: Apache-2.0 */
/* TLS of an engine's connections (security.tls): the files, which are read again for new
 * connections, and for each reducer the session that its next connections resume. Belongs
 * to the engine's thread once it runs. */
#ifndef RS_AGENT_WORKER_ENGINE_TLS_H
#define RS_AGENT_WORKER_ENGINE_TLS_H

#include "common/log.h"
#include "common/stamp.h"
#include "common/tls.h"
#include "config/config.h"

#include <stdbool.h>

enum { ENGINE_TLS_LINES = 3 }; /* log lines about reducers with which TLS fails, per second */

/* The TLS state of one reducer. Invariant: at most one connection is its leader. */
struct engine_tls_peer {
	char name[RS_HOST_MAX]; /* host name that its certificate must match */
	SSL_SESSION *session;   /* NULL: none yet */
	const void *leader;     /* the connection that will get a session while the others wait; NULL: none */
};

enum { ENGINE_TLS_FILES = 3 };

/* The TLS state of an engine. Invariant: if ctx is not NULL, `peers` is not NULL
 * either. */
struct engine_tls {
	const struct rs_config *cfg;
	const struct rs_reducer *reducers; /* [cfg->reducers_n]; borrowed */
	const struct rs_log *log;
	SSL_CTX *ctx;                            /* NULL: security.tls is off */
	struct rs_stamp files[ENGINE_TLS_FILES]; /* as last read */
	struct engine_tls_peer *peers;           /* [cfg->reducers_n]; NULL: off */
	struct rs_log_limit limit;
};

/* Loads the files, and warns if the own certificate ends soon. cfg, reducers and log must
 * stay valid. Errors: those of tls_worker. */
int engine_tls_init(struct engine_tls *t, const struct rs_config *cfg, const struct rs_reducer *reducers,
		    const struct rs_log *log, struct rs_err *e);
/* The address of a reducer has changed: its certificate is for another name. */
void engine_tls_rename(struct engine_tls *t, unsigned reducer);
void engine_tls_close(struct engine_tls *t);

/* Returns whether this connection to a reducer may be made now, or must wait until
 * another one has got a session: a handshake without a session takes the reducer several
 * times as long. A connection that may be made without a session becomes the leader. */
bool engine_tls_may_connect(struct engine_tls *t, unsigned reducer, const void *conn);
/* The connection is not the leader any more: it has a session, will not get one, or is
 * lost. Returns true if other connections have waited. */
bool engine_tls_release(struct engine_tls *t, unsigned reducer, const void *conn);

/* Reads the files again if they have changed. If they are invalid now, the previous
 * contents stay in use and a log line says why. */
void engine_tls_refresh(struct engine_tls *t);

/* Logs that TLS with a reducer failed for this reason; the engine keeps trying. */
void engine_tls_failed(struct engine_tls *t, unsigned reducer, const char *reason, uint64_t now_ms);

/* Logs how many calls of engine_tls_failed were not logged. */
void engine_tls_tell(struct engine_tls *t, uint64_t now_ms);

#endif
