/* SPDX-License-Identifier: Apache-2.0 */
/* The control frames that a link receives. The happy path: HELLO -> (CHALLENGE -> PROOF)
 * -> WELCOME -> WAITING ... -> START, then PINGs and GOODBYE; VIEW and RESUME when
 * reducers are lost or return (view.c). Failure modes: REFUSED (tried again if the reason
 * may pass); ABORT (its sentence ends the exchange, or says that this reducer cannot
 * serve it any more); a frame that does not belong to the state or cannot be decoded (a
 * violation: the exchange loses the reducer). */
#include "agent/worker/core/link_control.h"
#include "agent/worker/core/credit.h"
#include "agent/worker/core/encoded.h"
#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/features.h"
#include "agent/worker/core/link_fail.h"
#include "agent/worker/core/link_queue.h"
#include "agent/worker/core/view.h"
#include "proto/features.h"

#include <stdio.h>
#include <string.h>

/* The reducer refuses this rank, or this rank does not trust it. That ends the job,
 * except if the reducer counts as lost already: then it may be another process at the
 * next attempt. from: as in exchange_fail. */
static void link_refused(struct link *l, int code, const char *why, struct link *from, uint64_t now_ms)
{
	const struct rs_reducer *r = link_reducer(l);
	struct rs_err e;

	if (!link_lives(l)) {
		link_join_failed(l, why, RS_LOSS_OTHER, now_ms);
		return;
	}
	rs_fail(&e, code, "reducer %s (%s): %s", r->id, link_address(l), why);
	exchange_fail(l->x, &e, true, from, now_ms);
}

/* Computes the proofs of both sides for the challenge in control_in: ret_mac is to be
 * sent, l->reducer_mac is to be received. */
static int link_make_proofs(struct link *l, uint8_t ret_mac[AUTH_MAC], struct rs_err *e)
{
	const struct exchange *x = l->x;
	const struct auth_transcript t = {
	    .binding = l->binding,
	    .binding_len = l->binding_len,
	    .hello = l->hello,
	    .hello_len = l->hello_len,
	    .challenge = l->control_in,
	    .challenge_len = l->frame.payload_len,
	};
	struct auth_secret secret;
	int rc = x->opt.secret(x->opt.user, &secret, e);

	if (rc)
		return rc;
	rc = auth_mac(ret_mac, &secret, AUTH_WORKER, &t, e);
	if (!rc)
		rc = auth_mac(l->reducer_mac, &secret, AUTH_REDUCER, &t, e);
	auth_secret_clear(&secret);
	return rc;
}

/* A message could not be decoded: that is the reducer's fault, or this process is out of
 * memory. */
static void link_undecoded(struct link *l, const struct rs_err *why, uint64_t now_ms)
{
	struct rs_err e;

	if (why->code != RS_ENOMEM) {
		link_violation(l, now_ms, "%s", why->msg);
		return;
	}
	rs_fail(&e, RS_ENOMEM, "%s of reducer %s (%s)", why->msg, link_reducer(l)->id, link_address(l));
	exchange_fail(l->x, &e, true, NULL, now_ms);
}

static void link_on_challenge(struct link *l, uint64_t now_ms)
{
	uint8_t nonce[AUTH_NONCE], mac[AUTH_MAC], payload[CONTROL_PROOF_LEN];
	struct rs_err e;

	if (control_unpack_challenge(l->control_in, l->frame.payload_len, nonce, &e)) {
		link_undecoded(l, &e, now_ms);
	} else if (!l->x->opt.secret) {
		rs_fail(&e, RS_EREFUSED,
			"it asks for the secret of job %s, and this rank has none: set security.secret", l->x->job);
		link_refused(l, e.code, e.msg, l, now_ms);
	} else if (link_make_proofs(l, mac, &e)) {
		link_refused(l, e.code, e.msg, l, now_ms);
	} else {
		l->proven = true;
		link_queue_frame(l, FRAME_PROOF, payload, control_pack_proof(payload, mac));
	}
}

/* Returns whether the reducer has not proven that it has the job's secret: another
 * process may listen at its address. */
static bool link_unproven(const struct link *l, const struct control_welcome *w)
{
	return l->x->opt.secret && !(l->proven && w->proven && auth_equal(w->mac, l->reducer_mac));
}

