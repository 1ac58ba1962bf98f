/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/archive.h"
#include "deploy/ctl/gzip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 512 };

/* Invariant: after `failed` nothing is written any more. */
struct archive {
	struct gzip *out;
	char *path;
	bool failed;
};

/* The header of a file, as POSIX defines it. Numbers are octal text. */
struct tar_header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct tar_header) == BLOCK, "a header is a block");

int archive_create(struct archive **ret, const char *path, struct rs_err *e)
{
	struct archive *a = calloc(1, sizeof *a);
	int fd = -1, rc;

	if (!a || !(a->path = strdup(path))) {
		rc = rs_oom(e, 0, "an archive");
		goto free_archive;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		rc = rs_fail_sys(e, RS_EIO, errno, "cannot create %s", path);
		goto free_archive;
	}
	a->out = gzip_open(fd);
	if (!a->out) {
		rc = rs_oom(e, 0, "an archive");
		goto close_file;
	}
	*ret = a;
	return RS_OK;

close_file:
	close(fd);
	unlink(path);
free_archive:
	if (a)
		free(a->path);
	free(a);
	return rc;
}

static void put(struct archive *a, const void *bytes, size_t n)
{
	if (!a->failed)
		a->failed = !gzip_write(a->out, bytes, n);
}

/* Writes the name of a file. One that is too long for its field is split at a slash. */
static void put_name(struct tar_header *h, const char *name)
{
	size_t n = strlen(name);
	const char *slash = n > sizeof h->name ? strchr(name + n - sizeof h->name - 1, '/') : NULL;

	if (slash) {
		n = (size_t)(slash - name);
		memcpy(h->prefix, name, n < sizeof h->prefix ? n : sizeof h->prefix);
		name = slash + 1;
	}
	memcpy(h->name, name, strnlen(name, sizeof h->name));
}

void archive_add(struct archive *a, const char *name, const void *bytes, size_t n, int64_t unix_s)
{
	static const char zeros[2 * BLOCK];
	struct tar_header h = {.type = '0', .magic = "ustar", .version = {'0', '0'}};
	const unsigned char *at = (const unsigned char *)&h;
	unsigned sum = 0;

	put_name(&h, name);
	snprintf(h.mode, sizeof h.mode, "%07o", 0600U);
	snprintf(h.uid, sizeof h.uid, "%07o", 0U);
	snprintf(h.gid, sizeof h.gid, "%07o", 0U);
	snprintf(h.size, sizeof h.size, "%011llo", (unsigned long long)n & 077777777777);
	snprintf(h.mtime, sizeof h.mtime, "%011llo", (unsigned long long)unix_s & 077777777777);
	memset(h.checksum, ' ', sizeof h.checksum); /* it counts as blanks */
	for (unsigned i = 0; i < sizeof h; i++)
		sum += at[i];
	snprintf(h.checksum, sizeof h.checksum, "%06o", sum);
	put(a, &h, sizeof h);
	put(a, bytes, n);
	put(a, zeros, (BLOCK - n % BLOCK) % BLOCK);
}

int archive_close(struct archive *a, struct rs_err *e)
{
	static const char zeros[2 * BLOCK]; /* the end of an archive */
	bool failed;

	put(a, zeros, sizeof zeros);
	failed = a->failed;
	errno = 0;
	if (!gzip_close(a->out))
		failed = true;
	if (failed)
		rs_fail_sys(e, RS_EIO, errno ? errno : EIO, "cannot write %s", a->path);
	free(a->path);
	free(a);
	return failed ? RS_EIO : RS_OK;
}
