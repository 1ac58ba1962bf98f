/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks of several processes. What is known: each question to a process gives bounds
 * for the difference between its clock and that of this program; and a chunk cannot be
 * complete at a reducer before its worker sends it, nor can the worker have the result
 * before the sum is complete. All of these are bounds for differences of two clocks, so
 * the shortest paths between processes are the tightest bounds that follow from them.
 * Failure mode: bounds that contradict each other, because a clock ran at another speed
 * meanwhile: then only the questions count. */
#include "deploy/ctl/timeline.h"

#include <stdlib.h>

enum { UNKNOWN = 0, TICK_US = 1 /* times are whole microseconds, rounded down */ };

/* Bounds: clock b - clock a <= most[a * n + b]. Entry n - 1 is this program. */
struct bounds {
	int64_t *most;
	unsigned n;
};

static int64_t *bound(const struct bounds *b, unsigned from, unsigned to)
{
	return &b->most[(size_t)from * b->n + to];
}

static void bound_lower(const struct bounds *b, unsigned from, unsigned to, int64_t most)
{
	if (most < *bound(b, from, to))
		*bound(b, from, to) = most;
}

/* Replaces each bound by the tightest one that follows from all. Returns false if they
 * contradict each other. */
static bool bounds_close(const struct bounds *b)
{
	for (unsigned k = 0; k < b->n; k++)
		for (unsigned i = 0; i < b->n; i++)
			for (unsigned j = 0; j < b->n; j++)
				bound_lower(b, i, j, *bound(b, i, k) + *bound(b, k, j));
	for (unsigned i = 0; i < b->n; i++)
		if (*bound(b, i, i) < 0)
			return false;
	return true;
}

static void bounds_of_questions(const struct bounds *b, const struct timeline *t)
{
	for (unsigned i = 0; i < b->n; i++)
		for (unsigned j = 0; j < b->n; j++)
			*bound(b, i, j) = i == j ? 0 : INT64_MAX / 4;
	for (unsigned i = 0; i < t->processes_n; i++) {
		bound_lower(b, t->processes_n, i, t->processes[i].most_us);
		bound_lower(b, i, t->processes_n, -t->processes[i].least_us);
	}
}

/* The order of spans by what is sent: job, operation, chunk, rank. */
static int compare_parts(const struct timeline *t, const struct span *a, const struct span *b)
{
	unsigned ja = t->sources[a->source].job, jb = t->sources[b->source].job;

	if (ja != jb)
		return ja < jb ? -1 : 1;
	if (a->seq != b->seq)
		return a->seq < b->seq ? -1 : 1;
	if (a->chunk != b->chunk)
		return a->chunk < b->chunk ? -1 : 1;
	return (a->rank > b->rank) - (a->rank < b->rank);
}

/* For qsort, which has no context. */
struct part {
	const struct timeline *t;
	const struct span *span;
};

static int order_parts(const void *a, const void *b)
{
	return compare_parts(((const struct part *)a)->t, ((const struct part *)a)->span,
			     ((const struct part *)b)->span);
}

/* Adds the bounds that follow from a chunk that a worker has sent to a reducer. */
static void bounds_of_chunk(const struct bounds *b, const struct timeline *t, const struct span *worker,
			    const struct span *reducer)
{
	unsigned w = t->sources[worker->source].process, r = t->sources[reducer->source].process;

	if (worker->at[0] != UNKNOWN && reducer->at[1] != UNKNOWN)
		bound_lower(b, w, r, reducer->at[1] - worker->at[0] + TICK_US);
	if (worker->at[2] != UNKNOWN && reducer->at[2] != UNKNOWN)
		bound_lower(b, r, w, worker->at[2] - reducer->at[2] + TICK_US);
}

