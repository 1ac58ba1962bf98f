/* SPDX-License-Identifier: Apache-2.0 */
/* A status as metrics, in the text format of Prometheus or as OpenMetrics.
 * deploy/metrics.md explains each metric. */
#ifndef RS_COMMON_HOST_HTTP_METRICS_H
#define RS_COMMON_HOST_HTTP_METRICS_H

#include "proto/reduction.pb-c.h"

#include <stdbool.h>
#include <stdio.h>

enum {
	METRICS_JOBS_MAX = 512, /* jobs with own metrics; of more, the oldest have none */
	/* Most time series of a job on a reducer, whatever its number of ranks; and on an
	 * agent, in addition to those of each reducer of the job. */
	METRICS_JOB_SERIES = 113,
	METRICS_AGENT_JOB_SERIES = 14,
	METRICS_AGENT_REDUCER_SERIES = 7,
};

void metrics_write(const Reduction__V1__StatusReply *m, bool openmetrics, FILE *out);

#endif
