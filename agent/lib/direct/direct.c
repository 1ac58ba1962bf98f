/* SPDX-License-Identifier: Apache-2.0 */
/* The direct backend: the engine runs in this process. The happy path: open waits until
 * the engine is ready; operations go to the engine, which runs on the threads that wait
 * for them; stop ends it. Failure modes are the engine's: open, every pending operation,
 * and every later submit get the same error. */
#include "agent/lib/direct/direct.h"
#include "agent/worker/core/nonfinite.h"
#include "agent/worker/engine/engine.h"
#include "common/assert.h"
#include "proto/control.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	DIRECT_NAME_MAX = 64,        /* bytes of an operation's name in messages, terminator included */
	DIRECT_RING_LIMIT = 1 << 30, /* bytes */
};

enum direct_state { DIRECT_OPENING, DIRECT_READY, DIRECT_FAILED };

/* Memory of direct_alloc, in pages of its own: what the program has not freed outlives
 * the backend, and is unmapped by reduction_buffer_unmap(). */
struct direct_buffer {
	struct direct_buffer *next;
	void *map;
	size_t bytes;
};

/* The backend. Invariants: in_flight <= cfg->job.max_ops; DIRECT_FAILED stays, and err
 * says why. */
struct direct {
	struct backend base;
	struct rs_config *cfg; /* owned after open has succeeded */
	struct rs_log log;
	const struct rs_kernels *kernels;
	unsigned rank; /* changes only while no operation is in flight */
	uint32_t connect_ms;
	char label[CONTROL_LABEL]; /* "pid 77 on HOST" */
	struct engine *engine;

	pthread_mutex_t lock; /* protects everything below */
	pthread_cond_t changed;
	enum direct_state state;
	bool moves;             /* engine_reconfigure was called, and the engine still has the last generation */
	struct rs_err err;      /* DIRECT_FAILED */
	unsigned in_flight;     /* <= cfg->job.max_ops */
	struct direct_op *idle; /* ended operations, to be used again */
	struct direct_buffer *buffers;
};

/* One operation. Invariant: it is idle, or the engine has op. */
struct direct_op {
	struct exchange_op op;
	struct direct *direct;
	struct direct_op *next; /* idle */
	struct backend_request *req;
	char name[DIRECT_NAME_MAX];
	/* with a ring */
	_Atomic uint64_t ready; /* elements */
	uint64_t landed;        /* chunks, from the first on */
	uint64_t *early;        /* bits: chunks behind those that have landed; chunk i at i % window */
	uint64_t window;        /* chunks of the ring */
};

static void direct_set_state(struct direct *d, enum direct_state state, const struct rs_err *err)
{
	pthread_mutex_lock(&d->lock);
	if (d->state != DIRECT_FAILED) {
		d->state = state;
		if (err)
			d->err = *err;
	}
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
}

static void direct_on_ready(void *user)
{
	direct_set_state(user, DIRECT_READY, NULL);
}

static void direct_on_failed(void *user, const struct rs_err *err)
{
	direct_set_state(user, DIRECT_FAILED, err);
}

static void direct_on_moved(void *user)
{
	struct direct *d = user;

	pthread_mutex_lock(&d->lock);
	d->moves = false;
	d->state = DIRECT_OPENING;
	pthread_mutex_unlock(&d->lock);
}

