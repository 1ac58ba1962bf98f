/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets of jobs, and peers without them: a rank with a wrong secret (sim_fault.c), an
 * unauthenticated peer that repeats a recorded handshake of a rank, and an impostor in
 * place of a reducer, which follows the protocol and accepts every proof. None of them
 * may complete the handshake. In a job without a secret the impostor is a reducer that
 * sends a START with a window that no HELLO allows. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static void make_secret(struct auth_secret *ret, const char *job)
{
	ret->len = (uint32_t)snprintf((char *)ret->bytes, sizeof ret->bytes, "what all ranks of %s know", job);
}

static int sim_bytes(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	struct reducer *r = ctx;
	uint8_t *to = buf;

	(void)e;
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)sim_random(r->sim);
	return RS_OK;
}

static int find_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret,
		       struct control_refused *refused)
{
	(void)ctx;
	(void)refused;
	make_secret(ret, hello->job);
	return RS_OK;
}

int guard_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret, struct rs_err *e)
{
	(void)ctx;
	(void)e;
	make_secret(ret, hello->job);
	return RS_OK;
}

int guard_random(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	struct lane_thread_sim *t = ctx;

	return sim_bytes(t->reducer, buf, n, e);
}

void guard_policy(struct reducer *r)
{
	r->policy =
	    (struct handshake_policy){.secret = r->sim->guarded ? find_secret : NULL, .random = sim_bytes, .ctx = r};
}

/* Returns the fault of this rank's secret; NULL: there is none. */
static const struct fault *secret_fault(const struct rank *k)
{
	for (unsigned i = 0; i < k->team->faults_n; i++)
		if (k->team->faults[i].kind == FAULT_SECRET && k->team->faults[i].rank == k->index)
			return &k->team->faults[i];
	return NULL;
}

const char *guard_blames(const struct rank *k)
{
	const struct fault *f = secret_fault(k);

	if (!f)
		return NULL;
	if (!k->sim->guarded)
		return "has not proven that it has the secret of job";
	return f->again % 2 ? "asks for the secret of job" : "has not proven that it has the job's secret";
}

static int rank_secret(void *user, struct auth_secret *ret, struct rs_err *e)
{
	const struct rank *k = *(struct rank **)user;

	(void)e;
	/* a wrong secret is that of another job, which must be refused */
	make_secret(ret, secret_fault(k) ? "cedar" : k->team->job);
	return RS_OK;
}

static int rank_bytes(void *user, void *buf, size_t n, struct rs_err *e)
{
	struct rank *k = *(struct rank **)user;

	return sim_bytes(&k->sim->reducers[0], buf, n, e);
}

void guard_rank(const struct rank *k, struct exchange_options *opt)
{
	const struct fault *f = secret_fault(k);

	opt->random = rank_bytes;
	if (f ? !k->sim->guarded || f->again % 2 == 0 : k->sim->guarded)
		opt->secret = rank_secret;
}

/* ---- recorded handshakes ---- */

void guard_record(struct conn *c, const uint8_t *bytes, size_t n)
{
	size_t room = sizeof c->recorded - c->recorded_n;

	if (!c->sim->guarded || !c->rank || c->corrupt_at)
		return;
	n = n < room ? n : room;
	memcpy(c->recorded + c->recorded_n, bytes, n);
	c->recorded_n += (unsigned)n;
}

/* Returns the bytes of a whole frame at `at`; 0: it is not complete, or not of that
 * type. */
static unsigned recorded(const struct conn *c, unsigned at, enum frame_type type)
{
	struct frame f;

	if (c->recorded_n < at + FRAME_HEADER || frame_decode(c->recorded + at, &f, NULL) || f.type != type)
		return 0;
	return c->recorded_n < at + FRAME_HEADER + f.payload_len ? 0 : FRAME_HEADER + f.payload_len;
}

bool guard_send(struct conn *c, enum side side, const uint8_t *bytes, uint32_t len)
{
	/* a kept connection may be full of results that the peer has not read yet */
	net_reserve(c, side, len);
	while (len > 0) {
		struct iovec iov = {(uint8_t *)bytes, len};
		ssize_t sent = net_write(c, side, &iov, 1);

		if (sent == NET_BROKEN)
			return false;
		if (sent > 0) {
			len -= (uint32_t)sent;
			bytes += sent;
		}
	}
	return true;
}

/* Finds a handshake of a rank with this reducer or with another one; both must be
 * refused. */
static const struct conn *find_record(struct sim *s)
{
	unsigned first = sim_below(s, s->conns_n + 1);

	for (unsigned i = 0; i < s->conns_n; i++) {
		const struct conn *c = s->conns[(first + i) % s->conns_n];
		unsigned hello = recorded(c, 0, FRAME_HELLO);

		if (hello && recorded(c, hello, FRAME_PROOF))
			return c;
	}
	return NULL;
}

bool guard_replay_connect(struct sim *s, struct conn *c)
{
	const struct conn *from = find_record(s);

	if (!from)
		return false;
	trace(s, "connection %u repeats what connection %u sent", c->id, from->id);
	s->stats->replays++;
	c->replays = from;
	guard_send(c, WORKER, from->recorded, recorded(from, 0, FRAME_HELLO));
	return true;
}

