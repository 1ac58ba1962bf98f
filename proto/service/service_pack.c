/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/service/service_pack.h"

#include "proto/health.pb-c.h"
#include "proto/reduction.pb-c.h"

#include <stdlib.h>
#include <string.h>

void *service_take(struct service_block *b, size_t n)
{
	void *at = b->at + b->used;

	b->used += (n + 15) & ~(size_t)15;
	return at;
}

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

struct service_bytes service_pack_health(int status)
{
	Grpc__Health__V1__HealthCheckResponse m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

	m.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
	return service_pack(&m.base);
}
