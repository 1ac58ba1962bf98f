/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP port with libmicrohttpd, which has one thread.
 *
 * The happy path: its thread has read a request -> suspends the connection and puts the
 * request into `arrived` -> the loop makes a call of the control service of it -> the
 * result is complete -> the connection is resumed, and the thread makes the answer.
 * Failure modes: more connections than HTTP_CONNECTIONS_MAX: they wait in the kernel; a
 * slow or silent client: closed after HTTP_IDLE_S; the port stops or reads new
 * certificates: pending requests get 503.
 *
 * libmicrohttpd's TLS asks a client for its certificate and goes on without one;
 * is_certified() checks it for each request that needs a right. So health checks work
 * without a certificate. */
#include "common/host/http/port.h"

#include "common/address.h"
#include "common/host/http/answer.h"
#include "proto/reduction.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REQUEST_BYTES = 16 << 10 /* memory for the header of a request */ };

/* One request. The port's thread owns it, except from `arrived` until it is resumed: then
 * the loop does. */
struct http_request {
	struct http_request *next; /* in `arrived` or `asked` */
	struct http_port *port;
	struct MHD_Connection *connection;
	const struct http_path *path;
	const char *authorization; /* in the connection's memory */
	char peer[RS_ENDPOINT_TEXT];
	bool certified;
	struct service_call *call;
	bool complete;
	struct http_result result;
};

/* Invariant: the connections of all requests in `arrived` and `asked` are suspended, and
 * no others. While `stopped` none is added. */
struct http_port {
	struct MHD_Daemon *daemon;
	struct control_uv *control;
	char name[300], stopped_why[48];
	enum tls_mode tls;
	int listener;               /* the daemon's, which closes it */
	struct http_request *asked; /* the loop's */

	uv_mutex_t mutex; /* protects the following fields */
	struct http_request *arrived;
	bool stopped;
};

static void set_peer(struct http_request *r)
{
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct rs_endpoint end;

	if (info && rs_endpoint_of_sockaddr(&end, info->client_addr))
		rs_endpoint_print(&end, r->peer);
}

