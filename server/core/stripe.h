/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the lane core: the structs that lane.c, stripe.c, session.c and session_tx.c share. */
#ifndef RS_SERVER_CORE_STRIPE_H
#define RS_SERVER_CORE_STRIPE_H

#include "proto/control.h"
#include "server/core/lane.h"
#include "server/core/report.h"
#include "server/core/slot.h"

#include <xxhash.h>

enum {
	/* bytes of control frames that may wait to be sent: WELCOME, one WAITING, START or PING, and ABORT, which with
	 * its sentence is the longest; and a VIEW */
	SESSION_CONTROL = 2 * (FRAME_HEADER + CONTROL_MESSAGE) + 5 * FRAME_HEADER + CONTROL_VIEW,
};

struct lane {
	struct lane_options opt;
	struct stripe *stripes;
	struct session *ready_head, *ready_tail; /* sessions the driver should look at, each at most once */
	uint8_t *scratch;                        /* LANE_SCRATCH bytes, for contributions that are added */
	uint8_t *ahead;     /* LANE_AHEAD bytes behind it, for the frames that follow the one that is being received */
	uint64_t now_ms;    /* as the driver last said */
	uint64_t ticked_ms; /* time of the last tick */
	uint64_t rolled_ms; /* when the sessions' `second` was last counted */
	uint32_t second_ms; /* and how long that was */
	enum lane_arrivals arrived; /* since lane_arrivals was called last */
	struct lane_count closed;   /* by sessions that are over */
};

/* One lane of one job. Invariant: alive slots are in the hash table and nowhere else, the others in the free list of
 * their priority: operations of one priority never wait for slots that those of another hold. A stripe lives as long as
 * a session is attached. */
struct stripe {
	struct lane *owner;
	struct stripe *next;
	struct stripe_params p;
	bool running;              /* START was sent */
	bool ended;                /* ABORT was sent; whatever arrives is thrown away */
	uint64_t processes;        /* divisor of an average */
	unsigned attached;         /* sessions */
	bool departed;             /* a rank said GOODBYE after START: no operation can complete any more */
	unsigned departed_rank;    /* which */
	uint64_t departed_ack;     /* it has the results of all operations below; the least, if there are several */
	uint64_t stable;           /* every rank has the results of all operations below */
	struct session **sessions; /* [world_size], NULL: not attached */
	struct slot *slots;        /* [slots_n * p.priorities], those of priority 0 first */
	unsigned slots_n;          /* of each priority */
	struct slot *free[FRAME_PRIORITIES];
	struct slot **chains; /* [mask + 1] */
	unsigned mask;
	unsigned fetching[FRAME_PRIORITIES]; /* slots whose result was asked for */
	uint64_t *bits;                      /* all slots' bit sets */
	unsigned at_stable;                  /* ranks whose `done` equals `stable` */
	unsigned stable_waiters;             /* ranks that want to hear when all have what they have */
	size_t stride;                       /* bytes of an accumulator and of a stash entry */
	uint64_t chunks, operations;         /* as in struct lane_report_stripe */
	uint64_t waited_until_ms;            /* up to here it is counted who was waited for */

	/* The chunk that was the oldest one in the making when a tick last looked for one; see stripe_late.c. */
	struct stripe_watch {
		const struct slot *slot; /* NULL: there was none */
		uint64_t seq;
		uint32_t chunk;
		uint64_t since_ms, notified_ms;
		bool reported; /* the registry knows */
	} watch;

	/* Which reducers live, as its ranks have said: the maximum over all of them. Chunks come in one view, and when
	 * it changes none comes until all ranks have said the same; see stripe_view.c. */
	struct control_view view;
	uint64_t view_number;
};

enum rx_mode {
	RX_CONTROL,  /* payload of a control frame, into control_in */
	RX_ADD,      /* contribution, into the accumulator or through the scratch */
	RX_STASH,    /* contribution, into the slot's stash, combined later in rank order */
	RX_RETAINED, /* the result itself, into the accumulator */
};

