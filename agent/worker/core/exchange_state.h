/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an exchange, for the files of the core. The link is declared in link.h,
 * which includes this file. */
#ifndef RS_AGENT_WORKER_CORE_EXCHANGE_STATE_H
#define RS_AGENT_WORKER_CORE_EXCHANGE_STATE_H

#include "agent/worker/core/exchange.h"
#include "agent/worker/core/feedback.h"
#include "agent/worker/core/late.h"
#include "agent/worker/core/load.h"
#include "agent/worker/core/retain.h"
#include "proto/control.h"
#include "proto/trace.h"

struct link;
struct outgoing;

/* The news that a reducer is lost. */
struct loss {
	const char *why;                 /* for people */
	enum rs_loss how;                /* without `reported`: how this rank lost it */
	const struct rs_cause *reported; /* the cause that the reducer has given itself; NULL: none */
	bool narrow;                     /* `why` says that only small messages pass */
	bool empty;                      /* it was not there when the job started */
};

/* How a reducer was lost. */
struct reducer_loss {
	uint64_t report; /* the reducer itself reported the loss of a rank: the number of that report, from 1; 0: it did
			    not */
	bool reported;   /* the reducer reported itself that it ends this job */
	uint64_t at_ms, idle_ms; /* when; time since its last byte */
	struct rs_cause cause;
	char why[CONTROL_MESSAGE]; /* the cause for people */
	bool empty;                /* its slot is empty: it has not come yet, or has left in good order */
	bool began_empty;          /* its slot was empty when the job started */
	bool returned;             /* it was lost before, and came back */
	uint32_t passed; /* bytes of the largest result that has come since it is there: so much passes both ways */
	unsigned barren; /* returns in a row without a result of LOSS_PROOF_BYTES */
	uint64_t not_before_ms; /* no attempt to bring it back before that */
};

enum {
	LOSS_IDLE_MS = 10000,    /* a NAT or a firewall may forget a connection that is silent for longer */
	LOSS_PROOF_BYTES = 9000, /* more than fits into one packet */
	LOSS_PAUSE_MS = 5000,    /* pause after the first barren return; each further one doubles it */
	LOSS_PAUSE_MAX_MS = 10 * 60000,
};

/* The operations that are recorded: from <= seq < until. */
struct exchange_trace {
	struct trace *to; /* borrowed; NULL: nothing is recorded */
	uint64_t from, until;
	uint64_t from_us, now_us; /* as set by exchange_set_us */
};

/* Everything that one worker knows of its job.
 * Invariants: first .. last are exactly the submitted operations that are not done, in
 * the order of seq; next_seq is one more than the last seq; view_number is
 * control_view_number(&view); the `own` lists of all links partition the shards. In state
 * EXCHANGE_ENDED first is NULL. */
struct exchange {
	const struct exchange_params *params; /* those of opt */
	struct exchange_options opt;          /* job, label, run and evidence point to the copies below */
	char job[RS_NAME_MAX];
	char label[CONTROL_LABEL];
	char run[CONTROL_RUN];
	char evidence[CONTROL_EVIDENCE];
	uint64_t opened_ms, report_ms; /* time of exchange_new, and of the next report for whom it waits */
	uint64_t running_ms;           /* when EXCHANGE_RUNNING began, at least 1; 0: not yet */
	uint64_t degraded_ms;          /* time of the next report that reducers are lost; UINT64_MAX: none is lost */

	enum exchange_state state;
	struct rs_err err;           /* why it ends; code 0: it does not */
	struct rs_err send_error;    /* code != 0: a contribution must not be sent; the next tick ends the exchange */
	struct rs_err abort_reason;  /* what ABORT says: err, with this rank's name if the cause is local */
	struct rs_cause abort_cause; /* the same as data */
	uint64_t connect_by_ms, absent_by_ms, flush_by_ms, next_ms;
	uint64_t armed_ms; /* next_ms as the last tick left it: a later tick shows that this process did not run */
	uint64_t woke_ms;  /* when this process had last not run for half of detect_ms; 0: never */
	bool links_changed;

	struct exchange_op *first, *last; /* pending operations, in the order of seq */
	uint64_t next_seq;
	_Atomic uint64_t ops_done; /* may be read by any thread */

	/* How many chunks a link may be ahead of the slowest one; see
	 * stream_within_lead(). By priority: the position at which the next operation
	 * begins, and a position that all links have reached. */
	uint64_t max_lead;
	uint64_t own_lead; /* the lead for which this rank has memory; see lead.h */
	bool lead_fixed;
	uint64_t next_position[FRAME_PRIORITIES], floor[FRAME_PRIORITIES];
	bool held_back; /* since the last result a link had to wait for a slower one */
	/* Decoupled: the lead and the floor of what reducers have added, so that links
	 * stay in step; pace 0: max_lead is enough. */
	uint64_t pace, paced[FRAME_PRIORITIES];

