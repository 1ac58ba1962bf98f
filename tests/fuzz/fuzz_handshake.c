/* SPDX-License-Identifier: Apache-2.0 */
/* The handshakes of a reducer and of a worker, with an attacker in between that forwards,
 * changes, drops and invents bytes, but does not know the secret. An admitted worker has
 * the secret and proved it on this connection; a worker that requires a proof of the
 * reducer accepts only that reducer. */
#include "tests/fuzz/fuzz.h"

#include "agent/worker/core/exchange.h"
#include "config/config.h"
#include "proto/control.h"
#include "server/join/handshake.h"

#include <string.h>

enum {
	STEPS = 60,
	WIRE = 3 * HANDSHAKE_FRAME_MAX,
	RANK = 3,
};

struct world {
	struct fuzz_input in;
	bool asks, has, same, bound, tied, checked, closed; /* from the first bytes, see begin() */
	struct auth_secret reducer, worker;
	uint8_t binding[2][32];
	uint8_t nonce;
	struct handshake_policy policy;
	struct rs_config cfg;
	struct exchange *x;
	struct handshake h;
	bool over; /* the reducer has admitted or refused the worker */
	bool admitted;
	unsigned asked; /* calls of may_join */
	struct handshake_result res;
	uint8_t up[WIRE], down[WIRE]; /* in flight to the reducer, to the worker */
	size_t up_n, down_n;
	struct fuzz_decoder said; /* by the worker, as it was sent */
	uint8_t hello[FRAME_CONTROL_MAX];
	uint32_t hello_len;
	bool proven; /* the worker has sent a proof */
};

static int take_random(struct world *w, void *buf, size_t n)
{
	memset(buf, ++w->nonce, n);
	return RS_OK;
}

static int reducer_random(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	(void)e;
	return take_random(ctx, buf, n);
}

static int worker_random(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	(void)e;
	return take_random(ctx, buf, n);
}

static int reducer_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret,
			  struct control_refused *refused)
{
	struct world *w = ctx;

	if (strcmp(hello->job, "j") != 0) {
		*refused = (struct control_refused){.code = RS_EREFUSED, .message = "there is no such job"};
		return RS_EREFUSED;
	}
	*ret = w->reducer;
	return RS_OK;
}

static int worker_secret(void *user, struct auth_secret *ret, struct rs_err *e)
{
	(void)e;
	*ret = ((struct world *)user)->worker;
	return RS_OK;
}

static int may_join(void *ctx, const char *peer, const struct control_hello *hello, double *ret_weight,
		    struct control_refused *refused)
{
	struct world *w = ctx;

	must(strcmp(peer, "somebody") == 0 && strlen(hello->job) < CONTROL_JOB);
	must(++w->asked == 1);
	*ret_weight = 2;
	if (!w->closed)
		return RS_OK;
	*refused = (struct control_refused){.code = RS_EREFUSED, .message = "this name may not join the job"};
	return RS_EREFUSED;
}

static void begin(struct world *w)
{
	static const char yaml[] = "job: {failover: fail}\nreducers: [{id: r0, address: h:1}]\n";
	uint8_t how = fuzz_u8(&w->in);
	struct handshake_channel channel = {.peer = "somebody"};
	struct exchange_options opt = {.job = "j",
				       .rank = RANK,
				       .world_size = 4,
				       .processes = 1,
				       .connect_ms = 10000,
				       .random = worker_random,
				       .user = w};
	struct rs_err e;

	w->asks = how & 1;
	w->has = how & 2;
	w->same = !(how & 4);
	w->bound = how & 8;
	w->tied = !(how & 16);
	w->checked = how & 32;
	w->closed = how & 64;
	w->reducer = w->worker = (struct auth_secret){.len = 16, .bytes = "0123456789abcdef"};
	w->worker.bytes[0] += (uint8_t)!w->same;
	w->binding[1][0] = (uint8_t)!w->tied;
	w->policy = (struct handshake_policy){.random = reducer_random, .ctx = w};
	if (w->asks)
		w->policy.secret = reducer_secret;
	if (w->checked)
		w->policy.may_join = may_join;
	if (w->has)
		opt.secret = worker_secret;
	must(rs_config_parse(&w->cfg, "fuzz", yaml, strlen(yaml), &e) == RS_OK);
	opt.params = rs_config_exchange(&w->cfg);
	must(exchange_new(&w->x, &opt, 1000, &e) == RS_OK);
	handshake_init(&w->h, &w->policy);
	exchange_connecting(w->x, 0, 1000);
	if (w->bound) {
		channel.binding = w->binding[0];
		channel.binding_len = sizeof w->binding[0];
		exchange_bind(w->x, 0, w->binding[1], sizeof w->binding[1]);
	}
	handshake_set_channel(&w->h, &channel);
	exchange_connected(w->x, 0, 1000);
}

