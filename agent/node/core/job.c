/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: which clients belong to them, and their life. hub.h describes the states. */
#include "agent/node/core/job.h"
#include "agent/node/core/op_state.h"
#include "agent/node/core/progress.h"
#include "agent/node/core/sharded.h"
#include "agent/node/core/submit.h"
#include "agent/node/core/text.h"
#include "common/assert.h"
#include "config/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void local_job_free(struct local_job *j)
{
	struct local_hub *h = j->hub;
	struct local_op *op;

	rs_assert(!j->engine && j->clients_n == 0 && j->running == 0);
	local_job_drop_ops(j);
	while ((op = j->idle)) {
		j->idle = op->next;
		free(op);
	}
	local_stages_close(&j->stages, h);
	LIST_REMOVE(j, link);
	h->jobs_n--;
	if (local_may_log(h, LOCAL_LIMITED_JOBS))
		rs_log(h->log, RS_LOG_INFO, "job-ended", rs_kv_s("job", j->name), rs_kv_u("generation", j->generation));
	free(j->ring);
	free(j->members);
	free(j);
}

/* Frees the job if it has ended. j may be invalid afterwards. */
static void local_job_free_if_over(struct local_job *j)
{
	if (j->clients_n == 0 && !j->engine && (j->state == JOB_GATHERING || j->state >= JOB_ENDING))
		local_job_free(j);
}

static struct local_job *local_job_find(struct local_hub *h, const struct local_hello *hello)
{
	for (struct local_job *j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link))
		if (strcmp(j->name, hello->job) == 0 && j->generation == hello->generation)
			return j;
	return NULL;
}

static int local_job_new(struct local_job **ret, struct local_hub *h, const struct local_hello *hello, uint64_t now_ms,
			 struct rs_err *e)
{
	const struct exchange_params params = rs_config_exchange(h->cfg);
	struct local_job *j;

	if (h->jobs_n >= h->cfg->agent.max_jobs)
		return rs_fail(e, RS_EREFUSED, "the agent on %s already serves %u jobs (agent.max_jobs)", h->host,
			       h->jobs_n);
	j = calloc(1, sizeof *j);
	if (!j)
		goto err;

	j->members = calloc(hello->local_world_size, sizeof *j->members);
	j->ring = calloc(h->ops, sizeof *j->ring);
	if (!j->members || !j->ring)
		goto err_job;
	j->hub = h;
	j->cfg = h->cfg;
	j->ring_bytes = exchange_ring_bytes(&params);
	j->decoded_bytes = params.decoded_bytes;
	memcpy(j->name, hello->job, sizeof j->name);
	memcpy(j->run, hello->run, sizeof j->run);
	j->generation = hello->generation;
	j->deadline_ms = now_ms + hello->connect_ms;
	j->opened_ms = now_ms;
	j->report_ms = now_ms + EXCHANGE_QUIET_MS;
	j->members_n = hello->local_world_size;
	j->ready = (struct local_event){.kind = LOCAL_EVENT_READY, .owner = j};
	j->failed = (struct local_event){.kind = LOCAL_EVENT_FAILED, .owner = j};
	j->queue_end = &j->queue;
	j->filling_end = &j->filling;
	j->stages.limit = LOCAL_STAGE_LIMIT;
	LIST_INSERT_HEAD(&h->jobs, j, link);
	h->jobs_n++;
	*ret = j;
	return RS_OK;
err_job:
	free(j->members);
	free(j->ring);
	free(j);
err:
	return rs_oom(e, 0, "job %s in the agent on %s", hello->job, h->host);
}

/* Checks a HELLO by itself. */
static int local_job_check_hello(const struct local_hello *m, struct rs_err *e)
{
	if (!rs_job_valid(m->job))
		return rs_fail(e, RS_EINVAL, "'%s' is not a job name, expected letters, digits, '.', '_' and '-'",
			       m->job);
	if (m->run[0] && rs_run_check(m->run, "run", e))
		return e->code;
	if (m->world_size == 0 || m->world_size > RS_WORLD_MAX || m->rank >= m->world_size)
		return rs_fail(e, RS_EINVAL, "rank %u of a world of %u, expected a rank below a world size of 1 to %d",
			       m->rank, m->world_size, RS_WORLD_MAX);
	if (m->local_world_size == 0 || m->local_world_size > LOCAL_CLIENTS_MAX || m->local_rank >= m->local_world_size)
		return rs_fail(
		    e, RS_EINVAL,
		    "local rank %u of %u local ranks, expected a local rank below a local world size of 1 to %d",
		    m->local_rank, m->local_world_size, LOCAL_CLIENTS_MAX);
	if (m->nodes == 0 || m->node_rank >= m->nodes)
		return rs_fail(e, RS_EINVAL, "node %u of %u nodes, expected a number below the number of nodes",
			       m->node_rank, m->nodes);
	return RS_OK;
}

