/* SPDX-License-Identifier: Apache-2.0 */
/* The status of a reducer as a message of the control service. */
#ifndef RS_SERVER_JOBS_STATUS_PACK_H
#define RS_SERVER_JOBS_STATUS_PACK_H

#include "common/host/service/service_pack.h"

#include <stdbool.h>

/* Packs a struct status as a StatusReply. job: the only job in it; NULL or empty: all jobs. As service_options.pack. */
struct service_bytes status_pack(const void *status, const char *job, bool without_ranks);

#endif
