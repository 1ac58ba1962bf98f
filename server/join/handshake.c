/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/handshake.h"

#include "proto/features.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A HELLO that PROOF has to prove. */
struct claim {
	struct control_hello hello;
	uint8_t want[AUTH_MAC];   /* the expected PROOF */
	uint8_t answer[AUTH_MAC]; /* the reducer's proof for WELCOME */
};
_Static_assert(sizeof(struct claim) + CONTROL_PROOF_LEN < HANDSHAKE_PAYLOAD_MAX, "the limit holds for PROOF too");

void handshake_init(struct handshake *h, const struct handshake_policy *policy)
{
	*h = (struct handshake){.policy = policy, .weight = 1};
}

/* Discards the next n bytes. */
static int handshake_skip(struct handshake *h, uint32_t n, struct rs_err *e)
{
	if (n > HANDSHAKE_DISCARD_MAX - h->discarded)
		return rs_fail(e, RS_EPROTO, "it sent more than %d bytes between the end of its job and HELLO",
			       HANDSHAKE_DISCARD_MAX);
	h->discarded += n;
	h->have = 0;
	h->skip = n;
	if (n)
		h->payload = malloc(HANDSHAKE_PAYLOAD_MAX);
	return h->payload || !n ? RS_OK : rs_oom(e, HANDSHAKE_PAYLOAD_MAX, "a HELLO in this reducer");
}

int handshake_init_again(struct handshake *h, const struct handshake_policy *policy, uint32_t skip, struct rs_err *e)
{
	handshake_init(h, policy);
	h->again = true;
	return handshake_skip(h, skip, e);
}

void handshake_set_channel(struct handshake *h, const struct handshake_channel *channel)
{
	h->channel = *channel;
}

void handshake_close(struct handshake *h)
{
	free(h->payload);
	free(h->claim);
	h->payload = NULL;
	h->claim = NULL;
}

size_t handshake_target(const struct handshake *h, uint8_t **ret_at)
{
	if (h->skip) {
		*ret_at = h->payload;
		return h->skip < HANDSHAKE_PAYLOAD_MAX ? h->skip : HANDSHAKE_PAYLOAD_MAX;
	}
	if (!h->payload) {
		*ret_at = (uint8_t *)h->head + h->have;
		return FRAME_HEADER - h->have;
	}
	*ret_at = h->payload + (h->have - FRAME_HEADER);
	return FRAME_HEADER + h->frame.payload_len - h->have;
}

const char *handshake_missing(const struct handshake *h)
{
	return h->claim ? "PROOF" : "HELLO";
}

struct control_refused handshake_refusal(const struct rs_err *why)
{
	struct control_refused refused = {.code = why->code,
					  .retry = why->code == RS_ENOMEM || why->code == RS_ETIMEOUT};

	snprintf(refused.message, sizeof refused.message, "%s", why->msg);
	return refused;
}

struct control_refused handshake_refusal_timeout(const char *missing, uint32_t waited_ms)
{
	struct rs_err why;

	rs_fail(&why, RS_ETIMEOUT, "no complete %s came within %.1f s", missing, (double)waited_ms / 1000);
	return handshake_refusal(&why);
}

struct control_refused handshake_refusal_closed(const char *missing)
{
	struct rs_err why;

	rs_fail(&why, RS_EPROTO, "it closed the connection before a complete %s", missing);
	return handshake_refusal(&why);
}

struct control_refused handshake_refusal_displaced(const char *missing, const char *why)
{
	struct control_refused refused;
	struct rs_err e;

	rs_fail(&e, RS_EREFUSED, "no %s has come yet and %s: the place goes to a newer connection", missing, why);
	refused = handshake_refusal(&e);
	refused.retry = true;
	return refused;
}

uint32_t handshake_pack_refused(uint8_t *out, const struct control_refused *refused)
{
	uint8_t payload[FRAME_CONTROL_MAX];

	return control_frame(out, FRAME_REFUSED, 0, 0, payload, control_pack_refused(payload, refused));
}

static enum handshake_step refuse(struct handshake_result *ret, const struct rs_err *why)
{
	ret->refused = handshake_refusal(why);
	return HANDSHAKE_REFUSED;
}

/* Checks a complete header and allocates the payload. */
static int begin_payload(struct handshake *h, struct rs_err *e)
{
	static const char http2[] = "PRI * HTTP/2.0";
	struct frame *f = &h->frame;
	int rc = frame_decode(h->head, f, e);

	if (rc && memcmp(h->head, http2, sizeof http2 - 1) == 0)
		return rs_fail(e, RS_EPROTO, "it speaks HTTP/2: for gRPC there is another port, server.grpc");
	if (rc)
		return rc;
	if (h->again && !h->claim && f->type != FRAME_HELLO)
		return handshake_skip(h, f->payload_len, e);
	if (f->type != (h->claim ? FRAME_PROOF : FRAME_HELLO))
		return rs_fail(e, RS_EPROTO, "the %s frame is %s instead of %s", h->claim ? "second" : "first",
			       frame_type_name(f->type), handshake_missing(h));
	if (h->claim && f->payload_len > CONTROL_PROOF_LEN)
		return rs_fail(e, RS_EPROTO, "a PROOF frame announces %u payload bytes, at most %d are allowed",
			       f->payload_len, CONTROL_PROOF_LEN);
	h->payload = malloc((size_t)f->payload_len + 1);
	return h->payload ? RS_OK : rs_oom(e, (size_t)f->payload_len + 1, "a %s in this reducer", handshake_missing(h));
}

/* Frees the payload; the next frame begins. */
static void end_payload(struct handshake *h)
{
	free(h->payload);
	h->payload = NULL;
	h->have = 0;
}

