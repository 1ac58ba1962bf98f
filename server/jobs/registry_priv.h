/* SPDX-License-Identifier: Apache-2.0 */
/* The structs of the registry, for the files of this folder. */
#ifndef RS_SERVER_JOBS_REGISTRY_PRIV_H
#define RS_SERVER_JOBS_REGISTRY_PRIV_H

#include "proto/features.h"
#include "server/jobs/registry.h"

enum {
	MEMBER_PEER = 64,      /* bytes of an address, terminator included; longer ones are cut */
	MEMBER_TRANSPORT = 16, /* bytes of "tcp", "grpc", "tcp+tls", ... */
};

/* One rank of a job. `lanes` has a bit for each attached lane; 0: the rank is absent. */
struct member {
	uint64_t incarnation;
	uint64_t lanes;
	bool lost;         /* from this reducer */
	uint64_t probing;  /* those of them through which no large message has passed yet */
	uint64_t features; /* that each of its connections has announced */
	uint32_t window;   /* the largest that they would use */
	uint32_t most;     /* the largest that all of them take */
	uint32_t processes;
	char label[CONTROL_LABEL];
	char evidence[CONTROL_EVIDENCE];
	char peer[MEMBER_PEER];
	char transport[MEMBER_TRANSPORT];
};

/* NaN, or without it infinity, in the lowest operation of a job. */
struct registry_found {
	bool nan;
	uint64_t seq;
	char what[CONTROL_FOUND]; /* "": none */
};

/* One generation of a job. Invariant: `sessions` is the number of set bits in `lanes`
 * over all members and `uplinks`, and `probing` that of bits in `probing`, which are also
 * in `lanes`; `complete` is the number of members with all bits set. */
struct job {
	struct job *next;
	uint64_t id;
	struct control_hello first; /* HELLO of the first rank; all others must agree with it */
	struct member *members;     /* [first.world_size] */
	unsigned sessions;          /* attached connections, with uplinks */
	unsigned uplinks;           /* those of them that are uplinks of relays */
	unsigned complete;          /* members with all lanes */
	unsigned probing;           /* connections through which no large message has passed yet */
	unsigned complete_most;     /* the maximum of `complete` so far */
	unsigned base;              /* thread of lane 0 */
	bool running, ended;
	uint64_t opened_ms, started_ms;
	struct rs_err why;     /* ended */
	struct rs_cause cause; /* ended: `why` as data */
	struct registry_found found;
	uint64_t operations, bytes_in, bytes_out; /* of sessions that are closed */
	char refused[CONTROL_MESSAGE];            /* why a rank was last refused for good while the job gathers */
	uint32_t window;                          /* of each lane: that of HELLO, or more from START on */
	uint8_t *memory;
	uint64_t memory_len;
	uint64_t bound; /* most bytes of the job, with memory_len */
};

/* Returns whether all ranks have left, and only uplinks are still closing. */
static inline bool job_is_left(const struct job *j)
{
	return j->uplinks && j->sessions == j->uplinks;
}

enum {
	REGISTRY_SIZES = 8,
	REGISTRY_RELAY_PAUSES = 8, /* at once; one more takes the place of the one that ends first */
	REGISTRY_CONTENDERS = 32,  /* at once; one more takes the place of the oldest, which is then asked for again */
	REGISTRY_SIZES_MS = 3000,  /* a corrected training, started by hand, comes later */
};

/* A job that ended because its ranks said different world sizes. It counts until
 * until_ms. */
struct registry_sizes {
	char job[CONTROL_JOB];
	char run[CONTROL_RUN];
	uint32_t generation;
	uint64_t until_ms;
	char message[CONTROL_MESSAGE];
};

/* A process that wants a place in a job which another one has, or says another world size
 * than a running job. */
struct registry_contender {
	uint64_t job;         /* 0: none */
	unsigned rank;        /* of the job; it was asked whether it is alive */
	uint64_t incarnation; /* of the process */
	uint64_t question;    /* with which the rank was asked after the process had come */
	bool answered;        /* it has answered this question, or a later one */
};

/* A job that this reducer has left since it could not relay. */
struct registry_relay_pause {
	char job[CONTROL_JOB];
	uint32_t ms;      /* the last pause; 0: none */
	uint64_t from_ms; /* until then the job does not take this reducer back */
};

