/* SPDX-License-Identifier: Apache-2.0 */
/* The struct of a session, and the functions on it that only the core uses. lane.h has
 * the others. */
#ifndef RS_SERVER_CORE_SESSION_H
#define RS_SERVER_CORE_SESSION_H

#include "proto/control.h"
#include "server/core/count.h"
#include "server/core/lane.h"
#include "server/core/slot.h"

#include <xxhash.h>

struct stripe;

enum {
	SESSION_SMALL = 9000, /* bytes: a session that has received fewer has received no large packet */
	SESSION_WORKED = 8,   /* slots of one session_received whose time is counted */
	/* Bytes of the queue of control frames. It has room for WELCOME, one WAITING,
	 * START or two PINGs, a VIEW, a LOAD, a CREDIT for each priority, and ABORT,
	 * which is the longest because of its sentence. */
	SESSION_CONTROL = 2 * (FRAME_HEADER + CONTROL_MESSAGE) + 2 * CONTROL_CAUSE +
			  (7 + FRAME_PRIORITIES) * FRAME_HEADER + CONTROL_START_LEN + CONTROL_VIEW + CONTROL_LOAD_LEN,
};

/* Where the payload of the current frame goes. */
enum rx_mode {
	RX_CONTROL,  /* a control frame, into control_in */
	RX_ADD,      /* a contribution, into the accumulator or through the scratch */
	RX_STASH,    /* a contribution, into the slot's stash; it is combined later in the order of ranks */
	RX_RETAINED, /* a retained result, into the accumulator */
	RX_PROBE,    /* nowhere: only their number counts */
	RX_SKIP,     /* nowhere: it belongs to an earlier view */
	RX_HELLO,    /* into control_in; the session has ended, and HELLO is for the next handshake */
};

/* Whether large messages pass both ways; asked on connections that bring this reducer
 * back. */
enum session_probe {
	SESSION_PROBE_NONE,   /* it is not asked, or they do */
	SESSION_PROBE_WAITS,  /* for the worker's PROBE */
	SESSION_PROBE_ANSWER, /* PROBE is being sent back: echo_off of its echo_len bytes are sent */
	SESSION_PROBE_SENT,   /* waits for the worker's second PROBE: it has the answer */
	SESSION_PROBE_DONE,   /* they do; LANE_PROVEN is reported until START, since it can get lost */
};

enum tx_kind {
	TX_RESULT,
	TX_HEADER, /* a result without a payload */
	TX_FETCH,  /* the request for a retained result */
};

/* One queued result, or one queued FETCH. */
struct tx_result {
	struct slot *slot;
	enum tx_kind kind;
};

/* The contributions and results of one session and one priority. They come and go in one
 * order. */
struct session_stream {
	unsigned outstanding; /* started contributions whose result is not completely sent */
	uint64_t next_seq; /* contributions come in the order (seq, chunk); this is the lowest one that may come next */
	uint64_t next_chunk;
	uint64_t started;          /* number of contributions */
	uint64_t added, credited;  /* FEATURE_DECOUPLED: those that are complete; those that CREDIT has told */
	struct tx_result *results; /* ring with the stripe's slots_n entries */
	unsigned results_head, results_n;
	unsigned offered; /* results at the head of the ring that are in the last send target */
};

/* How busy a connection is. Times are in 1/1000. */
struct session_load {
	uint32_t up;           /* as the worker said last */
	bool up_known;         /* it said it .. */
	uint64_t up_at_ms;     /* .. at this time */
	uint32_t down;         /* in the last complete interval of the driver's samples */
	bool down_known;       /* there were two samples */
	uint64_t busy_us;      /* as in the last sample */
	uint64_t busy_from_ms; /* time of that sample; 0: none yet */
};

/* One connection of one rank after the handshake. Invariant: outstanding and results_n
 * are the sums over the streams. Once `draining`, received bytes are discarded and
 * nothing new is queued. A session with `lost` is closed. */
