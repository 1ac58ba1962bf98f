/* SPDX-License-Identifier: Apache-2.0 */
/* Point-to-point connections between ranks, over TCP: NCCL needs them for everything that
 * is no all-reduce.
 *
 * A connection has one direction and `sockets` TCP connections. The bytes move when NCCL
 * calls isend, irecv or test: no call blocks, and no thread runs meanwhile, so memory is
 * used in calls alone. Every function returns an nccl_result and warns once about each
 * error. A listener and a connection are used by one thread at a time. */
#ifndef RS_AGENT_NCCL_NET_H
#define RS_AGENT_NCCL_NET_H

#include "agent/nccl/plugin.h"

struct net_listen;
struct net;

/* Listens, and fills the handle (NCCL_HANDLE_BYTES) with the address and a random cookie
 * that the peer must send. */
int net_listen(struct plugin *p, void *handle, struct net_listen **ret);
/* Connects. *ret is NULL while it is not established: call it again with the same handle,
 * which holds the state. */
int net_connect(struct plugin *p, void *handle, struct net **ret);
/* Accepts. *ret is NULL while there is no complete connection: call it again. */
int net_accept(struct net_listen *l, struct net **ret);
void net_close_listen(struct net_listen *l);

/* Start to send and to receive a message. *request is NULL if too many are pending. */
int net_send(struct net *n, void *data, size_t bytes, void **request);
int net_receive(struct net *n, void *data, size_t bytes, void **request);
/* Moves bytes. Sets *done, and if it is 1 *bytes (may be NULL) of the message; the
 * request is then free. */
int net_test(void *request, int *done, int *bytes);
/* Closes the connection and all its requests. */
void net_close(struct net *n);

/* The plugin of a connection, for warnings. */
struct plugin *net_plugin(const struct net *n);

#endif
