/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/render/render.h"

#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"

#include <stdlib.h>
#include <string.h>

enum { FIELD = 128 };

static const char default_machine[] = "n1-highcpu-16";

/* The section `reductionServerConfig`, or wanna's `reduction_server`. */
struct section {
	const struct ydoc_node *node; /* NULL: there is none */
	char path[FIELD];
	int pool; /* it is in this worker pool; -1: it is not in a pool */
};

/* The keys of the section, and their names in wanna's. */
enum key { KEY_ENABLE, KEY_COUNT, KEY_MACHINE, KEY_IMAGE, KEY_SECRET, KEY_BANDWIDTH, KEYS };
static const char *const keys[KEYS][2] = {
    [KEY_ENABLE] = {"enable", "enable"},
    [KEY_COUNT] = {"replicaCount", "replica_count"},
    [KEY_MACHINE] = {"machineType", "machine_type"},
    [KEY_IMAGE] = {"imageUri", "container_uri"},
    [KEY_SECRET] = {"secret", "secret"},
    [KEY_BANDWIDTH] = {"bandwidth", "bandwidth"},
};

static int fail_found(const struct render *r, const struct ydoc_node *n, const char *field, const char *expected,
		      struct rs_err *e)
{
	char found[80];

	ydoc_describe(n, found, sizeof found);
	return ydoc_fail(&r->tree.doc, n, field, e, "found %s, expected %s", found, expected);
}

/* Reads a whole number from 1 to max; Kubeflow writes 8.0. */
static int read_count(const struct render *r, const struct ydoc_node *n, const char *field, unsigned max, unsigned *ret,
		      struct rs_err *e)
{
	char *end = NULL, expected[64];
	unsigned long v = 0;

	if (n->kind == YDOC_TEXT && n->text[0] >= '0' && n->text[0] <= '9')
		v = strtoul(n->text, &end, 10);
	snprintf(expected, sizeof expected, "a whole number from 1 to %u", max);
	if (!end || (*end && strcmp(end, ".0") != 0) || v < 1 || v > max)
		return fail_found(r, n, field, expected, e);
	*ret = (unsigned)v;
	return RS_OK;
}

/* JSON, and so the API, has texts as keys. */
static int check_keys(const struct render *r, struct rs_err *e)
{
	for (const struct ydoc_node *n = r->tree.doc.made; n; n = n->next_made)
		for (const struct ydoc_node *key = n->kind == YDOC_MAPPING ? n->child : NULL; key;
		     key = key->next->next)
			if (key->kind != YDOC_TEXT)
				return fail_found(r, key, "a key", "a text", e);
	return RS_OK;
}

/* Takes the section out of a mapping, if it is there. */
static int take_section(const struct render *r, struct ydoc_node *from, int pool, const char *path, struct section *ret,
			struct rs_err *e)
{
	static const char *const names[] = {"reductionServerConfig", "reduction_server"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		const struct ydoc_node *n = tree_get(from, names[i]);
		char field[FIELD];

		if (!n)
			continue;
		snprintf(field, sizeof field, "%s%s", path, names[i]);
		if (ret->node)
			return ydoc_fail(&r->tree.doc, n, field, e,
					 "found a second time, expected once (first in line %u)", ret->node->line);
		if (n->kind != YDOC_MAPPING)
			return fail_found(r, n, field, "a mapping such as {enable: true}", e);
		ret->node = n;
		ret->pool = pool;
		memcpy(ret->path, field, sizeof field);
		tree_remove(from, names[i]);
	}
	return RS_OK;
}

static int find_section(const struct render *r, struct section *ret, struct rs_err *e)
{
	char path[FIELD];
	int i = 0, rc = take_section(r, r->tree.doc.root, -1, "", ret, e);

	if (!rc && r->spec != r->tree.doc.root)
		rc = take_section(r, r->spec, -1, r->prefix, ret, e);
	for (struct ydoc_node *pool = r->pools->child; pool && !rc; pool = pool->next, i++) {
		snprintf(path, sizeof path, "%sworkerPoolSpecs[%d].", r->prefix, i);
		if (pool->kind != YDOC_MAPPING && !tree_is_empty(pool))
			rc = fail_found(r, pool, path, "a worker pool", e);
		else
			rc = take_section(r, pool, i, path, ret, e);
	}
	return rc;
}