/* One result on its way to one rank, or the question for it. */
enum tx_kind { TX_RESULT, TX_HEADER, TX_FETCH };
struct tx_result {
	struct slot *slot;
	enum tx_kind kind; /* HEAD: without a payload */
};

/* A session's contributions and results of one priority, which come and go in one order. */
struct session_stream {
	unsigned outstanding; /* contributions begun whose result is not completely sent */
	uint64_t next_seq;    /* contributions come in the order (seq, chunk): the least one that may come next */
	uint64_t next_chunk;
	uint64_t started;          /* contributions in all */
	struct tx_result *results; /* ring of the stripe's slots_n */
	unsigned results_head, results_n;
	unsigned offered; /* of those, the first, given out by the last send target */
};

struct session {
	struct stripe *stripe;
	struct session *ready_next;
	bool ready;
	void *user;
	unsigned rank;
	uint32_t peer_detect_ms;
	uint64_t last_rx_ms, last_tx_ms, linger_until_ms;
	uint64_t done;     /* the worker's ack: it has the results of all operations below */
	bool departed;     /* GOODBYE */
	bool draining;     /* what arrives is thrown away; closed after the last bytes are out */
	bool lost;         /* the connection is gone */
	bool paused;       /* VIEW has come and RESUME has not gone out: nothing may come or go */
	bool waits_stable; /* wants to hear when all ranks have what it has */
	bool view_due, resume_due, ping_due, query_due; /* frames to be queued when control is empty */
	uint64_t view;                                  /* number of the one it last said */
	uint64_t start[FRAME_PRIORITIES];               /* and where it can begin again */
	unsigned outstanding;                           /* of all streams */
	struct lane_count count;
	struct session_stream streams[FRAME_PRIORITIES];

	/* receiving: raw holds raw_have bytes of a header; when it was complete, `payload_left` payload bytes follow */
	uint8_t raw[FRAME_HEADER];
	unsigned raw_have;
	unsigned controls; /* frames without a chunk since the last tick */
	struct frame in;
	uint32_t payload_left;
	enum rx_mode mode;
	struct slot *slot;
	struct slot_input input;
	uint32_t pos;     /* RX_ADD: whole elements consumed; else bytes received */
	uint8_t carry[8]; /* RX_ADD: first bytes of an element whose rest has not come yet */
	unsigned carry_n;
	size_t target_len; /* payload bytes the last recv target had room for */
	bool target_direct;
	XXH3_state_t *sum; /* with checksum: over the payload so far; owned */

	/* sending: control frames go out between results, results of a higher priority before those of a lower one */
	unsigned control_len, control_off; /* bytes control_off..control_len of control are still to be sent */
	unsigned control_inflight;         /* of those, given out by the last send target */
	struct tx_result *results;         /* of all streams; owned */
	unsigned results_n;                /* of all streams */
	uint32_t result_off;               /* bytes that are sent of the first result of .. */
	unsigned partial;                  /* .. this priority */

	/* seldom touched, and so behind what every chunk touches: with many ranks that is what the caches can hold */
	char label[128];
	struct lane_count second_start, second; /* the count when the second began, and what the last one brought */
	uint8_t control_in[FRAME_CONTROL_MAX];  /* payload of a control frame that comes in */
	uint8_t control[SESSION_CONTROL];       /* control frames that go out */
};

/* stripe.c */
struct stripe *stripe_find(struct lane *l, uint64_t job, unsigned lane);
int stripe_new(struct stripe **ret, struct lane *l, const struct stripe_params *p, struct rs_err *e);
void stripe_free(struct stripe *st);
/* The slot of a contribution's chunk, made when it is the first. Errors: RS_EPROTO, RS_EMISMATCH with a sentence. */
int stripe_open_slot(struct stripe *st, const struct frame *f, unsigned rank, struct slot **ret, struct rs_err *e);
/* rank's contribution to slot is complete; the last one sends the result on its way. */
int stripe_contribution_complete(struct stripe *st, struct slot *slot, unsigned rank, struct rs_err *e);
struct slot **stripe_chain(struct stripe *st, uint64_t seq, uint32_t chunk);