/* Invariant: `memory` is the sum of the bounds of all jobs in the list. */
struct registry {
	struct registry_options opt;
	struct job *jobs;
	unsigned jobs_n;
	uint64_t memory; /* bounds of all jobs, in bytes */
	uint64_t next_id;
	uint64_t now_ms; /* of the last registry_set_time */
	bool draining;
	struct registry_sizes sizes[REGISTRY_SIZES]; /* the next one is written at sizes_next */
	unsigned sizes_next;
	struct registry_contender contenders[REGISTRY_CONTENDERS]; /* the next one is written at contenders_next */
	unsigned contenders_next;
	uint64_t ended[STATUS_ENDS]; /* jobs, since the process started */
	uint64_t lost_ranks;         /* the same */
	struct registry_relay_pause relay_pauses[REGISTRY_RELAY_PAUSES];
	uint64_t question; /* the last one. They begin at 2: 1 asks for an acknowledgement only */
};

/* Remembers that the job of this HELLO has ended with this message, because its ranks
 * said different world sizes. */
void registry_remember_sizes(struct registry *r, const struct control_hello *h, const char *message);
/* Returns the message if the job of this HELLO has ended so a moment ago; else NULL. */
const char *registry_find_sizes(const struct registry *r, const struct control_hello *h);

/* Writes a sentence into buf if another gathering job seems to have the missing ranks of
 * this one, since the address of the master is written in two ways. Returns whether it
 * has. */
bool registry_find_spelling(const struct registry *r, const struct job *j, char *buf, size_t size);

/* Checks a HELLO whose worker has the address from a name that several reducers share:
 * rank 0 comes first, and says which of them this reducer is in the job. j: the job that
 * exists; NULL: none. */
int registry_check_shared(const struct job *j, const struct control_hello *h, struct control_refused *no);

/* Checks that a worker may join this job: it agrees with the job's ranks, and its place
 * is free. */
int registry_check_joins(struct registry *r, const struct job *j, const struct control_hello *h,
			 struct control_refused *no);
/* Asks a rank of the job, which must be there, whether it is alive, when this process
 * comes for the first time. Returns whether it has answered since then. */
bool registry_contend(struct registry *r, const struct job *j, const struct control_hello *h, unsigned rank);
/* Processes LANE_ANSWERED. */
void registry_answered(struct registry *r, const struct lane_event *ev);

/* Ends the job, if it has not ended. cause: `why` as data; NULL: the code alone. */
void registry_end_job(struct registry *r, struct job *j, const struct rs_err *why, const struct rs_cause *cause);
/* Says to the ranks of a gathering job for whom they wait. */
void registry_send_waiting(struct registry *r, const struct job *j);
/* Executes an action for a job. */
void registry_emit(struct registry *r, const struct job *j, struct registry_action a);
/* Fills *to and returns the code. */
int registry_refuse(struct control_refused *to, int code, bool retry, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns the features that this reducer has for the job of a HELLO. */
uint64_t registry_features(const struct registry *r, const struct control_hello *h);
/* This reducer leaves a job since it cannot relay: its uplink to a home does not work.
 * Otherwise the job would take it back, and stop again, for as long as that lasts. */
void registry_relay_failed(struct registry *r, const char *job);
/* Refuses that job when it takes this reducer back, for a while after that. Other jobs
 * may have other homes: they find out for themselves. */
int registry_check_relay(const struct registry *r, const struct control_hello *h, struct control_refused *no);
/* Returns what the job uses: what all its ranks and this reducer have. */
struct control_start registry_agree(const struct registry *r, const struct job *j);
/* Checks what a HELLO says of groups. */
int registry_check_groups(const struct control_hello *h, struct control_refused *no);
/* Admits the HELLO of an uplink: a relay of a job that runs here. */
int registry_admit_uplink(struct registry *r, const struct control_hello *h, struct registry_admit *ret,
			  struct control_refused *no);
/* Returns the parameters of one lane of a job. */
struct stripe_params registry_stripe(const struct job *j, unsigned lane);
/* Returns the most bytes that the job can make this process use with its window, and the
 * part for slots in *ret_slots. Both saturate. */
uint64_t registry_bound(const struct registry *r, const struct job *j, uint64_t *ret_slots);
/* All ranks have joined: gives the job the window that they would use, if there is
 * memory. Returns whether the window is larger than that of HELLO. */
bool registry_widen(struct registry *r, struct job *j);
/* Returns the number of training processes of the ranks that have joined. */
uint64_t registry_processes(const struct job *j);

#endif