static int fail_key(const struct render *r, const struct ydoc_node *name, const struct section *s, struct rs_err *e)
{
	const char *near = NULL;

	for (int i = 0; name->kind == YDOC_TEXT && i < KEYS && !near; i++)
		if (schema_is_near(name->text, keys[i][0], schema_distance(name->text, keys[i][0])))
			near = keys[i][0];
	return ydoc_fail(&r->tree.doc, name, s->path, e, "found unknown key \"%.40s\", expected %s",
			 name->kind == YDOC_TEXT ? name->text : "",
			 near ? near : "enable, replicaCount, machineType, imageUri, bandwidth or secret");
}

static int read_value(struct render *r, enum key key, const struct ydoc_node *n, const char *field, struct rs_err *e)
{
	const struct schema_key *rate = schema_find("reducers", "bandwidth");
	struct rs_reducer reducer;

	if (n->kind != YDOC_TEXT || n->nothing)
		return fail_found(r, n, field, "a value", e);
	switch (key) {
	case KEY_ENABLE:
		if (strcmp(n->text, "true") != 0 && strcmp(n->text, "false") != 0)
			return fail_found(r, n, field, "true or false", e);
		r->enabled = strcmp(n->text, "true") == 0;
		return RS_OK;
	case KEY_COUNT:
		return read_count(r, n, field, RS_REDUCERS_MAX, &r->reducers, e);
	case KEY_MACHINE:
		r->reducer_type = n->text;
		return RS_OK;
	case KEY_IMAGE:
		r->image = n->text;
		return RS_OK;
	case KEY_SECRET:
		r->secret = n->text;
		return RS_OK;
	default:
		if (!value_parse(rate, n->text, &reducer) || !reducer.bandwidth)
			return fail_found(r, n, field, "a bandwidth such as 32gbit", e);
		r->reducer_rate = reducer.bandwidth;
		return RS_OK;
	}
}

/* A section without `enable` is enabled. */
static int read_section(struct render *r, const struct section *s, struct rs_err *e)
{
	bool seen[KEYS] = {false};

	r->enabled = s->node || r->opt.count || r->opt.image || r->google;
	for (const struct ydoc_node *name = s->node ? s->node->child : NULL; name; name = name->next->next) {
		char field[FIELD + 32];
		int key = 0, rc;

		while (key < KEYS && (name->kind != YDOC_TEXT ||
				      (strcmp(name->text, keys[key][0]) != 0 && strcmp(name->text, keys[key][1]) != 0)))
			key++;
		if (key == KEYS)
			return fail_key(r, name, s, e);
		snprintf(field, sizeof field, "%s.%s", s->path, name->text);
		if (seen[key])
			return ydoc_fail(&r->tree.doc, name, field, e, "found a second time, expected once");
		seen[key] = true;
		rc = read_value(r, (enum key)key, name->next, field, e);
		if (rc)
			return rc;
	}
	if (s->node || r->enabled)
		return RS_OK;
	return ydoc_fail(&r->tree.doc, r->pools, "reductionServerConfig", e,
			 "not found, expected it in a worker pool or beside workerPoolSpecs, or the options "
			 "--reduction-server-count and --reduction-server-image");
}

/* Returns whether an image is that of Google's reducers, with any tag or digest. */
static bool is_google(const char *image)
{
	static const char name[] = "/training/reductionserver";
	const char *at = image ? strstr(image, name) : NULL;

	return at && strchr(":@", at[sizeof name - 1]); /* or the end */
}

