/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/check.h"

#include "agent/node/core/client.h"
#include "agent/node/core/op_state.h"

#include <stdatomic.h>

/* Operations [matched, newest) are in the ring: started by some local ranks and not by
 * others. */
static const char *check_gathering(const struct local_job *j)
{
	if (j->matched > j->newest || j->newest - j->matched > j->hub->ops)
		return "more operations wait for local ranks than the ring holds";
	for (uint64_t seq = j->matched; seq < j->newest; seq++) {
		const struct local_op *op = j->ring[seq % j->hub->ops];

		if (!op || op->job != j || op->spec.of.seq != seq)
			return "an operation that waits for local ranks is not in its place";
		if (op->parts_n == 0 || op->parts_n >= j->members_n)
			return "an operation waits for local ranks although all or none have started it";
	}
	return NULL;
}

/* `filling` has the operations whose input is not complete, in the order of seq. */
static const char *check_filling(const struct local_job *j)
{
	const struct local_op *before = NULL;
	struct local_op *const *at = &j->filling;

	for (const struct local_op *op = j->filling; op; before = op, at = &op->next_filling, op = op->next_filling) {
		if (!op->filling || op->filling_at != at)
			return "the list of operations that wait for input is broken";
		if (before && op->spec.of.seq <= before->spec.of.seq)
			return "operations that wait for input are out of order";
		if (atomic_load(&op->ready) >= op->spec.of.count)
			return "an operation waits for input that it has";
	}
	return at == j->filling_end ? NULL : "the list of operations that wait for input ends elsewhere";
}

static const char *check_members(const struct local_job *j)
{
	unsigned clients = 0;

	for (unsigned i = 0; i < j->members_n; i++) {
		const struct local_member *m = &j->members[i];

		clients += m->client != NULL;
		if (m->client && (m->client->job != j || m->client->local_rank != i))
			return "a client is in the place of another local rank";
		if (m->in_flight > j->hub->ops)
			return "a local rank has more operations in flight than it may";
		if (m->next_seq > j->newest)
			return "a local rank has started an operation that the job does not know";
	}
	return clients == j->clients_n ? NULL : "a job's clients_n differs from its members";
}

/* A job with its members and the operations that have not started. */
static const char *local_job_check(const struct local_job *j)
{
	const char *broken = check_members(j);
	bool has_engine = j->state >= JOB_STARTING && j->state <= JOB_FAILING;

	if (broken)
		return broken;
	if ((has_engine && !j->engine) || (j->state == JOB_GATHERING && j->engine))
		return "a job has an engine in a state that has none, or the other way round";
	if (j->stages.busy_bytes + j->stages.idle_bytes > j->stages.limit && j->stages.idle_bytes)
		return "a job keeps idle stages above its limit";
	if (j->state != JOB_RUNNING)
		return NULL; /* the operations of a job that ends are taken down in steps */
	broken = check_gathering(j);
	return broken ? broken : check_filling(j);
}

/* A list of clients: returns their number; UINT32_MAX if a link is wrong or a client has
 * the wrong state. */
static unsigned check_clients(const struct local_hub *h, struct local_client *const *at, bool unjoined)
{
	unsigned n = 0;

	for (; *at; at = &(*at)->next, n++) {
		const struct local_client *c = *at;

		if (c->hub != h || c->at != at || (c->state == CLIENT_NEW) != unjoined ||
		    (c->job != NULL) != (c->state == CLIENT_JOINED) ||
		    (c->awaits && (c->state != CLIENT_LEAVING || c->awaits->state != JOB_FAILING)))
			return UINT32_MAX;
	}
	return n;
}

const char *local_hub_check(const struct local_hub *h)
{
	unsigned unjoined = check_clients(h, &h->unjoined, true), others = check_clients(h, &h->clients, false);
	unsigned jobs = 0;

	if (unjoined == UINT32_MAX || others == UINT32_MAX)
		return "a client is in the wrong list, or has or awaits a job in a state that has none";
	if (unjoined + others != h->clients_n)
		return "the hub's clients_n differs from its lists";
	for (const struct local_job *j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link), jobs++) {
		const char *broken = j->hub == h && *j->link.le_prev == j ? local_job_check(j) : "a job is in no list";

		if (broken)
			return broken;
	}
	return jobs == h->jobs_n ? NULL : "the hub's jobs_n differs from its list";
}
