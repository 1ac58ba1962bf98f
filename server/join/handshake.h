/* SPDX-License-Identifier: Apache-2.0 */
/* Who is this? The first frames of a connection, without any I/O: a driver (greeting_tcp.c, the simulator) asks where
 * the next bytes go, which is never beyond the frame that is being read, says how many came, and does what it is told.
 *
 *     len = handshake_target(&h, &at); n = recv(at, len); step = handshake_received(&h, n, &res);
 *
 * The happy path is: HELLO -> (CHALLENGE -> PROOF, where the job has a secret) -> HANDSHAKE_ADMIT, and whose connection
 * it is decides whether that worker may join. Failure modes: a frame that is damaged, too long, or not the one that
 * belongs here; a name that may not join the job; a job without a secret, or a proof that is wrong: HANDSHAKE_REFUSED,
 * with the sentence for the peer and the log. Deadlines are the driver's. One thread owns it.
 *
 * What is proven: proto/README.md, "Authentication". A challenge's nonce is used for one HELLO, so a PROOF that was
 * recorded fits no other connection. Both proofs are computed when the challenge is made, and the secret forgotten. */
#ifndef RS_SERVER_JOIN_HANDSHAKE_H
#define RS_SERVER_JOIN_HANDSHAKE_H

#include "common/auth.h"
#include "common/error.h"
#include "proto/control.h"

enum {
	HANDSHAKE_PAYLOAD_MAX = FRAME_CONTROL_MAX + 1, /* most bytes that one of them allocates */
	HANDSHAKE_FRAME_MAX = FRAME_HEADER + FRAME_CONTROL_MAX,
};

/* What is asked of those who come; the same for all connections of a driver, which keeps it. The functions must not
 * call the handshake. Each fills *refused when it returns an error, which is its code. */
struct handshake_policy {
	/* May a peer join this job, which its channel knows by the name `peer`: that of the client certificate that it
	 * has shown, valid for the call, NULL when it has shown none? Asked once, about a HELLO that is well-formed.
	 * NULL: who the peer is does not matter. */
	int (*may_join)(void *ctx, const char *peer, const struct control_hello *hello,
			struct control_refused *refused);
	/* The secret of the job. NULL: none is asked for. */
	int (*secret)(void *ctx, const struct control_hello *hello, struct auth_secret *ret,
		      struct control_refused *refused);
	/* n random bytes that nobody can guess; needed where there is `secret`. */
	int (*random)(void *ctx, void *buf, size_t n, struct rs_err *e);
	void *ctx;
};

/* What the connection's channel says of itself; borrowed until the handshake's end. All zero: it is plain. */
struct handshake_channel {
	const char *peer;       /* the name that the peer has proven to the channel; NULL: none */
	const uint8_t *binding; /* at most AUTH_BINDING_MAX bytes that only its two ends know, for the proofs */
	size_t binding_len;
};

enum handshake_step {
	HANDSHAKE_MORE,    /* read on */
	HANDSHAKE_SEND,    /* send res->frame, then read on */
	HANDSHAKE_ADMIT,   /* res->hello is who it is; nothing more is to be read here */
	HANDSHAKE_REFUSED, /* res->refused is to be sent, then the connection closes */
};

struct handshake_result {
	struct control_hello hello;     /* ADMIT */
	struct control_welcome welcome; /* ADMIT: what WELCOME has to prove; its detect_ms is left to the driver */
	struct control_refused refused; /* REFUSED */
	uint8_t frame[FRAME_HEADER + CONTROL_PROOF_LEN]; /* SEND */
	uint32_t frame_len;
};

/* Embedded by the driver's connection. Invariant: payload is NULL exactly while the header is not complete; then it has
 * room for frame.payload_len bytes, and one more so that an empty one has an address too. */
struct handshake {
	const struct handshake_policy *policy;
	struct handshake_channel channel;
	uint8_t head[FRAME_HEADER];
	uint32_t have; /* bytes of the frame that is being read */
	struct frame frame;
	uint8_t *payload;    /* owned */
	struct claim *claim; /* who wants to be proven by PROOF, which comes next; NULL: HELLO does; owned */
};

void handshake_init(struct handshake *h, const struct handshake_policy *policy);
/* Before the first frame. */
void handshake_set_channel(struct handshake *h, const struct handshake_channel *channel);
/* May be called more than once. */
void handshake_close(struct handshake *h);

/* Where the next bytes go, and how many of them at the most, which is at least one. Until ADMIT or REFUSED. */
size_t handshake_target(const struct handshake *h, uint8_t **ret_at);
/* n > 0 bytes, no more than handshake_target said, stand there. */
enum handshake_step handshake_received(struct handshake *h, size_t n, struct handshake_result *ret);

/* What the peer has yet to say, for sentences: "HELLO" or "PROOF". */
const char *handshake_missing(const struct handshake *h);

/* The refusal for this reason; the peer may come again where memory or time was short. */
struct control_refused handshake_refusal(const struct rs_err *why);
/* Why a peer goes that has yet to say something: what handshake_missing says, or what the channel needs before. Late:
 * it was waited for so long. Broken off: it closed the connection. Displaced: another one gets its place, since there
 * are no others, as the end of a sentence says; it may come again. */
struct control_refused handshake_refusal_timeout(const char *lacks, uint32_t waited_ms);
struct control_refused handshake_refusal_closed(const char *lacks);
struct control_refused handshake_refusal_displaced(const char *lacks, const char *why);
/* The frame that says so, in at most HANDSHAKE_FRAME_MAX bytes; returns its length. */
uint32_t handshake_pack_refused(uint8_t *out, const struct control_refused *refused);

#endif
