/* SPDX-License-Identifier: Apache-2.0 */
/* The text format of metrics: families and samples. */
#ifndef RS_COMMON_HOST_HTTP_METRICS_TEXT_H
#define RS_COMMON_HOST_HTTP_METRICS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum metrics_type { METRICS_GAUGE, METRICS_COUNTER, METRICS_HISTOGRAM };

/* What is being written. */
struct metrics_out {
	FILE *out;
	bool openmetrics;
	const char *name; /* of the current family, without "_total" */
	enum metrics_type type;
};

/* Begins a family; its samples follow. */
void metrics_family(struct metrics_out *o, enum metrics_type type, const char *name, const char *help);
/* Writes a sample. labels: name, value, name, value, ..., NULL. Values are escaped. */
void metrics_sample(struct metrics_out *o, double value, const char *const *labels);
void metrics_count(struct metrics_out *o, uint64_t value, const char *const *labels);
/* Writes the samples of a histogram with buckets_n limits and one count more, with one
 * label. */
void metrics_histogram(struct metrics_out *o, const uint64_t *counts, const uint64_t *limits_us, size_t buckets_n,
		       uint64_t sum_us, const char *label, const char *value);
/* Ends the text. */
void metrics_end(struct metrics_out *o);

#endif
