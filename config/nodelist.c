/* SPDX-License-Identifier: Apache-2.0 */
#include "config/nodelist.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9 }; /* of a number in brackets */

/* A text while it is read. */
struct reading {
	const char *variable, *text; /* variable NULL: the text is from elsewhere */
	struct nodelist list;
	unsigned room; /* names that list has memory for */
	struct rs_err *e;
};

/* Puts the variable in front of a sentence. Returns rc, its code. */
static int name_variable(const struct reading *r, int rc)
{
	return r->variable ? rs_wrap(r->e, "environment variable %s", r->variable) : rc;
}

static int fail_at(const struct reading *r, const char *at, const char *expected)
{
	int rc = rs_fail(r->e, RS_ECONFIG,
			 "found \"%.60s\"%s, expected a list of nodes such as n[01-03,7]; at character %zu %s was "
			 "expected",
			 r->text, strlen(r->text) > 60 ? "..." : "", (size_t)(at - r->text) + 1, expected);

	return name_variable(r, rc);
}

static int add_name(struct reading *r, const char *at, const char *name)
{
	struct nodelist *l = &r->list;

	if (!name[0])
		return fail_at(r, at, "a name");
	if (l->n == NODELIST_MAX)
		return name_variable(r,
				     rs_fail(r->e, RS_ECONFIG, "found more than %d nodes in \"%.60s\", expected fewer",
					     NODELIST_MAX, r->text));
	if (l->n == r->room) {
		unsigned room = r->room ? 2 * r->room : 16;
		void *bigger = realloc(l->name, room * sizeof *l->name);

		if (!bigger)
			return rs_oom(r->e, room * sizeof *l->name, "%u names of nodes", room);
		l->name = bigger;
		r->room = room;
	}
	memcpy(l->name[l->n++], name, strlen(name) + 1);
	return RS_OK;
}

/* Reads a number at *at, and moves *at behind it. */
static int read_number(const struct reading *r, const char **at, unsigned long *ret)
{
	const char *from = *at;

	*ret = 0;
	while (isdigit((unsigned char)**at) && *at - from < DIGITS_MAX)
		*ret = 10 * *ret + (unsigned long)(*(*at)++ - '0');
	return *at > from ? RS_OK : fail_at(r, *at, "a number of at most 9 digits");
}

static int expand(struct reading *r, const char *at, const char *end, char *name, size_t len);

/* Adds the names whose next part is a number of the range "01-03" or "7" at *at, and
 * moves *at behind that. `rest` is what follows the bracket. */
static int expand_range(struct reading *r, const char **at, const char *rest, const char *end, char *name, size_t len)
{
	const char *from = *at;
	unsigned long first, last;
	int width, rc = read_number(r, at, &first);

	width = (int)(*at - from);
	last = first;
	if (!rc && **at == '-') {
		++*at;
		rc = read_number(r, at, &last);
	}
	if (!rc && last < first)
		return fail_at(r, from, "a range from a smaller to a larger number");
	for (unsigned long v = first; v <= last && !rc; v++) {
		int n = snprintf(name + len, RS_HOST_MAX - len, "%0*lu", width, v);

		if ((size_t)n >= RS_HOST_MAX - len)
			return fail_at(r, from, "a shorter name");
		rc = expand(r, rest, end, name, len + (size_t)n);
	}
	return rc;
}

/* Adds the names that begin with the first len bytes of name; `at` to `end` is the part
 * of an item that follows. Each bracket makes the name longer, so the recursion ends. */
static int expand(struct reading *r, const char *at, const char *end, char *name, size_t len)
{
	const char *close;
	int rc;

	while (at < end && (isalnum((unsigned char)*at) || strchr("._-", *at))) {
		if (len == RS_HOST_MAX - 1)
			return fail_at(r, at, "a shorter name");
		name[len++] = *at++;
	}
	name[len] = '\0';
	if (at == end)
		return add_name(r, at, name);
	close = *at == '[' ? memchr(at, ']', (size_t)(end - at)) : NULL;
	if (!close)
		return fail_at(r, at, *at == '[' ? "a bracket that ends" : "a letter, a digit, '.', '_', '-' or '['");
	do {
		at++;
		rc = expand_range(r, &at, close + 1, end, name, len);
	} while (!rc && *at == ',');
	return rc || at == close ? rc : fail_at(r, at, "',', '-' or ']'");
}

/* Returns the end of an item: a comma outside of brackets, or the end of the text. */
static const char *item_end(const char *at)
{
	for (bool inside = false; *at && (inside || *at != ','); at++)
		inside = *at == '[' || (inside && *at != ']');
	return at;
}

int nodelist_read(struct nodelist *ret, const char *variable, const char *text, struct rs_err *e)
{
	struct reading r = {.variable = variable, .text = text, .e = e};
	const char *at = text, *end;
	char name[RS_HOST_MAX];
	int rc;

	do {
		end = item_end(at);
		rc = expand(&r, at, end, name, 0);
		at = end + 1;
	} while (!rc && *end);
	if (rc)
		nodelist_close(&r.list);
	else
		*ret = r.list;
	return rc;
}

void nodelist_close(struct nodelist *l)
{
	free(l->name);
	l->name = NULL;
	l->n = 0;
}

int nodelist_find(const struct nodelist *l, const char *name)
{
	for (unsigned i = 0; i < l->n; i++)
		if (strcmp(l->name[i], name) == 0)
			return (int)i;
	return -1;
}
