/* SPDX-License-Identifier: Apache-2.0 */
/* How the bytes of one connection move: as they are, or through TLS 1.3. The descriptor is a non-blocking stream
 * socket; whoever owns a wire polls it. One thread at a time.
 *
 * Plain: wire_plain, wire_recv and wire_send as recvmsg and sendmsg, wire_shutdown, wire_close.
 * TLS: wire_accept or wire_connect in place of wire_plain, wire_handshake until it is done, and then the same, but:
 * - bytes that have arrived may wait inside although the descriptor is silent: wire_pending;
 * - bytes that count as sent may wait inside, at most WIRE_OUT, until the descriptor can be written: wire_unsent;
 * - the end of the stream is what the peer says is one: a connection that only breaks is an error. */
#ifndef RS_COMMON_WIRE_H
#define RS_COMMON_WIRE_H

#include "common/error.h"

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
	WIRE_RECORD = 16 << 10, /* most bytes of data in a record */
	WIRE_GATHER = 48 << 10, /* bytes of records after which they are sent, and those kept for a full socket at the
				   most before another one is made */
	WIRE_OUT = WIRE_GATHER + (24 << 10), /* that one, and what OpenSSL may put before it */
	WIRE_IN = 64 << 10, /* bytes received at once: each call of the system may cost an acknowledgement */
	WIRE_REASON = 256,  /* bytes of a reason, terminator included */
};

/* Memory of a connection with TLS, beyond that of the same without, at the most: OpenSSL's state (24 KiB) and a record
 * each way, `in` and `out`. Between calls, while nothing waits, the state alone; while its handshake waits for the
 * peer, 43 KiB. */
enum { WIRE_TLS_BYTES = (64 << 10) + WIRE_IN + WIRE_OUT };

/* Invariant: nothing that was kept (out_n > 0) goes out later than what was sent after it. */
struct wire {
	int fd;
	SSL *ssl;     /* NULL: plain */
	uint8_t *out; /* WIRE_OUT bytes of which out_n from out_at on are for the socket; NULL when there are none */
	unsigned out_at, out_n;
	uint8_t *in; /* WIRE_IN bytes of which in_n from in_at on were received and not read by TLS; NULL: none */
	unsigned in_at, in_n;
	size_t allowance;   /* bytes that the call which is under way may still read */
	uint64_t sealed;    /* records sent under the present key */
	int error;          /* errno of the system call that failed; 0: none has */
	unsigned long code; /* OpenSSL's, of what failed for good; 0: nothing has */
	X509 *unaccepted;   /* the peer's certificate; owned; NULL: it was accepted, or none was shown */
	bool gathering;     /* more records follow: they are kept, to be sent together */
	bool up;            /* the handshake is done */
	bool dry;           /* the socket gave less than it was asked for: nothing is there now */
	bool starved;       /* TLS needs more bytes than there are */
	bool more;          /* data may wait inside */
	bool eof;           /* the peer has closed its side of the socket */
	bool shut;          /* our side is to be closed, as soon as nothing is kept */
	bool greeted;       /* something has come */
	bool foreign;       /* the peer answered with a frame instead of TLS, which stands unread */
};

enum wire_progress {
	WIRE_UP,     /* the handshake is done */
	WIRE_WAIT,   /* goes on when the descriptor can be read, or written where wire_unsent says so */
	WIRE_FAILED, /* never; the peer was told why, if it could be */
};

void wire_plain(struct wire *w, int fd);

/* The reducer's end. first[0..n) was read from fd already, n <= WIRE_IN. fd belongs to the wire from here on, also
 * after an error (RS_ENOMEM), when it is as wire_plain would have made it. */
int wire_accept(struct wire *w, int fd, SSL_CTX *ctx, const void *first, size_t n, struct rs_err *e);

/* The worker's end; fd is connected. The peer's certificate must be for `name`, a host name or an address. *session is
 * what an earlier connection to the same peer left there, or NULL, and is replaced when a newer one comes; it must stay
 * valid as long as the wire, and be released with SSL_SESSION_free. As wire_accept otherwise. */
int wire_connect(struct wire *w, int fd, SSL_CTX *ctx, const char *name, SSL_SESSION **session, struct rs_err *e);

/* Goes on with the handshake. Fills *e on WIRE_FAILED: RS_EPROTO with wire_reason's sentence, RS_EIO. */
enum wire_progress wire_handshake(struct wire *w, struct rs_err *e);

/* Moves a wire elsewhere; `from` is not to be used any more. */
void wire_move(struct wire *to, struct wire *from);

/* At most what the iovecs hold, n > 0. Less than that: nothing more is there now. 0: the peer has ended its stream. -1
 * with errno: EAGAIN, or another one for which wire_reason has the words. */
ssize_t wire_recv(struct wire *w, struct iovec *iov, unsigned n);
/* Data may be inside that no poll will tell of: call wire_recv again, or wire_recv_inside. */
static inline bool wire_pending(const struct wire *w)
{
	return w->more;
}
/* The same without looking at the descriptor: ends a turn in which others wait, since what is inside is little,
 * and polls tell of everything else. Only while wire_pending. */
ssize_t wire_recv_inside(struct wire *w, struct iovec *iov, unsigned n);

/* As wire_recv. What is not sent now may be replaced by something else in the next call. */
ssize_t wire_send(struct wire *w, struct iovec *iov, unsigned n);
/* Poll for writing and call wire_flush. */
static inline bool wire_unsent(const struct wire *w)
{
	return w->out_n > 0;
}
/* Sends what was kept. False: the connection is broken, and errno says why. */
bool wire_flush(struct wire *w);

/* Ends our stream, behind everything that was sent; the peer's may go on. */
void wire_shutdown(struct wire *w);

/* Why the last call failed, as the end of a sentence about the peer ("its certificate has expired"). */
const char *wire_reason(const struct wire *w, char buf[WIRE_REASON]);

/* Closes at once, also what it was told to shut down before. */
void wire_close(struct wire *w);

#endif
