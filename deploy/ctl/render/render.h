/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of Vertex AI with reducers: from a CustomJob with a section
 * `reductionServerConfig`, which its API does not know, to a job that the API accepts,
 * with the reducers as worker pool 2.
 *
 *     render_read(&r, &opt, ...) == RS_OK; render_yaml(&r, stdout); render_close(&r); */
#ifndef RS_DEPLOY_CTL_RENDER_RENDER_H
#define RS_DEPLOY_CTL_RENDER_RENDER_H

#include "deploy/ctl/render/command.h"
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

/* What a file describes. */
enum render_form {
	RENDER_SPEC,     /* a CustomJobSpec */
	RENDER_JOB,      /* a CustomJob */
	RENDER_SEARCH,   /* a HyperparameterTuningJob */
	RENDER_PIPELINE, /* a TrainingPipeline */
	RENDER_LIST,     /* a list of worker pools */
	RENDER_KUBEFLOW  /* a compiled Kubeflow pipeline */
};

/* A job. Invariant: spec and pools are in tree; if enabled, pools has at least three
 * elements, the third of which is the reducers', workers and reducers are > 0, and so are
 * rates and `needed` unless the file says how many reducers there are. Texts belong to
 * the tree, the options, or are static. */
struct render {
	struct tree tree;
	enum render_form form;
	bool json;                  /* the file is JSON */
	struct command_place place; /* what a command of gcloud says beside the job */
	struct ydoc_node *spec;     /* the mapping with the worker pools; of Kubeflow: the root */
	struct ydoc_node *pools;    /* the worker pools */
	char prefix[48];            /* of the paths of its fields: "jobSpec." */
	FILE *notes;                /* while it is read: warnings, a line each, to notes_text */
	char *notes_text;           /* owned */
	size_t notes_len;
	bool enabled;                   /* the job has reducers */
	const struct ydoc_node *google; /* the image of Google's reducers, which is replaced; NULL: none */
	bool split;                     /* replicas of pool 0 have become pool 1 */
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

/* Parts of render_read. Find the worker pools, and check all fields around them. Errors:
 * RS_ECONFIG, RS_ENOMEM. */
int render_find_pools(struct render *r, struct rs_err *e);
int render_check_fields(const struct render *r, struct rs_err *e);

/* Write the job: as YAML, or as JSON if that is the input, in the form of the input; as a
 * shell command that creates it; as arguments of the Python SDK. Every field is written,
 * or is an error, and then nothing is written. Errors: RS_ECONFIG, RS_ENOMEM. */
void render_yaml(const struct render *r, FILE *out);
int render_gcloud(const struct render *r, FILE *out, struct rs_err *e);
int render_sdk(const struct render *r, FILE *out, struct rs_err *e);

/* Writes warnings, how many reducers the job has and why, what a ring would take, and
 * prices if they are given. */
void render_explain(const struct render *r, FILE *out);

/* Returns the bandwidth of a machine type in bits a second, according to m (NULL: none),
 * else to a table of this date; 0: not known. */
uint64_t render_machine_rate(const struct render_machines *m, const char *type);
extern const char render_machines_date[];

enum render_fit { RENDER_FITS, RENDER_UNKNOWN, RENDER_WRONG, RENDER_WRONG_COUNT };

/* Checks whether a machine type can have `count` (0: not said) of an accelerator (NULL:
 * none). If it cannot, writes what was expected. UNKNOWN: the table has not this type, or
 * not this accelerator. */
enum render_fit render_machine_fit(const char *type, const char *accelerator, unsigned count, char *expected,
				   size_t size);

#endif
