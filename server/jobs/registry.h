/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a reducer and their ranks: the core of the accept loop, without I/O. One
 * thread owns it.
 *
 * A job gathers until every rank has attached every lane; then it runs. It ends when a
 * lane reports a failure, a newer generation comes, or the reducer stops. Its entry and
 * its memory are freed with its last session. Afterwards the same name and generation can
 * be used again.
 *
 *     HELLO -> registry_hello -> (driver hands the connection to the lane) -> registry_admitted
 *     lane events -> registry_session_closed, registry_failed
 *     actions for the lanes go out through registry_options.action */
#ifndef RS_SERVER_JOBS_REGISTRY_H
#define RS_SERVER_JOBS_REGISTRY_H

#include "common/error.h"
#include "proto/control.h"
#include "server/core/lane.h"
#include "server/jobs/status.h"

#include <stdbool.h>
#include <stdint.h>

struct registry;

/* The limits of the reducer, from the section `server`. */
struct registry_limits {
	unsigned jobs, workers;
	uint64_t memory_bytes;
};

/* The properties of a job in an action; strings are valid for the call. */
struct registry_job {
	uint64_t id;
	const char *name;
	const char *run; /* of its ranks; "": unknown */
	uint32_t generation;
	unsigned world_size, lanes;
	unsigned joined; /* most ranks that were there with all their lanes at once */
	uint64_t processes;
	uint64_t memory; /* most bytes that it can make this process use, for slots and everything else */
};

/* What is remembered of a job that has ended. */
struct registry_record {
	enum status_end how;
	uint64_t running_ms; /* since all ranks had joined; 0: they never had */
	uint64_t operations; /* 1 + the highest number of one of which this reducer has summed a chunk */
	uint64_t bytes_in, bytes_out;
	unsigned rank;         /* 1 + the rank that is the cause; 0: none */
	bool narrow;           /* lost on a path that lets only small messages through */
	const char *why;       /* a sentence; "": there is no more to say */
	const char *nonfinite; /* the first NaN or infinity; "": none */
};

enum registry_action_type {
	REGISTRY_OPENED,    /* the first rank came; the memory is allocated */
	REGISTRY_MOVED,     /* the job has other memory, the last that was allocated */
	REGISTRY_START,     /* lane_start on every lane, with `begin` */
	REGISTRY_TELL,      /* lane_tell `frame` on every lane */
	REGISTRY_ABORT,     /* lane_abort on every lane, with `why` */
	REGISTRY_CLOSED,    /* the last session is closed: `record` */
	REGISTRY_LOST,      /* `rank` of a running job was lost, for the reason `why`; another action ends the job */
	REGISTRY_ASK,       /* lane_ask for `rank` and `lane` on this thread */
	REGISTRY_NONFINITE, /* `rank` has sent NaN, or infinity, for the first time: `why` */
	REGISTRY_STOPPED,   /* `rank` sends nothing, but its machine acknowledges */
	REGISTRY_LATE,      /* `late` ranks, the first of which is `rank`, delay the others */
};

/* One action for the driver; each field says for which types it is set. */
struct registry_action {
	enum registry_action_type type;
	struct registry_job job;
	const uint8_t *frame; /* TELL; valid for the call */
	uint32_t frame_len;
	struct lane_begin begin;       /* START */
	struct registry_record record; /* CLOSED; strings are valid for the call */
	struct rs_err why;             /* ABORT, LOST, NONFINITE */
	struct rs_cause cause;         /* ABORT: the same as data */
	unsigned rank;                 /* LOST, STOPPED, LATE, ASK, NONFINITE */
	unsigned lane;                 /* ASK: of the job */
	unsigned thread;               /* ASK: number of the reducer's lane */
	uint64_t question;             /* ASK: its number */
	const char *label;             /* of it; valid for the call */
	unsigned late;                 /* LATE: number of late ranks */
	uint64_t seq;                  /* LATE: the operation */
	uint32_t waited_ms;            /* LATE, STOPPED: the silence */
};

/* The properties and callbacks of a registry. */
struct registry_options {
	struct registry_limits limits;
	unsigned threads;          /* lanes of this reducer; a job's lanes are distributed over them */
	uint64_t connection_bytes; /* most that the driver allocates for one connection */
	uint64_t features;         /* what this reducer has, of proto/features.h */
	uint64_t reducers_digest;  /* of its own configuration's reducers if it may relay; 0: it does not */
	/* Allocates page-aligned memory for slots; NULL: no memory. */
	void *(*alloc)(void *ctx, uint64_t bytes);
	void (*free)(void *ctx, void *memory, uint64_t bytes);
	/* Executes an action. Must not call the registry. */
	void (*action)(void *ctx, const struct registry_action *a);
	void *ctx;
};

/* The parameters with which the driver attaches an admitted connection to a lane. */
struct registry_admit {
	struct stripe_params stripe;
	struct session_params session;
	unsigned thread;   /* number of the reducer's lane */
	uint64_t features; /* for WELCOME */
};

int registry_new(struct registry **ret, const struct registry_options *opt, struct rs_err *e);
void registry_free(struct registry *r);

/* Admits a HELLO, or fills *refused and returns its code. */
int registry_hello(struct registry *r, const struct control_hello *h, struct registry_admit *ret,
		   struct control_refused *refused);
/* Starts the job if the admitted connection, which is on its way to its lane, was the
 * last missing one. One that must send PROBE is missing until LANE_PROVEN. */
void registry_admitted(struct registry *r, uint64_t job);

/* Counts what a session has done that its lane has closed, for REGISTRY_CLOSED. To be
 * called before registry_session_closed. */
void registry_count(struct registry *r, const struct lane_event *closed);
/* Removes a session that its lane has closed. */
void registry_session_closed(struct registry *r, uint64_t job, unsigned rank, unsigned lane, bool clean);
/* The same of an uplink (LANE_CLOSED with `uplink`). */
void registry_uplink_closed(struct registry *r, uint64_t job);
/* Ends a job that a lane has ended. */
void registry_failed(struct registry *r, uint64_t job, const struct rs_err *why, const struct rs_cause *cause);
/* Processes all events of lanes but LANE_CLOSED and LANE_FAILED. */
void registry_lane_event(struct registry *r, const struct lane_event *ev);

/* Sets the time, before other calls. Only the status depends on it. */
void registry_set_time(struct registry *r, uint64_t now_ms);
/* Stores the address and transport of an admitted connection for the status; longer ones
 * are cut. */
void registry_set_peer(struct registry *r, uint64_t job, unsigned rank, const char *peer, const char *transport);
/* Returns the status of all jobs, with room for `threads` lanes, which the caller frees.
 * NULL: no memory. */
struct status *registry_status(const struct registry *r);

/* Sends WAITING to the members of gathering jobs, and DRAIN to those of running jobs if
 * this reducer drains. The driver calls it once a second. */
void registry_tick(struct registry *r);

/* Refuses new jobs from now on ("is shutting down"), and asks jobs that can fail over to
 * go on without this reducer. */
void registry_drain(struct registry *r);
/* Ends all jobs on this reducer. */
void registry_abort_all(struct registry *r, const struct rs_err *why);
unsigned registry_jobs(const struct registry *r);
/* Returns how many ranks have joined all jobs, each with all its lanes. */
unsigned registry_ranks(const struct registry *r);
void registry_set_limits(struct registry *r, const struct registry_limits *limits);

#endif