/* Computes the proofs that the peer and this reducer have to give. */
static int make_claim(struct handshake *h, const struct control_hello *hello, const struct auth_secret *secret,
		      const uint8_t *challenge, uint32_t challenge_len, struct rs_err *e)
{
	const struct auth_transcript t = {
	    .binding = h->channel.binding,
	    .binding_len = h->channel.binding_len,
	    .hello = h->payload,
	    .hello_len = h->frame.payload_len,
	    .challenge = challenge,
	    .challenge_len = challenge_len,
	};
	int rc;

	h->claim = malloc(sizeof *h->claim);
	if (!h->claim)
		return rs_oom(e, 0, "a CHALLENGE in this reducer");
	h->claim->hello = *hello;
	rc = auth_mac(h->claim->want, secret, AUTH_WORKER, &t, e);
	return rc ? rc : auth_mac(h->claim->answer, secret, AUTH_REDUCER, &t, e);
}

/* Sends CHALLENGE, which asks for a proof of the job's secret. */
static enum handshake_step challenge(struct handshake *h, const struct auth_secret *secret,
				     struct handshake_result *ret)
{
	uint8_t nonce[AUTH_NONCE], payload[CONTROL_PROOF_LEN];
	struct rs_err e;
	uint32_t len;

	if (h->policy->random(h->policy->ctx, nonce, sizeof nonce, &e))
		return refuse(ret, &e);
	len = control_pack_challenge(payload, nonce);
	if (make_claim(h, &ret->hello, secret, payload, len, &e))
		return refuse(ret, &e);
	ret->frame_len = control_frame(ret->frame, FRAME_CHALLENGE, h->frame.generation, 0, payload, len);
	end_payload(h);
	return HANDSHAKE_SEND;
}

/* The worker has identified itself. Without a world size it only wanted to know whether
 * it can. */
static enum handshake_step admit(const struct handshake *h, struct handshake_result *ret)
{
	uint8_t payload[FRAME_CONTROL_MAX];
	uint32_t len;

	ret->weight = h->weight;
	if (ret->hello.world_size > 0)
		return HANDSHAKE_ADMIT;
	ret->welcome.features = FEATURES_ALL;
	len = control_pack_welcome(payload, &ret->welcome);
	ret->frame_len = control_frame(ret->frame, FRAME_WELCOME, h->frame.generation, 0, payload, len);
	return HANDSHAKE_PROBED;
}

static enum handshake_step take_hello(struct handshake *h, struct handshake_result *ret)
{
	const struct handshake_policy *p = h->policy;
	struct control_hello *hello = &ret->hello;
	struct auth_secret secret;
	enum handshake_step step;
	struct rs_err e;

	if (control_unpack_hello(h->payload, h->frame.payload_len, hello, &e))
		return refuse(ret, &e);
	if (p->may_join && p->may_join(p->ctx, h->channel.peer, hello, &h->weight, &ret->refused))
		return HANDSHAKE_REFUSED;
	ret->welcome = (struct control_welcome){.proven = false};
	if (!p->secret)
		return admit(h, ret);
	if (!hello->has_nonce) {
		rs_fail(&e, RS_EREFUSED,
			"this reducer asks for the secret of job %s and rank %u has none: set security.secret",
			hello->job, hello->rank);
		return refuse(ret, &e);
	}
	if (p->secret(p->ctx, hello, &secret, &ret->refused))
		return HANDSHAKE_REFUSED;
	step = challenge(h, &secret, ret);
	auth_secret_clear(&secret);
	return step;
}

static enum handshake_step take_proof(struct handshake *h, struct handshake_result *ret)
{
	const struct claim *c = h->claim;
	uint8_t mac[AUTH_MAC];
	struct rs_err e;

	memcpy(ret->hello.job, c->hello.job, sizeof ret->hello.job);
	if (control_unpack_proof(h->payload, h->frame.payload_len, mac, &e))
		return refuse(ret, &e);
	if (!auth_equal(mac, c->want)) {
		rs_fail(&e, RS_EREFUSED,
			"rank %u of job %s (%s) has not proven that it has the job's secret: the file of its "
			"security.secret differs from this reducer's secret for the job%s",
			c->hello.rank, c->hello.job, c->hello.label,
			h->channel.binding_len ? ", or another machine intercepts the connection" : "");
		return refuse(ret, &e);
	}
	ret->hello = c->hello;
	ret->welcome = (struct control_welcome){.proven = true};
	memcpy(ret->welcome.mac, c->answer, sizeof c->answer);
	return admit(h, ret);
}

enum handshake_step handshake_received(struct handshake *h, size_t n, struct handshake_result *ret)
{
	struct rs_err e;

	ret->hello.job[0] = '\0';
	if (h->skip) {
		h->skip -= (uint32_t)n;
		if (!h->skip)
			end_payload(h);
		return HANDSHAKE_MORE;
	}
	h->have += (uint32_t)n;
	if (h->have < FRAME_HEADER)
		return HANDSHAKE_MORE;
	if (!h->payload && begin_payload(h, &e))
		return refuse(ret, &e);
	if (h->have < FRAME_HEADER + h->frame.payload_len || !h->payload || h->skip)
		return HANDSHAKE_MORE;
	if (!control_intact(&h->frame, h->payload)) {
		rs_fail(&e, RS_EPROTO, "the checksum of the %s frame is wrong", handshake_missing(h));
		refuse(ret, &e);
		ret->refused.retry = true;
		return HANDSHAKE_REFUSED;
	}
	return h->claim ? take_proof(h, ret) : take_hello(h, ret);
}
