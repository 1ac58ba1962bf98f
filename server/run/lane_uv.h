/* SPDX-License-Identifier: Apache-2.0 */
/* A lane with its thread, its libuv loop and its connections. */
#ifndef RS_SERVER_RUN_LANE_UV_H
#define RS_SERVER_RUN_LANE_UV_H

#include "common/log.h"
#include "common/tcp_conn.h"
#include "proto/rpc/rpc.h"
#include "proto/trace.h"
#include "server/jobs/registry.h"
#include "server/run/lane_mail.h"

struct lane_thread;

/* Most bytes that a lane allocates for a connection: its handle, its commands, and an
 * entry in libuv's tables. */
enum { LANE_CONNECTION_BYTES = 2304 };

/* What all lanes of a process have in common. Everything is borrowed. */
struct lane_thread_options {
	const struct rs_config *cfg;
	const struct rs_kernels *kernels;
	struct lane_peers peers;
	const struct rs_log *log;
	struct mailbox *out; /* for events; must outlive lane_thread_stop */
};

/* Starts the thread. Errors: RS_ENOMEM, RS_EIO. */
int lane_thread_start(struct lane_thread **ret, const struct lane_thread_options *o, unsigned index, struct rs_err *e);

/* One thread calls the following functions. They take effect in the order of its
 * calls. */

/* Moves *tcp to the lane, which sends *welcome with its own detection time. The lane
 * reports LANE_CLOSED at the end, even if it runs out of memory. The first connection of
 * a job also allocates what lane_thread_abort needs. Errors: RS_ENOMEM; then *tcp stays
 * with the caller, and no event follows. */
int lane_thread_attach(struct lane_thread *t, struct tcp_conn *tcp, const struct registry_admit *admit,
		       const struct control_welcome *welcome, struct rs_err *e);
/* The same for a stream of a gRPC server, which has a thread for each lane and must
 * outlive the lanes. */
int lane_thread_attach_stream(struct lane_thread *t, const struct rpc_api *rpc, struct rpc_server *server,
			      struct rpc_stream *stream, const struct registry_admit *admit,
			      const struct control_welcome *welcome, struct rs_err *e);
/* Starts a job, all of whose ranks have joined. If there is no memory, the job is aborted
 * instead. */
void lane_thread_start_job(struct lane_thread *t, uint64_t job, const struct lane_begin *begin);
/* Sends a control frame to all sessions of a job. If there is no memory, the frame is not
 * sent: all such frames are repeated or informational. */
void lane_thread_tell(struct lane_thread *t, uint64_t job, const uint8_t *frame, uint32_t len);
/* Calls lane_ask(). If there is no memory, the rank is not asked. */
void lane_thread_ask(struct lane_thread *t, uint64_t job, unsigned lane, unsigned rank, uint64_t question);
/* Aborts a job; needs no memory. Further calls for the same job have no effect. */
void lane_thread_abort(struct lane_thread *t, uint64_t job, const struct rs_err *why, const struct rs_cause *cause);
/* Frees what lane_thread_abort would need, after the job's last connection was closed. */
void lane_thread_forget(struct lane_thread *t, uint64_t job);
/* Asks the lane for a report. The lane calls done(user), on its thread, when the report
 * is ready. At most one request may be pending. Returns false if there is no memory; then
 * done() is not called. */
bool lane_thread_report(struct lane_thread *t, void (*done)(void *user), void *user);
/* Returns the report after that call; the caller frees it. NULL: there was no memory for
 * it. */
struct lane_report *lane_thread_take_report(struct lane_thread *t);

/* Begins a trace, which the lane writes to until it sets trace->ended and then calls
 * done(user), on its thread: when all operations are recorded, or after
 * lane_thread_trace_end; or until lane_thread_stop. At most one trace at a time. Returns
 * false if there is no memory; then nothing happens. */
bool lane_thread_trace(struct lane_thread *t, struct trace *trace, void (*done)(void *user), void *user);
/* Ends the trace early, if one runs. Without memory it goes on. */
void lane_thread_trace_end(struct lane_thread *t);

/* Returns whether the lane's loop has turned since the last call that returned true. It
 * turns at least every LANE_TICK_MS, unless its thread is stuck. */
bool lane_thread_turned(struct lane_thread *t);

/* Closes all connections at once, ends the thread and frees. */
void lane_thread_stop(struct lane_thread *t);

#endif
