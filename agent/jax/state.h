/* SPDX-License-Identifier: Apache-2.0 */
/* libreduction-jax: the collectives of JAX on CPUs, on libreduction.
 *
 * reduction/jax.py calls reduction_jax_open() when jax.distributed has been initialized;
 * XLA then calls the functions of abi.h. A communicator of XLA is the job itself or a
 * group of its ranks; two ranks that send to each other have a group of two. All ranks of
 * a communicator must call it in the same order, as XLA does.
 *
 * Threads: any thread; one call at a time on each communicator. */
#ifndef RS_AGENT_JAX_STATE_H
#define RS_AGENT_JAX_STATE_H

#include "agent/jax/abi.h"
#include "agent/lib/include/reduction.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* A communicator of libreduction that several of XLA's may share: that of the job, or of
 * a group of its ranks. */
struct jax_group {
	struct jax_group *next;
	reduction_comm *comm; /* NULL: closed, or one rank */
	int size;
	int members[]; /* ranks of the job, in the order of the group's */
};

/* A communicator of XLA. Its handle stays valid until the process ends, since XLA uses
 * and frees communicators after MPIABI_Finalize. */
struct jax_comm {
	struct jax_comm *next;
	struct jax_group *group; /* NULL: broken or closed */
	int rank, size;
	char broken[508];             /* the sentence of each later call; "": it works */
	struct jax_request *requests; /* messages that have not been started, in the order of the calls */
};

/* This process. XLA passes no context. */
struct jax_state {
	pthread_mutex_t lock;
	pthread_cond_t idle; /* calls became 0 */
	int calls;           /* of XLA in progress: between jax_begin() and jax_end() */
	struct jax_comm world;
	struct jax_group *groups;
	struct jax_comm *comms;
	char *run; /* of the job; NULL: the launcher's */
	bool initialized, finalized;
	bool loading, loaded; /* jaxlib is being imported; it has accepted this library */
	char failed[508];     /* the first error; "": none */
};

extern struct jax_state jax_state;

/* A type of MPI, as the reducers see it. */
struct jax_type {
	const uint64_t *handle;
	reduction_dtype dtype; /* in which it is reduced */
	unsigned char size;    /* bytes of an element */
	unsigned char parts;   /* elements of dtype in an element: 2 of complex numbers */
	bool wide;             /* an element of dtype has twice as many bytes: of 16-bit integers */
};

/* error.c */
/* Keeps a sentence for MPIABI_Error_string on this thread. Returns JAX_ERROR. */
int jax_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with the error of libreduction. */
int jax_fail_error(const char *what, const reduction_error *e);
/* Returns the communicator of a handle. */
struct jax_comm *jax_comm_of(jax_handle comm);
/* Begins a call on a communicator, whose group stays open until jax_end(). False: the
 * error is kept, and nothing has begun. */
bool jax_begin(jax_handle handle, struct jax_comm **ret);
/* Ends the call. Returns rc. */
int jax_end(int rc);

/* group.c */
/* Finds or opens the group of these ranks of the job; all of them must call. NULL: the
 * error is kept. The caller owns nothing. */
struct jax_group *jax_group_of(const int *members, int size);
/* Closes all. Calls in progress are aborted, and it waits for their ends. Communicators
 * of XLA stay, and return `why`. */
void jax_close_all(const char *why);

/* type.c */
/* Finds a type, and checks the number of elements. False: the error is kept; `what` names
 * the call. */
bool jax_type_of(jax_handle type, int count, const char *what, const struct jax_type **ret);
/* Finds an operation. False: the error is kept. */
bool jax_op_of(jax_handle op, const struct jax_type *type, const char *what, reduction_op *ret);
/* Copy 16-bit integers to and from 32-bit ones. */
void jax_widen(const struct jax_type *t, const void *from, void *to, size_t count);
void jax_narrow(const void *from, void *to, size_t count);
/* acc[i] *= x[i], of complex numbers. */
void jax_multiply_complex(const struct jax_type *t, void *acc, const void *x, size_t count);

/* collective.c */
/* Gathers `bytes` bytes of each rank in `recv`, in the order of the ranks. */
int jax_gather(struct jax_comm *c, const void *send, void *recv, size_t bytes);

/* What reduction/jax.py calls. */
/* Opens the job. Another one that is open is closed first. `run` (may be NULL) as in
 * reduction_options. */
JAX_EXPORT int reduction_jax_open(int rank, int world_size, const char *run, reduction_error *err);
/* Closes the job and all groups, at the end of the process. */
JAX_EXPORT void reduction_jax_close(void);
/* Copies the first error of a call of XLA's to text, which has room for 508 bytes.
 * Returns whether there was one. */
JAX_EXPORT int reduction_jax_failed(char *text);
/* Before and after jaxlib is imported: if jaxlib ends the process because it wants
 * another interface, a sentence on stderr says so. */
JAX_EXPORT void reduction_jax_loading(int loading);

#endif
