/* SPDX-License-Identifier: Apache-2.0 */
/* What the accept loop's thread posts to a lane's thread (lane_uv.c). */
#ifndef RS_SERVER_RUN_LANE_COMMAND_H
#define RS_SERVER_RUN_LANE_COMMAND_H

#include "common/tcp_conn.h"
#include "proto/rpc/rpc.h"
#include "server/run/lane_uv.h"

enum lane_command_type { COMMAND_ATTACH, COMMAND_START, COMMAND_TELL, COMMAND_ABORT, COMMAND_REPORT, COMMAND_STOP };

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
			const struct rpc_api *rpc; /* NULL: it is TCP, */
			struct rpc_queue *queue;   /* not these */
			struct rpc_stream *stream;
			struct lane_mail *closed; /* for its LANE_CLOSED; owned */
		};                                /* ATTACH */
		uint64_t processes;               /* START */
		struct rs_err why;                /* ABORT */
		uint32_t frame_len;               /* TELL */
		struct lane_mail *answer;         /* REPORT; owned */
	};
	uint8_t frame[]; /* TELL: frame_len bytes */
};

/* Zeroed but for these two, with room for frame_len bytes of a frame; for free(). NULL: no memory. */
struct lane_command *lane_command_new(enum lane_command_type type, uint64_t job, size_t frame_len);

/* The command that aborts a job of which this lane has connections. Invariant: each such job has exactly one reserve.
 */
struct reserve {
	struct reserve *next;
	uint64_t job;
	struct lane_command *abort; /* NULL: sent */
};

/* The reserves of one lane. The thread that posts commands owns them. */
struct reserves {
	struct reserve *first;
};

/* Adds the reserve of this job, unless there is one. False: no memory. */
bool reserves_add(struct reserves *all, uint64_t job);
/* The command of this job, which the caller owns then. NULL: it was taken before, or the job has no reserve. */
struct lane_command *reserves_take(struct reserves *all, uint64_t job);
/* Frees the reserve of this job, if there is one. */
void reserves_remove(struct reserves *all, uint64_t job);
/* Frees all. */
void reserves_close(struct reserves *all);

#endif
