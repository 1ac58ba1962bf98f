/* SPDX-License-Identifier: Apache-2.0 */
/* What fuzz targets share. An input is a small program: a target reads numbers from it and does what they say, and
 * where the input ends all further numbers are 0. So a few bytes make whole valid frames and messages, of which the
 * input may then twist single fields; were inputs the raw bytes of a connection, checksums would stop nearly all. */
#ifndef RS_TESTS_FUZZ_FUZZ_H
#define RS_TESTS_FUZZ_FUZZ_H

#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

/* What libFuzzer, or replay.c, calls. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold for every input. A crash is what a fuzzer looks for, and a build without asserts crashes as well. */
#define must(condition) ((condition) ? (void)0 : fuzz_failed(#condition, __FILE__, __LINE__))
_Noreturn void fuzz_failed(const char *condition, const char *file, int line);

struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

uint8_t fuzz_u8(struct fuzz_input *in);
uint32_t fuzz_u32(struct fuzz_input *in);
uint64_t fuzz_u64(struct fuzz_input *in);
/* From 0 to below n, n > 0: of one byte where n is at most 256. */
uint32_t fuzz_below(struct fuzz_input *in, uint32_t n);
/* Any number, those near 0, near powers of two and near the end of each type with few bytes. */
uint64_t fuzz_number(struct fuzz_input *in);
/* Some of the next bytes, at most `most`; they are not copied. */
const uint8_t *fuzz_bytes(struct fuzz_input *in, size_t most, size_t *ret_len);
/* Some of the next bytes, at most size - 1, ended by a NUL, in buf. */
void fuzz_text(struct fuzz_input *in, char *buf, size_t size);

/* Changes single fields of a header to any value. Most often it changes none. */
void fuzz_twist(struct fuzz_input *in, struct frame *f);

/* A control payload (FRAME_CONTROL_MAX bytes) of this type, well-formed unless the input wants otherwise; its length.
 */
uint32_t fuzz_control(struct fuzz_input *in, unsigned type, uint8_t *out);

/* Decodes the bytes that one side sends, in whatever pieces they come. */
struct fuzz_decoder {
	uint8_t raw[FRAME_HEADER];
	unsigned have;
	struct frame f;
	uint32_t left;                      /* of its payload */
	uint64_t hash;                      /* of the payload so far */
	uint8_t control[FRAME_CONTROL_MAX]; /* the payload, of a control frame */
};

/* Takes what belongs to one frame from *data. True when that is complete: then f, hash and control are of it. */
bool fuzz_decode(struct fuzz_decoder *d, const uint8_t **data, size_t *len);

/* Copies at most len bytes to where iov says; returns how many. */
size_t fuzz_scatter(const struct iovec *iov, unsigned n, const uint8_t *at, size_t len);

/* Bytes allocated by this process; 0 where no sanitizer counts them. */
size_t fuzz_heap(void);

#endif