static void end(struct world *w)
{
	exchange_abort(w->x, RS_ECLOSED, "that is all", 2000);
	exchange_tick(w->x, 9000);
	exchange_free(w->x);
	handshake_close(&w->h);
	rs_config_close(&w->cfg);
}

static void put(uint8_t *wire, size_t *n, const uint8_t *bytes, size_t len)
{
	len = len < WIRE - *n ? len : WIRE - *n;
	memcpy(wire + *n, bytes, len);
	*n += len;
}

/* Records the worker's frames unchanged. */
static void worker_says(struct world *w)
{
	struct iovec iov[8];

	while (w->up_n < WIRE - HANDSHAKE_FRAME_MAX && exchange_send_target(w->x, 0, iov, 8) > 0) {
		const uint8_t *at = iov[0].iov_base;
		size_t len = iov[0].iov_len;

		put(w->up, &w->up_n, at, len);
		while (len) {
			if (!fuzz_decode(&w->said, &at, &len))
				continue;
			if (w->said.f.type == FRAME_HELLO) {
				w->hello_len = w->said.f.payload_len;
				memcpy(w->hello, w->said.control, w->hello_len);
			}
			w->proven |= w->said.f.type == FRAME_PROOF;
		}
		exchange_sent(w->x, 0, iov[0].iov_len, 1001);
	}
}

/* An admitted peer is the worker, and no bit of its frames was changed. */
static void admit(struct world *w)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[HANDSHAKE_FRAME_MAX];

	w->admitted = true;
	must(!w->checked || (w->asked == 1 && !w->closed));
	must(w->res.welcome.proven == w->asks);
	if (w->asks) {
		must(w->has && w->same && w->proven && (w->tied || !w->bound));
		must(w->res.hello.rank == RANK && strcmp(w->res.hello.job, "j") == 0 && w->res.hello.has_nonce);
		must(control_pack_hello(payload, &w->res.hello) == w->hello_len);
		must(memcmp(payload, w->hello, w->hello_len) == 0);
	}
	put(w->down, &w->down_n, frame,
	    control_frame(frame, FRAME_WELCOME, 0, 0, payload, control_pack_welcome(payload, &w->res.welcome)));
}

/* The reducer reads bytes in flight, in pieces. */
static void reducer_hears(struct world *w, size_t piece)
{
	size_t at = 0;

	while (at < w->up_n && !w->over) {
		uint8_t *to, frame[HANDSHAKE_FRAME_MAX];
		size_t n = handshake_target(&w->h, &to);

		must(n > 0 && n <= HANDSHAKE_PAYLOAD_MAX);
		n = n < piece ? n : piece;
		n = n < w->up_n - at ? n : w->up_n - at;
		memcpy(to, w->up + at, n);
		at += n;
		switch (handshake_received(&w->h, n, &w->res)) {
		case HANDSHAKE_MORE:
			break;
		case HANDSHAKE_SEND:
			must(w->asks && strcmp(handshake_missing(&w->h), "PROOF") == 0);
			put(w->down, &w->down_n, w->res.frame, w->res.frame_len);
			break;
		case HANDSHAKE_ADMIT:
			w->over = true;
			admit(w);
			break;
		case HANDSHAKE_PROBED: /* only changed bytes can ask, which no proof covers */
			w->over = true;
			must(!w->asks && w->res.hello.world_size == 0);
			put(w->down, &w->down_n, w->res.frame, w->res.frame_len);
			break;
		case HANDSHAKE_REFUSED:
			w->over = true;
			must(w->res.refused.code < 0 && w->res.refused.message[0]);
			put(w->down, &w->down_n, frame, handshake_pack_refused(frame, &w->res.refused));
		}
	}
	w->up_n -= at;
	memmove(w->up, w->up + at, w->up_n);
}

static void worker_hears(struct world *w, size_t piece)
{
	size_t at = 0;

	while (at < w->down_n) {
		struct iovec iov[2];
		unsigned n = exchange_recv_target(w->x, 0, iov);
		size_t part = w->down_n - at < piece ? w->down_n - at : piece;

		if (!n)
			break;
		part = fuzz_scatter(iov, n, w->down + at, part);
		exchange_received(w->x, 0, part, 1002);
		at += part;
	}
	w->down_n -= at;
	memmove(w->down, w->down + at, w->down_n);
}

