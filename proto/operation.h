/* SPDX-License-Identifier: Apache-2.0 */
/* The description of an operation, on which all ranks have to agree, and the sentence for
 * ranks that do not. */
#ifndef RS_PROTO_OPERATION_H
#define RS_PROTO_OPERATION_H

#include "common/error.h"
#include "common/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	OPERATION_TEXT = 96,
	OPERATION_ANY_ROOT = UINT32_MAX,
	OPERATION_AUTO = UINT8_MAX, /* no priority is given: the size decides */
	/* Bytes of the largest small operation. Its caller usually waits for it, and it
	 * delays others by a few frames only. So it gets the highest priority if its
	 * caller gives none, is sent by the thread that submits it, and who waits for it
	 * spins before sleeping. All ranks must use the same value, so it is not
	 * configurable. */
	OPERATION_SMALL = 64 << 10,
};

/* Value of `op` beyond enum rs_op: one rank, the root, contributes, and all ranks get its
 * bytes. */
enum { FRAME_OP_BROADCAST = 16 };

enum {
	OPERATION_PARTS_MAX = 1 << 20, /* most parts of a sharded operation */
	OPERATION_SIZE = 127,          /* the bits of `size` */
};

/* One operation as one rank called it. Frames, messages, and all that run an operation
 * have it as a member. Invariant: size is that of dtype.
 *
 * A sharded operation has as many equal parts as there are training processes, and each
 * process owns one. With an op of enum rs_op it is a reduce-scatter: each process gets
 * its part of the reduction. With FRAME_OP_BROADCAST it is an all-gather: each process
 * contributes its part, and all get all parts. */
struct operation {
	uint64_t seq;   /* number of the operation in its communicator, from 0 */
	uint64_t count; /* elements on every rank; if sharded, of all parts together */
	union {
		uint32_t root;  /* of a broadcast: a rank, or OPERATION_ANY_ROOT: not known here; else 0 */
		uint32_t parts; /* if sharded */
	};
	uint32_t tensors;   /* tensors of the group that shares the operation; 0: it is not a group */
	uint32_t name_hash; /* frame_name_hash() of its name, of a group: of all names and counts; 0: no name */
	uint8_t dtype : 4;  /* enum rs_dtype */
	uint8_t up : 4;     /* enum rs_wire: encoding of the contributions */
	uint8_t op : 5;     /* enum rs_op or FRAME_OP_BROADCAST */
	uint8_t down : 3;   /* enum rs_wire: encoding of the result */
	uint8_t size : 7;   /* bytes of an element; 0: dtype is unknown */
	uint8_t sharded : 1;
	uint8_t priority; /* 0: least urgent; values above the highest priority mean the highest; OPERATION_AUTO */
};

static inline uint64_t operation_bytes(const struct operation *o)
{
	return o->count * o->size;
}

static inline bool operation_is_small(const struct operation *o)
{
	return operation_bytes(o) <= OPERATION_SMALL;
}

/* Returns the bytes of an element of a contribution. wide: it has float32 partial
 * sums. */
static inline uint32_t operation_wire_size(const struct operation *o, bool wide)
{
	return wide ? (uint32_t)sizeof(float) : o->size;
}

/* Returns whether contributions or results are encoded. */
static inline bool operation_is_encoded(const struct operation *o)
{
	return o->up || o->down;
}

/* Sets the encodings of contributions and results. Where one does not fit the operation
 * (rs_wire_fits), the elements are sent as they are. */
void operation_choose_wire(struct operation *o, unsigned up, unsigned down);

/* The same with the words of job.wire. They are for large operations: small ones are
 * losses, counters and flags, and gain nothing. */
static inline void operation_choose_job_wire(struct operation *o, unsigned up, unsigned down)
{
	if (!operation_is_small(o))
		operation_choose_wire(o, up, down);
}

/* Returns the size of the operation's chunks in the wider one of both directions, without
 * scales: chunk_bytes, which is the job's, or less if it is sharded. The results of a
 * reduce-scatter have no payload for most ranks. So they reach all ranks at once, and all
 * ranks send their next chunk to the same port at once, while other results go out one
 * after the other. The queue of the port must take what comes. With 8 ranks, 250 Mbit/s
 * and queues of 5 ms: 29.6 MB/s and no loss with 16 KiB, 21 and 3 % with 32 KiB.
 * All-gathers have the same chunks, since both run at once. */
