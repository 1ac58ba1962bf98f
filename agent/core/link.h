/* SPDX-License-Identifier: Apache-2.0 */
/* One connection of an exchange: what it has to send, what it expects, whether it is alive. Internal to the core
 * (exchange*.c, link*.c, stream.c, view.c). */
#ifndef RS_AGENT_CORE_LINK_H
#define RS_AGENT_CORE_LINK_H

#include "agent/core/exchange.h"
#include "agent/core/retain.h"
#include "agent/core/window.h"
#include "proto/control.h"
#include "proto/frame.h"

enum {
	LINK_RETRY_MIN_MS = 50,
	LINK_RETRY_MAX_MS = 1000,
	LINK_DETECT_MIN_MS = 400,  /* below it a peer's detection time would make heartbeats a load */
	LINK_LATE_MS = 2500,       /* how long a LATE is news: reducers say it once a second */
	LINK_LATE_WARN_MS = 10000, /* an operation that is as late is worth a warning, and there is one in that time */
	LINK_ABSENT_MS = 5000,     /* after which a job begins without a reducer, which may come later */
	LINK_FLUSH_MS = 1000,      /* for the last words and the peer's close */
	LINK_CONTROL_OUT = 2048,   /* HELLO, a PING and ABORT fit, or a VIEW, all with their headers */
	LINK_RETAINED = FRAME_PRIORITIES, /* the stream of results that a reducer has asked for */
	LINK_STREAMS
};

/* What a link's `view` is while it waits for RESUME. */
#define LINK_NO_VIEW UINT64_MAX

enum link_state {
	LINK_WAITING,    /* for retry_ms; or, while open, for the driver to close the failed attempt */
	LINK_CONNECTING, /* for the driver */
	LINK_HANDSHAKE,  /* HELLO is out: for WELCOME, REFUSED, or CHALLENGE before one of them */
	LINK_JOINED,     /* for START */
	LINK_RUNNING,    /* DATA may be sent when all links are here */
	LINK_LEAVING,    /* the reducer is dead in this job: the reason goes out to its other lanes, then WAITING */
	LINK_ENDING,     /* the rest of a frame, then ABORT or GOODBYE go out; what comes in is discarded */
	LINK_CLOSED,     /* for the driver to close, if it is open */
};

/* A chunk that is being sent or waits for its result; or, among the answers, a result that is being sent. */
struct outgoing {
	struct exchange_op *op; /* NULL when this rank has the result already: HAVE, and KEPT */
	uint64_t position;      /* counted over all operations of its priority */
	const void *payload;
	uint32_t bytes; /* of its elements: what it takes of the window */
	struct frame head;
	uint8_t header[FRAME_HEADER]; /* the same as it is sent */
};

/* The chunks of one priority on a link, which go in the order (seq, chunk) and whose results come in the same order.
 * Invariants: head <= sent <= tail <= head + window.most (as counters that wrap): [head, sent) is fully sent and waits
 * for results, [sent, tail) is encoded. op is the operation of the next chunk to encode, which is chunk and belongs to
 * own[own_at]; NULL when no submitted operation of this priority has one. After the loss of a reducer chunks are sent
 * again from a position that all ranks agree on: those below `replay_end` may have a result, which is kept, and those
 * whose operations are done are found by looking at every position from `replay` on. */
struct stream {
	struct exchange_op *op;
	uint64_t chunk;
	uint64_t replay, replay_end;
	unsigned own_at;
	uint32_t head, sent, tail;
	uint32_t mask; /* of the ring */
	struct outgoing *ring;
};

/* Invariants: chunks and flying are the sums over all streams; of the flight `sent` of the stream `partial` the first
 * sent_off bytes are out, and while sent_off > 0 control bytes and other streams wait. */
struct link {
	struct exchange *x;
	unsigned reducer; /* index in cfg->reducers */
	unsigned lane;
	enum link_state state;
	bool open;     /* the driver has, or is making, a connection */
	uint64_t view; /* RUNNING: the number of the view in which chunks may go; LINK_NO_VIEW: none until RESUME */
	bool view_due, settle_due, ping_due; /* frames to be sent when there is room for them */
	bool busy;                           /* the last try was answered: it takes no more for now, but it is there */
	bool ping_on_done;                   /* the reducer wants to hear when operations are done */
	bool proven;                         /* PROOF was sent; WELCOME has to say `answer` */

