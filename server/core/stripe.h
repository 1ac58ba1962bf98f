/* SPDX-License-Identifier: Apache-2.0 */
/* A stripe: the part of a job that lives on one lane of a reducer. */
#ifndef RS_SERVER_CORE_STRIPE_H
#define RS_SERVER_CORE_STRIPE_H

#include "proto/trace.h"
#include "server/core/lane_state.h"
#include "server/core/session.h"
#include "server/core/slot.h"

/* The oldest incomplete chunk that the last tick found; see stripe_late.c. */
struct stripe_watch {
	const struct slot *slot; /* NULL: none */
	uint64_t seq;
	uint32_t chunk;
	uint64_t since_ms, notified_ms;
	bool reported; /* LANE_LATE was sent for it */
};

/* A reducer that is lost in the job, as the ranks said. */
struct stripe_loss {
	uint64_t at_ms;                         /* when this stripe learnt it */
	char id[CONTROL_JOB], why[CONTROL_WHY]; /* "": not known */
	bool narrow;                            /* only small messages came through */
	bool empty;                             /* its slot is empty */
};

/* The operations that are recorded: from <= seq < until. */
struct stripe_trace {
	struct trace *to; /* of the lane; NULL: nothing is recorded */
	uint64_t from, until;
	uint16_t source;
};

/* Invariant: slots in use are in the table and nowhere else; the others are in the free
 * list of their priority. So operations of one priority never wait for slots of another
 * one. A stripe exists as long as a session is attached. */
struct stripe {
	struct lane *owner;
	struct stripe *next;
	struct stripe_params p;
	bool running;           /* START was sent */
	bool ended;             /* ABORT was sent; everything that arrives is discarded */
	uint64_t processes;     /* divisor of an average */
	uint64_t features;      /* running: what the job uses */
	bool credits;           /* running: ranks want CREDIT */
	unsigned attached;      /* sessions */
	bool departed;          /* a rank sent GOODBYE after START: no operation can complete any more */
	uint64_t departed_ack;  /* departed ranks have the results of all operations below this number (the lowest) */
	unsigned departed_rank; /* the first one with this number */
	uint64_t stable;        /* every rank has the results of all operations below this number */
	/* [world_size + p.uplinks], NULL: not attached. Behind those of the ranks are the
	 * uplinks of reducers that relay for a group; see groups.h. */
	struct session **sessions;
	uint16_t *group_of; /* [world_size]; NULL: the job has no groups */
	unsigned *group_n;  /* [p.groups]: ranks of each group */
	struct slot *oldest[FRAME_PRIORITIES], *newest[FRAME_PRIORITIES]; /* of the lists of slots without a result */
	unsigned ahead[FRAME_PRIORITIES];                                 /* slots with `ahead` */
	struct uplink *uplinks;                                           /* of this reducer to homes; see uplink.h */
	struct control_hello *hello; /* owned; NULL: this reducer relays for nobody */
	uint64_t start;              /* incarnation of rank 0 */
	unsigned self;               /* index of this reducer in the configuration */
	struct slot *slots;          /* [slots_n * p.priorities], those of priority 0 first */
	unsigned slots_n;            /* of each priority */
	struct slot *free[FRAME_PRIORITIES];
	struct slot **chains; /* [mask + 1]: the hash table of slots in use */
	unsigned mask;
	unsigned fetching[FRAME_PRIORITIES]; /* slots whose result was asked for */
	uint64_t *bits;                      /* bit sets of all slots */
	unsigned at_stable;                  /* ranks whose `done` equals `stable` */
	unsigned stable_waiters;             /* sessions with waits_stable */
	uint32_t decoded_bytes;              /* bytes of an accumulator */
	size_t stride;                       /* the same, and those of a stash entry: with alignment */
	size_t stash_stride;
	uint64_t encoded;            /* those of the chunks that were encoded */
	uint8_t up, down;            /* how the last of these was */
	uint64_t chunks, operations; /* as in struct lane_report_stripe */
	struct chunk_times times;    /* of the chunks whose results are sent */
	uint64_t waited_until_ms;    /* lane_count.waited_ms is counted up to this time */
	struct stripe_watch watch;
	struct stripe_trace trace;

