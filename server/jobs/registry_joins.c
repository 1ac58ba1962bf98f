/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a worker may join a job that exists.
 *
 * Another process with a place that is taken is refused for good, but only if the rank
 * that has the place is alive. The registry asks that rank when the process comes for the
 * first time, and lets it retry. The answer repeats the number of the question: one that
 * was on its way when the process came proves nothing. So a process that replaces one
 * that has died gets the place as soon as its connections are gone. */
#include "server/jobs/registry_priv.h"

#include <stdio.h>
#include <string.h>

/* Returns whether another process has the place of a HELLO. */
static bool taken(const struct job *j, const struct control_hello *h)
{
	return h->world_size == j->first.world_size && j->members[h->rank].lanes &&
	       j->members[h->rank].incarnation != h->incarnation;
}

static int refuse_taken(const struct job *j, const struct control_hello *h, struct control_refused *no)
{
	const struct member *m = &j->members[h->rank];

	return registry_refuse(
	    no, RS_EREFUSED, true,
	    "rank %u of job %s is already taken by %s, and %s wants it too: check the ranks, or give each training its "
	    "own job.name",
	    h->rank, h->job, m->label[0] ? m->label : "another process", h->label[0] ? h->label : "this process");
}

/* Checks that a HELLO agrees with the existing job. */
static int check_same(const struct job *j, const struct control_hello *h, struct control_refused *no)
{
	const struct control_hello *f = &j->first;

	if (h->rejoin != f->rejoin)
		return registry_refuse(no, RS_EREFUSED, true,
				       "job %s: ranks of its previous run are still connected; retrying", h->job);
	if (h->world_size != f->world_size)
		return registry_refuse(no, RS_EMISMATCH, false,
				       "rank %u says the world size of job %s is %u, rank %u says %u", h->rank, h->job,
				       h->world_size, f->rank, f->world_size);
	if (strcmp(h->reducer, f->reducer) != 0)
		return registry_refuse(
		    no, RS_EMISMATCH, false,
		    "rank %u of job %s calls this reducer %s, rank %u calls it %s: check the addresses", h->rank,
		    h->job, h->reducer, f->rank, f->reducer);
	if (h->retain != f->retain)
		return registry_refuse(no, RS_EMISMATCH, false,
				       "ranks %u and %u of job %s are configured differently: job.failover %s and %s",
				       h->rank, f->rank, h->job, h->retain ? "retain" : "fail",
				       f->retain ? "retain" : "fail");
	if (h->deterministic != f->deterministic || h->checksum != f->checksum)
		return registry_refuse(
		    no, RS_EMISMATCH, false,
		    "ranks %u and %u of job %s are configured differently: job.deterministic %s and %s, "
		    "job.checksum %s and %s",
		    h->rank, f->rank, h->job, h->deterministic ? "true" : "false", f->deterministic ? "true" : "false",
		    h->checksum ? "true" : "false", f->checksum ? "true" : "false");
	if (h->chunk_bytes != f->chunk_bytes || h->window != f->window || h->priorities != f->priorities ||
	    h->lanes != f->lanes)
		return registry_refuse(no, RS_EMISMATCH, false,
				       "ranks %u and %u of job %s are configured differently: chunk_bytes %u and %u, "
				       "window %u and %u, priorities %u and %u, lanes %u and %u",
				       h->rank, f->rank, h->job, h->chunk_bytes, f->chunk_bytes, h->window, f->window,
				       h->priorities, f->priorities, h->lanes, f->lanes);
	if (h->decoded_bytes != f->decoded_bytes)
		return registry_refuse(no, RS_EMISMATCH, false,
				       "ranks %u and %u of job %s are configured differently: one of them sends 8 bits "
				       "for each element, or "
				       "4 (job.wire), the other does not",
				       h->rank, f->rank, h->job);
	if (h->config_digest != f->config_digest || h->groups != f->groups || h->uplinks != f->uplinks ||
	    h->reducers_digest != f->reducers_digest)
		return registry_refuse(
		    no, RS_EMISMATCH, false,
		    "ranks %u and %u of job %s are configured differently: their reducers or shard maps are "
		    "not the same",
		    h->rank, f->rank, h->job);
	if (j->members[h->rank].lanes >> h->lane & 1)
		/* the same process gave up an earlier attempt, whose end has not arrived
		 * here yet */
		return registry_refuse(no, RS_EREFUSED, true,
				       "lane %u of rank %u of job %s is still attached from an earlier attempt",
				       h->lane, h->rank, h->job);
	return RS_OK;
}