uint32_t operation_chunk_limit(const struct operation *o, uint32_t chunk_bytes);

/* Returns the elements of every chunk but the last. chunk_bytes is the job's;
 * decoded_bytes is the most that one decoded chunk may take on a reducer (Hello). Encoded
 * chunks consist of whole blocks. */
uint32_t operation_chunk_elems(const struct operation *o, uint32_t chunk_bytes, uint32_t decoded_bytes);

/* Returns the bytes in memory of every chunk but the last: chunk_bytes unless it is
 * encoded. A ring consists of whole ones, so that no chunk wraps. */
static inline uint64_t operation_span(const struct operation *o, uint32_t chunk_bytes, uint32_t decoded_bytes)
{
	return (uint64_t)operation_chunk_elems(o, chunk_bytes, decoded_bytes) * o->size;
}

/* Returns the bytes of n elements of a chunk as contributions (not of a node's float32
 * partial sums) and as results. */
static inline uint32_t operation_up_bytes(const struct operation *o, uint32_t n)
{
	return (uint32_t)rs_wire_bytes(o->up, o->size, n);
}

static inline uint32_t operation_down_bytes(const struct operation *o, uint32_t n)
{
	return (uint32_t)rs_wire_bytes(o->down, o->size, n);
}

/* The place of a chunk in its operation. */
struct operation_place {
	uint64_t first;  /* its first element */
	uint64_t offset; /* if sharded: the same, counted from the beginning of its part */
	uint64_t staged; /* the same in a stage, where the chunks stand in their order (operation_stride) */
	uint32_t elems;
	uint32_t part; /* if sharded */
};

static inline bool operation_is_scatter(const struct operation *o)
{
	return o->sharded && o->op != FRAME_OP_BROADCAST;
}

static inline bool operation_is_gather(const struct operation *o)
{
	return o->sharded && o->op == FRAME_OP_BROADCAST;
}

/* Returns the number of chunks, at least 1; if sharded, at least 1 for each part. */
uint64_t operation_chunks(const struct operation *o, uint32_t chunk_elems);
/* Returns the place of a chunk, without elements past the end. A sharded operation takes
 * a chunk of each part in turn, and begins each round one part later: so neighbours in
 * the order of chunks have different owners, and each part is on all reducers. */
struct operation_place operation_place(const struct operation *o, uint32_t chunk_elems, uint32_t chunk);
/* Returns the chunk that begins at element `first` of the operation, the inverse of
 * operation_place. */
uint32_t operation_chunk_at(const struct operation *o, uint32_t chunk_elems, uint64_t first);

/* Returns the elements from one chunk to the next in a stage, where the chunks stand in
 * their order: those of a whole chunk, or of a part that is smaller. */
static inline uint32_t operation_stride(const struct operation *o, uint32_t chunk_elems)
{
	uint64_t part = o->sharded ? o->count / o->parts : o->count;

	return o->sharded && part < chunk_elems ? (uint32_t)part : chunk_elems;
}

/* Returns the elements of a stage for the whole operation: of a sharded one with gaps
 * behind the short chunks at the ends of the parts. */
static inline uint64_t operation_staged(const struct operation *o, uint32_t chunk_elems)
{
	return o->sharded ? operation_chunks(o, chunk_elems) * operation_stride(o, chunk_elems) : o->count;
}

/* Writes "an all-reduce sum of 10 float32" or the like into buf. */
void operation_describe(char *buf, size_t size, const struct operation *o);

/* An operation and who called it. */
struct operation_call {
	const struct operation *of;
	const char *rank; /* for messages */
	const char *name; /* of the operation; NULL: only the hash is known */
};

/* Compares what two ranks called in the same place. Errors: RS_EMISMATCH, with a sentence
 * that names both ranks and the first difference. */
int operation_check_same(const struct operation_call *a, const struct operation_call *b, struct rs_err *e);

#endif
