/* SPDX-License-Identifier: Apache-2.0 */
/* Which jobs there are and who is in them: the sans-IO core of the accept loop. One thread owns it.
 *
 * A job gathers until every rank has attached every lane, then it runs, and it has ended when a lane reported a
 * failure, a newer generation came, or the reducer stops. Its entry and its memory go when the last session is gone, so
 * the same name and generation can be used again after that.
 *
 *     HELLO -> registry_hello -> (driver hands the connection to the lane) -> registry_admitted
 *     lane events -> registry_session_closed, registry_failed
 *     actions for the lanes come out through the sink */
#ifndef RS_SERVER_JOBS_REGISTRY_H
#define RS_SERVER_JOBS_REGISTRY_H

#include "common/error.h"
#include "proto/control.h"
#include "server/core/lane.h"
#include "server/jobs/status.h"

#include <stdbool.h>
#include <stdint.h>

struct registry;

struct registry_limits {
	unsigned jobs, workers;
	uint64_t memory_bytes;
};

/* What the outside is told of a job; strings are valid for the call. */
struct registry_job {
	uint64_t id;
	const char *name;
	uint32_t generation;
	unsigned world_size, lanes;
	uint64_t processes;
	uint64_t memory; /* most bytes that it can make this process use, slots and everything else */
};

enum registry_action_type {
	REGISTRY_OPENED, /* the first rank came; memory is there */
	REGISTRY_START,  /* lane_start on every lane */
	REGISTRY_SEND,   /* lane_send_all `frame` on every lane */
	REGISTRY_ABORT,  /* lane_abort on every lane, with `why` */
	REGISTRY_CLOSED, /* the last session is gone */
	REGISTRY_LOST,   /* a running job's `rank` was lost, `why` says how; what becomes of the job follows */
	REGISTRY_LATE,   /* `late` ranks of it, the first of which is `rank`, let the others wait */
};

struct registry_action {
	enum registry_action_type type;
	struct registry_job job;
	const uint8_t *frame; /* TELL; valid for the call */
	uint32_t frame_len;
	struct rs_err why;  /* ABORT, LOST */
	unsigned rank;      /* LOST, LATE */
	const char *label;  /* of it; valid for the call */
	unsigned late;      /* LATE: how many there are, .. */
	uint64_t seq;       /* .. for which operation, .. */
	uint32_t waited_ms; /* .. and for how long */
};

struct registry_options {
	struct registry_limits limits;
	unsigned threads;          /* lanes of this reducer, over which a job's lanes are spread */
	uint64_t connection_bytes; /* most that the driver allocates for one connection */
	/* Page-aligned, touched memory for slots; NULL when there is none. */
	void *(*alloc)(void *ctx, uint64_t bytes);
	void (*free)(void *ctx, void *memory, uint64_t bytes);
	/* Must not call the registry. */
	void (*action)(void *ctx, const struct registry_action *a);
	void *ctx;
};

/* Where an admitted connection goes. */
struct registry_admit {
	struct stripe_params stripe;
	struct session_params session;
	unsigned thread; /* which of the reducer's lanes */
};

int registry_new(struct registry **ret, const struct registry_options *opt, struct rs_err *e);
void registry_free(struct registry *r);

/* Admits a HELLO or fills *refused and returns its code. */
int registry_hello(struct registry *r, const struct control_hello *h, struct registry_admit *ret,
		   struct control_refused *refused);
/* The admitted connection is on its way to its lane: starts the job if it was the last one. */
void registry_admitted(struct registry *r, uint64_t job);

void registry_session_closed(struct registry *r, uint64_t job, unsigned rank, unsigned lane, bool clean);
void registry_failed(struct registry *r, uint64_t job, const struct rs_err *why);
/* LANE_LOST and LANE_LATE. */
void registry_lane_event(struct registry *r, const struct lane_event *ev);

/* The time, to be told before other calls when it has passed: of what is reported alone, nothing depends on it. */
void registry_set_time(struct registry *r, uint64_t now_ms);
/* Where the connection of an admitted rank comes from, and how; cut when they are longer than a status has room for. */
void registry_set_peer(struct registry *r, uint64_t job, unsigned rank, const char *peer, const char *transport);
/* All that is known here of the jobs, with room for `threads` lanes; the caller frees it. NULL: no memory. */
struct status *registry_status(const struct registry *r);

/* Tells the members of gathering jobs who is missing, and those of running ones that this reducer drains; to be called
 * once a second. */
void registry_tick(struct registry *r);

/* New jobs are refused from now on ("is shutting down"), and those that can are asked to go on without this reducer. */
void registry_drain(struct registry *r);
/* Ends all jobs, as far as this reducer is concerned. */
void registry_abort_all(struct registry *r, const struct rs_err *why);
unsigned registry_jobs(const struct registry *r);
void registry_set_limits(struct registry *r, const struct registry_limits *limits);

#endif
