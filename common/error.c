/* SPDX-License-Identifier: Apache-2.0 */
#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Formats the sentence into msg, `size` bytes of the msg of a struct rs_err or a buffer
 * as long. It uses a buffer of its own, since an argument may point into msg. Control
 * characters, which come only from names of peers, become '?'. A sentence that is too
 * long is cut with "...", never inside a UTF-8 character. */
static void put_sentence(char *msg, size_t size, const char *fmt, va_list ap)
{
	char text[sizeof((struct rs_err *)0)->msg];
	int n = vsnprintf(text, size, fmt, ap);

	if (n < 0)
		text[0] = '\0';
	if (n >= 0 && (size_t)n >= size) {
		size_t end = size - 4;

		while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
			end--;
		memcpy(text + end, "...", 4);
	}
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	memcpy(msg, text, strlen(text) + 1);
}

int rs_fail(struct rs_err *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return code;
	e->code = code;
	va_start(ap, fmt);
	put_sentence(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	return code;
}

int rs_fail_sys(struct rs_err *e, int code, int sys, const char *fmt, ...)
{
	int saved = errno;
	char text[128];
	va_list ap;

	if (!e)
		return code;
	e->code = code;
	errno = sys;
	snprintf(text, sizeof text,
		 ": %m"); /* strerror is not thread-safe, and there are two incompatible versions of strerror_r */
	errno = saved;
	va_start(ap, fmt);
	put_sentence(e->msg, sizeof e->msg - strlen(text), fmt, ap);
	va_end(ap);
	memcpy(e->msg + strlen(e->msg), text, strlen(text) + 1);
	return code;
}

int rs_oom(struct rs_err *e, size_t bytes, const char *what, ...)
{
	char text[sizeof e->msg];
	va_list ap;

	va_start(ap, what);
	put_sentence(text, sizeof text, what, ap);
	va_end(ap);
	return bytes ? rs_fail(e, RS_ENOMEM, "out of memory for %s (%zu bytes)", text, bytes)
		     : rs_fail(e, RS_ENOMEM, "out of memory for %s", text);
}

int rs_wrap(struct rs_err *e, const char *fmt, ...)
{
	char context[sizeof e->msg];
	size_t used, cause;
	va_list ap;

	if (!e)
		return RS_EINTERNAL;
	va_start(ap, fmt);
	put_sentence(context, sizeof context, fmt, ap);
	va_end(ap);
	used = strlen(context);
	cause = strlen(e->msg);
	/* without room for both, the context is dropped and the cause is kept */
	if (used + 2 + cause < sizeof e->msg) {
		memmove(e->msg + used + 2, e->msg, cause + 1);
		memcpy(e->msg, context, used);
		memcpy(e->msg + used, ": ", 2);
	}
	return e->code;
}

const char *rs_code_text(int code)
{
	switch (code) {
	case RS_OK:
		return "success";
#define RS_CODE_TEXT(name, value, text)                                                                                \
	case value:                                                                                                    \
		return text;
		RS_CODES(RS_CODE_TEXT)
#undef RS_CODE_TEXT
	default:
		return "unknown error";
	}
}