/* The peer gets CHALLENGE, and has a recorded PROOF. */
void guard_replay_readable(struct conn *c)
{
	const struct conn *from = c->replays;
	unsigned hello;

	if (!from || c->replayed)
		return;
	c->replayed = true;
	hello = recorded(from, 0, FRAME_HELLO);
	guard_send(c, WORKER, from->recorded + hello, recorded(from, hello, FRAME_PROOF));
}

/* ---- an impostor ---- */

bool guard_is_impostor(const struct conn *c)
{
	return c->rank && c->rank->team->impostors >> c->reducer->index & 1;
}

/* Sends WELCOME with bytes that may pass for a proof, and START at once. */
static void impose_welcome(struct conn *c)
{
	struct control_welcome w = {.detect_ms = 5000, .proven = sim_chance(c->sim, 75)};
	uint8_t payload[FRAME_CONTROL_MAX], frames[2 * FRAME_HEADER + FRAME_CONTROL_MAX];
	uint32_t len;

	memcpy(w.mac, c->impostor_in->payload, sizeof w.mac); /* the worker's own proof, or zeros */
	if (sim_chance(c->sim, 50))
		sim_bytes(c->reducer, w.mac, sizeof w.mac, NULL);
	len = control_frame(frames, FRAME_WELCOME, 0, 0, payload, control_pack_welcome(payload, &w));
	len += control_frame(frames + len, FRAME_START, 0, 0, NULL, 0);
	guard_send(c, REDUCER, frames, len);
}

static void impostor_begins(struct conn *c)
{
	trace(c->sim, "r%u is an impostor to connection %u", c->reducer->index, c->id);
	c->phase = PHASE_IMPOSTOR;
	handshake_close(&c->shake);
	c->impostor_in = calloc(1, sizeof *c->impostor_in);
	if (!c->impostor_in)
		abort();
}

void guard_impose_window(struct conn *c, const struct control_hello *hello)
{
	struct control_welcome w = {.detect_ms = 5000, .features = hello->features};
	struct control_start start = {.features = hello->features};
	uint32_t most = hello->most_window ? hello->most_window : hello->window, len;
	uint8_t payload[FRAME_CONTROL_MAX], frames[2 * (FRAME_HEADER + FRAME_CONTROL_MAX)];

	impostor_begins(c);
	start.window = hello->window > 1 && sim_chance(c->sim, 30) ? hello->window - 1
		       : sim_chance(c->sim, 20)                    ? UINT32_MAX
								   : most + 1 + sim_below(c->sim, 1000);
	len = control_frame(frames, FRAME_WELCOME, hello->generation, 0, payload, control_pack_welcome(payload, &w));
	len += control_frame(frames + len, FRAME_START, hello->generation, 0, payload,
			     control_pack_start(payload, &start));
	guard_send(c, REDUCER, frames, len);
}

void guard_impose(struct conn *c)
{
	uint8_t nonce[AUTH_NONCE], payload[CONTROL_PROOF_LEN], frame[FRAME_HEADER + CONTROL_PROOF_LEN];

	impostor_begins(c);
	if (sim_chance(c->sim, 30)) {
		impose_welcome(c);
		return;
	}
	sim_bytes(c->reducer, nonce, sizeof nonce, NULL);
	guard_send(c, REDUCER, frame,
		   control_frame(frame, FRAME_CHALLENGE, 0, 0, payload, control_pack_challenge(payload, nonce)));
}

/* Handles a frame for the impostor: it waits for PROOF; ABORT and GOODBYE are frames of a
 * rank that leaves. Without a secret the rank may trust WELCOME, but not START. */
static void impostor_frame(struct conn *c, const struct frame *f)
{
	bool greeted = !c->sim->guarded && f->type != FRAME_DATA;
	struct rs_err e;

	if (f->type == FRAME_PROOF) {
		if (control_unpack_proof(c->impostor_in->payload, f->payload_len, c->impostor_in->payload, &e))
			sim_fail(c->sim, "a PROOF cannot be read: %s", e.msg);
		impose_welcome(c);
	} else if (!greeted && f->type != FRAME_ABORT && f->type != FRAME_GOODBYE) {
		sim_fail(c->sim, "%s rank %u trusts an impostor, and sends %s", c->rank ? c->rank->team->job : "a",
			 c->rank ? c->rank->index : 0, frame_type_name(f->type));
	}
}

/* Returns false at the end of the connection. */
bool guard_impostor_reads(struct conn *c)
{
	struct conn_decoder *d = c->impostor_in;
	struct frame f;

	for (;;) {
		struct iovec iov = {d->header + d->have, FRAME_HEADER - d->have};
		ssize_t got;

		if (d->have >= FRAME_HEADER) {
			uint32_t payload = d->have - FRAME_HEADER;

			/* damaged bytes show nothing */
			if (frame_decode(d->header, &f, NULL) || f.payload_len > sizeof d->payload)
				return false;
			iov = (struct iovec){d->payload + payload, f.payload_len - payload};
			if (!iov.iov_len) {
				d->have = 0;
				impostor_frame(c, &f);
				continue;
			}
		}
		got = net_read(c, REDUCER, &iov, 1);
		if (got == NET_AGAIN)
			return true;
		if (got <= 0)
			return false;
		d->have += (uint32_t)got;
	}
}
