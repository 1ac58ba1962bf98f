/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file in gzip's format (RFC 1952). gzip_zlib.c compresses; gzip_stored.c, for a
 * build without zlib, writes the bytes as they are, so that the same programs can read
 * the file. */
#ifndef RS_DEPLOY_CTL_GZIP_H
#define RS_DEPLOY_CTL_GZIP_H

#include <stdbool.h>
#include <stddef.h>

struct gzip;

/* Returns a writer that owns the descriptor, or NULL: out of memory, and the descriptor
 * stays the caller's. */
struct gzip *gzip_open(int fd);
/* Returns whether the bytes could be written; errno says why not. After a failure only
 * gzip_close may be called. */
bool gzip_write(struct gzip *g, const void *bytes, size_t n);
/* Completes the file, closes the descriptor and frees the writer. Returns whether all of
 * it could be written. */
bool gzip_close(struct gzip *g);

#endif