static enum MHD_Result send_answer(struct MHD_Connection *connection, struct http_answer *a)
{
	static const char *const headers[][2] = {
	    {"X-Content-Type-Options", "nosniff"},
	    {"Cache-Control", "no-store"},
	    {"Referrer-Policy", "no-referrer"},
	    {"Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
					"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
					"frame-ancestors 'none'"},
	};
	struct MHD_Response *response = MHD_create_response_from_buffer(
	    a->len, a->body, a->constant ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
	enum MHD_Result rc;

	if (!response)
		return MHD_NO;
	for (unsigned i = 0; i < sizeof headers / sizeof headers[0]; i++)
		MHD_add_response_header(response, headers[i][0], headers[i][1]);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, a->type);
	if (a->status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (a->status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	rc = MHD_queue_response(connection, a->status, response);
	MHD_destroy_response(response);
	return rc;
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
	struct http_answer a;

	http_answer_text(&a, status, text);
	return send_answer(connection, &a);
}

/* Gives a request to the loop. */
static enum MHD_Result ask(struct http_request *r)
{
	struct http_port *p = r->port;
	bool stopped;

	set_peer(r);
	uv_mutex_lock(&p->mutex);
	stopped = p->stopped;
	if (!stopped) {
		r->next = p->arrived;
		p->arrived = r;
		MHD_suspend_connection(r->connection);
	}
	uv_mutex_unlock(&p->mutex);
	if (stopped)
		return send_text(r->connection, MHD_HTTP_SERVICE_UNAVAILABLE, p->stopped_why);
	control_uv_wake(p->control);
	return MHD_YES;
}

static const char *header(struct http_request *r, const char *name)
{
	return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

/* Returns whether the client has shown a certificate for clients that the authority has
 * signed and that is valid now.
 */
static bool is_certified(struct http_request *r)
{
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID, .data = (void *)GNUTLS_KP_TLS_WWW_CLIENT};
	unsigned status;

	return info && info->tls_session &&
	       gnutls_certificate_verify_peers(info->tls_session, &purpose, 1, &status) == GNUTLS_E_SUCCESS &&
	       status == 0;
}

/* Handles a complete request, on the port's thread. Sets *ret_now if it can be answered
 * at once. Otherwise the control service has it, or an error was sent; then the request
 * may belong to another thread. */
static enum MHD_Result begin(struct http_request *r, const char *url, const char *method, bool *ret_now)
{
	const char *host = header(r, MHD_HTTP_HEADER_HOST);
	bool needs_right;

	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return send_text(r->connection, MHD_HTTP_METHOD_NOT_ALLOWED, "expected GET or HEAD");
	r->path = http_path_find(url);
	if (!r->path)
		return send_text(r->connection, MHD_HTTP_NOT_FOUND,
				 "expected /, /metrics, /status, /history, /events, /jobs, /healthz or /readyz");
	r->authorization = header(r, MHD_HTTP_HEADER_AUTHORIZATION);
	needs_right = r->path->method != SERVICE_METHODS && service_methods[r->path->method].right != RIGHT_NONE;
	if (r->port->tls == TLS_MUTUAL && needs_right) {
		r->certified = is_certified(r);
		if (!r->certified)
			return send_text(r->connection, MHD_HTTP_FORBIDDEN,
					 "expected a client's certificate that security.authority has signed and that "
					 "has not expired");
	}
	/* without a token the right comes from the client's address, which a page of
	 * another site has too; with TLS that page would need a certificate of this
	 * port's name */
	if (r->port->tls == TLS_OFF && !r->authorization && host && !http_host_is_plain(host) && needs_right)
		return send_text(r->connection, MHD_HTTP_FORBIDDEN,
				 "the request came with the name of a host: send a token, or use the address");
	*ret_now = r->path->method == SERVICE_METHODS;
	return *ret_now ? MHD_YES : ask(r);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
				  const char *version, const char *data, size_t *data_n, void **context)
{
	struct http_request *r = *context;
	struct http_answer a;
	enum MHD_Result rc;

	(void)version;
	(void)data;
	if (!r) { /* the header of the request is there */
		r = calloc(1, sizeof *r);
		if (!r)
			return MHD_NO;
		r->port = cls;
		r->connection = connection;
		*context = r;
		return MHD_YES;
	}
	if (*data_n) { /* a body, which no request needs */
		*data_n = 0;
		return MHD_YES;
	}
	if (!r->complete) {
		bool now = false;

		rc = begin(r, url, method, &now);
		if (!now)
			return rc;
	}
	http_answer_make(&a, r->path, header(r, MHD_HTTP_HEADER_ACCEPT), &r->result);
	return send_answer(connection, &a);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **context,
			 enum MHD_RequestTerminationCode why)
{
	struct http_request *r = *context;

	(void)cls;
	(void)connection;
	(void)why;
	if (r)
		free(r->result.messages);
	free(r);
	*context = NULL;
}

static void fail_result(struct http_result *r, enum rpc_code code, const char *why)
{
	r->code = code;
	snprintf(r->why, sizeof r->why, "%s", why);
}

/* Continues the call of a request. Returns true when its result is complete. */
static bool advance_call(struct http_request *r)
{
	struct service_out out;

	for (;;) {
		switch (service_next(r->call, &out)) {
		case SERVICE_WAIT:
			return false;
		case SERVICE_SEND:
			if (!http_result_add(&r->result, out.message, out.len)) {
				free(out.message);
				fail_result(&r->result, RPC_CODE_RESOURCE_EXHAUSTED, "out of memory for the answer");
				return true;
			}
			free(out.message);
			break;
		case SERVICE_END:
			fail_result(&r->result, out.code, out.why);
			return true;
		}
	}
}

/* Starts the call of a request. Returns false without memory. */
static bool start_call(struct http_request *r)
{
	Reduction__V1__EventsRequest events = REDUCTION__V1__EVENTS_REQUEST__INIT;
	Reduction__V1__StatusRequest status = REDUCTION__V1__STATUS_REQUEST__INIT;
	struct service_peer peer = {.address = r->peer, .authorization = r->authorization, .certified = r->certified};
	uint8_t request[16];
	size_t len = 0;

	if (r->path->past_events) {
		events.past_only = true;
		events.ended_jobs = strcmp(r->path->path, "/jobs") == 0;
		len = reduction__v1__events_request__pack(&events, request);
	} else if (strcmp(r->path->path, "/history") == 0) {
		status.history = status.without_ranks = true;
		len = reduction__v1__status_request__pack(&status, request);
	}
	r->call = service_begin(control_uv_service(r->port->control), r->path->method, &peer, request, len);
	return r->call != NULL;
}

/* Gives a request back to the port's thread, which may free it at once. */
static void resume(struct http_request *r)
{
	service_call_free(r->call);
	r->complete = true;
	MHD_resume_connection(r->connection);
}

static void take_arrived(struct http_port *p)
{
	struct http_request *arrived, *next;

	uv_mutex_lock(&p->mutex);
	arrived = p->arrived;
	p->arrived = NULL;
	uv_mutex_unlock(&p->mutex);
	for (struct http_request *r = arrived; r; r = next) {
		next = r->next;
		if (!start_call(r)) {
			fail_result(&r->result, RPC_CODE_RESOURCE_EXHAUSTED, "out of memory for the request");
			resume(r);
			continue;
		}
		r->next = p->asked;
		p->asked = r;
	}
}

static void advance(void *user)
{
	struct http_port *p = user;
	struct http_request **at = &p->asked;

	take_arrived(p);
	while (*at) {
		struct http_request *r = *at;

		if (!advance_call(r)) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		resume(r);
	}
}

/* Reads the files, after the checks that all ports with TLS make. */
static int read_tls(enum tls_mode mode, const struct tls_files *files, struct tls_texts *ret, struct rs_err *e)
{
	struct tls_files wanted = *files;
	SSL_CTX *ctx;
	int rc = MHD_is_feature_supported(MHD_FEATURE_TLS) == MHD_YES
		     ? tls_reducer(&ctx, mode, files, e)
		     : rs_fail(e, RS_EUNSUPPORTED, "the libmicrohttpd of this machine has no TLS");

	if (rc)
		return rc;
	SSL_CTX_free(ctx);
	if (mode != TLS_MUTUAL)
		wanted.authority = "";
	return tls_texts_load(ret, &wanted, e);
}

/* Opens the listening socket. */
static int listen_at(int *ret, const char *address, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
	struct rs_host_port at;
	int rc = rs_host_port_split(&at, address, true, e), fd, one = 1;

	if (rc)
		return rc;
	rc = getaddrinfo(at.host[0] && strcmp(at.host, "*") != 0 ? at.host : NULL, at.port, &hints, &list);
	if (rc)
		return rs_fail(e, RS_ECONFIG, "cannot listen on %s: %s", address, gai_strerror(rc));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen) || listen(fd, HTTP_CONNECTIONS_MAX))
		rc = rs_fail_sys(e, RS_EIO, errno, "cannot listen on %s", address);
	freeaddrinfo(list);
	if (rc && fd >= 0)
		close(fd);
	*ret = fd;
	return rc;
}

