/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/render/render.h"

#include "config/value.h"

#include <string.h>

void render_yaml(const struct render *r, FILE *out)
{
	tree_write(r->tree.doc.root, out);
}

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

/* A file, since options for single pools can carry neither arguments nor variables. It
 * holds the CustomJobSpec alone.
 */
void render_gcloud(const struct render *r, FILE *out)
{
	const char *name = tree_text_of(r->tree.doc.root, "displayName");

	fputs("gcloud ai custom-jobs create --region=\"$REGION\" --display-name=", out);
	write_shell(name ? name : "reduction", out);
	fputs(" --config=/dev/stdin <<'END_OF_JOB'\n", out);
	tree_write(r->spec, out);
	fputs("END_OF_JOB\n", out);
}

static void write_argument(const char *name, const struct ydoc_node *value, bool number, FILE *out)
{
	if (!value || value->kind != YDOC_TEXT)
		return;
	fprintf(out, "%s=", name);
	if (number)
		fputs(value->text, out);
	else
		tree_write_quoted(value->text, out);
	fputs(",\n", out);
}

static bool is_equal(const struct ydoc_node *a, const struct ydoc_node *b, const char *key)
{
	const char *x = tree_text_of(a, key), *y = tree_text_of(b, key);

	return strcmp(x ? x : "", y ? y : "") == 0;
}

/* Writes the variables of a container as a Python dictionary. */
static void write_environment(const struct ydoc_node *env, FILE *out)
{
	const char *separator = "";

	fputs("environment_variables={", out);
	for (const struct ydoc_node *n = env ? env->child : NULL; n; n = n->next) {
		const char *name = tree_text_of(n, "name"), *value = tree_text_of(n, "value");

		if (!name)
			continue;
		fputs(separator, out);
		tree_write_quoted(name, out);
		fputs(": ", out);
		tree_write_quoted(value ? value : "", out);
		separator = ", ";
	}
	fputs("},\n", out);
}

static void write_args(const struct ydoc_node *args, FILE *out)
{
	if (!args || !args->child)
		return;
	fputs("args=[", out);
	for (const struct ydoc_node *n = args->child; n; n = n->next) {
		if (n->kind == YDOC_TEXT)
			tree_write_quoted(n->text, out);
		fputs(n->next ? ", " : "],\n", out);
	}
}

int render_sdk(const struct render *r, FILE *out, struct rs_err *e)
{
	const struct ydoc_node *pool = tree_at(r->pools, 0), *other = tree_at(r->pools, 1);
	const struct ydoc_node *machine = tree_get(pool, "machineSpec"), *container = tree_get(pool, "containerSpec");

	if (!r->enabled)
		return rs_fail(e, RS_ECONFIG, "%s: found enable: false, expected a job with reducers for --sdk",
			       r->tree.doc.name);
	if (other && !tree_is_empty(other)) {
		const struct ydoc_node *its = tree_get(other, "machineSpec");

		if (!is_equal(machine, its, "machineType") || !is_equal(machine, its, "acceleratorType") ||
		    !is_equal(machine, its, "acceleratorCount"))
			return ydoc_fail(
			    &r->tree.doc, other, "workerPoolSpecs[1].machineSpec", e,
			    "found another machine than in pool 0, expected the same: the SDK has one for all "
			    "workers");
	}
	fputs("# arguments of CustomContainerTrainingJob(...).run(...) of google.cloud.aiplatform\n", out);
	write_argument("machine_type", tree_get(machine, "machineType"), false, out);
	write_argument("accelerator_type", tree_get(machine, "acceleratorType"), false, out);
	write_argument("accelerator_count", tree_get(machine, "acceleratorCount"), true, out);
	fprintf(out, "replica_count=%u,\n", r->workers);
	write_args(tree_get(container, "args"), out);
	write_environment(tree_get(container, "env"), out);
	fprintf(out, "reduction_server_replica_count=%u,\nreduction_server_machine_type=", r->reducers);
	tree_write_quoted(r->reducer_type, out);
	fputs(",\nreduction_server_container_uri=", out);
	tree_write_quoted(r->image, out);
	fputs(",\n", out);
	if (r->secret)
		fputs("# the SDK gives variables to workers only: the image of the reducers must set REDUCTION_SECRET "
		      "itself\n",
		      out);
	return RS_OK;
}

/* "100 Gbit/s" */
static const char *rate_text(double bits, char buf[static 32])
{
	snprintf(buf, 32, "%.4g Gbit/s", bits / 1e9);
	return buf;
}

static const char *plural(unsigned n)
{
	return n == 1 ? "" : "s";
}

static void explain_number(const struct render *r, FILE *out)
{
	char one[32], all[32];

	fprintf(out, "%u worker%s x %s (%s) = %s\n", r->workers, plural(r->workers),
		rate_text((double)r->worker_rate, one), r->worker_type,
		rate_text((double)r->worker_rate * r->workers, all));
	fprintf(out, "%u reducer%s x %s (%s) = %s: ", r->reducers, plural(r->reducers),
		rate_text((double)r->reducer_rate, one), r->reducer_type,
		rate_text((double)r->reducer_rate * r->reducers, all));
	if (r->reducers == r->needed)
		fputs("the least number whose links together are as fast as the workers'\n", out);
	else if (r->reducers < r->needed)
		fprintf(out, "their links are the bottleneck; %u would be as fast as the workers'\n", r->needed);
	else
		fprintf(out, "more than needed; %u are as fast as the workers'\n", r->needed);
}

void render_explain(const struct render *r, FILE *out)
{
	double n = r->workers, link = 8e9 / (double)r->worker_rate;
	double reducers = 8e9 * n / ((double)r->reducer_rate * r->reducers), ring = 2 * (n - 1) / n * link;

	if (!r->enabled) {
		fputs("enable: false: the job has no reducers\n", out);
		return;
	}
	if (r->split)
		fprintf(out, "pool 0 may have one replica: the other %u are pool 1 now\n", r->workers - 1);
	explain_number(r, out);
	if (reducers < link)
		reducers = link;
	fprintf(out, "1 GB of gradients takes %.3g ms through the reducers, %.3g ms in a ring", reducers * 1e3,
		ring * 1e3);
	if (ring > reducers)
		fprintf(out, ": %.2f times as long\n", ring / reducers);
	else
		fprintf(out, ": reducers do not help this job%s\n", r->workers < 3 ? ", it has too few nodes" : "");
	if (r->opt.price_worker > 0) {
		double workers = r->opt.price_worker * n, more = r->opt.price_reducer * r->reducers;

		fprintf(out,
			"an hour costs %.2f for the workers and %.2f for the reducers: it pays if steps become more "
			"than %.1f %% "
			"shorter\n",
			workers, more, 100 * more / (workers + more));
	}
	if (r->without_secret)
		fputs("warning: no secret: every machine in the job's network may join or change the sums. Put a file "
		      "into all replicas, and name it with --secret PATH\n",
		      out);
	fprintf(out,
		"bandwidths are from a table of %s unless given (--bandwidth, --reducer-bandwidth, --machines); "
		"measure yours, "
		"since one "
		"TCP connection may reach less\n",
		render_machines_date);
}
