/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a communicator. The happy path: each member starts an engine for the job that
 * handles[0] names; when all have joined, each votes with an all-reduce of one number;
 * the sum shows that all have voted, and connect returns. A program may come late to its
 * first collective: NCCL hands connect the handles of all members, so all of them are
 * there already, and timeouts.connect need not cover that. Failure modes: a member cannot
 * join, then none becomes ready and all fail by timeouts.connect; the job ends after a
 * member has voted, then connect succeeds there and the first all-reduce fails. A member
 * that failed after others have succeeded would leave them waiting in NCCL for ever. */
#include "agent/nccl/coll_state.h"
#include "common/auth.h"
#include "common/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	COLL_MAGIC = 0x4c4f4352, /* "RCOL" */
	COLL_HANDLE_VERSION = 1,
};

/* What listen puts into a handle. */
struct coll_handle {
	uint32_t magic, version;
	uint8_t random[16];
	uint64_t digest; /* rs_config_digest */
};

_Static_assert(sizeof(struct coll_handle) <= NCCL_HANDLE_BYTES, "a handle has room for it");

/* The listening side: nothing but the fact that it exists. */
struct coll_listen {
	struct plugin *plugin;
};

int coll_listen(struct plugin *p, void *handle, struct coll_listen **ret)
{
	struct coll_handle h = {.magic = COLL_MAGIC, .version = COLL_HANDLE_VERSION};
	struct coll_listen *l;
	struct rs_err e;

	*ret = NULL;
	if (plugin_refuses(p))
		return NCCL_SYSTEM_ERROR;
	if (auth_random(h.random, sizeof h.random, &e))
		return plugin_fail(p, &e);
	l = malloc(sizeof *l);
	if (!l) {
		rs_oom(&e, 0, "a communicator");
		return plugin_fail(p, &e);
	}
	l->plugin = p;
	h.digest = rs_config_digest(&p->cfg);
	memset(handle, 0, NCCL_HANDLE_BYTES);
	memcpy(handle, &h, sizeof h);
	*ret = l;
	return NCCL_SUCCESS;
}

void coll_close_listen(struct coll_listen *l)
{
	free(l);
}

void coll_began(struct coll *c)
{
	pthread_mutex_lock(&c->lock);
	c->in_flight++;
	pthread_mutex_unlock(&c->lock);
}

/* With the lock held. */
static void coll_break(struct coll *c, const struct rs_err *err)
{
	if (c->phase != COLL_BROKEN) {
		c->phase = COLL_BROKEN;
		c->err = *err;
	}
}

