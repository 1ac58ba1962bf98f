/* SPDX-License-Identifier: Apache-2.0 */
/* Matching the operations of local ranks. The happy path: the first SUBMIT makes the
 * operation -> every local rank's SUBMIT joins it -> matched, in the order of seq -> (a
 * stage is available) the engine runs it -> DONE to all. Failure modes: an invalid SUBMIT
 * (its client is dropped, which ends the job); one that differs from the first (the job
 * ends and names both ranks); the engine refuses or fails. */
#include "agent/node/core/submit.h"
#include "agent/node/core/buffer.h"
#include "agent/node/core/op.h"
#include "agent/node/core/progress.h"
#include "agent/node/core/sharded.h"
#include "agent/node/core/text.h"
#include "common/assert.h"
#include "common/dtype.h"
#include "proto/frame.h"

#include <inttypes.h>

static int local_submit_check(const struct local_job *j, const struct local_member *m, const struct local_submit *s,
			      struct rs_err *e)
{
	if (s->of.seq != m->next_seq)
		return rs_fail(e, RS_EPROTO, "SUBMIT of operation %" PRIu64 ", expected %" PRIu64, s->of.seq,
			       m->next_seq);
	if (s->of.size == 0 || s->of.size != rs_dtype_size(s->of.dtype))
		return rs_fail(e, RS_EPROTO, "SUBMIT with unknown dtype %u of %u bytes", s->of.dtype, s->of.size);
	if (s->of.op >= RS_OP_NR && s->of.op != FRAME_OP_BROADCAST)
		return rs_fail(e, RS_EPROTO, "SUBMIT with unknown op %u", s->of.op);
	if (s->of.sharded) {
		if (local_sharded_check(j, s, e))
			return e->code;
	} else if (s->of.op == FRAME_OP_BROADCAST ? s->of.root >= m->hello.world_size : s->of.root != 0)
		return rs_fail(e, RS_EPROTO, "SUBMIT with root %u in a world of %u", s->of.root, m->hello.world_size);
	if (!rs_wire_fits(s->of.up, s->of.dtype, s->of.op) || !rs_wire_fits(s->of.down, s->of.dtype, s->of.op) ||
	    (j->single_worker && operation_is_encoded(&s->of)))
		return rs_fail(e, RS_EPROTO, "SUBMIT of dtype %u and op %u with encodings %u and %u", s->of.dtype,
			       s->of.op, s->of.up, s->of.down);
	if (s->missing > s->of.count)
		return rs_fail(e, RS_EPROTO, "SUBMIT of %" PRIu64 " elements of which %" PRIu64 " are missing",
			       s->of.count, s->missing);
	if (m->in_flight >= j->hub->ops)
		return rs_fail(e, RS_EPROTO, "more than %u operations in flight", j->hub->ops);
	return RS_OK;
}

static bool local_submit_overlap(const struct local_submit *s, uint64_t send_bytes, uint64_t recv_bytes)
{
	uint64_t a = s->send_offset, b = s->recv_offset;

	return s->send_buffer == s->recv_buffer && a != b && a < b + recv_bytes && b < a + send_bytes;
}

/* Finds the counter that the client reads, in the buffer of recv. */
static int local_submit_find_counter(const struct local_submit *s, struct local_part *side, struct rs_err *e)
{
	if (s->landed_offset % sizeof(uint64_t) || side->recv->bytes - sizeof(uint64_t) < s->landed_offset)
		return rs_fail(e, RS_EPROTO,
			       "SUBMIT with a counter at offset %" PRIu64 " of a shared buffer of %" PRIu64 " bytes",
			       s->landed_offset, side->recv->bytes);
	side->landed = (_Atomic uint64_t *)(side->recv->map + s->landed_offset);
	return RS_OK;
}

/* Checks the memory of a SUBMIT whose buffers are both found. */
static int local_submit_check_memory(const struct local_submit *s, uint64_t send_bytes, uint64_t recv_bytes,
				     struct local_part *side, struct rs_err *e)
{
	if (!s->of.sharded && local_submit_overlap(s, send_bytes, recv_bytes))
		return rs_fail(e, RS_EPROTO, "SUBMIT whose send and recv overlap");
	side->from = side->send->map + s->send_offset;
	side->to = side->recv->map + s->recv_offset;
	side->ring = s->ring;
	side->from_ring = side->from == side->to ? s->ring : 0;
	if (!s->of.sharded && s->of.op == FRAME_OP_BROADCAST && side->from != side->to)
		return rs_fail(e, RS_EPROTO, "SUBMIT of a broadcast whose send and recv differ");
	return s->ring ? local_submit_find_counter(s, side, e) : RS_OK;
}

