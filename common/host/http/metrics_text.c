/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/http/metrics_text.h"

#include <inttypes.h>

void metrics_family(struct metrics_out *o, enum metrics_type type, const char *name, const char *help)
{
	static const char *const types[] = {"gauge", "counter", "histogram"};
	/* in Prometheus' text a counter's family has the name of its samples */
	const char *suffix = type == METRICS_COUNTER && !o->openmetrics ? "_total" : "";

	o->name = name;
	o->type = type;
	fprintf(o->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name, suffix, types[type]);
}

static void write_labels(FILE *out, const char *const *labels)
{
	const char *before = "{";

	for (; *labels; labels += 2) {
		fprintf(out, "%s%s=\"", before, labels[0]);
		for (const char *c = labels[1]; *c; c++) {
			if (*c == '\n')
				fputs("\\n", out);
			else if (*c == '"' || *c == '\\')
				fprintf(out, "\\%c", *c);
			else
				fputc(*c, out);
		}
		fputc('"', out);
		before = ",";
	}
	if (before[0] == ',')
		fputc('}', out);
}

static void write_name(struct metrics_out *o, const char *const *labels)
{
	fprintf(o->out, "%s%s", o->name, o->type == METRICS_COUNTER ? "_total" : "");
	write_labels(o->out, labels);
}

void metrics_sample(struct metrics_out *o, double value, const char *const *labels)
{
	write_name(o, labels);
	fprintf(o->out, " %.15g\n", value);
}

void metrics_count(struct metrics_out *o, uint64_t value, const char *const *labels)
{
	write_name(o, labels);
	fprintf(o->out, " %" PRIu64 "\n", value);
}

void metrics_histogram(struct metrics_out *o, const uint64_t *counts, const uint64_t *limits_us, size_t buckets_n,
		       uint64_t sum_us, const char *label, const char *value)
{
	const char *const labels[] = {label, value, NULL};
	uint64_t sum = 0;

	for (size_t i = 0; i <= buckets_n; i++) {
		char le[32] = "+Inf";
		const char *const with[] = {label, value, "le", le, NULL};

		sum += counts[i];
		if (i < buckets_n)
			snprintf(le, sizeof le, "%.9g", (double)limits_us[i] / 1e6);
		fprintf(o->out, "%s_bucket", o->name);
		write_labels(o->out, with);
		fprintf(o->out, " %" PRIu64 "\n", sum);
	}
	fprintf(o->out, "%s_sum", o->name);
	write_labels(o->out, labels);
	fprintf(o->out, " %.15g\n%s_count", (double)sum_us / 1e6, o->name);
	write_labels(o->out, labels);
	fprintf(o->out, " %" PRIu64 "\n", sum);
}

void metrics_end(struct metrics_out *o)
{
	if (o->openmetrics)
		fputs("# EOF\n", o->out);
}
