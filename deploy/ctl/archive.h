/* SPDX-License-Identifier: Apache-2.0 */
/* A .tar.gz archive that is written from the first file to the last (POSIX.1-1988 "ustar"
 * in gzip.h). */
#ifndef RS_DEPLOY_CTL_ARCHIVE_H
#define RS_DEPLOY_CTL_ARCHIVE_H

#include "common/error.h"

#include <stddef.h>
#include <stdint.h>

enum { ARCHIVE_NAME = 200 /* bytes of the name of a file in it, terminator included */ };

struct archive;

/* Creates the file, which only its owner may read. Errors: RS_EIO (it exists, or cannot
 * be created), RS_ENOMEM. */
int archive_create(struct archive **ret, const char *path, struct rs_err *e);
/* Adds a file. Of its name at most 100 bytes may stand behind a slash, and 155 before it.
 * A failed write is reported by archive_close. */
void archive_add(struct archive *a, const char *name, const void *bytes, size_t n, int64_t unix_s);
/* Completes the archive and frees it. Errors: RS_EIO, of any write. */
int archive_close(struct archive *a, struct rs_err *e);

#endif
