/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the module. Only the grpc_*.c files in this folder use gRPC's types. */
#ifndef RS_PROTO_RPC_GRPC_PRIV_H
#define RS_PROTO_RPC_GRPC_PRIV_H

#include "proto/rpc/rpc.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <sys/queue.h>

enum {
	/* Bytes of elements in one message. It is large enough that the cost of a message
	 * (a dozen allocations, a packet that grants more room) does not matter. It is
	 * small enough to stay in a cache between our copy and the kernel's, and for a
	 * second message to be in flight in the window of a link within a machine. MB/s
	 * at 4 / 64 MiB, 4 ranks and 2 reducers on 2 cores: 128 KiB 548 / 621, 256 KiB
	 * 515 / 622. */
	PIECE_BYTES = 128 << 10,
	/* Largest message accepted from a peer. */
	MESSAGE_MAX = 1 << 20,
	/* Largest message of an answer, which may describe thousands of ranks. */
	ANSWER_MAX = 64 << 20,
	/* Unread bytes of a stream from which on no further message is requested; gRPC
	 * then grants the peer no more. */
	UNREAD_BYTES = 512 << 10,
	/* gRPC decides what a peer may send beyond what was requested (BDP_PROBE): it
	 * starts with 4 MiB and measures what the connection needs. Without BDP_PROBE the
	 * window of the whole connection stays at 64 KiB. Every message is then answered
	 * by a frame that grants room and wakes the peer: half as fast on loopback. */
	FRAME_BYTES = 1 << 20, /* of HTTP/2: gRPC's default, 16 KiB, costs a header and a slice for each frame */
};

/* The tag of an operation in its completion queue. */
struct op {
	/* Called on the queue's thread. ok: the operation succeeded. */
	void (*done)(struct op *op, bool ok);
};

/* ThreadSanitizer does not see how gRPC hands an operation from the thread that starts it
 * to the thread that serves its queue. These calls declare it: op_release before the
 * start, op_acquire when the queue returns the operation. */
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
static inline void op_release(struct op *op)
{
	__tsan_release(op);
}
static inline void op_acquire(struct op *op)
{
	__tsan_acquire(op);
}
#else
static inline void op_release(struct op *op)
{
	(void)op;
}
static inline void op_acquire(struct op *op)
{
	(void)op;
}
#endif

/* A completion queue and the thread that serves it, unless another thread has taken the
 * queue. Invariant: `resting` is true while another thread serves it, and at most one
 * other thread has taken it. */
struct rpc_queue {
	grpc_completion_queue *cq;
	pthread_t thread;
	char name[16];
	void (*tick)(struct rpc_queue *q); /* called on the thread every QUEUE_TICK_MS; NULL: never */

	/* Only events of calls can be put into gRPC's queues; this call has no peer and
	 * exists for queue_kick. */
	grpc_channel *nowhere;
	grpc_call *idle;
	struct op kick;
	_Atomic bool kicked;  /* the event has been put into the queue and not been read */
	pthread_mutex_t lock; /* protects the following fields */
	pthread_cond_t changed;
	bool taken;   /* another thread serves it, or will as soon as the thread rests */
	bool resting; /* the thread does not serve it */
};
enum { QUEUE_TICK_MS = 500 };

/* RS_EIO: its thread cannot be started. Then *q, and all else of gRPC, must not be freed:
 * gRPC lacks threads of its own too, and would wait for them. */
int queue_start(struct rpc_queue *q, const char *name, void (*tick)(struct rpc_queue *q), struct rs_err *e);
/* Stops a queue: waits for what is in progress, and for the thread. Nothing may be
 * started on it any more, and no thread may have taken it. */
void queue_stop(struct rpc_queue *q);
void queue_take(struct rpc_queue *q);
void queue_leave(struct rpc_queue *q);
void queue_serve(struct rpc_queue *q, int wait_ms);
void queue_kick(struct rpc_queue *q);

/* The number of objects of a client or a server that exist; nothing may be started on a
 * queue that is being stopped. */
