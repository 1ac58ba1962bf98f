/* SPDX-License-Identifier: Apache-2.0 */
/* A run: connect all ranks -> all have START -> warm-up -> measurement -> every rank of a
 * job goes on to the same last operation -> all have left. Failure modes: a rank's error,
 * or no progress until the time limit: the run ends with a sentence. */
#include "bench/load.h"

#include "common/address.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256 };
static const double TICK_S = 1;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double own_cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int mark(struct load *l, struct load_mark *m, struct rs_err *e)
{
	m->at = now_s();
	m->load_s = own_cpu_s();
	m->counts = l->counts;
	return l->opt.server_pid ? load_proc_read(&m->server, l->opt.server_pid, e) : RS_OK;
}

/* Opens a connected socket, watched for input under the number `id`. */
static int connect_one(struct load *l, const struct addrinfo *ai, uint64_t id, int *ret, struct rs_err *e)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = id};
	int one = 1, fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "no socket for connection %" PRIu64, id);
	if (connect(fd, ai->ai_addr, ai->ai_addrlen)) {
		rs_fail_sys(e, RS_EIO, errno, "cannot connect to %s", l->opt.address);
		goto close_fd;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (fcntl(fd, F_SETFL, O_NONBLOCK) || epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &ev)) {
		rs_fail_sys(e, RS_EIO, errno, "connection %" PRIu64 " cannot be watched", id);
		goto close_fd;
	}
	*ret = fd;
	return RS_OK;

close_fd:
	close(fd);
	return RS_EIO;
}

static int resolve(const struct load *l, struct addrinfo **ret, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct rs_host_port at;
	int rc = rs_host_port_split(&at, l->opt.address, false, e);

	if (rc)
		return rs_wrap(e, "--address");
	rc = getaddrinfo(at.host, at.port, &hints, ret);
	return rc ? rs_fail(e, RS_EIO, "%s cannot be resolved: %s", l->opt.address, gai_strerror(rc)) : RS_OK;
}

static int connect_all(struct load *l, const struct addrinfo *ai, struct rs_err *e)
{
	int rc = RS_OK;

	for (unsigned i = 0; !rc && i < l->opt.silent; i++)
		rc = connect_one(l, ai, l->ranks_n + i, &l->silent[i], e);
	for (unsigned i = 0; !rc && i < l->ranks_n; i++) {
		rc = connect_one(l, ai, i, &l->ranks[i].fd, e);
		if (!rc)
			rc = load_rank_hello(&l->ranks[i], e);
	}
	return rc;
}

static int make_parts(struct load *l, struct rs_err *e)
{
	const struct load_options *o = &l->opt;
	uint32_t chunk_elems = o->chunk / (uint32_t)rs_dtype_size(o->dtype);

	l->epoll = -1;
	l->ranks_n = o->jobs * o->ranks;
	l->jobs = calloc(o->jobs, sizeof *l->jobs);
	l->ranks = calloc(l->ranks_n, sizeof *l->ranks);
	l->silent = calloc(o->silent + 1, sizeof *l->silent);
	l->scratch = malloc(LOAD_READ);
	if (!l->jobs || !l->ranks || !l->silent || !l->scratch)
		return rs_oom(e, 0, "%u ranks", l->ranks_n);
	memset(l->silent, -1, o->silent * sizeof *l->silent);
	for (unsigned i = 0; i < o->jobs; i++) {
		struct load_job *j = &l->jobs[i];

		j->count = o->bytes / rs_dtype_size(o->dtype);
		j->chunk_elems = chunk_elems;
		j->chunks = frame_chunks(j->count, chunk_elems);
		j->end = o->seconds > 0 ? UINT64_MAX : o->ops * j->chunks;
		snprintf(j->name, sizeof j->name, "%.40s-%u", o->name, i);
	}
	/* consecutive connections belong to different jobs, as in practice */
	for (unsigned i = 0; i < l->ranks_n; i++)
		l->ranks[i] = (struct load_rank){.fd = -1, .all = l, .job = &l->jobs[i % o->jobs], .rank = i / o->jobs};
	if (getrandom(&l->incarnation, sizeof l->incarnation, 0) < 0)
		return rs_fail_sys(e, RS_EIO, errno, "no random number");
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0)
		return rs_fail_sys(e, RS_EIO, errno, "no epoll");
	return load_data_init(&l->data, o->dtype, o->ranks, chunk_elems, e);
}

static void watch(struct load *l, struct load_rank *r, bool waited)
{
	struct epoll_event ev = {.events = EPOLLIN | (r->write_wait ? EPOLLOUT : 0u),
				 .data.u64 = (uint64_t)(r - l->ranks)};

	if (r->state == LOAD_GONE) {
		close(r->fd);
		r->fd = -1;
	} else if (waited != r->write_wait) {
		epoll_ctl(l->epoll, EPOLL_CTL_MOD, r->fd, &ev);
	}
}

static int on_event(struct load *l, const struct addrinfo *ai, const struct epoll_event *ev, struct rs_err *e)
{
	struct load_rank *r = &l->ranks[ev->data.u64];
	bool waited;
	int rc = RS_OK;

	if (ev->data.u64 >= l->ranks_n) {
		/* the reducer has closed a connection without HELLO: another one replaces
		 * it */
		int *fd = &l->silent[ev->data.u64 - l->ranks_n];

		close(*fd);
		l->silent_closed++;
		return connect_one(l, ai, ev->data.u64, fd, e);
	}
	waited = r->write_wait;
	if (ev->events & EPOLLOUT)
		rc = load_rank_write(r, e);
	if (!rc && ev->events & ~(uint32_t)EPOLLOUT)
		rc = load_rank_read(r, e);
	if (!rc)
		watch(l, r, waited);
	return rc;
}

