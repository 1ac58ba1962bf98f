/* SPDX-License-Identifier: Apache-2.0 */
/* The command of gcloud that creates a job. A field that it cannot carry is an error. */
#include "deploy/ctl/render/fields.h"
#include "deploy/ctl/render/render.h"

#include <string.h>

enum { FIELD = 160 };

/* Writes a text in single quotes of a shell. */
static void write_shell(const char *text, FILE *out)
{
	fputc('\'', out);
	for (; *text; text++)
		if (*text == '\'')
			fputs("'\\''", out);
		else
			fputc(*text, out);
	fputc('\'', out);
}

static int fail_field(const struct render *r, const struct ydoc_node *n, const char *field, struct rs_err *e)
{
	return ydoc_fail(&r->tree.doc, n, field, e,
			 "found a field that `gcloud ai custom-jobs create` has no option for, expected none, or no "
			 "--gcloud");
}

/* Checks that labels fit in gcloud's list "a=b,c=d". */
static int check_labels(const struct render *r, const struct ydoc_node *labels, struct rs_err *e)
{
	for (const struct ydoc_node *name = labels->child; name; name = name->next->next)
		if (!*name->text || strpbrk(name->text, ",=^") || strpbrk(name->next->text, ",^"))
			return ydoc_fail(
			    &r->tree.doc, name, "labels", e,
			    "found a label with \",\", \"=\" or \"^\", expected letters, digits, \"-\" and "
			    "\"_\"");
	return RS_OK;
}

/* Checks that all fields of a CustomJob beside its jobSpec are options of gcloud. */
static int check_job(const struct render *r, struct rs_err *e)
{
	static const char *const options[] = {"displayName", "jobSpec", "labels", "encryptionSpec"};
	const struct ydoc_node *root = r->tree.doc.root, *encryption = tree_get(root, "encryptionSpec");

	for (const struct ydoc_node *name = root->child; name; name = name->next->next) {
		size_t i = 0;

		while (i < sizeof options / sizeof options[0] && !tree_is_named(name->text, options[i]))
			i++;
		if (i == sizeof options / sizeof options[0])
			return fail_field(r, name, name->text, e);
	}
	for (const struct ydoc_node *name = encryption ? encryption->child : NULL; name; name = name->next->next) {
		char field[FIELD];

		snprintf(field, sizeof field, "encryptionSpec.%.100s", name->text);
		if (!tree_is_named(name->text, "kmsKeyName"))
			return fail_field(r, name, field, e);
	}
	return tree_get(root, "labels") ? check_labels(r, tree_get(root, "labels"), e) : RS_OK;
}

static void write_options(const struct render *r, FILE *out)
{
	const struct ydoc_node *root = r->tree.doc.root, *labels = tree_get(root, "labels");
	const char *key = tree_text_of(tree_get(root, "encryptionSpec"), "kmsKeyName");

	if (labels && labels->child) {
		fputs(" --labels=", out);
		for (const struct ydoc_node *name = labels->child; name; name = name->next->next) {
			write_shell(name->text, out);
			fputc('=', out);
			write_shell(name->next->text, out);
			fputs(name->next->next ? "," : "", out);
		}
	}
	if (key) {
		fputs(" --kms-key=", out);
		write_shell(key, out);
	}
}

/* Writes the file of --config, with the names of the REST API, which gcloud asks for. */
static int write_config(const struct ydoc_node *n, const struct fields_message *m, FILE *out, struct rs_err *e)
{
	struct tree t = {.no_memory = false};
	struct ydoc_node *copy = tree_copy(&t, n);

	if (!t.no_memory) {
		fields_rename(copy, m);
		tree_write(copy, out);
	}
	ydoc_close(&t.doc);
	return t.no_memory ? rs_oom(e, 0, "the job") : RS_OK;
}

/* A search has a command of its own, whose file is the whole job; that of a CustomJob is
 * its spec. Options for single pools could carry neither arguments nor variables. */
int render_gcloud(const struct render *r, FILE *out, struct rs_err *e)
{
	const struct ydoc_node *root = r->tree.doc.root;
	const char *name = tree_text_of(root, "displayName");
	bool search = r->form == RENDER_SEARCH;
	int rc = RS_OK;

	if (r->form == RENDER_PIPELINE || r->form == RENDER_KUBEFLOW)
		return rs_fail(e, RS_ECONFIG,
			       "%s: found a %s, which no command of gcloud creates, expected no --gcloud",
			       r->tree.doc.name, r->form == RENDER_PIPELINE ? "TrainingPipeline" : "Kubeflow pipeline");
	if (r->form == RENDER_JOB)
		rc = check_job(r, e);
	if (rc)
		return rc;
	fprintf(out, "gcloud ai %s create --region=", search ? "hp-tuning-jobs" : "custom-jobs");
	if (r->place.region)
		write_shell(r->place.region, out);
	else
		fputs("\"$REGION\"", out);
	if (r->place.project) {
		fputs(" --project=", out);
		write_shell(r->place.project, out);
	}
	fputs(" --display-name=", out);
	write_shell(name ? name : "reduction", out);
	if (r->form == RENDER_JOB)
		write_options(r, out);
	fputs(" --config=/dev/stdin <<'END_OF_JOB'\n", out);
	rc = write_config(search ? root : r->spec, search ? &fields_search : &fields_spec, out, e);
	fputs("END_OF_JOB\n", out);
	return rc;
}
