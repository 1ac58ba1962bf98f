/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: accept -> handshake -> the registry admits the worker -> its lane.
 * Events of the lanes come back through the mailbox and go into the registry, whose
 * actions go to the lanes. SIGTERM: no new jobs; the loop ends when the last job is
 * closed, or the drain timeout has passed.
 *
 * Failure modes: no room or no descriptors: the oldest connection in the handshake is
 * closed; if there is none, the new one is refused, for which a spare descriptor is kept.
 * A limit is reached: refused with the name of the limit. Events that unauthenticated
 * peers can cause at will are logged a few times a second, and otherwise counted. */
#include "server/run/server_uv.h"

#include "common/descriptors.h"
#include "common/loop_uv.h"
#include "config/check/check.h"
#include "proto/features.h"
#include "server/run/server_control.h"
#include "server/run/server_descriptors.h"
#include "server/run/server_lifecycle.h"
#include "server/run/server_ports.h"
#include "server/run/server_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	ACCEPTS_PER_WAKE = 64,
	LINES_PER_S = 5,       /* in the log, for each event that unauthenticated peers can cause */
	JOB_LINES_PER_S = 200, /* and for jobs, of which there can be many in normal operation */
	ACCEPT_NICE = 10,      /* added to the nice value of this thread */
};

static void server_log_job(struct server *s, const char *event, const struct registry_job *j)
{
	if (!server_may_log(s, LIMITED_JOBS))
		return;
	rs_log(s->log, RS_LOG_INFO, event, rs_kv_s("job", j->name), rs_kv_u("generation", j->generation),
	       rs_kv_s("run", j->run), rs_kv_u("world_size", j->world_size), rs_kv_u("lanes", j->lanes),
	       rs_kv_u("processes", j->processes), rs_kv_u("memory_bytes", j->memory));
}

/* The record of an ended job: reductionctl jobs reads it. */
static void server_log_closed(struct server *s, const struct registry_action *a)
{
	const struct registry_record *r = &a->record;
	char rank[16] = "";

	if (r->rank)
		snprintf(rank, sizeof rank, "%u", r->rank - 1);
	if (server_may_log(s, LIMITED_JOBS))
		rs_log(s->log, RS_LOG_INFO, "job-closed", rs_kv_s("job", a->job.name),
		       rs_kv_u("generation", a->job.generation), rs_kv_s("run", a->job.run),
		       rs_kv_u("world_size", a->job.world_size), rs_kv_u("joined", a->job.joined),
		       rs_kv_s("ended", status_end_name(r->how)), rs_kv_u("running_ms", r->running_ms),
		       rs_kv_u("operations", r->operations), rs_kv_u("received_bytes", r->bytes_in),
		       rs_kv_u("sent_bytes", r->bytes_out), rs_kv_s("rank", rank), rs_kv_s("reason", r->why),
		       rs_kv_s("nonfinite", r->nonfinite), rs_kv_u("narrow", r->narrow));
}

/* A job with failover goes on without this reducer, unless a rank is the cause: the other
 * reducers have lost it too then, but for faults of the network. */
static void server_log_end(struct server *s, const struct registry_action *a)
{
	bool continues = a->why.code == RS_ECUT && !a->cause.rank;

	if (server_may_log(s, LIMITED_JOBS))
		rs_log(s->log, continues ? RS_LOG_INFO : RS_LOG_WARN, continues ? "job-left" : "job-aborted",
		       rs_kv_s("job", a->job.name), rs_kv_u("generation", a->job.generation),
		       rs_kv_s("reason", a->why.msg));
}

/* A job whose ranks have left before all of them had met. */
static void server_log_incomplete(struct server *s, const struct registry_job *j)
{
	if (server_may_log(s, LIMITED_JOBS))
		rs_log(s->log, RS_LOG_WARN, "job-incomplete", rs_kv_s("job", j->name),
		       rs_kv_u("generation", j->generation), rs_kv_u("joined", j->joined),
		       rs_kv_u("world_size", j->world_size));
}

static void server_log_late(struct server *s, const struct registry_action *a)
{
	if (server_may_log(s, LIMITED_LATE))
		rs_log(s->log, RS_LOG_WARN, "rank-late", rs_kv_s("job", a->job.name),
		       rs_kv_u("generation", a->job.generation), rs_kv_u("rank", a->rank), rs_kv_s("label", a->label),
		       rs_kv_u("late_ranks", a->late), rs_kv_u("operation", a->seq),
		       rs_kv_u("waited_ms", a->waited_ms));
}

