/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_vectors_connection.h"

#include "proto/control.h"
#include "proto/features.h"
#include "proto/frame.h"

#include <string.h>

/* Checks the proof of one side for the last HELLO and CHALLENGE. */
static int connection_check_proof(const struct vectors_connection *c, const struct auth_secret *secret,
				  enum auth_side side, const uint8_t *found, struct rs_err *e)
{
	uint8_t mac[AUTH_MAC];
	const struct auth_transcript t = {
	    .hello = c->hello.at + FRAME_HEADER,
	    .hello_len = c->hello.len - FRAME_HEADER,
	    .challenge = c->challenge.at + FRAME_HEADER,
	    .challenge_len = c->challenge.len - FRAME_HEADER,
	};

	if (!secret || !c->hello.len || !c->challenge.len)
		return rs_fail(e, RS_EPROTO, "a proof came without a secret or a challenge");
	if (auth_mac(mac, secret, side, &t, e))
		return e->code;
	return memcmp(mac, found, AUTH_MAC) == 0 ? RS_OK : rs_fail(e, RS_EPROTO, "the proof differs");
}

static int connection_take_hello(struct vectors_connection *c, const struct frame *f, const struct vectors_bytes *raw,
				 struct rs_err *e)
{
	struct control_hello h;

	if (control_unpack_hello(raw->at + FRAME_HEADER, f->payload_len, &h, e))
		return e->code;
	if (h.generation != f->generation || (c->ended && h.generation <= c->generation))
		return rs_fail(e, RS_EPROTO, "HELLO has generation %u, its frame %u, the last one had %u", h.generation,
			       f->generation, c->generation);
	if (c->hello.len == raw->len && memcmp(c->hello.at, raw->at, raw->len) == 0)
		return rs_fail(e, RS_EPROTO, "HELLO has the nonce of the last one");
	c->hello = *raw;
	c->challenge.len = 0;
	c->before = c->generation;
	c->generation = h.generation;
	c->announced = h.features;
	c->joins = true;
	c->again = c->ended;
	c->ended = c->proven = false;
	return RS_OK;
}

static int connection_from_worker(struct vectors_connection *c, const struct auth_secret *secret, const struct frame *f,
				  const struct vectors_bytes *raw, struct rs_err *e)
{
	uint8_t mac[AUTH_MAC];

	if (f->type == FRAME_HELLO)
		return connection_take_hello(c, f, raw, e);
	if (c->ended || f->generation != c->generation || (c->joins && f->type != FRAME_PROOF))
		return rs_fail(e, RS_EPROTO, "%s of generation %u came behind ABORT, or before the answer to HELLO",
			       frame_type_name(f->type), f->generation);
	c->ended = c->keeps && f->type == FRAME_ABORT;
	if (f->type != FRAME_PROOF)
		return RS_OK;
	c->proven = true;
	if (control_unpack_proof(raw->at + FRAME_HEADER, f->payload_len, mac, e))
		return e->code;
	return connection_check_proof(c, secret, AUTH_WORKER, mac, e);
}

static int connection_take_welcome(struct vectors_connection *c, const struct auth_secret *secret,
				   const struct frame *f, const struct vectors_bytes *raw, struct rs_err *e)
{
	struct control_welcome w;

	if (control_unpack_welcome(raw->at + FRAME_HEADER, f->payload_len, &w, e))
		return e->code;
	c->joins = false;
	c->keeps = c->announced & w.features & FEATURE_RECONFIGURE;
	if (c->proven != !!secret)
		return rs_fail(e, RS_EPROTO, "WELCOME came without PROOF");
	return secret ? connection_check_proof(c, secret, AUTH_REDUCER, w.mac, e) : RS_OK;
}

int vectors_follow(struct vectors_connection *c, const struct auth_secret *secret, bool from_worker,
		   const struct vectors_bytes *raw, bool *ret_taken, struct rs_err *e)
{
	bool answer, stale;
	uint32_t generation;
	struct frame f;

	*ret_taken = true;
	if (frame_decode(raw->at, &f, e))
		return e->code;
	if (from_worker)
		return connection_from_worker(c, secret, &f, raw, e);
	answer = f.type == FRAME_CHALLENGE || f.type == FRAME_WELCOME || f.type == FRAME_REFUSED;
	stale = c->ended || (c->joins && c->again && !answer);
	if (!stale && c->joins && !answer)
		return rs_fail(e, RS_EPROTO, "%s came before the answer to HELLO", frame_type_name(f.type));
	generation = stale && c->joins ? c->before : c->generation;
	if (f.generation != generation)
		return rs_fail(e, RS_EPROTO, "%s has generation %u instead of %u", frame_type_name(f.type),
			       f.generation, generation);
	*ret_taken = !stale;
	if (stale)
		return RS_OK;
	if (f.type == FRAME_CHALLENGE)
		c->challenge = *raw;
	c->ended = c->keeps && f.type == FRAME_ABORT;
	return f.type == FRAME_WELCOME ? connection_take_welcome(c, secret, &f, raw, e) : RS_OK;
}
