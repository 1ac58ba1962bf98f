/* SPDX-License-Identifier: Apache-2.0 */
/* One TCP connection (or another stream socket) whose bytes go as they are or through TLS
 * 1.3. The descriptor is non-blocking; the owner of the connection polls it. A connection
 * is used by one thread at a time.
 *
 * Plain: tcp_conn_plain, tcp_conn_recv and tcp_conn_send as recvmsg and sendmsg,
 * tcp_conn_shutdown, tcp_conn_close. TLS: tcp_conn_accept or tcp_conn_connect instead of
 * tcp_conn_plain, then tcp_conn_handshake until it returns TCP_CONN_UP, then the same
 * calls, with three differences:
 * - received bytes may wait inside while the descriptor is not readable: see
 *   tcp_conn_pending;
 * - at most TCP_CONN_OUT bytes that count as sent may wait inside until the descriptor is
 *   writable: see
 * tcp_conn_unsent;
 * - the stream ends only when the peer ends TLS: if the connection only breaks, that is
 *   an error. */
#ifndef RS_COMMON_TCP_CONN_H
#define RS_COMMON_TCP_CONN_H

#include "common/error.h"

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
	TCP_CONN_RECORD = 16 << 10, /* most bytes of data in a record */
	TCP_CONN_GATHER = 48 << 10, /* bytes of records that are gathered before they are sent; no record is made while
				       more than that is unsent */
	TCP_CONN_OUT = TCP_CONN_GATHER + (24 << 10), /* one more record, and what OpenSSL may put before it */
	TCP_CONN_IN = 64 << 10, /* bytes received at once: each system call may cost an acknowledgement */
	TCP_CONN_REASON = 256,  /* bytes of a reason, terminator included */
};

/* The most memory that a connection with TLS needs beyond one without: the state of
 * OpenSSL (24 KiB), a record each way, `in` and `out`. Between calls, while nothing
 * waits, it is the state alone; while the handshake waits for the peer, it is 43 KiB. */
enum { TCP_CONN_TLS_BYTES = (64 << 10) + TCP_CONN_IN + TCP_CONN_OUT };

/* One connection. Invariant: bytes that wait in `out` are sent before bytes of a later
 * call. ssl is NULL on a plain connection, and then `in`, `out` and `rejected` are NULL
 * too. */
struct tcp_conn {
	int fd;
	SSL *ssl;     /* NULL: plain */
	uint8_t *out; /* TCP_CONN_OUT bytes; out_n of them, from out_at on, wait for the socket; NULL: none wait */
	unsigned out_at, out_n;
	uint8_t *in; /* TCP_CONN_IN bytes; TLS has not read in_n of them yet, from in_at on; NULL: none */
	unsigned in_at, in_n;
	size_t allowance;   /* bytes that the current call may still read */
	uint64_t records;   /* records sent under the current key */
	int error;          /* errno of the system call that failed; 0: none */
	unsigned long code; /* OpenSSL's code of a permanent failure; 0: none */
	X509 *rejected;     /* the peer's certificate, if it was not accepted, else NULL; owned */
	bool gathering;     /* more records follow: they are kept, and sent together */
	bool up;            /* the handshake is done */
	bool socket_empty;  /* the socket gave less than was asked for: it has nothing more now */
	bool needs_input;   /* TLS needs more bytes than have been received */
	bool pending;       /* data may wait inside */
	bool eof;           /* the peer has closed its side of the socket */
	bool end_queued;    /* our side is closed as soon as `out` is empty */
	bool received_any;  /* a byte has been received */
	bool not_tls;       /* the peer answered with a frame instead of TLS; the frame is in `in` */
};

enum tcp_conn_progress {
	TCP_CONN_UP,     /* the handshake is done */
	TCP_CONN_WAIT,   /* call again when the descriptor is readable, or writable if tcp_conn_unsent says so */
	TCP_CONN_FAILED, /* final; the peer was sent the reason if that was possible */
};

/* Sets the options of a TCP socket: small messages go at once, and a peer that
 * acknowledges nothing for detect_ms is lost. Keepalive keeps a NAT or firewall between
 * the peers from forgetting a connection whose heartbeats are rare. Errors are ignored:
 * they affect speed, and not correctness. */
