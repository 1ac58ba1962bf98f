/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences in another wording. The simulator is linked with --wrap=rs_fail: every
 * sentence that the cores compose is in capitals here. So a decision that reads a
 * sentence, instead of its cause, fails in the simulator. */
#include "common/error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

int __real_rs_fail(struct rs_err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int __wrap_rs_fail(struct rs_err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

int __wrap_rs_fail(struct rs_err *e, int code, const char *fmt, ...)
{
	char text[2 * sizeof e->msg];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	for (char *c = text; *c; c++)
		*c = (char)toupper((unsigned char)*c);
	return __real_rs_fail(e, code, "%s", text);
}
