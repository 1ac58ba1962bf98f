/* SPDX-License-Identifier: Apache-2.0 */
/* The control frames that a link sends. */
#include "agent/worker/core/link_queue.h"
#include "agent/worker/core/features.h"
#include "agent/worker/core/lead.h"
#include "common/assert.h"
#include "proto/features.h"

#include <stdio.h>
#include <string.h>

void link_queue_frame(struct link *l, enum frame_type type, const uint8_t *payload, uint32_t len)
{
	struct exchange *x = l->x;

	if (l->control_len + FRAME_HEADER + len <= sizeof l->control_out)
		l->control_len += control_frame(l->control_out + l->control_len, type, x->opt.generation,
						x->first ? x->first->of.seq : x->next_seq, payload, len);
}

void link_queue_empty(struct link *l, enum frame_type type)
{
	link_queue_frame(l, type, NULL, 0);
}

static void link_queue_view(struct link *l)
{
	uint8_t payload[CONTROL_VIEW];

	l->x->view.features = features_known(l->x);
	l->x->view.lead = lead_to_tell(l->x);
	link_queue_frame(l, FRAME_VIEW, payload, control_pack_view(payload, &l->x->view));
}

/* On the first of the connections to a reducer. */
static void link_queue_nonfinite(struct link *l)
{
	uint8_t payload[FRAME_CONTROL_MAX];

	if (!l->lane && (l->features & FEATURE_NONFINITE))
		link_queue_frame(l, FRAME_NONFINITE, payload, control_pack_nonfinite(payload, &l->x->found));
}

static void link_queue_load(struct link *l)
{
	/* with relays, ranks of other groups do not use this link */
	bool counts = l->load.known && (!l->x->relaying || l->relayed.n);
	const struct control_load load = {.up = l->load.up, .ranks = counts, .answer = l->x->opt.rank == 0};
	uint8_t payload[CONTROL_LOAD_LEN];

	link_queue_frame(l, FRAME_LOAD, payload, control_pack_load(payload, &load));
}

static void link_queue_ping(struct link *l)
{
	const struct exchange *x = l->x;
	struct frame f = {.type = FRAME_PING,
			  .generation = x->opt.generation,
			  .of.count = l->question,
			  .ack = x->first ? x->first->of.seq : x->next_seq};

	if (l->control_len + FRAME_HEADER > sizeof l->control_out)
		return;
	frame_encode(&f, l->control_out + l->control_len);
	l->control_len += FRAME_HEADER;
}

/* PROBE with a chunk of zeros. It goes where frames are saved, since nothing else needs
 * that place yet. */
static void link_send_probe(struct link *l)
{
	const struct frame f = {
	    .type = FRAME_PROBE, .generation = l->x->opt.generation, .payload_len = l->x->params->chunk_bytes};

	rs_assert(l->saved_off == l->saved_len && l->sent_off == 0);
	frame_encode(&f, l->saved);
	memset(l->saved + FRAME_HEADER, 0, f.payload_len);
	l->saved_off = 0;
	l->saved_len = FRAME_HEADER + f.payload_len;
	l->probe = LINK_PROBE_SENT;
}

void link_queue_due(struct link *l)
{
	if (l->state != LINK_JOINED && l->state != LINK_RUNNING)
		return;
	if (l->probe == LINK_PROBE_DUE)
		link_send_probe(l);
	if (l->view_due)
		link_queue_view(l);
	if (l->settle_due && l->state == LINK_RUNNING)
		link_queue_empty(l, FRAME_SETTLE);
	if (l->ping_due)
		link_queue_ping(l);
	if (l->nonfinite_due && l->state == LINK_RUNNING)
		link_queue_nonfinite(l);
	if (l->load_due && l->state == LINK_RUNNING)
		link_queue_load(l);
	l->settle_due &= l->state != LINK_RUNNING;
	l->view_due = l->ping_due = l->nonfinite_due = l->load_due = false;
}

int link_queue_hello(struct link *l, struct rs_err *e)
{
	const struct exchange *x = l->x;
	const struct rs_reducer *r = link_reducer(l);
	uint32_t wanted = lead_window(l), most = lead_most_window(l);
	struct control_hello h = {
	    .generation = x->opt.generation,
	    .rank = x->opt.rank,
	    .world_size = x->opt.world_size,
	    .lane = l->lane,
	    .lanes = r->lanes,
	    .chunk_bytes = x->params->chunk_bytes,
	    .decoded_bytes = x->params->decoded_bytes > 2 * x->params->chunk_bytes ? x->params->decoded_bytes : 0,
	    .window = x->params->ahead,
	    .most_window = most > x->params->ahead ? most : 0,
	    .wanted_window = wanted > x->params->ahead ? wanted : 0,
	    .priorities = x->params->priorities,
	    .deterministic = x->params->deterministic,
	    .checksum = x->params->checksum,
	    .retain = x->retaining,
	    .rejoin = !link_lives(l),
	    .shared = r->shared,
	    .config_digest = x->params->digest,
	    .processes = x->opt.processes,
	    .incarnation = x->opt.incarnation,
	    .detect_ms = x->params->detect_ms,
	    .features = x->features,
	    .groups = x->params->groups_n,
	    .group = x->params->groups_n ? x->params->group + 1 : 0,
	    .uplinks = x->params->groups_n ? x->params->uplinks : 0,
	    .reducers_digest = x->params->groups_n ? x->params->reducers_digest : 0,
	};

	snprintf(h.job, sizeof h.job, "%s", x->job);
	snprintf(h.label, sizeof h.label, "%s", x->label);
	snprintf(h.run, sizeof h.run, "%s", x->run);
	snprintf(h.evidence, sizeof h.evidence, "%s", x->evidence);
	snprintf(h.source, sizeof h.source, "%s", l->source);
	snprintf(h.reducer, sizeof h.reducer, "%s", r->id);
	h.has_nonce = x->opt.secret;
	if (h.has_nonce && x->opt.random(x->opt.user, h.nonce, sizeof h.nonce, e))
		return e->code;
	if (h.rejoin && (h.features & FEATURE_PROBE))
		l->probe = LINK_PROBE_DUE;
	l->announced = h.features;
	l->most_window = most;
	l->hello_len = control_pack_hello(l->hello, &h);
	link_queue_frame(l, FRAME_HELLO, l->hello, l->hello_len);
	return RS_OK;
}

void link_queue_abort(struct link *l, const struct rs_err *why, const struct rs_cause *cause)
{
	uint8_t payload[FRAME_CONTROL_MAX];

	link_queue_frame(l, FRAME_ABORT, payload, control_pack_abort(payload, why, cause));
}
