/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a lane core: its thread, its loop, and the commands that the server's thread
 * posts. The connections of the core are in lane_conn.h. */
#include "server/run/lane_uv.h"

#include "common/assert.h"
#include "common/descriptors.h"
#include "common/loop_uv.h"
#include "common/spin.h"
#include "proto/control.h"
#include "proto/features.h"
#include "server/core/check.h"
#include "server/core/lane_trace.h"
#include "server/join/secrets.h"
#include "server/run/lane_command.h"
#include "server/run/lane_conn.h"
#include "server/run/lane_grpc.h"
#include "server/run/lane_load.h"
#include "server/run/lane_tcp.h"
#include "server/run/lane_uplink.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A lane. The lane's thread owns everything that is not marked otherwise. */
struct lane_thread {
	uv_thread_t thread;
	uv_loop_t loop;
	struct mailbox in, *out;
	uv_timer_t tick;
	uv_check_t after;       /* called when the loop has read all pending input */
	uv_idle_t more;         /* keeps the loop awake: sessions are ready, or small operations may follow */
	struct rs_spin spin;    /* keeps the loop awake for a moment after small operations */
	struct wakeups wakeups; /* of the mailbox and of streams over gRPC */
	struct lane *core;
	struct lane_conns conns;
	struct lane_uplinks uplinks;
	unsigned index;
	uint32_t detect_ms, stopped_ms;
	bool paranoid;
	const struct rs_log *log;
	struct lane_report *report; /* complete; the server's thread takes it after the call that says so */
	struct lane_command *trace; /* that began the trace that runs; owned; NULL: none runs */

	/* Owned by the thread that posts commands. They are allocated in advance, so that
	 * posting them needs no memory.
	 */
	struct reserves reserves;
	struct lane_command *stop;
	unsigned ticks_seen;

	_Atomic unsigned ticks; /* counted by the lane; any thread may read it */

	struct lane_load load;
};

/* Each connection has at most one command and one event. At worst it is the first of its
 * job, which needs a reserve. */
_Static_assert(LANE_CONN_BYTES + 2 * sizeof(struct lane_command) + sizeof(struct lane_mail) + sizeof(struct reserve) <=
		   LANE_CONNECTION_BYTES,
	       "LANE_CONNECTION_BYTES is too small");

static void thread_on_more(uv_idle_t *idle)
{
	(void)idle;
}

/* Returns true if the loop should spin before it sleeps, because small operations may
 * follow. After a large operation spinning would only make the reads smaller, and so cost
 * more. */
static bool thread_stay_awake(struct lane_thread *t)
{
	enum lane_arrivals arrived = lane_arrivals(t->core);

	if (arrived == LANE_ARRIVED_LARGE)
		t->spin.awake = false;
	if (arrived != LANE_ARRIVED_SMALL && !t->spin.awake)
		return false;
	return rs_spin_stay_awake(&t->spin, arrived == LANE_ARRIVED_SMALL, uv_hrtime());
}

/* Serves ready sessions. The loop sleeps only when none is left. */
static void thread_serve(struct lane_thread *t)
{
	bool more;

	lane_uplinks_serve(&t->uplinks);
	more = lane_conns_flush(&t->conns);
	lane_uplinks_serve(&t->uplinks);

	if (t->paranoid)
		rs_assert_sound(__FILE__, __LINE__, lane_check(t->core));
	/* an uplink may have made a session ready */
	if (thread_stay_awake(t) || more || lane_is_ready(t->core))
		uv_idle_start(&t->more, thread_on_more);
	else
		uv_idle_stop(&t->more);
}

static void thread_on_after(uv_check_t *check)
{
	thread_serve(check->data);
}

/* Gives the trace back to the server's thread. */
static void thread_trace_end(struct lane_thread *t)
{
	struct lane_command *l = t->trace;

	t->trace = NULL;
	lane_trace_end(t->core);
	l->trace->ended = true;
	l->done(l->user);
	free(l);
}

