/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path of a connection: a scan finds it, not authenticated -> unauth_trust is
 * called with its peer -> the next scan marks it as trusted. Failure modes: it sends too
 * much: it is shut down, and gRPC closes it. It closes, or its descriptor becomes another
 * socket: its cookie is not found any more. No descriptor is left: a scan needs none. */
#include "proto/rpc/unauthenticated.h"

#include "common/address.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	TRUSTED_MAX = 64,
	LOCAL_MAX = 8, /* most addresses of one name */
};

enum socket_state {
	SOCKET_OTHER /* not a connection of the gRPC port */,
	SOCKET_UNAUTHENTICATED,
	SOCKET_TRUSTED,
	SOCKET_REFUSED
};

/* One descriptor of the process, valid while its socket has this cookie; 0: it is not a
 * socket. */
struct socket_entry {
	uint64_t cookie;
	uint64_t received; /* until the last scan */
	uint64_t level;    /* bytes received faster than UNAUTH_BYTES_PER_S; UNAUTH_BYTES is their limit */
	enum socket_state state;
};

/* The connections of the gRPC port. Invariant: `sockets` has an entry for each descriptor
 * below sockets_n; trusted_n is at most TRUSTED_MAX. */
struct unauth {
	struct unauth_options opt;
	bool everywhere; /* gRPC listens on all addresses; else on `local` */
	struct rs_endpoint local[LOCAL_MAX];
	unsigned local_n;
	DIR *dir;  /* /proc/self/fd */
	int spare; /* a descriptor for the duplicate of a socket; otherwise a copy of dir's */
	uint64_t scanned_ms;
	struct socket_entry *sockets; /* indexed by descriptor */
	size_t sockets_n;
	struct rs_endpoint trusted[TRUSTED_MAX]; /* since the last scan; sorted by a scan */
	unsigned trusted_n;
};

static int unauth_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct rs_endpoint));
}

/* Returns true if a descriptor is a connection of the gRPC port, and its other end in
 * *peer. */
static bool unauth_is_grpc(const struct unauth *s, int fd, struct rs_endpoint *peer)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof sa;
	struct rs_endpoint local;

	if (getsockname(fd, (struct sockaddr *)&sa, &len) || !rs_endpoint_of_sockaddr(&local, (struct sockaddr *)&sa) ||
	    rs_endpoint_port(&local) != s->opt.port)
		return false;
	len = sizeof sa;
	if (getpeername(fd, (struct sockaddr *)&sa, &len) || !rs_endpoint_of_sockaddr(peer, (struct sockaddr *)&sa))
		return false;
	/* TCP workers may connect to the same port of another address */
	for (unsigned i = 0; !s->everywhere && i < s->local_n; i++)
		if (rs_endpoint_same_host(&s->local[i], &local))
			return true;
	return s->everywhere;
}

static bool unauth_received(int fd, uint64_t *ret)
{
	struct tcp_info info;
	socklen_t len = sizeof info;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
	    len < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
		return false;
	*ret = info.tcpi_bytes_received;
	return true;
}

/* Shuts a connection down. gRPC may close the descriptor at any time, and it may be
 * opened again for something else. So the socket is shut down through a duplicate, after
 * a check of its cookie. When gRPC closes it, the peer gets a reset: a peer that waits
 * for room to send would not learn of another end for a minute. */
