/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that users set; all ranks must have the same. */
#ifndef RS_AGENT_MPI_SETTINGS_H
#define RS_AGENT_MPI_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

enum settings_use {
	SETTINGS_OFF,     /* every call goes to MPI */
	SETTINGS_AUTO,    /* reducers where they help and all ranks reach them */
	SETTINGS_REQUIRED /* also on one node; not to reach the reducers is an error */
};

enum { SETTINGS_MIN_BYTES = 128 << 10 };

struct settings {
	enum settings_use use; /* REDUCTION_MPI */
	int64_t min_bytes;     /* REDUCTION_MPI_MIN_BYTES: smaller calls go to MPI; at least 1 */
	int deterministic;     /* of reduction_options: 1, or -1 if REDUCTION_DETERMINISTIC is set */
	int configured;        /* 1: a variable says where reducers or the agent are, else 0 */
};

/* Reads them. Returns 0, or -1 with a sentence in `why`. */
int settings_read(struct settings *ret, char *why, size_t room);

#endif