struct live {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned n;
};
void live_init(struct live *l);
unsigned live_add(struct live *l); /* returns how many existed before */
void live_remove(struct live *l);
void live_close(struct live *l); /* waits until none exist */

/* Start gRPC with its first user, and stop it with its last. RS_EIO: there are no threads
 * for it. */
int grpc_use(struct rs_err *e);
void grpc_release(void);

/* How a client secures its connections. */
enum client_security { CLIENT_PLAIN, CLIENT_TLS, CLIENT_CERTIFICATE };
enum client_security client_security(const struct rpc_tls *tls);

/* grpc_text.c */
/* Writes the address of a call's peer in the usual form: "127.0.0.1:80" or "[::1]:80". */
void call_peer_text(grpc_call *call, char buf[RPC_PEER_MAX]);
void call_certificate_text(grpc_call *call, char buf[RPC_CERTIFICATE_MAX]);
/* Writes a sentence about how a client's call ended. */
void status_text(grpc_status_code code, const char *details, enum client_security own, struct rs_err *ret);
/* Returns how the connection of a client's call was lost, by gRPC's details. */
enum rs_loss status_loss(const char *details);
/* Copies a slice into a string, cut to size. */
void slice_text(grpc_slice s, char *buf, size_t size);

/* grpc_tls.c */
/* The keys and certificates of a server. Invariant: if `set` is false, nothing else is in
 * use. */
struct keys {
	pthread_mutex_t lock;
	bool set;
	struct pem {
		char *certificate, *key, *authority; /* owned; NULL: none */
	} pem;
	bool fresh; /* gRPC has not been given them yet */
};
int keys_init(struct keys *k, const struct rpc_tls *tls, struct rs_err *e);
int keys_change(struct keys *k, const struct rpc_tls *tls, struct rs_err *e);
void keys_close(struct keys *k);
grpc_server_credentials *server_credentials(struct keys *k, struct rs_err *e); /* k must outlive the server */
grpc_channel_credentials *client_credentials(const struct rpc_tls *tls, struct rs_err *e);

/* grpc_waiting.c: calls of a server that can only continue when their client acts: sends
 * the request, or takes the end of the call. A client may never act, and each call
 * occupies a place that others may need. Any thread. */
struct waiting {
	pthread_mutex_t lock;
	TAILQ_HEAD(, waiter) list; /* oldest first */
};
/* A call's entry in the list; part of the call. Zero before waiting_add. */
struct waiter {
	struct waiting *all;
	TAILQ_ENTRY(waiter) link;
	bool listed; /* link is in all->list */
	grpc_call *call;
	const char *why; /* the reason that the peer gets when its time is over; static */
	unsigned ticks;  /* ticks that it has waited */
};
void waiting_init(struct waiting *all);
void waiting_destroy(struct waiting *all);
void waiting_add(struct waiter *w, struct waiting *all, grpc_call *call, const char *why);
void waiting_remove(struct waiter *w); /* call it before the call is released; may be called twice */
/* Ends the calls that have waited for that many ticks. */
void waiting_tick(struct waiting *all, unsigned ticks);
/* Ends the oldest call. False: there is none. */
bool waiting_end_oldest(struct waiting *all);

/* grpc_stream.c: makes a stream of a server's call on this queue. The stream then owns
 * the call and its place in `live`. NULL: no memory, and the caller still owns both. */
struct rpc_stream *stream_accept(grpc_call *call, grpc_completion_queue *cq, struct waiting *waiting,
				 struct live *live);

/* grpc_client.c */
struct rpc_client {
	struct rpc_queue queue;
	struct live live; /* streams and queries */
};
/* Makes a channel with a connection of its own. `watched`: gRPC sends keepalives;
 * otherwise the user of the channel detects a lost peer. NULL: *e has the reason. */
grpc_channel *client_channel(const char *address, const char *authority, const struct rpc_tls *tls, int message_max,
			     bool watched, struct rs_err *e);

/* grpc_call.c: as stream_accept, for a call that is not a stream; its handler gets it
 * once the request is complete. Takes the headers. */
