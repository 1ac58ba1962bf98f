/* SPDX-License-Identifier: Apache-2.0 */
/* The notice that this machine is about to end: a file that a watcher such as
 * `reductionctl notice` writes. It may be empty. Its first line is the reason, in the
 * words of the log. A second line "before 2026-11-27T20:10:00Z" says when the machine
 * ends.
 *
 * Failure modes: there is no file, or no folder: there is no notice. It cannot be read:
 * one line warns, and the daemon goes on. Its time is wrong or past: the jobs have a
 * second, or a day. */
#include "common/host/host_state.h"
#include "common/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	NOTICE_BYTES = 1024,
	NOTICE_MARGIN_MS = 2000, /* in which the ranks read why their jobs end, before the machine does */
	NOTICE_LEAST_MS = 1000,
	NOTICE_MOST_MS = 86400000,
};

/* Returns how long jobs may run if the machine ends at the time in `text`; 0: there is no
 * time in it. */
static uint32_t notice_left_ms(const char *text)
{
	static const char before[] = "before ";
	struct tm tm = {0};
	const char *end;
	int64_t left;

	if (strncmp(text, before, sizeof before - 1) != 0)
		return 0;
	end = strptime(text + sizeof before - 1, "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (!end || *end)
		return 0;
	left = (int64_t)(timegm(&tm) - time(NULL)) * 1000 - NOTICE_MARGIN_MS;
	return left < NOTICE_LEAST_MS ? NOTICE_LEAST_MS : left > NOTICE_MOST_MS ? NOTICE_MOST_MS : (uint32_t)left;
}

/* Returns the number of bytes read; -1: errno says why it cannot be read. */
static ssize_t notice_bytes(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO does not block */
	ssize_t n;
	int error;

	if (fd < 0)
		return -1;
	n = read(fd, text, size);
	error = errno;
	close(fd);
	errno = error;
	return n;
}

bool host_notice_read(struct host *h, struct host_notice *ret)
{
	const char *path = h->opt.notice;
	char text[NOTICE_BYTES + 1] = "", *second;
	ssize_t n;

	if (!path || !path[0])
		return false;
	n = notice_bytes(path, text, NOTICE_BYTES);
	if (n < 0 && (errno == ENOENT || errno == ENOTDIR))
		return false;
	if (n < 0) {
		if (!h->notice_unreadable)
			rs_log(h->opt.log, RS_LOG_WARN, "notice-unreadable", rs_kv_s("file", path),
			       rs_kv_s("reason", strerror(errno)));
		h->notice_unreadable = true;
		return false;
	}
	text[n] = '\0';
	second = text + strcspn(text, "\n");
	if (*second)
		*second++ = '\0';
	second[strcspn(second, "\n")] = '\0';
	rs_utf8_clean(text);
	snprintf(ret->because, sizeof ret->because, "%.*s", (int)sizeof ret->because - 1,
		 text[0] ? text : "a notice without a reason");
	ret->left_ms = notice_left_ms(second);
	return true;
}