/* Checks that the sizes of a HELLO are possible together. */
static int local_job_check_sizes(const struct local_hello *m, struct rs_err *e)
{
	if (m->nodes == 1 ? m->local_world_size != m->world_size
			  : (uint64_t)m->local_world_size + m->nodes - 1 > m->world_size)
		return rs_fail(e, RS_EINVAL,
			       "%u local ranks on this node of %u cannot be part of a world of %u; "
			       "LOCAL_WORLD_SIZE or the number of nodes is wrong",
			       m->local_world_size, m->nodes, m->world_size);
	return RS_OK;
}

/* Checks a HELLO against those of the job's other local ranks. */
static int local_job_check_same(const struct local_job *j, const struct local_hello *m, struct rs_err *e)
{
	const struct {
		const char *what;
		size_t at;
	} fields[] = {{"world size", offsetof(struct local_hello, world_size)},
		      {"local world size", offsetof(struct local_hello, local_world_size)},
		      {"nodes", offsetof(struct local_hello, nodes)},
		      {"node rank", offsetof(struct local_hello, node_rank)}};
	char who[LOCAL_RANK_TEXT];

	for (unsigned i = 0; i < j->members_n; i++) {
		const struct local_hello *other = &j->members[i].hello;

		if (!j->members[i].client)
			continue;
		for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
			uint32_t mine, theirs;

			memcpy(&mine, (const char *)m + fields[f].at, sizeof mine);
			memcpy(&theirs, (const char *)other + fields[f].at, sizeof theirs);
			if (mine != theirs)
				return rs_fail(e, RS_EMISMATCH, "rank %u (pid %u) of job %s has %s %u, %s has %u",
					       m->rank, m->pid, j->name, fields[f].what, mine,
					       local_job_rank_text(j, i, who), theirs);
		}
		if (other->local_rank == m->local_rank || other->rank == m->rank)
			return rs_fail(e, RS_EREFUSED,
				       "rank %u (local rank %u) of job %s is taken: %s has local rank %u", m->rank,
				       m->local_rank, j->name, local_job_rank_text(j, i, who), other->local_rank);
	}
	return RS_OK;
}

/* Checks that the job did not fail a moment ago because its local ranks contradicted each
 * other. The ranks that come after the others have left must hear of it, too. */
static int local_job_check_contradicted(const struct local_hub *h, const struct local_hello *m, struct rs_err *e)
{
	const struct local_contradiction *c = &h->contradiction;

	if (c->until_ms <= h->now_ms || c->generation != m->generation || strcmp(c->job, m->job) != 0 ||
	    strcmp(c->run, m->run) != 0)
		return RS_OK;
	*e = c->err;
	return e->code;
}

/* Ends a job that still gathers: its local ranks contradict each other, so it can never
 * start. */
static void local_job_contradicted(struct local_job *j, const struct rs_err *why)
{
	struct local_contradiction *c = &j->hub->contradiction;

	*c = (struct local_contradiction){
	    .generation = j->generation, .until_ms = j->hub->now_ms + LOCAL_CONTRADICTION_MS, .err = *why};
	memcpy(c->job, j->name, sizeof c->job);
	memcpy(c->run, j->run, sizeof c->run);
	local_job_fail(j, why);
}

/* Checks that the evidence of a HELLO agrees with that of the job's local ranks. */
static int local_job_check_evidence(const struct local_job *j, const struct local_hello *m, const char *mine,
				    struct rs_err *e)
{
	char theirs[LOCAL_RANK_TEXT];

