/* SPDX-License-Identifier: Apache-2.0 */
/* Drives a lane core: its thread, its loop, what it is told by mail, and whose turn it is to send. What moves the bytes
 * of a connection is behind lane_conn.h. */
#include "server/run/lane_uv.h"

#include "common/spin.h"
#include "proto/control.h"
#include "server/run/lane_command.h"
#include "server/run/lane_conn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	/* What has come is read before results go out, since each of these brings the next contribution of its rank:
	 * with a thousand ranks those queue up beyond the caches otherwise, and the queue keeps its length. Few go
	 * out then, so that their answers are read soon. 1,024 ranks with 4 chunks in flight: 2.0 -> 2.6 GiB/s, and a
	 * quarter less processor time than with a result after each read and 16 at the end. Some go out between reads
	 * too: else who sends without end would keep the results of others from them. */
	READS_PER_FLUSH = 4,  /* connections that are read for each session that is looked after meanwhile, */
	FLUSHES_PER_WAKE = 4, /* and sessions when all were */
};

/* A lane with its thread and its loop. Invariant: `conns` has tcp_conns + streams entries. */
struct lane_thread {
	uv_thread_t thread;
	uv_loop_t loop;
	struct mailbox in, *out;
	uv_timer_t tick;
	uv_check_t after;       /* all that had come was read */
	uv_idle_t more;         /* runs while sessions wait for their turn, or small operations may follow: no sleep */
	struct rs_spin spin;    /* before the loop sleeps after small operations */
	unsigned reads;         /* since a session was looked after between them */
	struct wakeups wakeups; /* of the mailbox and of streams over gRPC */
	struct lane *core;
	struct lane_conn *conns;
	struct lane_mail *closed;    /* for the session that is being freed, else NULL */
	unsigned tcp_conns, streams; /* number of connections over TCP, and over gRPC */
	const struct rpc_api *rpc;   /* of the streams */
	struct rpc_queue *queue;     /* of the streams; the lane sleeps in it if it has only streams */
	unsigned index;
	uint32_t detect_ms;
	const struct rs_log *log;
	struct lane_report *report; /* ready; the server takes it after its event */

	/* Owned by the thread that posts commands. They are allocated early, so that they can be posted without memory.
	 */
	struct reserves reserves;
	struct lane_command *stop;

	/* Processor time of this thread and the time of day when the current second began; the share of the last
	 * second. */
	uint64_t busy_ns, busy_from_ns;
	uint32_t busy_permil;
};

/* A connection has a command and an event at most, and is the first of its job at worst. */
_Static_assert(LANE_CONN_BYTES + 2 * sizeof(struct lane_command) + sizeof(struct lane_mail) + sizeof(struct reserve) <=
		   LANE_CONNECTION_BYTES,
	       "LANE_CONNECTION_BYTES is too small");

/* With streams alone it sleeps where they arrive: they are read and answered on this thread, which is three quarters of
 * the processor time of handing them over. Beside TCP connections, which cannot be waited for there, it is told by the
 * module's threads. */
static void choose_wait(struct lane_thread *t)
{
	wakeups_serve(&t->wakeups, t->streams && !t->tcp_conns ? t->rpc : NULL, t->queue);
}

static void conn_add(struct lane_thread *t, struct lane_conn *c)
{
	++*(c->is_stream ? &t->streams : &t->tcp_conns);
	choose_wait(t);
	c->next = t->conns;
	c->at = &t->conns;
	if (c->next)
		c->next->at = &c->next;
	t->conns = c;
}

static void conn_close(struct lane_conn *c)
{
	struct lane_thread *t = c->lane;

	t->closed = c->closed;
	c->closed = NULL;
	if (c->session)
		session_free(c->session);
	c->session = NULL;
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	--*(c->is_stream ? &t->streams : &t->tcp_conns);
	c->ops->close(c);
	t->closed = NULL;
	choose_wait(t);
}

/* Looks after sessions that became ready, at most n. False when none is left. */
static bool lane_flush(struct lane_thread *t, unsigned n)
{
	for (; n; n--) {
		struct session *s = lane_next_ready(t->core);
		struct lane_conn *c;

		if (!s)
			return false;
		c = session_user(s);

		if (session_closed(s))
			conn_close(c);
		else if (!c->write_wait || session_shut(s))
			c->ops->flush(c);
	}
	return true;
}

