/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	LINE_MAX_BYTES = 32 + EVENT_TEXT,
	LINES_MAX = 4 * EVENTS_KEPT, /* then the file is written anew */
	BYTES_MAX = 2 * LINES_MAX * LINE_MAX_BYTES,
};

/* "1764150000123<TAB>key<TAB>value<TAB>...<NEWLINE>": the texts of an event have no
 * control characters. Returns the length. */
static size_t record_format(char *out, const struct event *ev)
{
	size_t n = (size_t)sprintf(out, "%" PRId64 "\t", ev->unix_ms);

	for (unsigned i = 0; i < ev->text_len; i++)
		out[n++] = ev->text[i];
	for (size_t i = 0; i < n; i++)
		if (!out[i])
			out[i] = '\t';
	out[n - 1] = '\n';
	return n;
}

/* Parses a line without its newline, which is written to. Returns false if it is not a
 * record. */
static bool record_parse(struct event *ret, char *line)
{
	struct rs_kv kv[EVENT_TEXT / 2];
	char *texts[2], *save, *end;
	unsigned n = 0, part = 0;
	int64_t unix_ms;

	errno = 0;
	unix_ms = strtoll(line, &end, 10);
	if (errno || end == line || *end != '\t' || unix_ms < 0)
		return false;
	for (char *at = end + 1; at; at = save) {
		save = strchr(at, '\t');
		if (save)
			*save++ = '\0';
		texts[part++] = at;
		if (part < 2)
			continue;
		if (n == sizeof kv / sizeof kv[0])
			return false;
		kv[n++] = rs_kv_s(texts[0], texts[1]);
		part = 0;
	}
	if (part || !n)
		return false;
	event_make(ret, unix_ms, RS_LOG_INFO, EVENT_JOB, kv, n);
	return true;
}

/* Reads all records; the ring keeps the latest. Returns the bytes up to the end of the
 * last whole line, or -1 with errno. */
static int64_t record_file_read(struct record_file *f, struct events *to)
{
	int fd = dup(f->fd);
	FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
	struct event ev;
	int64_t whole = 0;
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	if (!in) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while ((n = getline(&line, &size, in)) > 0 && line[n - 1] == '\n') {
		whole += n;
		f->lines++;
		line[n - 1] = '\0';
		if (n <= LINE_MAX_BYTES && record_parse(&ev, line))
			events_put(to, &ev);
	}
	free(line);
	if (ferror(in))
		whole = -1;
	fclose(in);
	return whole;
}

int record_file_open(struct record_file *f, const char *folder, struct events *to, struct rs_err *e)
{
	struct stat st;
	int64_t whole;
	int error;

	*f = (struct record_file){.fd = -1};
	snprintf(f->path, sizeof f->path, "%s/jobs", folder);
	f->fd = open(f->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
	if (f->fd < 0)
		return rs_fail_sys(e, RS_ECONFIG, errno, "cannot open %s", f->path);
	if (flock(f->fd, LOCK_EX | LOCK_NB)) {
		record_file_close(f);
		return rs_fail(e, RS_ECONFIG, "%s is in use by another process: each reducer needs a folder of its own",
			       f->path);
	}
	if (fstat(f->fd, &st) || !S_ISREG(st.st_mode) || st.st_size > BYTES_MAX) {
		record_file_close(f);
		return rs_fail(e, RS_ECONFIG, "%s is no file of records: remove it", f->path);
	}
	whole = record_file_read(f, to);
	if (whole < 0 || ftruncate(f->fd, whole)) {
		error = errno;
		record_file_close(f);
		return rs_fail_sys(e, RS_ECONFIG, error, "cannot read %s", f->path);
	}
	f->bytes = (uint64_t)whole;
	return RS_OK;
}

/* Writes whole lines, or none. */
static bool record_write(int fd, const char *lines, size_t n, uint64_t bytes)
{
	ssize_t sent = write(fd, lines, n);
	int error = sent < 0 ? errno : ENOSPC;

	if (sent == (ssize_t)n)
		return true;
	if (ftruncate(fd, (off_t)bytes))
		error = errno;
	errno = error;
	return false;
}

/* Writes the records of the ring to a new file, which takes the place of the old one. */
static bool record_file_renew(struct record_file *f, const struct events *all)
{
	char path[sizeof f->path + 4], line[LINE_MAX_BYTES];
	struct record_file fresh = {.fd = -1};
	const struct event *ev;
	bool good;

	snprintf(path, sizeof path, "%s.new", f->path);
	fresh.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640);
	good = fresh.fd >= 0 && flock(fresh.fd, LOCK_EX | LOCK_NB) == 0;
	for (uint64_t i = events_oldest(all); good && (ev = events_get(all, i)); i++) {
		size_t n = record_format(line, ev);

		good = record_write(fresh.fd, line, n, fresh.bytes);
		fresh.bytes += n;
		fresh.lines++;
	}
	good = good && fsync(fresh.fd) == 0 && rename(path, f->path) == 0;
	if (!good) {
		int error = errno;

		record_file_close(&fresh);
		errno = error;
		return false;
	}
	close(f->fd);
	f->fd = fresh.fd;
	f->bytes = fresh.bytes;
	f->lines = fresh.lines;
	return true;
}

int record_file_add(struct record_file *f, const struct events *all, struct rs_err *e)
{
	char line[LINE_MAX_BYTES];
	size_t n = record_format(line, events_get(all, all->next - 1));
	bool was_full = f->full;

	if (f->lines >= LINES_MAX) {
		f->full = !record_file_renew(f, all);
	} else {
		f->full = !record_write(f->fd, line, n, f->bytes);
		f->bytes += f->full ? 0 : n;
		f->lines += !f->full;
	}
	if (!f->full || was_full)
		return RS_OK;
	return rs_fail_sys(e, RS_EIO, errno, "cannot write the record of a job to %s", f->path);
}

void record_file_close(struct record_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}
