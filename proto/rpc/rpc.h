/* SPDX-License-Identifier: Apache-2.0 */
/* Remote procedure calls over gRPC, without a type of gRPC. This is the interface of
 * libreduction-grpc.so, which is loaded on demand (rpc_load). gRPC and its libraries stay
 * inside that module. So they cannot clash with other copies in a training process, and
 * everything else runs on a machine without them.
 *
 * A stream is a call that carries bytes both ways, in messages of the type Piece. It is
 * used like a non-blocking socket. Its waker is called when an operation that returned
 * RPC_AGAIN may be possible now. Only wakers and handlers of the program run on the
 * module's threads; they must hand over and return. A thread of the program that waits
 * for streams may do the work of those threads itself: queue_take.
 *
 * The happy path of a stream is: a server's handler gets it, or stream_open; recv and
 * send; finish; recv returns 0; close. Failure modes: the peer or the connection is lost,
 * or one side cancels: recv and send return RPC_BROKEN, after all bytes that had arrived
 * were read, and stream_error returns the reason. */
#ifndef RS_PROTO_RPC_RPC_H
#define RS_PROTO_RPC_RPC_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
	RPC_VERSION = 3,             /* of struct rpc_api */
	RPC_PEER_MAX = 80,           /* bytes of "[v6]:port" with its terminator */
	RPC_CERTIFICATE_MAX = 16384, /* bytes of a certificate in PEM */
	RPC_REQUEST_MAX = 65536,     /* bytes of the request of a call that is not a stream */
};

/* Results of recv and send that are not a number of bytes. */
enum { RPC_AGAIN = -1, RPC_BROKEN = -2 };

/* Status codes of the gRPC protocol. */
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

/* Returns whether an address names a UNIX socket. */
static inline bool rpc_is_unix(const char *address)
{
	return strncmp(address, "unix:", 5) == 0;
}

struct rpc_server;
struct rpc_stream;
struct rpc_call;
struct rpc_client;
struct rpc_queue;
struct rpc_query;

/* A callback. It is called on any of the module's threads, or within a call on the same
 * object. It must not block, and must not call the module. */
struct rpc_waker {
	void (*wake)(void *user); /* NULL: no call */
	void *user;
};

/* Keys and certificates in PEM, as text. The callee copies them. */
struct rpc_tls {
	const char *certificate, *key; /* own; NULL: none (clients only) */
	const char *authority; /* the authorities to trust; NULL: the system's (clients), or certificates are not
				  requested (servers) */
};

enum rpc_kind {
	RPC_STREAM, /* Pieces both ways */
	RPC_CALL,   /* one request; any number of messages as the answer, which call_end ends */
};

/* A method of a server. Handlers run on the module's threads, several at the same time.
 * They own the stream or call that they get. */
struct rpc_method {
	const char *path; /* "/reduction.v1.Reducer/Exchange" */
	enum rpc_kind kind;
	void (*stream)(void *user, struct rpc_stream *s);
	void (*call)(void *user, struct rpc_call *c);
	void *user;
};

/* A server cannot bound how long a message a client sends before gRPC checks its length.
 * A process that listens for unauthenticated peers has to watch its connections, as
 * unauthenticated.h does. */
struct rpc_server_options {
	/* "host:port", port 0: any free port; a name is resolved, which may block. Or
	 * "unix:/path": a socket of mode 0660, which replaces what is at that path, and
	 * is removed by server_stop. */
	const char *address;
	const struct rpc_tls *tls; /* NULL: none */
	const struct rpc_method *methods;
	unsigned methods_n;
	unsigned threads;      /* threads that receive and send, at least 1 */
	uint32_t handshake_ms; /* limit for a connection until it speaks HTTP/2 and while it has no call, for a call
				  until its request is complete, and for a client to take the end of a call */
	uint32_t detect_ms;    /* a connection that does not answer for this long is closed */
	unsigned calls_max; /* most concurrent calls, streams included; beyond it a call that waits for its client makes
			       room, or new calls are refused */
	/* Called with a line of gRPC's own log, faults only. May be called on any
	 * thread. */
	void (*log)(void *user, const char *text);
	void *user;
};