/* Finds the memory of one local rank's part. Either both references are taken or none. */
static int local_submit_find_memory(struct local_client *c, const struct local_submit *s, struct local_part *ret,
				    struct rs_err *e)
{
	struct local_part side = {.filled = s->of.count - s->missing};
	uint64_t send_bytes = operation_bytes(&s->of), recv_bytes = send_bytes;
	int rc;

	if (s->of.count == 0) {
		*ret = side;
		return RS_OK;
	}
	if (s->of.count > UINT64_MAX / s->of.size)
		return rs_fail(e, RS_EPROTO, "SUBMIT of %" PRIu64 " elements", s->of.count);

	rc = s->ring ? local_ring_check(c->job, s, e) : RS_OK;
	if (s->of.sharded)
		rc = local_sharded_bytes(s, c->job->members[c->local_rank].hello.rank, &send_bytes, &recv_bytes, e);
	if (rc)
		return rc;
	if (s->ring && s->ring < recv_bytes) {
		recv_bytes = s->ring;
		if (s->send_buffer == s->recv_buffer && s->send_offset == s->recv_offset)
			send_bytes = s->ring;
	}

	rc = local_buffer_get(c, s->send_buffer, s->send_offset, send_bytes, &side.send, e);
	if (rc)
		return rc;
	rc = local_buffer_get(c, s->recv_buffer, s->recv_offset, recv_bytes, &side.recv, e);
	if (rc)
		goto put_send;

	rc = local_submit_check_memory(s, send_bytes, recv_bytes, &side, e);
	if (rc)
		goto put_recv;
	*ret = side;
	return RS_OK;
put_recv:
	local_buffer_put(side.recv);
put_send:
	local_buffer_put(side.send);
	return rc;
}

/* Moves the oldest operation to the queue when all local ranks have started it. The ring
 * stays contiguous since every local rank joins in the order of seq. */
static void local_job_match(struct local_job *j)
{
	struct local_op *op = j->ring[j->matched % j->hub->ops];

	if (op->parts_n < j->members_n)
		return;
	j->ring[j->matched % j->hub->ops] = NULL;
	j->matched++;
	local_op_track_input(op);
	op->next = NULL;
	*j->queue_end = op;
	j->queue_end = &op->next;
	local_job_start_ops(j);
}

