/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of the Python SDK that create a job: those of CustomContainerTrainingJob and
 * of its run(). A field that they cannot carry is an error. */
#include "deploy/ctl/render/fields.h"
#include "deploy/ctl/render/render.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 160 };

enum kind { SDK_TEXT, SDK_NUMBER, SDK_SWITCH, SDK_SECONDS, SDK_TEXTS, SDK_LABELS, SDK_VARIABLES, SDK_IMPLIED };

/* Where an argument belongs: to the class, or to run(). */
enum place { SDK_CLASS, SDK_RUN, SDK_NOWHERE };

/* A field, its path from the job, the spec or the first pool on, and its argument. */
static const struct argument {
	const char *path, *name;
	enum kind kind;
	enum place place;
} arguments[] = {
    {"displayName", "display_name", SDK_TEXT, SDK_CLASS},
    {"labels", "labels", SDK_LABELS, SDK_CLASS},
    {"encryptionSpec.kmsKeyName", "training_encryption_spec_key_name", SDK_TEXT, SDK_CLASS},
    {"containerSpec.imageUri", "container_uri", SDK_TEXT, SDK_CLASS},
    {"containerSpec.command", "command", SDK_TEXTS, SDK_CLASS},
    {"modelId", "model_id", SDK_TEXT, SDK_RUN},
    {"parentModel", "parent_model", SDK_TEXT, SDK_RUN},
    {"baseOutputDirectory.outputUriPrefix", "base_output_dir", SDK_TEXT, SDK_RUN},
    {"serviceAccount", "service_account", SDK_TEXT, SDK_RUN},
    {"network", "network", SDK_TEXT, SDK_RUN},
    {"tensorboard", "tensorboard", SDK_TEXT, SDK_RUN},
    {"enableWebAccess", "enable_web_access", SDK_SWITCH, SDK_RUN},
    {"enableDashboardAccess", "enable_dashboard_access", SDK_SWITCH, SDK_RUN},
    {"persistentResourceId", "persistent_resource_id", SDK_TEXT, SDK_RUN},
    {"scheduling.timeout", "timeout", SDK_SECONDS, SDK_RUN},
    {"scheduling.restartJobOnWorkerRestart", "restart_job_on_worker_restart", SDK_SWITCH, SDK_RUN},
    {"scheduling.disableRetries", "disable_retries", SDK_SWITCH, SDK_RUN},
    {"scheduling.maxWaitDuration", "max_wait_duration", SDK_SECONDS, SDK_RUN},
    {"scheduling.strategy", "scheduling_strategy", SDK_TEXT, SDK_RUN},
    {"machineSpec.machineType", "machine_type", SDK_TEXT, SDK_RUN},
    {"machineSpec.acceleratorType", "accelerator_type", SDK_TEXT, SDK_RUN},
    {"machineSpec.acceleratorCount", "accelerator_count", SDK_NUMBER, SDK_RUN},
    {"machineSpec.tpuTopology", "tpu_topology", SDK_TEXT, SDK_RUN},
    {"machineSpec.reservationAffinity.reservationAffinityType", "reservation_affinity_type", SDK_TEXT, SDK_RUN},
    {"machineSpec.reservationAffinity.key", "reservation_affinity_key", SDK_TEXT, SDK_RUN},
    {"machineSpec.reservationAffinity.values", "reservation_affinity_values", SDK_TEXTS, SDK_RUN},
    {"diskSpec.bootDiskType", "boot_disk_type", SDK_TEXT, SDK_RUN},
    {"diskSpec.bootDiskSizeGb", "boot_disk_size_gb", SDK_NUMBER, SDK_RUN},
    {"containerSpec.args", "args", SDK_TEXTS, SDK_RUN},
    {"containerSpec.env", "environment_variables", SDK_VARIABLES, SDK_RUN},
    {"jobSpec", NULL, SDK_IMPLIED, SDK_NOWHERE},
    {"trainingTaskInputs", NULL, SDK_IMPLIED, SDK_NOWHERE},
    {"trainingTaskDefinition", NULL, SDK_IMPLIED, SDK_NOWHERE},
    {"workerPoolSpecs", NULL, SDK_IMPLIED, SDK_NOWHERE},
    {"replicaCount", NULL, SDK_IMPLIED, SDK_NOWHERE},
};

