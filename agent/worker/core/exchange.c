/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange as a whole and the connections of its links. The happy path: all links
 * join and start, operations are submitted and done, goodbye. Failure modes: a reducer
 * cannot be reached or a rank does not join in time; a reducer is lost, silent or breaks
 * the protocol; another rank sends ABORT; an operation times out. Each of them leads to
 * exchange_fail, unless the other reducers take over: ABORT is sent on the remaining
 * links, then every pending operation ends with the reason. */
#include "agent/worker/core/lead.h"
#include "agent/worker/core/link_fail.h"
#include "agent/worker/core/link_io.h"
#include "agent/worker/core/link_queue.h"
#include "agent/worker/core/view.h"
#include "proto/features.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the most bytes of one saved frame. A chunk of a 16-bit type can be sent as
 * float32. */
static size_t exchange_saved_bytes(const struct exchange_params *p)
{
	return FRAME_HEADER + 2 * (size_t)p->chunk_bytes;
}

static unsigned exchange_count_links(const struct exchange_params *p)
{
	unsigned n = 0;

	for (unsigned r = 0; r < p->reducers_n; r++)
		n += p->reducers[r].lanes;
	return n;
}

static void exchange_init_links(struct exchange *x, uint32_t ring, uint64_t now_ms)
{
	struct link *l = x->links;
	struct outgoing *flights = x->outgoing;
	uint8_t *rest = x->saved;

	for (unsigned r = 0; r < x->params->reducers_n; r++) {
		for (unsigned lane = 0; lane < x->params->reducers[r].lanes; lane++, l++) {
			l->x = x;
			l->reducer = r;
			l->lane = lane;
			l->view = LINK_NO_VIEW;
			for (unsigned p = 0; p < x->params->priorities; p++, flights += ring) {
				l->streams[p].ring = flights;
				l->streams[p].mask = ring - 1;
			}
			if (x->retaining) {
				l->streams[LINK_RETAINED].ring = flights;
				l->streams[LINK_RETAINED].mask = lead_retained_ring(x->params, ring) - 1;
				flights += lead_retained_ring(x->params, ring);
			}
			if (x->saved) {
				l->saved = rest;
				rest += exchange_saved_bytes(x->params);
			}
			l->retry_ms = now_ms;
			l->backoff_ms = LINK_RETRY_MIN_MS;
		}
	}
	view_assign_shards(x);
}

/* Allocates everything whose size depends on the configuration. */
static int exchange_allocate(struct exchange *x, uint32_t ring, struct rs_err *e)
{
	const struct exchange_params *p = x->params;
	unsigned shards = p->shards;
	size_t flights = (size_t)p->priorities * ring;

	if (x->retaining || x->opt.features & FEATURE_RECONFIGURE) {
		x->saved = malloc(x->links_n * exchange_saved_bytes(p));
		if (!x->saved)
			goto out_of_memory;
	}
	if (x->retaining) {
		flights += lead_retained_ring(p, ring);
		if (retain_init(&x->retain, p->priorities, x->max_lead, lead_retained_bytes(x), e))
			return e->code;
	}
	x->links = calloc(x->links_n, sizeof *x->links);
	x->outgoing = calloc(x->links_n * flights, sizeof *x->outgoing);
	x->shards = calloc(6 * (size_t)shards, sizeof *x->shards);
	x->losses = calloc(p->reducers_n, sizeof *x->losses);
	if (!x->links || !x->outgoing || !x->shards || !x->losses)
		goto out_of_memory;
	x->owner = x->shards + 2 * (size_t)shards;
	x->lane_of = x->owner + shards;
	x->relay = x->lane_of + shards;
	x->relay_lane = x->relay + shards;
	return RS_OK;

out_of_memory:
	return rs_oom(e, 0, "the connections to the reducers");
}

