/* SPDX-License-Identifier: Apache-2.0 */
/* A secret that two sides share, and proofs that they have it; proto/README.md says what is proven. Any thread. */
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
	AUTH_BINDING_MAX = 64,  /* bytes by which a channel is known to both its ends */
};

/* Bytes of nobody else's: auth_secret_clear() as soon as they are not needed any more. */
struct auth_secret {
	uint32_t len; /* AUTH_SECRET_MIN .. AUTH_SECRET_MAX; 0: there is none */
	uint8_t bytes[AUTH_SECRET_MAX];
};

/* Reads a file that nobody but its owner and group may read; a newline at its end does not count. *ret is set only on
 * success. Errors name the file and say what was expected: RS_EIO when it cannot be opened or read, RS_ECONFIG when it
 * is no regular file, others may read or write it, or its length is wrong. */
int auth_secret_load(struct auth_secret *ret, const char *file, struct rs_err *e);
/* The same of a token, a secret that is shown as text in a header: printable characters of ASCII, no blanks. */
int auth_token_load(struct auth_secret *ret, const char *file, struct rs_err *e);
void auth_secret_clear(struct auth_secret *s);

/* n <= 256 random bytes of the system. Errors: RS_EIO. */
int auth_random(void *buf, size_t n, struct rs_err *e);

enum auth_side { AUTH_WORKER, AUTH_REDUCER };

/* What a proof is about; borrowed. */
struct auth_transcript {
	const uint8_t
	    *binding; /* of the channel: what both its ends know and nobody can choose; empty when it has none */
	size_t binding_len;
	const uint8_t *hello; /* the payloads, as they were sent */
	size_t hello_len;
	const uint8_t *challenge;
	size_t challenge_len;
};

/* The proof of one side. Errors: RS_ENOMEM. */
int auth_mac(uint8_t ret[AUTH_MAC], const struct auth_secret *s, enum auth_side side, const struct auth_transcript *t,
	     struct rs_err *e);
/* In a time that does not tell where they differ. */
bool auth_equal(const uint8_t a[AUTH_MAC], const uint8_t b[AUTH_MAC]);

#endif
