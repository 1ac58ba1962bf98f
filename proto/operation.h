/* SPDX-License-Identifier: Apache-2.0 */
/* The description of an operation, on which all ranks have to agree, and the sentence for ranks that do not. */
#ifndef RS_PROTO_OPERATION_H
#define RS_PROTO_OPERATION_H

#include "common/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
	OPERATION_TEXT = 96,
	OPERATION_ANY_ROOT = UINT32_MAX,
	/* Bytes of the largest small operation. Its caller usually waits for it, and it delays others by a few frames
	 * only. So it gets the highest priority if its caller gives none, is sent by the thread that submits it, and
	 * who waits for it spins before sleeping. All ranks must use the same value, so it is not configurable. */
	OPERATION_SMALL = 64 << 10,
};

/* One operation as one rank called it. */
struct operation {
	uint64_t seq;
	uint64_t count; /* elements */
	unsigned op, dtype;
	unsigned tensors; /* of a group; 0: not a group */
	uint32_t root;    /* of a broadcast; OPERATION_ANY_ROOT: not known here */
	unsigned priority;
	uint64_t name_hash;
	const char *name; /* NULL: only the hash is known */
};

/* Writes "an all-reduce sum of 10 float32" or the like into buf. */
void operation_describe(char *buf, size_t size, const struct operation *o);

/* Compares the operations a and b of the ranks with these names. Errors: RS_EMISMATCH, with a sentence that names both
 * ranks and the first difference. */
int operation_check_same(const struct operation *a, const char *rank_a, const struct operation *b, const char *rank_b,
			 struct rs_err *e);

#endif
