/* SPDX-License-Identifier: Apache-2.0 */
/* Removes secrets from a text. JSON, and log lines with it, writes some characters of a
 * secret as escapes. So the text is searched as it is, then with its escapes undone, then
 * with those undone that this has brought to light: a log line within a JSON string.
 * Secrets that overlap are removed as a whole, since all are found before the first one
 * is overwritten. */
#include "deploy/ctl/bundle.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 2 }; /* how many times escapes are undone */

/* A text whose escapes are undone. Byte i of it stands for the original from from[i] to
 * before from[i + 1]. Of an escape for several bytes all but the last stand for
 * nothing. */
struct undone {
	char *text;
	size_t *from;
	size_t n;
};

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Reads `digits` hexadecimal digits; -1: it has others, or ends. */
static int32_t hex_number(const char *text, size_t n, unsigned digits)
{
	int32_t value = 0;

	if (n < digits)
		return -1;
	for (unsigned i = 0; i < digits; i++) {
		int digit = hex_digit(text[i]);

		if (digit < 0)
			return -1;
		value = value * 16 + digit;
	}
	return value;
}

/* Reads "\uXXXX", or two of them for one character. Returns its bytes; 0: this is
 * neither. */
static size_t unicode_escape(const char *text, size_t n, int32_t *ret)
{
	int32_t c = n > 2 && text[1] == 'u' ? hex_number(text + 2, n - 2, 4) : -1, low;

	if (c < 0 || (c >= 0xdc00 && c <= 0xdfff))
		return 0;
	*ret = c;
	if (c < 0xd800 || c > 0xdbff)
		return 6;
	low = n > 8 && text[6] == '\\' && text[7] == 'u' ? hex_number(text + 8, n - 8, 4) : -1;
	*ret = 0x10000 + (c - 0xd800) * 0x400 + (low - 0xdc00);
	return low >= 0xdc00 && low <= 0xdfff ? 12 : 0;
}

static size_t put_utf8(char *to, int32_t c)
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	for (size_t i = n - 1; i > 0; i--, c >>= 6)
		to[i] = (char)(0x80 | (c & 0x3f));
	to[0] = (char)(n == 1 ? c : (0xf0 << (4 - n)) | c);
	return n;
}

/* Undoes the escape at `text`. Returns how many bytes it has; 0: there is none. `to` gets
 * what it stands for. */
static size_t undo_one(const char *text, size_t n, char to[4], size_t *to_n)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	const char *name = n > 1 && text[0] == '\\' && text[1] ? strchr(names, text[1]) : NULL;
	int32_t c = 0;
	size_t taken;

	if (n < 2 || text[0] != '\\')
		return 0;
	*to_n = 1;
	if (name) {
		to[0] = values[name - names];
		return 2;
	}
	if (text[1] == 'x') { /* how log lines write a byte that is not UTF-8 */
		c = hex_number(text + 2, n - 2, 2);
		to[0] = (char)c;
		return c < 0 ? 0 : 4;
	}
	taken = unicode_escape(text, n, &c);
	if (taken)
		*to_n = put_utf8(to, c);
	return taken;
}

/* Undoes all escapes, in place since none is shorter than what it stands for. False:
 * there is none. */
static bool undo_all(struct undone *u)
{
	size_t out = 0;
	bool found = false;

	for (size_t i = 0; i < u->n;) {
		char bytes[4] = {u->text[i]};
		size_t n = 1, taken = undo_one(u->text + i, u->n - i, bytes, &n);

		found |= taken > 0;
		memcpy(u->text + out, bytes, n);
		for (size_t b = 0, from = u->from[i]; b < n; b++)
			u->from[out + b] = from;
		out += n;
		i += taken ? taken : 1;
	}
	u->from[out] = u->from[u->n];
	u->n = out;
	return found;
}

/* Marks the bytes of the original that are part of a secret. */
static void mark(const struct undone *u, const struct bundle_secret *secrets, char *marks)
{
	for (const struct bundle_secret *s = secrets; s; s = s->next) {
		const char *at = u->text, *end = u->text + u->n;

		for (; (at = memmem(at, (size_t)(end - at), s->text, s->n)); at++) {
			const size_t *from = u->from + (at - u->text);

			memset(marks + from[0], 1, from[s->n] - from[0]);
		}
	}
}

bool bundle_redact(char *text, size_t n, const struct bundle_secret *secrets)
{
	struct undone u = {malloc(n + 1), malloc((n + 1) * sizeof *u.from), n};
	char *marks = calloc(n + 1, 1);
	bool good = u.text && u.from && marks;

	if (good) {
		memcpy(u.text, text, n);
		for (size_t i = 0; i <= n; i++)
			u.from[i] = i;
		mark(&u, secrets, marks);
		for (unsigned i = 0; i < DEPTH && undo_all(&u); i++)
			mark(&u, secrets, marks);
		for (size_t i = 0; i < n; i++)
			if (marks[i])
				text[i] = '*';
	}
	free(marks);
	free(u.from);
	free(u.text);
	return good;
}
