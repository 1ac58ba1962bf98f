/* SPDX-License-Identifier: Apache-2.0 */
/* The struct of the server, for its files: the accept loop (server_uv.c), drain, signals and reload
 * (server_lifecycle_uv.c), the control service (server_control_uv.c) and workers over gRPC (server_streams_uv.c). */
#ifndef RS_SERVER_RUN_SERVER_PRIV_H
#define RS_SERVER_RUN_SERVER_PRIV_H

#include "common/auth.h"
#include "server/control/control_uv.h"
#include "server/join/admission.h"
#include "server/join/handshake_grpc.h"
#include "server/join/handshake_tcp.h"
#include "server/join/listener.h"
#include "server/join/unauthenticated.h"
#include "server/run/arena.h"
#include "server/run/journal.h"
#include "server/run/lane_uv.h"
#include "server/run/server_uv.h"

/* Log events with a limit of lines per second. */
enum limited { LIMITED_REFUSED, LIMITED_DESCRIPTORS, LIMITED_JOBS, LIMITED_LATE, LIMITED_DENIED, LIMITED_NR };

/* The tokens of the control service. len 0: none. */
struct control_tokens {
	struct auth_secret read, admin;
};

/* One listening socket. */
struct listening {
	uv_poll_t poll;
	int fd;
};

/* The server. Invariant: `sessions` connections are in lanes, and server_handshakes_count() are in the handshake. */
struct server {
	const struct rs_config *cfg;
	const char *config_file;
	struct rs_config as_read; /* the scalars of the file, without the command line */
	struct rs_log *log;
	struct journal journal; /* writes to `log` */
	uv_loop_t loop;
	struct wakeups wakeups;
	struct mailbox in; /* from the lanes */
	struct registry *registry;
	struct admission admission;
	struct tcp_handshakes *handshakes;
	struct arenas *arenas;
	const struct rs_kernels *kernels;
	uint64_t started_ms;
	const struct rpc_api *rpc; /* NULL: there is no gRPC port, and the next three fields are NULL */
	struct rpc_server *rpc_server;
	struct control_uv *control;
	struct grpc_handshakes *streams;
	struct unauth *unauth;          /* NULL: the gRPC port is not open */
	uv_timer_t scan;                /* calls unauth_scan; only with `unauth` */
	char grpc_name[RS_ADDRESS_MAX]; /* its address */
	struct status *collecting; /* the status to which reports_due lanes still have to add their reports; owned */
	unsigned reports_due;
	struct rs_log_limit limits[LIMITED_NR];
	struct lane_thread **lanes;
	unsigned lanes_n;
	struct listening listening[LISTENER_MAX];
	int listening_n;
	uv_signal_t signals[3]; /* SIGTERM, SIGINT, SIGHUP */
	uv_timer_t tick;        /* of the registry; checks the deadline of a drain as well */
	unsigned max_connections;
	unsigned sessions; /* connections in lanes */
	int spare_fd;      /* closed for a moment to refuse a connection if descriptors run out */
	bool draining;
	bool signalled;       /* by SIGTERM or SIGINT */
	bool aborted;         /* the drain timeout has passed */
	uint64_t deadline_ms; /* of the drain */
	uint32_t drain_ms;    /* time limit of the drain */
};

/* server_uv.c: closes every handle, so that the loop ends. Stops the lanes first, because they post to it. */
void server_stop(struct server *s);
/* Returns the number of connections in the handshake. */
unsigned server_handshakes_count(const struct server *s);
/* Limits the descriptors of the process. gRPC accepts every connection, so this limits how many its port can have. It
 * leaves as many for gRPC as for workers over TCP. */
void server_bound_descriptors(struct server *s);
enum { REFUSED_MAX = 64 }; /* most connections beyond the limit that wait until their peers have read the reason */
/* Admits a worker with the address `peer`. RS_OK: it counts as a session; the caller attaches it to the lane of *ret
 * and then calls registry_admitted, or server_unadmit if the lane cannot take it. Else *refused has the reason. */
int server_admit(struct server *s, const struct handshake_result *who, const char *peer, const char *transport,
		 struct registry_admit *ret, struct control_refused *refused);
/* Undoes server_admit, because the lane has no memory for the connection. Fills *refused and returns its code. */
int server_unadmit(struct server *s, const struct registry_admit *admit, const struct rs_err *why,
		   struct control_refused *refused);
/* Logs that a connection from `peer` was refused. */
void server_log_refused(struct server *s, const char *peer, const char *transport, const struct rs_err *why);

/* server_lifecycle_uv.c */
/* Drains: refuses new jobs, stops the server when there are none, which the next tick checks, and ends jobs after
 * timeout_ms. A second call sets the time limit again. `by`: the origin, for the log. */
void server_drain(struct server *s, const char *by, uint32_t timeout_ms);
/* Handles SIGTERM and SIGINT: the first one drains, and stops at once if there is no job; the second one exits. */
void server_signalled(struct server *s, int signum);
/* Takes over the keys of the file that a running reducer can change. `result` and the log say which those are, and
 * whether other changes need a restart. Errors: there is no file, or it is invalid; then nothing changes. */
int server_reload(struct server *s, char *result, size_t size, struct rs_err *e);

/* server_control_uv.c; without a gRPC port all functions do nothing. */
/* Opens the gRPC port. Errors: RS_EUNSUPPORTED (no module), RS_ECONFIG, RS_EIO, RS_ENOMEM; server_stop cleans up after
 * them. */
int server_control_start(struct server *s, struct rs_err *e);
/* Takes the report of a lane. */
void server_control_reported(struct server *s, struct lane_thread *lane);
/* Reads the files with the tokens. The caller passes them to server_control_take, or clears them. Errors: RS_EIO,
 * RS_ECONFIG. */
int server_control_read(struct server *s, struct control_tokens *ret, struct rs_err *e);
/* Sets the tokens, and clears *t. */
void server_control_take(struct server *s, struct control_tokens *t);
/* Reads the certificates of a configuration. The caller frees them with tls_texts_free. Errors: RS_ECONFIG, RS_ENOMEM.
 */
int server_control_texts(const struct server *s, const struct rs_config *cfg, struct tls_texts *ret, struct rs_err *e);
/* Sets the certificates of the port. Errors: RS_ENOMEM; then the old ones stay. */
int server_control_certificates(struct server *s, const struct tls_texts *texts, struct rs_err *e);
/* Ends all calls of the control service, before the lanes stop. */
void server_control_stop(struct server *s);
/* Closes the port, after the lanes have stopped. */
void server_control_close(struct server *s);
void server_control_free(struct server *s);

/* server_streams_uv.c: creates s->streams. Errors: RS_ENOMEM, RS_EIO. */
int server_streams_init(struct server *s, struct rs_err *e);
/* Limits unauthenticated connections of the port, which is open. Errors: those of unauth_new. */
int server_streams_guard(struct server *s, struct rs_err *e);
/* Removes the limit of the connection from this address. */
void server_streams_trust(struct server *s, const char *peer);

#endif
