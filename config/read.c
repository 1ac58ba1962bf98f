/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file of a configuration. */
#include "config/config.h"
#include "config/ydoc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads at most one byte more than the parser accepts. */
static int read_all(int fd, const char *file, char *buf, size_t size, size_t *ret_len, struct rs_err *e)
{
	size_t len = 0;

	while (len < size) {
		ssize_t n = read(fd, buf + len, size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return rs_fail_sys(e, RS_EIO, errno, "cannot read %s", file);
		if (n == 0)
			break;
		len += (size_t)n;
	}
	*ret_len = len;
	return RS_OK;
}

/* Refuses a named pipe, which may never get a writer. The pipes of a shell, as in
 * /dev/stdin and <(command), have no name and are good. */
static int check_kind(int fd, const char *file, struct rs_err *e)
{
	char link[32], target[8];
	struct stat st;

	if (fstat(fd, &st))
		return rs_fail_sys(e, RS_EIO, errno, "cannot read %s", file);
	if (!S_ISFIFO(st.st_mode))
		return RS_OK;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (readlink(link, target, sizeof target) > 5 && memcmp(target, "pipe:", 5) == 0)
		return RS_OK;
	return rs_fail(e, RS_ECONFIG, "%s is not a regular file: it is a named pipe", file);
}

/* Opens a file without waiting for the other end of a pipe. */
static int open_file(int *ret, const char *file, struct rs_err *e)
{
	int fd, rc;

	if (!file[0])
		return rs_fail(e, RS_ECONFIG, "the name of the configuration file is empty");
	fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "cannot open %s", file);
	rc = check_kind(fd, file, e);
	if (!rc && fcntl(fd, F_SETFL, 0)) /* reads wait from here on */
		rc = rs_fail_sys(e, RS_EIO, errno, "cannot read %s", file);
	if (rc)
		close(fd);
	else
		*ret = fd;
	return rc;
}

int rs_config_read(char **ret, size_t *ret_len, const char *file, struct rs_err *e)
{
	int fd = STDIN_FILENO, rc = file ? open_file(&fd, file, e) : RS_OK;
	size_t size = YDOC_BYTES_MAX + 1;
	char *buf;

	if (rc)
		return rc;
	buf = malloc(size);
	if (buf)
		rc = read_all(fd, file ? file : "standard input", buf, size, ret_len, e);
	else
		rc = rs_oom(e, size, "%s", file ? file : "standard input");
	if (file)
		close(fd);
	if (rc)
		free(buf);
	else
		*ret = buf;
	return rc;
}

void rs_config_source(struct rs_config_source *ret, const char *file)
{
	char folder[RS_PATH_LEN] = "", path[RS_PATH_LEN];
	struct stat st;
	int n;

	*ret = (struct rs_config_source){.file = ""};
	if (file[0] != '/' && !getcwd(folder, sizeof folder))
		return;
	n = snprintf(path, sizeof path, "%s%s%s", folder, folder[0] ? "/" : "", file);
	if (n < 0 || (size_t)n >= sizeof path || stat(path, &st) || !S_ISREG(st.st_mode) ||
	    strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0)
		return;
	memcpy(ret->file, path, sizeof ret->file);
	ret->stamp = rs_stamp(path);
}

int rs_config_load(struct rs_config *ret_cfg, const char *file, struct rs_err *e)
{
	struct rs_config_source source;
	char *text;
	size_t len;
	int rc;

	if (!file)
		return rs_config_parse(ret_cfg, "defaults", "", 0, e);
	rs_config_source(&source, file); /* before it is read: a later change is seen */
	rc = rs_config_read(&text, &len, file, e);
	if (rc)
		return rc;
	rc = rs_config_parse(ret_cfg, file, text, len, e);
	if (!rc)
		ret_cfg->source = source;
	free(text);
	return rc;
}
