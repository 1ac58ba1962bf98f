/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a scenario: NCCL's functions, and what scenarios do with them. */
#ifndef RS_TESTS_NCCL_REAL_RANK_H
#define RS_TESTS_NCCL_REAL_RANK_H

#include "tests/nccl/real/fake.h"

struct unique_id {
	char bytes[128];
};

/* Functions of libnccl, NULL where a version lacks one. Results are ncclResult_t, 0:
 * success. */
struct nccl {
	int (*unique_id)(struct unique_id *ret);
	int (*init)(void **ret, int ranks, struct unique_id id, int rank);
	int (*destroy)(void *comm);
	int (*finalize)(void *comm);
	int (*abort)(void *comm);
	int (*async_error)(void *comm, int *ret);
	int (*split)(void *comm, int color, int key, void **ret, void *config);
	int (*shrink)(void *comm, int *excluded, int n, void **ret, void *config, int flags);
	int (*grow_id)(void *comm, struct unique_id *ret);
	int (*grow)(void *comm, int ranks, const struct unique_id *id, int rank, void **ret, void *config);
	int (*all_reduce)(const void *send, void *recv, size_t n, int type, int op, void *comm, void *stream);
	int (*all_gather)(const void *send, void *recv, size_t n, int type, void *comm, void *stream);
	int (*reduce_scatter)(const void *send, void *recv, size_t n, int type, int op, void *comm, void *stream);
	int (*broadcast)(const void *send, void *recv, size_t n, int type, int root, void *comm, void *stream);
	int (*send)(const void *data, size_t n, int type, int peer, void *comm, void *stream);
	int (*receive)(void *data, size_t n, int type, int peer, void *comm, void *stream);
	const char *(*error_text)(int code);
	const char *(*last_error)(void *comm);
};

struct rank {
	struct nccl nccl;
	const char *folder; /* where ranks leave ids and find events */
	int rank, ranks;
	int made; /* communicators so far */
	int barriers;
	void *stream;
};

/* A communicator of the first `ranks` ranks; the process ends if it cannot be made. */
void *comm_make(struct rank *r, int ranks);
/* Hands an id to the other ranks, and waits for one. */
void id_leave(struct rank *r, const char *name, const struct unique_id *id);
struct unique_id id_find(struct rank *r, const char *name);

/* Starts an all-reduce of n elements, waits for its end and checks its result as that of
 * `members` ranks, this one the `place`-th. Returns false after it has printed what is
 * wrong. */
bool reduce(struct rank *r, void *comm, enum kernel_type type, enum kernel_op op, size_t n, int place, int members);
/* Only starts it. Returns NCCL's result. */
int reduce_start(struct rank *r, void *comm, size_t n);

/* Waits until no kernel runs or the communicator has an error, for at most limit_s
 * seconds. Returns the error; -1: there was none in time. */
int comm_wait(struct rank *r, void *comm, double limit_s);

/* Prints "cell NAME ..." for the table. */
void cell(const struct rank *r, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
double now_s(void);

/* Lets the other ranks know of an event, and waits for one. */
void event_tell(const struct rank *r, const char *name);
bool event_wait(const struct rank *r, const char *name, double limit_s);

/* Waits until all ranks are here. */
void barrier(struct rank *r);

/* scenarios.c */
struct scenario {
	const char *name;
	void (*run)(struct rank *r);
};
extern const struct scenario scenarios[]; /* the last one has no name */

#endif
