/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a worker process: their memory, their callbacks, and what their
 * results must be. */
#include "tests/sim/sim.h"

#include "common/dtype.h"
#include "tests/sim/sim_retained.h"

#include <stdlib.h>
#include <string.h>

static void on_fill(struct exchange_op *op, uint64_t first, uint32_t n)
{
	struct rank_op *o = op->user;
	struct team *t = o->rank->team;

	for (uint64_t i = first; i < first + n; i++)
		if (o->filled[i]++)
			sim_fail(t->sim, "%s rank %u: element %llu of operation %u was asked for twice", t->job,
				 o->rank->index, (unsigned long long)i, o->index);
	oracle_contribution(plan_op(t, o->rank->index, o->index), t->cfg.job.deterministic, o->rank->index, o->send,
			    first, n);
}

/* Elements that a rank has to itself in a sharded operation. */
static uint64_t own_elems(const struct rank_op *o)
{
	return o->op.of.count / o->op.of.parts;
}

/* Checks those of elements [first, first + n) that this rank gets. */
static bool result_is_right(struct rank_op *o, uint64_t first, uint64_t n)
{
	uint64_t from = 0, to = o->op.of.count;

	if (operation_is_scatter(&o->op.of)) {
		from = own_elems(o) * o->op.part;
		to = from + own_elems(o);
	}
	from = first > from ? first : from;
	to = first + n < to ? first + n : to;
	return from >= to || oracle_agrees(o->rank->team, o->index, o->recv, from, to - from);
}

static void on_landed(struct exchange_op *op, uint64_t first, uint32_t n)
{
	struct rank_op *o = op->user;

	o->landed += n;
	if (o->stage.memory)
		stage_landed(o, first);
	if (!op->root && !result_is_right(o, first, n))
		sim_fail(o->rank->sim, "%s rank %u: elements %llu to %llu of operation %u are wrong",
			 o->rank->team->job, o->rank->index, (unsigned long long)first, (unsigned long long)first + n,
			 o->index);
}

/* Ranks that are in one view go as far ahead as each other, since each retains results
 * for that. When a rank has left, reducers forget its lead one after the other. */
static void check_lead(const struct rank *k)
{
	const struct team *t = k->team;

	for (unsigned r = 0; r < t->world; r++)
		if (t->ranks[r].state != RANK_ALIVE || !retained_sends(t->ranks[r].x))
			return;
	for (unsigned r = 0; r < t->world; r++)
		if (!retained_agree(t->ranks[r].x, k->x))
			sim_fail(k->sim, "%s: rank %u and rank %u may go ahead by different numbers of chunks", t->job,
				 k->index, r);
}

static void op_succeeded(struct rank_op *o)
{
	struct rank *k = o->rank;
	bool takes = !o->op.root;

	size_t size = rs_dtype_size(o->op.of.dtype), in = o->op.wide ? sizeof(float) : size;

	k->sim->stats->ops_ok++;
	k->sim->stats->encoded += operation_is_encoded(&o->op.of);
	k->sim->stats->sharded += o->op.of.sharded;
	check_features(k);
	check_lead(k);
	if (retained_within(k->x, o->recv, o->op.of.count * size) ||
	    retained_within(k->x, o->send, o->op.of.count * in) ||
	    (o->stage.memory &&
	     retained_within(k->x, o->stage.memory,
			     o->stage.places * operation_stride(&o->op.of, o->stage.chunk_elems) * size)))
		sim_fail(k->sim, "%s rank %u: others get what stands in the memory of operation %u, which is done",
			 k->team->job, k->index, o->index);
	if (takes && !result_is_right(o, 0, o->op.of.count))
		sim_fail(k->sim, "%s rank %u: operation %u gives a wrong result", k->team->job, k->index, o->index);
	if (o->landed != o->op.of.count)
		sim_fail(k->sim, "%s rank %u: %llu of %llu elements of operation %u were announced", k->team->job,
			 k->index, (unsigned long long)o->landed, (unsigned long long)o->op.of.count, o->index);
}

/* The caller overwrites and frees the memory of a completed operation: a later read finds
 * nothing of the operation, or the sanitizer reports it. */
void op_free(struct rank_op *o)
{
	size_t size = rs_dtype_size(o->op.of.dtype);

	stage_close(o);
	memset(o->recv, 0xdb, o->op.of.count * size);
	memset(o->send, 0xdb, o->op.of.count * (o->op.wide ? sizeof(float) : size));
	if (o->recv != o->send)
		free(o->recv);
	free(o->send);
	free(o->filled);
	o->send = o->recv = o->filled = NULL;
}

static void on_done(struct exchange_op *op, const struct rs_err *err)
{
	struct rank_op *o = op->user;
	struct rank *k = o->rank;

	trace(k->sim, "%s rank %u: operation %u %s%s", k->team->job, k->index, o->index, err ? "failed: " : "is done",
	      err ? err->msg : "");
	if (o->done)
		sim_fail(k->sim, "%s rank %u: operation %u ended twice", k->team->job, k->index, o->index);
	o->done = true;
	o->code = err ? err->code : RS_OK;
	k->done++;
	if (err) {
		k->sim->stats->ops_failed++;
		k->sim->stats->codes[-err->code & 15]++;
		check_error(k, err, "an operation");
	} else {
		op_succeeded(o);
	}
	op_free(o);
	memset(op, 0xdb, sizeof *op); /* no longer used */
	rank_step_later(k, sim_below(k->sim, k->team->pause_us + 1));
}