static void thread_trace_check(struct lane_thread *t)
{
	if (lane_trace_done(t->core))
		thread_trace_end(t);
}

static void thread_on_tick(uv_timer_t *timer)
{
	struct lane_thread *t = timer->data;

	atomic_fetch_add_explicit(&t->ticks, 1, memory_order_relaxed);
	lane_conns_look(&t->conns);
	lane_tick(t->core, uv_now(&t->loop));
	lane_conns_sample(&t->conns);
	lane_load_tick(&t->load, uv_hrtime());
	lane_set_processor(t->core, t->load.busy_permil + t->load.starved_permil);
	if (t->trace)
		thread_trace_check(t);
	thread_serve(t);
}

/* Posts LANE_CLOSED in the message that was allocated for it. Without this event the
 * registry would never free the job.
 */
static void thread_post_closed(struct lane_thread *t, struct lane_mail *m, const struct lane_event *ev)
{
	struct rs_err why = m->event.why;

	m->event = *ev;
	m->event.why = why;
	mailbox_post(t->out, &m->mail);
}

/* Reports LANE_FAILED without memory: with LANE_CLOSED of each connection of the job, all
 * of whose sessions have ended.
 */
static void thread_keep_failure(struct lane_thread *t, const struct lane_event *ev)
{
	for (struct lane_conn *c = LIST_FIRST(&t->conns.list); c; c = LIST_NEXT(c, link))
		if (c->job == ev->job && c->closed && !c->closed->failed) {
			c->closed->failed = true;
			c->closed->event.why = ev->why;
		}
}

static void thread_on_core_event(void *ctx, const struct lane_event *ev)
{
	struct lane_thread *t = ctx;
	struct lane_mail *m;

	if (ev->type == LANE_CLOSED) {
		thread_post_closed(t, t->conns.closed, ev);
		return;
	}
	m = calloc(1, sizeof *m);
	if (m) {
		m->event = *ev;
		mailbox_post(t->out, &m->mail);
	} else if (ev->type == LANE_FAILED) {
		thread_keep_failure(t, ev);
	} /* the others can get lost: they are logged or come again, or a process that is not refused yet tries again */
}

static void thread_post_not_attached(struct lane_thread *t, struct lane_command *l)
{
	struct lane_event ev = {.type = LANE_CLOSED,
				.job = l->admit.stripe.job,
				.rank = l->admit.session.rank,
				.uplink = l->admit.session.relay > 0,
				.lane = l->admit.stripe.lane};

	thread_post_closed(t, l->closed, &ev);
}

static struct lane_conn *thread_new_stream(struct lane_thread *t, const struct lane_command *l)
{
	t->conns.rpc = l->rpc;
	t->conns.queue = l->queue;
	return lane_grpc_new(&t->conns, l->stream);
}

static void thread_attach(struct lane_thread *t, struct lane_command *l)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	uint32_t silence_ms = l->admit.session.direct ? t->stopped_ms : t->detect_ms;
	struct lane_conn *c = l->rpc ? thread_new_stream(t, l) : lane_tcp_new(&t->conns, &l->tcp, silence_ms);
	struct rs_err e;
	int rc;

	if (!c) {
		rs_oom(&e, 0, "a connection");
		goto report;
	}
	c->closed = l->closed;
	c->job = l->admit.stripe.job;
	c->share.weight = l->admit.session.weight;
	lane_conns_add(&t->conns, c);
	rc = lane_attach(t->core, &c->session, &l->admit.stripe, &l->admit.session, c, uv_now(&t->loop), &e);
	if (rc) {
		lane_conns_close(&t->conns, c);
		goto report;
	}
	session_queue(c->session, frame,
		      control_frame(frame, FRAME_WELCOME, l->admit.stripe.generation, 0, payload,
				    control_pack_welcome(payload, &l->welcome)));
	if (l->rpc)
		lane_grpc_start(c);
	else
		lane_tcp_start(c);
	return;

report:
	rs_log(t->log, RS_LOG_ERROR, "attach-failed", rs_kv_s("reason", e.msg), rs_kv_u("lane", t->index));
	thread_post_not_attached(t, l);
}