/* stripe_known.c */
/* The result stands in the slot: it goes to all ranks when it is its turn. */
void stripe_send_result(struct stripe *st, struct slot *slot);
/* All ranks have contributed, some by saying that they have the result. */
void stripe_complete_retained(struct stripe *st, struct slot *slot);
/* The result that was asked for stands in the slot. */
void stripe_retained_complete(struct stripe *st, struct slot *slot);
/* Is there a rank, besides one, that can be asked for the result? */
bool stripe_find_holder(const struct stripe *st, const struct slot *slot, unsigned besides, unsigned *ret);
/* rank has left: what it was asked for others are asked for. */
void stripe_refetch(struct stripe *st, unsigned rank);
/* The slot whose result rank was asked for with FETCH; NULL. */
struct slot *stripe_fetched_slot(struct stripe *st, const struct frame *f, unsigned rank);

/* stripe.c again */
/* All slots become free. */
void stripe_clear(struct stripe *st);
/* The code for what makes this reducer unable to go on with the job, while others may be. */
int stripe_loss_code(const struct stripe *st);
/* Does somebody need something of a rank that has the results of all operations below ack, and leaves? */
bool stripe_needs_rank(const struct stripe *st, unsigned rank, uint64_t ack);
void stripe_result_sent(struct stripe *st, struct slot *slot);
/* The job cannot go on: tells the registry and all sessions. */
void stripe_fail(struct stripe *st, const struct rs_err *why);
/* ABORT to all sessions, no event. */
void stripe_end(struct stripe *st, const struct rs_err *why);
/* rank has the results of all operations below ack. */
void stripe_acked(struct stripe *st, struct session *s, uint64_t ack);
/* Somebody has left, or has more results. */
void stripe_find_stable(struct stripe *st);
/* s wants to hear when all ranks have what it has. */
void stripe_request_stable(struct stripe *st, struct session *s);

/* stripe_view.c */
/* A rank has left in good order. */
void stripe_rank_departed(struct stripe *st, struct session *s, uint64_t ack);
/* Have all ranks contributed that have not left, or left before the operation was done? */
bool stripe_is_full(const struct stripe *st, const struct slot *slot);
/* s has said which reducers live. Errors: RS_EPROTO. */
int stripe_take_view(struct stripe *st, struct session *s, const struct control_view *v, struct rs_err *e);
/* All ranks have said the same view, and nothing of the one before is on its way: RESUME. */
void stripe_try_resume(struct stripe *st);

/* stripe_late.c */
/* On every tick: tells the ranks that wait for whom they wait. */
void stripe_watch_late(struct stripe *st, uint64_t now_ms);
/* rank's contribution to slot is complete; `last`: and with it the chunk. */
void stripe_count_contribution(struct stripe *st, const struct slot *slot, unsigned rank, bool last);
/* The oldest chunk that is not complete; NULL. */
const struct slot *stripe_oldest(const struct stripe *st);
/* Has rank not begun its part of it, or not come to the end of it? */
bool stripe_is_missing(const struct stripe *st, const struct slot *slot, unsigned rank);
/* Whatever has waited up to now has not: it is gone, or this process stood still. */
void stripe_watch_restart(struct stripe *st);

/* "rank 3" or "rank 3 (processes 6-7 on host b)", into buf. */
const char *stripe_rank_name(const struct stripe *st, unsigned rank, char *buf, size_t size);

/* report.c */
/* A second is over: what it brought is what sessions have counted since the last call. */
void lane_count_second(struct lane *l, uint64_t now_ms);

/* lane.c, session.c and session_tx.c */
void session_release(struct session *s);
void session_ready(struct session *s);
void session_queue_result(struct session *s, struct slot *slot, enum tx_kind kind);
/* Results that wait are forgotten, but one that is partly out. */
void session_forget_results(struct session *s);
/* Nothing more is expected from the peer; what is queued still goes out. */
void session_drain(struct session *s);
/* Queues a control frame of the given type, with a packed payload. */
bool session_queue_frame(struct session *s, unsigned type, const void *payload, uint32_t len);

#endif
