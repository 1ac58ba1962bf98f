/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a connection. The happy path: a message is cut into one stripe for each
 * socket; each call writes or reads on every socket until it would block, the messages in
 * their order. Failure modes: a socket breaks or the peer closes it, or a message is
 * longer than its buffer; then all calls fail with that error. */
#include "agent/nccl/net_state.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct plugin *net_plugin(const struct net *n)
{
	return n->plugin;
}

/* Stores the error and warns, the first time. Returns the nccl_result. */
static int net_fail(struct net *n, const struct rs_err *e)
{
	if (n->err.code)
		return plugin_result(n->err.code);
	n->err = *e;
	rs_wrap(&n->err, "%s %s", n->sends ? "sending to" : "receiving from", n->peer);
	return plugin_fail(n->plugin, &n->err);
}

/* A part of a message: bytes [at, at + bytes). */
struct net_part {
	size_t at, bytes;
};

static struct net_part net_part_of(const struct net_request *r, unsigned k)
{
	size_t each = ((size_t)r->bytes / r->stripes + 4095) & ~(size_t)4095, at;

	if (r->stripes == 1)
		return (struct net_part){0, (size_t)r->bytes};
	at = each * k < r->bytes ? each * k : (size_t)r->bytes;
	return (struct net_part){at, k + 1 == r->stripes || at + each > r->bytes ? (size_t)r->bytes - at : each};
}

/* The length of a message is known. */
static void net_cut(struct net *n, struct net_request *r)
{
	uint64_t most = r->bytes / NET_STRIPE;

	r->stripes = most < 1 ? 1 : most < n->sockets ? (unsigned)most : n->sockets;
	r->left = r->stripes;
}

/* The result of a system call on a socket. False: an error, in *e. 0 bytes: it would
 * block. */
static bool net_moved(ssize_t *moved, bool sends, struct rs_err *e)
{
	if (*moved > 0)
		return true;
	if (*moved == 0 && sends)
		return true;
	if (*moved == 0) {
		rs_fail(e, RS_EPEER, "the other rank has closed the connection");
		return false;
	}
	if (errno == EAGAIN || errno == EINTR) {
		*moved = 0;
		return true;
	}
	rs_fail_sys(e, errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT ? RS_EPEER : RS_EIO, errno,
		    "the connection is broken");
	return false;
}

