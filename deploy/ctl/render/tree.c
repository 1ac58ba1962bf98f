/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/render/tree.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool tree_is_named(const char *key, const char *name)
{
	for (; *name && *key; name++, key++) {
		bool word = *key == '_' && isupper((unsigned char)*name);

		key += word;
		if (*key != (word ? tolower((unsigned char)*name) : *name))
			return false;
	}
	return !*name && !*key;
}

void tree_camel(char *key)
{
	char *to = key;

	for (; *key; key++) {
		bool word = *key == '_' && islower((unsigned char)key[1]);

		key += word;
		*to++ = word ? (char)toupper((unsigned char)*key) : *key;
	}
	*to = '\0';
}

struct ydoc_node *tree_get(const struct ydoc_node *node, const char *key)
{
	if (!node || node->kind != YDOC_MAPPING)
		return NULL;
	for (const struct ydoc_node *name = node->child; name; name = name->next->next)
		if (name->kind == YDOC_TEXT && tree_is_named(name->text, key))
			return name->next->kind == YDOC_TEXT && name->next->nothing ? NULL : name->next;
	return NULL;
}

const char *tree_text_of(const struct ydoc_node *node, const char *key)
{
	const struct ydoc_node *n = tree_get(node, key);

	return n && n->kind == YDOC_TEXT ? n->text : NULL;
}

struct ydoc_node *tree_new(struct tree *t, enum ydoc_kind kind)
{
	struct ydoc_node *n = calloc(1, sizeof *n);

	if (!n) {
		t->no_memory = true;
		return NULL;
	}
	n->kind = kind;
	n->next_made = t->doc.made;
	t->doc.made = n;
	return n;
}

struct ydoc_node *tree_text(struct tree *t, const char *text, bool quoted)
{
	struct ydoc_node *n = tree_new(t, YDOC_TEXT);

	if (!n)
		return NULL;
	n->quoted = quoted;
	n->text = strdup(text);
	t->no_memory |= !n->text;
	return n->text ? n : NULL;
}

struct ydoc_node *tree_number(struct tree *t, unsigned v)
{
	char text[16];

	snprintf(text, sizeof text, "%u", v);
	return tree_text(t, text, false);
}

struct ydoc_node *tree_copy(struct tree *t, const struct ydoc_node *n)
{
	struct ydoc_node *copy = n->kind == YDOC_TEXT ? tree_text(t, n->text, n->quoted) : tree_new(t, n->kind);

	if (!copy)
		return NULL;
	copy->line = n->line;
	copy->column = n->column;
	copy->nothing = n->nothing;
	for (const struct ydoc_node *c = n->child; c; c = c->next)
		tree_append(copy, tree_copy(t, c));
	return copy;
}

void tree_append(struct ydoc_node *list, struct ydoc_node *item)
{
	struct ydoc_node **at;

	if (!list || !item)
		return;
	for (at = &list->child; *at;)
		at = &(*at)->next;
	*at = item;
}

/* Returns where the mapping points to a key. */
static struct ydoc_node **find(struct ydoc_node *mapping, const char *key)
{
	struct ydoc_node **at = &mapping->child;

	while (*at && ((*at)->kind != YDOC_TEXT || !tree_is_named((*at)->text, key)))
		at = &(*at)->next->next;
	return at;
}

/* Returns a key with underscores for one in camel case. */
static struct ydoc_node *new_key(struct tree *t, const char *key)
{
	char name[64];
	size_t n = 0;

	for (; *key && n + 2 < sizeof name; key++) {
		if (isupper((unsigned char)*key))
			name[n++] = '_';
		name[n++] = (char)tolower((unsigned char)*key);
	}
	name[n] = '\0';
	return tree_text(t, name, false);
}

void tree_set(struct tree *t, struct ydoc_node *mapping, const char *key, struct ydoc_node *value)
{
	struct ydoc_node **at, *name;

	if (!mapping || !value)
		return;
	at = find(mapping, key);
	if (*at) {
		value->next = (*at)->next->next;
		(*at)->next = value;
		return;
	}
	name = t->underscores ? new_key(t, key) : tree_text(t, key, false);
	if (name) {
		name->next = value;
		*at = name;
	}
}

void tree_remove(struct ydoc_node *mapping, const char *key)
{
	struct ydoc_node **at = find(mapping, key);

	if (*at)
		*at = (*at)->next->next;
}

struct ydoc_node *tree_at(const struct ydoc_node *list, unsigned i)
{
	struct ydoc_node *n = list->child;

	while (n && i-- > 0)
		n = n->next;
	return n;
}

