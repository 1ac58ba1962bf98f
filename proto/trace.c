/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/trace.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

struct trace *trace_new(const struct trace_request *r, uint32_t records)
{
	size_t bytes = records * sizeof(struct trace_record);
	struct trace *t = malloc(sizeof *t + bytes);

	if (!t)
		return NULL;
	memset(t, 0, sizeof *t + bytes); /* not calloc: the first touch of a page is slow */
	t->size = records;
	t->operations = r->operations;
	t->ranges_n = r->ranges_n;
	memcpy(t->ranges, r->ranges, sizeof t->ranges);
	return t;
}

void trace_free(struct trace *first)
{
	while (first) {
		struct trace *next = first->next;

		free(first);
		first = next;
	}
}

int trace_add_source(struct trace *t, unsigned range, uint32_t lane, uint32_t world_size, uint64_t next)
{
	if (t->sources_n == TRACE_SOURCES)
		return -1;
	t->sources[t->sources_n] =
	    (struct trace_source){.range = range, .lane = lane, .world_size = world_size, .next = next};
	return (int)t->sources_n++;
}

void trace_worked(struct trace *t, uint64_t ns)
{
	for (; t->mark < t->n; t->mark++)
		if (t->records[t->mark].kind == TRACE_SUMMED)
			t->records[t->mark].at_us += ns / 1000;
}

void trace_encode(const struct trace_record *r, uint8_t out[TRACE_RECORD])
{
	uint64_t wide[2] = {htole64(r->at_us), htole64(r->seq)};
	uint32_t words[2] = {htole32(r->chunk), htole32(r->bytes)};
	uint16_t halves[3] = {htole16(r->rank), htole16(r->source), htole16(r->kind)};

	memset(out, 0, TRACE_RECORD);
	memcpy(out, wide, sizeof wide);
	memcpy(out + 16, words, sizeof words);
	memcpy(out + 24, halves, sizeof halves);
}

bool trace_decode(struct trace_record *ret, const uint8_t in[TRACE_RECORD], unsigned sources_n)
{
	uint64_t wide[2];
	uint32_t words[2];
	uint16_t halves[3];

	memcpy(wide, in, sizeof wide);
	memcpy(words, in + 16, sizeof words);
	memcpy(halves, in + 24, sizeof halves);
	*ret = (struct trace_record){
	    .at_us = le64toh(wide[0]),
	    .seq = le64toh(wide[1]),
	    .chunk = le32toh(words[0]),
	    .bytes = le32toh(words[1]),
	    .rank = le16toh(halves[0]),
	    .source = le16toh(halves[1]),
	    .kind = (uint8_t)le16toh(halves[2]),
	};
	return le16toh(halves[2]) < TRACE_KINDS && ret->source < sources_n;
}
