/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/stripe_load.h"

#include "proto/features.h"

#include <string.h>

enum { LOAD_PERMIL = 1000, LOAD_SAMPLE_MS = 400 /* a shorter interval is too coarse */ };

/* Counts of values from 0 to LOAD_PERMIL. */
struct load_values {
	uint32_t count[LOAD_PERMIL + 1];
	uint32_t n, most, most_rank;
};

bool stripe_hears_load(const struct stripe *st)
{
	return st->features & FEATURE_SHARES;
}

/* Takes a sample of the time with unacknowledged bytes. */
static void session_load_sample(struct session *s, uint64_t busy_us)
{
	uint64_t now_ms = s->stripe->owner->now_ms, passed_ms = now_ms - s->load.busy_from_ms, permil;

	if (s->load.busy_from_ms && passed_ms < LOAD_SAMPLE_MS)
		return;
	if (s->load.busy_from_ms) {
		permil = busy_us > s->load.busy_us ? (busy_us - s->load.busy_us) / passed_ms : 0;
		s->load.down = permil < LOAD_PERMIL ? (uint32_t)permil : LOAD_PERMIL;
		s->load.down_known = true;
	}
	s->load.busy_us = busy_us;
	s->load.busy_from_ms = now_ms;
}

void session_network(struct session *s, uint32_t rtt_us, uint32_t min_rtt_us, uint64_t retransmits, uint64_t busy_us)
{
	s->rtt_us = rtt_us;
	s->min_rtt_us = min_rtt_us;
	s->count.retransmits = retransmits;
	session_load_sample(s, busy_us);
}

static void load_count(struct load_values *v, uint32_t value, unsigned rank)
{
	v->count[value]++;
	if (!v->n++ || value > v->most) {
		v->most = value;
		v->most_rank = rank;
	}
}

/* Returns the median, the lower one of an even number. */
static uint32_t load_median(const struct load_values *v)
{
	uint32_t value = 0, below = v->count[0];

	while (below < (v->n + 1) / 2)
		below += v->count[++value];
	return value;
}

static void load_answer(struct session *s)
{
	struct stripe *st = s->stripe;
	struct control_load answer = {.processor = st->owner->processor};
	struct load_values up = {.n = 0}, down = {.n = 0};
	uint8_t payload[CONTROL_LOAD_LEN];

	for (unsigned r = 0; r < st->p.world_size; r++) {
		const struct session *from = st->sessions[r];

		if (!from || !from->load.up_known || !from->load.down_known ||
		    st->owner->now_ms - from->load.up_at_ms > LOAD_FRESH_MS)
			continue;
		load_count(&up, from->load.up, r);
		load_count(&down, from->load.down, r);
	}
	if (up.n) {
		answer.ranks = up.n;
		answer.up = load_median(&up);
		answer.down = load_median(&down);
		answer.up_most = up.most;
		answer.up_most_rank = up.most_rank;
		answer.down_most = down.most;
		answer.down_most_rank = down.most_rank;
	}
	/* the queue of a peer that does not read must keep room for ABORT */
	if (s->control_off == s->control_len)
		session_queue_frame(s, FRAME_LOAD, payload, control_pack_load(payload, &answer));
}

int stripe_take_load(struct session *s, struct rs_err *e)
{
	struct control_load l;
	char name[160];

	if (control_unpack_load(s->control_in, s->in.payload_len, &l, e))
		return rs_wrap(e, "%s", stripe_rank_name(s->stripe, s->rank, name, sizeof name));
	s->load.up = l.up;
	s->load.up_known = l.ranks > 0;
	s->load.up_at_ms = s->stripe->owner->now_ms;
	if (l.answer && s->stripe->running && !s->draining && !s->lost)
		load_answer(s);
	return RS_OK;
}