	for (unsigned i = 0; i < j->members_n; i++)
		if (j->members[i].client &&
		    rs_evidence_check(j->name, mine, m->evidence, local_job_rank_text(j, i, theirs),
				      j->members[i].hello.evidence, e))
			return e->code;
	return RS_OK;
}

/* Checks that no job of that name lives whose ranks belong to another training: with
 * another run, or in the same generation with other evidence. One with an older
 * generation may be the same training before a restart that changed its run, so the
 * client may retry. */
static int local_job_check_run(const struct local_hub *h, const struct local_hello *m, bool *ret_retry,
			       struct rs_err *e)
{
	char mine[LOCAL_RANK_TEXT], theirs[LOCAL_RANK_TEXT];

	for (const struct local_job *j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link)) {
		bool same = strcmp(j->run, m->run) == 0;
		unsigned i = 0;

		if (strcmp(j->name, m->job) != 0 || j->state >= JOB_ENDING || (same && j->generation != m->generation))
			continue;
		snprintf(mine, sizeof mine, "rank %u (pid %u on %s)", m->rank, m->pid, h->host);
		if (same && local_job_check_evidence(j, m, mine, e))
			return e->code;
		if (same)
			continue;
		while (i + 1 < j->members_n && !j->members[i].client)
			i++;
		*ret_retry = j->generation < m->generation;
		return rs_run_mismatch(j->name, mine, m->run, local_job_rank_text(j, i, theirs), j->run, e);
	}
	return RS_OK;
}

/* The job of a HELLO does not gather any more. While its local ranks live, another
 * process cannot be one of them. */
static int local_job_refuse_late(const struct local_job *j, const struct local_hello *m, bool *ret_retry,
				 struct rs_err *e)
{
	if (j->state >= JOB_ENDING || (m->local_rank < j->members_n && j->members[m->local_rank].left)) {
		*ret_retry = true;
		return rs_fail(e, RS_EREFUSED,
			       "generation %u of job %s has ended on %s, but not all of its processes have left",
			       m->generation, m->job, j->hub->host);
	}
	if (local_job_check_same(j, m, e))
		return e->code;
	return rs_fail(e, RS_EREFUSED, "generation %u of job %s is already running on %s with all local ranks",
		       m->generation, m->job, j->hub->host);
}

/* Finds or creates the job of a HELLO; ends those of older generations. */
static int local_job_find_or_new(struct local_hub *h, const struct local_hello *m, uint64_t now_ms,
				 struct local_job **ret, bool *ret_retry, struct rs_err *e)
{
	struct local_job *j;
	struct rs_err old;
	int rc;

	*ret_retry = false;
	if (h->draining)
		return rs_fail(e, RS_EREFUSED, "the agent on %s is stopping", h->host);
	if (local_job_check_contradicted(h, m, e) || local_job_check_run(h, m, ret_retry, e))
		return e->code;
	for (j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link))
		if (strcmp(j->name, m->job) == 0 && j->generation > m->generation)
			return rs_fail(e, RS_EREFUSED, "job %s is at generation %u, generation %u is over", j->name,
				       j->generation, m->generation);

	j = local_job_find(h, m);
	if (j && j->state != JOB_GATHERING)
		return local_job_refuse_late(j, m, ret_retry, e);
	if (j) {
		*ret = j;
		rc = local_job_check_same(j, m, e);
		if (rc == RS_EMISMATCH)
			local_job_contradicted(j, e);
		return rc;
	}
	if (local_job_check_sizes(m, e))
		return e->code;
	if (local_job_new(&j, h, m, now_ms, e)) {
		*ret_retry = true; /* other jobs will end and free memory */
		return e->code;
	}

	*ret = j;
	rs_fail(&old, RS_ECLOSED, "generation %u of job %s has started on %s", m->generation, m->job, h->host);
	for (j = LIST_FIRST(&h->jobs); j; j = LIST_NEXT(j, link))
		if (strcmp(j->name, m->job) == 0 && j->generation < m->generation)
			local_job_fail(j, &old);
	return RS_OK;
}

/* Returns whether the sum of this node is the result. */
static bool local_job_is_single(const struct local_job *j, const struct local_hello *m)
{
	return m->nodes == 1 && !j->cfg->agent.single_node_reducers;
}

