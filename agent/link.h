/* SPDX-License-Identifier: Apache-2.0 */
/* One connection of an exchange: what it has to send, what it expects, whether it is alive. Internal to the core
 * (exchange.c, exchange_text.c, link.c, link_control.c). */
#ifndef RS_AGENT_LINK_H
#define RS_AGENT_LINK_H

#include "agent/exchange.h"
#include "agent/window.h"
#include "proto/control.h"
#include "proto/frame.h"

enum {
	LINK_RETRY_MIN_MS = 50,
	LINK_RETRY_MAX_MS = 1000,
	LINK_FLUSH_MS = 1000,    /* for the last words and the peer's close */
	LINK_CONTROL_OUT = 2048, /* HELLO, a PING and ABORT fit, all with their headers */
};

enum link_state {
	LINK_WAITING,    /* for retry_ms; or, while open, for the driver to close the failed attempt */
	LINK_CONNECTING, /* for the driver */
	LINK_GREETING,   /* HELLO is out: for WELCOME or REFUSED */
	LINK_JOINED,     /* for START */
	LINK_RUNNING,    /* DATA may be sent when all links are here */
	LINK_ENDING,     /* the rest of a frame, then ABORT or GOODBYE go out; what comes in is discarded */
	LINK_CLOSED,     /* for the driver to close, if it is open */
};

/* A chunk that is being sent or waits for its result. */
struct flight {
	struct exchange_op *op;
	const void *payload;
	uint32_t payload_len;
	uint32_t chunk;
	uint32_t bytes; /* of its elements: what it takes of the window */
	uint8_t header[FRAME_HEADER];
};

/* The chunks of one priority on a link, which go in the order (seq, chunk) and whose results come in the same order.
 * Invariants: head <= sent <= tail <= head + window.most (as counters that wrap): [head, sent) is fully sent and waits
 * for results, [sent, tail) is encoded. op is the operation of the next chunk to encode, which is chunk and belongs to
 * own[own_at]; NULL when no submitted operation of this priority has one. */
struct stream {
	struct exchange_op *op;
	uint64_t chunk;
	unsigned own_at;
	uint32_t head, sent, tail;
	struct flight *ring;
};

/* Invariants: chunks and flying are the sums over all streams; of the flight `sent` of the stream `partial` the first
 * sent_off bytes are out, and while sent_off > 0 control bytes and other streams wait. */
struct link {
	struct exchange *x;
	unsigned reducer; /* index in cfg->reducers */
	unsigned lane;
	enum link_state state;
	bool open; /* the driver has, or is making, a connection */

	const uint16_t *own; /* the shards that live here, ascending */
	unsigned own_n;

	struct stream streams[FRAME_PRIORITIES]; /* by priority */
	uint32_t mask;                           /* of their rings */
	uint32_t chunks;                         /* of [head, tail) of all streams */
	uint64_t flying;                         /* and their bytes */
	uint32_t sent_off;
	unsigned partial;
	struct window window;
	bool wants_signal; /* the window's round is over */
	unsigned control_len, control_off;

	/* incoming: a header (payload_left == 0) or the payload of `frame` */
	unsigned header_have;
	uint32_t payload_left;
	uint8_t *payload; /* where the next byte goes */
	struct frame frame;

	uint64_t since_ms; /* CONNECTING, GREETING: when that began */
	uint64_t last_rx_ms, last_tx_ms;
	uint64_t retry_ms; /* LINK_WAITING: when to try again */
	uint32_t backoff_ms;
	uint32_t peer_detect_ms;
	unsigned tries;
	char reason[CONTROL_MESSAGE]; /* of the last failed try */

	struct control_waiting waiting; /* the last one */

	uint8_t header[FRAME_HEADER];
	uint8_t control_in[FRAME_CONTROL_MAX];
	uint8_t control_out[LINK_CONTROL_OUT];
};

struct exchange {
	const struct rs_config *cfg;
	struct exchange_options opt; /* job and label point to the copies below */
	char job[RS_NAME_MAX];
	char label[CONTROL_LABEL];
	uint64_t digest;

	enum exchange_state state;
	struct rs_err err;
	struct rs_err farewell; /* what ABORT says: err, with this rank's name where the cause is local */
	uint64_t connect_by_ms, flush_by_ms, next_ms;
	bool sweep;

	/* the operations that are not done, in the order of seq */
	struct exchange_op *first, *last;
	uint64_t next_seq;
	_Atomic uint64_t ops_done; /* may be read by any thread */

	/* How far links may be apart, in chunks; see in_step(). By priority: where the next operation begins, and a
	 * position that no link has yet to pass. */
	uint64_t spread;
	uint64_t next_position[FRAME_PRIORITIES], floor[FRAME_PRIORITIES];
	bool held; /* a link had to wait for another since the last result */

	unsigned links_n, running_n; /* running_n links have had START */
	struct link *links;
	struct flight *flights; /* of all rings of all streams */
	uint16_t *shards;       /* of all own lists */
};

/* link.c */
void link_offer(struct link *l, struct exchange_op *op);             /* a new operation, the last one so far */
bool link_holds(const struct link *l, const struct exchange_op *op); /* a chunk of op is here, without a result */
unsigned link_send_target(struct link *l, struct iovec *iov, unsigned max);
void link_sent(struct link *l, size_t n, uint64_t now_ms);
bool link_has_output(const struct link *l);
unsigned link_recv_target(struct link *l, struct iovec iov[2]);
void link_received(struct link *l, size_t n, uint64_t now_ms);
void link_reset(struct link *l); /* forgets what was under way on the connection */

/* link_control.c: control frames */
void link_queue_hello(struct link *l);
void link_queue_abort(struct link *l, const struct rs_err *why);
void link_queue_bare(struct link *l, enum frame_type type); /* PING, GOODBYE */
void link_control(struct link *l, uint64_t now_ms);         /* l->frame, a control frame, is complete */
void link_violation(struct link *l, uint64_t now_ms, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* exchange.c */
void link_retry(struct link *l, uint64_t now_ms); /* the attempt failed for l->reason */
void link_lost(struct link *l, const char *reason, uint64_t now_ms);
void exchange_link_running(struct exchange *x, uint64_t now_ms); /* one more link has had START */
/* Begins the end. `local`: the cause was found here, so that what other ranks read begins with this rank's name.
 * from: the link that needs no last words since it failed or brought the news; may be NULL. */
void exchange_fail(struct exchange *x, const struct rs_err *why, bool local, struct link *from, uint64_t now_ms);
void exchange_op_done(struct exchange *x, struct exchange_op *op); /* its last result stands */

/* exchange_text.c */
const char *op_text(const struct exchange_op *op, char *buf, size_t size); /* "all-reduce 812 (layer1.weight)" */
int connect_timeout_text(const struct exchange *x, struct rs_err *e);
int op_timeout_text(const struct exchange *x, const struct exchange_op *op, struct rs_err *e);

static inline const struct rs_reducer *link_reducer(const struct link *l)
{
	return &l->x->cfg->reducers[l->reducer];
}

#endif