/* A walk over the fields: it writes those of one place. */
struct walk {
	const struct render *r;
	enum place place;
	const char *prefix; /* of paths in errors: "jobSpec." */
	FILE *out;
	struct rs_err *e;
};

static int fail(const struct walk *w, const struct ydoc_node *n, const char *path, const char *what)
{
	char field[2 * PATH_SIZE];

	snprintf(field, sizeof field, "%s%s", w->prefix, path);
	return ydoc_fail(&w->r->tree.doc, n, field, w->e, "found %s", what);
}

static void write_texts(const struct ydoc_node *list, FILE *out)
{
	fputc('[', out);
	for (const struct ydoc_node *n = list->child; n; n = n->next) {
		tree_write_quoted(n->text, out);
		fputs(n->next ? ", " : "", out);
	}
	fputc(']', out);
}

static void write_labels(const struct ydoc_node *labels, FILE *out)
{
	fputc('{', out);
	for (const struct ydoc_node *name = labels->child; name; name = name->next->next) {
		tree_write_quoted(name->text, out);
		fputs(": ", out);
		tree_write_quoted(name->next->text, out);
		fputs(name->next->next ? ", " : "", out);
	}
	fputc('}', out);
}

static int write_variables(const struct walk *w, const struct ydoc_node *env, const char *path)
{
	fputc('{', w->out);
	for (const struct ydoc_node *n = env->child; n; n = n->next) {
		const char *name = tree_text_of(n, "name"), *value = tree_text_of(n, "value");

		for (const struct ydoc_node *key = n->child; key; key = key->next->next)
			if (strcmp(key->text, "name") != 0 && strcmp(key->text, "value") != 0)
				return fail(w, key, path, "a variable with more than name and value, expected no more");
		if (!name)
			return fail(w, n, path, "a variable without name, expected one");
		tree_write_quoted(name, w->out);
		fputs(": ", w->out);
		tree_write_quoted(value ? value : "", w->out);
		fputs(n->next ? ", " : "", w->out);
	}
	fputc('}', w->out);
	return RS_OK;
}

/* Writes a duration of the API, "3600s", as the whole seconds of the SDK. */
static int write_seconds(const struct walk *w, const struct ydoc_node *n, const char *path)
{
	size_t digits = strspn(n->text, "0123456789");

	if (!digits || strcmp(n->text + digits, "s") != 0)
		return fail(w, n, path, "a duration that is not in whole seconds, expected some such as 3600s");
	fprintf(w->out, "%.*s", (int)digits, n->text);
	return RS_OK;
}

/* Writes one argument. The value was checked by fields_check(). */
static int write_argument(const struct walk *w, const struct argument *a, const struct ydoc_node *n)
{
	int rc = RS_OK;

	if (a->place != w->place || tree_is_empty(n))
		return RS_OK;
	fprintf(w->out, "%s=", a->name);
	if (a->kind == SDK_TEXT)
		tree_write_quoted(n->text, w->out);
	else if (a->kind == SDK_NUMBER)
		fprintf(w->out, "%.*s", (int)strcspn(n->text, "."), n->text);
	else if (a->kind == SDK_SWITCH)
		fputs(strcmp(n->text, "true") == 0 ? "True" : "False", w->out);
	else if (a->kind == SDK_SECONDS)
		rc = write_seconds(w, n, a->path);
	else if (a->kind == SDK_TEXTS)
		write_texts(n, w->out);
	else if (a->kind == SDK_LABELS)
		write_labels(n, w->out);
	else
		rc = write_variables(w, n, a->path);
	fputs(",\n", w->out);
	return rc;
}

