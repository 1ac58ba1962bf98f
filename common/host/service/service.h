/* SPDX-License-Identifier: Apache-2.0 */
/* The control and health services of a reducer or an agent, without their transport. A
 * call comes in as bytes, with the address and token of its client; messages and a status
 * go out. A driver (control_uv.c) follows the steps of service_next for each call, again
 * when the last message was sent or wake() was called. Nothing here waits for a client: a
 * call holds at most one message, and a client that is too slow misses events.
 *
 * The happy path of a call is: service_begin -> (WAIT, SEND)... -> END ->
 * service_call_free. Failure modes: the client lacks the right, the request is malformed,
 * or there are too many calls: END with a code and a sentence. One thread owns the
 * services. */
#ifndef RS_COMMON_HOST_SERVICE_SERVICE_H
#define RS_COMMON_HOST_SERVICE_SERVICE_H

#include "common/host/service/events.h"
#include "common/host/service/service_pack.h"
#include "common/host/service/status_reply.h"
#include "proto/rpc/rpc.h"
#include "proto/trace.h"

enum service_method {
	SERVICE_STATUS,
	SERVICE_DRAIN,
	SERVICE_RELOAD,
	SERVICE_EVENTS,
	SERVICE_TRACE,
	SERVICE_CHECK, /* of the health service */
	SERVICE_WATCH,
	SERVICE_METHODS,
};

enum {
	SERVICE_CALLS_MAX = 64, /* calls at the same time of methods that require a right */
	SERVICE_WATCHES_MAX =
	    64, /* health watches at the same time, which require none: a new one replaces the oldest */
	SERVICE_REQUEST_MAX = 4096, /* bytes */
	SERVICE_RESULT = 256,       /* bytes of the result of a reload */
};

enum service_right { RIGHT_NONE, RIGHT_READ, RIGHT_ADMIN };

/* The path and name of a method, and the right that it requires. */
struct service_method_info {
	const char *path, *name;
	enum service_right right;
};
/* Indexed by enum service_method. */
extern const struct service_method_info service_methods[SERVICE_METHODS];

/* A token. The admin token gives the right to read as well. len 0: there is no token;
 * then processes on this machine may read, certified clients too, and processes of this
 * user or of root may administer. */
struct service_token {
	const uint8_t *bytes;
	uint32_t len;
};

/* The client of a call. Borrowed for service_begin. */
struct service_peer {
	const char *address;       /* "10.0.0.3:4711" */
	const char *authorization; /* the header; NULL: none */
	bool certified;            /* it has shown a certificate that gives the right to read if there is no token */
};

/* The answer of a drain. */
struct service_drained {
	uint32_t jobs, left_ms;
	bool already;
};

/* What the services need from the rest of the process. */
struct service_options {
	const char *process; /* "reducer" or "agent", for messages */
	const char *section; /* of the configuration with the keys of the tokens, for messages */
	const char *health;  /* a service whose health is that of the process; NULL: none */
	const struct events *events;
	const struct events *jobs; /* of them the last ones with the name EVENT_JOB */
	/* Drains as SIGTERM does; timeout_ms 0: as configured. because: the caller's
	 * reason, which may have any bytes; NULL: none. */
	void (*drain)(void *ctx, uint32_t timeout_ms, const char *because, struct service_drained *ret);
	/* Reloads as SIGHUP does. RS_OK: `result` is a sentence. */
	int (*reload)(void *ctx, char result[SERVICE_RESULT], struct rs_err *e);
	/* Requests a status. service_status() follows, not from within this call. */
	void (*collect)(void *ctx);
	/* Begins a trace of the ranges of a request. service_traced() follows, not from
	 * within this call. Only one trace runs at a time. Errors: RS_ENOMEM; then
	 * service_traced() does not follow. */
	int (*trace)(void *ctx, const struct trace_request *r, struct rs_err *e);
	/* Ends the trace early, because its client has gone. service_traced() still
	 * follows. */
	void (*trace_end)(void *ctx);
	/* Returns the clock of traces, in microseconds. */
	uint64_t (*clock_us)(void *ctx);
	bool worker; /* traces are those of a worker */
	/* Returns whether a client on this machine is a process of this user or of
	 * root. */
	bool (*own)(void *ctx, const struct service_peer *peer);
	/* A client has called a method that requires a right, and has the right. */
	void (*granted)(void *ctx, const struct service_peer *peer);
	/* Logs that a client lacks the right to the method that it called. */
	void (*denied)(void *ctx, const struct service_peer *peer, const char *method, const char *why);
	void *ctx;
	/* Calls with the step WAIT may continue. Any of the functions below may call
	 * it. */
	void (*wake)(void *wake_ctx);
	void *wake_ctx;
};

struct service;
struct service_call;

enum service_step {
	SERVICE_WAIT, /* nothing to do until wake() */
	SERVICE_SEND, /* send a message */
	SERVICE_END,  /* end the call */
};

/* The content of a step. */
struct service_out {
	uint8_t *message; /* SEND: the caller frees it */
	size_t len;
	enum rpc_code code; /* END */
	const char *why;    /* END: a sentence, valid until service_call_free; "" with RPC_CODE_OK */
};

/* Creates the services. NULL: no memory. */
struct service *service_new(const struct service_options *opt);
/* Frees the services, after all calls. */
void service_free(struct service *s);
/* Sets the tokens, which are copied. */
void service_tokens(struct service *s, struct service_token read, struct service_token admin);

/* Starts a call. NULL: no memory. */
struct service_call *service_begin(struct service *s, enum service_method method, const struct service_peer *peer,
				   const void *request, size_t len);
/* Returns the next step of a call. */
enum service_step service_next(struct service_call *c, struct service_out *ret);
/* Returns true if the service has ended the call itself, with *ret as of SERVICE_END. The
 * driver then does not wait until the last message is sent. */
bool service_cut_off(const struct service_call *c, struct service_out *ret);
void service_call_free(struct service_call *c);

/* Delivers the status that collect() requested; it is borrowed for the call. NULL: no
 * memory. */
void service_status(struct service *s, struct status_reply *status);
/* Delivers the traces that trace() began; takes them over. NULL: no memory for any. */
void service_traced(struct service *s, struct trace *first);
/* Requests a status for the history, which calls of Status can ask for. To be called
 * every HISTORY_MS. */
void service_sample(struct service *s);
/* Says that there are new events. */
void service_event_added(struct service *s);
/* Says that no new jobs are taken, which the health service then reports. */
void service_draining(struct service *s);
/* Ends all calls when they have sent their messages, because the process ends. */
void service_stop(struct service *s);

/* Returns true for a client on this machine: a loopback address, such as "127.0.0.1:80"
 * or "[::1]:80", or "unix:". */
bool service_is_local(const char *address);

#endif