static void thread_close_handles(struct lane_thread *t)
{
	uv_close((uv_handle_t *)&t->tick, NULL);
	uv_close((uv_handle_t *)&t->after, NULL);
	uv_close((uv_handle_t *)&t->more, NULL);
	mailbox_close(&t->in);
	wakeups_close(&t->wakeups);
}

static void thread_stop(struct lane_thread *t)
{
	while (!LIST_EMPTY(&t->conns.list))
		lane_conns_close(&t->conns, LIST_FIRST(&t->conns.list));
	lane_uplinks_serve(&t->uplinks);
	lane_uplinks_close(&t->uplinks);
	thread_close_handles(t);
}

static void thread_report(struct lane_thread *t, const struct lane_command *l)
{
	t->report = lane_report_new(t->core, uv_now(&t->loop));
	if (t->report) {
		t->report->thread = t->index;
		t->report->busy_permil = t->load.busy_permil;
		t->report->starved_permil = t->load.starved_permil;
	}
	l->done(l->user);
}

static void thread_trace_begin(struct lane_thread *t, struct lane_command *l)
{
	t->trace = l;
	lane_trace_begin(t->core, l->trace);
	thread_trace_check(t); /* there may be nothing to wait for */
}

static void thread_on_mail(struct mailbox *m, struct mail *mail)
{
	struct lane_thread *t = m->user;
	struct lane_command *l = (struct lane_command *)mail;

	switch (l->type) {
	case COMMAND_ATTACH:
		thread_attach(t, l);
		break;
	case COMMAND_START:
		lane_start(t->core, l->job, &l->begin);
		break;
	case COMMAND_TELL:
		lane_tell(t->core, l->job, l->frame, l->frame_len);
		break;
	case COMMAND_ASK:
		lane_ask(t->core, l->job, l->lane, l->rank, l->question);
		break;
	case COMMAND_ABORT:
		lane_abort(t->core, l->job, &l->why, &l->cause);
		break;
	case COMMAND_REPORT:
		thread_report(t, l);
		break;
	case COMMAND_TRACE:
		thread_trace_begin(t, l);
		return; /* which frees it at its end */
	case COMMAND_TRACE_END:
		if (t->trace)
			thread_trace_end(t);
		break;
	case COMMAND_STOP:
		thread_stop(t);
		break;
	}

	free(l);
}

static void thread_main(void *arg)
{
	struct lane_thread *t = arg;
	char name[16]; /* the longest that Linux accepts */

	snprintf(name, sizeof name, "lane %u", t->index);
	pthread_setname_np(pthread_self(), name);
	wakeups_run(&t->wakeups);
}

static void thread_start_handles(struct lane_thread *t)
{
	uv_timer_init(&t->loop, &t->tick);
	t->tick.data = t;
	uv_timer_start(&t->tick, thread_on_tick, LANE_TICK_MS, LANE_TICK_MS);
	uv_check_init(&t->loop, &t->after);
	t->after.data = t;
	uv_check_start(&t->after, thread_on_after);
	uv_idle_init(&t->loop, &t->more);
}

static int thread_start(struct lane_thread *t, struct rs_err *e)
{
	sigset_t all, old;
	int rc;

	/* signals belong to the accept loop */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = uv_thread_create(&t->thread, thread_main, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc ? rs_fail(e, RS_EIO,
			    "cannot start a thread for a lane (limits: ulimit -u, ulimit -v, TasksMax of systemd): %s",
			    uv_strerror(rc))
		  : RS_OK;
}

static int thread_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret, struct rs_err *e)
{
	const struct lane_thread *t = ctx;

	return secrets_load(t->uplinks.cfg, hello->job, ret, e);
}

