/* SPDX-License-Identifier: Apache-2.0 */
/* libreduction-mpi.so: large MPI_Allreduce, MPI_Iallreduce and MPI_Bcast go through
 * reducers; everything else goes to the MPI library of the program.
 *
 * All ranks of a communicator must come to the same decision for each call. So it follows
 * from what MPI requires to be equal on all ranks (bytes, type, operation), from the
 * settings, which are compared when a communicator is opened, and from the communicator's
 * state, which changes in the order of its calls. That order is the same on all ranks,
 * also with threads. Each communicator is a job of its own, so that two communicators
 * never wait for each other.
 *
 *     library.h   the MPI library of the program
 *     settings.h  REDUCTION_MPI and the other variables
 *     job.h       a communicator's job: opened by its first large blocking call
 *     pending.h   non-blocking operations: MPI's generalized requests
 *     report.h    what was taken and what was passed on
 *     calls.c, fortran.c  the functions that replace MPI's
 *
 * Threads: all functions may be called by any thread, as MPI allows it to the program. */
#ifndef RS_AGENT_MPI_SHIM_H
#define RS_AGENT_MPI_SHIM_H

#include "agent/mpi/library.h"
#include "agent/mpi/report.h"
#include "agent/mpi/settings.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct job;

/* Invariant: constant after shim_get() but for report, opened and, below the lock,
 * jobs. */
struct shim {
	struct mpi mpi;
	struct settings settings;
	int key;            /* of the attribute of communicators that is their struct job */
	int rank;           /* in MPI_COMM_WORLD */
	bool active;        /* false: pass on every call */
	atomic_bool opened; /* a job has been: the reducers can be reached */
	struct report report;
	pthread_mutex_t lock;
	struct job *jobs; /* all that are not freed */
};

/* Returns the shim. The first call finds MPI, as the function at `caller` would, and
 * reads the settings; it ends the process if there is no MPI, and aborts the MPI
 * program if a setting is wrong. */
struct shim *shim_get(const void *caller);

/* Prints a sentence to stderr, with the rank in front. */
__attribute__((format(printf, 2, 3))) void shim_say(const struct shim *s, const char *format, ...);

#endif