static void unauth_refuse(struct unauth *s, int fd, uint64_t cookie)
{
	const struct linger reset = {.l_onoff = 1, .l_linger = 0};
	char text[RS_ENDPOINT_TEXT];
	struct rs_endpoint peer;
	struct rs_err why;
	uint64_t found;

	if (dup3(fd, s->spare, O_CLOEXEC) < 0)
		return;
	if (rs_socket_cookie(s->spare, &found) && found == cookie && unauth_is_grpc(s, s->spare, &peer)) {
		setsockopt(s->spare, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
		shutdown(s->spare, SHUT_RDWR);
		rs_endpoint_print(&peer, text);
		rs_fail(&why, RS_EREFUSED,
			"it sent more than an unauthenticated connection may: %u KiB at once, then %u KiB/s",
			UNAUTH_BYTES >> 10, UNAUTH_BYTES_PER_S >> 10);
		s->opt.refused(s->opt.ctx, text, &why);
	}
	dup3(dirfd(s->dir), s->spare, O_CLOEXEC);
}

/* Counts the bytes that an unauthenticated connection has received since the last
 * scan. */
static void unauth_count(struct unauth *s, int fd, struct socket_entry *k, uint64_t drained)
{
	uint64_t received;

	if (!unauth_received(fd, &received) || received < k->received)
		return;
	k->level = (k->level > drained ? k->level - drained : 0) + received - k->received;
	k->received = received;
	if (k->level <= UNAUTH_BYTES)
		return;
	k->state = SOCKET_REFUSED;
	unauth_refuse(s, fd, k->cookie);
}

static void unauth_check(struct unauth *s, int fd, struct socket_entry *k, uint64_t drained)
{
	struct rs_endpoint peer;
	uint64_t cookie;

	if (!rs_socket_cookie(fd, &cookie)) {
		k->cookie = 0;
		return;
	}
	if (k->cookie != cookie)
		*k = (struct socket_entry){
		    .cookie = cookie, .state = unauth_is_grpc(s, fd, &peer) ? SOCKET_UNAUTHENTICATED : SOCKET_OTHER};
	if (k->state != SOCKET_UNAUTHENTICATED)
		return;
	if (s->trusted_n && unauth_is_grpc(s, fd, &peer) &&
	    bsearch(&peer, s->trusted, s->trusted_n, sizeof peer, unauth_compare))
		k->state = SOCKET_TRUSTED;
	else
		unauth_count(s, fd, k, drained);
}

/* Extends the table to contain this descriptor. Returns false without memory. */
static bool unauth_make_room(struct unauth *s, size_t fd)
{
	size_t n = fd < 64 ? 128 : fd * 2;
	struct socket_entry *more;

	if (fd < s->sockets_n)
		return true;
	more = reallocarray(s->sockets, n, sizeof *more);
	if (!more)
		return false;
	memset(more + s->sockets_n, 0, (n - s->sockets_n) * sizeof *more);
	s->sockets = more;
	s->sockets_n = n;
	return true;
}

void unauth_scan(struct unauth *s, uint64_t now_ms)
{
	uint64_t drained = (now_ms - s->scanned_ms) * UNAUTH_BYTES_PER_S / 1000;
	const struct dirent *entry;

	s->scanned_ms = now_ms;
	qsort(s->trusted, s->trusted_n, sizeof s->trusted[0], unauth_compare);
	rewinddir(s->dir);
	while ((entry = readdir(s->dir))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] != '.' && unauth_make_room(s, (size_t)fd))
			unauth_check(s, fd, &s->sockets[fd], drained);
	}
	s->trusted_n = 0;
}

void unauth_trust(struct unauth *s, const char *peer)
{
	struct rs_endpoint e;

	if (!rs_endpoint_of_text(&e, peer))
		return;
	for (unsigned i = 0; i < s->trusted_n; i++)
		if (unauth_compare(&s->trusted[i], &e) == 0)
			return;
	if (s->trusted_n == TRUSTED_MAX)
		unauth_scan(s, s->scanned_ms);
	s->trusted[s->trusted_n++] = e;
}

/* Resolves the address as gRPC does. */
static int unauth_resolve(struct unauth *s, const char *address, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
	struct rs_host_port at;
	int rc = rs_host_port_split(&at, address, true, e);

	if (rc)
		return rc;
	rc = getaddrinfo(at.host[0] ? at.host : NULL, at.port, &hints, &list);
	if (rc)
		return rs_fail(e, RS_ECONFIG, "%s cannot be resolved: %s", address, gai_strerror(rc));
	for (const struct addrinfo *ai = list; ai && s->local_n < LOCAL_MAX; ai = ai->ai_next) {
		struct rs_endpoint *local = &s->local[s->local_n];

		if (!rs_endpoint_of_sockaddr(local, ai->ai_addr))
			continue;
		/* gRPC uses the wildcard of either family for both */
		s->everywhere |= rs_endpoint_is_any(local);
		s->local_n++;
	}
	freeaddrinfo(list);
	return RS_OK;
}

int unauth_new(struct unauth **ret, const struct unauth_options *opt, struct rs_err *e)
{
	struct unauth *s = calloc(1, sizeof *s);
	int rc;

	if (!s)
		return rs_oom(e, 0, "the table of connections");
	s->opt = *opt;
	s->spare = -1;
	rc = unauth_resolve(s, opt->address, e);
	s->opt.address = NULL;
	if (rc)
		goto free_unauth;
	s->dir = opendir("/proc/self/fd");
	if (s->dir)
		s->spare = fcntl(dirfd(s->dir), F_DUPFD_CLOEXEC, 0);
	if (s->spare < 0) {
		rc = rs_fail_sys(e, RS_EIO, errno,
				 "cannot limit unauthenticated gRPC traffic: /proc/self/fd is not readable");
		goto free_unauth;
	}
	*ret = s;
	return RS_OK;

free_unauth:
	unauth_free(s);
	return rc;
}

void unauth_free(struct unauth *s)
{
	if (!s)
		return;
	if (s->spare >= 0)
		close(s->spare);
	if (s->dir)
		closedir(s->dir);
	free(s->sockets);
	free(s);
}
