/* SPDX-License-Identifier: Apache-2.0 */
/* The binary frame: a fixed 64-byte little-endian header, then payload_len bytes.
 * proto/README.md is the specification; this is the only implementation, used by both
 * ends. Pure functions, any thread. */
#ifndef RS_PROTO_FRAME_H
#define RS_PROTO_FRAME_H

#include "common/error.h"
#include "proto/operation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The highest number of an operation. No rank counts so far, and one more can still be
 * acknowledged. */
#define FRAME_SEQ_MAX ((uint64_t)INT64_MAX)

enum {
	FRAME_HEADER = 64,            /* bytes of a header */
	FRAME_VERSION = 1,            /* of the protocol */
	FRAME_CONTROL_MAX = 4096,     /* most bytes of a control payload */
	FRAME_PAYLOAD_MAX = 16 << 20, /* most bytes of any payload: a decoder refuses more before it reads them */
	FRAME_PRIORITIES = 4,         /* most priorities of a job; the priority of an operation is lower than this */
};

enum frame_type {
	FRAME_HELLO = 1,    /* worker: protobuf Hello, the first frame of a connection */
	FRAME_WELCOME = 2,  /* reducer: protobuf Welcome, the connection is part of the job */
	FRAME_REFUSED = 3,  /* reducer: protobuf Refused, then it closes */
	FRAME_WAITING = 4,  /* reducer: protobuf Waiting, which ranks have not joined yet */
	FRAME_START = 5,    /* reducer: all ranks have joined on all their lanes; no payload */
	FRAME_DATA = 6,     /* worker: its contribution to one chunk */
	FRAME_RESULT = 7,   /* reducer: the reduced chunk */
	FRAME_PING = 8,     /* both: sent when nothing else was sent for a while; no payload, no answer */
	FRAME_ABORT = 9,    /* both: protobuf Abort, this generation of the job is over */
	FRAME_GOODBYE = 10, /* worker: it leaves the job in an orderly way; no payload */
	/* in jobs that survive the loss of reducers: */
	FRAME_VIEW = 11, /* both: protobuf View, which reducers are lost */
	FRAME_RESUME =
	    12, /* reducer: protobuf View; all ranks have sent this view, and the stripe resumes from its start */
	FRAME_HAVE = 13,   /* worker: in place of DATA, it already has the chunk's result; no payload */
	FRAME_FETCH = 14,  /* reducer: other ranks lack the result of this chunk; no payload */
	FRAME_KEPT = 15,   /* worker: the answer to FETCH, the result */
	FRAME_SETTLE = 16, /* worker: asks to be told when all ranks have the results below `ack`; no payload */
	FRAME_DRAIN = 17,  /* reducer: it wants to stop, so its shards should move to other reducers; no payload */
	FRAME_LATE = 18,   /* reducer: protobuf Late, the ranks for which an operation waits */
	/* in jobs that have a secret: */
	FRAME_CHALLENGE = 19, /* reducer: protobuf Challenge, the answer to HELLO */
	FRAME_PROOF = 20,     /* worker: protobuf Proof, the answer to CHALLENGE */
	/* on connections that bring a reducer back: */
	FRAME_PROBE = 21,     /* both: as many bytes as a chunk, of any value, and back; then none: it has arrived */
	FRAME_NONFINITE = 22, /* worker: protobuf Nonfinite, what it has sent of NaN and infinity so far */
	FRAME_LOAD = 23,      /* both: protobuf Load, how busy a connection or a lane is */
	FRAME_CREDIT = 24,    /* reducer: how many chunks of a priority it has added; no payload */
	FRAME_TYPE_NR
};