static void prepare(struct rank_op *o, const struct op_plan *p)
{
	struct rank *k = o->rank;
	uint32_t bit = 1u << k->index;
	bool wide = p->wide & bit, staged = p->staged & bit, broadcast = p->op == FRAME_OP_BROADCAST;
	size_t size = rs_dtype_size(p->dtype), in = (size_t)p->count * (wide ? sizeof(float) : size);
	uint64_t first = 0, n = p->count;

	o->op = (struct exchange_op){
	    .of.count = p->count,
	    .of.dtype = p->dtype,
	    .of.size = size & OPERATION_SIZE,
	    .of.op = p->op,
	    .of.priority = (uint8_t)p->priority,
	    .of.up = p->partials ? RS_WIRE_SAME : p->up,
	    .partials = p->partials,
	    .of.down = p->down,
	    .wide = wide,
	    .root = broadcast && !p->sharded && p->root == k->index,
	    .of.sharded = p->sharded,
	    .of.parts = p->sharded ? k->team->world : 0,
	    .part = p->sharded ? k->index : 0,
	    .of.name_hash = frame_name_hash(p->name),
	    .name = p->name[0] ? p->name : NULL,
	    .fill = p->lazy & bit && !staged ? on_fill : NULL,
	    .ready = staged ? &o->ready : NULL,
	    .landed = on_landed,
	    .done = on_done,
	    .user = o,
	};
	o->send = malloc(in + 1);
	o->recv = p->in_place & bit && !wide ? o->send : malloc((size_t)p->count * size + 1);
	o->filled = calloc(p->count + 1, 1);
	if (!o->send || !o->recv || !o->filled)
		abort();
	memset(o->recv, 0xdb, (size_t)p->count * size + 1);
	memset(o->send, 0xdb, in + 1);
	o->op.send = o->send;
	o->op.recv = o->recv;
	if (operation_is_gather(&o->op.of)) {
		first = own_elems(o) * k->index;
		n = own_elems(o);
		o->op.send = o->send + first * size;
	} else if (p->sharded) {
		o->op.recv = o->recv + own_elems(o) * k->index * size;
	}
	if ((p->sharded || !staged) && !o->op.fill && (!broadcast || o->op.root || p->sharded))
		oracle_contribution(p, k->team->cfg.job.deterministic, k->index, o->send, first, n);
	if (staged && p->sharded) {
		const struct exchange_params params = rs_config_exchange(&k->team->cfg);

		stage_open(o, &params, p->seed >> 40);
	}
}

/* Starts the next operation; returns false if the exchange accepts no more. */
bool op_call(struct rank *k)
{
	struct rank_op *o = &k->ops[k->submitted];
	struct rs_err e = {0};
	int rc;

	o->rank = k;
	o->index = k->submitted;
	prepare(o, plan_op(k->team, k->index, o->index));
	rc = exchange_submit(k->x, &o->op, sim_ms(k->sim), &e);
	trace(k->sim, "%s rank %u calls operation %u%s%s", k->team->job, k->index, o->index, rc ? ": " : "",
	      rc ? e.msg : "");
	if (rc) {
		op_free(o);
		check_error(k, &e, "a call");
		return false;
	}
	o->submitted = true;
	k->submitted++;
	if (o->op.ready)
		sim_in(k->sim, sim_below(k->sim, 1000), EV_RANK_READY, k->process, o->index);
	fault_after_op(k, o->index);
	return true;
}

/* Marks more of a contribution as ready. */
void rank_ready(struct rank *k, unsigned op)
{
	struct rank_op *o = &k->ops[op];
	const struct op_plan *p = plan_op(k->team, k->index, op);
	uint64_t more, at = o->ready;

	if (k->state != RANK_ALIVE || o->done)
		return;
	if (o->stage.memory) {
		if (stage_fill(o, 1 + sim_below(k->sim, 8)))
			sim_in(k->sim, sim_below(k->sim, 1000), EV_RANK_READY, k->process, op);
		exchange_poke(k->x);
		rank_settle(k);
		return;
	}
	more = 1 + sim_below(k->sim, (uint32_t)o->op.of.count + 1);
	if (at + more > o->op.of.count)
		more = o->op.of.count - at;
	if (p->op != FRAME_OP_BROADCAST || o->op.root)
		oracle_contribution(p, k->team->cfg.job.deterministic, k->index, o->send, at, more);
	o->ready = at + more;
	if (o->ready < o->op.of.count)
		sim_in(k->sim, sim_below(k->sim, 1000), EV_RANK_READY, k->process, op);
	exchange_poke(k->x);
	rank_settle(k);
}
