/* SPDX-License-Identifier: Apache-2.0 */
/* Matching of local ranks' operations. The happy path of one is: first SUBMIT makes it -> every local rank's SUBMIT
 * joins it -> matched, in the order of seq -> (a stage is there) the engine runs it -> DONE to all. Failure modes: a
 * SUBMIT that cannot be (its client is dropped, which ends the job), one that differs from the first (the job ends and
 * names both), the engine refuses or fails. */
#include "agent/local_priv.h"
#include "common/dtype.h"
#include "proto/frame.h"

#include <assert.h>
#include <inttypes.h>

static int check_kind(const struct local_job *j, const struct local_member *m, const struct local_submit *s,
		      struct rs_err *e)
{
	if (s->seq != m->next_seq)
		return rs_fail(e, RS_EPROTO, "SUBMIT of operation %" PRIu64 ", expected %" PRIu64, s->seq, m->next_seq);
	if (rs_dtype_size(s->dtype) == 0)
		return rs_fail(e, RS_EPROTO, "SUBMIT with unknown dtype %u", s->dtype);
	if (s->op >= RS_OP_NR && s->op != FRAME_OP_BROADCAST)
		return rs_fail(e, RS_EPROTO, "SUBMIT with unknown op %u", s->op);
	if (s->op == FRAME_OP_BROADCAST ? s->root >= m->hello.world_size : s->root != 0)
		return rs_fail(e, RS_EPROTO, "SUBMIT with root %u in a world of %u", s->root, m->hello.world_size);
	if (m->in_flight >= j->hub->ops)
		return rs_fail(e, RS_EPROTO, "more than %u operations in flight", j->hub->ops);
	return RS_OK;
}

static bool overlap(const struct local_submit *s, uint64_t bytes)
{
	uint64_t a = s->send_offset, b = s->recv_offset;

	return s->send_buffer == s->recv_buffer && a != b && a < b + bytes && b < a + bytes;
}

/* Finds the memory of one side. Either both references are taken or none. */
static int find_memory(struct local_client *c, const struct local_submit *s, struct local_side *ret, struct rs_err *e)
{
	size_t size = rs_dtype_size(s->dtype);
	struct local_side side = {0};
	int rc;

	if (s->count == 0) {
		*ret = side;
		return RS_OK;
	}
	if (s->count > UINT64_MAX / size)
		return rs_fail(e, RS_EPROTO, "SUBMIT of %" PRIu64 " elements", s->count);
	rc = local_buffer_get(c, s->send_buffer, s->send_offset, s->count * size, &side.send, e);
	if (rc)
		return rc;
	rc = local_buffer_get(c, s->recv_buffer, s->recv_offset, s->count * size, &side.recv, e);
	if (rc)
		goto put_send;
	if (overlap(s, s->count * size)) {
		rc = rs_fail(e, RS_EPROTO, "SUBMIT whose send and recv overlap");
		goto put_recv;
	}
	side.from = side.send->map + s->send_offset;
	side.to = side.recv->map + s->recv_offset;
	if (s->op == FRAME_OP_BROADCAST && side.from != side.to) {
		rc = rs_fail(e, RS_EPROTO, "SUBMIT of a broadcast whose send and recv differ");
		goto put_recv;
	}
	*ret = side;
	return RS_OK;
put_recv:
	local_buffer_put(side.recv);
put_send:
	local_buffer_put(side.send);
	return rc;
}

/* Moves the oldest operation to the queue when all are in. The ring stays contiguous since every local rank joins in
 * the order of seq. */
static void match(struct local_job *j)
{
	struct local_op *op = j->ring[j->matched % j->hub->ops];

	if (op->sides_in < j->members_n)
		return;
	j->ring[j->matched % j->hub->ops] = NULL;
	j->matched++;
	op->next = NULL;
	*j->queue_end = op;
	j->queue_end = &op->next;
	local_job_start_ops(j);
}

int local_job_submit(struct local_client *c, const struct local_submit *s, struct rs_err *e)
{
	struct local_job *j = c->job;
	struct local_member *m = &j->members[c->local_rank];
	struct local_op **at = &j->ring[s->seq % j->hub->ops];
	struct local_side side;
	struct rs_err differs;
	int rc;

	if (j->state < JOB_RUNNING)
		return rs_fail(e, RS_EPROTO, "SUBMIT before READY");
	if (j->state > JOB_RUNNING)
		return RS_OK; /* it has not read the ABORT yet */
	rc = check_kind(j, m, s, e);
	if (!rc)
		rc = find_memory(c, s, &side, e);
	if (!rc && s->seq == j->newest) {
		rc = local_op_new(at, j, c->local_rank, s, e);
		if (rc) {
			local_buffer_put(side.send);
			local_buffer_put(side.recv);
		} else {
			j->newest++;
		}
	}
	if (rc == RS_ENOMEM) {
		local_job_fail(j, e);
		return RS_OK;
	}
	if (rc)
		return rc;
	(*at)->side[c->local_rank] = side;
	(*at)->sides_in++;
	m->next_seq++;
	m->in_flight++;
	if (local_op_compare(*at, c->local_rank, s, &differs)) {
		local_job_fail(j, &differs);
		return RS_OK;
	}
	match(j);
	local_job_check_left(j);
	return RS_OK;
}

