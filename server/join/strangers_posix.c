/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path of a connection: a look finds it, as a stranger's -> its peer is admitted -> trusted by the next look.
 * Failure modes: it sends more than it may: shut down, and gRPC closes it; it closes, or becomes another one: its
 * cookie is not found any more. No descriptor is left: a look needs none. */
#include "server/join/strangers.h"

#include "common/address.h"
#include "server/join/listener.h"

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

enum { ADMITTED_MAX = 64 };

enum known { FOREIGN /* none of gRPC's */, STRANGER, TRUSTED, REFUSED };

/* What is known of a descriptor while its socket has this cookie; 0: it is no socket. */
struct socket_known {
	uint64_t cookie;
	uint64_t received; /* by the last look */
	uint64_t level; /* of that, what came faster than STRANGERS_BYTES_PER_S, and counts against STRANGERS_BYTES */
	enum known known;
};

struct strangers {
	struct strangers_options opt;
	bool everywhere; /* gRPC listens on all addresses, else on these: */
	struct rs_endpoint local[LISTENER_MAX];
	unsigned local_n;
	DIR *dir;  /* /proc/self/fd */
	int spare; /* a descriptor to have a socket by for a moment; else a copy of dir's */
	uint64_t looked_ms;
	struct socket_known *sockets; /* by descriptor */
	size_t sockets_n;
	struct rs_endpoint admitted[ADMITTED_MAX]; /* since the last look; sorted in a look */
	unsigned admitted_n;
};

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct rs_endpoint));
}

/* Is it a connection of gRPC's port? *peer is its other end then. */
static bool is_ours(const struct strangers *s, int fd, struct rs_endpoint *peer)
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
	/* workers may come over TCP to the same port of another address */
	for (unsigned i = 0; !s->everywhere && i < s->local_n; i++)
		if (rs_endpoint_same_host(&s->local[i], &local))
			return true;
	return s->everywhere;
}

static bool received_of(int fd, uint64_t *ret)
{
	struct tcp_info info;
	socklen_t len = sizeof info;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
	    len < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
		return false;
	*ret = info.tcpi_bytes_received;
	return true;
}

/* gRPC may close the descriptor at any time, and somebody open it anew: it is done through one that only this thread
 * closes, and after a look at what that is. */
static void refuse(struct strangers *s, int fd, uint64_t cookie)
{
	char text[RS_ENDPOINT_TEXT];
	struct rs_endpoint peer;
	struct rs_err why;
	uint64_t found;

	if (dup3(fd, s->spare, O_CLOEXEC) < 0)
		return;
	if (rs_socket_cookie(s->spare, &found) && found == cookie && is_ours(s, s->spare, &peer)) {
		shutdown(s->spare, SHUT_RDWR);
		rs_endpoint_print(&peer, text);
		rs_fail(&why, RS_EREFUSED,
			"it sent more than strangers may, %u KiB and %u KiB each second, and has shown no right to it",
			STRANGERS_BYTES >> 10, STRANGERS_BYTES_PER_S >> 10);
		s->opt.refused(s->opt.ctx, text, &why);
	}
	dup3(dirfd(s->dir), s->spare, O_CLOEXEC);
}

/* What has come from a stranger since the last look. */
static void count(struct strangers *s, int fd, struct socket_known *k, uint64_t drained)
{
	uint64_t received;

	if (!received_of(fd, &received) || received < k->received)
		return;
	k->level = (k->level > drained ? k->level - drained : 0) + received - k->received;
	k->received = received;
	if (k->level <= STRANGERS_BYTES)
		return;
	k->known = REFUSED;
	refuse(s, fd, k->cookie);
}

static void look_at(struct strangers *s, int fd, struct socket_known *k, uint64_t drained)
{
	struct rs_endpoint peer;
	uint64_t cookie;

	if (!rs_socket_cookie(fd, &cookie)) {
		k->cookie = 0;
		return;
	}
	if (k->cookie != cookie)
		*k = (struct socket_known){.cookie = cookie, .known = is_ours(s, fd, &peer) ? STRANGER : FOREIGN};
	if (k->known != STRANGER)
		return;
	if (s->admitted_n && is_ours(s, fd, &peer) && bsearch(&peer, s->admitted, s->admitted_n, sizeof peer, compare))
		k->known = TRUSTED;
	else
		count(s, fd, k, drained);
}

/* Room to know something of this descriptor. */
static bool make_room(struct strangers *s, size_t fd)
{
	size_t n = fd < 64 ? 128 : fd * 2;
	struct socket_known *more;

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

void strangers_look(struct strangers *s, uint64_t now_ms)
{
	uint64_t drained = (now_ms - s->looked_ms) * STRANGERS_BYTES_PER_S / 1000;
	const struct dirent *entry;

	s->looked_ms = now_ms;
	qsort(s->admitted, s->admitted_n, sizeof s->admitted[0], compare);
	rewinddir(s->dir);
	while ((entry = readdir(s->dir))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] != '.' && make_room(s, (size_t)fd))
			look_at(s, fd, &s->sockets[fd], drained);
	}
	s->admitted_n = 0;
}

void strangers_admit(struct strangers *s, const char *peer)
{
	struct rs_endpoint e;

	if (!rs_endpoint_of_text(&e, peer))
		return;
	for (unsigned i = 0; i < s->admitted_n; i++)
		if (compare(&s->admitted[i], &e) == 0)
			return;
	if (s->admitted_n == ADMITTED_MAX)
		strangers_look(s, s->looked_ms);
	s->admitted[s->admitted_n++] = e;
}

/* The addresses that gRPC found. */
static int resolve(struct strangers *s, const char *address, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
	struct rs_host_port at;
	int rc = rs_host_port_split(&at, address, true, e);

	if (rc)
		return rc;
	rc = getaddrinfo(at.host[0] ? at.host : NULL, at.port, &hints, &list);
	if (rc)
		return rs_fail(e, RS_ECONFIG, "%s cannot be resolved: %s", address, gai_strerror(rc));
	for (const struct addrinfo *ai = list; ai && s->local_n < LISTENER_MAX; ai = ai->ai_next) {
		struct rs_endpoint *local = &s->local[s->local_n];

		if (!rs_endpoint_of_sockaddr(local, ai->ai_addr))
			continue;
		/* of whichever family: gRPC takes either for both */
		s->everywhere |= rs_endpoint_is_any(local);
		s->local_n++;
	}
	freeaddrinfo(list);
	return RS_OK;
}

int strangers_new(struct strangers **ret, const struct strangers_options *opt, struct rs_err *e)
{
	struct strangers *s = calloc(1, sizeof *s);
	int rc;

	if (!s)
		return rs_fail(e, RS_ENOMEM, "no memory for what is known of connections");
	s->opt = *opt;
	s->spare = -1;
	rc = resolve(s, opt->address, e);
	s->opt.address = NULL;
	if (rc)
		goto free_strangers;
	s->dir = opendir("/proc/self/fd");
	if (s->dir)
		s->spare = fcntl(dirfd(s->dir), F_DUPFD_CLOEXEC, 0);
	if (s->spare < 0) {
		rc = rs_fail_sys(e, RS_EIO, errno, "what strangers send cannot be bounded without /proc/self/fd");
		goto free_strangers;
	}
	*ret = s;
	return RS_OK;

free_strangers:
	strangers_free(s);
	return rc;
}

void strangers_free(struct strangers *s)
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
