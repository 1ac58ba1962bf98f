/* SPDX-License-Identifier: Apache-2.0 */
/* A backend runs the operations of a communicator: in an engine of this process
 * (direct.c), or by handing them to the node's agent (client/). api/ checks arguments and
 * owns requests; a backend runs them. */
#ifndef RS_AGENT_LIB_BACKEND_BACKEND_H
#define RS_AGENT_LIB_BACKEND_BACKEND_H

#include "agent/lib/include/reduction.h"
#include "common/error.h"
#include "config/config.h"
#include "proto/operation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* A process's place in its job, with nothing left open. */
struct backend_options {
	struct rs_config
	    *cfg; /* on success of open it belongs to the backend, which releases it with rs_config_close and free */
	const char *job;
	const char *run;        /* identity of the training (config/run.h); "": unknown */
	const char *evidence;   /* config/evidence.h */
	const char *agent_path; /* client_open only */
	unsigned rank, world_size;
	unsigned local_rank, local_world_size;
	unsigned node_rank, nodes; /* the agent's place among agents */
	uint32_t generation;
	uint32_t connect_ms;
};

enum { BACKEND_RING_HEAD = 4096 }; /* bytes before a ring, which the backend uses */

/* One operation. The submitter owns it and keeps it until done() is called. */
struct backend_request {
	const void *send; /* equal to recv for a broadcast */
	void *recv;
	struct operation of; /* equal on all ranks, or the operation fails; the backend sets its seq */
	reduction_wire wire; /* of api/, which chooses of.up and of.down by it */
	const char *name;    /* name in messages, or NULL; valid only during the call of submit */
	/* For copier/. 0: host memory; else 1 + the device whose memory send and recv
	 * are, and the stream of the caller on which they are used. submit takes host
	 * memory only. */
	unsigned device;
	void *stream;
	/* Bytes of the ring at send and recv, which are the same place; 0: it is not a
	 * ring. The ring is memory of alloc, BACKEND_RING_HEAD bytes behind its start. It
	 * has all bytes of the operation, or at least backend_ring_bytes() in whole
	 * chunks of backend_span(); byte i is at i % ring. Of a sharded operation the
	 * chunks stand there in their order, backend_span() from each to the next, and
	 * bytes are counted so: backend_staged_bytes() in all. Without sharded_rings its
	 * ring has all parts in their order, of which send or recv is the own one, bytes
	 * are counted so, and landed() is not called.
	 * Nothing of the ring is written yet: `filled` says how much is. */
	uint64_t ring;
	/* With a ring: the first `bytes` bytes of the result are in it, or, of a root and
	 * of other ranks' parts of a reduce-scatter, their places are free. Called with
	 * growing numbers before done(), which covers the rest. Rules as for done(). */
	void (*landed)(struct backend_request *req, uint64_t bytes);
	/* Called exactly once for each submitted request, on any thread; err is NULL on
	 * success. The backend does not use the request afterwards. Must not block and
	 * must not call the backend. */
	void (*done)(struct backend_request *req, const struct rs_err *err);
	void *impl; /* used by the backend */
};

struct backend;

/* A place in another generation of the job. */
struct backend_place {
	uint32_t generation;
	unsigned rank, world_size;
};

/* The functions of a backend. */
struct backend_vtbl {
	/* Starts an operation. The order of calls is the order of operations; callers
	 * serialize them. May wait while job.max_ops operations are in flight; abort ends
	 * that. After an error the operation is not started and done() is not called. Any
	 * thread. */
	int (*submit)(struct backend *b, struct backend_request *req, struct rs_err *e);
	/* The first `bytes` bytes of a request with a ring have been written, as far as
	 * this rank contributes them, and may be sent, and their results may land. More
	 * than before, and not more than fit the ring behind what is free. One thread for
	 * each request, not after done(). */
	void (*filled)(struct backend *b, struct backend_request *req, uint64_t bytes);
	/* Optional. Runs the backend on the calling thread until done(of) or `until`
	 * (CLOCK_MONOTONIC, NULL: no limit). done(of) becomes true when some request's
	 * done() is called. `soon`: that is expected within microseconds. Returns
	 * done(of); also false if the backend cannot run here: the caller then sleeps.
	 * Any thread, also after stop, but not in done(). */
	bool (*wait)(struct backend *b, bool (*done)(const void *of), const void *of, bool soon,
		     const struct timespec *until);
	/* Returns whether sharded operations may be submitted. Any thread. */
	bool (*can_shard)(struct backend *b);
	int (*alloc)(struct backend *b, size_t bytes, void **ret, struct rs_err *e);
	void (*free)(struct backend *b, void *buf);
	/* Does not touch struct_size. */
	int (*stats)(struct backend *b, reduction_stats *ret, struct rs_err *e);
	/* Ends the job on all ranks for this reason, which every rank reads. Pending
	 * requests end with it, and later calls fail. Does not block. Any thread, also
	 * while others are in submit or wait. */
	void (*abort)(struct backend *b, const struct rs_err *why);
	/* Optional. Joins another generation of the job, which must be newer, after
	 * abort. Waits until all its ranks have joined. After an error the backend is as
	 * after abort, and may be called again. No other thread may be in submit. NULL:
	 * the backend can only be closed and opened again. */
	int (*reconfigure)(struct backend *b, const struct backend_place *to, struct rs_err *e);
	/* Leaves the job in good order and calls done(RS_ECLOSED) for pending requests.
	 * Only wait, free and close may follow. */
	void (*stop)(struct backend *b);
	/* Frees b. No thread may be in wait. */
	void (*close)(struct backend *b);
};

/* Base of each backend's own struct; its first member. Invariant: nothing of it changes
 * after open. */
struct backend {
	const struct backend_vtbl *v;
	unsigned priorities;                 /* number of priorities */
	uint32_t chunk_bytes, decoded_bytes; /* as in struct exchange_params */
	uint8_t wire_up, wire_down;          /* enum rs_wire: of large operations for which the caller chooses none */
	uint64_t ring_limit;                 /* most bytes that all rings should take together */
	uint64_t ring_bytes; /* least bytes of a ring that is smaller than its operation, if that is not encoded */
	bool sharded_rings;  /* rings of sharded operations have their chunks in order, not their parts */
	bool single_node;    /* all ranks are on this node, whose sum is the result: the reducers sum nothing */
};

/* Returns the elements of an operation's chunk. */
static inline uint32_t backend_chunk_elems(const struct backend *b, const struct operation *of)
{
	return operation_chunk_elems(of, b->chunk_bytes, b->decoded_bytes);
}

/* Returns the bytes of an operation's chunk in a ring. */
static inline uint64_t backend_span(const struct backend *b, const struct operation *of)
{
	return (uint64_t)operation_stride(of, backend_chunk_elems(b, of)) * of->size;
}

/* Returns the bytes of a ring for the whole operation. */
static inline uint64_t backend_staged_bytes(const struct backend *b, const struct operation *of)
{
	return operation_staged(of, backend_chunk_elems(b, of)) * of->size;
}

/* Returns the least bytes of a ring that is smaller than its operation: room for as many
 * chunks, whatever their encoding. */
static inline uint64_t backend_ring_bytes(const struct backend *b, const struct operation *of)
{
	return (b->ring_bytes + b->chunk_bytes - 1) / b->chunk_bytes * backend_span(b, of);
}

#endif
