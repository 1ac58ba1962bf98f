/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP port of a reducer or an agent: metrics, status, a status page and health
 * checks. It only reads. A thread of its own parses requests and writes answers; the loop
 * of the process gets a request as a call of the control service. So the rights are those
 * of that service, and no other thread waits for a client. */
#ifndef RS_COMMON_HOST_HTTP_PORT_H
#define RS_COMMON_HOST_HTTP_PORT_H

#include "common/host/service/control_uv.h"
#include "common/tls.h"

struct http_port;

enum {
	HTTP_CONNECTIONS_MAX = 64, /* at the same time; further ones wait or are closed */
	HTTP_IDLE_S = 15,          /* a connection that is silent for so long is closed */
};

/* Borrowed for http_port_start, except `control`, which must outlive the port. */
struct http_options {
	const char *address; /* "host:port"; port 0: any */
	const char *process; /* "reducer" or "agent" */
	struct control_uv *control;
	enum tls_mode tls; /* TLS_MUTUAL: who has no certificate gets health checks only */
	struct tls_files files;
};

/* Opens the port. Errors: RS_EUNSUPPORTED (this build has no HTTP, or no TLS for it),
 * RS_ECONFIG, RS_EIO, RS_ENOMEM. Loop's thread. */
int http_port_start(struct http_port **ret, const struct http_options *opt, struct rs_err *e);
/* Reads the certificates again, if the port uses TLS, and closes its connections. After
 * an error the port goes on with those it had. p NULL: nothing. Errors: RS_ECONFIG,
 * RS_EIO, RS_ENOMEM. Loop's thread. */
int http_port_reload(struct http_port *p, const struct tls_files *files, struct rs_err *e);
/* Returns its address, with the port that was chosen. */
const char *http_port_name(const struct http_port *p);
/* Answers pending requests with 503, closes the port and frees it. NULL: nothing. Loop's
 * thread, before control_uv_stop. */
void http_port_stop(struct http_port *p);

#endif