uv_loop_t *lane_thread_loop(struct lane_thread *t)
{
	return &t->loop;
}

void lane_thread_turn(struct lane_thread *t)
{
	if (++t->reads < READS_PER_FLUSH)
		return;
	t->reads = 0;
	lane_flush(t, 1);
}

static void on_more(uv_idle_t *idle)
{
	(void)idle;
}

/* Is it worth not to sleep yet? Not for large operations: what they bring then comes in smaller pieces, and costs more.
 */
static bool stay_awake(struct lane_thread *t)
{
	enum lane_arrivals came = lane_arrivals(t->core);

	if (came == LANE_ARRIVED_LARGE)
		t->spin.awake = false;
	if (came != LANE_ARRIVED_SMALL && !t->spin.awake)
		return false;
	return rs_spin_stay_awake(&t->spin, came == LANE_ARRIVED_SMALL, uv_hrtime());
}

/* Everything that became ready goes out before the loop sleeps. */
static void lane_attend(struct lane_thread *t)
{
	bool more = lane_flush(t, FLUSHES_PER_WAKE);

	if (stay_awake(t) || more)
		uv_idle_start(&t->more, on_more);
	else
		uv_idle_stop(&t->more);
}

static void on_after(uv_check_t *check)
{
	lane_attend(check->data);
}

/* How much of the last second this thread has worked: what the kernel counts anyway costs the data path nothing. */
static void count_busy(struct lane_thread *t)
{
	uint64_t now_ns = uv_hrtime(), ns;
	struct timespec ts;

	if (now_ns - t->busy_from_ns < LANE_SECOND_MS * UINT64_C(1000000))
		return;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	ns = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
	t->busy_permil = (uint32_t)((ns - t->busy_ns) * 1000 / (now_ns - t->busy_from_ns));
	t->busy_ns = ns;
	t->busy_from_ns = now_ns;
}

static void on_tick(uv_timer_t *timer)
{
	struct lane_thread *t = timer->data;

	lane_tick(t->core, uv_now(&t->loop));
	count_busy(t);
	lane_attend(t);
}

/* Without this event the registry would hold the job for ever. */
static void post_closed(struct lane_thread *t, struct lane_mail *m, const struct lane_event *ev)
{
	struct rs_err why = m->event.why;

	m->event = *ev;
	m->event.why = why;
	mailbox_post(t->out, &m->mail);
}

/* The job's sessions have ended. The server hears of it with the first of them that is gone. */
static void keep_failure(struct lane_thread *t, const struct lane_event *ev)
{
	for (struct lane_conn *c = t->conns; c; c = c->next)
		if (c->job == ev->job && c->closed && !c->closed->failed) {
			c->closed->failed = true;
			c->closed->event.why = ev->why;
		}
}

static void on_core_event(void *ctx, const struct lane_event *ev)
{
	struct lane_thread *t = ctx;
	struct lane_mail *m;

	if (ev->type == LANE_CLOSED) {
		post_closed(t, t->closed, ev);
		return;
	}
	m = calloc(1, sizeof *m);
	if (m) {
		m->event = *ev;
		mailbox_post(t->out, &m->mail);
	} else if (ev->type == LANE_FAILED) {
		keep_failure(t, ev);
	} /* the other events are for the log alone */
}

static void post_not_attached(struct lane_thread *t, struct lane_command *l)
{
	struct lane_event ev = {.type = LANE_CLOSED,
				.job = l->admit.stripe.job,
				.rank = l->admit.session.rank,
				.lane = l->admit.stripe.lane};

	post_closed(t, l->closed, &ev);
}

static struct lane_conn *new_stream(struct lane_thread *t, const struct lane_command *l)
{
	t->rpc = l->rpc;
	t->queue = l->queue;
	return lane_grpc_new(t, l->rpc, l->stream, &t->wakeups);
}

