/* SPDX-License-Identifier: Apache-2.0 */
#include "common/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Formats into buf and marks a cut with "...", so that a reader sees that something is missing. */
static void format_cut(char *buf, size_t size, const char *fmt, va_list ap)
{
	int n = vsnprintf(buf, size, fmt, ap);

	if (n < 0)
		buf[0] = '\0';
	else if ((size_t)n >= size)
		memcpy(buf + size - 4, "...", 4);
}

int rs_fail(struct rs_err *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return code;
	e->code = code;
	va_start(ap, fmt);
	format_cut(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	return code;
}

int rs_fail_sys(struct rs_err *e, int code, int sys, const char *fmt, ...)
{
	char text[128];
	va_list ap;
	size_t used;

	if (!e)
		return code;
	e->code = code;
	va_start(ap, fmt);
	format_cut(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	/* the GNU strerror_r may return a static string instead of filling the buffer; the XSI one fills it */
	if (strerror_r(sys, text, sizeof text) != 0)
		snprintf(text, sizeof text, "error %d", sys);
	used = strlen(e->msg);
	snprintf(e->msg + used, sizeof e->msg - used, ": %s", text);
	return code;
}

int rs_wrap(struct rs_err *e, const char *fmt, ...)
{
	struct rs_err cause;
	va_list ap;
	size_t used;

	if (!e)
		return RS_EINTERNAL;
	cause = *e;
	va_start(ap, fmt);
	format_cut(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	used = strlen(e->msg);
	if (used + 2 + strlen(cause.msg) < sizeof e->msg)
		snprintf(e->msg + used, sizeof e->msg - used, ": %s", cause.msg);
	else
		*e = cause; /* the cause is worth more than its context */
	return e->code;
}

const char *rs_code_text(int code)
{
	switch (code) {
	case RS_OK:
		return "success";
#define RS_CODE_TEXT(name, value, text)                                                                               \
	case value:                                                                                                   \
		return text;
		RS_CODES(RS_CODE_TEXT)
#undef RS_CODE_TEXT
	default:
		return "unknown error";
	}
}
