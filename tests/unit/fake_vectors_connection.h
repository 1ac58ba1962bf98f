/* SPDX-License-Identifier: Apache-2.0 */
/* Follows a connection of a recorded job, which may go on in another generation. */
#ifndef RS_TESTS_UNIT_FAKE_VECTORS_CONNECTION_H
#define RS_TESTS_UNIT_FAKE_VECTORS_CONNECTION_H

#include "tests/unit/fake_vectors.h"

struct vectors_connection {
	struct vectors_bytes hello, challenge; /* the last frames of these types; empty: none */
	uint32_t generation, before;           /* of the last two HELLOs */
	uint64_t announced;                    /* the features of the last HELLO */
	bool joins, again;                     /* HELLO has no answer yet; it came behind ABORT */
	bool proven;                           /* PROOF came behind it */
	bool keeps;                            /* it outlives the job */
	bool ended;                            /* by ABORT; HELLO may follow */
};

/* Checks the next frame: its generation, the proofs, and that nothing but HELLO follows
 * the worker's end of a generation. secret: NULL if the job has none. *ret_taken: the
 * receiver does not discard it. */
int vectors_follow(struct vectors_connection *c, const struct auth_secret *secret, bool from_worker,
		   const struct vectors_bytes *raw, bool *ret_taken, struct rs_err *e);

#endif