int local_job_submit(struct local_client *c, const struct local_submit *s, struct rs_err *e)
{
	struct local_job *j = c->job;
	struct local_member *m = &j->members[c->local_rank];
	struct local_op **at = &j->ring[s->of.seq % j->hub->ops];
	struct local_part side;
	struct rs_err differs;
	int rc;

	if (j->state < JOB_RUNNING)
		return rs_fail(e, RS_EPROTO, "SUBMIT before READY");
	if (j->state > JOB_RUNNING)
		return RS_OK; /* it has not read the ABORT yet */
	rc = local_submit_check(j, m, s, e);
	if (!rc)
		rc = local_submit_find_memory(c, s, &side, e);
	if (!rc && s->of.seq == j->newest) {
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

	(*at)->part[c->local_rank] = side;
	(*at)->parts_n++;
	if (side.ring && (!(*at)->ring || side.ring < (*at)->ring))
		(*at)->ring = side.ring;
	m->next_seq++;
	m->in_flight++;
	if (local_op_compare(*at, c->local_rank, s, &differs)) {
		local_job_fail(j, &differs);
		return RS_OK;
	}

	local_job_match(j);
	local_job_check_left(j);
	return RS_OK;
}

void local_job_check_left(struct local_job *j)
{
	char who[LOCAL_RANK_TEXT];
	struct rs_err e;

	if (j->state != JOB_RUNNING)
		return;
	if (local_job_check_input(j, &e)) {
		local_job_fail(j, &e);
		return;
	}
	if (j->matched == j->newest)
		return;
	for (unsigned i = 0; i < j->members_n; i++) {
		if (!j->members[i].left || j->members[i].next_seq > j->matched)
			continue;
		rs_fail(&e, RS_ECLOSED, "%s has left the job before operation %" PRIu64, local_job_rank_text(j, i, who),
			j->matched);
		local_job_fail(j, &e);
		return;
	}
}

/* Returns the operation that has waited longest for local ranks: for bytes or, not
 * matched yet, for its start. NULL: none. */
static const struct local_op *local_job_oldest_waiting(const struct local_job *j)
{
	const struct local_op *owed = local_job_lagging_op(j);
	const struct local_op *next = j->matched == j->newest ? NULL : j->ring[j->matched % j->hub->ops];

	return owed && (!next || owed->since_ms <= next->since_ms) ? owed : next;
}

uint64_t local_job_op_deadline(const struct local_job *j)
{
	uint32_t limit = j->cfg->timeouts.op_ms;
	const struct local_op *op = limit && j->state == JOB_RUNNING ? local_job_oldest_waiting(j) : NULL;

	return op ? op->since_ms + limit : UINT64_MAX;
}

void local_job_op_late(struct local_job *j)
{
	const struct local_op *op = local_job_oldest_waiting(j);
	unsigned missing = 0, first = 0;
	char what[80], who[LOCAL_RANK_TEXT];
	struct rs_err e;

	if (op->filling) {
		local_op_input_late(op, &e);
		local_job_fail(j, &e);
		return;
	}
	for (unsigned i = j->members_n; i-- > 0;) {
		if (j->members[i].next_seq <= j->matched) {
			first = i;
			missing++;
		}
	}
	operation_describe(what, sizeof what, &op->spec.of);
	rs_fail(&e, RS_EPEER, "operation %" PRIu64 ", %s, was not done within %u ms: %s %s not started it",
		op->spec.of.seq, what, j->cfg->timeouts.op_ms, local_job_rank_text(j, first, who),
		missing > 1 ? "and other local ranks have" : "has");
	local_job_fail(j, &e);
}

/* Ends an operation for all its local ranks. */
static void local_job_send_done(struct local_op *op, const struct rs_err *err)
{
	struct local_job *j = op->job;
	struct local_hub *h = j->hub;
	union local_message m;

	local_init(&m, LOCAL_DONE);
	m.done.seq = op->spec.of.seq;
	m.done.code = err->code;
	m.done.can_shard = local_job_can_shard(j);
	if (err->code)
		local_put_text(m.done.message, err->msg);
	/* local rank 0 last: its process may serve the others, and may exit after its
	 * last result */
	for (unsigned i = j->members_n; i-- > 0;) {
		j->members[i].in_flight--;
		if (j->members[i].client)
			h->ports.send(h->ctx, j->members[i].client, &m, -1);
	}
	local_op_free(op);
}

/* Takes the operation's stage. *ret_wait: it must wait for one. */
static int local_submit_take_stage(struct local_op *op, bool *ret_wait, struct rs_err *e)
{
	struct local_job *j = op->job;
	size_t bytes = local_op_stage(op);

	*ret_wait = bytes > 0 && !local_stage_fits(&j->stages, bytes);
	if (bytes == 0 || *ret_wait)
		return RS_OK;
	op->stage = local_stage_take(&j->stages, bytes, j->hub);
	if (!op->stage)
		return rs_oom(e, bytes, "the partial sums of operation %" PRIu64 " in the agent on %s", op->spec.of.seq,
			      j->hub->host);
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
		rc = local_submit_take_stage(op, &wait, &e);
		if (!rc && wait)
			return;
		rs_assert(op->job == j && j->running < h->ops);
		j->queue = op->next;
		if (!j->queue)
			j->queue_end = &j->queue;
		if (!rc) {
			local_op_prepare(op);
			rc = h->ports.engine_submit(h->ctx, j->engine, &op->x, &e);
		}
		if (!rc) {
			j->running++;
		} else if (rc == RS_EINVAL) { /* all nodes find the same, so all stay in step */
			local_job_send_done(op, &e);
		} else {
			local_op_free(op);
			local_job_fail(j, &e);
		}
	}
}

void local_job_op_done(struct local_op *op)
{
	struct local_job *j = op->job;

	rs_assert(j->running > 0);
	j->running--;
	local_job_send_done(op, &op->done.err);
	local_job_start_ops(j);
}