static void attach(struct lane_thread *t, struct lane_command *l)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	struct lane_conn *c = l->rpc ? new_stream(t, l) : lane_tcp_new(t, &l->tcp, t->detect_ms);
	struct rs_err e;
	int rc;

	if (!c) {
		rs_fail(&e, RS_ENOMEM, "no memory for a connection");
		goto report;
	}
	c->closed = l->closed;
	c->job = l->admit.stripe.job;
	conn_add(t, c);
	rc = lane_attach(t->core, &c->session, &l->admit.stripe, &l->admit.session, c, uv_now(&t->loop), &e);
	if (rc) {
		conn_close(c);
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
	post_not_attached(t, l);
}

static void close_handles(struct lane_thread *t)
{
	uv_close((uv_handle_t *)&t->tick, NULL);
	uv_close((uv_handle_t *)&t->after, NULL);
	uv_close((uv_handle_t *)&t->more, NULL);
	mailbox_close(&t->in);
	wakeups_close(&t->wakeups);
}

static void stop(struct lane_thread *t)
{
	while (t->conns)
		conn_close(t->conns);
	close_handles(t);
}

static void report(struct lane_thread *t, struct lane_mail *answer)
{
	t->report = lane_report_new(t->core, uv_now(&t->loop));
	if (t->report) {
		t->report->thread = t->index;
		t->report->busy_permil = t->busy_permil;
	}
	answer->reported = t;
	mailbox_post(t->out, &answer->mail);
}

static void on_mail(struct mailbox *m, struct mail *mail)
{
	struct lane_thread *t = m->user;
	struct lane_command *l = (struct lane_command *)mail;

	switch (l->type) {
	case COMMAND_ATTACH:
		attach(t, l);
		break;
	case COMMAND_START:
		lane_start(t->core, l->job, l->processes);
		break;
	case COMMAND_TELL:
		lane_send_all(t->core, l->job, l->frame, l->frame_len);
		break;
	case COMMAND_ABORT:
		lane_abort(t->core, l->job, l->why.code, l->why.msg);
		break;
	case COMMAND_REPORT:
		report(t, l->answer);
		break;
	case COMMAND_STOP:
		stop(t);
		break;
	}
	free(l);
}

static void lane_main(void *arg)
{
	struct lane_thread *t = arg;
	char name[16]; /* all that the system takes */

	snprintf(name, sizeof name, "lane %u", t->index);
	pthread_setname_np(pthread_self(), name);
	wakeups_run(&t->wakeups);
}

static void start_handles(struct lane_thread *t)
{
	uv_timer_init(&t->loop, &t->tick);
	t->tick.data = t;
	uv_timer_start(&t->tick, on_tick, LANE_TICK_MS, LANE_TICK_MS);
	uv_check_init(&t->loop, &t->after);
	t->after.data = t;
	uv_check_start(&t->after, on_after);
	uv_idle_init(&t->loop, &t->more);
}

int lane_thread_start(struct lane_thread **ret, unsigned index, const struct rs_kernels *kernels, uint32_t detect_ms,
		      const struct rs_log *log, struct mailbox *out, struct rs_err *e)
{
	struct lane_thread *t = calloc(1, sizeof *t);
	struct lane_options opt = {.kernels = kernels, .detect_ms = detect_ms, .event = on_core_event, .ctx = t};
	sigset_t all, old;
	int rc;

	if (!t)
		return rs_fail(e, RS_ENOMEM, "no memory for a lane");
	t->index = index;
	t->detect_ms = detect_ms;
	t->log = log;
	t->out = out;
	t->stop = lane_command_new(COMMAND_STOP, 0, 0);
	rc = t->stop ? lane_new(&t->core, &opt, e) : rs_fail(e, RS_ENOMEM, "no memory for a lane");
	if (rc)
		goto free_thread;
	if (uv_loop_init(&t->loop)) {
		rc = rs_fail(e, RS_EIO, "an event loop cannot be made");
		goto free_core;
	}
	rc = wakeups_init(&t->wakeups, &t->loop, e);
	if (rc)
		goto close_loop;
	rc = mailbox_init(&t->in, &t->wakeups, on_mail, t, e);
	if (rc)
		goto close_wakeups;
	start_handles(t);
	/* signals belong to the accept loop */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = uv_thread_create(&t->thread, lane_main, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		rc = rs_fail(e, RS_EIO, "a thread cannot be started: %s", uv_strerror(rc));
		goto close_handles;
	}
	*ret = t;
	return RS_OK;

close_handles:
	close_handles(t);
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
	lane_free(t->core);
free_thread:
	free(t->stop);
	free(t);
	return rc;
}

