/* SPDX-License-Identifier: Apache-2.0 */
#include "config/job.h"

#include <string.h>

enum { JOB_COMMUNICATOR = 1 + 16 }; /* bytes of "@" and the digits after it */

/* Returns the bytes before "@" and 16 hexadecimal digits at the end; all bytes if the
 * name does not end so. */
static size_t job_base_bytes(const char *job)
{
	size_t n = strlen(job), base = n > JOB_COMMUNICATOR ? n - JOB_COMMUNICATOR : 0;

	if (!base || job[base] != '@' || strspn(job + base + 1, "0123456789abcdef") != JOB_COMMUNICATOR - 1)
		return n;
	return base;
}

void rs_job_base(char ret[static RS_NAME_MAX], const char *job)
{
	size_t n = job_base_bytes(job);

	n = n < RS_NAME_MAX ? n : RS_NAME_MAX - 1;
	memcpy(ret, job, n);
	ret[n] = '\0';
}

bool rs_job_valid(const char *job)
{
	char base[RS_NAME_MAX];

	rs_job_base(base, job);
	return strlen(job) < RS_NAME_MAX && rs_name_valid(base);
}
