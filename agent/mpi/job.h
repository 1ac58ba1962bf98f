/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's job. The happy path: the first large blocking call opens it, on all
 * ranks, since they call collectives of a communicator in the same order -> later
 * calls find it, as an attribute of the communicator -> MPI_Comm_free or MPI_Finalize
 * closes it, on a thread of its own, so that no order of frees can make ranks wait for
 * each other. Failure modes: settings differ, or some rank does not reach the
 * reducers. All ranks agree on that, and MPI gets all calls on this communicator. */
#ifndef RS_AGENT_MPI_JOB_H
#define RS_AGENT_MPI_JOB_H

#include "agent/mpi/pending.h"
#include "agent/mpi/shim.h"

/* Invariant: constant when job_find() has returned it first, but for `waiter`;
 * `closer` and `closing` below the shim's lock. */
struct job {
	struct job *next;
	struct shim *shim;
	reduction_comm *comm; /* NULL: not open */
	enum pass pass;       /* PASS_NOT: it is open; else why not */
	bool threads;         /* all ranks have MPI_THREAD_MULTIPLE */
	bool required;        /* to some rank reducers are required */
	int rank;
	struct waiter waiter;
	pthread_t closer;
	bool closing;
	atomic_bool closed; /* the closer is done */
};

/* Returns the job of a communicator; opens it if there is none and `blocking`. NULL:
 * there is none, and *ret_why says why not; with *ret_refused the call fails, since
 * reducers are required. All ranks get the same. */
struct job *job_find(struct shim *s, mpi_handle comm, bool blocking, enum pass *ret_why, bool *ret_refused);

/* MPI calls it when a communicator with a job is freed. */
int job_on_free(mpi_handle comm, int key, void *job, void *shim);

/* Closes all jobs and waits for that. */
void job_close_all(struct shim *s);

#endif
