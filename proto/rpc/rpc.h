/* SPDX-License-Identifier: Apache-2.0 */
/* Remote procedure calls over gRPC, without a type of gRPC: what a program sees of libreduction-grpc.so, which is
 * loaded when something asks for it (rpc_load). gRPC and what it needs stay inside that module: they must not meet
 * other copies of theirs in a training process, and a machine without them runs everything else.
 *
 * A stream is a call that carries bytes both ways, in messages of the type Piece: it is used as a non-blocking socket
 * is. Its waker is called when something that was refused may be possible now; nothing else is ever called back, so
 * that no code of the program runs on the module's threads but wakers and handlers, which hand over and return. A
 * thread of the program that waits for streams anyway may do what those threads do: queue_take.
 *
 * The happy path of a stream is: a server's handler gets it, or stream_open; recv and send; finish; recv returns 0;
 * close. Failure modes: the peer or the connection is lost, or somebody cancels: recv and send return RPC_BROKEN, after
 * all that had arrived was read, and stream_error says why. */
#ifndef RS_PROTO_RPC_RPC_H
#define RS_PROTO_RPC_RPC_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
	RPC_VERSION = 2,             /* of struct rpc_api */
	RPC_PEER_MAX = 80,           /* bytes of "[v6]:port" with its terminator */
	RPC_CERTIFICATE_MAX = 16384, /* of a certificate in PEM */
	RPC_REQUEST_MAX = 65536,     /* bytes of the request of a call that is not a stream */
};

/* What recv and send return instead of a number of bytes. */
enum { RPC_AGAIN = -1, RPC_BROKEN = -2 };

/* Numbers of the gRPC protocol. */
enum rpc_code {
	RPC_CODE_OK = 0,
	RPC_CODE_CANCELLED = 1,
	RPC_CODE_UNKNOWN = 2,
	RPC_CODE_INVALID_ARGUMENT = 3,
	RPC_CODE_DEADLINE_EXCEEDED = 4,
	RPC_CODE_NOT_FOUND = 5,
	RPC_CODE_PERMISSION_DENIED = 7,
	RPC_CODE_RESOURCE_EXHAUSTED = 8,
	RPC_CODE_FAILED_PRECONDITION = 9,
	RPC_CODE_ABORTED = 10,
	RPC_CODE_UNIMPLEMENTED = 12,
	RPC_CODE_INTERNAL = 13,
	RPC_CODE_UNAVAILABLE = 14,
	RPC_CODE_UNAUTHENTICATED = 16,
};

struct rpc_server;
struct rpc_stream;
struct rpc_call;
struct rpc_client;
struct rpc_queue;
struct rpc_ask;

/* Called on any of the module's threads, or within a call of the same object. Must not block, nor call the module. */
struct rpc_waker {
	void (*wake)(void *user); /* NULL: nobody is told */
	void *user;
};

/* Keys and certificates in PEM, as text. Copied by whoever takes them. */
struct rpc_tls {
	const char *certificate, *key; /* own; NULL: none (clients only) */
	const char *authority;         /* whom to trust; NULL: the system's (clients), or nobody is asked (servers) */
};

enum rpc_kind {
	RPC_STREAM, /* Pieces both ways */
	RPC_CALL,   /* one request; any number of messages as the answer, which call_end ends */
};

/* Handlers run on the module's threads, several at the same time. They own what they get. */
struct rpc_method {
	const char *path; /* "/reduction.v1.Reducer/Exchange" */
	enum rpc_kind kind;
	void (*stream)(void *user, struct rpc_stream *s);
	void (*call)(void *user, struct rpc_call *c);
	void *user;
};

/* What a server cannot bound is how long a message a client sends before gRPC looks at its length: whoever listens
 * where strangers are has to watch its connections, as server/join/strangers.h does. */
struct rpc_server_options {
	const char *address;       /* "host:port", port 0: any free one; a name is resolved, which may block */
	const struct rpc_tls *tls; /* NULL: none */
	const struct rpc_method *methods;
	unsigned methods_n;
	unsigned threads;      /* that receive and send, at least 1 */
	uint32_t handshake_ms; /* until a connection speaks HTTP/2, for how long one may stay without a call, and a call
				  without its request, or when it has ended without its client taking that */
	uint32_t detect_ms;    /* a connection that does not answer for as long is closed */
	unsigned calls_max;    /* under way at the same time, streams included; beyond it one that waits for its client
				  makes room, or others are refused */
	/* A line of gRPC's own log, faults only. May be called on any thread. */
	void (*log)(void *user, const char *text);
	void *user;
};

struct rpc_open_options {
	const char *address;   /* numeric, "127.0.0.1:7601" or "[::1]:7601" */
	const char *authority; /* host, or host:port, as the file names the peer: TLS expects it in its certificate */
	const struct rpc_tls *tls; /* NULL: none */
	const char *path;          /* of the method */
	struct rpc_waker waker;
};

/* A question of a client: one request, and one message or more as the answer. */
struct rpc_ask_options {
	const char *address;       /* "host:port"; gRPC resolves a name */
	const char *authority;     /* as in rpc_open_options */
	const struct rpc_tls *tls; /* NULL: none */
	const char *path;          /* of the method */
	const void *request;
	size_t request_len;
	const char *header, *value; /* one more header, "authorization" for example; NULL: none */
	uint32_t timeout_ms;        /* for all of it; 0: none, but a peer that shows no sign of life is found out */
};

/* All of the module. Any thread may call; a stream or a call is used by one thread at a time. */
struct rpc_api {
	unsigned version;