/* Adds the bounds of all chunks that both sides have recorded. */
static int bounds_of_chunks(const struct bounds *b, const struct timeline *t, struct rs_err *e)
{
	struct part *parts = calloc(t->spans_n + 1, sizeof *parts);

	if (!parts)
		return rs_oom(e, (t->spans_n + 1) * sizeof *parts, "a timeline");
	for (size_t i = 0; i < t->spans_n; i++)
		parts[i] = (struct part){t, &t->spans[i]};
	qsort(parts, t->spans_n, sizeof *parts, order_parts);
	for (size_t i = 0, end; i < t->spans_n; i = end) {
		for (end = i + 1; end < t->spans_n && order_parts(&parts[i], &parts[end]) == 0; end++)
			;
		for (size_t j = i; j < end; j++)
			for (size_t k = i; k < end && end - i <= 4; k++)
				if (t->processes[t->sources[parts[j].span->source].process].worker &&
				    !t->processes[t->sources[parts[k].span->source].process].worker)
					bounds_of_chunk(b, t, parts[j].span, parts[k].span);
	}
	free(parts);
	return RS_OK;
}

/* Makes clock i minus that of the first process exactly `value`, and tightens all other
 * bounds by that. */
static void bounds_fix(const struct bounds *b, unsigned i, int64_t value)
{
	*bound(b, 0, i) = value;
	*bound(b, i, 0) = -value;
	for (unsigned x = 0; x < b->n; x++)
		for (unsigned y = 0; y < b->n; y++) {
			bound_lower(b, x, y, *bound(b, x, 0) + value + *bound(b, i, y));
			bound_lower(b, x, y, *bound(b, x, i) - value + *bound(b, 0, y));
		}
}

/* Chooses the difference of each clock to that of the first process, in the middle of
 * what is left. */
static void choose(const struct bounds *b, struct timeline *t)
{
	int64_t first = t->processes[0].least_us + (t->processes[0].most_us - t->processes[0].least_us) / 2;

	for (unsigned i = 0; i < t->processes_n; i++) {
		int64_t most = *bound(b, 0, i), least = -*bound(b, i, 0);
		int64_t middle = least + (most - least) / 2;

		t->processes[i].offset_us = first + middle;
		bounds_fix(b, i, middle);
	}
}

/* Sets the error of each process: how far its clock may be from the chosen one, seen from
 * the first process. */
static void state_errors(const struct bounds *b, struct timeline *t)
{
	for (unsigned i = 0; i < t->processes_n; i++) {
		int64_t chosen = t->processes[i].offset_us - t->processes[0].offset_us;
		int64_t over = *bound(b, 0, i) - chosen, under = chosen + *bound(b, i, 0);

		t->processes[i].error_us = over > under ? over : under;
	}
}

int timeline_align(struct timeline *t, struct rs_err *e)
{
	struct bounds b = {.n = t->processes_n + 1}, all = b;
	size_t bytes = (size_t)b.n * b.n * sizeof *b.most;
	int rc = RS_OK;

	b.most = malloc(bytes);
	all.most = malloc(bytes);
	if (!b.most || !all.most)
		rc = rs_oom(e, 0, "a timeline");
	if (rc)
		goto out;
	bounds_of_questions(&b, t);
	rc = bounds_of_chunks(&b, t, e);
	if (rc)
		goto out;
	t->consistent = bounds_close(&b);
	if (!t->consistent) {
		bounds_of_questions(&b, t);
		bounds_close(&b);
	}
	for (size_t i = 0; i < (size_t)b.n * b.n; i++)
		all.most[i] = b.most[i];
	choose(&b, t);
	state_errors(&all, t);
out:
	free(b.most);
	free(all.most);
	return rc;
}

int64_t timeline_error_us(const struct timeline *t)
{
	int64_t largest = 0, second = 0;

	for (unsigned i = 0; i < t->processes_n; i++) {
		int64_t e = t->processes[i].error_us;

		if (e > largest) {
			second = largest;
			largest = e;
		} else if (e > second) {
			second = e;
		}
	}
	return largest + second;
}
