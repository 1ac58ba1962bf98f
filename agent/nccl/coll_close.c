/* SPDX-License-Identifier: Apache-2.0 */
/* Closing a communicator. The happy path: no all-reduce is pending; the engine says
 * GOODBYE as soon as no other rank can need a result from this one, and ends. Failure
 * modes: all-reduces are pending (ncclCommAbort), then the job ends on all ranks; other
 * ranks take long, then a thread of its own goes on waiting for them. */
#include "agent/nccl/coll_state.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLL_CLOSE_MS = 1000 }; /* for which closing waits for the other ranks */

/* The end of a communicator. Invariant: the thread frees it if `left` is set when it is
 * done, else the closer does. */
struct coll_closing {
	struct coll *coll;
	pthread_mutex_t lock; /* protects everything below */
	pthread_cond_t changed;
	bool done; /* the communicator is freed */
	bool left; /* the closer does not wait any more */
};

static void coll_closing_free(struct coll_closing *w)
{
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static void *coll_closing_main(void *arg)
{
	struct coll_closing *w = arg;
	bool left;

	engine_stop(w->coll->engine);
	coll_free(w->coll);
	pthread_mutex_lock(&w->lock);
	w->done = true;
	left = w->left;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
	if (left)
		coll_closing_free(w);
	return NULL;
}

/* Starts the thread with all signals blocked. False: there is no memory or no thread. */
static bool coll_closing_start(struct coll_closing *w)
{
	sigset_t all, before;
	pthread_t thread;
	bool started;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	started = pthread_create(&thread, NULL, coll_closing_main, w) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (started)
		pthread_detach(thread);
	return started;
}

/* Says what the communicator was used for. */
static void coll_report_use(struct coll *c)
{
	struct rs_err e;

	if (coll_is_broken(c, &e))
		return;
	if (c->started + c->slices > 0) {
		char more[128] = "";

		if (c->slices > 0)
			snprintf(more, sizeof more,
				 ", and %llu slices of all-gathers and reduce-scatters of %llu bytes",
				 (unsigned long long)c->slices, (unsigned long long)c->moved);
		plugin_info(c->plugin, "communicator %s: rank %u is closed after %llu all-reduces of %llu bytes%s",
			    c->job, c->rank, (unsigned long long)c->started, (unsigned long long)c->bytes, more);
		return;
	}
	rs_fail(&e, RS_ECONFIG,
		"communicator %s: rank %u is closed, and NCCL never used it: no all-reduce went through the reducers "
		"(set NCCL_ALGO=allreduce:collnetchain)",
		c->job, c->rank);
	if (c->plugin->required)
		plugin_fail(c->plugin, &e);
	else
		plugin_info(c->plugin, "%s", e.msg);
}

static bool coll_has_pending(struct coll *c)
{
	bool pending;

	pthread_mutex_lock(&c->lock);
	pending = c->in_flight > 0;
	pthread_mutex_unlock(&c->lock);
	return pending;
}

int coll_close(struct coll *c)
{
	const struct timespec until = coll_deadline(COLL_CLOSE_MS);
	struct coll_closing *w = calloc(1, sizeof *w);
	bool done;

	if (coll_has_pending(c))
		coll_abandon(c, "closed its communicator while all-reduces were pending");
	coll_report_use(c);
	if (w) {
		w->coll = c;
		pthread_mutex_init(&w->lock, NULL);
		coll_init_condition(&w->changed);
	}
	if (!w || !coll_closing_start(w)) {
		if (w)
			coll_closing_free(w);
		engine_stop(c->engine);
		coll_free(c);
		return NCCL_SUCCESS;
	}
	pthread_mutex_lock(&w->lock);
	while (!w->done && pthread_cond_timedwait(&w->changed, &w->lock, &until) == 0)
		;
	w->left = true;
	done = w->done;
	pthread_mutex_unlock(&w->lock);
	if (done)
		coll_closing_free(w);
	return NCCL_SUCCESS;
}