void tcp_conn_tune(int fd, uint32_t detect_ms);
/* Sets the options for keepalive alone. */
void tcp_conn_keep_alive(int fd);
/* For long links: the kernel spaces segments out in time, at the rate of the congestion
 * control, but at `most` bytes a second at most; 0: any. Otherwise CUBIC sends a whole
 * window at once after a pause. BBR spaces out by itself. */
void tcp_conn_pace(int fd, uint64_t most);

/* Makes a plain connection of fd, which it owns from here on. */
void tcp_conn_plain(struct tcp_conn *c, int fd);

/* Starts TLS as the reducer. first[0..n) was already read from fd, n <= TCP_CONN_IN. The
 * connection owns fd from here on, also after an error (RS_ENOMEM); after an error it is
 * as tcp_conn_plain would have made it. */
int tcp_conn_accept(struct tcp_conn *c, int fd, SSL_CTX *ctx, const void *first, size_t n, struct rs_err *e);

/* Starts TLS as the worker; fd is connected. The peer's certificate must be for `name`, a
 * host name or an address. *session is the session that an earlier connection to the same
 * peer stored there, or NULL. A newer session replaces it. It must stay valid as long as
 * the connection; the caller releases it with SSL_SESSION_free. Otherwise as
 * tcp_conn_accept. */
int tcp_conn_connect(struct tcp_conn *c, int fd, SSL_CTX *ctx, const char *name, SSL_SESSION **session,
		     struct rs_err *e);

/* Continues the handshake. Fills *e on TCP_CONN_FAILED: RS_EPROTO or RS_EIO with the
 * sentence of tcp_conn_reason. */
enum tcp_conn_progress tcp_conn_handshake(struct tcp_conn *c, struct rs_err *e);

/* Moves a connection to another address in memory; *from must not be used any more. */
void tcp_conn_move(struct tcp_conn *to, struct tcp_conn *from);

/* Receives at most what the iovecs hold, n > 0. Fewer bytes: nothing more is there now.
 * 0: the peer has ended its stream. -1 with errno: EAGAIN, or another error that
 * tcp_conn_reason describes. */
ssize_t tcp_conn_recv(struct tcp_conn *c, struct iovec *iov, unsigned n);
/* True if data may wait inside, which no poll reports: call tcp_conn_recv or
 * tcp_conn_recv_inside. */
static inline bool tcp_conn_pending(const struct tcp_conn *c)
{
	return c->pending;
}
/* As tcp_conn_recv, but does not read the descriptor. Call it only while
 * tcp_conn_pending, to end a turn while other connections wait: little data is inside,
 * and polls report the rest. */
ssize_t tcp_conn_recv_inside(struct tcp_conn *c, struct iovec *iov, unsigned n);

/* Sends; returns as tcp_conn_recv. The next call may send other bytes than those that
 * this call did not send. */
ssize_t tcp_conn_send(struct tcp_conn *c, struct iovec *iov, unsigned n);
/* True if bytes wait inside for the socket: poll for writing and call tcp_conn_flush. */
static inline bool tcp_conn_unsent(const struct tcp_conn *c)
{
	return c->out_n > 0;
}
/* Sends the bytes that wait inside. False: the connection is broken, with the reason in
 * errno. */
bool tcp_conn_flush(struct tcp_conn *c);

/* Ends our stream after everything that was sent; the peer's stream may go on. */
void tcp_conn_shutdown(struct tcp_conn *c);

/* Returns whether TLS failed for a reason that another attempt does not change: a
 * certificate that one side does not accept, or a peer that does not speak this TLS. */
static inline bool tcp_conn_rejected(const struct tcp_conn *c)
{
	return c->not_tls || (c->code && !c->error);
}

/* Writes why the last call failed, as the end of a sentence about the peer ("its
 * certificate has expired"). Returns buf. */
const char *tcp_conn_reason(const struct tcp_conn *c, char buf[TCP_CONN_REASON]);

/* Closes at once; bytes that wait inside are dropped, also those that tcp_conn_shutdown
 * waits for. */
void tcp_conn_close(struct tcp_conn *c);

#endif
