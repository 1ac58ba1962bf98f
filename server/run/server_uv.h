/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction server: accept loop, handshakes, lanes. */
#ifndef RS_SERVER_RUN_SERVER_UV_H
#define RS_SERVER_RUN_SERVER_UV_H

#include "common/log.h"
#include "config/config.h"

struct server;

struct server_options {
	const struct rs_config *cfg;     /* borrowed until server_close */
	const char *config_file;         /* re-read on SIGHUP; NULL: nothing to re-read */
	const struct rs_config *as_read; /* cfg before the command line changed it; borrowed for server_init */
	struct rs_log *log;              /* its level may change on SIGHUP */
};

/* Binds, starts the lanes and the signal handlers. Errors: RS_ECONFIG (an address that cannot be used, or one that is
 * not loopback without security.insecure), RS_EIO, RS_ENOMEM. */
int server_init(struct server **ret, const struct server_options *opt, struct rs_err *e);

/* Serves until SIGTERM or SIGINT and the drain that follows. */
void server_run(struct server *s);

void server_close(struct server *s);

#endif