/* A frame that neither side has sent. */
static void invent(struct world *w, uint8_t *wire, size_t *n)
{
	static const uint8_t types[] = {FRAME_HELLO,   FRAME_PROOF, FRAME_CHALLENGE, FRAME_WELCOME,
					FRAME_REFUSED, FRAME_PING,  FRAME_ABORT,     FRAME_DATA};
	uint8_t payload[FRAME_CONTROL_MAX], head[FRAME_HEADER], mac[AUTH_MAC];
	struct control_hello h = {.job = "j", .rank = RANK, .world_size = 4, .has_nonce = true};
	struct frame f = {.type = types[fuzz_below(&w->in, sizeof types)]};

	memset(mac, fuzz_u8(&w->in), sizeof mac);
	if (mac[0] & 8) /* only asks */
		h.world_size = 0;
	if (f.type == FRAME_HELLO)
		f.payload_len = control_pack_hello(payload, &h);
	else if (f.type == FRAME_PROOF)
		f.payload_len = control_pack_proof(payload, mac);
	else if (f.type == FRAME_CHALLENGE)
		f.payload_len = control_pack_challenge(payload, mac);
	else
		f.payload_len = fuzz_control(&w->in, f.type, payload);
	fuzz_twist(&w->in, &f);
	frame_encode(&f, head);
	put(wire, n, head, sizeof head);
	put(wire, n, payload, f.payload_len < sizeof payload ? f.payload_len : sizeof payload);
}

/* Flips bits, without the checksums noticing. */
static void tamper(struct world *w, uint8_t *wire, size_t n)
{
	uint32_t at = fuzz_u8(&w->in), bit = fuzz_u8(&w->in) % 8;
	struct frame f;

	if (n < FRAME_HEADER || frame_decode(wire, &f, NULL) || n < FRAME_HEADER + f.payload_len || !f.payload_len)
		return;
	wire[FRAME_HEADER + at % f.payload_len] ^= (uint8_t)(1 << bit);
	f.payload_sum = frame_checksum(wire + FRAME_HEADER, f.payload_len);
	frame_encode(&f, wire);
}

static bool step(struct world *w)
{
	uint8_t what = fuzz_u8(&w->in);
	size_t piece = what & 128 ? (size_t)1 + fuzz_u8(&w->in) : SIZE_MAX, len;
	const uint8_t *raw;

	switch (what % 10) {
	case 0:
		return w->in.left > 0;
	case 1:
	case 2:
		worker_says(w);
		reducer_hears(w, piece);
		break;
	case 3:
	case 4:
		worker_hears(w, piece);
		worker_says(w);
		break;
	case 5:
		invent(w, w->up, &w->up_n);
		break;
	case 6:
		invent(w, w->down, &w->down_n);
		break;
	case 7:
		tamper(w, what & 64 ? w->up : w->down, what & 64 ? w->up_n : w->down_n);
		break;
	case 8: /* lost */
		*(what & 64 ? &w->up_n : &w->down_n) = 0;
		break;
	default:
		raw = fuzz_bytes(&w->in, HANDSHAKE_FRAME_MAX, &len);
		put(what & 64 ? w->up : w->down, what & 64 ? &w->up_n : &w->down_n, raw, len);
	}
	return true;
}

/* Whether the worker has joined: WAITING is valid then, and only then. */
static bool joined(struct world *w)
{
	struct control_waiting waiting = {.world_size = 4, .missing = {1}, .missing_n = 1};
	uint8_t payload[FRAME_CONTROL_MAX];
	struct iovec iov[2];

	w->down_n = 0;
	if (!exchange_recv_target(w->x, 0, iov) || iov[0].iov_len != FRAME_HEADER)
		return false; /* in the middle of a frame, or at its end */
	w->down_n = control_frame(w->down, FRAME_WAITING, 0, 0, payload, control_pack_waiting(payload, &waiting));
	worker_hears(w, SIZE_MAX);
	return !w->down_n && exchange_state(w->x) == EXCHANGE_JOINING && exchange_recv_target(w->x, 0, iov);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;
	struct world *w = &world;

	memset(w, 0, sizeof *w);
	w->in = (struct fuzz_input){data, size};
	begin(w);
	for (unsigned i = 0; i < STEPS && step(w); i++)
		continue;
	if (w->has && joined(w))
		must(w->admitted && w->asks && w->same && (w->tied || !w->bound));
	end(w);
	return 0;
}
