/* SPDX-License-Identifier: Apache-2.0 */
/* Non-blocking operations. To MPI each is a generalized request; a thread of the job
 * waits for the reducers and completes it. One thread for each job: an operation must
 * not wait for one of another communicator. */
#ifndef RS_AGENT_MPI_PENDING_H
#define RS_AGENT_MPI_PENDING_H

#include "agent/mpi/library.h"

#include <pthread.h>
#include <stdbool.h>

struct job;
struct pending;

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct pending *first, **last; /* in the order of starts */
	pthread_t thread;
	bool running, ending;
};

void waiter_init(struct waiter *w);

/* Waits for all operations and ends the thread. */
void waiter_close(struct waiter *w);

/* Starts an all-reduce and stores MPI's request at `request`. Returns 0, or an error
 * after a sentence on stderr. */
int pending_all_reduce(struct job *job, const void *send, void *recv, size_t count, reduction_dtype dtype,
		       reduction_op op, void *request);

#endif
