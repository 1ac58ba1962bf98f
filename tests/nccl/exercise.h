/* SPDX-License-Identifier: Apache-2.0 */
/* A program that opens the NCCL plugin and calls it as NCCL's net and coll_net transports
 * do. Each rank is a process; they exchange handles through memory that they share. */
#ifndef RS_TESTS_NCCL_EXERCISE_H
#define RS_TESTS_NCCL_EXERCISE_H

#include "agent/nccl/abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RANKS_MAX = 8,
	DEPTH_MAX = 64,
	COMMS_MAX = 4,
};

/* What the ranks share. */
struct shared {
	_Atomic unsigned arrived; /* at barriers, by all ranks together */
	uint8_t handles[RANKS_MAX][NCCL_HANDLE_BYTES];
	_Atomic unsigned failed_connects, connects;
};

/* The command line. */
struct options {
	const char *library;
	int version; /* of the tables, 8 to 12 */
	int ranks;
	int depth; /* operations that are kept pending */
	int ops;
	int comms;      /* communicators, used in turn */
	size_t bytes;   /* of an operation */
	double seconds; /* of a measurement */
	bool shuffle;   /* handles are not in the order of ranks */
	int odd_rank;   /* the rank that does something else; -1: none */
};

/* The tables of one version, with the arguments of the newest one. Functions of a version
 * are called by these. */
struct tables {
	int version;
	const struct nccl_net_v8 *net8;
	const struct nccl_net_v9 *net9;
	const struct nccl_net_v10 *net10;
	const struct nccl_net_v11 *net11;
	const struct nccl_net_v12 *net12;
	const struct nccl_coll_v8 *coll8;
	const struct nccl_coll_v9 *coll9; /* also version 10 */
	const struct nccl_coll_v11 *coll11;
	const struct nccl_coll_v12 *coll12;
	void *net_context, *coll_context;
	/* members with the same type in all versions */
	int (*coll_connect)(void *handles[], int ranks, int rank, void *listening, void **ret);
	int (*coll_support)(int dtype, int op, int *ret);
	int (*coll_register)(void *coll, void *data, size_t bytes, int kind, void **ret);
	int (*coll_deregister)(void *coll, void *registered);
	int (*coll_test)(void *request, int *done, int *bytes);
	int (*coll_close)(void *coll);
	int (*coll_close_listen)(void *listening);
	int (*net_accept)(void *listening, void **ret, void **device_handle);
	int (*net_register)(void *connection, void *data, size_t bytes, int kind, void **ret);
	int (*net_deregister)(void *connection, void *registered);
	int (*net_test)(void *request, int *done, int *bytes);
	int (*net_close_send)(void *connection);
	int (*net_close_receive)(void *connection);
	int (*net_close_listen)(void *listening);
};

/* Opens the library, takes the tables and calls both init functions. Returns the first
 * result that is no success. */
int tables_open(struct tables *t, const char *library, int version);
int tables_coll_listen(const struct tables *t, void *handle, void **listening);
int tables_all_reduce(const struct tables *t, void *coll, void *send, void *recv, size_t count, int dtype, int op,
		      void *send_registered, void *recv_registered, void **request);
/* Bytes [offset, offset + bytes) of the parts of all ranks, one behind the other. */
struct part_of {
	size_t part, offset, bytes;
};
int tables_all_gather(const struct tables *t, void *coll, void *send, void *recv, const struct part_of *p,
		      void *registered, void **request);
int tables_reduce_scatter(const struct tables *t, void *coll, void *send, void *recv, const struct part_of *p,
			  int dtype, int op, void *registered, void **request);
int tables_net_listen(const struct tables *t, void *handle, void **listening);
int tables_net_connect(const struct tables *t, void *handle, void **ret);
int tables_send(const struct tables *t, void *connection, void *data, size_t bytes, void *registered, void **request);
int tables_receive(const struct tables *t, void *connection, void *data, size_t bytes, void *registered,
		   void **request);
/* Checks the properties of both tables. */
void tables_check(const struct tables *t);

/* Ends the process with a sentence if a condition is false. */
double now_s(void);
/* Gives way before the next look. NCCL's thread has a core of its own and only yields;
 * here ranks, engines and reducers share few cores. Messages of the net table move during
 * looks; all-reduces do not. */
enum { LOOK_US = 20, LOOK_COLL_US = 200 };
void relax(unsigned us);
void require(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Waits until all ranks are here. */
void barrier(struct shared *s, int ranks);

/* One rank of a communicator. */
struct member {
	const struct tables *t;
	const struct options *o;
	struct shared *s;
	int rank;
	void *listening, *coll;
	uint8_t *region; /* depth places to send from, then depth to receive into */
	size_t region_bytes;
	void *registered;
};

/* Opens a communicator on all ranks: listen, exchange of handles, connect. Returns the
 * result of connect. */
int member_open(struct member *m, const struct tables *t, const struct options *o, struct shared *s, int rank);
/* As NCCL: deregister, unmap, close. */
void member_close(struct member *m);
uint8_t *member_send(const struct member *m, int place);
uint8_t *member_receive(const struct member *m, int place);

/* The cases; each is called on every rank. */
struct test_case {
	const char *name;
	void (*run)(const struct options *o, const struct tables *t, struct shared *s, int rank);
};
extern const struct test_case coll_cases[], net_cases[], slice_cases[]; /* the last one has no name */

#endif
