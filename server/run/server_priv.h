/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the server: its loop (server_uv.c), what it is told to do while it runs (server_steer_uv.c), and who
 * tells it and asks over gRPC (server_control_uv.c), or comes to work that way (server_streams_uv.c). */
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

/* Events that are logged within limits. */
enum limited { LIMITED_REFUSED, LIMITED_DESCRIPTORS, LIMITED_JOBS, LIMITED_LATE, LIMITED_DENIED, LIMITED_NR };

/* len 0: there is none. */
struct control_tokens {
	struct auth_secret read, admin;
};

struct listening {
	uv_poll_t poll;
	int fd;
};

struct server {
	const struct rs_config *cfg;
	const char *config_file;
	struct rs_config as_read; /* the file's scalars, without what the command line overrides */
	struct rs_log *log;
	struct journal journal; /* over that log */
	uv_loop_t loop;
	struct wakeups wakeups;
	struct mailbox in; /* from the lanes */
	struct registry *registry;
	struct admission admission;
	struct tcp_handshakes *handshakes;
	struct arenas *arenas;
	const struct rs_kernels *kernels;
	uint64_t started_ms;
	const struct rpc_api *rpc; /* NULL: there is no gRPC port, and neither of .. */
	struct rpc_server *rpc_server;
	struct control_uv *control;
	struct grpc_handshakes *streams;
	struct unauth *unauth;          /* NULL: the port is not open */
	uv_timer_t scan;                /* at them; only beside them */
	char grpc_name[RS_ADDRESS_MAX]; /* where it listens */
	struct status *collecting;      /* to which reports_due lanes have yet to add theirs; owned */
	unsigned reports_due;
	struct rs_log_limit limits[LIMITED_NR];
	struct lane_thread **lanes;
	unsigned lanes_n;
	struct listening listening[LISTENER_MAX];
	int listening_n;
	uv_signal_t signals[3]; /* SIGTERM, SIGINT, SIGHUP */
	uv_timer_t tick;        /* the registry's; during a drain also its deadline */
	unsigned max_connections;
	unsigned sessions; /* connections handed to lanes and not gone */
	int spare_fd;      /* given up for a moment to refuse when descriptors run out */
	bool draining;
	bool signalled;       /* by SIGTERM or SIGINT */
	bool aborted;         /* the drain timeout has passed */
	uint64_t deadline_ms; /* of the drain */
	uint32_t drain_ms;    /* how long it is after it was set */
};

/* server_uv.c: closes every handle, so that the loop ends; the lanes go first, since they post into it. */
void server_stop(struct server *s);
/* Connections that have not been handed to lanes. */
unsigned server_handshakes_count(const struct server *s);
/* gRPC accepts whoever comes: how many connections its port can have, and so what they cost, is bounded by how many
 * descriptors this process may have. Leaves as many for it as for workers. */
void server_bound_descriptors(struct server *s);
enum { REFUSED_MAX = 64 }; /* connections beyond the limit that are told why */
/* May this worker, which came from `peer`, join? RS_OK: it counts as a session, and whoever hands it to lane *ret calls
 * registry_admitted then; else *refused says why not. */
int server_admit(struct server *s, const struct handshake_result *who, const char *peer, const char *transport,
		 struct registry_admit *ret, struct control_refused *refused);
/* A connection from `peer` was turned away. */
void server_log_refused(struct server *s, const char *peer, const char *transport, const struct rs_err *why);

/* server_steer_uv.c */
/* No new jobs, and the end when there are none, which the next tick looks for; after timeout_ms jobs are ended. Told
 * once more, it has that time limit from now on. `by`: who said so, for the log. */
void server_drain(struct server *s, const char *by, uint32_t timeout_ms);
/* SIGTERM and SIGINT: the first drains, and ends at once where there is no job; the second one does not wait. */
void server_signalled(struct server *s, int signum);
/* Takes over from the file what a running reducer can; result says what that was, and whether the rest needs a restart,
 * and so does the log. Errors: there is nothing to read, or it is wrong; then nothing changes. */
int server_reload(struct server *s, char *result, size_t size, struct rs_err *e);

/* server_control_uv.c; all but start do nothing where there is no gRPC port. */
/* Errors: RS_EUNSUPPORTED (no module), RS_ECONFIG, RS_EIO, RS_ENOMEM; server_stop cleans up after them. */
int server_control_start(struct server *s, struct rs_err *e);
/* A lane's report is there. */
void server_control_reported(struct server *s, struct lane_thread *lane);
/* Reads the files with the tokens; the caller hands them to server_control_take, or clears them. Errors: RS_EIO,
 * RS_ECONFIG. */
int server_control_read(struct server *s, struct control_tokens *ret, struct rs_err *e);
/* They are good from now on; cleared. */
void server_control_take(struct server *s, struct control_tokens *t);
/* Reads the certificates that this configuration names, for tls_texts_free; none where no port shows them. Errors:
 * RS_ECONFIG, RS_ENOMEM. */
int server_control_texts(const struct server *s, const struct rs_config *cfg, struct tls_texts *ret, struct rs_err *e);
/* The port shows them from now on. Errors: RS_ENOMEM; then the old ones stay. */
int server_control_certificates(struct server *s, const struct tls_texts *texts, struct rs_err *e);
/* Before the lanes stop: nobody asks or steers any more. */
void server_control_stop(struct server *s);
/* After the lanes have stopped: the port closes. */
void server_control_close(struct server *s);
void server_control_free(struct server *s);

/* server_streams_uv.c: makes s->streams. Errors: RS_ENOMEM, RS_EIO. */
int server_streams_init(struct server *s, struct rs_err *e);
/* The port is open: bounds what strangers send to it from now on. Errors: those of unauth_new. */
int server_streams_guard(struct server *s, struct rs_err *e);
/* Whoever comes from this address is no stranger. */
void server_streams_trust(struct server *s, const char *peer);

#endif