void coll_ended(struct coll *c, const struct rs_err *err)
{
	pthread_mutex_lock(&c->lock);
	if (err)
		coll_break(c, err);
	c->in_flight--;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

bool coll_is_broken(struct coll *c, struct rs_err *ret)
{
	bool broken;

	pthread_mutex_lock(&c->lock);
	broken = c->phase == COLL_BROKEN;
	if (broken)
		*ret = c->err;
	pthread_mutex_unlock(&c->lock);
	return broken;
}

void coll_abandon(struct coll *c, const char *what)
{
	char text[256];

	snprintf(text, sizeof text, "rank %u (%s) %s", c->rank, c->label, what);
	engine_abort(c->engine, RS_EABORTED, text);
	pthread_mutex_lock(&c->lock);
	while (c->in_flight > 0)
		pthread_cond_wait(&c->changed, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

static void coll_on_ready(void *user)
{
	struct coll *c = user;

	pthread_mutex_lock(&c->lock);
	if (c->phase == COLL_JOINING)
		c->phase = COLL_READY;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

static void coll_on_failed(void *user, const struct rs_err *err)
{
	struct coll *c = user;

	pthread_mutex_lock(&c->lock);
	coll_break(c, err);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

/* Checks all handles, so that all members come to the same result. */
static int coll_check_handles(void *handles[], int ranks, int rank, struct coll_handle *first, struct rs_err *e)
{
	if (ranks < 1 || ranks > RS_WORLD_MAX || rank < 0 || rank >= ranks)
		return rs_fail(e, RS_EINVAL, "NCCL connects rank %d of %d, at most %d are supported", rank, ranks,
			       RS_WORLD_MAX);
	memcpy(first, handles[0], sizeof *first);
	for (int i = 0; i < ranks; i++) {
		struct coll_handle h;

		memcpy(&h, handles[i], sizeof h);
		if (h.magic != COLL_MAGIC || h.version != COLL_HANDLE_VERSION)
			return rs_fail(e, RS_EMISMATCH,
				       "node %d uses another network plugin or another version of this one", i);
		if (h.digest != first->digest)
			return rs_fail(e, RS_EMISMATCH,
				       "nodes 0 and %d have different settings: REDUCTION_CONFIG must name the same "
				       "reducers, shards and sharding on all nodes",
				       i);
	}
	return RS_OK;
}

void coll_init_condition(pthread_cond_t *ret)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(ret, &attr);
	pthread_condattr_destroy(&attr);
}

void coll_free(struct coll *c)
{
	if (c->engine)
		engine_free(c->engine);
	while (c->memory) {
		struct coll_memory *m = c->memory;

		c->memory = m->next;
		free(m);
	}
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static struct coll *coll_new(struct plugin *p, const struct coll_handle *of, unsigned ranks, unsigned rank,
			     struct rs_err *e)
{
	struct coll *c = calloc(1, sizeof *c);
	char host[80] = "?";
	uint64_t id = 0, more = 0;

	if (!c) {
		rs_oom(e, 0, "a communicator");
		return NULL;
	}
	for (unsigned i = 0; i < 8; i++) {
		id = id << 8 | of->random[i];
		more = more << 8 | of->random[8 + i];
	}
	c->plugin = p;
	c->ranks = ranks;
	c->rank = rank;
	snprintf(c->job, sizeof c->job, "%s@%016" PRIx64, p->job, id);
	snprintf(c->run, sizeof c->run, "nccl:%016" PRIx64 "%016" PRIx64, id, more);
	gethostname(host, sizeof host - 1);
	snprintf(c->label, sizeof c->label, "pid %ld on %s", (long)getpid(), host);
	pthread_mutex_init(&c->lock, NULL);
	coll_init_condition(&c->changed);
	return c;
}

/* Waits until all members have joined. The engine ends the wait by timeouts.connect. */
static int coll_join(struct coll *c, struct rs_err *e)
{
	const struct engine_options eo = {
	    .cfg = &c->plugin->cfg,
	    .job = c->job,
	    .run = c->run,
	    .rank = c->rank,
	    .world_size = c->ranks,
	    .processes = 1,
	    .label = c->label,
	    .connect_ms = c->plugin->cfg.timeouts.connect_ms,
	    .log = &c->plugin->log,
	    .on_ready = coll_on_ready,
	    .on_failed = coll_on_failed,
	    .user = c,
	};
	int rc = engine_start(&c->engine, &eo, e);

	if (rc)
		return rc;
	pthread_mutex_lock(&c->lock);
	while (c->phase == COLL_JOINING)
		pthread_cond_wait(&c->changed, &c->lock);
	if (c->phase == COLL_BROKEN)
		rc = rs_fail(e, c->err.code, "%s", c->err.msg);
	pthread_mutex_unlock(&c->lock);
	if (rc)
		engine_stop(c->engine);
	return rc;
}

struct timespec coll_deadline(uint32_t ms)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += ms / 1000;
	at.tv_nsec += (long)(ms % 1000) * 1000000;
	if (at.tv_nsec >= 1000000000) {
		at.tv_sec++;
		at.tv_nsec -= 1000000000;
	}
	return at;
}

/* Waits until the engine has no operation. False: not within the time. */
static bool coll_wait_idle(struct coll *c, uint32_t ms)
{
	const struct timespec until = coll_deadline(ms);
	bool idle;

	pthread_mutex_lock(&c->lock);
	while (c->in_flight > 0 && pthread_cond_timedwait(&c->changed, &c->lock, &until) == 0)
		;
	idle = c->in_flight == 0;
	pthread_mutex_unlock(&c->lock);
	return idle;
}

static void coll_on_voted(struct exchange_op *op, const struct rs_err *err)
{
	coll_ended(op->user, err);
}

/* Says that this member has joined, and waits until all have said so. Whatever happens,
 * the member has voted: so an error only breaks the communicator. */
static void coll_vote(struct coll *c)
{
	int32_t vote = 1, votes = 0;
	struct exchange_op op = {
	    .send = &vote,
	    .recv = &votes,
	    .of.count = 1,
	    .of.dtype = RS_INT32,
	    .of.op = RS_SUM,
	    .of.size = sizeof vote,
	    .name = "vote",
	    .done = coll_on_voted,
	    .user = c,
	};
	struct rs_err e;

	coll_began(c);
	if (engine_submit(c->engine, &op, &e))
		coll_ended(c, &e);
	if (!coll_wait_idle(c, c->plugin->cfg.timeouts.connect_ms))
		coll_abandon(c, "found that not all nodes have voted within timeouts.connect");
	if (!coll_is_broken(c, &e) && votes != (int32_t)c->ranks) {
		rs_fail(&e, RS_EINTERNAL, "%d of %u nodes have voted", votes, c->ranks);
		pthread_mutex_lock(&c->lock);
		coll_break(c, &e);
		pthread_mutex_unlock(&c->lock);
	}
}

int coll_connect(struct plugin *p, void *handles[], int ranks, int rank, struct coll_listen *l, struct coll **ret)
{
	struct coll_handle first;
	struct rs_err e;
	struct coll *c = NULL;
	int rc = plugin_refuses(p) ? rs_fail(&e, RS_ECONFIG, "REDUCTION_REQUIRED is 1, and an earlier call has failed")
				   : coll_check_handles(handles, ranks, rank, &first, &e);

	*ret = NULL;
	if (!rc) {
		c = coll_new(p, &first, (unsigned)ranks, (unsigned)rank, &e);
		rc = c ? coll_join(c, &e) : e.code;
	}
	if (rc) {
		if (c)
			coll_free(c);
		coll_close_listen(l);
		rs_wrap(&e, "all-reduces of this communicator do not go through the reducers");
		rc = plugin_fail(p, &e);
		plugin_refuse(p, &e);
		return rc;
	}
	coll_vote(c);
	plugin_info(p, "communicator %s: rank %d of %d has joined, summed by %u reducers", c->job, rank, ranks,
		    p->cfg.reducers_n);
	*ret = c;
	return NCCL_SUCCESS;
}
