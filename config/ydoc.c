/* SPDX-License-Identifier: Apache-2.0 */
#include "config/ydoc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* The tree under construction. Invariant: open[0..depth) are the lists and mappings not
 * yet closed, outermost first; last[i] is the last child of open[i], NULL while it has
 * none. */
struct builder {
	struct ydoc *doc;
	const char *format; /* "YAML" or "JSON" */
	struct rs_err *e;
	unsigned depth;
	struct ydoc_node *open[YDOC_DEPTH_MAX];
	struct ydoc_node *last[YDOC_DEPTH_MAX];
};

int ydoc_fail(const struct ydoc *doc, const struct ydoc_node *n, const char *key, struct rs_err *e, const char *fmt,
	      ...)
{
	char what[sizeof e->msg];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return rs_fail(e, RS_ECONFIG, "%s:%u:%u: %s%s%s", doc->name, n->line, n->column, key ? key : "",
		       key ? ": " : "", what);
}

const struct ydoc_node *ydoc_value(const struct ydoc_node *mapping, const char *key)
{
	for (const struct ydoc_node *name = mapping ? mapping->child : NULL; name; name = name->next->next)
		if (strcmp(name->text, key) == 0)
			return name->next;
	return NULL;
}

void ydoc_describe(const struct ydoc_node *n, char *buf, size_t size)
{
	enum { SHOWN = 48 };
	int cut;

	switch (n->kind) {
	case YDOC_LIST:
		snprintf(buf, size, "a list");
		break;
	case YDOC_MAPPING:
		snprintf(buf, size, "a mapping");
		break;
	case YDOC_TEXT:
		if (n->nothing) {
			snprintf(buf, size, "nothing");
			break;
		}
		cut = (int)strnlen(n->text, SHOWN);
		while (n->text[cut] && cut > 0 && ((unsigned char)n->text[cut] & 0xc0) == 0x80)
			cut--;
		snprintf(buf, size, "\"%.*s\"%s", cut, n->text, n->text[cut] ? "..." : "");
	}
}

static int fail_at(struct builder *b, size_t line, size_t column, const char *what)
{
	return rs_fail(b->e, RS_ECONFIG, "%s:%zu:%zu: %s", b->doc->name, line, column, what);
}

static int fail_mark(struct builder *b, const yaml_mark_t *mark, const char *what)
{
	return fail_at(b, mark->line + 1, mark->column + 1, what);
}

/* Returns line and column of a byte; libyaml gives only the offset of bytes that it
 * cannot decode. */
static void locate(const char *text, size_t offset, size_t *ret_line, size_t *ret_column)
{
	*ret_line = 1;
	*ret_column = 1;
	for (size_t i = 0; i < offset; i++) {
		if (text[i] == '\n') {
			++*ret_line;
			*ret_column = 1;
		} else if (((unsigned char)text[i] & 0xc0) != 0x80) {
			++*ret_column;
		}
	}
}

/* Stores libyaml's error in *e. */
static int fail_parser(struct builder *b, const yaml_parser_t *p, const char *text, size_t len)
{
	char what[256];
	size_t line, column;

	switch (p->error) {
	case YAML_MEMORY_ERROR:
		return rs_oom(b->e, 0, "%s", b->doc->name);
	case YAML_READER_ERROR:
		locate(text, p->problem_offset < len ? p->problem_offset : len, &line, &column);
		snprintf(what, sizeof what, "not a text in UTF-8: %s", p->problem);
		return fail_at(b, line, column, what);
	default:
		snprintf(what, sizeof what, "not valid %s: %s%s%s", b->format, p->context ? p->context : "",
			 p->context ? ": " : "", p->problem ? p->problem : "unknown error");
		return fail_mark(b, &p->problem_mark, what);
	}
}

static bool is_nothing(const char *text)
{
	return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 || strcmp(text, "Null") == 0 ||
	       strcmp(text, "NULL") == 0;
}

/* Appends a node to the innermost open list or mapping. NULL, with the error stored, if
 * there is no memory. */
static struct ydoc_node *add_node(struct builder *b, enum ydoc_kind kind, const yaml_mark_t *mark, const char *text)
{
	struct ydoc_node *n = calloc(1, sizeof *n);

	if (n && text)
		n->text = strdup(text);
	if (!n || (text && !n->text)) {
		free(n);
		rs_oom(b->e, 0, "%s", b->doc->name);
		return NULL;
	}
	n->kind = kind;
	n->line = (unsigned)mark->line + 1;
	n->column = (unsigned)mark->column + 1;
	n->next_made = b->doc->made;
	b->doc->made = n;
	if (b->depth == 0)
		b->doc->root = n;
	else if (b->last[b->depth - 1])
		b->last[b->depth - 1]->next = n;
	else
		b->open[b->depth - 1]->child = n;
	if (b->depth)
		b->last[b->depth - 1] = n;
	return n;
}

static int add_text(struct builder *b, const yaml_event_t *ev)
{
	const char *text = (const char *)ev->data.scalar.value;
	struct ydoc_node *n;

	if (ev->data.scalar.anchor)
		return fail_mark(b, &ev->start_mark, "found an anchor (&), which is not supported here");
	if (ev->data.scalar.tag)
		return fail_mark(b, &ev->start_mark, "found a tag (!), which is not supported here");
	if (strlen(text) != ev->data.scalar.length)
		return fail_mark(b, &ev->start_mark, "found a zero byte in a text");
	n = add_node(b, YDOC_TEXT, &ev->start_mark, text);
	if (!n)
		return RS_ENOMEM;
	n->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	n->nothing = !n->quoted && is_nothing(text);
	return RS_OK;
}