static void set_name(struct http_port *p, int fd, const char *address)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof sa;
	struct rs_endpoint end;
	const char *colon = strrchr(address, ':');
	unsigned port = 0;

	if (!getsockname(fd, (struct sockaddr *)&sa, &len) && rs_endpoint_of_sockaddr(&end, (struct sockaddr *)&sa))
		port = rs_endpoint_port(&end);
	snprintf(p->name, sizeof p->name, "%.*s:%u", (int)(colon - address), address, port);
}

/* Starts libmicrohttpd on p->listener, which is closed after an error. Errors:
 * RS_ECONFIG, RS_EIO, RS_EUNSUPPORTED, RS_ENOMEM. */
static int start_daemon(struct http_port *p, const struct tls_files *files, struct MHD_Daemon **ret, struct rs_err *e)
{
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
	struct tls_texts texts = {.certificate = NULL};
	struct MHD_OptionItem tls[] = {
	    {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3"},
	    {MHD_OPTION_HTTPS_MEM_CERT, 0, NULL},
	    {MHD_OPTION_HTTPS_MEM_KEY, 0, NULL},
	    {MHD_OPTION_END, 0, NULL},
	    {MHD_OPTION_END, 0, NULL},
	};
	int rc = p->tls == TLS_OFF ? RS_OK : read_tls(p->tls, files, &texts, e);

	if (rc) {
		close(p->listener);
		return rc;
	}
	tls[1].ptr_value = texts.certificate;
	tls[2].ptr_value = texts.key;
	if (p->tls == TLS_MUTUAL)
		tls[3] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0, texts.authority};
	*ret = MHD_start_daemon(flags | (p->tls == TLS_OFF ? 0 : MHD_USE_TLS), 0, NULL, NULL, on_request, p,
				MHD_OPTION_LISTEN_SOCKET, p->listener, MHD_OPTION_CONNECTION_LIMIT,
				(unsigned)HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE_S,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
				on_completed, p, MHD_OPTION_ARRAY, p->tls == TLS_OFF ? &tls[4] : tls, MHD_OPTION_END);
	tls_texts_free(&texts); /* libmicrohttpd has read them */
	/* if it cannot start it closes the socket itself, unless it has no memory for
	 * anything: then the socket is lost, since closing it here might close what
	 * another thread has opened meanwhile */
	return *ret ? RS_OK : rs_fail(e, RS_EIO, "libmicrohttpd cannot serve %s", p->name);
}