/* Finds the argument of a path. *ret_inside: the path is that of a message with some. */
static const struct argument *find_argument(const char *path, bool *ret_inside)
{
	size_t len = strlen(path);

	*ret_inside = false;
	for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++) {
		if (strcmp(arguments[i].path, path) == 0)
			return &arguments[i];
		*ret_inside |= strncmp(arguments[i].path, path, len) == 0 && arguments[i].path[len] == '.';
	}
	return NULL;
}

/* Writes the arguments of a message and what is in it. */
static int walk_fields(const struct walk *w, const struct ydoc_node *n, const char *parent)
{
	int rc = RS_OK;

	for (struct ydoc_node *key = n ? n->child : NULL; key && !rc; key = key->next->next) {
		const struct argument *a;
		char path[PATH_SIZE], name[PATH_SIZE];
		bool inside;

		snprintf(name, sizeof name, "%s", key->text);
		tree_camel(name);
		snprintf(path, sizeof path, "%.70s%s%.70s", parent, *parent ? "." : "", name);
		a = find_argument(path, &inside);
		if (a)
			rc = write_argument(w, a, key->next);
		else if (inside && key->next->kind == YDOC_MAPPING)
			rc = walk_fields(w, key->next, path);
		else
			rc = fail(
			    w, key, path,
			    "a field that CustomContainerTrainingJob of the SDK has no argument for, expected none, "
			    "or no --sdk");
	}
	return rc;
}

/* Writes the arguments of one place: from the job, the spec and the first pool. */
static int walk_job(const struct render *r, enum place place, FILE *out, struct rs_err *e)
{
	char prefix[PATH_SIZE];
	struct walk w = {r, place, "", out, e};
	const struct ydoc_node *root = r->tree.doc.root;
	int rc = r->form == RENDER_LIST || root == r->spec ? RS_OK : walk_fields(&w, root, "");

	w.prefix = r->prefix;
	if (!rc)
		rc = walk_fields(&w, r->spec, "");
	snprintf(prefix, sizeof prefix, "%sworkerPoolSpecs[0].", r->prefix);
	w.prefix = prefix;
	return rc ? rc : walk_fields(&w, tree_at(r->pools, 0), "");
}

/* Returns the first node below b that is not as in a, without the number of replicas;
 * NULL: both are the same. */
static const struct ydoc_node *find_difference(const struct ydoc_node *a, const struct ydoc_node *b)
{
	const struct ydoc_node *x = a->child, *y = b->child, *differs;

	if (a->kind != b->kind || (a->kind == YDOC_TEXT && strcmp(a->text, b->text) != 0))
		return b;
	if (a->kind != YDOC_MAPPING) {
		for (; x && y; x = x->next, y = y->next)
			if ((differs = find_difference(x, y)))
				return differs;
		return x || y ? b : NULL;
	}
	for (; y; y = y->next->next) {
		const struct ydoc_node *other = tree_get(a, y->text);

		if (tree_is_named(y->text, "replicaCount") || tree_is_empty(y->next))
			continue;
		if (!other || (differs = find_difference(other, y->next)))
			return other ? differs : y;
	}
	for (; x; x = x->next->next)
		if (!tree_is_named(x->text, "replicaCount") && !tree_is_empty(x->next) && !tree_get(b, x->text))
			return b;
	return NULL;
}

/* Checks the pools that become no arguments of their own: the other workers are like the
 * first, the reducers have what render gives them, and there is no fourth pool. */
