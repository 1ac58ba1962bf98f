/* SPDX-License-Identifier: Apache-2.0 */
/* The forms in which people keep jobs: where the worker pools are, and what else has
 * known fields. */
#include "deploy/ctl/render/fields.h"
#include "deploy/ctl/render/render.h"

#include <string.h>

enum { POOLS_MAX = 4 };

static int fail_pools(const struct render *r, const struct ydoc_node *n, struct rs_err *e)
{
	char found[80];

	ydoc_describe(n, found, sizeof found);
	return ydoc_fail(&r->tree.doc, n, "workerPoolSpecs", e, "found %s, expected a list of worker pools",
			 n->kind == YDOC_LIST ? "an empty list" : found);
}

/* Takes the list of worker pools of a Kubeflow pipeline; it must be the only one. A
 * component has an empty one by default. */
static int take_parameter(struct render *r, struct ydoc_node *value, struct rs_err *e)
{
	struct ydoc_node *runtime = tree_get(value, "runtimeValue");
	struct ydoc_node *list = runtime ? tree_get(runtime, "constant") : tree_get(value, "defaultValue");

	if (!list || tree_is_empty(list))
		return RS_OK;
	if (list->kind != YDOC_LIST)
		return fail_pools(r, list, e);
	if (r->pools)
		return ydoc_fail(&r->tree.doc, list, "workerPoolSpecs", e,
				 "found a second list of worker pools, expected one (first in line %u)",
				 r->pools->line);
	r->pools = list;
	return RS_OK;
}

/* Looks for the worker pools of a Kubeflow pipeline below n: the value of an input, or
 * its default. */
static int find_parameter(struct render *r, struct ydoc_node *n, struct rs_err *e)
{
	int rc = RS_OK;

	for (struct ydoc_node *c = n->child; c && !rc; c = c->next) {
		if (n->kind == YDOC_MAPPING) {
			const char *name = c->text;

			c = c->next;
			if (tree_is_named(name, "workerPoolSpecs") && c->kind == YDOC_MAPPING) {
				rc = take_parameter(r, c, e);
				continue;
			}
		}
		rc = find_parameter(r, c, e);
	}
	return rc;
}

static int find_kubeflow(struct render *r, struct rs_err *e)
{
	int rc;

	r->form = RENDER_KUBEFLOW;
	r->spec = r->tree.doc.root;
	rc = find_parameter(r, r->spec, e);
	if (!rc && !r->pools)
		rc =
		    ydoc_fail(&r->tree.doc, r->spec, "worker_pool_specs", e,
			      "not found, expected a Kubeflow pipeline with the worker pools of a CustomTrainingJobOp");
	return rc;
}

/* Makes a job of a list of worker pools, as in the Python SDK. */
static int wrap_list(struct render *r, struct rs_err *e)
{
	r->form = RENDER_LIST;
	r->pools = r->tree.doc.root;
	r->spec = tree_new(&r->tree, YDOC_MAPPING);
	tree_set(&r->tree, r->spec, "workerPoolSpecs", r->pools);
	return r->tree.no_memory ? rs_oom(e, 0, "the job") : RS_OK;
}

/* Goes from the root to the spec with the worker pools. */
static void find_spec(struct render *r)
{
	static const struct {
		const char *key;
		enum render_form form;
	} wrappers[] = {
	    {"trainingTaskInputs", RENDER_PIPELINE}, {"jobSpec", RENDER_JOB}, {"trialJobSpec", RENDER_SEARCH}};

	r->form = RENDER_SPEC;
	r->spec = r->tree.doc.root;
	for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
		size_t used = strlen(r->prefix);
		struct ydoc_node *inner = tree_get(r->spec, wrappers[i].key);

		if (!inner)
			continue;
		r->form = r->form == RENDER_PIPELINE ? r->form : wrappers[i].form;
		r->spec = inner;
		snprintf(r->prefix + used, sizeof r->prefix - used, "%s.", wrappers[i].key);
	}
}

/* Returns whether the pools are written with underscores, as in Python. */
static bool has_underscores(const struct ydoc_node *pools)
{
	for (const struct ydoc_node *pool = pools->child; pool; pool = pool->next)
		for (const struct ydoc_node *key = pool->kind == YDOC_MAPPING ? pool->child : NULL; key;
		     key = key->next->next)
			if (strchr(key->text, '_'))
				return true;
	return false;
}

int render_find_pools(struct render *r, struct rs_err *e)
{
	struct ydoc_node *root = r->tree.doc.root;
	int rc = RS_OK;

	if (!root || root->kind == YDOC_TEXT)
		return rs_fail(e, RS_ECONFIG, "%s: found no mapping, expected a CustomJob with workerPoolSpecs",
			       r->tree.doc.name);
	if (root->kind == YDOC_LIST)
		rc = wrap_list(r, e);
	else if (tree_get(root, "deploymentSpec") || tree_get(root, "pipelineSpec"))
		rc = find_kubeflow(r, e);
	else
		find_spec(r);
	if (rc)
		return rc;
	if (!r->pools)
		r->pools = tree_get(r->spec, "workerPoolSpecs");
	if (!r->pools)
		return ydoc_fail(&r->tree.doc, r->spec, "workerPoolSpecs", e, "not found, expected the worker pools");
	if (r->pools->kind != YDOC_LIST || !r->pools->child)
		return fail_pools(r, r->pools, e);
	if (tree_at(r->pools, POOLS_MAX))
		return ydoc_fail(&r->tree.doc, tree_at(r->pools, POOLS_MAX), "workerPoolSpecs", e,
				 "found a pool too many, expected at most %d", POOLS_MAX);
	r->tree.underscores = has_underscores(r->pools);
	return RS_OK;
}

/* Checks the worker pools alone, of a form around which no fields are known. */
static int check_pools(const struct render *r, struct rs_err *e)
{
	unsigned i = 0;
	int rc = RS_OK;

	for (const struct ydoc_node *pool = r->pools->child; pool && !rc; pool = pool->next) {
		char path[32];

		snprintf(path, sizeof path, "workerPoolSpecs[%u]", i++);
		if (!tree_is_empty(pool))
			rc = fields_check(&r->tree.doc, pool, &fields_pool, path, r->notes, e);
	}
	return rc;
}

static int check_pipeline(const struct render *r, struct rs_err *e)
{
	const struct ydoc_node *inputs = tree_get(r->tree.doc.root, "trainingTaskInputs");
	int rc = fields_check(&r->tree.doc, r->tree.doc.root, &fields_pipeline, "", r->notes, e);

	if (rc)
		return rc;
	return fields_check(&r->tree.doc, inputs, inputs == r->spec ? &fields_spec : &fields_search,
			    "trainingTaskInputs", r->notes, e);
}

int render_check_fields(const struct render *r, struct rs_err *e)
{
	switch (r->form) {
	case RENDER_SPEC:
		return fields_check(&r->tree.doc, r->spec, &fields_spec, "", r->notes, e);
	case RENDER_JOB:
		return fields_check(&r->tree.doc, r->tree.doc.root, &fields_job, "", r->notes, e);
	case RENDER_SEARCH:
		return fields_check(&r->tree.doc, r->tree.doc.root, &fields_search, "", r->notes, e);
	case RENDER_PIPELINE:
		return check_pipeline(r, e);
	default:
		return check_pools(r, e);
	}
}