	/* Errors: RS_EIO (the address cannot be listened on), RS_ECONFIG (certificates that cannot be used), RS_ENOMEM.
	 */
	int (*server_start)(struct rpc_server **ret, const struct rpc_server_options *opt, struct rs_err *e);
	/* The port that it listens on. */
	unsigned (*server_port)(const struct rpc_server *s);
	/* Connections from now on use these. Errors as server_start; then the old ones stay. */
	int (*server_reload)(struct rpc_server *s, const struct rpc_tls *tls, struct rs_err *e);
	/* Ends all calls, after a moment in which clients may take what they were told; waits for all threads, frees.
	 * Streams and calls of it must have been closed. */
	void (*server_stop)(struct rpc_server *s);

	/* A client has one thread for all its streams and calls. */
	int (*client_new)(struct rpc_client **ret, struct rs_err *e);
	/* Its streams must have been closed. Waits for its thread. */
	void (*client_free)(struct rpc_client *c);

	/* What a client's thread serves, and each of a server's (i < rpc_server_options.threads): its connections are
	 * read and written there, and wakers called. */
	struct rpc_queue *(*client_queue)(struct rpc_client *c);
	struct rpc_queue *(*server_queue)(struct rpc_server *s, unsigned i);
	/* A thread of the program may serve a queue in the place of the module's, so that what arrives is dealt with
	 * where it was read, without a word between threads: from queue_take, which waits until the module's thread
	 * has gone to rest, to queue_leave. Each queue is taken by one at a time, and left before its owner ends. */
	void (*queue_take)(struct rpc_queue *q);
	void (*queue_leave)(struct rpc_queue *q);
	/* Waits at most so long (-1: for ever) until something has come, and deals with that and more that is there:
	 * wakers and handlers are called. */
	void (*queue_serve)(struct rpc_queue *q, int wait_ms);
	/* Ends the wait of queue_serve, or of the next one. Wakers may call it. */
	void (*queue_kick)(struct rpc_queue *q);

	/* Asks. Errors: RS_ENOMEM, RS_ECONFIG, RS_EINVAL (a header that cannot be sent). */
	int (*ask)(struct rpc_ask **ret, struct rpc_client *c, const struct rpc_ask_options *opt, struct rs_err *e);
	/* Waits for the next message, at most so long (0: for ever). 1: it is *ret, valid until the next call; 0: the
	 * answer is complete; RPC_AGAIN: nothing has come yet; RPC_BROKEN: it has failed, *code and *e say how. */
	int (*ask_next)(struct rpc_ask *a, uint32_t wait_ms, const uint8_t **ret, size_t *ret_len, enum rpc_code *code,
			struct rs_err *e);
	/* Cancels what is under way. */
	void (*ask_free)(struct rpc_ask *a);

	/* Begins to connect, with a connection of its own. stream_up says when the peer has answered. */
	int (*stream_open)(struct rpc_stream **ret, struct rpc_client *c, const struct rpc_open_options *opt,
			   struct rs_err *e);
	bool (*stream_up)(const struct rpc_stream *s);
	/* Whoever is to be woken from now on; what woke somebody before is not told again: look once after it. */
	void (*stream_waker)(struct rpc_stream *s, struct rpc_waker w);
	/* > 0: so many bytes were taken from what has arrived; 0: the peer has finished. n of 0 takes nothing and
	 * asks only whether all has been taken and the stream has ended: never > 0. */
	ssize_t (*stream_recv)(struct rpc_stream *s, const struct iovec *iov, unsigned n);
	/* > 0: the first so many bytes were copied and will be sent. */
	ssize_t (*stream_send)(struct rpc_stream *s, const struct iovec *iov, unsigned n);
	/* Nothing more will be sent: the peer's recv returns 0 after all bytes before. */
	void (*stream_finish)(struct rpc_stream *s);
	/* Why it is broken. */
	void (*stream_error)(struct rpc_stream *s, struct rs_err *ret);
	/* Numeric address of the peer, "?" when it is not known. */
	void (*stream_peer)(const struct rpc_stream *s, char buf[RPC_PEER_MAX]);
	/* The peer's certificate in PEM; empty when it has shown none, or one that is too long. */
	void (*stream_certificate)(const struct rpc_stream *s, char buf[RPC_CERTIFICATE_MAX]);
	/* Ends the call if it has not ended: a server's with `code` and `why` for the peer (0: OK, if all bytes are
	 * out, else what is left is lost). Its waker is not called any more when this returns. */
	void (*stream_close)(struct rpc_stream *s, enum rpc_code code, const char *why);

	/* The request, until the call ends. */
	const uint8_t *(*call_request)(const struct rpc_call *c, size_t *ret_len);
	/* The value of a header, until the call ends; NULL: there is none. */
	const char *(*call_header)(const struct rpc_call *c, const char *key);
	void (*call_peer)(const struct rpc_call *c, char buf[RPC_PEER_MAX]);
	/* Tells when call_send may take another message, and when the client is gone. */
	void (*call_waker)(struct rpc_call *c, struct rpc_waker w);
	/* A message of an answer of several, copied. False: the last one is still on its way, or the client is gone. */
	bool (*call_send)(struct rpc_call *c, const void *message, size_t len);
	/* The client is gone, or has cancelled. */
	bool (*call_gone)(const struct rpc_call *c);
	/* Answers with one more message (NULL: none) and the status; c is gone. */
	void (*call_end)(struct rpc_call *c, enum rpc_code code, const char *why, const void *message, size_t len);
};

/* Loads the module, which then stays in the process. The file is looked for beside the library that this code is part
 * of, in ../lib of the program's folder, and where the system looks for libraries. Errors: RS_EUNSUPPORTED, with where
 * it was looked for. */
int rpc_load(const struct rpc_api **ret, struct rs_err *e);
/* The same of this file. */
int rpc_load_file(const struct rpc_api **ret, const char *file, struct rs_err *e);

#endif