struct rpc_call *call_accept(grpc_call *call, grpc_metadata_array *headers, const struct rpc_method *method,
			     struct waiting *waiting, struct live *live);
/* grpc_log.c: gRPC has one log for the process. Its lines about faults go to all sinks,
 * on any thread, also while locks are held. */
struct log_sink {
	struct log_sink *next;
	void (*log)(struct log_sink *sink, const char *text);
};
void log_add(struct log_sink *sink);
void log_remove(struct log_sink *sink);

/* grpc_port.c */
struct worker;
struct port;
struct rpc_queue *worker_queue(struct worker *w); /* grpc_server.c */

/* A call that has arrived. */
struct arrival {
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array headers;
};

/* How to open a port. */
struct port_options {
	uint32_t handshake_ms, detect_ms;
	struct worker **workers; /* calls arrive on their queues; the first worker must go on until `closed` */
	unsigned workers_n;
	void (*arrived)(struct worker *w, struct arrival *a); /* the callee owns the call, and nothing else of *a */
	/* Called before and after the port is freed. */
	void (*closing)(struct rpc_server *owner, const struct port *p);
	void (*closed)(struct rpc_server *owner);
	struct rpc_server *owner;
};
/* Opens a port. keys: NULL for none. Errors: RS_EIO and RS_ECONFIG, after which `closed`
 * is called later, as after port_close; RS_ENOMEM, after which it is not called. */
int port_open(struct port **ret, const struct port_options *opt, const char *address, struct keys *keys,
	      unsigned *ret_port, struct rs_err *e);
/* Accepts no more calls and connections; existing ones go on. */
void port_close(struct port *p);
/* After port_close: cancels the calls that remain. */
void port_cancel(struct port *p);

/* The functions of struct rpc_api; see there. */
int server_start(struct rpc_server **ret, const struct rpc_server_options *opt, struct rs_err *e);
unsigned server_port(const struct rpc_server *s);
int server_reload(struct rpc_server *s, const struct rpc_tls *tls, struct rs_err *e);
void server_stop(struct rpc_server *s);
struct rpc_queue *server_queue(struct rpc_server *s, unsigned i);
struct rpc_queue *client_queue(struct rpc_client *c);
int client_new(struct rpc_client **ret, struct rs_err *e);
void client_free(struct rpc_client *c);
int query(struct rpc_query **ret, struct rpc_client *c, const struct rpc_query_options *opt, struct rs_err *e);
int query_next(struct rpc_query *a, uint32_t wait_ms, const uint8_t **ret, size_t *ret_len, enum rpc_code *code,
	       struct rs_err *e);
void query_free(struct rpc_query *a);
int stream_open(struct rpc_stream **ret, struct rpc_client *c, const struct rpc_open_options *opt, struct rs_err *e);
bool stream_up(const struct rpc_stream *s);
void stream_waker(struct rpc_stream *s, struct rpc_waker w);
ssize_t stream_recv(struct rpc_stream *s, const struct iovec *iov, unsigned n);
ssize_t stream_send(struct rpc_stream *s, const struct iovec *iov, unsigned n);
void stream_finish(struct rpc_stream *s);
enum rs_loss stream_error(struct rpc_stream *s, struct rs_err *ret);
void stream_peer(const struct rpc_stream *s, char buf[RPC_PEER_MAX]);
void stream_certificate(const struct rpc_stream *s, char buf[RPC_CERTIFICATE_MAX]);
void stream_close(struct rpc_stream *s, enum rpc_code code, const char *why);
const uint8_t *call_request(const struct rpc_call *c, size_t *ret_len);
const char *call_header(const struct rpc_call *c, const char *key);
void call_peer(const struct rpc_call *c, char buf[RPC_PEER_MAX]);
void call_waker(struct rpc_call *c, struct rpc_waker w);
bool call_send(struct rpc_call *c, const void *message, size_t len);
bool call_gone(const struct rpc_call *c);
void call_end(struct rpc_call *c, enum rpc_code code, const char *why, const void *message, size_t len);

#endif
