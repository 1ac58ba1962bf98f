/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer's policy in tests of the handshake (server/join/handshake.h). */
#ifndef RS_TESTS_UNIT_FAKE_GUARD_H
#define RS_TESTS_UNIT_FAKE_GUARD_H

#include "server/join/handshake.h"

#include <stdbool.h>

extern const char guard_shared[]; /* a secret */

struct guard {
	struct handshake_policy policy;
	struct auth_secret secret;
	const char *only; /* the one job that has a secret; NULL: each has */
	uint8_t next;     /* a nonce repeats one byte; this is the next one */
	const char *peer; /* argument of the last guard_may_join */
	unsigned asked;   /* number of its calls */
	bool closed;      /* no worker may join */
	bool no_randomness;
};

/* The handshake policy. NULL: no secret and no access rules. */
void guard_init(struct guard *g, const char *secret);
/* Callbacks of the policy, and of a worker, with a guard as the context. */
int guard_may_join(void *ctx, const char *peer, const struct control_hello *hello, double *ret_weight,
		   struct control_refused *refused);
int guard_random(void *ctx, void *buf, size_t n, struct rs_err *e);

/* Feeds bytes in pieces until the handshake has a result; *ret_used is the number of
 * bytes it consumed. */
enum handshake_step guard_feed(struct handshake *h, const uint8_t *bytes, size_t len, size_t piece,
			       struct handshake_result *ret, size_t *ret_used);

#endif