static void post(struct lane_thread *t, struct lane_command *l)
{
	mailbox_post(&t->in, &l->mail);
}

/* Everything that a new connection needs outside of its lane; NULL: no memory. */
static struct lane_command *attach_command(struct lane_thread *t, const struct registry_admit *admit,
					   const struct control_welcome *welcome, struct rs_err *e)
{
	struct lane_command *l = lane_command_new(COMMAND_ATTACH, admit->stripe.job, 0);
	struct lane_mail *closed = calloc(1, sizeof *closed);

	if (!l || !closed || !reserves_add(&t->reserves, admit->stripe.job)) {
		free(l);
		free(closed);
		rs_fail(e, RS_ENOMEM, "this reducer has no memory for a connection of rank %u", admit->session.rank);
		return NULL;
	}
	l->closed = closed;
	l->admit = *admit;
	l->welcome = *welcome;
	l->welcome.detect_ms = t->detect_ms;
	return l;
}

int lane_thread_attach(struct lane_thread *t, struct tcp_conn *tcp, const struct registry_admit *admit,
		       const struct control_welcome *welcome, struct rs_err *e)
{
	struct lane_command *l = attach_command(t, admit, welcome, e);

	if (!l)
		return RS_ENOMEM;
	tcp_conn_move(&l->tcp, tcp);
	post(t, l);
	return RS_OK;
}

int lane_thread_attach_stream(struct lane_thread *t, const struct rpc_api *rpc, struct rpc_server *server,
			      struct rpc_stream *stream, const struct registry_admit *admit,
			      const struct control_welcome *welcome, struct rs_err *e)
{
	struct lane_command *l = attach_command(t, admit, welcome, e);

	if (!l)
		return RS_ENOMEM;
	l->rpc = rpc;
	l->queue = rpc->server_queue(server, t->index);
	l->stream = stream;
	post(t, l);
	return RS_OK;
}

void lane_thread_start_job(struct lane_thread *t, uint64_t job, uint64_t processes)
{
	struct lane_command *l = lane_command_new(COMMAND_START, job, 0);
	struct rs_err why;

	if (!l) {
		rs_fail(&why, RS_ENOMEM, "this reducer has no memory to start the job");
		lane_thread_abort(t, job, &why);
		return;
	}
	l->processes = processes;
	post(t, l);
}

void lane_thread_send(struct lane_thread *t, uint64_t job, const uint8_t *frame, uint32_t len)
{
	struct lane_command *l = lane_command_new(COMMAND_TELL, job, len);

	if (!l)
		return;
	l->frame_len = len;
	memcpy(l->frame, frame, len);
	post(t, l);
}

void lane_thread_abort(struct lane_thread *t, uint64_t job, const struct rs_err *why)
{
	struct lane_command *l = reserves_take(&t->reserves, job);

	if (!l)
		return;
	l->why = *why;
	post(t, l);
}

void lane_thread_forget(struct lane_thread *t, uint64_t job)
{
	reserves_remove(&t->reserves, job);
}

bool lane_thread_report(struct lane_thread *t)
{
	struct lane_command *l = lane_command_new(COMMAND_REPORT, 0, 0);
	struct lane_mail *answer = calloc(1, sizeof *answer);

	if (!l || !answer) {
		free(l);
		free(answer);
		return false;
	}
	l->answer = answer;
	post(t, l);
	return true;
}

struct lane_report *lane_thread_take_report(struct lane_thread *t)
{
	struct lane_report *report = t->report;

	t->report = NULL;
	return report;
}

void lane_thread_stop(struct lane_thread *t)
{
	if (!t)
		return;
	post(t, t->stop);
	uv_thread_join(&t->thread);
	mailbox_destroy(&t->in);
	wakeups_destroy(&t->wakeups);
	uv_loop_close(&t->loop);
	lane_free(t->core);
	reserves_close(&t->reserves);
	free(t->report);
	free(t);
}
