/* SPDX-License-Identifier: Apache-2.0 */
/* A YAML file as a small tree whose nodes know where they stand. Of YAML it takes mappings, lists and text; anchors,
 * tags, directives and further documents are refused with a clear error, and so is what is too large or nested. */
#ifndef RS_CONFIG_YDOC_H
#define RS_CONFIG_YDOC_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	YDOC_BYTES_MAX = 256 << 10, /* of the file: ten times what RS_REDUCERS_MAX and RS_SHARDS_MAX need */
	YDOC_DEPTH_MAX = 8,         /* lists and mappings in each other */
};

enum ydoc_kind { YDOC_TEXT, YDOC_LIST, YDOC_MAPPING };

struct ydoc_node {
	enum ydoc_kind kind;
	unsigned line, column;   /* from 1 */
	char *text;              /* TEXT: without NUL inside; owned */
	bool nothing;            /* TEXT: nothing, "~" or "null", without quotes */
	struct ydoc_node *child; /* LIST: the elements; MAPPING: key, value, key, value, ... */
	struct ydoc_node *next;
	struct ydoc_node *next_made; /* of all nodes of the document */
};

struct ydoc {
	char name[256];         /* of the file; the end of a longer one */
	struct ydoc_node *root; /* NULL for a file without content */
	struct ydoc_node *made; /* owned: all nodes */
};

/* On success *ret must be released with ydoc_close(). Errors: RS_ECONFIG with position; RS_ENOMEM. */
int ydoc_parse(struct ydoc *ret, const char *name, const void *text, size_t len, struct rs_err *e);
void ydoc_close(struct ydoc *doc);

/* Stores "file:line:column: key: <what>" with the position of node n in *e and returns RS_ECONFIG. key may be NULL. */
int ydoc_fail(const struct ydoc *doc, const struct ydoc_node *n, const char *key, struct rs_err *e, const char *fmt,
	      ...) __attribute__((format(printf, 5, 6)));

/* Writes what a node is, for "found ...": "a list", "nothing", or its text in quotes, cut when long. */
void ydoc_describe(const struct ydoc_node *n, char *buf, size_t size);

#endif
