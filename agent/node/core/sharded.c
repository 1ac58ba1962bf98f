/* SPDX-License-Identifier: Apache-2.0 */
/* With one local rank the exchange works on the client's memory directly. With several,
 * the sums of a reduce-scatter are made in a stage, since a rank that gets a part has no
 * room for the sum of all, and may want its input back. The result of the node's part
 * comes to where its sum was, or behind the sums if these are float32, and is copied to
 * the local ranks that own it. An all-gather comes to the first local rank's memory and
 * is copied to the others. */
#include "agent/node/core/sharded.h"
#include "agent/node/core/hub_state.h"
#include "agent/node/core/parts.h"
#include "agent/node/core/sum.h"
#include "common/assert.h"
#include "proto/frame.h"

#include <inttypes.h>
#include <string.h>

bool local_job_shards(const struct local_job *j)
{
	const struct local_hello *m = &j->members[0].hello;

	if (m->world_size % m->nodes || m->world_size / m->nodes != j->members_n)
		return false;
	for (unsigned i = 0; i < j->members_n; i++)
		if (j->members[i].hello.rank != m->node_rank * j->members_n + i)
			return false;
	return true;
}

bool local_job_can_shard(const struct local_job *j)
{
	const struct local_hub *h = j->hub;

	return j->state == JOB_RUNNING && local_job_shards(j) &&
	       (j->single_worker || h->ports.engine_can_shard(h->ctx, j->engine));
}

int local_sharded_check(const struct local_job *j, const struct local_submit *s, struct rs_err *e)
{
	if (!local_job_can_shard(j))
		return rs_fail(e, RS_EPROTO, "SUBMIT of a sharded operation, which this job cannot have");
	if (s->of.parts != j->members[0].hello.world_size || s->of.count % s->of.parts)
		return rs_fail(e, RS_EPROTO, "SUBMIT of %" PRIu64 " elements in %u parts in a world of %u", s->of.count,
			       s->of.parts, j->members[0].hello.world_size);
	if (s->ring || (s->missing && s->missing != s->of.count) || s->of.tensors)
		return rs_fail(
		    e, RS_EPROTO,
		    "SUBMIT of a sharded operation with a ring, some missing elements, or a group of tensors");
	return RS_OK;
}

int local_sharded_bytes(const struct local_submit *s, unsigned rank, uint64_t *send, uint64_t *recv, struct rs_err *e)
{
	bool gather = operation_is_gather(&s->of);
	uint64_t all = operation_bytes(&s->of), part = all / s->of.parts;
	uint64_t whole = gather ? s->recv_offset : s->send_offset, own = gather ? s->send_offset : s->recv_offset;

	*send = gather ? part : all;
	*recv = gather ? all : part;
	if (s->send_buffer != s->recv_buffer || own == whole + rank * part || own + part <= whole || whole + all <= own)
		return RS_OK;
	return rs_fail(e, RS_EPROTO, "SUBMIT of a sharded operation whose send and recv overlap");
}

/* Returns the operation that the engine gets. */
static struct operation sharded_of_nodes(const struct local_op *op)
{
	struct operation of = op->spec.of;

	of.parts = op->job->members[0].hello.nodes;
	if (op->job->single_worker)
		of.parts = of.sharded = 0;
	return of;
}

/* The stage of a reduce-scatter. */
struct sharded_layout {
	uint64_t ring;  /* bytes of the sums that are kept at a time; 0: all of them */
	size_t sums;    /* bytes of the sums: float32 ones, or elements of the dtype */
	size_t result;  /* offset of the result of the node's part; of one chunk of it if the node is alone */
	size_t scratch; /* offset of the float32 sums of a chunk that is rounded */
	size_t all;     /* bytes */
};

static struct sharded_layout sharded_layout_of(const struct local_op *op)
{
	const struct operation of = sharded_of_nodes(op);
	uint64_t chunk = local_job_span(op->job, &of) / of.size, kept = op->job->single_worker ? chunk : of.count;
	bool wide = local_op_is_wide(op);
	struct sharded_layout l = {.sums = kept * (wide ? sizeof(float) : of.size)};

	l.ring = op->job->single_worker ? l.sums : 0;
	l.result = wide ? l.sums : local_sharded_first(op) * of.size;
	l.scratch = l.sums + (wide ? (op->job->single_worker ? chunk : local_sharded_part(op)) * of.size : 0);
	if (op->job->single_worker && !wide)
		l.result = 0;
	l.all = l.scratch + (local_op_rounds(op) ? chunk * sizeof(float) : 0);
	return l;
}