	/* The reducers that are known as lost: the maximum over the views of all ranks.
	 * All chunks come in one view. When it changes, none comes until all ranks have
	 * sent the same one; see stripe_view.c. */
	struct control_view view;
	uint64_t view_number;
	uint64_t told_view;    /* that homes were told of last: see uplinks_tell() */
	uint64_t resumed_view; /* number of the view in which chunks come: that of the last RESUME */
	struct stripe_loss
	    *losses; /* [view.n], of the reducers that the view says are lost; NULL: none yet, or no memory */
};

enum { UPLINK_BYTES = 12 << 10 }; /* most bytes of an uplink with what its driver allocates */

/* stripe.c: the table of slots */
struct stripe *stripe_find(struct lane *l, uint64_t job, unsigned lane);
/* Errors: RS_ENOMEM. */
int stripe_new(struct stripe **ret, struct lane *l, const struct stripe_params *p, struct rs_err *e);
/* Returns the number of slots of each priority. */
unsigned stripe_slot_count(const struct stripe_params *p);
/* Gives a stripe, no chunk of which has come, a larger window. memory: as stripe_params.
 * Errors: RS_ENOMEM; nothing has changed then. */
int stripe_widen(struct stripe *st, uint32_t window, uint8_t *memory, struct rs_err *e);
void stripe_free(struct stripe *st);
/* Frees all slots of a stripe. */
void stripe_clear(struct stripe *st);
/* Returns the chain in which the slot of a chunk is, or would be. */
struct slot **stripe_chain(struct stripe *st, uint64_t seq, uint32_t chunk);
/* Returns the slot of a chunk; NULL: none. */
struct slot *stripe_find_slot(struct stripe *st, uint64_t seq, uint32_t chunk);
/* All have the result: the slot is free. */
void stripe_result_done(struct stripe *st, struct slot *slot);
/* Counts the result as sent to one rank. The slot is free after the last one. */
void stripe_result_sent(struct stripe *st, struct slot *slot);
/* Returns true if all expected ranks have contributed. A departed rank that has the
 * operation's result is not expected if another rank has it too. If none has it, the
 * contributions are of an earlier view, and must not be summed without that rank. */
bool stripe_is_full(const struct stripe *st, const struct slot *slot);
/* Restarts the measurement of waiting, because what waited is gone or this process stood
 * still. */
void stripe_watch_restart(struct stripe *st);
/* Writes "rank 3" or "rank 3 (processes 6-7 on host b)" into buf and returns it. */
const char *stripe_rank_name(const struct stripe *st, unsigned rank, char *buf, size_t size);
/* Returns the code for an error after which this reducer cannot continue the job: RS_ECUT
 * if others can, else RS_EPEER.
 */
int stripe_loss_code(const struct stripe *st);

/* Fails because rank_a has sent the chunk of slot a in the place where rank_b has sent
 * that of b. Returns RS_EMISMATCH.
 */
int stripe_out_of_step(const struct stripe *st, const struct slot *a, unsigned rank_a, const struct slot *b,
		       unsigned rank_b, struct rs_err *e);

/* lane_trace.c */
/* Records an event of a chunk, if the trace wants it. Only while there is a trace. */
void stripe_record(struct stripe *st, enum trace_kind kind, uint64_t seq, uint32_t chunk, unsigned rank,
		   uint32_t bytes);

/* Records an event of the chunk in a slot, while there is a trace. */
static inline void stripe_trace(struct stripe *st, enum trace_kind kind, const struct slot *slot, unsigned rank,
				uint32_t bytes)
{
	if (__builtin_expect(st->trace.to != NULL, 0))
		stripe_record(st, kind, slot->header.of.seq, slot->header.chunk, rank, bytes);
}

/* Returns the number of places for sessions. */
static inline unsigned stripe_places(const struct stripe *st)
{
	return st->p.world_size + st->p.uplinks;
}

/* Returns whether the job has groups of ranks, whose chunks may come through relays. */
static inline bool stripe_is_grouped(const struct stripe *st)
{
	return st->group_of != NULL;
}

/* Returns whether a rank is expected to contribute to a chunk, and nothing has begun that
 * covers it. */
static inline bool stripe_is_absent(const struct stripe *st, const struct slot *slot, unsigned rank)
{
	if (!stripe_is_grouped(st))
		return !slot_bit(slot->started, rank);
	return !slot_bit(slot->covered, rank) && (!slot->relay || st->group_of[rank] == slot->group);
}

/* Returns true if a rank has no session any more, or sent GOODBYE. */
static inline bool stripe_has_departed(const struct stripe *st, unsigned rank)
{
	return !st->sessions[rank] || st->sessions[rank]->departed;
}

#endif
