/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a point-to-point connection: made by net_open.c, used by net.c. */
#ifndef RS_AGENT_NCCL_NET_STATE_H
#define RS_AGENT_NCCL_NET_STATE_H

#include "agent/nccl/net.h"

enum {
	NET_REQUESTS = 64,      /* messages of one connection that NCCL has not tested to their end */
	NET_STRIPE = 128 << 10, /* smallest part of a message, in bytes, for which a further socket is used */
	NET_COOKIE = 16,        /* bytes */
};

/* One message. On the wire it is its length (8 bytes, little-endian) on socket 0, then
 * its stripe k on socket k. */
struct net_request {
	struct net *net;
	bool used;
	uint8_t *data;
	uint64_t bytes; /* of the message; of a receive: once head_done is sizeof head */
	uint64_t room;  /* of a receive: bytes at data */
	uint8_t head[8];
	size_t head_done;
	unsigned stripes;                /* parts; 0: not known yet */
	unsigned left;                   /* parts that are not done */
	size_t done[PLUGIN_SOCKETS_MAX]; /* bytes of each part */
};

/* A connection. Invariants: at[k] <= next for each socket k, and next - at[k] <=
 * NET_REQUESTS; request i is in requests[i % NET_REQUESTS] until it is tested. */
struct net {
	struct plugin *plugin;
	bool sends;
	unsigned sockets;
	int fd[PLUGIN_SOCKETS_MAX];      /* -1: closed */
	uint64_t next;                   /* number of the next message */
	uint64_t at[PLUGIN_SOCKETS_MAX]; /* the message that each socket moves */
	struct rs_err err;               /* code 0: it works */
	char peer[64];                   /* "10.0.0.1:4711" */
	struct net_request requests[NET_REQUESTS];
};

/* net_open.c: a connection without sockets; NULL: no memory. */
struct net *net_new(struct plugin *p, bool sends, unsigned sockets);

#endif