/* Finds Google's reducers, which must be worker pool 2. */
static int find_google(struct render *r, struct rs_err *e)
{
	unsigned i = 0;

	for (const struct ydoc_node *pool = r->pools->child; pool; pool = pool->next, i++) {
		const struct ydoc_node *image = tree_get(tree_get(pool, "containerSpec"), "imageUri");
		char field[FIELD];

		if (!image || image->kind != YDOC_TEXT || !is_google(image->text))
			continue;
		snprintf(field, sizeof field, "%sworkerPoolSpecs[%u].containerSpec.imageUri", r->prefix, i);
		if (i != 2)
			return ydoc_fail(
			    &r->tree.doc, image, field, e,
			    "found Google's reducers, expected them as worker pool 2; before it, {} stands "
			    "for a pool without replicas");
		r->google = image;
	}
	return RS_OK;
}

/* Google's image takes no command, arguments or package; those that stand there are not
 * for ours. */
static int check_google(const struct render *r, const struct ydoc_node *pool, struct rs_err *e)
{
	static const char *const keys_of_image[] = {"command", "args"};
	const struct ydoc_node *container = tree_get(pool, "containerSpec");
	char field[FIELD];

	for (size_t i = 0; i < sizeof keys_of_image / sizeof keys_of_image[0]; i++) {
		const struct ydoc_node *n = tree_get(container, keys_of_image[i]);

		snprintf(field, sizeof field, "%sworkerPoolSpecs[2].containerSpec.%s", r->prefix, keys_of_image[i]);
		if (n && !tree_is_empty(n))
			return ydoc_fail(&r->tree.doc, n, field, e,
					 "found a value, expected none: the reducers' image starts without it");
	}
	snprintf(field, sizeof field, "%sworkerPoolSpecs[2].containerSpec.imageUri", r->prefix);
	if (!r->image && !r->opt.image)
		return ydoc_fail(&r->tree.doc, r->google, field, e,
				 "found Google's reducers; expected the image that replaces them: "
				 "--reduction-server-image");
	return RS_OK;
}

/* Takes what a third pool says that stands in the file already. It must be that of
 * Google's reducers, have the section, or be empty. */
static int take_third_pool(struct render *r, const struct section *s, struct rs_err *e)
{
	struct ydoc_node *pool = tree_at(r->pools, 2), *n;
	char field[FIELD];

	if (!pool || tree_is_empty(pool))
		return RS_OK;
	snprintf(field, sizeof field, "%sworkerPoolSpecs[2]", r->prefix);
	if (s->pool != 2 && !r->google)
		return ydoc_fail(&r->tree.doc, pool, field, e,
				 "found a pool of its own, expected none or {}: this is the pool of the reducers");
	if (!r->reducer_type)
		r->reducer_type = tree_text_of(tree_get(pool, "machineSpec"), "machineType");
	if (r->google && check_google(r, pool, e))
		return e->code;
	if (!r->image && !r->google)
		r->image = tree_text_of(tree_get(pool, "containerSpec"), "imageUri");
	n = tree_get(pool, "replicaCount");
	snprintf(field, sizeof field, "%sworkerPoolSpecs[2].replicaCount", r->prefix);
	return n && !r->reducers ? read_count(r, n, field, RS_REDUCERS_MAX, &r->reducers, e) : RS_OK;
}

/* Reads the replicas of pool 0 or 1, which must have some. Of several primary replicas
 * all but one become pool 1. */
static int read_workers(struct render *r, unsigned i, struct rs_err *e)
{
	struct ydoc_node *pool = tree_at(r->pools, i), *n = pool ? tree_get(pool, "replicaCount") : NULL;
	char field[FIELD];
	unsigned count = 1;
	int rc;

	if (!pool || tree_is_empty(pool))
		return RS_OK;
	snprintf(field, sizeof field, "%sworkerPoolSpecs[%u].replicaCount", r->prefix, i);
	rc = n ? read_count(r, n, field, RS_WORLD_MAX, &count, e) : RS_OK;
	if (rc)
		return rc;
	r->workers += count;
	if (i > 0 || count == 1)
		return RS_OK;
	if (tree_at(r->pools, 1) && !tree_is_empty(tree_at(r->pools, 1)))
		return fail_found(r, n, field, "1: the primary replica; further ones are workerPoolSpecs[1]", e);
	r->split = true;
	return RS_OK;
}

