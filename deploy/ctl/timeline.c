/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/timeline.h"

#include <stdlib.h>
#include <string.h>

int timeline_init(struct timeline *t, unsigned processes, struct rs_err *e)
{
	*t = (struct timeline){.complete = true, .consistent = true};
	t->processes = calloc(processes, sizeof *t->processes);
	if (!t->processes)
		return rs_oom(e, processes * sizeof *t->processes, "a timeline");
	t->processes_n = processes;
	return RS_OK;
}

void timeline_close(struct timeline *t)
{
	free(t->processes);
	free(t->sources);
	free(t->records);
	free(t->spans);
}

/* Returns the number of a job; TIMELINE_JOBS: there is no room. */
static unsigned timeline_job(struct timeline *t, const char *name, uint32_t generation)
{
	unsigned i = 0;

	while (i < t->jobs_n && (strcmp(t->jobs[i].name, name) != 0 || t->jobs[i].generation != generation))
		i++;
	if (i == t->jobs_n && i < TIMELINE_JOBS) {
		snprintf(t->jobs[i].name, sizeof t->jobs[i].name, "%s", name);
		t->jobs[i].generation = generation;
		t->jobs_n++;
	}
	return i;
}

static int timeline_add_sources(struct timeline *t, unsigned process, const Reduction__V1__TraceReply *m,
				struct rs_err *e)
{
	struct timeline_source *more = realloc(t->sources, (t->sources_n + m->n_sources) * sizeof *more + 1);

	if (!more)
		return rs_oom(e, (t->sources_n + m->n_sources) * sizeof *more + 1, "a timeline");
	t->sources = more;
	for (size_t i = 0; i < m->n_sources; i++) {
		const Reduction__V1__TraceSource *from = m->sources[i];
		struct timeline_source *to = &t->sources[t->sources_n];

		*to = (struct timeline_source){.process = process, .lane = from->lane, .world_size = from->world_size};
		to->job = timeline_job(t, from->job, from->generation);
		if (to->job == TIMELINE_JOBS || m->n_sources > TRACE_SOURCES)
			return rs_fail(e, RS_EPROTO, "the trace has too many jobs or sources");
		snprintf(to->reducer, sizeof to->reducer, "%s", from->reducer);
		t->sources_n++;
	}
	return RS_OK;
}

int timeline_add(struct timeline *t, unsigned process, const Reduction__V1__TraceReply *m, struct rs_err *e)
{
	size_t n = m->records.len / TRACE_RECORD;
	struct timeline_record *more;
	unsigned first = t->sources_n;

	if (m->records.len % TRACE_RECORD || t->records_n + n > TIMELINE_RECORDS)
		return rs_fail(e, RS_EPROTO,
			       "the trace has %zu bytes of records, expected whole ones, at most %d in all",
			       m->records.len, TIMELINE_RECORDS);
	if (timeline_add_sources(t, process, m, e))
		return e->code;
	more = realloc(t->records, (t->records_n + n) * sizeof *more + 1);
	if (!more)
		return rs_oom(e, (t->records_n + n) * sizeof *more + 1, "a timeline");
	t->records = more;
	for (size_t i = 0; i < n; i++) {
		struct timeline_record *to = &t->records[t->records_n];

		if (!trace_decode(&to->record, m->records.data + i * TRACE_RECORD, (unsigned)m->n_sources) ||
		    to->record.at_us > INT64_MAX / 4 || (to->record.kind >= TRACE_SENDING) != m->worker)
			return rs_fail(e, RS_EPROTO, "record %zu of the trace is wrong", i);
		to->source = first + to->record.source;
		t->records_n++;
	}
	t->processes[process].worker = m->worker;
	t->dropped += m->dropped;
	t->complete &= m->complete;
	return RS_OK;
}

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* The order of records: by chunk; the sum before the ranks; by rank and time. */
static int timeline_order(const void *x, const void *y)
{
	const struct timeline_record *a = x, *b = y;
	const struct trace_record *r = &a->record, *s = &b->record;
	int c = compare(a->source, b->source);

	c = c ? c : compare(r->seq, s->seq);
	c = c ? c : compare(r->chunk, s->chunk);
	c = c ? c : compare(r->kind != TRACE_SUMMED, s->kind != TRACE_SUMMED);
	c = c ? c : compare(r->rank, s->rank);
	return c ? c : compare(r->at_us, s->at_us);
}

static bool timeline_same_chunk(const struct timeline_record *a, const struct timeline_record *b)
{
	return a->source == b->source && a->record.seq == b->record.seq && a->record.chunk == b->record.chunk;
}

/* Sets a point of a span. Of several events of a kind, after the loss of a reducer, the
 * first one counts. */
static void span_take(struct span *s, const struct trace_record *r)
{
	static const uint8_t points[TRACE_KINDS] = {
	    [TRACE_BEGUN] = 0,   [TRACE_COMPLETE] = 1, [TRACE_SUMMED] = 2, [TRACE_RETURNED] = 3,
	    [TRACE_SENDING] = 0, [TRACE_SENT] = 1,     [TRACE_RESULT] = 2};
	int64_t *at = &s->at[points[r->kind]];

	if (!*at)
		*at = (int64_t)r->at_us;
	if (r->kind == TRACE_BEGUN || r->kind == TRACE_SENDING)
		s->bytes = r->bytes;
}

int timeline_join(struct timeline *t, struct rs_err *e)
{
	const struct timeline_record *head = NULL, *rank = NULL;
	int64_t summed = 0;

	qsort(t->records, t->records_n, sizeof *t->records, timeline_order);
	t->spans = calloc(t->records_n + 1, sizeof *t->spans); /* one more, so that it is not NULL */
	if (!t->spans)
		return rs_oom(e, (t->records_n + 1) * sizeof *t->spans, "a timeline");
	for (size_t i = 0; i < t->records_n; i++) {
		const struct timeline_record *r = &t->records[i];

		if (!head || !timeline_same_chunk(head, r)) {
			head = r;
			rank = NULL;
			summed = 0;
		}
		if (r->record.kind == TRACE_SUMMED) {
			summed = summed ? summed : (int64_t)r->record.at_us;
			continue;
		}
		if (!rank || rank->record.rank != r->record.rank) {
			t->spans[t->spans_n] = (struct span){.source = r->source,
							     .seq = r->record.seq,
							     .chunk = r->record.chunk,
							     .rank = r->record.rank,
							     .at = {0, 0, summed, 0}};
			t->spans_n++;
			rank = r;
		}
		span_take(&t->spans[t->spans_n - 1], &r->record);
	}
	return RS_OK;
}
