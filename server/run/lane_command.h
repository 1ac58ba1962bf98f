/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that the server's thread posts to a lane's thread (lane_uv.c). */
#ifndef RS_SERVER_RUN_LANE_COMMAND_H
#define RS_SERVER_RUN_LANE_COMMAND_H

#include "common/tcp_conn.h"
#include "proto/rpc/rpc.h"
#include "server/jobs/registry.h"
#include "server/run/lane_mail.h"

enum lane_command_type {
	COMMAND_ATTACH,
	COMMAND_START,
	COMMAND_TELL,
	COMMAND_ASK,
	COMMAND_ABORT,
	COMMAND_REPORT,
	COMMAND_TRACE,
	COMMAND_TRACE_END,
	COMMAND_STOP
};

/* One command for a lane's thread. `type` tells which members are valid. */
struct lane_command {
	struct mail mail;
	enum lane_command_type type;
	uint64_t job;
	union {
		struct {
			struct registry_admit admit;
			struct control_welcome welcome;
			struct tcp_conn tcp;
			const struct rpc_api *rpc; /* NULL: the connection is `tcp`, else `stream` */
			struct rpc_queue *queue;   /* of the stream */
			struct rpc_stream *stream;
			struct lane_mail *closed; /* for LANE_CLOSED of the connection; owned */
		};                                /* ATTACH */
		struct lane_begin begin;          /* START */
		struct {
			unsigned lane, rank;
			uint64_t question;
		}; /* ASK */
		struct {
			struct rs_err why;
			struct rs_cause cause;
		};                  /* ABORT */
		uint32_t frame_len; /* TELL */
		struct {
			struct trace *trace;      /* TRACE; borrowed */
			void (*done)(void *user); /* REPORT, TRACE */
			void *user;
		};
	};
	uint8_t frame[]; /* TELL: frame_len bytes */
};

/* Allocates a command with room for a frame of frame_len bytes. All other fields are
 * zero. The caller frees it with free(). NULL: no memory. */
struct lane_command *lane_command_new(enum lane_command_type type, uint64_t job, size_t frame_len);

/* The command that aborts a job, allocated in advance. Invariant: each job that has
 * connections in this lane has exactly one reserve. */
struct reserve {
	struct reserve *next;
	uint64_t job;
	struct lane_command *abort; /* NULL: it was sent */
};

/* The reserves of one lane. The thread that posts commands owns them. */
struct reserves {
	struct reserve *first;
};

/* Adds a reserve for this job, unless it has one. Returns false if there is no memory. */
bool reserves_add(struct reserves *all, uint64_t job);
/* Returns the command of this job, which the caller owns. NULL: it was taken before, or
 * the job has no reserve. */
struct lane_command *reserves_take(struct reserves *all, uint64_t job);
/* Frees the reserve of this job, if there is one. */
void reserves_remove(struct reserves *all, uint64_t job);
/* Frees all reserves. */
void reserves_close(struct reserves *all);

#endif