	unsigned links_n;
	struct link *links;
	struct outgoing *outgoing; /* memory of all rings of all streams */
	uint16_t *shards;          /* memory of all lists of shards, and of the four arrays below */
	uint8_t *saved;            /* memory for one saved frame of each link */
	uint8_t *stage;            /* memory of encoded.c; NULL: no operation was encoded so far */
	struct feedback feedback;

	/* What the job uses; see features.c. */
	uint64_t features;
	bool features_fixed;    /* a chunk may have been sent: `features` does not change any more */
	_Atomic bool can_shard; /* they are fixed and have FEATURE_SHARDED; may be read by any thread */
	uint64_t start;         /* which start this is: the incarnation of rank 0; 0: not known */

	/* Which reducers live; see view.c. Without `retaining` all do, to the end. */
	bool retaining;
	struct control_view view;          /* the last one that this rank sent; its `start` is this rank's own */
	uint64_t view_number;              /* of `view` */
	uint16_t *owner, *lane_of;         /* [shards] in this view */
	uint16_t *relay, *relay_lane;      /* the same of the relays of this rank's group; RS_NO_RELAY: none */
	uint64_t link_rate;                /* bytes a second that all links together may send; 0: any; see pacing.c */
	uint32_t link_rounds;              /* rounds of the first link's window; each fourth sets link_rate */
	bool relaying;                     /* the job uses relays; fixed with `features` */
	uint64_t border[FRAME_PRIORITIES]; /* chunks before this position go straight home, since ranks may have
					      their results */
	struct reducer_loss *losses;       /* [reducers] */
	char rank_lost[CONTROL_MESSAGE];   /* the last loss of a rank that a reducer reported while the job started */
	uint64_t reports_n;                /* number of losses that reducers reported themselves */
	struct retain retain;
	uint64_t stable;                /* every rank has the results of all operations below it, as reducers say */
	bool leaving;                   /* goodbye waits until all operations are stable */
	struct control_nonfinite found; /* NaN and infinity in this rank's contributions so far; see nonfinite.c */
	bool found_new;                 /* reducers do not know all of it */
	uint64_t told_ms;               /* when they were last told; 0: never */
	struct late_watch late;
	struct load_watch load;
	struct exchange_trace trace;
	bool ping_on_done; /* some link has to send PING when an operation is done */
};

static inline uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Returns whether the reducer lives in the current view. */
static inline bool exchange_lives(const struct exchange *x, unsigned reducer)
{
	return x->view.lives[reducer] % 2 == 0;
}

/* Returns the number of reducers that live. */
static inline unsigned exchange_alive(const struct exchange *x)
{
	unsigned n = 0;

	for (unsigned r = 0; r < x->params->reducers_n; r++)
		n += exchange_lives(x, r);
	return n;
}

/* exchange_end.c */
/* Starts the end of the exchange. `local`: the cause was found here, so ABORT names this
 * rank first. from: the link that gets no ABORT because it failed or brought the news;
 * may be NULL. */
void exchange_fail(struct exchange *x, const struct rs_err *why, bool local, struct link *from, uint64_t now_ms);
/* The same with what the sentence says as data. */
void exchange_fail_because(struct exchange *x, const struct rs_err *why, const struct rs_cause *cause, bool local,
			   struct link *from, uint64_t now_ms);
/* A reducer reports that all operations below `stable` are stable. */
void exchange_raise_stable(struct exchange *x, uint64_t stable, uint64_t now_ms);
/* Enters EXCHANGE_ENDED when all last frames are sent or their time is over, and ends all
 * operations. */
void exchange_check_ended(struct exchange *x);

/* Ends all pending operations with the error of the exchange. No frame that is sent may
 * need their memory. */
void exchange_end_ops(struct exchange *x);

/* exchange_rejoin.c */
/* Sets what changes while the exchange lives to its first values: it begins to join. */
void exchange_begin(struct exchange *x, uint64_t now_ms);

/* exchange_op.c */
/* Checks, when the features of the job become known, that all pending operations are
 * possible. Errors: RS_EUNSUPPORTED. */
int exchange_check_sharded(const struct exchange *x, struct rs_err *e);
/* Removes op, whose last result has arrived, and ends it without an error. */
void exchange_op_done(struct exchange *x, struct exchange_op *op);

#endif
