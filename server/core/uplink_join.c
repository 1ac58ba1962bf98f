/* SPDX-License-Identifier: Apache-2.0 */
/* How an uplink joins the job at a home: the worker's side of the handshake, with the
 * job's secret, which this reducer has as every reducer of the job. */
#include "proto/features.h"
#include "server/core/uplink_state.h"

#include <stdio.h>
#include <string.h>

int uplink_hello(struct uplink *u, struct rs_err *e)
{
	const struct stripe *st = u->stripe;
	const struct lane_options *opt = &u->owner->opt;
	struct control_hello h = *st->hello;
	struct auth_secret secret;
	uint8_t payload[FRAME_CONTROL_MAX];
	uint32_t len;

	h.rank = 0;
	h.lane = u->lane;
	h.lanes = u->lane + 1;
	h.incarnation = st->start;
	h.relay = st->self + 1;
	h.group = u->group + 1;
	h.detect_ms = opt->detect_ms;
	h.features = st->features;
	h.rejoin = h.shared = false;
	h.evidence[0] = h.source[0] = '\0';
	snprintf(h.reducer, sizeof h.reducer, "%s", opt->peers.ids[u->reducer]);
	snprintf(h.label, sizeof h.label, "relay %s", opt->peers.ids[st->self]);
	h.has_nonce = opt->secret && !opt->secret(opt->ctx, &h, &secret, e);
	if (h.has_nonce)
		auth_secret_clear(&secret);
	if (h.has_nonce && opt->random(opt->ctx, h.nonce, sizeof h.nonce, e))
		return e->code;
	len = control_pack_hello(payload, &h);
	if (len > sizeof u->hello)
		return rs_fail(e, RS_EINVAL, "HELLO has %u bytes, at most %zu fit", len, sizeof u->hello);
	memcpy(u->hello, payload, len);
	u->hello_len = len;
	uplink_queue_frame(u, FRAME_HELLO, payload, len);
	return RS_OK;
}

static void uplink_on_challenge(struct uplink *u, uint64_t now_ms)
{
	const struct auth_transcript t = {
	    .binding = u->binding,
	    .binding_len = u->binding_len,
	    .hello = u->hello,
	    .hello_len = u->hello_len,
	    .challenge = u->control_in,
	    .challenge_len = u->in.payload_len,
	};
	const struct lane_options *opt = &u->owner->opt;
	uint8_t nonce[AUTH_NONCE], mac[AUTH_MAC], payload[CONTROL_PROOF_LEN];
	struct auth_secret secret;
	struct rs_err e;

	if (control_unpack_challenge(u->control_in, u->in.payload_len, nonce, &e)) {
		uplink_fail(u, now_ms, "%s", e.msg);
	} else if (!opt->secret || opt->secret(opt->ctx, u->stripe->hello, &secret, &e)) {
		uplink_fail(u, now_ms, "it asks for the secret of job %s, which this relay does not have",
			    u->stripe->hello->job);
	} else {
		u->proven = !auth_mac(mac, &secret, AUTH_WORKER, &t, &e) &&
			    !auth_mac(u->home_mac, &secret, AUTH_REDUCER, &t, &e);
		auth_secret_clear(&secret);
		if (u->proven)
			uplink_queue_frame(u, FRAME_PROOF, payload, control_pack_proof(payload, mac));
		else
			uplink_fail(u, now_ms, "%s", e.msg);
	}
}

static void uplink_on_welcome(struct uplink *u, uint64_t now_ms)
{
	struct control_welcome w;
	struct auth_secret secret;
	struct rs_err e;
	bool has = false;

	if (control_unpack_welcome(u->control_in, u->in.payload_len, &w, &e)) {
		uplink_fail(u, now_ms, "%s", e.msg);
		return;
	}
	if (u->owner->opt.secret && !u->owner->opt.secret(u->owner->opt.ctx, u->stripe->hello, &secret, &e)) {
		auth_secret_clear(&secret);
		has = true;
	}
	if (has && !(u->proven && w.proven && auth_equal(w.mac, u->home_mac))) {
		uplink_fail(u, now_ms, "it has not proven that it has the secret of job %s", u->stripe->hello->job);
		return;
	}
	u->peer_detect_ms = w.detect_ms > UPLINK_DETECT_MIN_MS ? w.detect_ms : UPLINK_DETECT_MIN_MS;
	u->state = UPLINK_JOINED;
}

static void uplink_on_start(struct uplink *u, uint64_t now_ms)
{
	struct control_start s;
	struct rs_err e;

	if (control_unpack_start(u->control_in, u->in.payload_len, &s, &e)) {
		uplink_fail(u, now_ms, "%s", e.msg);
		return;
	}
	if (s.start != u->stripe->start) {
		uplink_fail(u, now_ms, "it is in another start of job %s", u->stripe->hello->job);
		return;
	}
	u->window = s.window ? s.window : u->stripe->hello->window;
	u->state = UPLINK_RUNNING;
	u->failing_ms = 0;
	u->backoff_ms = 0;
	u->view_due = u->stripe->told_view > 0;
	u->view = u->view_due ? UPLINK_NO_VIEW : 0;
	uplink_ready(u);
}

bool uplink_join(struct uplink *u, uint64_t now_ms)
{
	struct control_refused r;
	struct rs_err e;

	if (u->in.type == FRAME_CHALLENGE && u->state == UPLINK_HANDSHAKE && !u->proven) {
		uplink_on_challenge(u, now_ms);
	} else if (u->in.type == FRAME_WELCOME && u->state == UPLINK_HANDSHAKE) {
		uplink_on_welcome(u, now_ms);
	} else if (u->in.type == FRAME_REFUSED && u->state == UPLINK_HANDSHAKE) {
		if (control_unpack_refused(u->control_in, u->in.payload_len, &r, &e))
			uplink_fail(u, now_ms, "%s", e.msg);
		else
			uplink_fail(u, now_ms, "%s", r.message);
	} else if (u->in.type == FRAME_START && u->state == UPLINK_JOINED) {
		uplink_on_start(u, now_ms);
	} else {
		return false;
	}
	return true;
}
