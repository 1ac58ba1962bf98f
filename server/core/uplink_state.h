/* SPDX-License-Identifier: Apache-2.0 */
/* The struct of an uplink, for the files of the core. */
#ifndef RS_SERVER_CORE_UPLINK_STATE_H
#define RS_SERVER_CORE_UPLINK_STATE_H

#include "server/core/stripe.h"
#include "server/core/uplink.h"

enum {
	UPLINK_RETRY_MIN_MS = 50,
	UPLINK_RETRY_MAX_MS = 1000,
	UPLINK_DETECT_MIN_MS = 400, /* as LINK_DETECT_MIN_MS of a worker */
	/* HELLO or PROOF; VIEW; LATE; PINGs */
	UPLINK_CONTROL = 5 * FRAME_HEADER + CONTROL_HELLO_LEN + CONTROL_VIEW + CONTROL_MESSAGE,
};

#define UPLINK_NO_VIEW UINT64_MAX

enum uplink_state {
	UPLINK_IDLE,      /* without a connection; the next attempt is at retry_ms */
	UPLINK_OPENING,   /* the driver connects */
	UPLINK_HANDSHAKE, /* HELLO is sent */
	UPLINK_JOINED,    /* waits for START */
	UPLINK_RUNNING,   /* chunks may be sent if `view` is that of the stripe */
	UPLINK_BROKEN,    /* chunks were on their way: waits for the next view, or for the end of the job here */
};

/* The sums of one priority. Slots from `first` on are to be sent, in this order. */
struct uplink_queue {
	struct slot *first, *last;
	unsigned outstanding; /* chunks that are sent, or begun, and have no result */
};

/* Invariants: outstanding is the sum over the queues; sent_off bytes of the first slot of
 * the queue `partial` are sent. A slot is in at most one queue, and then its `uplink` is
 * SLOT_UPLINK_QUEUED. */
struct uplink {
	struct uplink *next;   /* of the stripe */
	struct stripe *stripe; /* NULL: it is gone, and the driver has to close */
	struct lane *owner;
	struct uplink *ready_next;
	bool ready;
	unsigned reducer, lane; /* of the home */
	unsigned group;         /* for which this reducer relays */
	enum uplink_state state;
	bool open; /* the driver has, or is making, a connection */
	void *user;
	uint64_t view; /* in which the home takes chunks; UPLINK_NO_VIEW: in none yet */
	bool view_due;
	struct frame late_of;     /* LATE: the chunk whose sum lacks ranks of the group .. */
	struct control_late late; /* .. and which; missing_all 0: nothing is to be said */
	uint64_t last_rx_ms, last_tx_ms, retry_ms;
	uint64_t since_ms;   /* UPLINK_HANDSHAKE, UPLINK_JOINED: when HELLO was sent */
	uint64_t failing_ms; /* since when it does not work although it should; 0: it works */
	uint32_t backoff_ms, peer_detect_ms;
	char why[200]; /* it failed last */
	struct uplink_queue queues[FRAME_PRIORITIES];
	unsigned outstanding, window;
	unsigned partial;
	uint32_t sent_off;

	/* receiving: a header, or payload_left bytes of `in` at `at` */
	uint8_t raw[FRAME_HEADER];
	unsigned raw_have;
	struct frame in;
	uint32_t payload_left;
	uint8_t *at;
	struct slot *slot; /* whose result comes; NULL: control frame, or it is discarded */
	bool skip;         /* what comes is discarded */

	/* for the proof of both ends */
	uint8_t hello[CONTROL_HELLO_LEN];
	uint32_t hello_len;
	uint8_t binding[AUTH_BINDING_MAX];
	size_t binding_len;
	uint8_t home_mac[AUTH_MAC];
	bool proven;

	unsigned control_len, control_off;
	uint8_t control_in[FRAME_CONTROL_MAX];
	uint8_t control[UPLINK_CONTROL];
};

/* uplink.c */
/* Returns whether the home has to do something for this reducer. */
bool uplink_is_needed(const struct uplink *u);
/* Queues the bytes of a frame; they are left out if there is no room. */
void uplink_queue_bytes(struct uplink *u, const uint8_t *frame, uint32_t len);
void uplink_ready(struct uplink *u);
/* Queues a control frame; it is left out if there is no room. */
void uplink_queue_frame(struct uplink *u, unsigned type, const uint8_t *payload, uint32_t len);
/* The connection is of no use any more. */
void uplink_fail(struct uplink *u, uint64_t now_ms, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* uplink_join.c */
/* Queues HELLO. Errors: RS_EIO. */
int uplink_hello(struct uplink *u, struct rs_err *e);
/* CHALLENGE, WELCOME, REFUSED or START has come. Returns false if it may not come now. */
bool uplink_join(struct uplink *u, uint64_t now_ms);

/* uplink_tx.c has uplink_connected, uplink_send_target, uplink_sent, uplinks_slept and
 * uplinks_tick, and uplink_rx.c uplink_recv_target and uplink_received. */

#endif
