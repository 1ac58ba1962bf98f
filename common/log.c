/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include "common/journald.h"
#include "common/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[RS_LOG_NR] = {"error", "warn", "info", "debug", "trace"};

/* A line under construction. The last RESERVE bytes are kept for the end of a line: a
 * quote, the mark of a cut, a brace and the newline. Invariant: len <= sizeof text -
 * RESERVE until put_end(); once `cut` is set, only put_end() appends.
 */
struct line {
	size_t len;
	bool cut;
	char text[4096];
};
enum { RESERVE = sizeof "\",\"cut\":true}\n" };

/* Appends all n bytes or none. */
static bool put(struct line *l, const char *s, size_t n)
{
	if (l->cut || n > sizeof l->text - RESERVE - l->len) {
		l->cut = true;
		return false;
	}
	memcpy(l->text + l->len, s, n);
	l->len += n;
	return true;
}

static bool put_str(struct line *l, const char *s)
{
	return put(l, s, strlen(s));
}

/* Appends the end of a line, for which RESERVE has room. */
static void put_end(struct line *l, const char *s)
{
	size_t n = strlen(s);

	memcpy(l->text + l->len, s, n);
	l->len += n;
}

/* Writes the character at s, escaped if necessary, into esc. Returns how many bytes of s
 * it took. Escapes are those of JSON, which read well in the text form too. A byte that
 * is not UTF-8 becomes \\xHH. */
static size_t escape(const unsigned char *s, char esc[8])
{
	size_t n = rs_utf8_length((const char *)s);

	if (n == 0) {
		snprintf(esc, 8, "\\\\x%02x", s[0]);
		return 1;
	}
	if (s[0] == '"' || s[0] == '\\')
		snprintf(esc, 8, "\\%c", s[0]);
	else if (s[0] == '\n')
		snprintf(esc, 8, "\\n");
	else if (s[0] < 0x20 || s[0] == 0x7f)
		snprintf(esc, 8, "\\u%04x", s[0]);
	else if (s[0] == 0xc2 && s[1] < 0xa0) /* U+0080 to U+009F, control characters of terminals */
		snprintf(esc, 8, "\\u%04x", s[1]);
	else
		snprintf(esc, 8, "%.*s", (int)n, (const char *)s);
	return n;
}

/* Appends a string in quotes, so that no byte from the network reaches a terminal
 * unescaped. A string that is too long is cut between two characters. False: nothing of
 * it was appended. */
static bool put_quoted(struct line *l, const char *s)
{
	const unsigned char *at = (const unsigned char *)s;
	char esc[8];

	if (!put_str(l, "\""))
		return false;
	while (*at) {
		at += escape(at, esc);
		if (!put_str(l, esc))
			break;
	}
	put_end(l, "\"");
	return true;
}

/* True if the word may stand without quotes. A long word gets quotes, since only a quoted
 * string can be cut. */
static bool plain_word(const char *s)
{
	size_t n = 0;

	for (; s[n]; n++)
		if ((unsigned char)s[n] <= 0x20 || (unsigned char)s[n] >= 0x7f || strchr("\"\\=", s[n]))
			return false;
	return n > 0 && n < 256;
}

static bool put_value(struct line *l, const struct rs_kv *kv, bool json)
{
	char num[40];

	switch (kv->kind) {
	case RS_KV_STR:
		if (!json && kv->s && plain_word(kv->s))
			return put_str(l, kv->s);
		return put_quoted(l, kv->s ? kv->s : "");
	case RS_KV_INT:
		snprintf(num, sizeof num, "%" PRId64, kv->i);
		break;
	case RS_KV_UINT:
		snprintf(num, sizeof num, "%" PRIu64, kv->u);
		break;
	case RS_KV_DBL:
		if (json && !isfinite(kv->d)) /* JSON cannot express them */
			snprintf(num, sizeof num, "null");
		else
			snprintf(num, sizeof num, "%.6g", kv->d);
		break;
	}
	return put_str(l, num);
}

/* Appends a pair. A string value may be cut; any other pair is appended completely or not
 * at all. */
static void put_pair(struct line *l, const struct rs_kv *kv, bool json)
{
	size_t start = l->len;

	put_str(l, json ? ",\"" : " ");
	put_str(l, kv->key);
	put_str(l, json ? "\":" : "=");
	if (!put_value(l, kv, json))
		l->len = start;
}

static void put_time(struct line *l)
{
	char text[40];
	struct timespec ts;
	struct tm tm;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + n, sizeof text - n, ".%03dZ", (int)(ts.tv_nsec / 1000000));
	put_str(l, text);
}

bool rs_log_is_journal(int fd)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(fd, &st) == 0 &&
	       st.st_dev == device && st.st_ino == inode;
}

void rs_log_find_journal(struct rs_log *l)
{
	l->journal = rs_log_is_journal(l->fd);
	l->journald = l->journal ? rs_journald_open() : -1;
}

const char *rs_log_priority(enum rs_log_level level, bool journal)
{
	/* syslog(3): err, warning, info, debug */
	static const char *const priorities[RS_LOG_NR] = {"<3>", "<4>", "<6>", "<7>", "<7>"};

	return journal ? priorities[level] : "";
}

