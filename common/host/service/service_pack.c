/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/service/service_pack.h"

#include "proto/health.pb-c.h"
#include "proto/reduction.pb-c.h"

#include <stdlib.h>
#include <string.h>

struct service_bytes service_pack(const ProtobufCMessage *m)
{
	struct service_bytes b = {.len = protobuf_c_message_get_packed_size(m)};

	/* one more, so that an empty message is not NULL */
	b.at = malloc(b.len + 1);
	if (b.at)
		protobuf_c_message_pack(m, b.at);
	return b;
}

struct service_bytes service_pack_event(const struct event *ev)
{
	Reduction__V1__Event m = REDUCTION__V1__EVENT__INIT;
	Reduction__V1__Event__Field fields[EVENT_TEXT / 2], *pointers[EVENT_TEXT / 2];
	const char *at = ev->text;

	m.sequence = ev->sequence;
	m.unix_ms = ev->unix_ms;
	m.level = (char *)rs_log_level_name(ev->level);
	m.name = (char *)ev->name;
	m.n_fields = ev->fields_n;
	m.fields = pointers;
	for (unsigned i = 0; i < ev->fields_n; i++) {
		reduction__v1__event__field__init(&fields[i]);
		fields[i].key = (char *)at;
		at += strlen(at) + 1;
		fields[i].value = (char *)at;
		at += strlen(at) + 1;
		pointers[i] = &fields[i];
	}
	return service_pack(&m.base);
}

struct service_bytes service_pack_drained(uint32_t jobs, uint32_t left_ms, bool already)
{
	Reduction__V1__DrainReply m = REDUCTION__V1__DRAIN_REPLY__INIT;

	m.jobs = jobs;
	m.left_ms = left_ms;
	m.already = already;
	return service_pack(&m.base);
}

struct service_bytes service_pack_reloaded(const char *result)
{
	Reduction__V1__ReloadReply m = REDUCTION__V1__RELOAD_REPLY__INIT;

	m.result = (char *)result;
	return service_pack(&m.base);
}

/* Fills in the sources of a trace. */
static void pack_sources(const struct trace *t, Reduction__V1__TraceSource *sources,
			 Reduction__V1__TraceSource **pointers)
{
	for (unsigned i = 0; i < t->sources_n; i++) {
		const struct trace_source *from = &t->sources[i];
		const struct trace_range *range = &t->ranges[from->range];

		reduction__v1__trace_source__init(&sources[i]);
		sources[i].job = (char *)range->job;
		sources[i].generation = range->generation;
		sources[i].world_size = from->world_size;
		sources[i].lane = from->lane;
		sources[i].next = from->next;
		sources[i].reducer = (char *)from->reducer;
		pointers[i] = &sources[i];
	}
}

/* Returns whether the operations of all ranges that have a source are complete. */
static bool is_complete(const struct trace *t)
{
	for (unsigned i = 0; i < t->sources_n; i++)
		if (!(t->done & 1u << t->sources[i].range))
			return false;
	return true;
}

struct service_bytes service_pack_trace(const struct trace *trace, uint64_t clock_us, bool worker)
{
	Reduction__V1__TraceReply m = REDUCTION__V1__TRACE_REPLY__INIT;
	Reduction__V1__TraceSource sources[TRACE_SOURCES], *pointers[TRACE_SOURCES];
	struct service_bytes b = {NULL, 0};

	m.clock_us = clock_us;
	m.worker = worker;
	if (!trace)
		return service_pack(&m.base);
	pack_sources(trace, sources, pointers);
	m.n_sources = trace->sources_n;
	m.sources = pointers;
	m.missed = trace->missed;
	m.complete = is_complete(trace);
	m.dropped = trace->dropped;
	m.records.len = (size_t)trace->n * TRACE_RECORD;
	m.records.data = malloc(m.records.len + 1);
	if (!m.records.data)
		return b;
	for (uint32_t i = 0; i < trace->n; i++)
		trace_encode(&trace->records[i], m.records.data + (size_t)i * TRACE_RECORD);
	b = service_pack(&m.base);
	free(m.records.data);
	return b;
}

struct service_bytes service_pack_health(int status)
{
	Grpc__Health__V1__HealthCheckResponse m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

	m.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
	return service_pack(&m.base);
}
