/* SPDX-License-Identifier: Apache-2.0 */
/* The struct of the server, for its files. A file uses only files in the lines below it:
 *
 *   server_uv.c server_control_uv.c, server_trace_uv.c server_lifecycle_uv.c
 *   server_ports_uv.c, server_streams_uv.c server_worker_uv.c server_descriptors_posix.c
 *
 * Of a lane: lane_uv.c; lane_command.c, lane_load_posix.c; lane_tcp.c, lane_grpc.c;
 * lane_conn.c; lane_mail.h, mailbox_uv.c.
 *
 * The server owns the registry, the arenas, the handshakes and the lanes. A connection
 * belongs to the accept loop until the handshake is over, and then to its lane. The
 * memory of a job (an arena) is allocated before its first session is attached, and freed
 * after its last session is closed. The server posts to lanes (attach, start, send,
 * abort, report, stop), and lanes post events to the server; nothing else is shared. When
 * a report or a trace is ready, the lane calls the host.
 *
 * Running -> draining (SIGTERM, or Drain) -> stopped when no job is left. After the drain
 * timeout the jobs are aborted; they have a moment to read ABORT. */
#ifndef RS_SERVER_RUN_SERVER_STATE_H
#define RS_SERVER_RUN_SERVER_STATE_H

#include "common/host/host.h"
#include "server/join/admission.h"
#include "server/join/handshake_grpc.h"
#include "server/join/handshake_tcp.h"
#include "server/join/listener.h"
#include "server/run/arena.h"
#include "server/run/lane_uv.h"
#include "server/run/server_uv.h"

/* Log events with a limit of lines per second. */
enum limited { LIMITED_REFUSED, LIMITED_DESCRIPTORS, LIMITED_JOBS, LIMITED_LATE, LIMITED_NONFINITE, LIMITED_NR };

/* One listening socket. */
struct listening {
	uv_poll_t poll;
	int fd;
};

/* The server. Invariant: `sessions` connections are in lanes, and
 * server_handshakes_count() are in the handshake. The thread of the accept loop owns
 * it. */
struct server {
	const struct rs_config *cfg;
	struct rs_log *log;
	uv_loop_t loop;
	struct host host;
	struct wakeups wakeups;
	struct mailbox in; /* from the lanes */
	struct registry *registry;
	struct admission admission;
	struct tcp_handshakes *handshakes;
	struct rs_pool pool; /* touches arenas */
	struct wakeup pool_ended;
	struct arenas *arenas;
	const struct rs_kernels *kernels;
	struct grpc_handshakes *streams; /* NULL: there is no gRPC port */
	struct rs_log_limit limits[LIMITED_NR];
	const char **ids; /* of the reducers of the configuration; owned */
	struct lane_thread **lanes;
	unsigned lanes_n;
	struct listening listening[LISTENER_MAX];
	int listening_n;
	unsigned max_connections;
	uint64_t refused[STATUS_REFUSALS];
	unsigned sessions; /* connections in lanes */
	int spare_fd;      /* closed for a moment to refuse a connection if descriptors run out */
	bool draining, stopped;
	bool aborted;                  /* the drain timeout has passed */
	uint64_t deadline_ms;          /* of the drain */
	uint32_t drain_ms;             /* time limit of the drain */
	uint64_t drained_ms;           /* when the drain began */
	unsigned drained[STATUS_ENDS]; /* jobs that have ended since */
};

#endif
