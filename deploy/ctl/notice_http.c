/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of HTTP/1.1. */
#include "deploy/ctl/notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HTTP_CHUNK_MAX = 1 << 20 };

/* Where the body is, by the header. */
struct http_body {
	bool chunked;
	long length; /* -1: until the peer closes */
};

/* Takes one line of the header, "Name: value". */
static void http_take_line(char *line, struct http_body *body, struct notice_answer *ret)
{
	char *value = strchr(line, ':');

	if (!value)
		return;
	*value++ = '\0';
	value += strspn(value, " \t");
	if (strcasecmp(line, "Content-Length") == 0)
		body->length = strtol(value, NULL, 10);
	else if (strcasecmp(line, "Transfer-Encoding") == 0)
		body->chunked = strcasecmp(value, "chunked") == 0;
	else if (strcasecmp(line, "Metadata-Flavor") == 0)
		ret->google = strcmp(value, "Google") == 0;
	else if (strcasecmp(line, "ETag") == 0)
		snprintf(ret->etag, sizeof ret->etag, "%s", value);
}

/* Goes through the chunks, and with `join` joins them in place, which is possible once.
 * Returns 1, 0 if more must follow, or an error. */
static int http_chunks(struct notice_answer *a, bool join, struct rs_err *e)
{
	char *from = a->body, *to = a->body, *end = a->body + a->body_len;

	for (;;) {
		char *line = memchr(from, '\n', (size_t)(end - from)), *stop;
		long n = line ? strtol(from, &stop, 16) : 0;

		if (!line)
			return 0;
		if (stop == from || n < 0 || n > HTTP_CHUNK_MAX)
			return rs_fail(e, RS_EPROTO, "its answer has a chunk without a size");
		from = line + 1;
		if (n == 0)
			break;
		if (end - from < n + 2)
			return 0;
		if (join)
			memmove(to, from, (size_t)n);
		to += n;
		from += n + 2;
	}
	if (!join)
		return http_chunks(a, true, e);
	*to = '\0';
	a->body_len = (size_t)(to - a->body);
	return 1;
}

int notice_http_read(char *text, size_t len, bool ended, struct notice_answer *ret, struct rs_err *e)
{
	static const char gap[] = "\r\n\r\n";
	struct http_body body = {.length = -1};
	char *line = text, *end;

	*ret = (struct notice_answer){.status = 0};
	text[len] = '\0';
	end = strstr(text, gap);
	if (!end)
		return ended ? rs_fail(e, RS_EPROTO, "it closed the connection without an answer") : 0;
	if (sscanf(text, "HTTP/1.%*1[01] %3d", &ret->status) != 1 || ret->status < 100)
		return rs_fail(e, RS_EPROTO, "its answer is not one of HTTP/1.1");
	ret->body = end + sizeof gap - 1;
	ret->body_len = len - (size_t)(ret->body - text);
	/* the header is read from a copy of each line: a later call reads it again */
	while ((line = strstr(line, "\r\n")) && line < end) {
		char copy[512];

		line += 2;
		snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\r\n"), line);
		http_take_line(copy, &body, ret);
	}
	if (body.chunked)
		return http_chunks(ret, false, e);
	if (body.length >= 0 && ret->body_len >= (size_t)body.length) {
		ret->body_len = (size_t)body.length;
		ret->body[body.length] = '\0';
		return 1;
	}
	if (ended && body.length >= 0)
		return rs_fail(e, RS_EPROTO, "its answer ends after %zu of %ld bytes", ret->body_len, body.length);
	return ended;
}