int exchange_new(struct exchange **ret, const struct exchange_options *opt, uint64_t now_ms, struct rs_err *e)
{
	const struct exchange_params *p = &opt->params;
	struct exchange *x;
	struct rs_err why;
	uint32_t ring = 1;

	if (opt->rank >= opt->world_size || opt->processes == 0 || strlen(opt->job) >= sizeof x->job)
		return rs_fail(e, RS_EINVAL, "rank %u of %u with %u processes is not a place in a job", opt->rank,
			       opt->world_size, opt->processes);
	while (ring < p->ahead)
		ring *= 2;

	x = calloc(1, sizeof *x);
	if (!x)
		return rs_oom(e, 0, "the connections to the reducers");
	x->opt = *opt;
	if (p->ahead == p->window)
		x->opt.features &= ~FEATURE_DECOUPLED;
	if (!opt->params.groups_n)
		x->opt.features &= ~FEATURE_RELAYS;
	x->params = &x->opt.params;
	x->opt.job = strcpy(x->job, opt->job);
	snprintf(x->label, sizeof x->label, "%s", opt->label ? opt->label : "");
	x->opt.label = x->label;
	snprintf(x->run, sizeof x->run, "%s", opt->run ? opt->run : "");
	x->opt.run = x->run;
	snprintf(x->evidence, sizeof x->evidence, "%s", opt->evidence ? opt->evidence : "");
	x->opt.evidence = x->evidence;
	x->retaining = p->retain && p->reducers_n > 1;
	x->links_n = exchange_count_links(p);
	exchange_begin(x, now_ms);
	x->feedback.limit = p->wire_feedback;
	if (exchange_allocate(x, ring, &why)) {
		exchange_free(x);
		return rs_fail(e, why.code, "%s", why.msg);
	}

	exchange_init_links(x, ring, now_ms);
	*ret = x;
	return RS_OK;
}

void exchange_free(struct exchange *x)
{
	if (!x)
		return;
	retain_close(&x->retain);
	free(x->saved);
	free(x->stage);
	feedback_close(&x->feedback);
	free(x->losses);
	free(x->shards);
	free(x->outgoing);
	for (unsigned i = 0; x->links && i < x->links_n; i++)
		free(x->links[i].outgoing);
	free(x->links);
	free(x);
}

enum exchange_state exchange_state(const struct exchange *x)
{
	return x->state;
}

const struct rs_err *exchange_error(const struct exchange *x)
{
	return &x->err;
}

unsigned exchange_links(const struct exchange *x)
{
	return x->links_n;
}

unsigned exchange_reducer(const struct exchange *x, unsigned link)
{
	return x->links[link].reducer;
}

const char *exchange_address(const struct exchange *x, unsigned link)
{
	return link_address(&x->links[link]);
}

bool exchange_links_changed(struct exchange *x)
{
	bool links_changed = x->links_changed;

	x->links_changed = false;
	return links_changed;
}

uint64_t exchange_next(const struct exchange *x)
{
	return x->next_ms;
}

enum exchange_want exchange_want(const struct exchange *x, unsigned link, uint64_t now_ms)
{
	const struct link *l = &x->links[link];

	switch (l->state) {
	case LINK_WAITING:
		if (l->open)
			return EXCHANGE_CLOSE;
		return now_ms >= l->retry_ms ? EXCHANGE_CONNECT : EXCHANGE_NOTHING;
	case LINK_CLOSED:
		return l->open ? EXCHANGE_CLOSE : EXCHANGE_NOTHING;
	case LINK_LEAVING:
	case LINK_ENDING:
		return link_has_output(l) || l->keeps ? EXCHANGE_NOTHING : EXCHANGE_SHUTDOWN;
	default:
		return EXCHANGE_NOTHING;
	}
}

void exchange_connecting(struct exchange *x, unsigned link, uint64_t now_ms)
{
	struct link *l = &x->links[link];

	l->open = true;
	l->binding_len = 0;
	l->source[0] = '\0';
	l->rtt_us = 0;
	l->paced = false;
	l->state = LINK_CONNECTING;
	l->since_ms = now_ms;
	l->tries++;
}

