/* SPDX-License-Identifier: Apache-2.0 */
/* A timeline in Chrome's trace format, which Perfetto opens. Each process is a process
 * there. A rank's chunks of a lane are slices of a thread; chunks that overlap in time
 * are on several threads of the same name, because slices of one thread must not overlap.
 * Each chunk is a slice with its phases in it. */
#include "common/host/http/json.h"
#include "deploy/ctl/timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A span with its place. */
struct placed {
	const struct span *span;
	const struct timeline_source *source;
	int64_t begin, end; /* on the aligned clock */
	unsigned thread;    /* in its process, from 2 on; 1 has the operations */
};

/* What is written, and where time begins. */
struct writer {
	const struct timeline *t;
	FILE *out;
	struct placed *placed;
	size_t placed_n;
	int64_t zero;
	const char *comma;
};

/* The names of the phases between the points of a span. */
static const char *const phases[2][SPAN_POINTS - 1] = {{"receive", "wait and sum", "send result"},
						       {"send", "wait for result", ""}};

static int64_t span_begin(const struct span *s)
{
	return s->at[0];
}

static int64_t span_end(const struct span *s)
{
	unsigned i = SPAN_POINTS - 1;

	while (i > 0 && !s->at[i])
		i--;
	return s->at[i];
}

static int64_t aligned(const struct timeline *t, const struct timeline_source *s, int64_t at)
{
	return at - t->processes[s->process].offset_us;
}

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Compares what decides about the threads: process, job, reducer, lane, rank. */
static int compare_tracks(const struct placed *x, const struct placed *y)
{
	int c = compare(x->source->process, y->source->process);

	c = c ? c : compare(x->source->job, y->source->job);
	c = c ? c : strcmp(x->source->reducer, y->source->reducer);
	c = c ? c : compare(x->source->lane, y->source->lane);
	return c ? c : compare(x->span->rank, y->span->rank);
}

static int order_placed(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;
	int c = compare_tracks(x, y);

	c = c ? c : (x->begin > y->begin) - (x->begin < y->begin);
	c = c ? c : compare(x->span->seq, y->span->seq);
	return c ? c : compare(x->span->chunk, y->span->chunk);
}

/* Gives each span a thread on which no other one is at the time: ends[i] is the end of
 * the last one of a thread. */
static void place_on_threads(struct writer *w, int64_t *ends)
{
	unsigned first = 2, used = 0;

	for (size_t i = 0; i < w->placed_n; i++) {
		struct placed *p = &w->placed[i];
		unsigned row = 0;

		if (i == 0 || p->source->process != p[-1].source->process) {
			first = 2;
			used = 0;
		} else if (compare_tracks(p, p - 1)) {
			first += used;
			used = 0;
		}
		while (row < used && ends[row] > p->begin)
			row++;
		used += row == used;
		ends[row] = p->end;
		p->thread = first + row;
	}
}

static int place(struct writer *w, struct rs_err *e)
{
	int64_t *ends = calloc(w->t->spans_n + 1, sizeof *ends);

	w->placed = calloc(w->t->spans_n + 1, sizeof *w->placed);
	if (!w->placed || !ends) {
		free(ends);
		return rs_oom(e, 0, "a timeline");
	}
	w->zero = INT64_MAX;
	for (size_t i = 0; i < w->t->spans_n; i++) {
		const struct span *s = &w->t->spans[i];
		struct placed *p = &w->placed[w->placed_n];

		if (!span_begin(s))
			continue; /* its begin was dropped */
		p->span = s;
		p->source = &w->t->sources[s->source];
		p->begin = aligned(w->t, p->source, span_begin(s));
		p->end = aligned(w->t, p->source, span_end(s));
		w->zero = p->begin < w->zero ? p->begin : w->zero;
		w->placed_n++;
	}
	qsort(w->placed, w->placed_n, sizeof *w->placed, order_placed);
	place_on_threads(w, ends);
	free(ends);
	return RS_OK;
}

static void write_name(struct writer *w, const char *what, unsigned process, unsigned thread, const char *name)
{
	fprintf(w->out, "%s{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":", w->comma, what,
		process + 1, thread);
	json_string(name, w->out);
	fputs("}}", w->out);
	w->comma = ",\n";
}

static void write_thread_name(struct writer *w, const struct placed *p)
{
	char name[3 * CONTROL_JOB], job[CONTROL_JOB + 16] = "";

	if (w->t->jobs_n > 1)
		snprintf(job, sizeof job, "%s, ", w->t->jobs[p->source->job].name);
	if (p->source->reducer[0])
		snprintf(name, sizeof name, "%srank %u, to %s lane %u", job, p->span->rank, p->source->reducer,
			 p->source->lane);
	else
		snprintf(name, sizeof name, "%srank %u, lane %u", job, p->span->rank, p->source->lane);
	write_name(w, "thread_name", p->source->process, p->thread, name);
	fprintf(w->out,
		",\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%u,\"tid\":%u,\"args\":{\"sort_index\":%u}}",
		p->source->process + 1, p->thread, p->thread);
}

static void write_names(struct writer *w)
{
	unsigned named = 0;

	for (unsigned i = 0; i < w->t->processes_n; i++) {
		write_name(w, "process_name", i, 0, w->t->processes[i].name);
		write_name(w, "thread_name", i, 1, "operations");
	}
	for (size_t i = 0; i < w->placed_n; i++) {
		const struct placed *p = &w->placed[i];

		if (i == 0 || p->source->process != p[-1].source->process)
			named = 0;
		if (p->thread <= named)
			continue;
		write_thread_name(w, p); /* threads get ascending numbers */
		named = p->thread;
	}
}