size_t local_sharded_stage(const struct local_op *op)
{
	bool summed = op->job->members_n > 1 || op->job->single_worker;

	return summed && operation_is_scatter(&op->spec.of) ? sharded_layout_of(op).all : 0;
}

/* Elements of one rank's part. */
struct sharded_run {
	unsigned local_rank;
	uint64_t offset; /* in its part */
	uint32_t n;
};

/* Returns the first run of n elements of this node's part. */
static struct sharded_run sharded_run_of(const struct local_op *op, uint64_t first, uint32_t n)
{
	uint64_t own = local_sharded_own(op), at = first - local_sharded_first(op);
	struct sharded_run run = {.local_rank = (unsigned)(at / own), .offset = at % own, .n = n};

	rs_assert(run.local_rank < op->job->members_n);
	if (own - run.offset < n)
		run.n = (uint32_t)(own - run.offset);
	return run;
}

/* Copies elements from `first` on, which have landed at `from`, to the local ranks that
 * own them. */
static void sharded_give_out(struct local_op *op, const char *from, uint64_t first, uint32_t n)
{
	size_t size = op->spec.of.size;

	while (n > 0) {
		const struct sharded_run run = sharded_run_of(op, first, n);

		memcpy(op->part[run.local_rank].to + run.offset * size, from, run.n * size);
		from += run.n * size;
		first += run.n;
		n -= run.n;
	}
}

/* Returns where the results of a scatter's chunk are. */
static const char *scatter_result(const struct local_op *op, uint64_t first)
{
	const struct exchange_op *x = &op->x;
	size_t size = x->of.size;

	if (op->job->single_worker)
		return (const char *)x->recv + exchange_ring_offset(first * size, x->recv_ring);
	return (const char *)x->recv + (first - local_sharded_first(op)) * size;
}

static void scatter_landed(struct exchange_op *x, uint64_t first, uint32_t n)
{
	struct local_op *op = (struct local_op *)x;

	if (n > 0 && first - local_sharded_first(op) < local_sharded_part(op))
		sharded_give_out(op, scatter_result(op, first), first, n);
}

/* Copies elements of an all-gather to all local ranks' memory. */
static void gather_copy(struct local_op *op, const char *from, uint64_t first, uint32_t n)
{
	size_t size = op->spec.of.size;

	for (unsigned i = 0; i < op->job->members_n; i++)
		if (op->part[i].to + first * size != from)
			memcpy(op->part[i].to + first * size, from, n * size);
}

/* The node's own part: copies it from the local ranks to where it is sent from, and to
 * all of them, since no result arrives for it. */
static void gather_fill(struct exchange_op *x, uint64_t first, uint32_t n)
{
	struct local_op *op = (struct local_op *)x;

	while (n > 0) {
		const struct sharded_run run = sharded_run_of(op, first, n);

		gather_copy(op, op->part[run.local_rank].from + run.offset * x->of.size, first, run.n);
		first += run.n;
		n -= run.n;
	}
}

static void gather_landed(struct exchange_op *x, uint64_t first, uint32_t n)
{
	struct local_op *op = (struct local_op *)x;

	if (n > 0 && first - local_sharded_first(op) >= local_sharded_part(op))
		gather_copy(op, op->part[0].to + first * x->of.size, first, n);
}

static void sharded_prepare_scatter(struct local_op *op)
{
	const struct sharded_layout l = sharded_layout_of(op);
	struct exchange_op *x = &op->x;
	char *stage = op->stage;

	x->wide = local_op_is_wide(op);
	x->send = stage;
	x->recv = stage + l.result;
	x->send_ring = l.ring;
	x->recv_ring = op->job->single_worker ? l.ring / operation_wire_size(&x->of, x->wide) * x->of.size : 0;
	x->fill = local_op_fill_sum;
	x->landed = scatter_landed;
	if (local_op_rounds(op))
		op->scratch = stage + l.scratch;
	if (op->job->single_worker && (x->wide || x->of.op == RS_AVG))
		x->finish = local_op_finish_sum;
}

void local_sharded_prepare(struct local_op *op)
{
	struct exchange_op *x = &op->x;
	bool one = op->job->members_n == 1 && !op->job->single_worker;

	x->of = sharded_of_nodes(op);
	x->part = op->job->members[0].hello.node_rank;
	x->send = op->part[0].from;
	x->recv = op->part[0].to;
	if (one)
		return;
	if (operation_is_scatter(&op->spec.of)) {
		sharded_prepare_scatter(op);
		return;
	}
	x->send = op->part[0].to ? op->part[0].to + local_sharded_first(op) * x->of.size : NULL;
	x->root = op->job->single_worker; /* of what is no sharded operation any more */
	x->fill = gather_fill;
	x->landed = gather_landed;
}