static void put_head(struct line *l, const struct rs_log *log, enum rs_log_level level, const char *event)
{
	char padded[16];

	if (log->json) {
		put_str(l, "{\"ts\":\"");
		put_time(l);
		put_str(l, "\",\"level\":\"");
		put_str(l, rs_log_level_name(level));
		put_str(l, "\",\"event\":");
		put_quoted(l, event);
	} else {
		if (!log->journal)
			put_time(l);
		snprintf(padded, sizeof padded, "%s%-6s", log->journal ? "" : " ", rs_log_level_name(level));
		put_str(l, padded);
		put_str(l, event);
	}
}

/* prefix: what the line begins with. */
static void make_line(struct line *line, const struct rs_log *l, const char *prefix, enum rs_log_level level,
		      const char *event, const struct rs_kv *kv, unsigned n)
{
	line->len = 0;
	line->cut = false;
	put_str(line, prefix);
	put_head(line, l, level, event);
	for (unsigned i = 0; i < n; i++)
		put_pair(line, &kv[i], l->json);
	if (line->cut)
		put_end(line, l->json ? ",\"cut\":true" : " cut=true");
	put_end(line, l->json ? "}\n" : "\n");
}

/* Writes without raising SIGPIPE. The thread may belong to a training process, which must
 * not end because nobody reads the log. */
static ssize_t write_quietly(int fd, const char *text, size_t n)
{
	const struct timespec now = {0};
	sigset_t pipe, before, pending;
	ssize_t written;
	int error;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	do
		written = write(fd, text, n);
	while (written < 0 && errno == EINTR);
	error = errno;
	if (written < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return written;
}

/* Writes a line. False: it would block, or it failed. A pipe that polls as writable has
 * room for a whole line, since a line is at most PIPE_BUF (a page) long. */
static bool write_line(const struct rs_log *l, const struct line *line)
{
	struct pollfd p = {.fd = l->fd, .events = POLLOUT};

	if (poll(&p, 1, 0) == 0)
		return false;
	return write_quietly(l->fd, line->text, line->len) == (ssize_t)line->len;
}

/* Makes a line, and sends it to journald or writes it. False: it is lost. */
static bool deliver(const struct rs_log *l, enum rs_log_level level, const char *event, const struct rs_kv *kv,
		    unsigned n)
{
	struct line line;
	int error = ENOTCONN;

	if (l->journald > 0) {
		make_line(&line, l, "", level, event, kv, n);
		error = rs_journald_send(l->journald, rs_log_priority(level, true)[1], event, line.text, line.len - 1,
					 kv, n);
	}
	if (error == 0 || error == EAGAIN)
		return error == 0;
	make_line(&line, l, rs_log_priority(level, l->journal), level, event, kv, n); /* journald is being restarted */
	return write_line(l, &line);
}

void rs_log_write(const struct rs_log *l, enum rs_log_level level, const char *event, const struct rs_kv *kv,
		  unsigned n)
{
	int saved = errno;
	unsigned lost = 0;

	if (!rs_log_on(l, level))
		return;
	if (l->tap && (int)level <= l->tap_level)
		l->tap(l->tap_ctx, level, event, kv, n);
	if ((int)level > l->level)
		goto restore;
	if (l->lost)
		lost = *l->lost;
	if (lost && deliver(l, RS_LOG_WARN, "log-lines-lost", &(struct rs_kv){"lines", RS_KV_UINT, {.u = lost}}, 1))
		*l->lost -= lost;
	if (!deliver(l, level, event, kv, n) && l->lost)
		++*l->lost;
restore:
	errno = saved;
}

static void limit_time(struct rs_log_limit *lim, uint64_t now_ms)
{
	if (now_ms - lim->from_ms < 1000)
		return;
	lim->from_ms = now_ms;
	lim->written = 0;
	lim->unreported += lim->dropped;
	lim->dropped = 0;
}

bool rs_log_limit_pass(struct rs_log_limit *lim, uint64_t now_ms)
{
	limit_time(lim, now_ms);
	if (lim->written < lim->per_s) {
		lim->written++;
		return true;
	}
	lim->dropped++;
	return false;
}

bool rs_log_limit_report(struct rs_log_limit *lim, const struct rs_log *l, enum rs_log_level level, uint64_t now_ms)
{
	limit_time(lim, now_ms);
	if (lim->unreported) {
		rs_log(l, level, "suppressed", rs_kv_s("event", lim->event), rs_kv_u("lines", lim->unreported));
		lim->unreported = 0;
	}
	return lim->dropped > 0;
}

uint64_t rs_log_limit_next(const struct rs_log_limit *lim)
{
	return lim->dropped || lim->unreported ? lim->from_ms + 1000 : UINT64_MAX;
}

const char *rs_log_level_name(enum rs_log_level level)
{
	return (unsigned)level < RS_LOG_NR ? level_names[level] : "level?";
}

int rs_log_level_parse(const char *word)
{
	for (int i = 0; i < RS_LOG_NR; i++)
		if (strcmp(word, level_names[i]) == 0)
			return i;
	return -1;
}