/* Writes the rest of the length, on socket 0, and of the part. False: an error. */
static bool net_write(struct net *n, unsigned k, struct net_request *r, ssize_t *moved, struct rs_err *e)
{
	struct net_part part = net_part_of(r, k);
	size_t head = k == 0 ? sizeof r->head - r->head_done : 0, taken;
	struct iovec iov[2] = {
	    {r->head + sizeof r->head - head, head},
	    {r->data + part.at + r->done[k], part.bytes - r->done[k]},
	};
	struct msghdr msg = {.msg_iov = iov + !head, .msg_iovlen = head ? 2 : 1};

	*moved = sendmsg(n->fd[k], &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (!net_moved(moved, true, e))
		return false;
	taken = (size_t)*moved < head ? (size_t)*moved : head;
	r->head_done += k == 0 ? taken : 0;
	r->done[k] += (size_t)*moved - taken;
	return true;
}

/* Reads the length. False: an error. */
static bool net_read_head(struct net *n, struct net_request *r, ssize_t *moved, struct rs_err *e)
{
	*moved = recv(n->fd[0], r->head + r->head_done, sizeof r->head - r->head_done, MSG_DONTWAIT);
	if (!net_moved(moved, false, e))
		return false;
	r->head_done += (size_t)*moved;
	if (r->head_done < sizeof r->head)
		return true;
	for (unsigned i = 0; i < sizeof r->head; i++)
		r->bytes |= (uint64_t)r->head[i] << 8 * i;
	if (r->bytes > r->room) {
		rs_fail(e, RS_EMISMATCH, "a message has %llu bytes, and its receive has room for %llu",
			(unsigned long long)r->bytes, (unsigned long long)r->room);
		return false;
	}
	net_cut(n, r);
	return true;
}

static bool net_read(struct net *n, unsigned k, struct net_request *r, ssize_t *moved, struct rs_err *e)
{
	struct net_part part = net_part_of(r, k);

	*moved = recv(n->fd[k], r->data + part.at + r->done[k], part.bytes - r->done[k], MSG_DONTWAIT);
	if (!net_moved(moved, false, e))
		return false;
	r->done[k] += (size_t)*moved;
	return true;
}

/* Returns whether socket k has nothing more to do for a message. */
static bool net_part_done(struct net *n, unsigned k, struct net_request *r)
{
	if (!r->stripes || (k == 0 && r->head_done < sizeof r->head))
		return false;
	if (k < r->stripes && r->done[k] < net_part_of(r, k).bytes)
		return false;
	if (k < r->stripes)
		r->left--;
	n->at[k]++;
	return true;
}

/* Moves what socket k takes or gives now. */
static bool net_move_socket(struct net *n, unsigned k, struct rs_err *e)
{
	while (n->at[k] < n->next) {
		struct net_request *r = &n->requests[n->at[k] % NET_REQUESTS];
		ssize_t moved = 0;
		bool ok;

		if (net_part_done(n, k, r))
			continue;
		if (k > 0 && !r->stripes)
			return true; /* its length is not known yet */
		if (n->sends)
			ok = net_write(n, k, r, &moved, e);
		else if (k == 0 && r->head_done < sizeof r->head)
			ok = net_read_head(n, r, &moved, e);
		else
			ok = net_read(n, k, r, &moved, e);
		if (!ok)
			return false;
		if (moved == 0)
			return true;
	}
	return true;
}

static int net_move(struct net *n)
{
	struct rs_err e;

	if (n->err.code)
		return plugin_result(n->err.code);
	for (unsigned k = 0; k < n->sockets; k++)
		if (!net_move_socket(n, k, &e))
			return net_fail(n, &e);
	return NCCL_SUCCESS;
}

/* Queues a message. */
static int net_start(struct net *n, void *data, size_t bytes, void **request)
{
	struct net_request *r = &n->requests[n->next % NET_REQUESTS];
	int rc;

	*request = NULL;
	if (plugin_refuses(n->plugin))
		return NCCL_SYSTEM_ERROR;
	if (n->err.code)
		return plugin_result(n->err.code);
	if (r->used)
		return NCCL_SUCCESS;
	*r = (struct net_request){.net = n, .used = true, .data = data, .room = bytes};
	if (n->sends) {
		r->bytes = bytes;
		for (unsigned i = 0; i < sizeof r->head; i++)
			r->head[i] = (uint8_t)((uint64_t)bytes >> 8 * i);
		net_cut(n, r);
	}
	n->next++;
	rc = net_move(n);
	if (rc == NCCL_SUCCESS)
		*request = r;
	return rc;
}

int net_send(struct net *n, void *data, size_t bytes, void **request)
{
	return net_start(n, data, bytes, request);
}

int net_receive(struct net *n, void *data, size_t bytes, void **request)
{
	return net_start(n, data, bytes, request);
}

/* A request is done if it has been cut and no part is left. */
static bool net_is_done(const struct net_request *r)
{
	return r->stripes && !r->left;
}

int net_test(void *request, int *done, int *bytes)
{
	struct net_request *r = request;
	int rc = NCCL_SUCCESS;

	*done = 0;
	if (!net_is_done(r))
		rc = net_move(r->net);
	if (!net_is_done(r))
		return rc;
	*done = 1;
	if (bytes)
		*bytes = r->bytes > INT_MAX ? INT_MAX : (int)r->bytes;
	r->used = false;
	return NCCL_SUCCESS;
}

void net_close(struct net *n)
{
	for (unsigned k = 0; k < n->sockets; k++)
		if (n->fd[k] >= 0)
			close(n->fd[k]);
	free(n);
}
