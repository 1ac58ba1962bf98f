/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one link: a connection to one lane of a reducer, as the core sees it. */
#ifndef RS_AGENT_WORKER_CORE_LINK_H
#define RS_AGENT_WORKER_CORE_LINK_H

#include "agent/worker/core/exchange_state.h"
#include "agent/worker/core/lookahead.h"
#include "agent/worker/core/outgoing.h"
#include "agent/worker/core/window.h"
#include "proto/control.h"
#include "proto/frame.h"

enum {
	LINK_RETRY_MIN_MS = 50,
	LINK_RETRY_MAX_MS = 800,
	LINK_DETECT_MIN_MS = 400, /* a shorter detection time of a peer would make heartbeats a load */
	LINK_LATE_MS = 2500,      /* how long a LATE stays current; reducers repeat it once a second */
	LINK_ABSENT_MS = 5000,    /* then a job starts without an unreachable reducer, which may join later */
	LINK_REST_MS = 200,       /* all reducers lose a rank at about the same time; see view_drop_links() */
	LINK_FLUSH_MS = 1000,     /* for sending the last frames and for the peer's close */
	/* Bytes: VIEW, SETTLE, PING, NONFINITE, LOAD and ABORT fit, then HELLO and ABORT
	 * of the next generation. */
	LINK_CONTROL_OUT = 5312,
	LINK_RETAINED = FRAME_PRIORITIES, /* the stream of retained results that a reducer has asked for (FETCH) */
	LINK_STREAMS
};

/* Value of link.view while the link waits for RESUME. */
#define LINK_NO_VIEW UINT64_MAX

enum link_state {
	LINK_WAITING,    /* until retry_ms; while open: until the driver has closed the failed connection */
	LINK_CONNECTING, /* until the driver has connected */
	LINK_HANDSHAKE,  /* HELLO is sent; waits for WELCOME, REFUSED, or CHALLENGE before one of them */
	LINK_JOINED,     /* waits for START */
	LINK_RUNNING,    /* DATA may be sent when all links are in this state */
	LINK_LEAVING, /* the reducer is lost in this job: ABORT with the reason is being sent; then LINK_WAITING. If the
			 link `keeps` its connection, it stays open for LINK_REST_MS */
	LINK_ENDING,  /* the rest of a frame, then ABORT or GOODBYE are being sent; input is discarded. If the link
			 `keeps` its connection, it stays open afterwards */
	LINK_CLOSED,  /* the driver closes the connection if it is open */
};

/* Whether large messages pass on a connection that brings a reducer back. */
enum link_probe {
	LINK_PROBE_NONE, /* it is not tried, or they do */
	LINK_PROBE_DUE,  /* PROBE is to be sent after WELCOME, if the reducer can answer it */
	LINK_PROBE_SENT, /* waits for the reducer's PROBE */
};

/* Shards, ascending. */
struct shard_list {
	const uint16_t *shards;
	unsigned n;
};

/* How busy the connection is; see load.h. */
struct link_load {
	bool wanted;      /* the driver is to call exchange_load() */
	bool marked;      /* busy_us and from_ms are of this connection */
	uint64_t busy_us; /* as in the last call */
	uint64_t from_ms; /* time of that call */
	bool known;
	uint32_t up;              /* in 1/1000 of the time between the last two calls */
	struct control_load lane; /* the last LOAD of the reducer .. */
	uint64_t lane_at_ms;      /* .. and when it came; 0: never */
	uint64_t flying_from_ms;  /* since when chunks are in flight; 0: none is */
	uint64_t flying_ms;       /* time with chunks in flight in this interval, before that */
};

/* Invariants: chunks_in_flight and bytes_in_flight are the sums over [credited, tail) of
 * the streams of all priorities, and chunks_owed that over [head, tail). sent_off bytes
 * of the frame `sent` of the stream `partial_stream` are sent; while sent_off > 0 control
 * frames and other streams wait. saved_off <= saved_len, and control_off <=
 * control_len. */
struct link {
	struct exchange *x;
	unsigned reducer; /* index in params.reducers */
	unsigned lane;
	enum link_state state;
	bool open; /* the driver has, or is making, a connection */
	uint64_t
	    view; /* LINK_RUNNING: number of the view in which chunks may be sent; LINK_NO_VIEW: none until RESUME */
	bool view_due, settle_due, ping_due; /* VIEW, SETTLE or PING is to be sent when control_out is empty */
	bool nonfinite_due;                  /* the same for NONFINITE */
	bool load_due;                       /* the same for LOAD */
	bool busy;                           /* the last attempt was refused for now: the reducer is there */
	bool ping_on_done;                   /* the reducer wants a PING when operations are done */
	uint64_t question;                   /* the largest count of a PING of the reducer; PING repeats it */
	bool proven;                         /* PROOF was sent; WELCOME must contain reducer_mac */
	bool keeps;                          /* both ends can use the connection for the next generation */
	bool kept;                           /* HELLO went out behind frames of the last generation */
	bool stale; /* frames of the last generation may come, and are discarded up to the answer to HELLO */
	enum link_probe probe;

