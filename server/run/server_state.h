/* SPDX-License-Identifier: Apache-2.0 */
/* The struct of the server, for its files. README.md has the order of the files. */
#ifndef RS_SERVER_RUN_SERVER_STATE_H
#define RS_SERVER_RUN_SERVER_STATE_H

#include "common/host/http/port.h"
#include "common/host/service/control_uv.h"
#include "proto/rpc/unauthenticated.h"
#include "server/join/admission.h"
#include "server/join/handshake_grpc.h"
#include "server/join/handshake_tcp.h"
#include "server/join/listener.h"
#include "server/run/arena.h"
#include "server/run/journal.h"
#include "server/run/lane_uv.h"
#include "server/run/server_uv.h"

/* Log events with a limit of lines per second. */
enum limited { LIMITED_REFUSED, LIMITED_DESCRIPTORS, LIMITED_JOBS, LIMITED_LATE, LIMITED_DENIED, LIMITED_NR };

/* One listening socket. */
struct listening {
	uv_poll_t poll;
	int fd;
};

/* The server. Invariant: `sessions` connections are in lanes, and server_handshakes_count() are in the handshake. The
 * thread of the accept loop owns it. */
struct server {
	const struct rs_config *cfg;
	const char *config_file;
	struct rs_config as_read; /* the scalars of the file, without the command line */
	struct rs_log *log;
	struct rs_notify *notify; /* NULL: none */
	struct journal journal;   /* writes to `log` */
	uv_loop_t loop;
	struct wakeups wakeups;
	struct mailbox in; /* from the lanes */
	struct registry *registry;
	struct admission admission;
	struct tcp_handshakes *handshakes;
	struct rs_pool pool; /* touches arenas */
	struct wakeup pool_ended;
	struct arenas *arenas;
	const struct rs_kernels *kernels;
	uint64_t started_ms;
	struct control_uv *control; /* NULL: there is neither a gRPC nor an HTTP port */
	struct http_port *http;     /* NULL: there is no HTTP port */
	const struct rpc_api *rpc;  /* NULL: there is no gRPC port, and the next two fields are NULL */
	struct rpc_server *rpc_server;
	struct grpc_handshakes *streams;
	struct unauth *unauth;          /* NULL: the gRPC port is not open */
	uv_timer_t scan;                /* calls unauth_scan; only with `unauth` */
	char grpc_name[RS_ADDRESS_MAX]; /* its address */
	struct status *collecting; /* the status to which reports_due lanes still have to add their reports; owned */
	unsigned reports_due;
	struct trace *traces; /* those that lanes have given back, while traces_due lanes still record; owned */
	unsigned traces_due;
	uint32_t traces_done; /* as trace.done, of all of them */
	struct rs_log_limit limits[LIMITED_NR];
	struct lane_thread **lanes;
	unsigned lanes_n;
	struct listening listening[LISTENER_MAX];
	int listening_n;
	uv_signal_t signals[3]; /* SIGTERM, SIGINT, SIGHUP */
	uv_timer_t tick;        /* of the registry; checks the deadline of a drain as well */
	unsigned max_connections;
	uint64_t refused[STATUS_REFUSALS];
	unsigned sessions; /* connections in lanes */
	int spare_fd;      /* closed for a moment to refuse a connection if descriptors run out */
	bool draining;
	bool signalled;       /* by SIGTERM or SIGINT */
	bool aborted;         /* the drain timeout has passed */
	uint64_t deadline_ms; /* of the drain */
	uint32_t drain_ms;    /* time limit of the drain */
};

#endif