	const uint16_t *own; /* the shards that live here, ascending */
	unsigned own_n;

	struct stream streams[LINK_STREAMS]; /* by priority, then the answers */
	uint32_t chunks_in_flight;           /* of [head, tail) of all priorities */
	uint64_t bytes_in_flight;            /* and their bytes */
	uint32_t sent_off;
	unsigned partial_stream;
	uint8_t *saved; /* what is left of a frame that was under way when the view changed */
	uint32_t saved_off, saved_len;
	struct window window;
	bool wants_signal; /* the window's round is over */
	unsigned control_len, control_off;

	/* incoming: a header (payload_left == 0) or the payload of `frame` */
	unsigned header_have;
	uint32_t payload_left;
	uint8_t *payload; /* where the next byte goes */
	bool skip;        /* the payload is a result that this rank takes no more: thrown away */
	struct frame frame;

	uint64_t since_ms; /* CONNECTING, GREETING: when that began */
	uint64_t last_rx_ms, last_tx_ms;
	uint64_t retry_ms; /* LINK_WAITING: when to try again */
	uint32_t backoff_ms;
	uint32_t peer_detect_ms;
	unsigned tries;
	char reason[CONTROL_MESSAGE]; /* of the last failed try */

	struct control_waiting waiting; /* the last one */
	struct control_late late;       /* the last one, */
	uint64_t late_at_ms;            /* and when it came; 0: never */

	/* what is proven: the channel, and HELLO as it was sent */
	uint32_t binding_len, hello_len;
	uint8_t binding[AUTH_BINDING_MAX], hello[CONTROL_HELLO_LEN];
	uint8_t reducer_mac[AUTH_MAC];

	uint8_t header[FRAME_HEADER];
	uint8_t control_in[FRAME_CONTROL_MAX];
	uint8_t control_out[LINK_CONTROL_OUT];
};

/* What was heard when a reducer was lost. */
struct reducer_loss {
	uint64_t report; /* it said why itself, as the how-manieth; 0: it did not */
	uint64_t at_ms;
	char why[CONTROL_MESSAGE];
};

struct exchange {
	const struct rs_config *cfg;
	struct exchange_options opt; /* job and label point to the copies below */
	char job[RS_NAME_MAX];
	char label[CONTROL_LABEL];
	uint64_t digest;

	enum exchange_state state;
	struct rs_err err;
	struct rs_err inspect_error; /* code != 0: a contribution that must not be sent; the end, at the next tick */
	struct rs_err abort_reason;  /* what ABORT says: err, with this rank's name where the cause is local */
	uint64_t connect_by_ms, absent_by_ms, flush_by_ms, next_ms;
	bool links_changed;

	/* the operations that are not done, in the order of seq */
	struct exchange_op *first, *last;
	uint64_t next_seq;
	_Atomic uint64_t ops_done; /* may be read by any thread */

	/* How far links may be apart, in chunks; see in_step(). By priority: where the next operation begins, and a
	 * position that no link has yet to pass. */
	uint64_t max_lead;
	uint64_t next_position[FRAME_PRIORITIES], floor[FRAME_PRIORITIES];
	bool held_back; /* a link had to wait for another since the last result */

	unsigned links_n;
	struct link *links;
	struct outgoing *outgoing; /* of all rings of all streams */
	uint16_t *shards;          /* of all own lists */
	uint8_t *saved;            /* of all links */

	/* Which reducers live; see view.c. Without `retaining` all do, to the end. */
	bool retaining;
	struct control_view view;    /* what this rank last said; its `start` is this rank's own */
	uint64_t view_number;        /* of the same */
	uint16_t *owner, *lane_of;   /* [shards] while these live */
	struct reducer_loss *losses; /* [reducers] */
	uint64_t reports_n;          /* reducers that have said why, in all */
	struct retain retain;
	uint64_t stable;     /* all ranks have the results of all operations below, as reducers say */
	bool leaving;        /* goodbye waits for that */
	uint64_t warn_ms;    /* not before: of an operation that is late, */
	uint64_t warned_seq; /* nor of those below */
	bool ping_on_done;   /* some link was asked what is done here */
};