/* Waits until all ranks have joined, or have failed to. */
static int direct_wait_open(struct direct *d, struct rs_err *e)
{
	int rc = RS_OK;

	pthread_mutex_lock(&d->lock);
	while (d->moves || d->state == DIRECT_OPENING)
		pthread_cond_wait(&d->changed, &d->lock);
	if (d->state == DIRECT_FAILED)
		rc = rs_fail(e, d->err.code, "%s", d->err.msg);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int direct_reconfigure(struct backend *b, const struct backend_place *to, struct rs_err *e)
{
	struct direct *d = (struct direct *)b;
	struct exchange_place place = {
	    .generation = to->generation, .rank = to->rank, .world_size = to->world_size, .connect_ms = d->connect_ms};

	if (auth_random(&place.incarnation, sizeof place.incarnation, e))
		return e->code;
	pthread_mutex_lock(&d->lock);
	d->moves = true;
	d->rank = to->rank;
	pthread_mutex_unlock(&d->lock);
	engine_reconfigure(d->engine, &place);
	return direct_wait_open(d, e);
}

/* Waits until job.max_ops allows another operation. Returns NULL if there is no memory,
 * or if the job ends meanwhile.
 */
static struct direct_op *direct_op_new(struct direct *d, struct rs_err *e)
{
	struct direct_op *o = NULL;

	pthread_mutex_lock(&d->lock);
	while (d->in_flight >= d->cfg->job.max_ops && d->state != DIRECT_FAILED)
		pthread_cond_wait(&d->changed, &d->lock);
	if (d->state == DIRECT_FAILED) {
		*e = d->err;
	} else if ((o = d->idle)) {
		d->idle = o->next;
	} else {
		o = calloc(1, sizeof *o);
		if (!o)
			rs_oom(e, 0, "an operation");
	}
	if (o)
		d->in_flight++;
	pthread_mutex_unlock(&d->lock);
	return o;
}

static void direct_op_free(struct direct *d, struct direct_op *o)
{
	pthread_mutex_lock(&d->lock);
	free(o->early);
	o->early = NULL;
	o->next = d->idle;
	rs_assert(d->in_flight > 0);
	d->idle = o;
	d->in_flight--;
	pthread_cond_signal(&d->changed);
	pthread_mutex_unlock(&d->lock);
}

static void direct_on_done(struct exchange_op *op, const struct rs_err *err)
{
	struct direct_op *o = op->user;
	struct backend_request *req = o->req;

	direct_op_free(o->direct, o);
	req->done(req, err);
}

static int direct_inspect(struct exchange_op *op, const void *at, uint64_t first, uint32_t n, struct rs_err *e)
{
	const struct direct *d = ((const struct direct_op *)op->user)->direct;
	char did[CONTROL_LABEL + 32];
	struct nonfinite f;

	if (!nonfinite_find(&f, d->kernels, op->of.dtype, at, first, n))
		return RS_OK;
	snprintf(did, sizeof did, "rank %u (%s) sent", d->rank, d->label);
	return nonfinite_fail(e, did, &f, op);
}

/* Counts the chunks that have landed, which come in any order within a ring. */
static void direct_on_landed(struct exchange_op *op, uint64_t first, uint32_t n)
{
	struct direct_op *o = op->user;
	uint64_t chunk = operation_chunk_at(&op->of, op->chunk_elems, first), before = o->landed, elems;

	(void)n;
	o->early[chunk % o->window / 64] |= UINT64_C(1) << chunk % o->window % 64;
	while (o->landed < op->chunks && o->early[o->landed % o->window / 64] >> o->landed % o->window % 64 & 1) {
		o->early[o->landed % o->window / 64] &= ~(UINT64_C(1) << o->landed % o->window % 64);
		o->landed++;
	}
	rs_assert(o->landed <= op->chunks);
	elems = o->landed * operation_stride(&op->of, op->chunk_elems);
	if (o->landed > before && o->landed < op->chunks)
		o->req->landed(o->req, elems * op->of.size);
}

/* Lets the operation pass through the request's ring. */
static int direct_use_ring(struct direct_op *o, struct rs_err *e)
{
	uint64_t ring = o->req->ring, chunk = backend_span(&o->direct->base, &o->req->of);

	o->window = (ring + chunk - 1) / chunk + 1;
	o->early = calloc(o->window / 64 + 1, sizeof *o->early);
	if (!o->early)
		return rs_oom(e, 0, "an operation");
	o->landed = 0;
	atomic_store(&o->ready, 0);
	o->op.ready = &o->ready;
	o->op.landed = direct_on_landed;
	o->op.staged = o->op.of.sharded;
	if (ring < backend_staged_bytes(&o->direct->base, &o->op.of))
		o->op.send_ring = o->op.recv_ring = ring;
	o->req->impl = o;
	return RS_OK;
}

static void direct_filled(struct backend *b, struct backend_request *req, uint64_t bytes)
{
	struct direct_op *o = req->impl;

	atomic_store_explicit(&o->ready, bytes / req->of.size, memory_order_release);
	engine_poke(((struct direct *)b)->engine);
}

static int direct_submit(struct backend *b, struct backend_request *req, struct rs_err *e)
{
	struct direct *d = (struct direct *)b;
	struct direct_op *o = direct_op_new(d, e);
	int rc = RS_OK;

	if (!o)
		return e->code;
	o->direct = d;
	o->req = req;
	snprintf(o->name, sizeof o->name, "%s", req->name ? req->name : "");
	o->op = (struct exchange_op){
	    .send = req->send,
	    .recv = req->recv,
	    .of = req->of,
	    .root = req->of.op == FRAME_OP_BROADCAST && !req->of.sharded && req->of.root == d->rank,
	    .part = req->of.sharded ? d->rank : 0,
	    .name = o->name,
	    .inspect = nonfinite_wanted(d->cfg->job.detect_nonfinite, req->of.dtype) ? direct_inspect : NULL,
	    .done = direct_on_done,
	    .user = o,
	};
	if (req->ring)
		rc = direct_use_ring(o, e);
	if (!rc)
		rc = engine_submit(d->engine, &o->op, e);
	if (rc)
		direct_op_free(d, o);
	return rc;
}

static int direct_alloc(struct backend *b, size_t bytes, void **ret, struct rs_err *e)
{
	struct direct *d = (struct direct *)b;
	struct direct_buffer *buffer = malloc(sizeof *buffer);

	if (!buffer)
		return rs_oom(e, bytes, "a buffer");
	buffer->bytes = bytes ? bytes : 1;
	/* zeros; the pages are made now and not within operations */
	buffer->map =
	    mmap(NULL, buffer->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (buffer->map == MAP_FAILED) {
		free(buffer);
		return rs_oom(e, bytes, "a buffer");
	}
	pthread_mutex_lock(&d->lock);
	buffer->next = d->buffers;
	d->buffers = buffer;
	pthread_mutex_unlock(&d->lock);
	*ret = buffer->map;
	return RS_OK;
}

static void direct_free(struct backend *b, void *buf)
{
	struct direct *d = (struct direct *)b;
	struct direct_buffer **at = &d->buffers, *found;

	pthread_mutex_lock(&d->lock);
	while ((found = *at) && found->map != buf)
		at = &found->next;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&d->lock);
	if (!found)
		return;
	munmap(found->map, found->bytes);
	free(found);
}

static int direct_stats(struct backend *b, reduction_stats *ret, struct rs_err *e)
{
	(void)e;
	engine_stats(((struct direct *)b)->engine, ret);
	return RS_OK;
}

static bool direct_can_shard(struct backend *b)
{
	return engine_can_shard(((struct direct *)b)->engine);
}

static void direct_release(struct direct *d)
{
	while (d->idle) {
		struct direct_op *o = d->idle;

		d->idle = o->next;
		free(o);
	}
	while (d->buffers) { /* the memory belongs to the program */
		struct direct_buffer *b = d->buffers;

		d->buffers = b->next;
		free(b);
	}
	pthread_cond_destroy(&d->changed);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static bool direct_wait(struct backend *b, bool (*done)(const void *of), const void *of, bool soon,
			const struct timespec *until)
{
	return engine_wait(((struct direct *)b)->engine, done, of, soon, until);
}

static void direct_abort(struct backend *b, const struct rs_err *why)
{
	struct direct *d = (struct direct *)b;

	direct_set_state(d, DIRECT_FAILED, why);
	engine_abort(d->engine, why->code, why->msg);
}

static void direct_stop(struct backend *b)
{
	engine_stop(((struct direct *)b)->engine);
}

static void direct_close(struct backend *b)
{
	struct direct *d = (struct direct *)b;

	engine_free(d->engine);
	rs_config_close(d->cfg);
	free(d->cfg);
	direct_release(d);
}

static const struct backend_vtbl direct_vtbl = {
    .submit = direct_submit,
    .filled = direct_filled,
    .wait = direct_wait,
    .can_shard = direct_can_shard,
    .alloc = direct_alloc,
    .free = direct_free,
    .stats = direct_stats,
    .abort = direct_abort,
    .reconfigure = direct_reconfigure,
    .stop = direct_stop,
    .close = direct_close,
};

static int direct_start_engine(struct direct *d, const struct backend_options *opt, struct rs_err *e)
{
	char host[80] = "?";
	struct engine_options eo = {
	    .cfg = opt->cfg,
	    .job = opt->job,
	    .run = opt->run,
	    .evidence = opt->evidence,
	    .generation = opt->generation,
	    .rank = opt->rank,
	    .world_size = opt->world_size,
	    .processes = 1,
	    .label = d->label,
	    .connect_ms = opt->connect_ms,
	    .log = &d->log,
	    .reconfigures = true,
	    .callers_run = true,
	    .on_moved = direct_on_moved,
	    .on_ready = direct_on_ready,
	    .on_failed = direct_on_failed,
	    .user = d,
	};

	gethostname(host, sizeof host - 1);
	snprintf(d->label, sizeof d->label, "pid %ld on %s", (long)getpid(), host);
	return engine_start(&d->engine, &eo, e);
}

int direct_open(struct backend **ret, const struct backend_options *opt, struct rs_err *e)
{
	const struct exchange_params params = rs_config_exchange(opt->cfg);
	struct direct *d = calloc(1, sizeof *d);
	int rc;

	if (!d)
		return rs_oom(e, 0, "a communicator");
	d->base.v = &direct_vtbl;
	d->base.priorities = opt->cfg->sharding.priorities;
	d->base.chunk_bytes = params.chunk_bytes;
	d->base.decoded_bytes = params.decoded_bytes;
	d->base.wire_up = params.wire_up;
	d->base.wire_down = params.wire_down;
	d->base.ring_limit = DIRECT_RING_LIMIT;
	d->base.sharded_rings = true;
	d->base.ring_bytes = exchange_ring_bytes(&params);
	d->cfg = opt->cfg;
	d->log = (struct rs_log){.level = opt->cfg->logging.level,
				 .json = opt->cfg->logging.json,
				 .journal = rs_log_is_journal(STDERR_FILENO),
				 .fd = STDERR_FILENO};
	d->rank = opt->rank;
	d->connect_ms = opt->connect_ms;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->changed, NULL);
	rc = rs_kernels_select("auto", &d->kernels, e);
	if (!rc)
		rc = direct_start_engine(d, opt, e);
	if (rc)
		goto release_direct;
	rc = direct_wait_open(d, e);
	if (rc)
		goto free_engine;
	*ret = &d->base;
	return RS_OK;

free_engine:
	engine_stop(d->engine);
	engine_free(d->engine);
release_direct:
	direct_release(d);
	return rc;
}