static void local_job_start_engine(struct local_job *j, uint64_t now_ms)
{
	const struct local_hello *m = &j->members[0].hello;
	struct local_hub *h = j->hub;
	struct local_engine spec;
	char label[LOCAL_RANK_TEXT];
	struct rs_err e;

	j->shared = m->world_size > m->nodes;
	j->one_node = m->nodes == 1;
	j->single_worker = local_job_is_single(j, m);
	spec = (struct local_engine){.cfg = j->cfg,
				     .job = j->name,
				     .run = j->run,
				     .evidence = m->evidence,
				     .generation = j->generation,
				     .rank = m->node_rank,
				     .world_size = m->nodes,
				     .processes = j->members_n,
				     .single_worker = j->single_worker,
				     .shards = local_job_shards(j),
				     .label = local_job_ranks_text(j, label),
				     .connect_ms =
					 j->deadline_ms > now_ms + 1000 ? (uint32_t)(j->deadline_ms - now_ms) : 1000};
	j->state = JOB_STARTING;
	j->gathered = true;
	if (local_may_log(h, LOCAL_LIMITED_JOBS))
		rs_log(h->log, RS_LOG_INFO, "job-started", rs_kv_s("job", j->name),
		       rs_kv_u("generation", j->generation), rs_kv_s("run", j->run), rs_kv_u("node", m->node_rank),
		       rs_kv_u("nodes", m->nodes), rs_kv_u("processes", j->members_n),
		       rs_kv_s("summed_by", j->single_worker ? "node" : "reducers"));
	if (h->ports.engine_start(h->ctx, &j->engine, j, &spec, &e)) {
		j->engine = NULL;
		local_job_fail(j, &e);
	}
}

void local_job_hello(struct local_client *c, const struct local_hello *hello, uint64_t now_ms)
{
	struct local_hub *h = c->hub;
	union local_message m;
	struct local_job *j = NULL;
	struct rs_err e;
	bool retry = false;

	if (local_job_check_hello(hello, &e) || local_job_find_or_new(h, hello, now_ms, &j, &retry, &e)) {
		if (local_may_log(h, LOCAL_LIMITED_REFUSED))
			rs_log(h->log, RS_LOG_WARN, "client-refused", rs_kv_u("pid", c->pid), rs_kv_s("reason", e.msg));
		local_client_leave(c, LOCAL_REFUSED, &e, retry);
		return;
	}
	local_client_set_state(c, CLIENT_JOINED);
	c->job = j;
	c->local_rank = hello->local_rank;
	local_client_start_pings(c, hello->detect_ms, now_ms);
	j->members[c->local_rank] = (struct local_member){.client = c, .hello = *hello, .joined_ms = now_ms};
	j->clients_n++;
	rs_log(h->log, RS_LOG_DEBUG, "client-joined", rs_kv_s("job", j->name), rs_kv_u("rank", hello->rank),
	       rs_kv_u("local_rank", hello->local_rank), rs_kv_u("pid", hello->pid));
	local_init(&m, LOCAL_WELCOME);
	m.welcome.ops = h->ops;
	m.welcome.priorities = j->cfg->sharding.priorities;
	m.welcome.chunk_bytes = j->cfg->sharding.chunk_bytes;
	m.welcome.decoded_bytes = j->decoded_bytes;
	m.welcome.wire_up = j->cfg->job.wire_up;
	m.welcome.wire_down = j->cfg->job.wire_down;
	m.welcome.ring_bytes = j->ring_bytes;
	m.welcome.single_node = local_job_is_single(j, hello);
	m.welcome.shm_bytes = h->cfg->agent.shm_bytes / j->members_n;
	h->ports.send(h->ctx, c, &m, -1);
	if (j->clients_n == j->members_n)
		local_job_start_engine(j, now_ms);
}

/* Takes the client out of its job, before what this means for the job is decided. */
static struct local_job *local_job_detach(struct local_client *c)
{
	struct local_job *j = c->job;

	c->job = NULL;
	j->members[c->local_rank].client = NULL;
	j->clients_n--;
	return j;
}

/* The client has left the job, which may be invalid afterwards. */
static void local_job_detached(struct local_client *c, struct local_job *j)
{
	if (j->state == JOB_FAILING)
		c->awaits = j;
	local_job_free_if_over(j);
}