static void server_log_nonfinite(struct server *s, const struct registry_action *a)
{
	if (server_may_log(s, LIMITED_NONFINITE))
		rs_log(s->log, RS_LOG_WARN, "nonfinite", rs_kv_s("job", a->job.name),
		       rs_kv_u("generation", a->job.generation), rs_kv_u("rank", a->rank),
		       rs_kv_s("found", a->why.msg));
}

static void server_log_stopped(struct server *s, const struct registry_action *a)
{
	if (server_may_log(s, LIMITED_LATE))
		rs_log(s->log, RS_LOG_WARN, "rank-stopped", rs_kv_s("job", a->job.name),
		       rs_kv_u("generation", a->job.generation), rs_kv_u("rank", a->rank), rs_kv_s("label", a->label),
		       rs_kv_u("silent_ms", a->waited_ms),
		       rs_kv_s("reason", "its machine acknowledges, but its process sends nothing: it is stopped or "
					 "gets no processor"));
}

static void server_on_action(void *ctx, const struct registry_action *a)
{
	struct server *s = ctx;

	switch (a->type) {
	case REGISTRY_OPENED:
		arenas_set_job(s->arenas, a->job.id);
		server_log_job(s, "job-opened", &a->job);
		return;
	case REGISTRY_MOVED:
		arenas_set_job(s->arenas, a->job.id);
		return;
	case REGISTRY_START:
		server_log_job(s, "job-started", &a->job);
		arenas_start(s->arenas, a->job.id, &a->begin);
		return;
	case REGISTRY_CLOSED:
		if (a->job.joined < a->job.world_size)
			server_log_incomplete(s, &a->job);
		server_log_closed(s, a);
		s->drained[a->record.how] += s->draining;
		for (unsigned i = 0; i < s->lanes_n; i++)
			lane_thread_forget(s->lanes[i], a->job.id);
		return;
	case REGISTRY_ABORT:
		server_log_end(s, a);
		break;
	case REGISTRY_LOST:
		if (server_may_log(s, LIMITED_JOBS))
			rs_log(s->log, RS_LOG_WARN, "rank-lost", rs_kv_s("job", a->job.name),
			       rs_kv_u("generation", a->job.generation), rs_kv_u("rank", a->rank),
			       rs_kv_s("label", a->label), rs_kv_s("reason", a->why.msg));
		return;
	case REGISTRY_STOPPED:
		server_log_stopped(s, a);
		return;
	case REGISTRY_LATE:
		server_log_late(s, a);
		return;
	case REGISTRY_NONFINITE:
		server_log_nonfinite(s, a);
		return;
	case REGISTRY_ASK:
		lane_thread_ask(s->lanes[a->thread], a->job.id, a->lane, a->rank, a->question);
		return;
	case REGISTRY_TELL:
		break;
	}
	for (unsigned i = 0; i < s->lanes_n; i++) {
		if (a->type == REGISTRY_ABORT)
			lane_thread_abort(s->lanes[i], a->job.id, &a->why, &a->cause);
		else
			lane_thread_tell(s->lanes[i], a->job.id, a->frame, a->frame_len);
	}
}

/* Starts a job: all ranks have joined, and its arena is touched. */
static void server_on_touched(void *ctx, uint64_t job, const struct lane_begin *begin)
{
	struct server *s = ctx;

	for (unsigned i = 0; i < s->lanes_n; i++)
		lane_thread_start_job(s->lanes[i], job, begin);
}

static void *server_alloc_slots(void *ctx, uint64_t bytes)
{
	struct server *s = ctx;

	return arenas_alloc(s->arenas, bytes);
}

static void server_free_slots(void *ctx, void *memory, uint64_t bytes)
{
	struct server *s = ctx;

	(void)bytes;
	arenas_release(s->arenas, memory);
}

static int server_on_admit(void *ctx, struct tcp_conn *tcp, const struct handshake_result *who,
			   struct control_refused *refused)
{
	struct server *s = ctx;
	struct registry_admit admit;
	struct rs_err e;
	char peer[80];
	int rc;