int http_port_start(struct http_port **ret, const struct http_options *opt, struct rs_err *e)
{
	struct http_port *p = calloc(1, sizeof *p);
	int rc;

	if (!p || uv_mutex_init(&p->mutex)) {
		free(p);
		return rs_oom(e, 0, "the HTTP port");
	}
	p->control = opt->control;
	p->tls = opt->tls;
	snprintf(p->stopped_why, sizeof p->stopped_why, "this %s has stopped", opt->process);
	rc = listen_at(&p->listener, opt->address, e);
	if (rc)
		goto free_port;
	set_name(p, p->listener, opt->address);
	rc = start_daemon(p, &opt->files, &p->daemon, e);
	if (rc)
		goto free_port;
	control_uv_also(p->control, advance, p);
	*ret = p;
	return RS_OK;

free_port:
	uv_mutex_destroy(&p->mutex);
	free(p);
	return rc;
}

const char *http_port_name(const struct http_port *p)
{
	return p->name;
}

/* Answers all pending requests with 503, and ends a daemon, which closes its listening
 * socket. */
static void stop_daemon(struct http_port *p, struct MHD_Daemon *daemon)
{
	struct http_request *next;

	uv_mutex_lock(&p->mutex);
	p->stopped = true;
	uv_mutex_unlock(&p->mutex);
	take_arrived(p);
	for (struct http_request *r = p->asked; r; r = next) {
		next = r->next;
		fail_result(&r->result, RPC_CODE_UNAVAILABLE, p->stopped_why);
		resume(r);
	}
	p->asked = NULL;
	MHD_stop_daemon(daemon);
}

int http_port_reload(struct http_port *p, const struct tls_files *files, struct rs_err *e)
{
	struct MHD_Daemon *fresh, *old;
	int before, rc;

	if (!p || p->tls == TLS_OFF)
		return RS_OK;
	before = p->listener;
	old = p->daemon;
	p->listener = fcntl(before, F_DUPFD_CLOEXEC, 0);
	rc = p->listener < 0 ? rs_fail_sys(e, RS_EIO, errno, "no descriptor for %s", p->name)
			     : start_daemon(p, files, &fresh, e);
	if (rc) {
		p->listener = before;
		return rc;
	}
	p->daemon = fresh;
	stop_daemon(p, old);
	uv_mutex_lock(&p->mutex);
	p->stopped = false;
	uv_mutex_unlock(&p->mutex);
	return RS_OK;
}

void http_port_stop(struct http_port *p)
{
	if (!p)
		return;
	control_uv_also(p->control, NULL, NULL);
	stop_daemon(p, p->daemon);
	uv_mutex_destroy(&p->mutex);
	free(p);
}
