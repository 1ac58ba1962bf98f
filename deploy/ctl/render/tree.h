/* SPDX-License-Identifier: Apache-2.0 */
/* Changing a YAML document (config/ydoc.h), and writing it. */
#ifndef RS_DEPLOY_CTL_RENDER_TREE_H
#define RS_DEPLOY_CTL_RENDER_TREE_H

#include "config/ydoc.h"

#include <stdio.h>

/* A document that is changed; it owns its nodes. After no_memory parts of it are missing.
 * NULL stands for a node that could not be made, and is ignored. A key in camel case
 * ("machineType") also means the one with underscores ("machine_type"). */
struct tree {
	struct ydoc doc;
	bool no_memory;
	bool underscores; /* new keys are written with them */
};

/* Returns whether a key has this name, which is in camel case. */
bool tree_is_named(const char *key, const char *name);
/* Turns "machine_type" into "machineType" in place. */
void tree_camel(char *key);

/* Return the value of a key; NULL if node is no mapping or has no such key, or none but
 * null. */
struct ydoc_node *tree_get(const struct ydoc_node *node, const char *key);
/* The same, if it is a text. */
const char *tree_text_of(const struct ydoc_node *node, const char *key);

struct ydoc_node *tree_text(struct tree *t, const char *text, bool quoted);
struct ydoc_node *tree_number(struct tree *t, unsigned v);
struct ydoc_node *tree_new(struct tree *t, enum ydoc_kind kind);
struct ydoc_node *tree_copy(struct tree *t, const struct ydoc_node *n);

void tree_append(struct ydoc_node *list, struct ydoc_node *item);
/* Replaces the value of a key, or adds it at the end. */
void tree_set(struct tree *t, struct ydoc_node *mapping, const char *key, struct ydoc_node *value);
void tree_remove(struct ydoc_node *mapping, const char *key);
/* Returns element i of a list; NULL if there is none. */
struct ydoc_node *tree_at(const struct ydoc_node *list, unsigned i);
/* Returns whether a mapping has no keys, or the node is null. */
bool tree_is_empty(const struct ydoc_node *n);

/* Write a node as YAML and as JSON. A text without quotes that JSON does not have gets
 * some. */
void tree_write(const struct ydoc_node *n, FILE *out);
void tree_write_json(const struct ydoc_node *n, FILE *out);
/* Writes a text in double quotes, with the escapes of JSON. */
void tree_write_quoted(const char *text, FILE *out);

#endif