	listener_peer(tcp->fd, peer, sizeof peer);
	rc = server_admit(s, who, peer, tcp->ssl ? "tcp+tls" : "tcp", &admit, refused);
	if (rc)
		return rc;
	admit.session.weight = who->weight;
	admit.session.direct = !who->hello.relay && listener_is_direct(tcp->fd, who->hello.source);
	rc = lane_thread_attach(s->lanes[admit.thread], tcp, &admit, &who->welcome, &e);
	if (rc)
		return server_unadmit(s, &admit, &e, refused);
	registry_admitted(s->registry, admit.stripe.job);
	return RS_OK;
}

static void server_on_turned_away(void *ctx, int fd, const char *job, const struct rs_err *why)
{
	char peer[80];

	listener_peer(fd, peer, sizeof peer);
	server_log_refused(ctx, peer, "tcp", job, why);
}

/* On a thread of the pool. */
static void server_on_task_ended(void *ctx)
{
	wakeup_send(&((struct server *)ctx)->pool_ended);
}

static void server_on_pool_ended(struct wakeup *w)
{
	rs_pool_finish(&((struct server *)((char *)w - offsetof(struct server, pool_ended)))->pool);
}

static void server_on_mail(struct mailbox *m, struct mail *mail)
{
	struct server *s = m->user;
	struct lane_mail *lm = (struct lane_mail *)mail;
	const struct lane_event *ev = &lm->event;

	registry_set_time(s->registry, uv_now(&s->loop));
	if (ev->type == LANE_FAILED) {
		registry_failed(s->registry, ev->job, &ev->why, &ev->cause);
	} else if (ev->type == LANE_CLOSED) {
		s->sessions--;
		registry_count(s->registry, ev);
		if (lm->failed)
			registry_failed(s->registry, ev->job, &ev->why, NULL);
		if (ev->uplink)
			registry_uplink_closed(s->registry, ev->job);
		else
			registry_session_closed(s->registry, ev->job, ev->rank, ev->lane, ev->clean);
		if (lm->parted)
			tcp_handshakes_return(s->handshakes, &lm->parted->tcp, &lm->parted->rest);
		free(lm->parted);
	} else {
		registry_lane_event(s->registry, ev);
	}
	free(lm);
	if (s->draining && registry_jobs(s->registry) == 0)
		server_stop(s);
}

/* Refuses a connection although no descriptor is left. Without the spare one the
 * listening socket would stay readable, and the loop would spin. */
static void server_refuse_without_descriptors(struct server *s, int listen_fd)
{
	struct control_refused refused = {.code = RS_EREFUSED, .retry = true};
	int fd;

	close(s->spare_fd);
	fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	snprintf(refused.message, sizeof refused.message, "this reducer has no file descriptors left");
	if (fd >= 0)
		tcp_handshakes_refuse_now(s->handshakes, fd, &refused);
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Closes one connection in the handshake over TCP, else one over gRPC. Returns false if
 * there is none. */
static bool server_make_room(struct server *s, const char *why)
{
	return tcp_handshakes_make_room(s->handshakes, why) ||
	       (s->streams && grpc_handshakes_make_room(s->streams, why));
}

/* Accepts the next connection. Returns false if there is none. */
static bool server_accept_one(struct server *s, int listen_fd)
{
	struct control_refused refused = {.code = RS_EREFUSED, .retry = true};
	unsigned greeted = server_handshakes_count(s);
	char why[80];
	int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0) {
		if (errno != EMFILE && errno != ENFILE)
			return false;
		if (server_may_log(s, LIMITED_DESCRIPTORS))
			rs_log(s->log, RS_LOG_ERROR, "out-of-descriptors",
			       rs_kv_s("advice", "raise LimitNOFILE / ulimit -n or lower server.max_connections"));
		if (!tcp_handshakes_make_room(s->handshakes, "this reducer has no file descriptors left"))
			server_refuse_without_descriptors(s, listen_fd);
		return true;
	}
	snprintf(why, sizeof why, "this reducer has %u connections, as many as its server.max_connections allows",
		 s->sessions + greeted);
	if (s->sessions + greeted < s->max_connections ||
	    (s->sessions < s->max_connections && server_make_room(s, why))) {
		tcp_handshakes_add(s->handshakes, fd);
		return true;
	}
	/* a refused connection takes memory until its peer has read the reason, so their
	 * number is limited */
	if (tcp_handshakes_count(s->handshakes) >= REFUSED_MAX)
		tcp_handshakes_make_room(s->handshakes, why);
	snprintf(refused.message, sizeof refused.message, "%s", why);
	tcp_handshakes_refuse(s->handshakes, fd, &refused);
	return true;
}

