/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the files of proto/vectors, and checks the frames in them. Errors are RS_EPROTO
 * with a sentence. */
#ifndef RS_TESTS_UNIT_FAKE_VECTORS_H
#define RS_TESTS_UNIT_FAKE_VECTORS_H

#include "common/auth.h"
#include "common/error.h"
#include "config/ydoc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file in memory; owned. */
struct vectors_file {
	char *text;
	size_t len;
};

struct vectors_bytes {
	uint8_t at[2048];
	uint32_t len;
};

/* How the entries of a section are checked. A table of them ends with a NULL name. */
struct vectors_section {
	const char *name;
	int (*check)(const struct ydoc_node *entry, struct rs_err *e);
};

/* Reads proto/vectors/NAME.json; a test fails if it cannot. */
void vectors_open(struct vectors_file *f, const char *name);
void vectors_close(struct vectors_file *f);
/* Returns the checksum of a file that proto/vectors/checksums.json has. */
uint32_t vectors_checksum(const char *name);
/* Returns whether this byte is a blank or belongs to an explanation, which nothing
 * checks. */
bool vectors_is_comment(const struct vectors_file *f, size_t at);
/* Checks all entries; *ret_n is their number. */
int vectors_check(const struct vectors_file *f, const struct vectors_section *sections, unsigned *ret_n,
		  struct rs_err *e);

/* Returns the value of a key in a mapping; NULL: it has no such key. */
const struct ydoc_node *vectors_get(const struct ydoc_node *n, const char *key);
/* Returns the text of a key; "" if there is none. */
const char *vectors_text(const struct ydoc_node *n, const char *key);
int vectors_number(const struct ydoc_node *n, const char *key, uint64_t *ret, struct rs_err *e);
int vectors_bool(const struct ydoc_node *n, const char *key, bool *ret, struct rs_err *e);
/* Reads a list of numbers, at most `max`. */
int vectors_numbers(const struct ydoc_node *n, const char *key, uint64_t *ret, unsigned max, unsigned *ret_n,
		    struct rs_err *e);
/* Reads a list of n numbers. */
int vectors_row(const struct ydoc_node *list, uint64_t *ret, unsigned n, struct rs_err *e);
int vectors_hex(struct vectors_bytes *ret, const char *hex, struct rs_err *e);
/* Writes n bytes, the lowest first. */
void vectors_put(uint8_t *to, uint64_t v, unsigned n);
/* Loads a secret from a file with this content. */
int vectors_load_secret(struct auth_secret *ret, const struct vectors_bytes *content, struct rs_err *e);

/* Checks that the frame `hex` is what its other fields say, in both directions. */
int vectors_check_frame(const struct ydoc_node *n, struct vectors_bytes *ret_raw, struct rs_err *e);

#endif
