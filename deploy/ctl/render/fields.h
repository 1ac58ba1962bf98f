/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of the public API of Vertex AI: those of a job and of all its parts except
 * studies, data sets and models, which are taken as they are. No function has a state. */
#ifndef RS_DEPLOY_CTL_RENDER_FIELDS_H
#define RS_DEPLOY_CTL_RENDER_FIELDS_H

#include "deploy/ctl/render/tree.h"

enum fields_kind {
	FIELDS_TEXT,
	FIELDS_NUMBER,
	FIELDS_SWITCH,  /* true or false */
	FIELDS_MESSAGE, /* of its own fields */
	FIELDS_TEXTS,   /* keys of the user with texts, such as labels */
	FIELDS_STUDY,   /* messages whose fields are not in the tables; none has keys of the user */
	FIELDS_ANY
};

struct fields_message;

struct fields_field {
	const char *name; /* as in the REST API: machineType */
	enum fields_kind kind;
	bool list;                       /* of what kind says */
	const struct fields_message *of; /* MESSAGE */
};

struct fields_message {
	const char *name;
	const struct fields_field *field;
	size_t n;
};

extern const struct fields_message fields_job, fields_search, fields_pipeline, fields_spec, fields_pool;
/* Revision of the API's description that the tables are from: "2026-11-06". */
extern const char fields_date[];

/* Returns the field of a message that has this name, in camel case or with underscores;
 * NULL: there is none. */
const struct fields_field *fields_find(const struct fields_message *m, const char *name);

/* Checks that a node has the fields of a message, each once, with values of their kinds.
 * `path` comes before their names in errors. An unknown field that looks like a known one
 * is an error; others are warnings, a line each, to `notes`. Errors: RS_ECONFIG. */
int fields_check(const struct ydoc *doc, const struct ydoc_node *n, const struct fields_message *m, const char *path,
		 FILE *notes, struct rs_err *e);

/* Renames the keys of a node, and below it, to those of the REST API. */
void fields_rename(struct ydoc_node *n, const struct fields_message *m);

#endif
