/* SPDX-License-Identifier: Apache-2.0 */
/* The control and health services without their transport: calls come in as bytes, with what is known of who calls;
 * messages and a status go out when they are there. A driver (control_uv.c) does with each call what service_next says,
 * again whenever it could send the last message or wake() was called. Nothing here waits for a reader: a call holds no
 * message but the one that it was just given, and events that a slow reader has not taken in time are gone for it.
 *
 * The happy path of a call is: service_begin -> (WAIT, SEND)... -> END -> service_call_free. Failure modes: no right to
 * it, a request that is none, too many calls at once: END with a code and a sentence. One thread owns it. */
#ifndef RS_SERVER_CONTROL_SERVICE_H
#define RS_SERVER_CONTROL_SERVICE_H

#include "proto/rpc/rpc.h"
#include "server/jobs/events.h"
#include "server/jobs/status.h"

enum service_method {
	SERVICE_STATUS,
	SERVICE_DRAIN,
	SERVICE_RELOAD,
	SERVICE_EVENTS,
	SERVICE_CHECK, /* of the health service */
	SERVICE_WATCH,
	SERVICE_METHODS,
};

enum {
	SERVICE_CALLS_MAX = 64,     /* under way at the same time, of those who have the right to them */
	SERVICE_WATCHES_MAX = 64,   /* and of those who watch health, which needs none: the oldest makes room */
	SERVICE_REQUEST_MAX = 4096, /* bytes */
	SERVICE_RESULT = 256,       /* bytes of what a reload tells */
};

enum service_right { RIGHT_NONE, RIGHT_READ, RIGHT_ADMIN };

/* Paths as gRPC writes them, and what a caller needs; indexed by enum service_method. */
struct service_method_info {
	const char *path, *name;
	enum service_right right;
};
extern const struct service_method_info service_methods[SERVICE_METHODS];

/* Secrets of those who may call; len 0: there is none, and processes on this machine have the right. Who may steer may
 * also read. */
struct service_token {
	const uint8_t *bytes;
	uint32_t len;
};

/* Who calls. Borrowed for service_begin. */
struct service_peer {
	const char *address;       /* "10.0.0.3:4711" */
	const char *authorization; /* the header; NULL: there was none */
};

struct service_drained {
	uint32_t jobs, left_ms;
	bool already;
};

struct service_options {
	const struct events *events;
	/* Does what SIGTERM does; timeout_ms 0: as configured. */
	void (*drain)(void *ctx, uint32_t timeout_ms, struct service_drained *ret);
	/* Does what SIGHUP does. RS_OK: *result says what came of it. */
	int (*reload)(void *ctx, char result[SERVICE_RESULT], struct rs_err *e);
	/* Asks for a status; service_status follows, not from within this call. */
	void (*collect)(void *ctx);
	/* Somebody has the right to what he called, which needs one. */
	void (*granted)(void *ctx, const struct service_peer *peer);
	/* Somebody has no right to what he called; for the log. */
	void (*denied)(void *ctx, const struct service_peer *peer, const char *method, const char *why);
	void *ctx;
	/* Calls that were told to WAIT may have something now. May be called from any of the functions below. */
	void (*wake)(void *wake_ctx);
	void *wake_ctx;
};

struct service;
struct service_call;

enum service_step {
	SERVICE_WAIT, /* nothing yet */
	SERVICE_SEND, /* a message */
	SERVICE_END,  /* over */
};

struct service_out {
	uint8_t *message; /* SEND: the caller frees it */
	size_t len;
	enum rpc_code code; /* END */
	const char *why;    /* END: a sentence, until service_call_free; "" with RPC_CODE_OK */
};

/* NULL: no memory. */
struct service *service_new(const struct service_options *opt);
/* All calls have been freed. */
void service_free(struct service *s);
/* Copied. */
void service_tokens(struct service *s, struct service_token read, struct service_token admin);

/* A call begins. NULL: no memory. */
struct service_call *service_begin(struct service *s, enum service_method method, const struct service_peer *peer,
				   const void *request, size_t len);
enum service_step service_next(struct service_call *c, struct service_out *ret);
/* True when the service has ended the call itself: *ret says so as with SERVICE_END, and what was to be sent is not to
 * be waited for. */
bool service_cut_off(const struct service_call *c, struct service_out *ret);
void service_call_free(struct service_call *c);

/* What collect() asked for. The service owns st; NULL: there was no memory for it. */
void service_status(struct service *s, struct status *st);
/* Something has happened: there are new events. */
void service_happened(struct service *s);
/* No new jobs are taken: health says so. */
void service_draining(struct service *s);
/* The reducer ends: calls end as soon as they have sent what there is. */
void service_stop(struct service *s);

/* Is the numeric address one of this machine's own, as "127.0.0.1:80" and "[::1]:80" are? */
bool service_is_local(const char *address);

#endif
