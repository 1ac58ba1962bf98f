/* SPDX-License-Identifier: Apache-2.0 */
/* A YAML file as a small tree whose nodes know their position. It supports mappings,
 * lists and text. Anchors, tags, directives, further documents, and files that are too
 * large or too deeply nested are refused with an error. */
#ifndef RS_CONFIG_YDOC_H
#define RS_CONFIG_YDOC_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	YDOC_BYTES_MAX = 256 << 10, /* of the file: ten times what RS_REDUCERS_MAX and RS_SHARDS_MAX need */
	YDOC_DEPTH_MAX = 16,        /* depth of nested lists and mappings */
};

enum ydoc_kind { YDOC_TEXT, YDOC_LIST, YDOC_MAPPING };

/* A node of the document, of the kind `kind`. */
struct ydoc_node {
	enum ydoc_kind kind;
	unsigned line, column;   /* from 1 */
	char *text;              /* TEXT: without NUL inside; owned */
	bool nothing;            /* TEXT: empty, "~" or "null", without quotes */
	bool quoted;             /* TEXT: in quotes, or a block: a text also if it looks like a number */
	struct ydoc_node *child; /* LIST: the elements; MAPPING: key, value, key, value, ... */
	struct ydoc_node *next;
	struct ydoc_node *next_made; /* of all nodes of the document */
};

/* A document. Invariant: every node of the tree below `root` is in the list `made`, which
 * owns it. */
struct ydoc {
	char name[256];         /* the name of the file; of a long one its end */
	struct ydoc_node *root; /* NULL: the file has no content */
	struct ydoc_node *made; /* owned: all nodes */
};

/* Parses a text in YAML, or in JSON, which is a part of it. `format` is its name in
 * errors. On success release *ret with ydoc_close(). Errors: RS_ECONFIG with position;
 * RS_ENOMEM. */
int ydoc_parse(struct ydoc *ret, const char *name, const char *format, const void *text, size_t len, struct rs_err *e);
void ydoc_close(struct ydoc *doc);

/* Returns the value of a key; NULL if the mapping (NULL: there is none) does not have it.
 * All keys of the mapping must be texts. */
const struct ydoc_node *ydoc_value(const struct ydoc_node *mapping, const char *key);

/* Stores "file:line:column: key: <what>" with the position of node n in *e and returns
 * RS_ECONFIG. key may be NULL. */
int ydoc_fail(const struct ydoc *doc, const struct ydoc_node *n, const char *key, struct rs_err *e, const char *fmt,
	      ...) __attribute__((format(printf, 5, 6)));

/* Writes a description of a node for "found ...": "a list", "nothing", or its text in
 * quotes, cut if it is long. */
void ydoc_describe(const struct ydoc_node *n, char *buf, size_t size);

#endif
