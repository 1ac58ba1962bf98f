/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of the control and health services, as bytes. */
#ifndef RS_COMMON_HOST_SERVICE_SERVICE_PACK_H
#define RS_COMMON_HOST_SERVICE_SERVICE_PACK_H

#include "common/host/service/events.h"
#include "proto/trace.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of a message; the caller frees `at`. NULL: no memory. */
struct service_bytes {
	uint8_t *at;
	size_t len;
};

struct service_bytes service_pack(const ProtobufCMessage *m);
/* Each of these functions packs one message. */
struct service_bytes service_pack_event(const struct event *ev);
struct service_bytes service_pack_drained(uint32_t jobs, uint32_t left_ms, bool already);
struct service_bytes service_pack_reloaded(const char *result);
struct service_bytes service_pack_health(int status);
/* trace NULL: only the clock. */
struct service_bytes service_pack_trace(const struct trace *trace, uint64_t clock_us, bool worker);

#endif
