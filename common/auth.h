/* SPDX-License-Identifier: Apache-2.0 */
/* Shared secrets, and proofs that a side knows one. proto/README.md specifies what a
 * proof covers. Any thread. */
#ifndef RS_COMMON_AUTH_H
#define RS_COMMON_AUTH_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	AUTH_NONCE = 32,
	AUTH_MAC = 32,
	AUTH_SECRET_MIN = 16,
	AUTH_SECRET_MAX = 1024, /* bytes of a secret */
	AUTH_BINDING_MAX = 64,  /* bytes of a channel binding */
};

/* A secret or a token. The owner calls auth_secret_clear() as soon as it is not needed
 * any more. */
struct auth_secret {
	uint32_t len; /* AUTH_SECRET_MIN .. AUTH_SECRET_MAX; 0: there is none */
	uint8_t bytes[AUTH_SECRET_MAX];
};

/* Reads a secret from a file that only its owner and group may read. A newline at the end
 * is ignored. *ret is set only on success. Errors name the file and what was expected:
 * RS_EIO if it cannot be opened or read, RS_ECONFIG if it is not a regular file, others
 * may read or write it, or its length is wrong. */
int auth_secret_load(struct auth_secret *ret, const char *file, struct rs_err *e);
/* Reads a token in the same way. A token is sent in a header, so it consists of printable
 * ASCII characters without blanks. */
int auth_token_load(struct auth_secret *ret, const char *file, struct rs_err *e);
void auth_secret_clear(struct auth_secret *s);

/* Fills buf with n <= 256 random bytes from the system. Errors: RS_EIO. */
int auth_random(void *buf, size_t n, struct rs_err *e);

enum auth_side { AUTH_WORKER, AUTH_REDUCER };

/* What a proof covers; borrowed. */
struct auth_transcript {
	const uint8_t
	    *binding; /* the channel binding: known to both ends, chosen by neither; empty if the channel has none */
	size_t binding_len;
	const uint8_t *hello; /* the payloads as they were sent */
	size_t hello_len;
	const uint8_t *challenge;
	size_t challenge_len;
};

/* Computes the proof of one side. Errors: RS_ENOMEM. */
int auth_mac(uint8_t ret[AUTH_MAC], const struct auth_secret *s, enum auth_side side, const struct auth_transcript *t,
	     struct rs_err *e);
/* Compares in constant time. */
bool auth_equal(const uint8_t a[AUTH_MAC], const uint8_t b[AUTH_MAC]);

#endif