int lane_thread_start(struct lane_thread **ret, const struct lane_thread_options *o, unsigned index, struct rs_err *e)
{
	struct lane_thread *t = calloc(1, sizeof *t);
	const struct rs_config *cfg = o->cfg;
	uint32_t detect_ms = cfg->timeouts.detect_ms, stopped_ms = cfg->timeouts.stopped_ms;
	struct lane_options opt = {.kernels = o->kernels,
				   .detect_ms = detect_ms,
				   .stopped_ms = stopped_ms,
				   .event = thread_on_core_event,
				   .secret = secrets_exist(cfg) ? thread_secret : NULL,
				   .random = lane_uplink_random,
				   .peers = o->peers,
				   .ctx = t};
	int rc;

	if (!t)
		return rs_oom(e, 0, "a lane");
	t->index = index;
	t->detect_ms = detect_ms;
	t->stopped_ms = stopped_ms > detect_ms ? stopped_ms : detect_ms;
	t->paranoid = cfg->paranoid;
	t->log = o->log;
	t->out = o->out;
	t->stop = lane_command_new(COMMAND_STOP, 0, 0);
	rc = t->stop ? lane_new(&t->core, &opt, e) : rs_oom(e, 0, "a lane");
	if (rc)
		goto free_thread;
	rc = lane_uplinks_init(&t->uplinks, &t->loop, t->core, cfg, e);
	if (!rc)
		rc = rs_loop_init(&t->loop, RS_LOOP_DESCRIPTORS, e);
	if (rc)
		goto free_core;
	rc = wakeups_init(&t->wakeups, &t->loop, e);
	if (rc)
		goto close_loop;
	rc = mailbox_init(&t->in, &t->wakeups, thread_on_mail, t, e);
	if (rc)
		goto close_wakeups;
	t->conns = (struct lane_conns){.loop = &t->loop, .wakeups = &t->wakeups, .core = t->core};
	thread_start_handles(t);
	rc = thread_start(t, e);
	if (rc)
		goto close_handles;
	*ret = t;
	return RS_OK;

close_handles:
	thread_close_handles(t);
	uv_run(&t->loop, UV_RUN_DEFAULT);
	mailbox_destroy(&t->in);
	goto destroy_wakeups;
close_wakeups:
	wakeups_close(&t->wakeups);
	uv_run(&t->loop, UV_RUN_DEFAULT);
destroy_wakeups:
	wakeups_destroy(&t->wakeups);
close_loop:
	uv_loop_close(&t->loop);
free_core:
	lane_uplinks_free(&t->uplinks);
	lane_free(t->core);
free_thread:
	free(t->stop);
	free(t);
	return rc;
}

static void thread_post(struct lane_thread *t, struct lane_command *l)
{
	mailbox_post(&t->in, &l->mail);
}

/* Allocates everything that a new connection needs outside of its lane. NULL: no
 * memory. */
static struct lane_command *thread_attach_command(struct lane_thread *t, const struct registry_admit *admit,
						  const struct control_welcome *welcome, struct rs_err *e)
{
	struct lane_command *l = lane_command_new(COMMAND_ATTACH, admit->stripe.job, 0);
	struct lane_mail *closed = calloc(1, sizeof *closed);

	if (!l || !closed || !reserves_add(&t->reserves, admit->stripe.job)) {
		free(l);
		free(closed);
		rs_oom(e, 0, "a connection of rank %u in this reducer", admit->session.rank);
		return NULL;
	}
	l->closed = closed;
	l->admit = *admit;
	l->welcome = *welcome;
	l->welcome.detect_ms = t->detect_ms;
	l->welcome.features = admit->features;
	return l;
}

int lane_thread_attach(struct lane_thread *t, struct tcp_conn *tcp, const struct registry_admit *admit,
		       const struct control_welcome *welcome, struct rs_err *e)
{
	struct lane_command *l = thread_attach_command(t, admit, welcome, e);

	if (!l)
		return RS_ENOMEM;
	tcp_conn_move(&l->tcp, tcp);
	thread_post(t, l);
	return RS_OK;
}

