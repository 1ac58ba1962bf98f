/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/service/history.h"

/* Returns what a counter grew by, for each second. That of an agent shrinks when a job
 * ends. */
static uint64_t rate(uint64_t before, uint64_t now, uint64_t ms)
{
	return now > before && ms ? (now - before) * 1000 / ms : 0;
}

void history_add(struct history *h, const Reduction__V1__StatusReply *m)
{
	Reduction__V1__Sample *to = &h->kept[h->next % HISTORY_KEPT];
	uint64_t received = 0, sent = 0;

	reduction__v1__sample__init(to);
	to->unix_ms = m->unix_ms;
	to->memory_bytes = m->agent ? m->agent->shm_bytes : m->memory_bytes;
	to->jobs = (uint32_t)(m->agent ? m->agent->n_jobs : m->n_jobs);
	for (size_t i = 0; i < m->n_lanes; i++) {
		received += m->lanes[i]->traffic ? m->lanes[i]->traffic->bytes_in : 0;
		sent += m->lanes[i]->traffic ? m->lanes[i]->traffic->bytes_out : 0;
		if (m->lanes[i]->busy_permil > to->busy_permil)
			to->busy_permil = m->lanes[i]->busy_permil;
	}
	for (size_t i = 0; m->agent && i < m->agent->n_jobs; i++) {
		received += m->agent->jobs[i]->bytes_in;
		sent += m->agent->jobs[i]->bytes_out;
	}
	to->bytes_in_per_s = rate(h->received, received, m->up_ms - h->up_ms);
	to->bytes_out_per_s = rate(h->sent, sent, m->up_ms - h->up_ms);
	h->received = received;
	h->sent = sent;
	h->up_ms = m->up_ms;
	h->next++;
}

void history_put(struct history *h, Reduction__V1__StatusReply *m)
{
	uint64_t n = h->next < HISTORY_KEPT ? h->next : HISTORY_KEPT;

	for (uint64_t i = 0; i < n; i++)
		h->order[i] = &h->kept[(h->next - n + i) % HISTORY_KEPT];
	m->samples = h->order;
	m->n_samples = n;
}
