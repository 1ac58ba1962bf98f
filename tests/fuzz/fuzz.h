/* SPDX-License-Identifier: Apache-2.0 */
/* Shared parts of the fuzz targets. An input is a small program: a target reads numbers
 * from it and acts on them; after the end of the input all numbers are 0. So a few bytes
 * make whole valid frames and messages, single fields of which the input may change. If
 * inputs were the raw bytes of a connection, checksums would reject nearly all of them.
 */
#ifndef RS_TESTS_FUZZ_FUZZ_H
#define RS_TESTS_FUZZ_FUZZ_H

#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

/* The entry point for libFuzzer and replay.c. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A condition that must hold for every input. A failure crashes in all builds, also
 * without asserts, so that a fuzzer finds it. */
#define must(condition) ((condition) ? (void)0 : fuzz_failed(#condition, __FILE__, __LINE__))
_Noreturn void fuzz_failed(const char *condition, const char *file, int line);

struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

uint8_t fuzz_u8(struct fuzz_input *in);
uint32_t fuzz_u32(struct fuzz_input *in);
uint64_t fuzz_u64(struct fuzz_input *in);
/* Returns a number from 0 to n - 1, n > 0, from one byte if n is at most 256. */
uint32_t fuzz_below(struct fuzz_input *in, uint32_t n);
/* Returns any number; those near 0, near powers of two and near the end of each type need
 * few bytes. */
uint64_t fuzz_number(struct fuzz_input *in);
/* Returns some of the next bytes, at most `most`, without copying. */
const uint8_t *fuzz_bytes(struct fuzz_input *in, size_t most, size_t *ret_len);
/* Copies some of the next bytes to buf, at most size - 1, with a NUL at the end. */
void fuzz_text(struct fuzz_input *in, char *buf, size_t size);

/* Changes single fields of a header to any value; for most inputs none. */
void fuzz_twist(struct fuzz_input *in, struct frame *f);

/* Makes a control payload (FRAME_CONTROL_MAX bytes) of this type, well-formed unless the
 * input damages it; returns its length. */
uint32_t fuzz_control(struct fuzz_input *in, unsigned type, uint8_t *out);

/* Decodes the bytes that one side sends, in pieces of any size. */
struct fuzz_decoder {
	uint8_t raw[FRAME_HEADER];
	unsigned have;
	struct frame f;
	uint32_t left;                      /* of its payload */
	uint64_t hash;                      /* of the payload so far */
	uint8_t control[FRAME_CONTROL_MAX]; /* the payload, of a control frame */
};

/* Takes the bytes of one frame from *data. Returns true if the frame is complete: f, hash
 * and control are then its own. */
bool fuzz_decode(struct fuzz_decoder *d, const uint8_t **data, size_t *len);

/* Copies at most len bytes to iov; returns the number of bytes. */
size_t fuzz_scatter(const struct iovec *iov, unsigned n, const uint8_t *at, size_t len);

/* Returns the bytes allocated by this process; 0 if no sanitizer counts them. */
size_t fuzz_heap(void);

#endif
