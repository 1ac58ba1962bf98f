/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of the gRPC port on which nobody has shown a right: been admitted to a job, or called what needs one.
 *
 * gRPC keeps a message until all of it has come, and only then looks at its length: whoever says that one of 1 GiB
 * follows has all of it kept, and a reducer could not tell, since it sees calls and not bytes. (A limit of gRPC's own
 * for the memory of a server ends the streams of running jobs first.) So what strangers send is counted where the
 * kernel counts it, of the sockets beneath: whoever sends more than greetings and questions need is shut down. Calls
 * end after timeouts.handshake where their request does not come, so that no more than
 * UNAUTH_BYTES + timeouts.handshake * UNAUTH_BYTES_PER_S of a connection are ever kept, and what comes until
 * somebody looks.
 *
 * A connection on which somebody has shown a right is trusted for as long as it is open, whoever else a proxy lets
 * speak on it.
 *
 * gRPC does not say which sockets are its own, nor when it opens or closes one: they are found among the process's
 * descriptors by their address. Invariant: what is remembered of a descriptor holds for the socket with that cookie
 * alone, a number of the kernel's that no other socket gets; and a socket is shut down only through a descriptor that
 * is ours, so that it cannot become another one meanwhile. */
#ifndef RS_SERVER_JOIN_UNAUTHENTICATED_H
#define RS_SERVER_JOIN_UNAUTHENTICATED_H

#include "common/error.h"

#include <stdint.h>

struct unauth;

enum {
	UNAUTH_BYTES = 64 << 10,      /* that a connection may send at once: HELLO and PROOF have up to 8 KiB */
	UNAUTH_BYTES_PER_S = 8 << 10, /* and in the long run: who asks for the health several times a second */
	/* How often somebody should look. A look at 1000 connections takes 0.6 ms, when all are strangers' 1.0.
	 * Meanwhile one on the same machine can send 50 MB. */
	UNAUTH_SCAN_MS = 50,
};

struct unauth_options {
	const char *address; /* where gRPC listens, as it was told: "host:port"; for unauth_new only */
	unsigned port;       /* that it got */
	/* The connection from there is shut down. */
	void (*refused)(void *ctx, const char *peer, const struct rs_err *why);
	void *ctx;
};

/* One thread uses it. Errors: RS_ENOMEM, RS_ECONFIG (the address cannot be resolved), RS_EIO (the process cannot see
 * its descriptors). */
int unauth_new(struct unauth **ret, const struct unauth_options *opt, struct rs_err *e);
void unauth_free(struct unauth *s); /* NULL: nothing */
/* Shuts down who has sent too much. now_ms never decreases. */
void unauth_scan(struct unauth *s, uint64_t now_ms);
/* From now on the connection from this address, "127.0.0.1:4711" or "[::1]:4711", may send what it likes. */
void unauth_trust(struct unauth *s, const char *peer);

#endif