static void server_on_accept(uv_poll_t *poll, int status, int events)
{
	struct listening *li = poll->data;
	struct server *s = li->poll.loop->data;

	(void)status;
	(void)events;
	for (int i = 0; i < ACCEPTS_PER_WAKE; i++)
		if (!server_accept_one(s, li->fd))
			return;
}

static int server_start_lanes(struct server *s, const struct rs_kernels *kernels, struct rs_err *e)
{
	struct lane_thread_options opt = {
	    .cfg = s->cfg, .kernels = kernels, .peers = {.n = s->cfg->reducers_n}, .log = s->log, .out = &s->in};

	s->ids = calloc(s->cfg->reducers_n, sizeof(*s->ids));
	if (!s->ids)
		return rs_oom(e, 0, "the names of reducers");
	for (unsigned i = 0; i < s->cfg->reducers_n; i++)
		s->ids[i] = s->cfg->reducers[i].id;
	opt.peers.ids = s->ids;
	s->lanes = calloc(s->cfg->server.lanes, sizeof(*s->lanes));
	if (!s->lanes)
		return rs_oom(e, s->cfg->server.lanes * sizeof(*s->lanes), "lanes");
	for (; s->lanes_n < s->cfg->server.lanes; s->lanes_n++) {
		int rc = lane_thread_start(&s->lanes[s->lanes_n], &opt, s->lanes_n, e);

		if (rc)
			return rc;
	}
	return RS_OK;
}

static int server_start_listening(struct server *s, struct rs_err *e)
{
	int fds[LISTENER_MAX];
	int n = listener_open(s->cfg->server.listen, s->cfg->server.insecure || check_authenticates(s->cfg), fds, e);

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		struct listening *l = &s->listening[i];
		int rc = rs_poll_init(&s->loop, &l->poll, fds[i], e);

		if (rc) {
			while (i < n)
				close(fds[i++]);
			return rc;
		}
		l->fd = fds[i];
		l->poll.data = l;
		uv_poll_start(&l->poll, UV_READABLE, server_on_accept);
		s->listening_n++;
	}
	return RS_OK;
}

static void server_log_listening(struct server *s, const struct rs_kernels *kernels)
{
	char name[80];

	for (int i = 0; i < s->listening_n; i++) {
		listener_name(s->listening[i].fd, name, sizeof name);
		rs_log(s->log, RS_LOG_INFO, "listening", rs_kv_s("address", name), rs_kv_u("lanes", s->lanes_n),
		       rs_kv_s("cpu", kernels->name));
	}
}

/* Lowers the priority of this thread. If processors are short, the lanes of running jobs
 * go before handshakes and the memory of new jobs. Linux has a nice value for each
 * thread; the threads of the pool inherit that of this one. */
static void server_lower_priority(void)
{
	int before;

	errno = 0;
	before = getpriority(PRIO_PROCESS, 0);
	if (!errno)
		setpriority(PRIO_PROCESS, 0, before + ACCEPT_NICE);
}

static struct server *server_new(const struct server_options *opt)
{
	struct server *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->cfg = opt->cfg;
	s->log = opt->log;
	s->limits[LIMITED_REFUSED] = (struct rs_log_limit){.event = "connection-refused", .per_s = LINES_PER_S};
	s->limits[LIMITED_DESCRIPTORS] = (struct rs_log_limit){.event = "out-of-descriptors", .per_s = LINES_PER_S};
	s->limits[LIMITED_LATE] = (struct rs_log_limit){.event = "rank-late", .per_s = LINES_PER_S};
	s->limits[LIMITED_NONFINITE] = (struct rs_log_limit){.event = "nonfinite", .per_s = LINES_PER_S};
	s->limits[LIMITED_JOBS] = (struct rs_log_limit){.event = "job", .per_s = JOB_LINES_PER_S};
	s->max_connections = opt->cfg->server.max_connections;
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return s;
}

