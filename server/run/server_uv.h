/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction server: its accept loop, handshakes and lanes. */
#ifndef RS_SERVER_RUN_SERVER_UV_H
#define RS_SERVER_RUN_SERVER_UV_H

#include "common/log.h"
#include "common/notify.h"
#include "config/config.h"

struct server;

/* What a reducer is started with. */
struct server_options {
	const struct rs_config *cfg;     /* borrowed until server_close */
	const char *config_file;         /* read again on SIGHUP; NULL: none */
	const struct rs_config *as_read; /* cfg without the command line; borrowed for server_init */
	struct rs_log *log;              /* its level may change on SIGHUP */
	struct rs_notify *notify;        /* borrowed until server_close; NULL: none */
};

/* Binds the addresses, and starts the lanes and signal handlers. Errors: RS_ECONFIG (an
 * address cannot be used, or is not loopback although there is neither authentication nor
 * server.insecure), RS_EIO, RS_ENOMEM. */
int server_init(struct server **ret, const struct server_options *opt, struct rs_err *e);

/* Serves until SIGTERM or SIGINT and the end of the drain. */
void server_run(struct server *s);

/* Frees the server, after server_run. */
void server_close(struct server *s);

#endif