static void write_slice(struct writer *w, const struct placed *p, const char *name, int64_t from, int64_t to)
{
	fprintf(w->out,
		"%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%" PRId64
		",\"dur\":%" PRId64 ",\"args\":{\"op\":%" PRIu64 ",\"chunk\":%u,\"rank\":%u,\"lane\":%u,\"bytes\":%u}}",
		w->comma, w->t->processes[p->source->process].worker ? "worker" : "reducer", name,
		p->source->process + 1, p->thread, from - w->zero, to - from, p->span->seq, p->span->chunk,
		p->span->rank, p->source->lane, p->span->bytes);
	w->comma = ",\n";
}

static void write_span(struct writer *w, const struct placed *p)
{
	const char *const *names = phases[w->t->processes[p->source->process].worker];
	const int64_t *at = p->span->at;
	char name[64];

	snprintf(name, sizeof name, "op %" PRIu64 " chunk %u", p->span->seq, p->span->chunk);
	write_slice(w, p, name, p->begin, p->end);
	for (unsigned i = 0; i + 1 < SPAN_POINTS; i++)
		if (at[i] && at[i + 1] && at[i] <= at[i + 1])
			write_slice(w, p, names[i], aligned(w->t, p->source, at[i]),
				    aligned(w->t, p->source, at[i + 1]));
}

/* An operation in a process: from its first event to the last. */
struct whole {
	unsigned process, job;
	uint64_t seq;
	int64_t begin, end;
	uint64_t chunks;
};

static int order_whole(const void *a, const void *b)
{
	const struct whole *x = a, *y = b;
	int c = compare(x->process, y->process);

	c = c ? c : compare(x->job, y->job);
	return c ? c : compare(x->seq, y->seq);
}

/* Operations may overlap, so they are asynchronous slices. */
static void write_operation(struct writer *w, const struct whole *o, unsigned id)
{
	for (unsigned end = 0; end < 2; end++) {
		fprintf(w->out,
			"%s{\"ph\":\"%s\",\"cat\":\"operation\",\"id\":%u,\"name\":\"operation %" PRIu64
			"\",\"pid\":%u,\"tid\":1,\"ts\":%" PRId64,
			w->comma, end ? "e" : "b", id, o->seq, o->process + 1, (end ? o->end : o->begin) - w->zero);
		if (!end) {
			fprintf(w->out, ",\"args\":{\"op\":%" PRIu64 ",\"contributions\":%" PRIu64 ",\"job\":", o->seq,
				o->chunks);
			json_string(w->t->jobs[o->job].name, w->out);
			fputc('}', w->out);
		}
		fputc('}', w->out);
		w->comma = ",\n";
	}
}

static int write_operations(struct writer *w, struct rs_err *e)
{
	struct whole *all = calloc(w->placed_n + 1, sizeof *all);
	unsigned id = 1;

	if (!all)
		return rs_oom(e, (w->placed_n + 1) * sizeof *all, "a timeline");
	for (size_t i = 0; i < w->placed_n; i++) {
		const struct placed *p = &w->placed[i];

		all[i] = (struct whole){p->source->process, p->source->job, p->span->seq, p->begin, p->end, 1};
	}
	qsort(all, w->placed_n, sizeof *all, order_whole);
	for (size_t i = 0, next; i < w->placed_n; i = next) {
		for (next = i + 1; next < w->placed_n && order_whole(&all[i], &all[next]) == 0; next++) {
			all[i].begin = all[next].begin < all[i].begin ? all[next].begin : all[i].begin;
			all[i].end = all[next].end > all[i].end ? all[next].end : all[i].end;
			all[i].chunks++;
		}
		write_operation(w, &all[i], id++);
	}
	free(all);
	return RS_OK;
}

static void write_about(struct writer *w)
{
	const struct timeline *t = w->t;

	fprintf(w->out,
		"],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"software\":\"reductionctl\",\"dropped\":%" PRIu64
		",\"complete\":%s,\"clock_error_us\":%" PRId64 ",\"clocks_agree\":%s,\"clocks\":[",
		t->dropped, t->complete ? "true" : "false", timeline_error_us(t), t->consistent ? "true" : "false");
	for (unsigned i = 0; i < t->processes_n; i++) {
		fprintf(w->out, "%s\n{\"process\":", i ? "," : "");
		json_string(t->processes[i].name, w->out);
		fprintf(w->out, ",\"offset_us\":%" PRId64 ",\"error_us\":%" PRId64 "}",
			t->processes[i].offset_us - t->processes[0].offset_us, t->processes[i].error_us);
	}
	fputs("]}}\n", w->out);
}

int timeline_write(const struct timeline *t, FILE *out, struct rs_err *e)
{
	struct writer w = {.t = t, .out = out, .comma = "\n"};
	int rc = place(&w, e);

	if (!rc) {
		fputs("{\"traceEvents\":[", out);
		write_names(&w);
		for (size_t i = 0; i < w.placed_n; i++)
			write_span(&w, &w.placed[i]);
		rc = write_operations(&w, e);
		write_about(&w);
	}
	free(w.placed);
	return rc;
}
