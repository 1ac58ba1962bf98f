/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_proc(FILE **ret, int pid, const char *file, struct rs_err *e)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
	*ret = fopen(path, "re");
	return *ret ? RS_OK : rs_fail_sys(e, RS_EIO, errno, "the reducer's %s cannot be read", path);
}

static int read_times(struct load_proc *p, int pid, struct rs_err *e)
{
	char line[1024], *at = NULL;
	unsigned long user, system;
	FILE *f;
	int rc = open_proc(&f, pid, "stat", e);

	if (rc)
		return rc;
	/* the name, in brackets, may contain anything; utime and stime are fields 14 and
	 * 15, the state after the name is field 3 */
	if (fgets(line, sizeof line, f))
		at = strrchr(line, ')');
	fclose(f);
	if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
		return rs_fail(e, RS_EIO, "/proc/%d/stat has an unexpected format", pid);
	p->user_s = (double)user / (double)sysconf(_SC_CLK_TCK);
	p->system_s = (double)system / (double)sysconf(_SC_CLK_TCK);
	return RS_OK;
}

int load_proc_read(struct load_proc *p, int pid, struct rs_err *e)
{
	char line[256];
	uint64_t kib;
	FILE *f;
	int rc = read_times(p, pid, e);

	if (!rc)
		rc = open_proc(&f, pid, "status", e);
	if (rc)
		return rc;
	while (fgets(line, sizeof line, f)) {
		if (sscanf(line, "VmRSS: %" SCNu64, &kib) == 1)
			p->rss = kib << 10;
		else if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1)
			p->rss_peak = kib << 10;
	}
	fclose(f);
	return RS_OK;
}
