/* SPDX-License-Identifier: Apache-2.0 */
/* A CollNet communicator: the all-reduces, all-gathers and reduce-scatters of one NCCL
 * communicator, through an engine of its own.
 *
 * NCCL calls listen on one rank of each node, exchanges the handles, and calls connect on
 * these ranks, the members. Then one thread of NCCL calls iallreduce, iallgather,
 * ireducescatter and test, which never block. Every function returns an nccl_result and
 * warns once about each error.
 *
 * Memory of a request is NCCL's. The engine uses it from that call until the request has
 * ended, and not after deregMr has returned: that ends the job if requests are pending. A
 * communicator that is closed while other ranks still need results waits for them on a
 * thread of its own. */
#ifndef RS_AGENT_NCCL_COLL_H
#define RS_AGENT_NCCL_COLL_H

#include "agent/nccl/plugin.h"
#include "agent/nccl/slice.h"

struct coll;
struct coll_listen;

enum {
	COLL_REQUESTS = 64, /* collectives of one communicator that NCCL has not tested to their end */
};

/* Fills the handle (NCCL_HANDLE_BYTES) with random bytes and a digest of the settings. */
int coll_listen(struct plugin *p, void *handle, struct coll_listen **ret);
void coll_close_listen(struct coll_listen *l);

/* Joins the job that handles[0] names, as member `rank` of `ranks`, and votes; blocks for
 * at most timeouts.connect. All members fail, or none: until it has voted a member may
 * fail, and then `l` is freed; after its vote it succeeds, and what fails then is the
 * result of its first all-reduce. */
int coll_connect(struct plugin *p, void *handles[], int ranks, int rank, struct coll_listen *l, struct coll **ret);

struct plugin *coll_plugin(const struct coll *c);
/* Returns whether the reducers know the dtype and the operation (NCCL's numbers). */
bool coll_supports(int dtype, int op);

int coll_register(struct coll *c, void *data, size_t bytes, int kind, void **ret);
/* After it no thread of the plugin touches that memory. If all-reduces in it are pending,
 * the job ends on all ranks. */
int coll_deregister(struct coll *c, void *registered);

/* Starts an all-reduce. *request is NULL if COLL_REQUESTS are pending. The first call of
 * this, of the next two and of coll_test after the communicator has failed returns the
 * error; the others succeed, and their results are NaN. */
int coll_all_reduce(struct coll *c, const void *send, void *recv, size_t count, int dtype, int op, void **request);
/* Starts a slice of an all-gather: recv gets it, and `send` has this rank's bytes in it.
 * The rest is as above. */
int coll_all_gather(struct coll *c, const void *send, void *recv, const struct slice *w, void **request);
/* Starts a slice of a reduce-scatter: `send` has it, and recv gets this rank's bytes in
 * it. */
int coll_reduce_scatter(struct coll *c, const void *send, void *recv, const struct slice *w, int dtype, int op,
			void **request);
/* Sets *done, and if it is 1 *bytes (may be NULL) of the result; the request is then
 * free. */
int coll_test(void *request, int *done, int *bytes);

/* Frees c; blocks for at most 2 s. If all-reduces are pending, the job ends on all
 * ranks. */
int coll_close(struct coll *c);

#endif