void local_job_goodbye(struct local_client *c)
{
	struct local_job *j = local_job_detach(c);
	struct local_member *m = &j->members[c->local_rank];
	char who[LOCAL_RANK_TEXT];
	struct rs_err e;

	m->left = true;
	if (j->state == JOB_STARTING) {
		rs_fail(&e, RS_ECLOSED, "%s has left before all ranks had met",
			local_job_rank_text(j, c->local_rank, who));
		local_job_fail(j, &e);
	} else if (j->state == JOB_RUNNING && j->clients_n == 0 && m->in_flight == 0) {
		j->state = JOB_ENDING;
		local_job_free_engine(j);
	} else {
		local_job_check_left(j);
	}
	if (j->state == JOB_RUNNING && m->in_flight > 0) {
		/* its requests have failed, so those of other ranks must not succeed with
		 * what it has sent */
		rs_fail(&e, RS_ECLOSED, "%s has left the job while %u of its operations %s pending",
			local_job_rank_text(j, c->local_rank, who), m->in_flight, m->in_flight == 1 ? "was" : "were");
		local_job_fail(j, &e);
	}
	local_job_detached(c, j);
}

/* The client leaves its job, which ends for this reason if it has begun. */
static void local_job_leave(struct local_client *c, const struct rs_err *why)
{
	struct local_job *j = local_job_detach(c);

	if (j->state != JOB_GATHERING)
		local_job_fail(j, why);
	local_job_detached(c, j);
}

void local_job_lost(struct local_client *c, const char *how)
{
	char who[LOCAL_RANK_TEXT];
	struct rs_err e;

	rs_fail(&e, RS_EPEER, "%s %s", local_job_rank_text(c->job, c->local_rank, who), how);
	local_job_leave(c, &e);
}

void local_job_abort(struct local_client *c, const char *sentence)
{
	char who[LOCAL_RANK_TEXT];
	struct rs_err e;

	rs_fail(&e, RS_EABORTED, "%s", sentence);
	if (!sentence[0])
		rs_fail(&e, RS_EABORTED, "%s aborted the job", local_job_rank_text(c->job, c->local_rank, who));
	local_job_leave(c, &e);
}

void local_job_on_ready(void *user)
{
	struct local_job *j = user;

	j->hub->ports.post(j->hub->ctx, &j->ready);
}

void local_job_on_failed(void *user, const struct rs_err *err)
{
	struct local_job *j = user;

	j->failed.err = *err;
	j->hub->ports.post(j->hub->ctx, &j->failed);
}

static void local_job_engine_ready(struct local_job *j)
{
	union local_message m;

	if (j->state != JOB_STARTING)
		return;
	j->state = JOB_RUNNING;
	if (local_may_log(j->hub, LOCAL_LIMITED_JOBS))
		rs_log(j->hub->log, RS_LOG_INFO, "job-ready", rs_kv_s("job", j->name),
		       rs_kv_u("generation", j->generation));
	local_init(&m, LOCAL_READY);
	m.ready.can_shard = local_job_can_shard(j);
	for (unsigned i = 0; i < j->members_n; i++)
		if (j->members[i].client)
			j->hub->ports.send(j->hub->ctx, j->members[i].client, &m, -1);
}

static void local_job_engine_failed(struct local_job *j)
{
	if (j->state == JOB_STARTING || j->state == JOB_RUNNING) {
		j->err = j->failed.err;
		j->state = JOB_FAILING;
	}
	if (j->state == JOB_FAILING)
		local_job_finish_failing(j);
}

void local_hub_on_event(struct local_event *n)
{
	switch (n->kind) {
	case LOCAL_EVENT_DONE:
		local_job_op_done(n->owner);
		break;
	case LOCAL_EVENT_LANDED:
		local_op_send_landed(n->owner);
		break;
	case LOCAL_EVENT_READY:
		local_job_engine_ready(n->owner);
		break;
	case LOCAL_EVENT_FAILED:
		local_job_engine_failed(n->owner);
		break;
	}
}

void local_job_engine_freed(struct local_job *j)
{
	rs_assert(j->freeing);
	j->engine = NULL;
	j->freeing = false;
	local_job_free_if_over(j);
}
