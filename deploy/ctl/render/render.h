/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of Vertex AI with reducers: from a CustomJob with a section
 * `reductionServerConfig`, which its API does not know, to a job that the API accepts,
 * with the reducers as worker pool 2.
 *
 *     render_read(&r, &opt, ...) == RS_OK; render_yaml(&r, stdout); render_close(&r); */
#ifndef RS_DEPLOY_CTL_RENDER_RENDER_H
#define RS_DEPLOY_CTL_RENDER_RENDER_H

#include "deploy/ctl/render/tree.h"

#include <stdint.h>

/* A table of machine types that a user gives: "machines: {n1-highcpu-16: 32gbit}".
 * Invariant: all values are rates. */
struct render_machines {
	struct ydoc doc;
	const struct ydoc_node *table; /* in doc */
};

/* Reads the text of such a table. Release *ret with render_machines_close(). Errors:
 * RS_ECONFIG "file:line:column: key: what was found, what was expected"; RS_ENOMEM. */
int render_machines_read(struct render_machines *ret, const char *name, const void *text, size_t len, struct rs_err *e);
void render_machines_close(struct render_machines *m);

/* What the command line says; it has precedence over the file. 0 and NULL: nothing. */
struct render_options {
	unsigned count;                         /* reducers */
	const char *machine_type, *image;       /* of reducers */
	uint64_t worker_rate, reducer_rate;     /* of each machine's link, bits a second */
	double price_worker, price_reducer;     /* of a machine for an hour */
	const char *secret;                     /* path of the file with the secret, in all replicas */
	const struct render_machines *machines; /* they come before the table of this program */
};

/* A job. Invariant: spec and pools are in tree; if enabled, pools has at least three
 * elements, the third of which is the reducers', and all numbers are > 0. Texts belong to
 * the tree, the options, or are static. */
struct render {
	struct tree tree;
	struct ydoc_node *spec;  /* the CustomJobSpec: the mapping with the worker pools */
	struct ydoc_node *pools; /* the worker pools */
	char prefix[32];         /* of the paths of its fields: "jobSpec." */
	bool enabled;            /* the job has reducers */
	bool split;              /* replicas of pool 0 have become pool 1 */
	unsigned workers, reducers;
	unsigned needed; /* reducers whose links together are as fast as the workers' */
	uint64_t worker_rate, reducer_rate;
	const char *worker_type, *reducer_type, *image;
	const char *secret;  /* NULL: none is given, but pools may name one themselves */
	bool without_secret; /* the replicas of some pool have none */
	struct render_options opt;
};

/* Reads the text of a job and fills in the reducers. Release *ret with render_close().
 * Errors: RS_ECONFIG "file:line:column: field: what was found, what was expected";
 * RS_ENOMEM. */
int render_read(struct render *ret, const struct render_options *opt, const char *name, const void *text, size_t len,
		struct rs_err *e);
void render_close(struct render *r);

/* Write the job: as YAML in the form of the input; as a shell command that creates it; as
 * arguments of the Python SDK, which has one machine type for all workers (errors:
 * RS_ECONFIG). */
void render_yaml(const struct render *r, FILE *out);
void render_gcloud(const struct render *r, FILE *out);
int render_sdk(const struct render *r, FILE *out, struct rs_err *e);

/* Writes how many reducers the job has and why, what a ring would take, and prices if
 * they are given. */
void render_explain(const struct render *r, FILE *out);

/* Returns the bandwidth of a machine type in bits a second, according to m (NULL: none),
 * else to a table of this date; 0: not known. */
uint64_t render_machine_rate(const struct render_machines *m, const char *type);
extern const char render_machines_date[];

#endif
