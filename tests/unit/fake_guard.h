/* SPDX-License-Identifier: Apache-2.0 */
/* What a reducer asks of those who come, in tests of the handshake (server/join/handshake.h). */
#ifndef RS_TESTS_UNIT_FAKE_GUARD_H
#define RS_TESTS_UNIT_FAKE_GUARD_H

#include "server/join/handshake.h"

#include <stdbool.h>

extern const char guard_shared[]; /* a secret */

struct guard {
	struct handshake_policy policy;
	struct auth_secret secret;
	const char *only; /* the one job that has a secret; NULL: each has */
	uint8_t next;     /* nonces are made of one byte each */
	const char *peer; /* whom guard_may_join heard of */
	unsigned asked;   /* how often */
	bool closed;      /* nobody may join */
	bool no_randomness;
};

/* NULL: no secret is asked for. Who may join is not asked either. */
void guard_init(struct guard *g, const char *secret);
/* For the policy, and for a worker, with a guard as the context. */
int guard_may_join(void *ctx, const char *peer, const struct control_hello *hello, struct control_refused *refused);
int guard_random(void *ctx, void *buf, size_t n, struct rs_err *e);

/* Feeds bytes in pieces until the handshake has an answer; *ret_used: how many it took. */
enum handshake_step guard_feed(struct handshake *h, const uint8_t *bytes, size_t len, size_t piece,
			       struct handshake_result *ret, size_t *ret_used);

#endif
