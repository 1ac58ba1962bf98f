/* SPDX-License-Identifier: Apache-2.0 */
/* What the accept loop's thread posts to a lane's thread (lane_uv.c). */
#ifndef RS_SERVER_RUN_LETTER_H
#define RS_SERVER_RUN_LETTER_H

#include "common/tcp_conn.h"
#include "proto/rpc/rpc.h"
#include "server/run/lane_uv.h"

enum letter_type { LETTER_ATTACH, LETTER_START, LETTER_TELL, LETTER_ABORT, LETTER_REPORT, LETTER_STOP };

struct letter {
	struct mail mail;
	enum letter_type type;
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
struct letter *letter_new(enum letter_type type, uint64_t job, size_t frame_len);

/* The letter that aborts a job of which this lane has connections. Invariant: each such job has exactly one reserve. */
struct reserve {
	struct reserve *next;
	uint64_t job;
	struct letter *abort; /* NULL: sent */
};

/* The reserves of one lane. The thread that posts letters owns them. */
struct reserves {
	struct reserve *first;
};

/* Adds the reserve of this job, unless there is one. False: no memory. */
bool reserves_add(struct reserves *all, uint64_t job);
/* The letter of this job, which the caller owns then. NULL: it was taken before, or the job has no reserve. */
struct letter *reserves_take(struct reserves *all, uint64_t job);
/* Frees the reserve of this job, if there is one. */
void reserves_remove(struct reserves *all, uint64_t job);
/* Frees all. */
void reserves_close(struct reserves *all);

#endif
