/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that have not said who they are: what greeting_uv.c does. The happy path is: HELLO, byte by byte if need
 * be, then the registry admits and the lane takes over. Failure modes: garbage, silence, a refusal: REFUSED goes out,
 * and what comes is thrown away until the peer has closed. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

enum { GREETING_LINGER_MS = 1000, HANDSHAKE_MS = 2000 };

static void turn_away(struct conn *c)
{
	c->phase = PHASE_NONE;
	net_close(c, REDUCER);
	free(c->hello);
	c->hello = NULL;
}

static void refuse(struct conn *c, const struct control_refused *refused)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	uint32_t len = control_frame(frame, FRAME_REFUSED, 0, 0, payload, control_pack_refused(payload, refused));

	trace(c->sim, "r%u refuses connection %u: %s", c->reducer->index, c->id, refused->message);
	c->sim->stats->refused++;
	while (len > 0) {
		struct iovec iov = {frame, len};
		ssize_t sent = net_write(c, REDUCER, &iov, 1);

		if (sent == NET_BROKEN) {
			turn_away(c);
			return;
		}
		if (sent > 0) {
			len -= (uint32_t)sent;
			memmove(frame, frame + sent, len);
		}
	}
	net_shutdown(c, REDUCER);
	c->phase = PHASE_REFUSED;
	c->deadline_ms = sim_ms(c->sim) + GREETING_LINGER_MS;
}

static void refuse_for(struct conn *c, const struct rs_err *why)
{
	struct control_refused refused = {.code = why->code};

	snprintf(refused.message, sizeof refused.message, "%s", why->msg);
	refuse(c, &refused);
}

static void greet(struct conn *c, const struct frame *f)
{
	struct control_refused refused = {0};
	struct registry_admit admit;
	struct control_hello h;
	struct rs_err e;

	if (control_damaged(f, c->hello + FRAME_HEADER, &refused)) {
		refuse(c, &refused);
	} else if (control_unpack_hello(c->hello + FRAME_HEADER, f->payload_len, &h, &e)) {
		refuse_for(c, &e);
	} else if (registry_hello(c->reducer->registry, &h, &admit, &refused)) {
		if (refused.retry)
			c->sim->stats->retried++;
		refuse(c, &refused);
	} else {
		free(c->hello);
		c->hello = NULL;
		reducer_hand_over(c, &admit);
		registry_admitted(c->reducer->registry, admit.stripe.job);
	}
}

static void read_hello(struct conn *c)
{
	struct frame f = {0};
	struct rs_err e;

	for (;;) {
		size_t want = FRAME_HEADER;
		struct iovec iov;
		ssize_t got;

		if (c->hello_have >= FRAME_HEADER) {
			if (frame_decode(c->hello, &f, &e)) {
				refuse_for(c, &e);
				return;
			}
			if (f.type != FRAME_HELLO) {
				rs_fail(&e, RS_EPROTO, "the first frame is %s instead of HELLO",
					frame_type_name(f.type));
				refuse_for(c, &e);
				return;
			}
			want += f.payload_len;
			if (c->hello_have == want) {
				greet(c, &f);
				return;
			}
		}
		iov = (struct iovec){c->hello + c->hello_have, want - c->hello_have};
		got = net_read(c, REDUCER, &iov, 1);
		if (got == NET_AGAIN)
			return;
		if (got <= 0) {
			turn_away(c);
			return;
		}
		c->hello_have += (unsigned)got;
	}
}

void accept_conn(struct conn *c)
{
	if (c->reducer->state != REDUCER_UP || !c->end[REDUCER].open)
		return;
	c->phase = PHASE_GREETING;
	c->deadline_ms = sim_ms(c->sim) + HANDSHAKE_MS;
	c->hello = malloc(FRAME_HEADER + FRAME_CONTROL_MAX);
	if (!c->hello)
		abort();
	net_look_again(c, REDUCER);
}

void accept_readable(struct conn *c)
{
	uint8_t waste[256];
	struct iovec iov = {waste, sizeof waste};
	ssize_t got;

	if (c->phase == PHASE_GREETING) {
		read_hello(c);
	} else if (c->phase == PHASE_REFUSED) {
		while ((got = net_read(c, REDUCER, &iov, 1)) > 0)
			continue;
		if (got != NET_AGAIN)
			turn_away(c);
	}
}

void accept_tick(struct reducer *r)
{
	struct rs_err e;

	for (unsigned i = 0; i < r->sim->conns_n; i++) {
		struct conn *c = r->sim->conns[i];

		if (c->reducer != r || sim_ms(r->sim) < c->deadline_ms)
			continue;
		if (c->phase == PHASE_REFUSED) {
			turn_away(c);
		} else if (c->phase == PHASE_GREETING) {
			rs_fail(&e, RS_ETIMEOUT, "no complete HELLO came within %.1f s", HANDSHAKE_MS / 1000.0);
			refuse_for(c, &e);
		}
	}
}
