/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of libreduction's handles: reduction.c uses them, open.c makes communicators. */
#ifndef RS_AGENT_COMM_H
#define RS_AGENT_COMM_H

#include "agent/backend.h"

#include <pthread.h>
#include <stdbool.h>

/* Invariant: once broken is set, `err` says why and stays. */
struct reduction_comm {
	struct backend *backend;
	unsigned rank, world_size;
	pthread_mutex_t order; /* held while an operation is submitted: the order of submissions is that of the ranks */
	pthread_mutex_t lock;  /* for what follows */
	bool broken;
	struct rs_err err;
};

/* Gives a caller the error, or success with code 0; returns the code. err may be NULL. */
int comm_result(reduction_error *err, const struct rs_err *e);

#endif
