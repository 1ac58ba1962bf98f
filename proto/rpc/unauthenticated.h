/* SPDX-License-Identifier: Apache-2.0 */
/* Limits what unauthenticated connections of the gRPC port may send. A connection is
 * authenticated when its peer was admitted to a job, or called a method that requires a
 * right.
 *
 * gRPC keeps a message until all of it has come, and checks its length only then. So a
 * peer that announces 1 GiB can make this process keep 1 GiB, and this process sees calls
 * and not bytes. (gRPC's own memory limit for a server ends the streams of running jobs
 * first.) Therefore the bytes are counted in the sockets by the kernel, and a socket that
 * receives more than handshakes and health checks need is shut down. Calls without a
 * complete request end after timeouts.handshake. So one connection can occupy at most
 * UNAUTH_BYTES + timeouts.handshake * UNAUTH_BYTES_PER_S bytes, plus what arrives between
 * two scans.
 *
 * An authenticated connection is trusted until it closes, including all other peers that
 * a proxy lets use it.
 *
 * gRPC does not say which sockets it owns, nor when it opens or closes one. They are
 * found by their address among the descriptors of the process. Invariant: the entry of a
 * descriptor is valid only for the socket with the stored cookie, a number that the
 * kernel gives to no other socket. A socket is shut down only through a duplicate of its
 * descriptor that this code owns, so it cannot become another socket meanwhile. */
#ifndef RS_PROTO_RPC_UNAUTHENTICATED_H
#define RS_PROTO_RPC_UNAUTHENTICATED_H

#include "common/error.h"

#include <stdint.h>

struct unauth;

enum {
	UNAUTH_BYTES = 64 << 10,      /* a connection may send at once; HELLO and PROOF have up to 8 KiB */
	UNAUTH_BYTES_PER_S = 8 << 10, /* it may send in the long run, enough for several health checks a second */
	/* Interval of unauth_scan. A scan of 1000 connections takes 0.6 ms, or 1.0 ms if
	 * none is authenticated. In one interval a peer on the same machine can send 50
	 * MB. */
	UNAUTH_SCAN_MS = 50,
};

/* The gRPC port, and what to call for a refused connection. */
struct unauth_options {
	const char *address; /* "host:port", as configured for gRPC; borrowed for unauth_new */
	unsigned port;       /* the port that gRPC got */
	/* Logs that the connection of `peer` is shut down. */
	void (*refused)(void *ctx, const char *peer, const struct rs_err *why);
	void *ctx;
};

/* Creates the limits, for one thread. Errors: RS_ENOMEM, RS_ECONFIG (the address cannot
 * be resolved), RS_EIO (the process cannot see its descriptors). */
int unauth_new(struct unauth **ret, const struct unauth_options *opt, struct rs_err *e);
void unauth_free(struct unauth *s); /* NULL: does nothing */
/* Shuts down connections that have sent too much. now_ms never decreases. */
void unauth_scan(struct unauth *s, uint64_t now_ms);
/* Removes the limit of the connection from this address, "127.0.0.1:4711" or
 * "[::1]:4711". */
void unauth_trust(struct unauth *s, const char *peer);

#endif
