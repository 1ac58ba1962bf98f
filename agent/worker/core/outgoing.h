/* SPDX-License-Identifier: Apache-2.0 */
/* What a link sends: chunks, and the streams in which they are ordered. */
#ifndef RS_AGENT_WORKER_CORE_OUTGOING_H
#define RS_AGENT_WORKER_CORE_OUTGOING_H

#include "proto/frame.h"

#include <stdint.h>
#include <sys/uio.h>

struct exchange_op;

/* One frame of a stream: a contribution that is being sent or waits for its result, or a
 * retained result that is being sent (KEPT). Invariant: header is the encoded head;
 * payload has head.payload_len bytes. */
struct outgoing {
	struct exchange_op *op; /* NULL if this rank has the result already: HAVE and KEPT */
	uint64_t position;      /* number of the chunk, counted over all operations of its priority */
	const void *payload;
	uint32_t bytes;   /* of its elements: what it takes of the window */
	uint32_t sent_ms; /* modulo 2^32: when its last byte was sent */
	struct frame head;
	uint8_t header[FRAME_HEADER];
};

/* Returns whether this rank is the root of the chunk, see exchange_op_is_root(). */
static inline bool outgoing_is_root(const struct outgoing *f)
{
	return f->head.flags & FRAME_ROOT;
}

/* Says where the bytes of a frame are, without the first `off`. Returns the number of
 * entries, at most 2. */
static inline unsigned outgoing_iov(struct iovec *iov, struct outgoing *f, uint32_t off)
{
	uint32_t len = f->head.payload_len;
	unsigned n = 0;

	if (off < FRAME_HEADER) {
		iov[n++] = (struct iovec){f->header + off, FRAME_HEADER - off};
		off = FRAME_HEADER;
	}
	off -= FRAME_HEADER;
	if (off < len)
		iov[n++] = (struct iovec){(char *)f->payload + off, len - off};
	return n;
}

/* The chunks of one priority on a link. They are sent in the order (seq, chunk), and
 * results arrive in the same order. Invariants: head <= credited <= sent <= tail <=
 * head + link.ahead (counters that wrap, from 0 on at START and at RESUME). [head, sent)
 * is sent completely and waits for results; the reducer has said of [head, credited) that
 * it has added them; [sent, tail) is encoded. op is the operation of the next chunk to
 * encode, which is `chunk` and belongs to own[own_at] of the link; NULL: no submitted
 * operation of this priority has a chunk left. After the loss of a reducer, chunks are
 * sent again from a position on which all ranks agree. Those below `replay_end` may have
 * a retained result; those whose operation is done are found by looking at every position
 * from `replay` on. */
struct stream {
	struct exchange_op *op;
	uint64_t chunk;
	uint64_t replay, replay_end;
	unsigned own_at;
	uint32_t head, credited, sent, tail;
	uint32_t mask; /* of the ring */
	struct outgoing *ring;
};

#endif
