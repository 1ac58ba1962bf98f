/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/poll.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Keys in `all`. */
enum { KEY_LOOP, KEY_SOCKETS };

static int engine_poll_ctl_add(int epoll, int fd, uint32_t events, uint64_t key)
{
	struct epoll_event ev = {.events = events, .data.u64 = key};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev);
}

int engine_poll_init(struct engine_poll *p, int loop_fd, struct rs_err *e)
{
	p->hidden = false;
	p->all = epoll_create1(EPOLL_CLOEXEC);
	p->sockets = epoll_create1(EPOLL_CLOEXEC);
	p->interrupt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->all >= 0 && p->sockets >= 0 && p->interrupt >= 0 &&
	    engine_poll_ctl_add(p->sockets, p->interrupt, EPOLLIN, UINT64_MAX) == 0 &&
	    (loop_fd < 0 || engine_poll_ctl_add(p->all, loop_fd, EPOLLIN, KEY_LOOP) == 0) &&
	    engine_poll_ctl_add(p->all, p->sockets, EPOLLIN, KEY_SOCKETS) == 0)
		return RS_OK;
	rs_fail_sys(e, RS_EIO, errno, "cannot set up polling of sockets");
	engine_poll_close(p);
	return RS_EIO;
}

void engine_poll_close(struct engine_poll *p)
{
	int *const fds[] = {&p->all, &p->sockets, &p->interrupt};

	for (unsigned i = 0; i < sizeof fds / sizeof fds[0]; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

int engine_poll_add(struct engine_poll *p, int fd, uint32_t events, uint64_t key)
{
	return engine_poll_ctl_add(p->sockets, fd, events, key);
}

void engine_poll_change(struct engine_poll *p, int fd, uint32_t events, uint64_t key)
{
	struct epoll_event ev = {.events = events, .data.u64 = key};

	epoll_ctl(p->sockets, EPOLL_CTL_MOD, fd, &ev);
}

void engine_poll_remove(struct engine_poll *p, int fd)
{
	/* closing it is not enough if a fork has left another descriptor of the same
	 * socket */
	epoll_ctl(p->sockets, EPOLL_CTL_DEL, fd, NULL);
}

void engine_poll_hide(struct engine_poll *p, bool hidden)
{
	struct epoll_event ev = {.events = hidden ? 0 : EPOLLIN, .data.u64 = KEY_SOCKETS};

	if (hidden == p->hidden)
		return;
	p->hidden = hidden;
	epoll_ctl(p->all, EPOLL_CTL_MOD, p->sockets, &ev);
}

int engine_poll_sleep(struct engine_poll *p, int timeout_ms)
{
	struct epoll_event ev[2];
	int n = epoll_wait(p->all, ev, 2, timeout_ms), ready = 0;

	for (int i = 0; i < n; i++)
		ready |= ev[i].data.u64 == KEY_LOOP ? ENGINE_POLL_LOOP : ENGINE_POLL_SOCKETS;
	return ready;
}

int engine_poll_sockets(struct engine_poll *p, struct epoll_event ret[ENGINE_POLL_EVENTS], int timeout_ms)
{
	int n = epoll_wait(p->sockets, ret, ENGINE_POLL_EVENTS, timeout_ms), kept = 0;
	bool interrupted = false;
	uint64_t count;

	for (int i = 0; i < n; i++) {
		if (ret[i].data.u64 != UINT64_MAX) {
			ret[kept++] = ret[i];
			continue;
		}
		interrupted = true;
		(void)!read(p->interrupt, &count, sizeof count); /* non-blocking: another thread may have read it */
	}
	return kept || !interrupted ? kept : -1;
}

void engine_poll_interrupt(struct engine_poll *p)
{
	const uint64_t one = 1;

	(void)!write(p->interrupt, &one, sizeof one);
}

int engine_poll_left_ms(const struct timespec *until)
{
	struct timespec now;
	int64_t ms;

	if (!until)
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &now);
	ms = (int64_t)(until->tv_sec - now.tv_sec) * 1000 + (until->tv_nsec - now.tv_nsec + 999999) / 1000000;
	return ms < 0 ? 0 : ms > INT32_MAX ? INT32_MAX : (int)ms;
}
