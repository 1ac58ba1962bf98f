/* SPDX-License-Identifier: Apache-2.0 */
#include "common/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STOP_SPARE_MS = 10000 }; /* after the drain: closing connections, freeing memory */

/* Returns the length of the address; 0: the path is none. '@' stands for the zero byte of
 * an abstract socket. */
static socklen_t address_of(struct sockaddr_un *to, const char *path)
{
	size_t len = strlen(path);

	*to = (struct sockaddr_un){.sun_family = AF_UNIX};
	if ((path[0] != '/' && path[0] != '@') || len < 2 || len >= sizeof to->sun_path)
		return 0;
	memcpy(to->sun_path, path, len);
	if (path[0] == '@')
		to->sun_path[0] = '\0';
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (path[0] == '/'));
}

/* Returns a quarter of the watchdog's time, so that two signs of life may be late. */
static uint64_t alive_every_ms(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t us = usec ? strtoull(usec, NULL, 10) : 0;

	if (pid && strtoull(pid, NULL, 10) != (unsigned long long)getpid())
		us = 0;
	return us && us < 4000 ? 1 : us / 4000;
}

void rs_notify_open(struct rs_notify *n)
{
	const char *path = getenv("NOTIFY_SOCKET");

	*n = (struct rs_notify){.fd = -1};
	n->to_len = path ? address_of(&n->to, path) : 0;
	if (n->to_len)
		n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (n->fd >= 0)
		n->alive_every_ms = alive_every_ms();
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

void rs_notify_close(struct rs_notify *n)
{
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
}

/* A change of state waits for room in the socket. Status and signs of life do not: others
 * follow. */
static void send_text(const struct rs_notify *n, const char *text, int flags)
{
	ssize_t sent;

	if (!rs_notify_on(n))
		return;
	do
		sent =
		    sendto(n->fd, text, strlen(text), MSG_NOSIGNAL | flags, (const struct sockaddr *)&n->to, n->to_len);
	while (sent < 0 && errno == EINTR);
}

void rs_notify_ready(struct rs_notify *n)
{
	send_text(n, "READY=1", 0);
}

void rs_notify_reloading(struct rs_notify *n)
{
	struct timespec now;
	char text[80];

	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		 (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
	send_text(n, text, 0);
}

static void send_status(const struct rs_notify *n, int flags)
{
	char text[sizeof n->status + sizeof n->refused + 64];

	snprintf(text, sizeof text, "STATUS=%s%s%s", n->status, n->refused[0] ? "; the last reload was refused: " : "",
		 n->refused);
	send_text(n, text, flags);
}

void rs_notify_reloaded(struct rs_notify *n, const struct rs_err *refused)
{
	if (!rs_notify_on(n))
		return;
	snprintf(n->refused, sizeof n->refused, "%s", refused ? refused->msg : "");
	send_status(n, 0);
	send_text(n, "READY=1", 0);
}

void rs_notify_stopping(struct rs_notify *n, uint64_t left_ms)
{
	char text[80];

	snprintf(text, sizeof text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64, (left_ms + STOP_SPARE_MS) * 1000);
	send_text(n, text, 0);
}

void rs_notify_status(struct rs_notify *n, const char *fmt, ...)
{
	char status[sizeof n->status];
	va_list args;

	if (!rs_notify_on(n))
		return;
	va_start(args, fmt);
	vsnprintf(status, sizeof status, fmt, args);
	va_end(args);
	if (strcmp(status, n->status) == 0)
		return;
	memcpy(n->status, status, sizeof status);
	send_status(n, MSG_DONTWAIT);
}

bool rs_notify_due(const struct rs_notify *n, uint64_t now_ms)
{
	return rs_notify_on(n) && n->alive_every_ms && now_ms - n->alive_ms >= n->alive_every_ms;
}

void rs_notify_alive(struct rs_notify *n, uint64_t now_ms)
{
	n->alive_ms = now_ms;
	send_text(n, "WATCHDOG=1", MSG_DONTWAIT);
}
