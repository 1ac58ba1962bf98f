/* SPDX-License-Identifier: Apache-2.0 */
/* Names of jobs on the wire. The NCCL plugin has a job for each communicator of a
 * program: the name that the user gave, "@", and 16 lower-case hexadecimal digits. */
#ifndef RS_CONFIG_JOB_H
#define RS_CONFIG_JOB_H

#include "config/config.h"

/* Returns whether this is such a name, or one without "@" and digits; together at most
 * RS_NAME_MAX - 1 characters. */
bool rs_job_valid(const char *job);

/* Copies the part of a job's name that secrets and `access` rules are looked up by: what
 * stands before "@" and the digits. */
void rs_job_base(char ret[static RS_NAME_MAX], const char *job);

#endif