void exchange_bind(struct exchange *x, unsigned link, const uint8_t *binding, size_t len)
{
	struct link *l = &x->links[link];

	memcpy(l->binding, binding, len);
	l->binding_len = (uint32_t)len;
}

void exchange_set_source(struct exchange *x, unsigned link, const char *source)
{
	snprintf(x->links[link].source, CONTROL_SOURCE, "%s", source);
}

void exchange_connected(struct exchange *x, unsigned link, uint64_t now_ms)
{
	struct link *l = &x->links[link];
	struct rs_err e;

	if (l->state != LINK_CONNECTING)
		return; /* the exchange wants it closed by now */
	link_reset(l);
	l->ahead = x->params->ahead;
	lookahead_init(&l->lookahead);
	window_init(&l->window, x->params->chunk_bytes, x->params->window, x->opt.adaptive,
		    l->paced && l->rtt_us >= RS_LONG_US);
	l->state = LINK_HANDSHAKE;
	l->since_ms = l->last_rx_ms = l->last_tx_ms = now_ms;
	if (link_queue_hello(l, &e))
		link_join_failed(l, e.msg, RS_LOSS_OTHER, now_ms);
}

void exchange_set_path(struct exchange *x, unsigned link, const struct window_signal *s)
{
	x->links[link].rtt_us = s->min_rtt_us;
	x->links[link].paced = s->paced;
	x->links[link].estimate = s->estimate;
}

bool exchange_wants_signal(const struct exchange *x, unsigned link)
{
	return x->links[link].wants_signal;
}

void exchange_signal(struct exchange *x, unsigned link, const struct window_signal *s, uint64_t now_ms)
{
	struct link *l = &x->links[link];

	l->wants_signal = false;
	l->estimate = s->estimate;
	window_keep(&l->window, l->lookahead.limit / LOOKAHEAD_HOPS);
	window_signal(&l->window, s, now_ms);
}

void exchange_disconnected(struct exchange *x, unsigned link, const char *reason, enum rs_loss how, uint64_t now_ms)
{
	struct link *l = &x->links[link];

	l->open = false;
	switch (l->state) {
	case LINK_CONNECTING:
	case LINK_HANDSHAKE:
		l->busy = false;
		link_join_failed(l, reason, how, now_ms);
		break;
	case LINK_JOINED:
	case LINK_RUNNING:
		link_lost(l, &(struct loss){.why = reason, .how = how}, now_ms);
		break;
	case LINK_LEAVING:
		link_retry(l, now_ms);
		break;
	case LINK_ENDING:
		l->state = LINK_CLOSED;
		exchange_check_ended(x);
		break;
	case LINK_WAITING:
	case LINK_CLOSED:
		break;
	}
}

void exchange_rejected(struct exchange *x, unsigned link, const char *reason, uint64_t now_ms)
{
	struct link *l = &x->links[link];
	const struct rs_reducer *r = link_reducer(l);
	struct rs_err e;

	if (x->state == EXCHANGE_JOINING && link_lives(l) &&
	    (l->state == LINK_CONNECTING || l->state == LINK_HANDSHAKE)) {
		rs_fail(&e, RS_EREFUSED, "reducer %s (%s): %s", r->id, link_address(l), reason);
		exchange_fail(x, &e, true, NULL, now_ms);
	}
	exchange_disconnected(x, link, reason, RS_LOSS_OTHER, now_ms);
}

unsigned exchange_recv_target(struct exchange *x, unsigned link, struct iovec iov[2])
{
	return link_recv_target(&x->links[link], iov);
}

void exchange_received(struct exchange *x, unsigned link, size_t n, uint64_t now_ms)
{
	link_received(&x->links[link], n, now_ms);
}

unsigned exchange_send_target(struct exchange *x, unsigned link, struct iovec *iov, unsigned max)
{
	return link_send_target(&x->links[link], iov, max);
}

void exchange_sent(struct exchange *x, unsigned link, size_t n, uint64_t now_ms)
{
	link_sent(&x->links[link], n, now_ms);
	exchange_check_ended(x);
}
