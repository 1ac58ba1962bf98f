/* SPDX-License-Identifier: Apache-2.0 */
/* The server's gRPC port: its certificates and the tokens of the control service. */
#ifndef RS_SERVER_RUN_SERVER_PORT_H
#define RS_SERVER_RUN_SERVER_PORT_H

#include "common/auth.h"
#include "config/tls_texts.h"
#include "server/run/server_state.h"

/* The tokens of the control service. len 0: none. */
struct port_tokens {
	struct auth_secret read, admin;
};

/* Opens the port, with s->control and s->streams. Errors: RS_ECONFIG, RS_EIO, RS_ENOMEM. */
int server_port_start(struct server *s, struct rs_err *e);

/* Without a control service the following functions have no effect. */

/* Reads the files with the tokens and sets these. Errors: RS_EIO, RS_ECONFIG. */
int server_port_init_tokens(struct server *s, struct rs_err *e);

/* Reads the files with the tokens. The caller passes them to server_port_set_tokens, or clears them. Errors: RS_EIO,
 * RS_ECONFIG. */
int server_port_read_tokens(struct server *s, struct port_tokens *ret, struct rs_err *e);
/* Sets the tokens, and clears *t. */
void server_port_set_tokens(struct server *s, struct port_tokens *t);
/* Reads the certificates of a configuration. The caller frees them with tls_texts_free. Errors: RS_ECONFIG, RS_ENOMEM.
 */
int server_port_read_tls(const struct server *s, const struct rs_config *cfg, struct tls_texts *ret, struct rs_err *e);
/* Sets the certificates of the port. Errors: RS_ENOMEM; then the old ones stay. */
int server_port_set_tls(struct server *s, const struct tls_texts *texts, struct rs_err *e);

#endif
