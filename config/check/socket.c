/* SPDX-License-Identifier: Apache-2.0 */
#include "config/check/check.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fails as the creation of the lock beside the socket would. */
static int fail_lock(struct rs_err *e, int sys, const char *path)
{
	return rs_fail_sys(e, RS_EIO, sys, "cannot make %s.lock%s", path,
			   sys == ENOENT ? " (create its directory first)" : "");
}

int check_socket(const char *path, struct rs_err *e)
{
	char folder[RS_PATH_LEN], lock[RS_PATH_LEN + 8];
	const char *slash = strrchr(path, '/');
	struct stat st;

	if (path[0] == '@') /* an abstract socket, which has no file */
		return RS_OK;
	snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
	snprintf(lock, sizeof lock, "%s.lock", path);
	if (stat(folder, &st))
		return fail_lock(e, errno, path);
	if (access(lock, R_OK | W_OK) && (errno != ENOENT || access(folder, W_OK | X_OK)))
		return fail_lock(e, errno, path);
	if (lstat(path, &st))
		return errno == ENOENT ? RS_OK : rs_fail_sys(e, RS_EIO, errno, "cannot look at %s", path);
	if (!S_ISSOCK(st.st_mode))
		return rs_fail(e, RS_EIO, "%s exists and is not a socket; remove it or choose another path", path);
	return RS_OK;
}