/* Finds the bandwidth of the slowest worker; it may be unknown if the number of reducers
 * is known. */
static int rate_workers(struct render *r, struct rs_err *e)
{
	bool unknown = false;

	for (unsigned i = 0; i < 2; i++) {
		const struct ydoc_node *pool = tree_at(r->pools, i), *machine, *type;
		char field[FIELD];
		uint64_t rate;

		if (!pool || tree_is_empty(pool))
			continue;
		machine = tree_get(pool, "machineSpec");
		type = tree_get(machine, "machineType");
		snprintf(field, sizeof field, "%sworkerPoolSpecs[%u].machineSpec.machineType", r->prefix, i);
		rate = r->opt.worker_rate;
		if (!rate && !type)
			return ydoc_fail(&r->tree.doc, machine ? machine : pool, field, e,
					 "not found, expected a machine type, or the option --bandwidth");
		if (!rate && type->kind == YDOC_TEXT)
			rate = render_machine_rate(r->opt.machines, type->text);
		if (!rate && !r->opt.count && !r->reducers)
			return fail_found(r, type, field, "a machine type whose bandwidth is known, or --bandwidth", e);
		unknown |= !rate;
		if (!r->worker_rate || rate < r->worker_rate) {
			r->worker_rate = rate;
			r->worker_type = type && type->kind == YDOC_TEXT ? type->text : "--bandwidth";
		}
	}
	if (unknown)
		r->worker_rate = 0;
	return RS_OK;
}

/* Completes machine type, image, bandwidth and number of the reducers. */
static int size_reducers(struct render *r, const struct section *s, struct rs_err *e)
{
	const struct ydoc_node *at = s->node ? s->node : r->pools;
	const char *path = s->node ? s->path : "reductionServerConfig";
	char field[FIELD + 32];

	r->reducers = r->opt.count ? r->opt.count : r->reducers;
	r->image = r->opt.image ? r->opt.image : r->image;
	r->secret = r->opt.secret ? r->opt.secret : r->secret;
	if (r->opt.machine_type)
		r->reducer_type = r->opt.machine_type;
	if (!r->reducer_type)
		r->reducer_type = default_machine;
	if (r->opt.reducer_rate)
		r->reducer_rate = r->opt.reducer_rate;
	if (!r->reducer_rate)
		r->reducer_rate = render_machine_rate(r->opt.machines, r->reducer_type);

	snprintf(field, sizeof field, "%s.bandwidth", path);
	if (!r->reducer_rate && !r->reducers)
		return ydoc_fail(
		    &r->tree.doc, at, field, e,
		    "not found, and the bandwidth of machine type \"%.40s\" is not known; expected it here or "
		    "as --reducer-bandwidth",
		    r->reducer_type);

	snprintf(field, sizeof field, "%s.imageUri", path);
	if (!r->image)
		return ydoc_fail(&r->tree.doc, at, field, e,
				 "not found, expected the image with reduction-server, or --reduction-server-image");
	if (!r->worker_rate || !r->reducer_rate)
		return RS_OK;
	r->needed = (unsigned)((r->workers * r->worker_rate + r->reducer_rate - 1) / r->reducer_rate);
	if (!r->reducers && r->needed > RS_REDUCERS_MAX)
		return ydoc_fail(&r->tree.doc, at, path, e, "%u reducers would be needed, at most %d are possible",
				 r->needed, RS_REDUCERS_MAX);
	if (!r->reducers)
		r->reducers = r->needed;
	return RS_OK;
}

/* Returns the mapping with the variables of a pool; NULL if the pool has none, as an
 * empty one. */
