/* SPDX-License-Identifier: Apache-2.0 */
/* The status of an agent as a message of the control service. */
#ifndef RS_AGENT_NODE_CORE_STATUS_PACK_H
#define RS_AGENT_NODE_CORE_STATUS_PACK_H

#include "common/host/service/service_pack.h"

/* Packs a struct local_status as a StatusReply. job: the only job in it; NULL or empty: all jobs. As
 * service_options.pack. */
struct service_bytes local_status_pack(const void *status, const char *job, bool without_ranks);

#endif