enum frame_flags {
	FRAME_WIDE = 1,    /* DATA: the payload is float32 partial sums although dtype is float16 or bfloat16 */
	FRAME_ROOT = 2,    /* DATA of a broadcast: this rank is the root and the payload is the data */
	FRAME_CHECKED = 4, /* payload_sum is the payload's checksum */
	FRAME_RELAY =
	    8, /* DATA: the reducer adds the ranks of this group and sends the sum to the home in `generation` */
	FRAME_FLAGS_ALL = 15,
};

/* A header in host byte order. Fields that a type does not use are 0. Invariant after
 * frame_decode: type, flags, of.priority and payload_len are in range. */
struct frame {
	struct operation of;  /* priority: 0 .. FRAME_PRIORITIES - 1; DATA and RESULT of a higher one go first */
	uint8_t type;         /* enum frame_type */
	uint8_t flags;        /* enum frame_flags */
	uint32_t payload_len; /* bytes that follow the header */
	uint32_t payload_sum; /* with FRAME_CHECKED: frame_checksum(payload) */
	uint32_t chunk;       /* index of the chunk in its operation */
	uint32_t chunk_elems; /* elements of every chunk but the last */
	uint32_t generation;  /* of the job; with FRAME_RELAY: frame_home() */
	uint64_t ack;         /* worker: all operations below it are complete here; reducer: all below it are stable */
};

/* What has come on a connection behind the end of its job and belongs to the next
 * handshake. */
struct frame_rest {
	uint32_t skip; /* bytes of a frame that are still to come and to be discarded */
	uint32_t have; /* then: bytes of a frame, all or the first ones */
	uint8_t bytes[FRAME_HEADER + FRAME_CONTROL_MAX]; /* [have] */
};

/* Writes the 64 bytes of *f with their checksum. */
void frame_encode(const struct frame *f, uint8_t out[FRAME_HEADER]);

/* Reads 64 bytes. Errors (RS_EPROTO): wrong magic, version or checksum, unknown type or
 * flags, a payload longer than the type allows. *ret is set only on success. The meaning
 * of the fields in the job is not checked here. */
int frame_decode(const uint8_t in[FRAME_HEADER], struct frame *ret, struct rs_err *e);

/* Returns the low 32 bits of XXH3-64 of the bytes. */
uint32_t frame_checksum(const void *data, size_t len);

/* Returns the hash of an operation's name for operation.name_hash: 0 for NULL and "",
 * never 0 for another name. */
uint32_t frame_name_hash(const char *name);

/* Returns "DATA", ...; "type?" for an unknown number. */
const char *frame_type_name(unsigned type);

/* Returns the elements of chunk `chunk` of an operation; 0 for the only chunk of an empty
 * operation, or past the end.
 */
uint32_t frame_chunk_len(uint64_t count, uint32_t chunk_elems, uint32_t chunk);

/* Returns the number of chunks, at least 1: an empty operation has one empty chunk. */
uint64_t frame_chunks(uint64_t count, uint32_t chunk_elems);

/* The home of a chunk in a frame with FRAME_RELAY: the index of its reducer, and a lane
 * of that. */
static inline uint32_t frame_home(unsigned reducer, unsigned lane)
{
	return (uint32_t)reducer << 16 | lane;
}

static inline unsigned frame_home_reducer(uint32_t home)
{
	return home >> 16;
}

static inline unsigned frame_home_lane(uint32_t home)
{
	return home & 0xffff;
}

/* Returns the reserve of each priority: how many chunks of one priority a worker may
 * always have in flight on a lane, however many it has of other priorities. It may send a
 * chunk of a priority that has fewer than this in flight, or if all priorities together
 * have fewer than `window`.
 * Without the reserve two workers could wait for each other for ever. One has a full
 * window of urgent chunks that the other has not sent. The other's window is full of
 * chunks of less urgent operations that it started before, and that the first one cannot
 * send either.
 * The reserve also lets less urgent operations go on while a slow rank keeps an urgent
 * one waiting. */
static inline uint32_t frame_reserve(uint32_t window)
{
	return window < 8 ? 1 : window / 8;
}

#endif
