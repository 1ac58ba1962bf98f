/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a copier's operations as a file in Chrome's trace format, which Perfetto
 * opens. A piece is a slice with its parts in it. Slices of one thread must not overlap,
 * so pieces that are in flight together have different threads. */
#include "agent/gpu/copier/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The names of the parts; bench/trace_svg.py knows them. */
static const char *const parts[PIECE_PARTS] = {"copy out", "network", "copy in"};

int copier_trace_open(struct copier_trace *t, const char *path, unsigned rank, struct rs_err *e)
{
	t->path = path;
	t->rank = rank;
	t->pieces = pieces_new(PIECES_MAX);
	if (!t->pieces)
		return rs_oom(e, 0, "a trace of copies");
	t->out = fopen(path, "we");
	if (t->out)
		return RS_OK;
	free(t->pieces);
	t->pieces = NULL;
	return rs_fail_sys(e, RS_EIO, errno, "cannot create %s (REDUCTION_GPU_TRACE)", path);
}

uint64_t copier_trace_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Writes nanoseconds as microseconds. */
static void write_us(FILE *out, const char *key, uint64_t ns)
{
	fprintf(out, "\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void write_slice(const struct copier_trace *t, const struct piece *p, const char *name,
			const struct piece_span *s)
{
	fprintf(t->out, ",\n{\"ph\":\"X\",\"cat\":\"gpu\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,", name, t->rank + 1,
		p->row + 1);
	write_us(t->out, "ts", s->begin);
	fputc(',', t->out);
	write_us(t->out, "dur", s->end - s->begin);
	fprintf(t->out, ",\"args\":{\"op\":%" PRIu64 ",\"piece\":%u,\"rank\":%u,\"bytes\":%u}}", p->op, p->index,
		t->rank, p->bytes);
}

static void write_piece(const struct copier_trace *t, const struct piece *p)
{
	struct piece_span whole = pieces_whole(p);
	char name[64];

	if (!whole.end)
		return;
	snprintf(name, sizeof name, "op %" PRIu64 " piece %u", p->op, p->index);
	write_slice(t, p, name, &whole);
	for (unsigned i = 0; i < PIECE_PARTS; i++)
		if (p->part[i].end)
			write_slice(t, p, parts[i], &p->part[i]);
}

static void write_all(const struct copier_trace *t)
{
	const struct pieces *p = t->pieces;

	fprintf(t->out,
		"{\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"tid\":0,"
		"\"args\":{\"name\":\"GPU buffers of rank %u\"}}",
		t->rank + 1, t->rank);
	for (size_t i = 0; i < p->n; i++)
		write_piece(t, &p->piece[i]);
	fprintf(t->out,
		"],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"software\":\"libreduction\",\"operations\":%" PRIu64
		",\"dropped\":%" PRIu64 ",",
		p->ops, p->dropped);
	write_us(t->out, "copies_us", p->copies_ns);
	fputc(',', t->out);
	write_us(t->out, "overlap_us", p->overlap_ns);
	fputs("}}\n", t->out);
}

void copier_trace_close(struct copier_trace *t)
{
	bool whole;

	if (!t->pieces)
		return;
	whole = pieces_join(t->pieces);
	if (whole)
		write_all(t);
	if (ferror(t->out))
		whole = false;
	if (fclose(t->out) || !whole)
		unlink(t->path);
	free(t->pieces);
}