bool tree_is_empty(const struct ydoc_node *n)
{
	return n->kind == YDOC_TEXT ? n->nothing : !n->child;
}

/* Returns the line break beyond ASCII that text begins with (NEL, LS or PS; all of
 * UTF-8), and its length; 0: none. */
static unsigned wide_break(const char *text, size_t *ret_len)
{
	*ret_len = strncmp(text, "\xc2\x85", 2) == 0 ? 2 : 3;
	if (*ret_len == 2)
		return 0x85;
	return strncmp(text, "\xe2\x80\xa8", 3) == 0 ? 0x2028 : strncmp(text, "\xe2\x80\xa9", 3) == 0 ? 0x2029 : 0;
}

void tree_write_quoted(const char *text, FILE *out)
{
	fputc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		size_t len;
		unsigned code = wide_break(text, &len);

		if (code) {
			fprintf(out, "\\u%04x", code);
			text += len - 1;
			continue;
		}
		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c == '\n')
			fputs("\\n", out);
		else if (c < 0x20 || c == 0x7f)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

/* Returns whether a text that stood in a line without quotes, or in several, needs them
 * in a block. Such a text is none that could be a number, so that it keeps its type. */
static bool needs_quotes(const char *text)
{
	size_t len;

	if (text[0] && strchr("-?:", text[0]) && (!text[1] || text[1] == ' '))
		return true;
	for (; *text; text++)
		if (*text == '\n' || wide_break(text, &len))
			return true;
	return false;
}

static void write_text(const struct ydoc_node *n, FILE *out)
{
	if (n->quoted || (!n->nothing && needs_quotes(n->text)))
		tree_write_quoted(n->text, out);
	else
		fputs(n->nothing ? "null" : n->text, out);
}

/* Writes a list or mapping with at least one child. The first line is indented by the
 * caller. */
static void write_block(const struct ydoc_node *n, unsigned indent, FILE *out)
{
	bool list = n->kind == YDOC_LIST;

	for (const struct ydoc_node *c = n->child; c; c = c->next) {
		unsigned deeper = indent + 2;

		if (c != n->child)
			fprintf(out, "%*s", (int)indent, "");
		if (list) {
			fputs("- ", out);
		} else {
			write_text(c, out);
			fputc(':', out);
			c = c->next;
			fputc(c->child ? '\n' : ' ', out);
			deeper = c->kind == YDOC_LIST ? indent : indent + 2;
			if (c->child)
				fprintf(out, "%*s", (int)deeper, "");
		}
		if (c->child) {
			write_block(c, deeper, out);
			continue;
		}
		if (c->kind == YDOC_TEXT)
			write_text(c, out);
		else
			fputs(c->kind == YDOC_LIST ? "[]" : "{}", out);
		fputc('\n', out);
	}
}

void tree_write(const struct ydoc_node *n, FILE *out)
{
	write_block(n, 0, out);
}

/* Returns whether a text without quotes is a number, true, false or null in JSON. */
static bool is_json(const char *text)
{
	static const char digits[] = "0123456789";
	size_t n;

	if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0 || strcmp(text, "null") == 0)
		return true;
	text += *text == '-';
	n = strspn(text, digits);
	if (!n || (n > 1 && *text == '0'))
		return false;
	text += n;
	if (*text == '.') {
		n = strspn(++text, digits);
		if (!n)
			return false;
		text += n;
	}
	if (*text == 'e' || *text == 'E') {
		text += 1 + (text[1] == '-' || text[1] == '+');
		n = strspn(text, digits);
		if (!n)
			return false;
		text += n;
	}
	return !*text;
}

static void write_json(const struct ydoc_node *n, unsigned indent, FILE *out)
{
	bool list = n->kind == YDOC_LIST;

	if (n->kind == YDOC_TEXT) {
		if (n->quoted || !is_json(n->nothing ? "null" : n->text))
			tree_write_quoted(n->text, out);
		else
			fputs(n->nothing ? "null" : n->text, out);
		return;
	}
	if (!n->child) {
		fputs(list ? "[]" : "{}", out);
		return;
	}
	fputc(list ? '[' : '{', out);
	for (const struct ydoc_node *c = n->child; c; c = c->next) {
		fprintf(out, "%s\n%*s", c == n->child ? "" : ",", (int)indent + 2, "");
		if (!list) {
			tree_write_quoted(c->text, out);
			fputs(": ", out);
			c = c->next;
		}
		write_json(c, indent + 2, out);
	}
	fprintf(out, "\n%*s%c", (int)indent, "", list ? ']' : '}');
}

void tree_write_json(const struct ydoc_node *n, FILE *out)
{
	write_json(n, 0, out);
	fputc('\n', out);
}
