/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon tells the service manager that started it: sd_notify(3), without a
 * library.
 *
 * systemd gives a service of Type=notify a datagram socket in NOTIFY_SOCKET, and with
 * WatchdogSec= the time between signs of life in WATCHDOG_USEC. Without them all
 * functions do nothing.
 *
 * The happy path: rs_notify_open -> rs_notify_ready -> each second rs_notify_status, and
 * rs_notify_alive if rs_notify_due and everything that works has answered ->
 * rs_notify_stopping -> rs_notify_close. One thread owns it. */
#ifndef RS_COMMON_NOTIFY_H
#define RS_COMMON_NOTIFY_H

#include "common/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { RS_NOTIFY_TICK_MS = 1000 }; /* how often status and signs of life are due to be looked at */

/* The connection to the service manager. Invariant: fd is -1 if there is none. */
struct rs_notify {
	int fd;
	struct sockaddr_un to;
	socklen_t to_len;
	uint64_t alive_every_ms; /* a quarter of WATCHDOG_USEC; 0: there is no watchdog */
	uint64_t alive_ms;       /* when the last sign of life was sent */
	char status[128];        /* the last one */
	char refused[512];       /* why the last reload was refused; "": it was not */
};

/* Takes the variables from the environment, which nothing else uses then. */
void rs_notify_open(struct rs_notify *n);
void rs_notify_close(struct rs_notify *n);
/* Returns whether there is a service manager. */
static inline bool rs_notify_on(const struct rs_notify *n)
{
	return n && n->fd >= 0;
}

/* The daemon serves. */
void rs_notify_ready(struct rs_notify *n);
/* It reads its configuration again; then it does, and `refused` (NULL: not) is why it has
 * kept the old one. The reason stays in the status until a reload succeeds. */
void rs_notify_reloading(struct rs_notify *n);
void rs_notify_reloaded(struct rs_notify *n, const struct rs_err *refused);
/* It drains, and ends within left_ms. Call it again each second: the service manager
 * waits that long, whatever TimeoutStopSec= says. */
void rs_notify_stopping(struct rs_notify *n, uint64_t left_ms);
/* Sends a status for people ("serving 3 jobs, 24 ranks") if it is another one than
 * before. */
void rs_notify_status(struct rs_notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns whether a sign of life should be sent. */
bool rs_notify_due(const struct rs_notify *n, uint64_t now_ms);
/* Sends a sign of life. */
void rs_notify_alive(struct rs_notify *n, uint64_t now_ms);

#endif
