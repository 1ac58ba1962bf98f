/* SPDX-License-Identifier: Apache-2.0 */
/* Who is this? The first frames of a connection, without any I/O: a driver (greeting_uv.c, the simulator) asks where
 * the next bytes go, which is never beyond the frame that is being read, says how many came, and does what it is told.
 *
 *     len = handshake_target(&h, &at); n = recv(at, len); step = handshake_received(&h, n, &res);
 *
 * The happy path is: header -> payload of HELLO -> HANDSHAKE_ADMIT, and whose connection it is decides whether that
 * worker may join. Failure modes: a frame that is damaged, too long, or not the one that belongs here:
 * HANDSHAKE_REFUSED, with the sentence for the peer and the log. Deadlines are the driver's. One thread owns it. */
#ifndef RS_SERVER_HANDSHAKE_H
#define RS_SERVER_HANDSHAKE_H

#include "common/error.h"
#include "proto/control.h"

enum {
	HANDSHAKE_PAYLOAD_MAX = FRAME_CONTROL_MAX + 1, /* most bytes that one of them allocates */
	HANDSHAKE_FRAME_MAX = FRAME_HEADER + FRAME_CONTROL_MAX,
};

enum handshake_step {
	HANDSHAKE_MORE,    /* read on */
	HANDSHAKE_ADMIT,   /* res->hello is who it is; nothing more is to be read here */
	HANDSHAKE_REFUSED, /* res->refused is to be sent, then the connection closes */
};

struct handshake_result {
	struct control_hello hello;     /* ADMIT */
	struct control_refused refused; /* REFUSED */
};

/* Embedded by the driver's connection. Invariant: payload is NULL exactly while the header is not complete; then it has
 * room for frame.payload_len bytes, and one more so that an empty one has an address too. */
struct handshake {
	uint8_t head[FRAME_HEADER];
	uint32_t have; /* bytes of the frame that is being read */
	struct frame frame;
	uint8_t *payload; /* owned */
};

void handshake_init(struct handshake *h);
/* May be called more than once. */
void handshake_close(struct handshake *h);

/* Where the next bytes go, and how many of them at the most, which is at least one. Until ADMIT or REFUSED. */
size_t handshake_target(const struct handshake *h, uint8_t **ret_at);
/* n > 0 bytes, no more than handshake_target said, stand there. */
enum handshake_step handshake_received(struct handshake *h, size_t n, struct handshake_result *ret);

/* What the peer has yet to say, for sentences: "HELLO". */
const char *handshake_lacks(const struct handshake *h);

/* The refusal for this reason; the peer may come again where memory or time was short. */
struct control_refused handshake_refusal(const struct rs_err *why);
/* The frame that says so, in at most HANDSHAKE_FRAME_MAX bytes; returns its length. */
uint32_t handshake_pack_refused(uint8_t *out, const struct control_refused *refused);

#endif
