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

/* Most bytes that this side of a connection allocates: its handle, its letters, a word in libuv's tables. */
enum { LANE_CONNECTION_BYTES = 2048 };

/* What a lane posts to the server's mailbox. */
struct lane_mail {
	struct mail mail;
	struct lane_thread *reported; /* its report is ready to be taken; NULL: it is an event */
	struct lane_event event;
};

/* Starts the thread; events go to `out`, which must outlive lane_thread_stop. Errors: RS_ENOMEM, RS_EIO. */
int lane_thread_start(struct lane_thread **ret, unsigned index, const struct rs_kernels *kernels, uint32_t detect_ms,
		      const struct rs_log *log, struct mailbox *out, struct rs_err *e);

/* These may come from any thread and take effect in the order of calls of one thread.
 * attach: *tcp is moved to the lane, also when memory runs out (the lane then reports LANE_CLOSED); it says *welcome,
 * with its own detection time. */
void lane_thread_attach(struct lane_thread *t, struct tcp_conn *tcp, const struct registry_admit *admit,
			const struct control_welcome *welcome);
/* The same of a stream of the module's server, which has a thread for each lane and must outlive the lanes. */
void lane_thread_attach_stream(struct lane_thread *t, const struct rpc_api *rpc, struct rpc_server *server,
			       struct rpc_stream *stream, const struct registry_admit *admit,
			       const struct control_welcome *welcome);
void lane_thread_start_job(struct lane_thread *t, uint64_t job, uint64_t processes);
void lane_thread_send(struct lane_thread *t, uint64_t job, const uint8_t *frame, uint32_t len);
void lane_thread_abort(struct lane_thread *t, uint64_t job, const struct rs_err *why);
/* A letter comes when the report is ready. Only one may be under way. */
void lane_thread_report(struct lane_thread *t);
/* For who has got that letter, and frees the report. NULL: there was no memory for it. */
struct lane_report *lane_thread_take_report(struct lane_thread *t);

/* Closes all connections at once, ends the thread and frees. */
void lane_thread_stop(struct lane_thread *t);

#endif