static void link_on_welcome(struct link *l, uint64_t now_ms)
{
	struct control_welcome w;
	struct rs_err e;

	if (control_unpack_welcome(l->control_in, l->frame.payload_len, &w, &e)) {
		link_undecoded(l, &e, now_ms);
		return;
	}
	if (link_unproven(l, &w)) {
		rs_fail(
		    &e, RS_EREFUSED,
		    "it has not proven that it has the secret of job %s: its server.secrets_dir is not set, or another "
		    "process listens at its address",
		    l->x->job);
		/* the reducer may only lack the secret: the other ranks that it serves
		 * must read why this rank leaves */
		link_refused(l, e.code, e.msg, NULL, now_ms);
		return;
	}
	l->peer_detect_ms = w.detect_ms ? w.detect_ms : l->x->params->detect_ms;
	if (l->peer_detect_ms < LINK_DETECT_MIN_MS)
		l->peer_detect_ms = LINK_DETECT_MIN_MS;
	l->state = LINK_JOINED;
	if (link_reducer(l)->shared && l->x->opt.is_reducer)
		l->x->opt.is_reducer(l->x->opt.user, l->reducer, link_reducer(l)->id);
	l->offers = w.features;
	l->keeps = l->announced & w.features & FEATURE_RECONFIGURE;
	if (encoded_check_reducer(l, w.software, &e)) {
		link_refused(l, e.code, e.msg, NULL, now_ms);
		return;
	}
	if (features_check_reducer(l, w.software, &e)) {
		link_join_failed(l, e.msg, RS_LOSS_OTHER, now_ms);
		return;
	}
	if (!(w.features & FEATURE_PROBE))
		l->probe = LINK_PROBE_NONE;
	l->x->links_changed |= l->probe == LINK_PROBE_DUE;
	/* other reducers may be starting as well */
	if (l->x->absent_by_ms < now_ms + 2 * LINK_RETRY_MAX_MS)
		l->x->absent_by_ms = now_ms + 2 * LINK_RETRY_MAX_MS;
	l->view_due = l->x->view_number > 0 && link_lives(l);
	l->x->next_ms = now_ms; /* the first heartbeat may be the next thing that is due */
}

static void link_on_refused(struct link *l, uint64_t now_ms)
{
	struct control_refused refused;
	struct rs_err e;

	if (control_unpack_refused(l->control_in, l->frame.payload_len, &refused, &e)) {
		link_undecoded(l, &e, now_ms);
		return;
	}
	l->busy = refused.code != RS_ECLOSED;
	if (refused.elsewhere && refused.retry && link_reducer(l)->shared) {
		l->busy = false; /* this slot was not reached */
		if (l->x->opt.is_reducer)
			l->x->opt.is_reducer(l->x->opt.user, l->reducer, refused.reducer);
	}
	/* what it could not read may be a damaged frame of the last generation */
	if (refused.retry || (l->kept && refused.code == RS_EPROTO))
		link_join_failed(l, refused.message, RS_LOSS_OTHER, now_ms);
	else
		link_refused(l, refused.code, refused.message, l, now_ms);
}

/* Returns whether a reducer has reported this refusal already: a rank that all refuse is
 * reported once. */
static bool link_knows_refusal(const struct exchange *x, const char *refused)
{
	for (unsigned i = 0; i < x->links_n; i++)
		if (strcmp(x->links[i].waiting.refused, refused) == 0)
			return true;
	return false;
}

static void link_on_waiting(struct link *l, uint64_t now_ms)
{
	struct control_waiting w;
	struct rs_err e;

	if (control_unpack_waiting(l->control_in, l->frame.payload_len, &w, &e)) {
		link_undecoded(l, &e, now_ms);
		return;
	}
	if (w.refused[0] && !link_knows_refusal(l->x, w.refused))
		l->x->report_ms = l->x->next_ms = now_ms;
	l->waiting = w;
}

/* Warns of an operation that is very late, once. */
static void link_on_late(struct link *l, uint64_t now_ms)
{
	struct exchange *x = l->x;
	char sentence[400];
	struct rs_err e;

	if (control_unpack_late(l->control_in, l->frame.payload_len, &l->late, &e)) {
		link_undecoded(l, &e, now_ms);
		return;
	}
	l->late_at_ms = now_ms;
	if (!x->opt.late || !late_warns(&x->late, l->late.seq, l->late.waited_ms, now_ms))
		return;
	late_text(x, l, now_ms, sentence, sizeof sentence);
	x->opt.late(x->opt.user, sentence);
}

/* Ends the exchange with a reducer's ABORT. If it has lost this rank, to this rank it is
 * the reducer that was lost. */
static void link_aborted(struct link *l, struct rs_err *why, const struct rs_cause *cause, uint64_t now_ms)
{
	bool own_loss = is_own_loss(l->x, cause);
	struct rs_err own;

	if (own_loss && unheard_text(l->x, l->reducer, cause, now_ms, &own)) {
		exchange_fail_because(l->x, &own,
				      &(struct rs_cause){.code = RS_EPEER, .reducer = 1 + l->reducer, .narrow = true},
				      true, l, now_ms);
		return;
	}
	if (why->code == RS_ECUT)
		why->code = RS_EPEER;
	if (own_loss)
		rs_wrap(why, "reducer %s (%s) has lost the connection to this rank", link_reducer(l)->id,
			link_address(l));
	exchange_fail_because(l->x, why, cause, false, l, now_ms);
}