/* Asks a rank, on its lowest lane, whether it is alive. Returns the number of the
 * question. */
static uint64_t ask(struct registry *r, const struct job *j, unsigned rank)
{
	unsigned lane = (unsigned)__builtin_ctzll(j->members[rank].lanes);

	registry_emit(r, j,
		      (struct registry_action){
			  .type = REGISTRY_ASK,
			  .rank = rank,
			  .lane = lane,
			  .thread = (j->base + lane) % r->opt.threads,
			  .question = ++r->question,
		      });
	return r->question;
}

bool registry_contend(struct registry *r, const struct job *j, const struct control_hello *h, unsigned rank)
{
	struct registry_contender *c = r->contenders;

	if (!j->members[rank].lanes)
		return false;
	while (c < r->contenders + REGISTRY_CONTENDERS &&
	       !(c->job == j->id && c->rank == rank && c->incarnation == h->incarnation))
		c++;
	if (c < r->contenders + REGISTRY_CONTENDERS)
		return c->answered;
	c = &r->contenders[r->contenders_next];
	r->contenders_next = (r->contenders_next + 1) % REGISTRY_CONTENDERS;
	*c = (struct registry_contender){.job = j->id, .rank = rank, .incarnation = h->incarnation};
	c->question = ask(r, j, rank);
	return false;
}

void registry_answered(struct registry *r, const struct lane_event *ev)
{
	for (unsigned i = 0; i < REGISTRY_CONTENDERS; i++) {
		struct registry_contender *c = &r->contenders[i];

		if (c->job == ev->job && c->rank == ev->rank && c->question <= ev->question)
			c->answered = true;
	}
}

/* A running job is complete, but may be over soon, so the worker may retry: one rank can
 * open its next communicator before another one has closed its last. It need not retry if
 * the job goes on. */
int registry_check_shared(const struct job *j, const struct control_hello *h, struct control_refused *no)
{
	bool led = j && (h->rank == 0 || j->members[0].lanes);

	if (!h->shared || (led && strcmp(h->reducer, j->first.reducer) == 0) || (!j && h->rank == 0))
		return RS_OK;
	if (led)
		registry_refuse(
		    no, RS_EREFUSED, true,
		    "this is reducer %s of job %s, which rank %u looks for at other addresses of the name as well",
		    j->first.reducer, h->job, h->rank);
	else
		registry_refuse(no, RS_EREFUSED, true,
				"rank 0 of job %s has not come to this address of a name that several reducers share",
				h->job);
	no->elsewhere = true;
	snprintf(no->reducer, sizeof no->reducer, "%s", led ? j->first.reducer : "");
	return no->code;
}

int registry_check_joins(struct registry *r, const struct job *j, const struct control_hello *h,
			 struct control_refused *no)
{
	const struct control_hello *f = &j->first;
	int rc;

	if (taken(j, h)) {
		rc = refuse_taken(j, h, no);
		no->retry = !registry_contend(r, j, h, h->rank);
		return rc;
	}
	rc = check_same(j, h, no);
	if (!j->running)
		return rc;
	if (!rc)
		rc = registry_refuse(no, RS_EREFUSED, true,
				     "rank %u has left generation %u of job %s, which still runs on other ranks",
				     h->rank, h->generation, h->job);
	no->retry = true;
	if (rc == RS_EMISMATCH && h->world_size != f->world_size && j->complete == f->world_size)
		no->retry = !registry_contend(r, j, h, h->rank < f->world_size ? h->rank : f->rank);
	return rc;
}
