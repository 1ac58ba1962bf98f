/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks, and the uplinks of reducers that relay for them. An uplink joins a job
 * that runs here already: its ranks have met, and START has told the relay which start of
 * the job it is. It takes no rank's place, and the job does not wait for it. */
#include "server/jobs/registry_priv.h"

#include "config/limits.h"
#include "proto/features.h"

#include <stdio.h>
#include <string.h>

enum {
	GROUPS_MAX = 64,
	UPLINKS_MAX = RS_REDUCERS_MAX * RS_LANES_MAX,
	RELAY_PAUSE_MS = 5000, /* after the first failure; each further one doubles it */
	RELAY_PAUSE_MAX_MS = 10 * 60000,
};

uint64_t registry_features(const struct registry *r, const struct control_hello *h)
{
	bool relays = h->groups && r->opt.reducers_digest && h->reducers_digest == r->opt.reducers_digest;

	return relays ? r->opt.features : r->opt.features & ~FEATURE_RELAYS;
}

struct control_start registry_agree(const struct registry *r, const struct job *j)
{
	struct control_start s = {.features = registry_features(r, &j->first), .start = j->members[0].incarnation};

	for (unsigned i = 0; i < j->first.world_size; i++)
		s.features &= j->members[i].features;
	return s;
}

int registry_check_groups(const struct control_hello *h, struct control_refused *no)
{
	if (h->relay > RS_REDUCERS_MAX)
		return registry_refuse(no, RS_EINVAL, false, "relay %u is out of range 0 to %d", h->relay - 1,
				       RS_REDUCERS_MAX - 1);
	if (!h->groups)
		return RS_OK;
	if (h->groups > GROUPS_MAX || h->group < 1 || h->group > h->groups)
		return registry_refuse(no, RS_EINVAL, false, "group %u of %u is out of range (at most %d groups)",
				       h->group, h->groups, GROUPS_MAX);
	if (h->uplinks > UPLINKS_MAX)
		return registry_refuse(no, RS_EINVAL, false, "%u uplinks are out of range 0 to %d", h->uplinks,
				       UPLINKS_MAX);
	return RS_OK;
}

/* Returns the entry of a job; NULL: it has none. */
static const struct registry_relay_pause *find_pause(const struct registry *r, const char *job)
{
	for (unsigned i = 0; i < REGISTRY_RELAY_PAUSES; i++)
		if (r->relay_pauses[i].ms && strcmp(r->relay_pauses[i].job, job) == 0)
			return &r->relay_pauses[i];
	return NULL;
}

void registry_relay_failed(struct registry *r, const char *job)
{
	const struct registry_relay_pause *found = find_pause(r, job);
	struct registry_relay_pause *p = &r->relay_pauses[found ? found - r->relay_pauses : 0];
	bool soon = found && r->now_ms < p->from_ms + p->ms + RELAY_PAUSE_MS;
	uint32_t ms = soon ? 2 * p->ms : RELAY_PAUSE_MS;

	/* a new entry takes the place of the one that ends first */
	for (unsigned i = 1; !found && i < REGISTRY_RELAY_PAUSES; i++)
		if (r->relay_pauses[i].from_ms < p->from_ms)
			p = &r->relay_pauses[i];
	snprintf(p->job, sizeof p->job, "%s", job);
	p->ms = ms < RELAY_PAUSE_MAX_MS ? ms : RELAY_PAUSE_MAX_MS;
	p->from_ms = r->now_ms + p->ms;
}

int registry_check_relay(const struct registry *r, const struct control_hello *h, struct control_refused *no)
{
	const struct registry_relay_pause *p = h->rejoin && h->groups ? find_pause(r, h->job) : NULL;

	if (!p || r->now_ms >= p->from_ms)
		return RS_OK;
	return registry_refuse(
	    no, RS_EREFUSED, true,
	    "this reducer relays for a group, and had no connection to another one; next attempt in %u s",
	    (unsigned)((p->from_ms - r->now_ms) / 1000 + 1));
}

/* Returns the job that the relay of an uplink is in; NULL: it does not run here now. */
static struct job *find_relayed(struct registry *r, const struct control_hello *h)
{
	struct job *j = r->jobs;

	while (j && (strcmp(j->first.job, h->job) != 0 || j->first.generation != h->generation || j->ended ||
		     job_is_left(j) || !j->running || j->members[0].incarnation != h->incarnation))
		j = j->next;
	return j;
}

int registry_admit_uplink(struct registry *r, const struct control_hello *h, struct registry_admit *ret,
			  struct control_refused *no)
{
	struct job *j = find_relayed(r, h);

	if (!j)
		return registry_refuse(no, RS_EREFUSED, true, "this start of job %s does not run here now", h->job);
	if (strcmp(h->reducer, j->first.reducer) != 0)
		return registry_refuse(no, RS_EREFUSED, true, "this is reducer %s of job %s, and not %s",
				       j->first.reducer, h->job, h->reducer);
	if (h->config_digest != j->first.config_digest || h->world_size != j->first.world_size ||
	    h->groups != j->first.groups || h->chunk_bytes != j->first.chunk_bytes || h->lane >= j->first.lanes)
		return registry_refuse(no, RS_EMISMATCH, false,
				       "relay %u of job %s is in a job that is configured differently", h->relay - 1,
				       h->job);
	if (!(registry_agree(r, j).features & FEATURE_RELAYS))
		return registry_refuse(no, RS_EREFUSED, false, "job %s uses no relays here", h->job);
	if (j->uplinks >= j->first.uplinks * j->first.lanes)
		return registry_refuse(no, RS_EREFUSED, true, "job %s has %u uplinks here, as many as it has relays",
				       h->job, j->uplinks);
	j->uplinks++;
	j->sessions++;
	*ret = (struct registry_admit){
	    .stripe = registry_stripe(j, h->lane),
	    .session = {.peer_detect_ms = h->detect_ms, .group = h->group - 1, .relay = h->relay},
	    .thread = (j->base + h->lane) % r->opt.threads,
	    .features = registry_features(r, &j->first),
	};
	memcpy(ret->session.label, h->label, sizeof ret->session.label);
	return RS_OK;
}
