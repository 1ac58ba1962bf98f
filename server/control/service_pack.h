/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of the control and health services, as bytes. */
#ifndef RS_SERVER_CONTROL_SERVICE_PACK_H
#define RS_SERVER_CONTROL_SERVICE_PACK_H

#include "server/jobs/events.h"
#include "server/jobs/status.h"

#include <stddef.h>

/* The bytes of a message; the caller frees `at`. NULL: no memory. */
struct service_bytes {
	uint8_t *at;
	size_t len;
};

/* Each function packs one message. job: the only job of the status; NULL or empty: all jobs. */
struct service_bytes service_pack_status(const struct status *st, const char *job, bool without_ranks);
struct service_bytes service_pack_event(const struct event *ev);
struct service_bytes service_pack_drained(uint32_t jobs, uint32_t left_ms, bool already);
struct service_bytes service_pack_reloaded(const char *result);
struct service_bytes service_pack_health(int status);

#endif
