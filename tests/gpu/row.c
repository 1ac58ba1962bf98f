/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/row.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Prints a text with JSON's quotes. Control characters become blanks. */
static void row_text(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		putchar((unsigned char)*text < ' ' ? ' ' : *text);
	}
	putchar('"');
}

static void row_print(const char *part, const char *check, const char *result, const char *number, const char *format,
		      va_list args)
{
	char note[512];

	vsnprintf(note, sizeof note, format, args);
	printf("{\"part\": ");
	row_text(part);
	printf(", \"check\": ");
	row_text(check);
	printf(", \"result\": ");
	row_text(result);
	printf("%s, \"note\": ", number);
	row_text(note);
	printf("}\n");
	fflush(stdout);
}

void row(const char *part, const char *check, const char *result, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	row_print(part, check, result, "", format, args);
	va_end(args);
}

void row_value(const char *part, const char *check, const char *result, double value, const char *unit,
	       const char *format, ...)
{
	char number[96];
	va_list args;

	snprintf(number, sizeof number, ", \"value\": %.4g, \"unit\": \"%s\"", value, unit);
	va_start(args, format);
	row_print(part, check, result, number, format, args);
	va_end(args);
}

void row_get(char *to, size_t room, const char *line, const char *key)
{
	char quoted[32];
	const char *at;
	size_t n = 0;
	bool text;

	snprintf(quoted, sizeof quoted, "\"%s\": ", key);
	at = strstr(line, quoted);
	to[0] = '\0';
	if (!at)
		return;
	at += strlen(quoted);
	text = *at == '"';
	at += text;
	while (*at && n + 1 < room && (text ? *at != '"' : !strchr(",}", *at))) {
		at += *at == '\\' && at[1];
		to[n++] = *at++;
	}
	to[n] = '\0';
}