struct session {
	struct stripe *stripe;
	struct session *ready_next;
	bool ready;
	void *user;
	unsigned rank;  /* of an uplink: its place behind the ranks */
	unsigned group; /* as in session_params */
	unsigned relay;
	uint32_t peer_detect_ms;
	uint64_t last_rx_ms, last_tx_ms, linger_until_ms;
	uint64_t last_ack_ms; /* `direct`: when the kernel of the worker's machine is known to have acknowledged */
	bool keeps;           /* as in session_params; false once the connection cannot be used again */
	bool direct;          /* as in session_params */
	double weight;        /* the same */
	bool stopped;         /* LANE_STOPPED was reported, and nothing was heard since */
	uint64_t done;        /* acknowledgement: the worker has the results of all operations below this number */
	bool departed;        /* GOODBYE or ABORT came */
	bool draining;        /* received bytes are discarded; the session closes after its last bytes are sent */
	bool lost;            /* the connection is broken or closed */
	bool paused;          /* VIEW came and RESUME is not sent: no chunk may come or go */
	bool waits_stable;    /* the worker wants a PING when all ranks have what it has */
	bool start_due;       /* an uplink that came after START */
	bool view_due, resume_due, ping_due, query_due,
	    credit_due;                   /* frames to queue when no control frame is queued */
	uint64_t question;                /* of lane_ask(), to be sent with a PING; 0: none */
	uint64_t asked;                   /* the last one that was sent, until it is answered; 0: none */
	uint64_t view;                    /* number of the view in its last VIEW */
	uint64_t start[FRAME_PRIORITIES]; /* position in that VIEW from which it can begin again */
	uint64_t begun[FRAME_PRIORITIES]; /* as in struct control_view */
	uint32_t lead;                    /* in that VIEW; 0: that of the configuration */
	uint64_t features;                /* what its job uses, in that VIEW */
	unsigned outstanding;
	struct lane_count count;
	struct slot *worked[SESSION_WORKED]; /* slots that the last session_received worked on; more are left out */
	unsigned worked_n;
	struct session_stream streams[FRAME_PRIORITIES];

	/* Receiving: raw contains raw_have bytes of a header. After a complete header,
	 * payload_left bytes follow. */
	uint8_t raw[FRAME_HEADER];
	unsigned raw_have;
	unsigned controls; /* frames without a chunk since the last tick */
	struct frame in;
	uint32_t payload_left;
	enum rx_mode mode;
	struct slot *slot;
	struct slot_input input;
	uint32_t pos;                 /* RX_ADD: whole elements consumed; other modes: bytes received */
	uint8_t carry[SLOT_UNIT_MAX]; /* RX_ADD: first bytes of a unit whose rest has not come yet */
	unsigned carry_n;
	size_t target_len; /* payload bytes for which the last receive target had room */
	bool target_direct;
	XXH3_state_t *sum; /* of a chunk with CHECKED: over the payload so far; owned */

	/* Sending: control frames go out between results, results of a higher priority
	 * before those of a lower one. */
	unsigned control_len, control_off; /* bytes control_off to control_len of `control` are unsent */
	unsigned control_inflight;         /* unsent control bytes that are in the last send target */
	enum session_probe probe;
	uint32_t echo_len, echo_off;
	uint8_t echo[FRAME_HEADER];
	struct tx_result *results; /* rings of all streams; owned */
	unsigned results_n;
	uint32_t result_off; /* sent bytes of the first result of the priority `partial` */
	unsigned partial;

	/* These fields are rarely used. They are behind those that every chunk uses, for
	 * the sake of the caches with many ranks. */
	char label[128];
	struct control_late late; /* of an uplink: the last LATE; missing_all 0: none */
	uint32_t rtt_us, min_rtt_us;
	struct session_load load;               /* see stripe_load.h */
	struct lane_count second_start, second; /* the count at the start of this second; the last complete second */
	uint8_t control_in[FRAME_CONTROL_MAX];  /* payload of the control frame that is being received */
	uint8_t control[SESSION_CONTROL];       /* queue of control frames */
};

/* session_queue.c */
/* Adds the session to the lane's list of ready sessions. */
void session_ready(struct session *s);
/* Queues a control frame of a type with a packed payload. Returns false if the queue has
 * no room. */
bool session_queue_frame(struct session *s, unsigned type, const void *payload, uint32_t len);
/* Queues the result in a slot, its header alone, or FETCH. */
void session_queue_result(struct session *s, struct slot *slot, enum tx_kind kind);
/* A contribution is in its sum, or in the slot's stash: its rank gets CREDIT, unless the
 * result is sent before. */
void session_added(struct session *s, unsigned priority);
/* Removes a result from the counts. It reached its rank, or it will not be sent. */
void session_uncount_result(struct session *s, struct session_stream *t, const struct tx_result *r);
/* Removes all queued results except one that is partly sent. */
void session_drop_results(struct session *s);
/* Starts to drain: nothing more is expected from the peer, and queued bytes still go
 * out. */
void session_drain(struct session *s);
/* Reports LANE_PROVEN. */
void session_report_proven(struct session *s);

/* session_tx.c */
/* Removes the first result of a stream, which is completely sent or will never be. */
void session_pop_result(struct session *s, struct session_stream *t);

#endif