/* How a client opens a stream; borrowed for the call. */
struct rpc_open_options {
	const char *address;   /* numeric, "127.0.0.1:7601" or "[::1]:7601" */
	const char *authority; /* host, or host:port, as the configuration names the peer; TLS expects it in the peer's
				  certificate */
	const struct rpc_tls *tls; /* NULL: none */
	const char *path;          /* path of the method */
	struct rpc_waker waker;
};

/* A query of a client: one request, and one or more messages as the answer. */
struct rpc_query_options {
	const char *address;       /* "host:port", gRPC resolves a name; or "unix:/path" */
	const char *authority;     /* as in rpc_open_options */
	const struct rpc_tls *tls; /* NULL: none */
	const char *path;          /* path of the method */
	const void *request;
	size_t request_len;
	const char *header, *value; /* one more header, "authorization" for example; NULL: none */
	uint32_t timeout_ms; /* for the whole query; 0: none, but a peer that shows no sign of life is still detected */
};

/* The interface of the module. Any thread may call; a stream or a call is used by one
 * thread at a time. */
struct rpc_api {
	unsigned version;

	/* Starts a server. Errors: RS_EIO (cannot listen on the address), RS_ECONFIG
	 * (certificates that cannot be used), RS_ENOMEM. */
	int (*server_start)(struct rpc_server **ret, const struct rpc_server_options *opt, struct rs_err *e);
	/* Returns the port that the server listens on; 1 for a UNIX socket. */
	unsigned (*server_port)(const struct rpc_server *s);
	/* Uses these keys for new connections. Errors as server_start; then the old keys
	 * stay in use. */
	int (*server_reload)(struct rpc_server *s, const struct rpc_tls *tls, struct rs_err *e);
	/* Ends all calls, after a short time in which clients may take their last
	 * messages. Waits for all threads and frees the server. Its streams and calls
	 * must have been closed. */
	void (*server_stop)(struct rpc_server *s);

	/* Makes a client, which has one thread for all its streams and calls. */
	int (*client_new)(struct rpc_client **ret, struct rs_err *e);
	/* Frees a client and waits for its thread. Its streams must have been closed. */
	void (*client_free)(struct rpc_client *c);

	/* Return the queue that a client's thread serves, or the i-th of a server's
	 * threads (i < rpc_server_options.threads). On that thread connections are read
	 * and written, and wakers called. */
	struct rpc_queue *(*client_queue)(struct rpc_client *c);
	struct rpc_queue *(*server_queue)(struct rpc_server *s, unsigned i);
	/* A thread of the program may serve a queue instead of the module's thread, so
	 * that data is processed on the thread that reads it, without switching threads.
	 * It serves from queue_take, which waits until the module's thread has stopped
	 * serving, to queue_leave. One thread at a time may take a queue, and must leave
	 * it before its owner ends. */
	void (*queue_take)(struct rpc_queue *q);
	void (*queue_leave)(struct rpc_queue *q);
	/* Waits at most wait_ms (-1: for ever) for events, and processes those that are
	 * there: wakers and handlers are called. */
	void (*queue_serve)(struct rpc_queue *q, int wait_ms);
	/* Ends the current wait of queue_serve, or the next one. Wakers may call it. */
	void (*queue_kick)(struct rpc_queue *q);

	/* Starts a query. Errors: RS_ENOMEM, RS_ECONFIG, RS_EINVAL (a header that cannot
	 * be sent). */
	int (*query)(struct rpc_query **ret, struct rpc_client *c, const struct rpc_query_options *opt,
		     struct rs_err *e);
	/* Waits for the next message, at most wait_ms (0: for ever). 1: it is in *ret,
	 * valid until the next call; 0: the answer is complete; RPC_AGAIN: nothing has
	 * arrived yet; RPC_BROKEN: the query failed, with *code and *e.
	 */
	int (*query_next)(struct rpc_query *a, uint32_t wait_ms, const uint8_t **ret, size_t *ret_len,
			  enum rpc_code *code, struct rs_err *e);
	/* Cancels the query if it still runs, and frees it. */
	void (*query_free)(struct rpc_query *a);