static void link_on_abort(struct link *l, uint64_t now_ms)
{
	struct rs_cause cause;
	struct rs_err why, e;

	if (control_unpack_abort(l->control_in, l->frame.payload_len, &why, &cause, &e)) {
		link_undecoded(l, &e, now_ms);
	} else if (l->x->retaining && (why.code == RS_ECUT || !link_lives(l))) {
		link_lost(l, &(struct loss){.why = why.msg, .reported = &cause}, now_ms);
	} else {
		link_aborted(l, &why, &cause, now_ms);
	}
}

static void link_on_view(struct link *l, uint64_t now_ms)
{
	struct control_view v;
	struct rs_err e;

	if (control_unpack_view(l->control_in, l->frame.payload_len, &v, &e))
		link_undecoded(l, &e, now_ms);
	else if (v.n != l->x->params->reducers_n)
		link_violation(l, now_ms, "its view has %u reducers, the configuration has %u", v.n,
			       l->x->params->reducers_n);
	else if (l->frame.type == FRAME_VIEW ? view_received(l, &v, now_ms, &e) : view_resumed(l, &v, &e))
		link_violation(l, now_ms, "%s", e.msg);
}

static void link_on_load(struct link *l, uint64_t now_ms)
{
	struct rs_err e;

	if (load_received(l, now_ms, &e))
		link_undecoded(l, &e, now_ms);
}

/* PING: the reducer is alive. With a count it wants an answer: with 1, since it wants to
 * know which operations are done here; above 1, as a sign of life. */
static void link_on_ping(struct link *l)
{
	if (l->frame.of.count > l->question)
		l->question = l->frame.of.count;
	if (l->frame.of.count < 2)
		l->ping_on_done = l->x->retaining && l->frame.of.count == 1;
	l->ping_due |= l->frame.of.count > 0;
	l->x->ping_on_done |= l->ping_on_done;
	l->x->links_changed |= l->ping_due;
}

/* All ranks have joined this reducer. */
static void link_on_start(struct link *l, uint64_t now_ms)
{
	struct control_start s;
	struct rs_err e;

	if (control_unpack_start(l->control_in, l->frame.payload_len, &s, &e)) {
		link_undecoded(l, &e, now_ms);
	} else if (features_take_start(l, &s, &e)) {
		if (e.code == RS_EPROTO)
			link_violation(l, now_ms, "%s", e.msg);
		else
			exchange_fail(l->x, &e, true, NULL, now_ms);
	} else if (features_check_reducer(l, "", &e)) {
		link_join_failed(l, e.msg, RS_LOSS_OTHER, now_ms); /* WELCOME came before the job began */
	} else {
		l->state = LINK_RUNNING;
		l->nonfinite_due = l->x->found.first[0] != '\0';
		view_started(l, now_ms);
	}
}

void link_control(struct link *l, uint64_t now_ms)
{
	unsigned type = l->frame.type;

	if (type == FRAME_ABORT) {
		link_on_abort(l, now_ms);
	} else if (type == FRAME_PING && l->frame.payload_len == 0) {
		link_on_ping(l);
	} else if (type == FRAME_DRAIN && l->frame.payload_len == 0 && l->x->retaining) {
		view_drained(l, now_ms);
	} else if ((type == FRAME_VIEW || type == FRAME_RESUME) && l->x->retaining &&
		   (l->state == LINK_JOINED || l->state == LINK_RUNNING)) {
		link_on_view(l, now_ms);
	} else if (type == FRAME_CHALLENGE && l->state == LINK_HANDSHAKE && !l->proven) {
		link_on_challenge(l, now_ms);
	} else if (type == FRAME_WELCOME && l->state == LINK_HANDSHAKE) {
		link_on_welcome(l, now_ms);
	} else if (type == FRAME_REFUSED && l->state == LINK_HANDSHAKE) {
		link_on_refused(l, now_ms);
	} else if (type == FRAME_WAITING && l->state == LINK_JOINED) {
		link_on_waiting(l, now_ms);
	} else if (type == FRAME_LATE && l->state == LINK_RUNNING) {
		link_on_late(l, now_ms);
	} else if (type == FRAME_LOAD && l->state == LINK_RUNNING) {
		link_on_load(l, now_ms);
	} else if (type == FRAME_CREDIT && l->frame.payload_len == 0 && l->state == LINK_RUNNING) {
		credit_received(l, now_ms);
	} else if (type == FRAME_START && l->state == LINK_JOINED && l->probe == LINK_PROBE_NONE) {
		link_on_start(l, now_ms);
	} else {
		link_violation(l, now_ms, "it sent a %s frame with %u payload bytes in a state that does not allow it",
			       frame_type_name(type), l->frame.payload_len);
	}
}
