/* SPDX-License-Identifier: Apache-2.0 */
/* Which of an engine's sockets are ready, or that of a client of the agent. Two may sleep for that, at the same time:
 * the library's own thread, for the loop's events too (engine_poll_sleep), and a caller that waits for its operation
 * (engine_poll_sockets). While the caller does, the sockets are hidden from the thread: each wake-up of it would cost
 * as much as the operation itself.
 *
 * One epoll of sockets stands in another one beside the loop, so that hiding all of them is one call. Both sleep
 * without a lock; what has been reported may be over by the time it is looked at, so a socket has a new key each time.
 */
#ifndef RS_AGENT_ENGINE_POLL_H
#define RS_AGENT_ENGINE_POLL_H

#include "common/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

enum {
	ENGINE_POLL_EVENTS = 64, /* that one call reports; the others come next time */
	ENGINE_POLL_LOOP = 1,    /* the loop has something to do */
	ENGINE_POLL_SOCKETS = 2,
};

/* Invariant: hidden says what `all` knows of `sockets`. */
struct engine_poll {
	int all;       /* epoll: sockets, and the loop's descriptor */
	int sockets;   /* epoll: what engine_poll_add was called for, and kick */
	int interrupt; /* eventfd, with the key UINT64_MAX */
	bool hidden;
};

/* loop_fd becomes readable when the loop has something to do; -1: there is none. Errors: RS_EIO. */
int engine_poll_init(struct engine_poll *p, int loop_fd, struct rs_err *e);
void engine_poll_close(struct engine_poll *p);

/* `events` are EPOLLIN and EPOLLOUT; the key, below UINT64_MAX, is what tells of them. -1 with errno on an error. */
int engine_poll_add(struct engine_poll *p, int fd, uint32_t events, uint64_t key);
void engine_poll_change(struct engine_poll *p, int fd, uint32_t events, uint64_t key);
/* Before fd is closed. */
void engine_poll_remove(struct engine_poll *p, int fd);

/* Hides the sockets from engine_poll_sleep, or shows them again. */
void engine_poll_hide(struct engine_poll *p, bool hidden);

/* Sleeps, at most timeout_ms (-1: for ever). Returns which of ENGINE_POLL_LOOP and _SOCKETS have something. */
int engine_poll_sleep(struct engine_poll *p, int timeout_ms);

/* Sleeps until sockets are ready, or engine_poll_interrupt is called. Returns how many of `ret` are set, 0 also after a
 * signal; -1: none, but there was a kick, which is used up. */
int engine_poll_sockets(struct engine_poll *p, struct epoll_event ret[ENGINE_POLL_EVENTS], int timeout_ms);

/* Ends an engine_poll_sockets, that which is under way or the next one. Any thread. */
void engine_poll_interrupt(struct engine_poll *p);

/* The timeout_ms for a sleep until then (CLOCK_MONOTONIC, NULL: for ever). */
int engine_poll_left_ms(const struct timespec *until);

#endif