static struct ydoc_node *container_of(const struct ydoc_node *pool)
{
	struct ydoc_node *spec = tree_get(pool, "containerSpec");

	return spec ? spec : tree_get(pool, "pythonPackageSpec");
}

static bool has_variable(const struct ydoc_node *pool, const char *name)
{
	const struct ydoc_node *env = tree_get(container_of(pool), "env");

	for (const struct ydoc_node *n = env ? env->child : NULL; n; n = n->next)
		if (tree_text_of(n, "name") && strcmp(tree_text_of(n, "name"), name) == 0)
			return true;
	return false;
}

/* Gives a variable to the containers of a pool, unless the pool does so itself. */
static void add_variable(struct render *r, struct ydoc_node *pool, const char *name, const char *value)
{
	struct ydoc_node *spec = container_of(pool), *env = tree_get(spec, "env"), *variable;

	if (has_variable(pool, name))
		return;
	if (!env && spec) {
		env = tree_new(&r->tree, YDOC_LIST);
		tree_set(&r->tree, spec, "env", env);
	}
	variable = tree_new(&r->tree, YDOC_MAPPING);
	tree_set(&r->tree, variable, "name", tree_text(&r->tree, name, false));
	tree_set(&r->tree, variable, "value", tree_text(&r->tree, value, true));
	tree_append(env, variable);
}

/* Tells the workers the reducers' bandwidth, and all the path of the secret. */
static void add_variables(struct render *r)
{
	char rate[32];

	value_format_rate(r->reducer_rate, rate, sizeof rate);
	for (unsigned i = 0; i < 3; i++) {
		struct ydoc_node *pool = tree_at(r->pools, i);

		if (i < 2 && r->reducer_rate)
			add_variable(r, pool, "REDUCTION_BANDWIDTH", rate);
		if (r->secret)
			add_variable(r, pool, "REDUCTION_SECRET", r->secret);
		if (container_of(pool) && !has_variable(pool, "REDUCTION_SECRET"))
			r->without_secret = true;
	}
}

/* Puts the reducers into the third pool, and an empty pool before it if there is one pool
 * of workers. */
static void add_reducers(struct render *r)
{
	struct tree *t = &r->tree;
	struct ydoc_node *pool, *machine, *container;

	if (r->split) {
		pool = tree_copy(t, tree_at(r->pools, 0));
		tree_set(t, tree_at(r->pools, 0), "replicaCount", tree_number(t, 1));
		tree_set(t, pool, "replicaCount", tree_number(t, r->workers - 1));
		if (pool && tree_at(r->pools, 1)) /* an empty pool, which is replaced */
			pool->next = tree_at(r->pools, 1)->next;
		tree_at(r->pools, 0)->next = pool;
	}
	while (!t->no_memory && !tree_at(r->pools, 2))
		tree_append(r->pools, tree_new(t, YDOC_MAPPING));
	if (t->no_memory)
		return;
	pool = tree_at(r->pools, 2);
	pool->kind = YDOC_MAPPING; /* it may have been null */
	machine = tree_get(pool, "machineSpec");
	container = tree_get(pool, "containerSpec");
	if (!machine)
		tree_set(t, pool, "machineSpec", machine = tree_new(t, YDOC_MAPPING));
	tree_set(t, pool, "replicaCount", tree_number(t, r->reducers));
	if (!container)
		tree_set(t, pool, "containerSpec", container = tree_new(t, YDOC_MAPPING));
	tree_set(t, machine, "machineType", tree_text(t, r->reducer_type, true));
	tree_set(t, container, "imageUri", tree_text(t, r->image, true));
	add_variables(r);
}

/* Checks that the machine of a pool can have its accelerators. A type or accelerator that
 * the table has not is a warning. */
