/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/daemon/agentd.h"

#include "config/check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Locks the file at path, so that of two agents that start at once only one succeeds. An
 * agent that ends removes the file: then the locked file is no longer the one at the
 * path, and this function tries again. */
static int socket_lock(const char *path, const char *socket, int *ret, struct rs_err *e)
{
	struct stat have, there;
	int fd;

	for (;;) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return rs_fail_sys(e, RS_EIO, errno, "cannot make %s", path);
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			close(fd);
			return rs_fail(e, RS_EIO, "another agent is serving %s: it holds %s", socket, path);
		}
		if (fstat(fd, &have) == 0 && stat(path, &there) == 0 && have.st_ino == there.st_ino &&
		    have.st_dev == there.st_dev)
			break;
		close(fd);
	}
	*ret = fd;
	return RS_OK;
}

/* Removes a socket at the path on which no process listens. */
static int socket_remove_stale(const struct sockaddr_un *addr, struct rs_err *e)
{
	struct stat st;
	int fd, rc;

	if (lstat(addr->sun_path, &st))
		return errno == ENOENT ? RS_OK : rs_fail_sys(e, RS_EIO, errno, "cannot look at %s", addr->sun_path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "cannot make a socket");
	rc = connect(fd, (const struct sockaddr *)addr, sizeof *addr) ? errno : 0;
	close(fd);
	if (rc != ECONNREFUSED)
		return rs_fail(e, RS_EIO, "another program is listening on %s", addr->sun_path);
	if (unlink(addr->sun_path) && errno != ENOENT)
		return rs_fail_sys(e, RS_EIO, errno, "cannot remove the stale socket %s", addr->sun_path);
	return RS_OK;
}

static int socket_listen(const struct sockaddr_un *addr, socklen_t len, const char *path, int *ret, struct rs_err *e)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t before;
	int rc;

	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "cannot make a socket");
	if (local_is_abstract(path)) {
		rc = bind(fd, (const struct sockaddr *)addr, len) ? errno : 0;
	} else {
		before = umask(0117); /* mode 0660 from the start */
		rc = bind(fd, (const struct sockaddr *)addr, len) ? errno : 0;
		umask(before);
	}
	if (!rc && listen(fd, SOMAXCONN))
		rc = errno;
	if (rc) {
		close(fd);
		if (rc == EADDRINUSE)
			return rs_fail(e, RS_EREFUSED, "another process is serving %s", path);
		return rs_fail_sys(e, RS_EIO, rc, "cannot listen on %s", path);
	}
	*ret = fd;
	return RS_OK;
}

/* Stores the path and makes its address. Returns the length of the address. */
static socklen_t socket_name(struct agentd_socket *s, const char *path, struct sockaddr_un *ret, struct rs_err *e)
{
	socklen_t len = local_address(ret, path);

	if (!len) {
		rs_fail(e, RS_EIO, "the socket path '%s' has %zu bytes, expected at most %zu", path, strlen(path),
			sizeof ret->sun_path - 1);
		return 0;
	}
	*s = (struct agentd_socket){.fd = -1, .lock_fd = -1};
	snprintf(s->path, sizeof s->path, "%s", path);
	snprintf(s->lock_path, sizeof s->lock_path, "%s.lock", path);
	return len;
}

static void socket_unlock(struct agentd_socket *s)
{
	if (s->lock_fd < 0)
		return;
	unlink(s->lock_path);
	close(s->lock_fd);
	s->lock_fd = -1;
}

/* Locks the path and removes a stale socket there. */
static int socket_claim(struct agentd_socket *s, const struct sockaddr_un *addr, struct rs_err *e)
{
	int lock_fd = -1, rc = check_socket(s->path, e);

	if (!rc)
		rc = socket_lock(s->lock_path, s->path, &lock_fd, e);
	if (rc)
		return rc;
	s->lock_fd = lock_fd;
	rc = socket_remove_stale(addr, e);
	if (rc)
		socket_unlock(s);
	return rc;
}

int agentd_socket_claim(struct agentd_socket *s, const char *path, struct rs_err *e)
{
	struct sockaddr_un addr;

	return socket_name(s, path, &addr, e) ? socket_claim(s, &addr, e) : e->code;
}

int agentd_socket_open(struct agentd_socket *s, const char *path, struct rs_err *e)
{
	struct sockaddr_un addr;
	socklen_t len = socket_name(s, path, &addr, e);
	struct stat st;
	int rc;

	if (!len)
		return e->code;
	if (local_is_abstract(path))
		return socket_listen(&addr, len, path, &s->fd, e);
	rc = socket_claim(s, &addr, e);
	if (!rc)
		rc = socket_listen(&addr, len, path, &s->fd, e);
	if (rc) {
		socket_unlock(s);
		return rc;
	}
	s->group = stat(path, &st) == 0 ? st.st_gid : getegid();
	return RS_OK;
}

void agentd_socket_close(struct agentd_socket *s)
{
	if (s->fd >= 0) {
		/* later connects are refused, even if a forked process has the
		 * descriptor */
		shutdown(s->fd, SHUT_RDWR);
		close(s->fd);
		s->fd = -1;
	}
	if (s->lock_fd >= 0)
		unlink(s->path);
	socket_unlock(s);
}

static bool socket_in_group(int fd, gid_t primary, gid_t group)
{
	gid_t groups[1024];
	socklen_t len = sizeof groups;

	if (primary == group)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len))
		return false;
	for (size_t i = 0; i < len / sizeof groups[0]; i++)
		if (groups[i] == group)
			return true;
	return false;
}

int agentd_socket_check_peer(const struct agentd_socket *s, int fd, uint32_t *ret_pid, struct rs_err *e)
{
	struct ucred cred;
	socklen_t len = sizeof cred;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return rs_fail_sys(e, RS_EREFUSED, errno,
				   "cannot read the credentials of the process that connects to %s", s->path);
	if (cred.uid != 0 && cred.uid != geteuid() &&
	    (local_is_abstract(s->path) || !socket_in_group(fd, cred.gid, s->group)))
		return rs_fail(e, RS_EREFUSED,
			       "user %u may not use the agent at %s: expected root, user %u or a member of group %u",
			       cred.uid, s->path, geteuid(), s->group);
	*ret_pid = cred.pid > 0 ? (uint32_t)cred.pid : 0;
	return RS_OK;
}