static int open_node(struct builder *b, enum ydoc_kind kind, const yaml_event_t *ev, const yaml_char_t *anchor,
		     const yaml_char_t *tag)
{
	struct ydoc_node *n;

	if (anchor)
		return fail_mark(b, &ev->start_mark, "found an anchor (&), which is not supported here");
	if (tag)
		return fail_mark(b, &ev->start_mark, "found a tag (!), which is not supported here");
	if (b->depth == YDOC_DEPTH_MAX)
		return fail_mark(b, &ev->start_mark, "lists or mappings are nested too deeply");
	n = add_node(b, kind, &ev->start_mark, NULL);
	if (!n)
		return RS_ENOMEM;
	b->open[b->depth] = n;
	b->last[b->depth++] = NULL;
	return RS_OK;
}

static int on_event(struct builder *b, const yaml_event_t *ev)
{
	switch (ev->type) {
	case YAML_ALIAS_EVENT:
		return fail_mark(b, &ev->start_mark, "found an alias (*), which is not supported here");
	case YAML_SCALAR_EVENT:
		return add_text(b, ev);
	case YAML_SEQUENCE_START_EVENT:
		return open_node(b, YDOC_LIST, ev, ev->data.sequence_start.anchor, ev->data.sequence_start.tag);
	case YAML_MAPPING_START_EVENT:
		return open_node(b, YDOC_MAPPING, ev, ev->data.mapping_start.anchor, ev->data.mapping_start.tag);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		b->depth--;
		return RS_OK;
	case YAML_DOCUMENT_START_EVENT:
		if (b->doc->made)
			return fail_mark(b, &ev->start_mark, "found a second document, expected one");
		return RS_OK;
	default:
		return RS_OK;
	}
}

static int run_parser(struct builder *b, yaml_parser_t *p, const char *text, size_t len)
{
	bool end = false;
	int rc = RS_OK;

	while (rc == RS_OK && !end) {
		yaml_event_t ev;

		if (!yaml_parser_parse(p, &ev))
			return fail_parser(b, p, text, len);
		rc = on_event(b, &ev);
		end = ev.type == YAML_STREAM_END_EVENT;
		yaml_event_delete(&ev);
	}
	return rc;
}

/* True if a line break that YAML knows ends right before text[i]: LF, CR, NEL, LS or
 * PS. */
static bool starts_line(const unsigned char *text, size_t i)
{
	return i == 0 || text[i - 1] == '\n' || text[i - 1] == '\r' ||
	       (i >= 2 && text[i - 2] == 0xc2 && text[i - 1] == 0x85) ||
	       (i >= 3 && text[i - 3] == 0xe2 && text[i - 2] == 0x80 && (text[i - 1] | 1) == 0xa9);
}

/* Refuses directives: libyaml compares each tag directive with all before it, so a file
 * full of them would occupy it for minutes. */
static int refuse_directives(struct builder *b, const char *text, size_t len)
{
	size_t line, column;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '%' && starts_line((const unsigned char *)text, i)) {
			locate(text, i, &line, &column);
			return fail_at(b, line, column, "found a directive (%), which is not supported here");
		}
	}
	return RS_OK;
}

/* Skips a byte order mark, with which some editors begin a file. */
static const char *skip_mark(const char *text, size_t *len)
{
	static const char mark[] = "\xef\xbb\xbf";
	size_t n = sizeof mark - 1;

	if (*len < n || memcmp(text, mark, n) != 0)
		return text;
	*len -= n;
	return text + n;
}

int ydoc_parse(struct ydoc *ret, const char *name, const char *format, const void *text, size_t len, struct rs_err *e)
{
	struct ydoc doc = {.root = NULL};
	struct builder b = {.doc = &doc, .format = format, .e = e};
	size_t name_len = strlen(name);
	yaml_parser_t parser;
	int rc;

	if (name_len < sizeof doc.name)
		memcpy(doc.name, name, name_len + 1);
	else
		snprintf(doc.name, sizeof doc.name, "...%s", name + name_len - (sizeof doc.name - 4));
	if (len > YDOC_BYTES_MAX)
		return rs_fail(e, RS_ECONFIG, "%s: found more than %d KiB, expected at most that", doc.name,
			       YDOC_BYTES_MAX >> 10);
	text = skip_mark(text, &len);
	rc = refuse_directives(&b, text, len);
	if (rc)
		return rc;
	if (!yaml_parser_initialize(&parser))
		return rs_oom(e, 0, "%s", doc.name);
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, text, len);
	rc = run_parser(&b, &parser, text, len);
	yaml_parser_delete(&parser);
	if (rc) {
		ydoc_close(&doc);
		return rc;
	}
	*ret = doc;
	return RS_OK;
}

void ydoc_close(struct ydoc *doc)
{
	while (doc->made) {
		struct ydoc_node *n = doc->made;

		doc->made = n->next_made;
		free(n->text);
		free(n);
	}
	doc->root = NULL;
}
