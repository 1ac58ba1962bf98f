/* SPDX-License-Identifier: Apache-2.0 */
/* A lane with its thread, its libuv loop and its connections. */
#ifndef RS_SERVER_RUN_LANE_UV_H
#define RS_SERVER_RUN_LANE_UV_H

#include "common/log.h"
#include "common/tcp_conn.h"
#include "proto/rpc/rpc.h"
#include "server/jobs/registry.h"
#include "server/run/mailbox.h"

struct lane_thread;

/* Most bytes that this side of a connection allocates: its handle, its commands, a word in libuv's tables. */
enum { LANE_CONNECTION_BYTES = 2304 };

/* What a lane posts to the server's mailbox. Invariant: each connection has its LANE_CLOSED from the start, so that
 * this event needs no memory. */
struct lane_mail {
	struct mail mail;
	struct lane_thread *reported; /* its report is ready to be taken; NULL: it is an event */
	struct lane_event event;
	bool failed; /* LANE_CLOSED: its job failed, for event.why, and there was no memory for a LANE_FAILED */
};

/* Starts the thread; events go to `out`, which must outlive lane_thread_stop. Errors: RS_ENOMEM, RS_EIO. */
int lane_thread_start(struct lane_thread **ret, unsigned index, const struct rs_kernels *kernels, uint32_t detect_ms,
		      const struct rs_log *log, struct mailbox *out, struct rs_err *e);

/* One thread calls these functions; they take effect in the order of its calls. A job whose first connection could be
 * attached can always be aborted: the memory for that is allocated with the connection.
 * attach: moves *tcp to the lane, which sends *welcome with its own detection time. The lane reports LANE_CLOSED,
 * also if it runs out of memory later. Errors: RS_ENOMEM; then *tcp stays with the caller, and no event follows. */
int lane_thread_attach(struct lane_thread *t, struct tcp_conn *tcp, const struct registry_admit *admit,
		       const struct control_welcome *welcome, struct rs_err *e);
/* The same for a stream of the module's server, which has a thread for each lane and must outlive the lanes. */
int lane_thread_attach_stream(struct lane_thread *t, const struct rpc_api *rpc, struct rpc_server *server,
			      struct rpc_stream *stream, const struct registry_admit *admit,
			      const struct control_welcome *welcome, struct rs_err *e);
/* Without memory the job is aborted instead. */
void lane_thread_start_job(struct lane_thread *t, uint64_t job, uint64_t processes);
/* Without memory the frame is not sent: all such frames are repeated, or only inform. */
void lane_thread_send(struct lane_thread *t, uint64_t job, const uint8_t *frame, uint32_t len);
/* Works once for a job, and needs no memory. */
void lane_thread_abort(struct lane_thread *t, uint64_t job, const struct rs_err *why);
/* The job's last connection is gone: frees what lane_thread_abort would have used. */
void lane_thread_forget(struct lane_thread *t, uint64_t job);
/* Asks the lane for a report. The lane posts an event when the report is ready. At most one may be under way. Returns
 * false if there is no memory; then no event comes. */
bool lane_thread_report(struct lane_thread *t);
/* Returns the report after that event; the caller frees it. NULL: there was no memory for it. */
struct lane_report *lane_thread_take_report(struct lane_thread *t);

/* Closes all connections at once, ends the thread and frees. */
void lane_thread_stop(struct lane_thread *t);

#endif
