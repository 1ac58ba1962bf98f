/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of one connection, without I/O: it identifies the worker. A driver
 * (handshake_conn_uv.c, the simulator) asks where the next bytes go, receives them, and
 * follows the returned step. The bytes never go beyond the current frame.
 *
 *     len = handshake_target(&h, &at); n = recv(at, len); step = handshake_received(&h, n, &res);
 *
 * The happy path is: HELLO -> (CHALLENGE -> PROOF, if the job has a secret) ->
 * HANDSHAKE_ADMIT. The registry then decides whether the worker may join. A HELLO for
 * world size 0 only asks: it ends with WELCOME, HANDSHAKE_PROBED. Failure modes: the
 * frame is damaged, too long or of the wrong type; the certificate may not join the job;
 * the job has no secret, or the proof is wrong. They give HANDSHAKE_REFUSED with a
 * sentence for the peer and the log. The driver has the deadlines. One thread owns a
 * handshake.
 *
 * proto/README.md, "Authentication", says what is proven. The nonce of a challenge is
 * used for one HELLO, so a recorded PROOF is wrong on every other connection. Both proofs
 * are computed with the challenge, and the secret is erased. */
#ifndef RS_SERVER_JOIN_HANDSHAKE_H
#define RS_SERVER_JOIN_HANDSHAKE_H

#include "common/auth.h"
#include "common/error.h"
#include "proto/control.h"

enum {
	HANDSHAKE_PAYLOAD_MAX = FRAME_CONTROL_MAX + 1, /* most bytes that one handshake allocates */
	HANDSHAKE_FRAME_MAX = FRAME_HEADER + FRAME_CONTROL_MAX,
	/* Most bytes that are discarded before HELLO on a connection that was part of a
	 * job: more than the sockets hold of what a worker has sent before. */
	HANDSHAKE_DISCARD_MAX = 64 << 20,
};

/* The requirements for workers, the same for all connections of a driver, which owns it.
 * The functions must not call the handshake. A function that returns an error code also
 * fills *refused. */
struct handshake_policy {
	/* Checks that the owner of a client certificate with the name `peer` may join the
	 * job of a well-formed HELLO, and with which weight. `peer` is valid for the
	 * call; NULL: the peer has shown no certificate. Called once. NULL: no check. */
	int (*may_join)(void *ctx, const char *peer, const struct control_hello *hello, double *ret_weight,
			struct control_refused *refused);
	/* Returns the secret of the job. NULL: no secret is required. */
	int (*secret)(void *ctx, const struct control_hello *hello, struct auth_secret *ret,
		      struct control_refused *refused);
	/* Writes n unpredictable random bytes. Required with `secret`. */
	int (*random)(void *ctx, void *buf, size_t n, struct rs_err *e);
	void *ctx;
};

/* The properties of the channel (TLS), borrowed until the end of the handshake. All zero:
 * it is plain. */
struct handshake_channel {
	const char *peer;       /* the name in the peer's certificate; NULL: none */
	const uint8_t *binding; /* at most AUTH_BINDING_MAX bytes that only the two ends know, for the proofs */
	size_t binding_len;
};

enum handshake_step {
	HANDSHAKE_MORE,    /* receive more */
	HANDSHAKE_SEND,    /* send res->frame, then receive more */
	HANDSHAKE_ADMIT,   /* res->hello identifies the worker; the handshake receives nothing more */
	HANDSHAKE_PROBED,  /* send res->frame, then close the connection: the worker may join, but did not want to */
	HANDSHAKE_REFUSED, /* send res->refused, then close the connection */
};

/* The content of a step; each field says for which steps it is set. */
struct handshake_result {
	struct control_hello hello;     /* ADMIT; for the others only the job, "": not known yet */
	struct control_welcome welcome; /* ADMIT: the reducer's proof for WELCOME; the driver sets detect_ms */
	struct control_refused refused; /* REFUSED */
	double weight;                  /* ADMIT: access.weight */
	uint8_t frame[FRAME_HEADER + CONTROL_WELCOME_LEN]; /* SEND, PROBED */
	uint32_t frame_len;
};

/* Embedded in the driver's connection. Invariant: payload is NULL exactly while the
 * header is incomplete. Afterwards it has room for frame.payload_len bytes, and one more
 * so that an empty payload has an address too; with `skip` it has HANDSHAKE_PAYLOAD_MAX
 * bytes. */
struct handshake {
	const struct handshake_policy *policy;
	struct handshake_channel channel;
	uint8_t head[FRAME_HEADER];
	uint32_t have; /* received bytes of the current frame */
	struct frame frame;
	uint8_t *payload;    /* owned */
	bool again;          /* the connection was part of a job; frames before HELLO belong to that */
	uint32_t skip;       /* bytes of such a frame that are still to come; `payload` is where they go */
	uint32_t discarded;  /* bytes of such frames so far */
	double weight;       /* access.weight of the worker */
	struct claim *claim; /* the HELLO that the next frame, PROOF, has to prove; NULL: HELLO comes next; owned */
};

void handshake_init(struct handshake *h, const struct handshake_policy *policy);
/* The same for a connection that was part of a job, whose frames are discarded up to
 * HELLO. skip: bytes of a frame that has begun already. Errors: RS_ENOMEM. */
int handshake_init_again(struct handshake *h, const struct handshake_policy *policy, uint32_t skip, struct rs_err *e);
/* Sets the channel, before the first frame. */
void handshake_set_channel(struct handshake *h, const struct handshake_channel *channel);
/* May be called more than once. */
void handshake_close(struct handshake *h);

/* Returns the most bytes, at least 1, that may be received next at *ret_at. Not to be
 * called after ADMIT or REFUSED. */
size_t handshake_target(const struct handshake *h, uint8_t **ret_at);
/* Processes n > 0 received bytes, at most as many as handshake_target() returned. */
enum handshake_step handshake_received(struct handshake *h, size_t n, struct handshake_result *ret);

/* Returns the type of the frame that the peer has not sent yet, for sentences: "HELLO" or
 * "PROOF". */
const char *handshake_missing(const struct handshake *h);

/* Returns the refusal for a reason. The peer may retry after RS_ENOMEM and
 * RS_ETIMEOUT. */
struct control_refused handshake_refusal(const struct rs_err *why);
/* Return the refusal of a peer that has not sent `missing`, which is handshake_missing()
 * or a step of its channel. The reasons: the time limit has passed; the peer closed the
 * connection; its place goes to a newer connection because of `why`, the end of a
 * sentence. A displaced peer may retry. */
struct control_refused handshake_refusal_timeout(const char *missing, uint32_t waited_ms);
struct control_refused handshake_refusal_closed(const char *missing);
struct control_refused handshake_refusal_displaced(const char *missing, const char *why);
/* Packs a REFUSED frame into at most HANDSHAKE_FRAME_MAX bytes at out. Returns its
 * length. */
uint32_t handshake_pack_refused(uint8_t *out, const struct control_refused *refused);

#endif