static int check_machine(const struct render *r, unsigned i, struct rs_err *e)
{
	const struct ydoc_node *spec = tree_get(tree_at(r->pools, i), "machineSpec");
	const struct ydoc_node *type = tree_get(spec, "machineType"), *its = tree_get(spec, "acceleratorType");
	const struct ydoc_node *count = tree_get(spec, "acceleratorCount");
	char expected[160], field[FIELD];
	bool none = !its || strcmp(its->text, "ACCELERATOR_TYPE_UNSPECIFIED") == 0,
	     split = tree_get(spec, "gpuPartitionSize");
	enum render_fit fit;

	if (!type)
		return RS_OK;
	fit = render_machine_fit(type->text, none ? NULL : its->text,
				 count && !split ? (unsigned)strtoul(count->text, NULL, 10) : 0, expected,
				 sizeof expected);
	snprintf(field, sizeof field, "%sworkerPoolSpecs[%u].machineSpec.%s", r->prefix, i,
		 fit == RENDER_WRONG_COUNT ? "acceleratorCount" : "acceleratorType");
	if (fit == RENDER_WRONG || fit == RENDER_WRONG_COUNT)
		return fail_found(r, fit == RENDER_WRONG ? its : count, field, expected, e);
	if (fit == RENDER_UNKNOWN)
		fprintf(r->notes, "warning: %s:%u:%u: the table of machines of %s has no %.40s%s%.40s; not checked\n",
			r->tree.doc.name, type->line, type->column, render_machines_date, type->text,
			none ? "" : " with ", none ? "" : its->text);
	return RS_OK;
}

static int fill_in(struct render *r, struct rs_err *e)
{
	struct section s = {.pool = -1};
	int rc = check_keys(r, e);

	if (!rc)
		rc = render_find_pools(r, e);
	if (!rc)
		rc = find_section(r, &s, e);
	if (!rc)
		rc = find_google(r, e);
	if (!rc)
		rc = read_section(r, &s, e);
	if (!rc)
		rc = render_check_fields(r, e);
	for (unsigned i = 0; !rc && tree_at(r->pools, i); i++)
		rc = check_machine(r, i, e);
	if (rc || !r->enabled)
		return rc;
	rc = take_third_pool(r, &s, e);
	for (unsigned i = 0; i < 2 && !rc; i++)
		rc = read_workers(r, i, e);
	if (!rc && !r->workers)
		rc = ydoc_fail(&r->tree.doc, r->pools, "workerPoolSpecs", e,
			       "found no workers, expected some in pool 0");
	if (!rc)
		rc = rate_workers(r, e);
	if (!rc)
		rc = size_reducers(r, &s, e);
	if (rc)
		return rc;
	add_reducers(r);
	return r->tree.no_memory ? rs_oom(e, 0, "the job") : RS_OK;
}

/* Returns whether a text begins like JSON. */
static bool is_json(const char *text, size_t len)
{
	size_t i = 0;

	while (i < len && strchr(" \t\r\n", text[i]))
		i++;
	return i < len && (text[i] == '{' || text[i] == '[');
}

int render_read(struct render *ret, const struct render_options *opt, const char *name, const void *text, size_t len,
		struct rs_err *e)
{
	struct render r = {.opt = *opt, .json = is_json(text, len)};
	int rc;

	if (command_is(text, len))
		rc = command_read(&r.tree, &r.place, name, text, len, e);
	else
		rc = ydoc_parse(&r.tree.doc, name, "YAML", text, len, e);
	if (rc)
		return rc;
	r.notes = open_memstream(&r.notes_text, &r.notes_len);
	rc = r.notes ? fill_in(&r, e) : rs_oom(e, 0, "the job");
	if (r.notes && fclose(r.notes) && !rc)
		rc = rs_oom(e, 0, "the job");
	r.notes = NULL; /* it wrote to the text and length of this r */
	if (rc) {
		render_close(&r);
		return rc;
	}
	*ret = r;
	return RS_OK;
}

void render_close(struct render *r)
{
	ydoc_close(&r->tree.doc);
	free(r->notes_text);
}
