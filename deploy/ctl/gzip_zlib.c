/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/gzip.h"

#include <zlib.h>

enum { WRITE_MAX = 1 << 20 };

/* A struct gzip is a gzFile: zlib keeps all of its state. */
struct gzip *gzip_open(int fd)
{
	return (struct gzip *)gzdopen(fd, "wb");
}

bool gzip_write(struct gzip *g, const void *bytes, size_t n)
{
	const char *at = bytes;

	while (n > 0) {
		unsigned now = n < WRITE_MAX ? (unsigned)n : WRITE_MAX;

		if (gzwrite((gzFile)g, at, now) != (int)now)
			return false;
		at += now;
		n -= now;
	}
	return true;
}

bool gzip_close(struct gzip *g)
{
	return gzclose((gzFile)g) == Z_OK;
}