/* stream.c: which chunk goes next */
void link_add_op(struct link *l, struct exchange_op *op);             /* a new operation, the last one so far */
void link_remove_op(struct link *l, const struct exchange_op *op);    /* it is done, and still has a next one */
bool link_has_op(const struct link *l, const struct exchange_op *op); /* a chunk of op is here, without a result */
/* Encodes the stream's next chunk into its ring, if there is one and it may go. */
bool stream_next(struct link *l, unsigned priority);
/* Begins at this position. */
void stream_begin(struct link *l, unsigned priority, uint64_t position);
uint32_t stream_result_bytes(const struct exchange_op *op, uint32_t elems);

/* link.c */
unsigned link_send_target(struct link *l, struct iovec *iov, unsigned max);
void link_sent(struct link *l, size_t n, uint64_t now_ms);
bool link_has_output(const struct link *l);
unsigned link_recv_target(struct link *l, struct iovec iov[2]);
void link_received(struct link *l, size_t n, uint64_t now_ms);
void link_reset(struct link *l);  /* forgets what was under way on the connection */
void link_rewind(struct link *l); /* forgets all chunks; a frame that is partly out will be completed */

/* link_control.c: control frames */
int link_queue_hello(struct link *l, struct rs_err *e); /* RS_EIO: there are no random numbers */
void link_queue_abort(struct link *l, const struct rs_err *why);
void link_queue_empty(struct link *l, enum frame_type type); /* PING, GOODBYE */
void link_queue_due(struct link *l);                         /* what waited for control_out to be empty */
void link_control(struct link *l, uint64_t now_ms);          /* l->frame, a control frame, is complete */
void link_violation(struct link *l, uint64_t now_ms, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* exchange.c */
void link_retry(struct link *l, uint64_t now_ms); /* the attempt failed for l->reason */
/* RUNNING when all links of living reducers have had START. */
void exchange_check_running(struct exchange *x, uint64_t now_ms);
void exchange_raise_stable(struct exchange *x, uint64_t stable, uint64_t now_ms);
/* Begins the end. `local`: the cause was found here, so that what other ranks read begins with this rank's name.
 * from: the link that needs no last words since it failed or brought the news; may be NULL. */
void exchange_fail(struct exchange *x, const struct rs_err *why, bool local, struct link *from, uint64_t now_ms);
void exchange_op_done(struct exchange *x, struct exchange_op *op); /* its last result stands */

/* exchange_clock.c */
void exchange_check_ended(struct exchange *x); /* the end is reached when the last words are out */

/* view.c */
/* The link's connection is lost, or its reducer says why it can serve no longer (told). */
void link_lost(struct link *l, const char *reason, bool told, uint64_t now_ms);
/* An attempt to join has failed: another follows, or it is a loss where others have seen this rank join. */
void link_join_failed(struct link *l, const char *reason, uint64_t now_ms);
void view_started(struct link *l, uint64_t now_ms); /* START has come on it */
void view_drained(struct link *l, uint64_t now_ms); /* its reducer wants to stop */
void view_received(struct link *l, const struct control_view *v, uint64_t now_ms);
void view_resumed(struct link *l, const struct control_view *v, uint64_t now_ms);
/* Goes on without the reducers that could not be reached, if there is another one. */
void view_drop_unreached(struct exchange *x, uint64_t now_ms);
/* Hands every link its part of the shards. */
void view_assign_shards(struct exchange *x);

/* nonfinite.c: looks at a contribution before it is sent for the first time. False: nothing may be sent any more. */
bool exchange_op_inspect(struct exchange *x, struct exchange_op *op, const void *at, uint64_t first, uint32_t n);

/* exchange_text.c */
const char *op_text(const struct exchange_op *op, char *buf, size_t size); /* "all-reduce 812 (layer1.weight)" */
int connect_timeout_text(const struct exchange *x, struct rs_err *e);
int op_timeout_text(const struct exchange *x, const struct exchange_op *op, uint64_t now_ms, struct rs_err *e);
void late_text(const struct exchange *x, const struct link *l, uint64_t now_ms, char *buf, size_t size);

static inline uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline bool exchange_lives(const struct exchange *x, unsigned reducer)
{
	return x->view.lives[reducer] % 2 == 0;
}

static inline bool link_lives(const struct link *l)
{
	return exchange_lives(l->x, l->reducer);
}

static inline const struct rs_reducer *link_reducer(const struct link *l)
{
	return &l->x->cfg->reducers[l->reducer];
}

#endif
