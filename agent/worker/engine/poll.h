/* SPDX-License-Identifier: Apache-2.0 */
/* Polling the sockets of an engine, or that of a client of the agent. Two threads may
 * sleep at the same time: the library's own thread, also for the loop's events
 * (engine_poll_sleep), and a caller that waits for its operation (engine_poll_sockets).
 * While the caller sleeps, the sockets are hidden from the library's thread: waking it
 * would cost as much as the operation itself.
 *
 * An epoll of the sockets is an entry of another epoll, beside the loop, so that hiding
 * all sockets is one call. Both threads sleep without a lock. A report may be outdated
 * when it is handled, so each new socket gets a new key. */
#ifndef RS_AGENT_WORKER_ENGINE_POLL_H
#define RS_AGENT_WORKER_ENGINE_POLL_H

#include "common/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

enum {
	ENGINE_POLL_EVENTS = 64, /* events that one call reports; the others follow in the next call */
	ENGINE_POLL_LOOP = 1,    /* the loop has something to do */
	ENGINE_POLL_SOCKETS = 2,
};

/* The two epolls. Invariant: hidden says whether `all` reports `sockets`. */
struct engine_poll {
	int all;       /* epoll: `sockets` and the loop's descriptor */
	int sockets;   /* epoll: the sockets of engine_poll_add, and `interrupt` */
	int interrupt; /* eventfd, with the key UINT64_MAX */
	bool hidden;
};

/* Creates the epolls. loop_fd is readable when the loop has something to do; -1: there is
 * none. Errors: RS_EIO. */
int engine_poll_init(struct engine_poll *p, int loop_fd, struct rs_err *e);
void engine_poll_close(struct engine_poll *p);

/* Adds a socket for EPOLLIN or EPOLLOUT. The key, below UINT64_MAX, identifies it in
 * reports. Returns -1 with errno on an error. */
int engine_poll_add(struct engine_poll *p, int fd, uint32_t events, uint64_t key);
void engine_poll_change(struct engine_poll *p, int fd, uint32_t events, uint64_t key);
/* Removes a socket; before it is closed. */
void engine_poll_remove(struct engine_poll *p, int fd);

/* Hides the sockets from engine_poll_sleep, or shows them again. */
void engine_poll_hide(struct engine_poll *p, bool hidden);

/* Sleeps for at most timeout_ms milliseconds (-1: no limit). Returns which of
 * ENGINE_POLL_LOOP and ENGINE_POLL_SOCKETS are ready. */
int engine_poll_sleep(struct engine_poll *p, int timeout_ms);

/* Sleeps until sockets are ready or engine_poll_interrupt is called. Returns how many
 * entries of `ret` are set, 0 also after a signal; -1: none, but there was an interrupt,
 * which is consumed. */
int engine_poll_sockets(struct engine_poll *p, struct epoll_event ret[ENGINE_POLL_EVENTS], int timeout_ms);

/* Ends the current or the next engine_poll_sockets. Any thread. */
void engine_poll_interrupt(struct engine_poll *p);

/* Returns the timeout in milliseconds for a sleep until then (CLOCK_MONOTONIC, NULL: no
 * limit). */
int engine_poll_left_ms(const struct timespec *until);

#endif