/* Creates the arenas, the registry and the TCP handshakes. */
static int server_make_parts(struct server *s, struct rs_err *e)
{
	const struct rs_config *cfg = s->cfg;
	struct registry_options ro = {
	    .limits = {cfg->server.max_jobs, cfg->server.max_workers, cfg->server.memory_bytes},
	    .threads = cfg->server.lanes,
	    .features = FEATURES_ALL,
	    .reducers_digest = cfg->groups_n ? rs_config_reducers_digest(cfg) : 0,
	    .connection_bytes = LANE_CONNECTION_BYTES + TCP_HANDSHAKE_BYTES +
				(s->admission.certificates.ctx ? (unsigned)TCP_CONN_TLS_BYTES : 0),
	    .alloc = server_alloc_slots,
	    .free = server_free_slots,
	    .action = server_on_action,
	    .ctx = s,
	};
	struct tcp_handshakes_options go = {
	    .loop = &s->loop,
	    .timeout_ms = cfg->timeouts.handshake_ms,
	    .tls = s->admission.certificates.ctx,
	    .policy = admission_policy(&s->admission),
	    .admit = server_on_admit,
	    .turned_away = server_on_turned_away,
	    .ctx = s,
	};
	struct arenas_options ao = {.pool = &s->pool, .touched = server_on_touched, .ctx = s};
	int rc;

	s->arenas = arenas_new(&ao);
	if (!s->arenas)
		return rs_oom(e, 0, "the server");
	rc = registry_new(&s->registry, &ro, e);
	if (rc)
		goto free_arenas;
	rc = tcp_handshakes_new(&s->handshakes, &go, e);
	if (rc)
		goto free_registry;
	return RS_OK;

free_registry:
	registry_free(s->registry);
free_arenas:
	arenas_free(s->arenas);
	return rc;
}

/* Starts the lanes, the listeners, gRPC and the pool. On an error the caller stops what
 * has started. */
static int server_start_threads(struct server *s, struct rs_err *e)
{
	int rc = server_start_lanes(s, s->kernels, e);

	if (!rc)
		rc = server_start_listening(s, e);
	if (!rc)
		rc = server_ports_open(s, e);
	server_lower_priority();
	return rc ? rc : rs_pool_start(&s->pool, server_on_task_ended, s, e);
}

int server_init(struct server **ret, const struct server_options *opt, struct rs_err *e)
{
	struct server *s = server_new(opt);
	int rc;

	if (!s)
		return rs_oom(e, 0, "the server");
	rc = rs_kernels_select(opt->cfg->server.cpu, &s->kernels, e);
	if (!rc)
		rc = admission_init(&s->admission, opt->cfg, opt->log, e);
	if (!rc)
		rc = rs_loop_init(&s->loop, RS_DAEMON_DESCRIPTORS, e);
	if (rc)
		goto free_server;
	s->loop.data = s;
	rc = wakeups_init(&s->wakeups, &s->loop, e);
	if (rc)
		goto close_loop;
	wakeup_init(&s->pool_ended, &s->wakeups, server_on_pool_ended);
	rc = mailbox_init(&s->in, &s->wakeups, server_on_mail, s, e);
	if (rc)
		goto close_wakeups;
	rc = server_make_parts(s, e);
	if (rc)
		goto close_mailbox;
	server_control_init(s, opt);
	rc = server_start_threads(s, e);
	if (rc) {
		server_stop(s);
		uv_run(&s->loop, UV_RUN_DEFAULT);
		server_close(s);
		return rc;
	}
	server_log_listening(s, s->kernels);
	certificates_log(&s->admission.certificates, s->log, "tls");
	server_check_descriptors(s);
	server_bound_descriptors(s);
	*ret = s;
	return RS_OK;

close_mailbox:
	mailbox_close(&s->in);
	mailbox_destroy(&s->in);
close_wakeups:
	wakeups_close(&s->wakeups);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	wakeups_destroy(&s->wakeups);
close_loop:
	uv_loop_close(&s->loop);
free_server:
	admission_close(&s->admission);
	close(s->spare_fd);
	free(s);
	return rc;
}

void server_run(struct server *s)
{
	host_ready(&s->host);
	uv_run(&s->loop, UV_RUN_DEFAULT);
}

void server_close(struct server *s)
{
	for (int i = 0; i < s->listening_n; i++)
		close(s->listening[i].fd);
	mailbox_destroy(&s->in);
	wakeups_destroy(&s->wakeups);
	tcp_handshakes_free(s->handshakes);
	server_ports_free(s);
	registry_free(s->registry);
	arenas_free(s->arenas);
	admission_close(&s->admission);
	uv_loop_close(&s->loop);
	free(s->lanes);
	free(s->ids);
	close(s->spare_fd);
	free(s);
}
