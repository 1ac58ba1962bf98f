/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a process that all clients of Prometheus have, under the same names. */
#ifndef RS_COMMON_HOST_HTTP_METRICS_STANDARD_H
#define RS_COMMON_HOST_HTTP_METRICS_STANDARD_H

#include "common/host/http/metrics_text.h"
#include "proto/reduction.pb-c.h"

void metrics_standard(struct metrics_out *o, const Reduction__V1__StatusReply *m);

#endif