/* Chooses the last operation of a job, the same for every rank: the first one that no
 * rank has begun to send. */
static int decide_end(struct load *l, struct rs_err *e)
{
	int rc = RS_OK;

	for (unsigned i = 0; i < l->opt.jobs; i++)
		l->jobs[i].end = 0;
	for (unsigned i = 0; i < l->ranks_n; i++) {
		struct load_job *j = l->ranks[i].job;
		uint64_t begun = l->ranks[i].next + (l->ranks[i].sent > 0);
		uint64_t end = (begun + j->chunks - 1) / j->chunks * j->chunks;

		j->end = end > j->end ? end : j->end;
	}
	for (unsigned i = 0; !rc && i < l->ranks_n; i++) {
		bool waited = l->ranks[i].write_wait;

		rc = load_rank_write(&l->ranks[i], e);
		if (!rc)
			watch(l, &l->ranks[i], waited);
	}
	return rc;
}

/* Takes the marks when their time has come. *ret_next: when to call again at the
 * latest. */
static int on_time(struct load *l, double now, double *ret_next, struct rs_err *e)
{
	int rc = RS_OK;

	*ret_next = now + TICK_S;
	if (l->counts.joined < l->ranks_n)
		return RS_OK;
	if (!l->started.at)
		rc = mark(l, &l->started, e);
	if (l->opt.seconds <= 0) {
		l->from = l->started;
		return rc;
	}
	if (!rc && !l->from.at && now >= l->started.at + l->opt.warmup)
		rc = mark(l, &l->from, e);
	if (!rc && l->from.at && !l->to.at && now >= l->from.at + l->opt.seconds) {
		rc = mark(l, &l->to, e);
		if (!rc)
			rc = decide_end(l, e);
	}
	if (!l->from.at)
		*ret_next = l->started.at + l->opt.warmup;
	else if (!l->to.at)
		*ret_next = l->from.at + l->opt.seconds;
	return rc;
}

static int tick(struct load *l, struct rs_err *e)
{
	int rc = RS_OK;

	for (unsigned i = 0; !rc && i < l->ranks_n; i++)
		rc = load_rank_tick(&l->ranks[i], e);
	return rc;
}

/* Fails because nothing has moved; the error says what is missing. */
static int stuck(const struct load *l, struct rs_err *e)
{
	for (unsigned i = 0; i < l->ranks_n; i++) {
		const struct load_rank *r = &l->ranks[i];

		if (r->state == LOAD_JOINING || r->state == LOAD_LEAVING || r->done < r->next)
			return rs_fail(e, RS_ETIMEOUT,
				       "nothing has moved for %.0f s; rank %u of job %s waits for %s and has %" PRIu64
				       " of %" PRIu64 " results",
				       l->opt.timeout, r->rank, r->job->name,
				       r->state == LOAD_JOINING   ? "START"
				       : r->state == LOAD_LEAVING ? "the end of its connection"
								  : "a result",
				       r->done, r->next);
	}
	return rs_fail(e, RS_ETIMEOUT, "nothing has moved for %.0f s", l->opt.timeout);
}

static int loop(struct load *l, const struct addrinfo *ai, struct rs_err *e)
{
	struct epoll_event events[EVENTS];
	double now = now_s(), next, ticked = now, moved = now;
	struct load_counts last = l->counts;
	int rc = RS_OK;

	while (!rc && l->counts.gone < l->ranks_n) {
		int n;

		rc = on_time(l, now, &next, e);
		if (rc)
			break;
		next = next > ticked + TICK_S ? ticked + TICK_S : next;
		n = epoll_wait(l->epoll, events, EVENTS, next > now ? (int)((next - now) * 1000) + 1 : 0);
		if (n < 0 && errno != EINTR)
			return rs_fail_sys(e, RS_EIO, errno, "epoll_wait");
		for (int i = 0; !rc && i < n; i++)
			rc = on_event(l, ai, &events[i], e);
		now = now_s();
		if (!rc && now >= ticked + TICK_S) {
			rc = tick(l, e);
			ticked = now;
		}
		if (memcmp(&last, &l->counts, sizeof last) != 0)
			moved = now;
		last = l->counts;
		if (!rc && now > moved + l->opt.timeout)
			rc = stuck(l, e);
	}
	return rc;
}

int load_run(struct load *l, struct rs_err *e)
{
	struct addrinfo *ai = NULL;
	int rc = resolve(l, &ai, e);

	if (!rc)
		rc = make_parts(l, e);
	if (!rc)
		rc = mark(l, &l->begin, e);
	if (!rc)
		rc = connect_all(l, ai, e);
	if (!rc)
		rc = loop(l, ai, e);
	if (!rc && !l->to.at)
		rc = mark(l, &l->to, e);
	if (ai)
		freeaddrinfo(ai);
	return rc;
}

void load_close(struct load *l)
{
	for (unsigned i = 0; l->ranks && i < l->ranks_n; i++) {
		free(l->ranks[i].control);
		if (l->ranks[i].fd >= 0)
			close(l->ranks[i].fd);
	}
	for (unsigned i = 0; l->silent && i < l->opt.silent; i++)
		if (l->silent[i] >= 0)
			close(l->silent[i]);
	if (l->epoll >= 0)
		close(l->epoll);
	load_data_close(&l->data);
	free(l->jobs);
	free(l->ranks);
	free(l->silent);
	free(l->scratch);
}