	/* Starts to connect, with a connection of its own. stream_up returns whether the
	 * peer has answered. */
	int (*stream_open)(struct rpc_stream **ret, struct rpc_client *c, const struct rpc_open_options *opt,
			   struct rs_err *e);
	bool (*stream_up)(const struct rpc_stream *s);
	/* Sets the waker. Events that the previous waker was called for are not repeated:
	 * call recv and send once after this. */
	void (*stream_waker)(struct rpc_stream *s, struct rpc_waker w);
	/* Receives. > 0: bytes that were taken; 0: the peer has finished. With n == 0 it
	 * takes nothing and only returns whether all bytes have been taken and the stream
	 * has ended: never > 0. */
	ssize_t (*stream_recv)(struct rpc_stream *s, const struct iovec *iov, unsigned n);
	/* Sends. > 0: so many of the first bytes were copied and will be sent. */
	ssize_t (*stream_send)(struct rpc_stream *s, const struct iovec *iov, unsigned n);
	/* Ends our side: the peer's recv returns 0 after all bytes before. */
	void (*stream_finish)(struct rpc_stream *s);
	/* Writes why the stream is broken, and returns how its connection was lost. */
	enum rs_loss (*stream_error)(struct rpc_stream *s, struct rs_err *ret);
	/* Writes the numeric address of the peer, "?" if it is not known. */
	void (*stream_peer)(const struct rpc_stream *s, char buf[RPC_PEER_MAX]);
	/* Writes the peer's certificate in PEM; empty if there is none or it is too
	 * long. */
	void (*stream_certificate)(const struct rpc_stream *s, char buf[RPC_CERTIFICATE_MAX]);
	/* Ends the call if it has not ended. A server ends it with `code` and `why` for
	 * the peer (0: OK if all bytes were sent, else they are lost). The waker is not
	 * called any more once this returns. */
	void (*stream_close)(struct rpc_stream *s, enum rpc_code code, const char *why);

	/* Returns the request, valid until the call ends. */
	const uint8_t *(*call_request)(const struct rpc_call *c, size_t *ret_len);
	/* Returns the value of a header, valid until the call ends; NULL: there is
	 * none. */
	const char *(*call_header)(const struct rpc_call *c, const char *key);
	/* Writes the numeric address of the client, "unix:" for the other end of a UNIX
	 * socket, "?" if it is not known.
	 */
	void (*call_peer)(const struct rpc_call *c, char buf[RPC_PEER_MAX]);
	/* Sets the waker: called when call_send may take another message, and when the
	 * client has disconnected. */
	void (*call_waker)(struct rpc_call *c, struct rpc_waker w);
	/* Sends a copy of one message of an answer. False: the previous message is still
	 * being sent, or the client has disconnected. */
	bool (*call_send)(struct rpc_call *c, const void *message, size_t len);
	/* True if the client has disconnected or cancelled. */
	bool (*call_gone)(const struct rpc_call *c);
	/* Answers with one more message (NULL: none) and the status, and frees c. */
	void (*call_end)(struct rpc_call *c, enum rpc_code code, const char *why, const void *message, size_t len);
};

/* Loads the module, which then stays in the process. The file is searched beside the
 * library that contains this code, in ../lib of the program's folder, and where the
 * system searches libraries. Errors: RS_EUNSUPPORTED, with the places that were
 * searched. */
int rpc_load(const struct rpc_api **ret, struct rs_err *e);
/* Loads the module from this file. Errors as rpc_load. */
int rpc_load_file(const struct rpc_api **ret, const char *file, struct rs_err *e);

#endif