void local_job_check_left(struct local_job *j)
{
	char who[LOCAL_WHO];
	struct rs_err e;

	if (j->state != JOB_RUNNING || j->matched == j->newest)
		return;
	for (unsigned i = 0; i < j->members_n; i++) {
		if (!j->members[i].left || j->members[i].next_seq > j->matched)
			continue;
		rs_fail(&e, RS_ECLOSED, "%s has left the job before operation %" PRIu64, local_job_who(j, i, who),
			j->matched);
		local_job_fail(j, &e);
		return;
	}
}

uint64_t local_job_op_deadline(const struct local_job *j)
{
	uint32_t limit = j->hub->cfg->timeouts.op_ms;

	if (limit == 0 || j->state != JOB_RUNNING || j->matched == j->newest)
		return UINT64_MAX;
	return j->ring[j->matched % j->hub->ops]->since_ms + limit;
}

void local_job_op_late(struct local_job *j)
{
	const struct local_op *op = j->ring[j->matched % j->hub->ops];
	unsigned missing = 0, first = 0;
	char what[96], who[LOCAL_WHO];
	struct rs_err e;

	for (unsigned i = j->members_n; i-- > 0;) {
		if (j->members[i].next_seq <= j->matched) {
			first = i;
			missing++;
		}
	}
	local_op_describe(what, sizeof what, &op->what);
	rs_fail(&e, RS_EPEER, "operation %" PRIu64 ", %s, was not done within %u ms: %s %s not started it",
		op->what.seq, what, j->hub->cfg->timeouts.op_ms, local_job_who(j, first, who),
		missing > 1 ? "and other local ranks have" : "has");
	local_job_fail(j, &e);
}

/* One operation is over, for all its local ranks. */
static void tell_done(struct local_op *op, const struct rs_err *err)
{
	struct local_job *j = op->job;
	struct local_hub *h = j->hub;
	union local_message m;

	local_init(&m, LOCAL_DONE);
	m.done.seq = op->what.seq;
	m.done.code = err->code;
	if (err->code)
		local_put_text(m.done.message, err->msg);
	for (unsigned i = 0; i < j->members_n; i++) {
		j->members[i].in_flight--;
		if (j->members[i].client)
			h->ports.send(h->ctx, j->members[i].client, &m, -1);
	}
	local_op_free(op);
}

/* Returns the operation's stage, or false when it has to wait for one. */
static int take_stage(struct local_op *op, bool *ret_wait, struct rs_err *e)
{
	struct local_job *j = op->job;
	size_t bytes = local_op_stage(op);

	*ret_wait = bytes > 0 && !local_stage_fits(&j->stages, bytes);
	if (bytes == 0 || *ret_wait)
		return RS_OK;
	op->stage = local_stage_take(&j->stages, bytes, j->hub);
	if (!op->stage)
		return rs_fail(e, RS_ENOMEM, "the agent on %s has no memory for the partial sums of operation %" PRIu64,
			       j->hub->host, op->what.seq);
	op->stage_bytes = bytes;
	return RS_OK;
}

void local_job_start_ops(struct local_job *j)
{
	struct local_hub *h = j->hub;
	struct local_op *op;
	struct rs_err e;
	bool wait;
	int rc;

	while (j->state == JOB_RUNNING && (op = j->queue)) {
		rc = take_stage(op, &wait, &e);
		if (!rc && wait)
			return;
		j->queue = op->next;
		if (!j->queue)
			j->queue_end = &j->queue;
		if (!rc) {
			local_op_prepare(op);
			rc = h->ports.engine_submit(h->ctx, j->engine, &op->x, &e);
		}
		if (!rc) {
			j->running++;
		} else if (rc == RS_EINVAL) { /* as all nodes find, so all stay in step */
			tell_done(op, &e);
		} else {
			local_op_free(op);
			local_job_fail(j, &e);
		}
	}
}

void local_job_op_done(struct local_op *op)
{
	struct local_job *j = op->job;

	assert(j->running > 0);
	j->running--;
	tell_done(op, &op->note.err);
	local_job_start_ops(j);
}

void local_job_drop_ops(struct local_job *j)
{
	struct local_op *op;

	for (; j->matched < j->newest; j->matched++)
		local_op_free(j->ring[j->matched % j->hub->ops]);
	while ((op = j->queue)) {
		j->queue = op->next;
		local_op_free(op);
	}
	j->queue_end = &j->queue;
}