int lane_thread_attach_stream(struct lane_thread *t, const struct rpc_api *rpc, struct rpc_server *server,
			      struct rpc_stream *stream, const struct registry_admit *admit,
			      const struct control_welcome *welcome, struct rs_err *e)
{
	struct lane_command *l = thread_attach_command(t, admit, welcome, e);

	if (!l)
		return RS_ENOMEM;
	l->admit.session.keeps = false; /* a call ends with its job */
	l->welcome.features &= ~FEATURE_RECONFIGURE;
	l->rpc = rpc;
	l->queue = rpc->server_queue(server, t->index);
	l->stream = stream;
	thread_post(t, l);
	return RS_OK;
}

void lane_thread_start_job(struct lane_thread *t, uint64_t job, const struct lane_begin *begin)
{
	struct lane_command *l = lane_command_new(COMMAND_START, job, 0);
	struct rs_err why;

	if (!l) {
		rs_oom(&why, 0, "the start of the job in this reducer");
		lane_thread_abort(t, job, &why, NULL);
		return;
	}
	l->begin = *begin;
	thread_post(t, l);
}

void lane_thread_tell(struct lane_thread *t, uint64_t job, const uint8_t *frame, uint32_t len)
{
	struct lane_command *l = lane_command_new(COMMAND_TELL, job, len);

	if (!l)
		return;
	l->frame_len = len;
	memcpy(l->frame, frame, len);
	thread_post(t, l);
}

void lane_thread_ask(struct lane_thread *t, uint64_t job, unsigned lane, unsigned rank, uint64_t question)
{
	struct lane_command *l = lane_command_new(COMMAND_ASK, job, 0);

	if (!l)
		return;
	l->lane = lane;
	l->rank = rank;
	l->question = question;
	thread_post(t, l);
}

void lane_thread_abort(struct lane_thread *t, uint64_t job, const struct rs_err *why, const struct rs_cause *cause)
{
	struct lane_command *l = reserves_take(&t->reserves, job);

	if (!l)
		return;
	l->why = *why;
	l->cause = cause ? *cause : (struct rs_cause){.code = why->code};
	thread_post(t, l);
}

void lane_thread_forget(struct lane_thread *t, uint64_t job)
{
	reserves_remove(&t->reserves, job);
}

/* Posts a command that is answered. Returns false without memory. */
static bool thread_ask(struct lane_thread *t, enum lane_command_type type, struct trace *trace,
		       void (*done)(void *user), void *user)
{
	struct lane_command *l = lane_command_new(type, 0, 0);

	if (!l)
		return false;
	l->trace = trace;
	l->done = done;
	l->user = user;
	thread_post(t, l);
	return true;
}

bool lane_thread_report(struct lane_thread *t, void (*done)(void *user), void *user)
{
	return thread_ask(t, COMMAND_REPORT, NULL, done, user);
}

struct lane_report *lane_thread_take_report(struct lane_thread *t)
{
	struct lane_report *report = t->report;

	t->report = NULL;
	return report;
}

bool lane_thread_trace(struct lane_thread *t, struct trace *trace, void (*done)(void *user), void *user)
{
	return thread_ask(t, COMMAND_TRACE, trace, done, user);
}

void lane_thread_trace_end(struct lane_thread *t)
{
	struct lane_command *l = lane_command_new(COMMAND_TRACE_END, 0, 0);

	if (l)
		thread_post(t, l);
}

bool lane_thread_turned(struct lane_thread *t)
{
	unsigned ticks = atomic_load_explicit(&t->ticks, memory_order_relaxed);
	bool turned = ticks != t->ticks_seen;

	t->ticks_seen = ticks;
	return turned;
}

void lane_thread_stop(struct lane_thread *t)
{
	if (!t)
		return;
	thread_post(t, t->stop);
	uv_thread_join(&t->thread);
	mailbox_destroy(&t->in);
	wakeups_destroy(&t->wakeups);
	uv_loop_close(&t->loop);
	free(t->trace);
	lane_free(t->core);
	lane_uplinks_free(&t->uplinks);
	reserves_close(&t->reserves);
	free(t->report);
	free(t);
}
