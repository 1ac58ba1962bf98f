/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a job that have one value each. */
#ifndef RS_COMMON_HOST_HTTP_METRICS_JOB_H
#define RS_COMMON_HOST_HTTP_METRICS_JOB_H

#include "common/host/http/metrics_text.h"
#include "proto/reduction.pb-c.h"

struct metrics_job_family {
	const char *name, *help;
	enum metrics_type type;
	double (*get)(const Reduction__V1__JobStatus *j);
};

extern const struct metrics_job_family metrics_job_families[];
extern const unsigned metrics_job_families_n;

#endif
