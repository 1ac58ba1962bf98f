/* SPDX-License-Identifier: Apache-2.0 */
/* The records of ended jobs in a file, so that a restart does not forget them. Each line
 * is one record. The file grows to a few times the records that are kept, and is then
 * written anew. A line that a crash has cut is left out when the file is read. One
 * thread. */
#ifndef RS_COMMON_HOST_RECORD_FILE_H
#define RS_COMMON_HOST_RECORD_FILE_H

#include "common/error.h"
#include "common/host/service/events.h"
#include "config/limits.h"

/* Invariant: the file has `bytes` bytes, in whole lines. fd -1: there is none. */
struct record_file {
	char path[RS_PATH_LEN + 16];
	int fd;
	uint64_t bytes;
	unsigned lines;
	bool full; /* the last record could not be written */
};

/* Opens FOLDER/jobs, which is made if need be, and puts its latest records into *to.
 * No other process may have it open. Errors: RS_ECONFIG; record_file_close need not be
 * called. */
int record_file_open(struct record_file *f, const char *folder, struct events *to, struct rs_err *e);
/* Appends a record, the latest one of *all. If that fails, it is missing after a restart:
 * returns an error (RS_EIO) for the first of several such records. */
int record_file_add(struct record_file *f, const struct events *all, struct rs_err *e);
/* May be called if there is no file (fd -1). */
void record_file_close(struct record_file *f);

#endif
