/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[RS_LOG_NR] = {"error", "warn", "info", "debug", "trace"};

/* A line under construction. len <= sizeof text - 1, so that the newline always has its place. */
struct line {
	size_t len;
	char text[4096];
};

static void put(struct line *l, const char *s, size_t n)
{
	size_t room = sizeof l->text - 1 - l->len;

	if (n > room)
		n = room;
	memcpy(l->text + l->len, s, n);
	l->len += n;
}

static void put_str(struct line *l, const char *s)
{
	put(l, s, strlen(s));
}

/* JSON's escapes, which read well in the text form too. Bytes from the network never reach a terminal raw. */
static void put_quoted(struct line *l, const char *s)
{
	put_str(l, "\"");
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		char esc[8];

		if (c == '"' || c == '\\')
			snprintf(esc, sizeof esc, "\\%c", c);
		else if (c == '\n')
			snprintf(esc, sizeof esc, "\\n");
		else if (c < 0x20 || c >= 0x7f)
			snprintf(esc, sizeof esc, "\\u%04x", c);
		else
			snprintf(esc, sizeof esc, "%c", c);
		put_str(l, esc);
	}
	put_str(l, "\"");
}

static bool plain_word(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= 0x20 || (unsigned char)*s >= 0x7f || *s == '"' || *s == '\\' || *s == '=')
			return false;
	return true;
}

static void put_value(struct line *l, const struct rs_kv *kv, bool json)
{
	char num[40];

	switch (kv->kind) {
	case RS_KV_STR:
		if (!json && kv->s && plain_word(kv->s))
			put_str(l, kv->s);
		else
			put_quoted(l, kv->s ? kv->s : "");
		return;
	case RS_KV_INT:
		snprintf(num, sizeof num, "%" PRId64, kv->i);
		break;
	case RS_KV_UINT:
		snprintf(num, sizeof num, "%" PRIu64, kv->u);
		break;
	case RS_KV_DBL:
		snprintf(num, sizeof num, "%.6g", kv->d);
		break;
	}
	put_str(l, num);
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

void rs_log_write(const struct rs_log *l, enum rs_log_level level, const char *event, const struct rs_kv *kv,
		  unsigned n)
{
	struct line line = {0};
	ssize_t written;

	if (!rs_log_on(l, level))
		return;
	if (l->json) {
		put_str(&line, "{\"ts\":\"");
		put_time(&line);
		put_str(&line, "\",\"level\":\"");
		put_str(&line, level_names[level]);
		put_str(&line, "\",\"event\":");
		put_quoted(&line, event);
	} else {
		put_time(&line);
		put_str(&line, " ");
		put_str(&line, level_names[level]);
		put_str(&line, "     " + strlen(level_names[level]) - 1);
		put_str(&line, event);
	}
	for (unsigned i = 0; i < n; i++) {
		put_str(&line, l->json ? ",\"" : " ");
		put_str(&line, kv[i].key);
		put_str(&line, l->json ? "\":" : "=");
		put_value(&line, &kv[i], l->json);
	}
	if (l->json)
		put_str(&line, "}");
	line.text[line.len++] = '\n';
	/* nobody is left to tell when the log itself cannot be written */
	written = write(l->fd, line.text, line.len);
	(void)written;
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