static int check_pools(const struct render *r, struct rs_err *e)
{
	static const char *const known[] = {"machineSpec", "machineType", "replicaCount", "containerSpec", "imageUri"};
	const struct ydoc_node *other = tree_at(r->pools, 1), *reducers = tree_at(r->pools, 2), *differs;
	char prefix[PATH_SIZE];
	struct walk w = {r, SDK_NOWHERE, prefix, NULL, e};

	snprintf(prefix, sizeof prefix, "%sworkerPoolSpecs", r->prefix);
	differs = tree_is_empty(other) ? NULL : find_difference(tree_at(r->pools, 0), other);
	if (differs)
		return fail(&w, differs, "[1]",
			    "another value than in pool 0, expected the same: the SDK has one for all "
			    "workers");
	if (tree_at(r->pools, 3) && !tree_is_empty(tree_at(r->pools, 3)))
		return fail(&w, tree_at(r->pools, 3), "[3]", "a fourth pool, expected none, or no --sdk");
	for (const struct ydoc_node *key = reducers->child; key; key = key->next->next) {
		const struct ydoc_node *inner = key->next->kind == YDOC_MAPPING ? key->next->child : NULL;
		const struct ydoc_node *at = key;

		do {
			size_t i = 0;

			while (i < sizeof known / sizeof known[0] && !tree_is_named(at->text, known[i]))
				i++;
			if (i == sizeof known / sizeof known[0] && (strcmp(at->text, "env") != 0 || !r->secret))
				return fail(&w, at, "[2]",
					    "a field of the reducers that the SDK has no argument for, "
					    "expected none, or no --sdk");
			at = at == key ? inner : at->next->next;
		} while (at);
	}
	return RS_OK;
}

static int check_form(const struct render *r, struct rs_err *e)
{
	const struct ydoc_node *task = tree_get(r->tree.doc.root, "trainingTaskDefinition");

	if (!r->enabled)
		return rs_fail(e, RS_ECONFIG, "%s: found enable: false, expected a job with reducers for --sdk",
			       r->tree.doc.name);
	if (task && !strstr(task->text, "/custom_task_"))
		return ydoc_fail(&r->tree.doc, task, "trainingTaskDefinition", e,
				 "found another task than custom_task, expected that one for --sdk");
	if (r->form == RENDER_SEARCH || r->form == RENDER_KUBEFLOW)
		return rs_fail(e, RS_ECONFIG, "%s: found a %s, expected a job without a search for --sdk",
			       r->tree.doc.name, r->form == RENDER_KUBEFLOW ? "Kubeflow pipeline" : "search");
	return check_pools(r, e);
}

static void write_place(const char *name, const char *value, FILE *out)
{
	if (!value)
		return;
	fprintf(out, "%s=", name);
	tree_write_quoted(value, out);
	fputs(",\n", out);
}

static int write_arguments(const struct render *r, FILE *out, struct rs_err *e)
{
	int rc;

	fputs("# arguments of google.cloud.aiplatform.CustomContainerTrainingJob(...)\n", out);
	rc = walk_job(r, SDK_CLASS, out, e);
	if (rc)
		return rc;
	write_place("location", r->place.region, out);
	write_place("project", r->place.project, out);
	fputs("# arguments of its run(...)\n", out);
	rc = walk_job(r, SDK_RUN, out, e);
	fprintf(out,
		"replica_count=%u,\nreduction_server_replica_count=%u,\nreduction_server_machine_type=", r->workers,
		r->reducers);
	tree_write_quoted(r->reducer_type, out);
	fputs(",\nreduction_server_container_uri=", out);
	tree_write_quoted(r->image, out);
	fputs(",\n", out);
	if (r->secret)
		fputs("# the SDK gives variables to workers only: the image of the reducers must set REDUCTION_SECRET "
		      "itself\n",
		      out);
	return rc;
}

int render_sdk(const struct render *r, FILE *out, struct rs_err *e)
{
	char *text = NULL;
	size_t len;
	FILE *buffer;
	int rc = check_form(r, e);

	if (rc)
		return rc;
	buffer = open_memstream(&text, &len);
	if (!buffer)
		return rs_oom(e, 0, "the arguments");
	rc = write_arguments(r, buffer, e);
	if (fclose(buffer) && !rc)
		rc = rs_oom(e, 0, "the arguments");
	if (!rc)
		fwrite(text, 1, len, out);
	free(text);
	return rc;
}