	struct shard_list own;     /* the shards that live here */
	struct shard_list relayed; /* those whose chunks come here if they go through relays */

	struct stream streams[LINK_STREAMS]; /* one for each priority, then LINK_RETAINED */
	uint32_t chunks_owed;                /* without a result */
	uint32_t ahead;                      /* most of them: what the reducer expects */
	uint32_t chunks_in_flight;
	uint64_t bytes_in_flight;
	uint32_t sent_off;
	unsigned partial_stream;
	uint8_t *saved; /* rest of a frame that was partly sent when the view changed */
	uint32_t saved_off, saved_len;
	struct window window;
	struct lookahead lookahead;
	bool wants_signal; /* a round of the window is over */
	struct link_load load;
	unsigned control_len, control_off;

	/* input: a header (payload_left == 0) or the payload of `frame` */
	unsigned header_have;
	uint32_t payload_left;
	uint8_t *payload; /* where the next byte goes */
	bool skip;        /* the payload is a result that this rank does not accept any more; it is discarded */
	struct frame frame;

	uint64_t since_ms; /* start of LINK_CONNECTING, LINK_HANDSHAKE or LINK_LEAVING */
	uint64_t last_rx_ms, last_tx_ms;
	uint64_t retry_ms; /* LINK_WAITING: time of the next attempt */
	uint32_t backoff_ms;
	uint32_t peer_detect_ms;
	unsigned tries;
	char reason[CONTROL_MESSAGE]; /* why the last attempt failed */
	uint64_t announced;           /* the features of HELLO */
	uint64_t offers;              /* LINK_JOINED, LINK_RUNNING: the features of WELCOME */
	uint64_t features;            /* LINK_RUNNING: those of START */

	struct control_waiting waiting; /* the last WAITING */
	struct control_late late;       /* the last LATE */
	uint64_t late_at_ms;            /* when it arrived; 0: never */

	struct outgoing *outgoing; /* memory of the rings if they are larger than configured; else NULL */
	uint32_t most_window;      /* the largest window that START may give: what HELLO has said */
	uint32_t rtt_us;           /* of the connection when it was made; 0: not known */
	bool paced;                /* as in struct window_signal */
	uint64_t estimate;         /* the same, of the last signal */

	char source[CONTROL_SOURCE]; /* address of this end; "": unknown */
	/* what the proofs cover: the channel binding, and HELLO as it was sent */
	uint32_t binding_len, hello_len;
	uint8_t binding[AUTH_BINDING_MAX], hello[CONTROL_HELLO_LEN];
	uint8_t reducer_mac[AUTH_MAC]; /* the proof that the reducer must send */

	uint8_t header[FRAME_HEADER];
	uint8_t control_in[FRAME_CONTROL_MAX];
	uint8_t control_out[LINK_CONTROL_OUT];
};

/* Returns whether the link's reducer lives in the current view. */
static inline bool link_lives(const struct link *l)
{
	return exchange_lives(l->x, l->reducer);
}

static inline const struct rs_reducer *link_reducer(const struct link *l)
{
	return &l->x->params->reducers[l->reducer];
}

static inline const char *link_address(const struct link *l)
{
	return exchange_params_address(l->x->params, link_reducer(l));
}

/* exchange_trace.c */
/* Records an event of the chunk of a frame, if the trace wants it. Only while there is a
 * trace. */
void link_record(struct link *l, enum trace_kind kind, const struct frame *f);

/* Records an event of the chunk of a frame, while there is a trace. */
static inline void link_trace(struct link *l, enum trace_kind kind, const struct frame *f)
{
	if (__builtin_expect(l->x->trace.to != NULL, 0))
		link_record(l, kind, f);
}

/* Returns whether the rest of a frame, a control frame or VIEW is to be sent. */
bool link_has_output(const struct link *l);
/* Returns whether a chunk of op without a result belongs to this link. */
bool link_has_op(const struct link *l, const struct exchange_op *op);
/* Drops everything that belongs to the connection: frames that are partly sent or
 * received. */
void link_reset(struct link *l);
/* Forgets everything that belongs to the job on the connection. */
void link_forget(struct link *l);
/* Discards frames of this generation from now on, also the rest of one that has begun. */
void link_turn_stale(struct link *l);
/* Empties all streams. The rest of a frame that is partly sent is saved and will still be
 * sent. */
void link_rewind(struct link *l);
/* The link waits and then tries again; l->reason says why. */
void link_retry(struct link *l, uint64_t now_ms);

#endif
