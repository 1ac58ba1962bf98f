/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the agent's messages. The thread that holds read_lock is the reader. The happy
 * path of a small operation: the thread that waits for it hides the socket from the
 * library's own thread, reads DONE itself, and finds its operation done. The library's
 * thread reads while no other thread waits, and whenever it has slept so long that a PING
 * may be waiting for its PONG. Failure modes: another thread is the reader (a thread that
 * waits sleeps until its request is done); the agent ends the job, is lost, or is silent
 * for too long: the reader then fails all pending operations, and nothing is read any
 * more. */
#include "agent/lib/client/client.h"
#include "common/assert.h"
#include "common/peer_process.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BATCH = 64 }; /* messages before read_lock is released */

static uint64_t reader_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Stores the reply for client_ask. Returns false if no thread waits for one. */
static bool reader_on_reply(struct client *c, const union local_message *m, int fd)
{
	bool expected;

	pthread_mutex_lock(&c->lock);
	expected = !c->replied && c->reply_fd < 0;
	if (expected) {
		c->reply = *m;
		c->reply_fd = fd;
		c->replied = true;
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
	return expected;
}

static int reader_on_message(struct client *c, const union local_message *m, int fd, struct rs_err *e)
{
	switch (m->head.type) {
	case LOCAL_DONE:
		return client_op_done(c, &m->done, e);
	case LOCAL_LANDED: /* client_read_counters does what it is for */
	case LOCAL_PING:   /* it is answered already and shows that the agent is alive */
		return RS_OK;
	case LOCAL_ABORT:
		return client_failure(e, m->failure.code, m->failure.message);
	case LOCAL_ALLOCED:
	case LOCAL_COUNTERS:
		if (reader_on_reply(c, m, fd))
			return RS_OK;
		break;
	default:
		break;
	}
	if (fd >= 0)
		close(fd);
	return rs_fail(e, RS_EPROTO, "the agent at %s sent %s unexpectedly", c->path, local_type_name(m->head.type));
}

/* detach: the agent may still use the memory of pending operations. */
static void reader_end(struct client *c, const struct rs_err *why, bool detach)
{
	c->ended = true;
	client_fail_pending(c, why, detach);
}

void client_reader_leave(struct client *c)
{
	atomic_store(&c->leave_by_ns, reader_now_ns() + CLIENT_LEAVE_MS * UINT64_C(1000000));
	shutdown(c->fd, SHUT_WR); /* ends other threads' sends; messages that were sent still arrive */
	engine_poll_interrupt(&c->poll);
}

/* Returns the shorter of a timeout in milliseconds (-1: no limit) and the time until this
 * process stops waiting for the agent that it leaves. */
static int reader_sleep_ms(const struct client *c, int timeout_ms)
{
	uint64_t by = atomic_load(&c->leave_by_ns), now = by ? reader_now_ns() : 0;
	int left_ms = by > now ? (int)((by - now + 999999) / 1000000) : 0;

	return by && (timeout_ms < 0 || left_ms < timeout_ms) ? left_ms : timeout_ms;
}

/* Ends the reading if the agent has not closed the connection in time. With read_lock
 * held. */
static void reader_stop_leaving(struct client *c)
{
	uint64_t by = atomic_load(&c->leave_by_ns);
	struct rs_err e;

	if (!by || c->ended || reader_now_ns() < by)
		return;
	rs_fail(&e, RS_EPEER, "the agent at %s does not answer", c->path);
	reader_end(c, &e, true);
}

/* Reads one message, or finds the connection ended. Returns false if there is none now.
 * With read_lock held. */
static bool reader_read_one(struct client *c)
{
	union local_message m;
	struct rs_err e;
	int fd, rc;

	rc = client_take(c->fd, c->path, &m, &fd, &e);
	if (rc == CLIENT_NOTHING)
		return false;
	c->silent_intervals = 0;
	if (!rc)
		rc = reader_on_message(c, &m, fd, &e);
	if (rc)
		reader_end(c, &e, rc == RS_EPROTO);
	else
		client_read_counters(c);
	return true;
}

/* Counts one more interval of silence. If this process was stopped itself, that counts as
 * one interval at most. A process that exists without sending anything is stopped, or
 * gets no processor: it is late, and lost only after stopped_ms. */
static void reader_count_silence(struct client *c)
{
	uint64_t silent_ms = (uint64_t)++c->silent_intervals * c->ping_interval_ms;
	struct rs_err e;

	if (c->silent_intervals < LOCAL_PINGS_PER_DETECT || (silent_ms < c->stopped_ms && rs_peer_process_runs(c->fd)))
		return;
	shutdown(c->fd, SHUT_RDWR); /* ends other threads' sends, which wait for an agent that does not read */
	rs_fail(&e, RS_EPEER, "the agent at %s was lost: nothing was heard from it for %.1f s", c->path,
		(double)silent_ms / 1000);
	reader_end(c, &e, true);
}

/* Reads pending messages on the library's thread, which has slept for slept_ns, even if
 * another thread waits. Returns whether to continue. */
static bool reader_read_pending(struct client *c, uint64_t slept_ns)
{
	struct epoll_event ev[ENGINE_POLL_EVENTS];
	bool some = false, ended;

	pthread_mutex_lock(&c->read_lock);
	if (!c->waiting) /* consumes an interrupt whose thread has stopped waiting */
		engine_poll_sockets(&c->poll, ev, 0);
	for (unsigned i = 0; i < READ_BATCH && !c->ended && reader_read_one(c); i++)
		some = true;
	if (!some && !c->ended && slept_ns / 1000000 >= c->ping_interval_ms)
		reader_count_silence(c);
	reader_stop_leaving(c);
	ended = c->ended;
	if (c->waiting && (some || ended))
		engine_poll_interrupt(&c->poll);
	pthread_mutex_unlock(&c->read_lock);
	return !ended;
}

static void *reader_main(void *arg)
{
	struct client *c = arg;
	uint64_t from;

	pthread_setname_np(pthread_self(), "reduction");
	do {
		from = reader_now_ns();
		engine_poll_sleep(&c->poll, reader_sleep_ms(c, (int)c->ping_interval_ms));
	} while (reader_read_pending(c, reader_now_ns() - from));
	return NULL;
}

/* Releases read_lock until something is received, or a timeout. */
static void reader_sleep(struct client *c, int timeout_ms)
{
	struct epoll_event ev[ENGINE_POLL_EVENTS];

	pthread_mutex_unlock(&c->read_lock);
	engine_poll_sockets(&c->poll, ev, timeout_ms);
	pthread_mutex_lock(&c->read_lock);
}

/* Reads until done(of) or `until`. With read_lock held. */
static void reader_read_until(struct client *c, bool (*done)(const void *of), const void *of, bool soon,
			      const struct timespec *until)
{
	bool look = soon && rs_spin_begin(&c->spin, reader_now_ns());
	int timeout_ms;

	rs_assert(!c->waiting);
	c->waiting = true;
	engine_poll_hide(&c->poll, true);
	while (!done(of) && !c->ended && (timeout_ms = engine_poll_left_ms(until)) != 0) {
		if (reader_read_one(c))
			continue;
		if (look)
			look = rs_spin_more(&c->spin, reader_now_ns());
		else
			reader_sleep(c, reader_sleep_ms(c, timeout_ms));
		reader_stop_leaving(c);
	}
	if (look)
		rs_spin_found(&c->spin);
	engine_poll_hide(&c->poll, false);
	c->waiting = false;
}

bool client_wait(struct backend *b, bool (*done)(const void *of), const void *of, bool soon,
		 const struct timespec *until)
{
	struct client *c = (struct client *)b;
	int cancel;

	/* the program may cancel its threads, but not while they hold read_lock */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	if (pthread_mutex_trylock(&c->read_lock) == 0) {
		if (!c->waiting && !c->ended)
			reader_read_until(c, done, of, soon, until);
		pthread_mutex_unlock(&c->read_lock);
	}
	pthread_setcancelstate(cancel, NULL);
	return done(of);
}

static int reader_start_thread(struct client *c, struct rs_err *e)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all); /* signals belong to the program's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&c->thread, NULL, reader_main, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc ? rs_fail_sys(e, RS_ENOMEM, rc, "cannot start a thread") : RS_OK;
}

int client_reader_start(struct client *c, const struct rs_config *cfg, struct rs_err *e)
{
	int rc = engine_poll_init(&c->poll, -1, e);

	c->ping_interval_ms = cfg->timeouts.detect_ms / LOCAL_PINGS_PER_DETECT;
	c->stopped_ms = cfg->timeouts.stopped_ms;
	pthread_mutex_init(&c->read_lock, NULL);
	if (!rc && engine_poll_add(&c->poll, c->fd, EPOLLIN, 0))
		rc = rs_fail_sys(e, RS_EIO, errno, "cannot wait for the agent at %s", c->path);
	return rc ? rc : reader_start_thread(c, e);
}

void client_reader_close(struct client *c)
{
	engine_poll_close(&c->poll);
	pthread_mutex_destroy(&c->read_lock);
}
