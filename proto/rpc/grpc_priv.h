/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the module: the only files that know gRPC's types are the grpc_*.c beside this one. */
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

enum {
	/* Bytes of elements in one message: large enough for what a message costs (a dozen allocations, a packet that
	 * makes room for the next) not to matter, small enough to stay in a cache between the copy into it and the
	 * kernel's, and for a second one to be on its way in the window of a link within a machine. MB/s at 4 / 64 MiB,
	 * 4 ranks and 2 reducers on 2 cores: 128 KiB 548 / 621, 256 KiB 515 / 622. */
	PIECE_BYTES = 128 << 10,
	/* Largest message that is taken from a peer. */
	MESSAGE_MAX = 1 << 20,
	/* And of an answer, which may tell of thousands of ranks. */
	ANSWER_MAX = 64 << 20,
	/* Unread bytes of a stream from which on no further message is asked for: gRPC then grants the peer no more. */
	UNREAD_BYTES = 512 << 10,
	/* What a peer may send beyond what was asked for is left to gRPC (BDP_PROBE), which begins with 4 MiB and
	 * measures what the connection needs: without it the window of the whole connection stays at 64 KiB, and every
	 * message is answered by a frame of its own that makes room, and wakes the peer: half as fast on loopback.
	 */
	FRAME_BYTES = 1 << 20, /* of HTTP/2: gRPC's default, 16 KiB, costs a header and a slice for each */
};

/* What an operation is known by to its completion queue. */
struct op {
	/* On the queue's thread. ok: it succeeded. */
	void (*done)(struct op *op, bool ok);
};

/* ThreadSanitizer does not see how gRPC hands an operation from the thread that starts it to the one that serves its
 * queue, so it is told: to be called before the start, and when the queue gives it out. */
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

/* A completion queue with the thread that serves it, unless somebody has taken that over. */
struct rpc_queue {
	grpc_completion_queue *cq;
	pthread_t thread;
	char name[16];
	void (*tick)(struct rpc_queue *q); /* on the thread, every QUEUE_TICK_MS; NULL: never */

	/* The only events that can be put into gRPC's queues are those of calls: this one goes nowhere. */
	grpc_channel *nowhere;
	grpc_call *idle;
	struct op kick;
	_Atomic bool kicked;  /* the event is on its way */
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	bool taken;   /* somebody else serves it, or will as soon as the thread rests */
	bool resting; /* the thread does not look at it */
};
enum { QUEUE_TICK_MS = 500 };

int queue_start(struct rpc_queue *q, const char *name, void (*tick)(struct rpc_queue *q), struct rs_err *e);
/* Nothing may be started on it any more, and nobody has taken it. Waits for what is under way, and for the thread. */
void queue_stop(struct rpc_queue *q);
void queue_take(struct rpc_queue *q);
void queue_leave(struct rpc_queue *q);
void queue_serve(struct rpc_queue *q, int wait_ms);
void queue_kick(struct rpc_queue *q);

/* How many objects of a client or a server live: nothing may be started on a queue that is being stopped. */
struct live {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned n;
};
void live_init(struct live *l);
unsigned live_add(struct live *l); /* returns how many there were */
void live_remove(struct live *l);
void live_close(struct live *l); /* waits until there are none */

/* gRPC is started with the first and stopped with the last user. */
void grpc_use(void);
void grpc_release(void);

/* grpc_text.c */
/* "ipv4:127.0.0.1:80" or "ipv6:%5B::1%5D:80" as people write it. */
void peer_text(const char *uri, char buf[RPC_PEER_MAX]);
/* The same of a call. */
void call_peer_text(grpc_call *call, char buf[RPC_PEER_MAX]);
void call_certificate_text(grpc_call *call, char buf[RPC_CERTIFICATE_MAX]);
/* A sentence for how a call ended. */
void status_text(grpc_status_code code, const char *details, struct rs_err *ret);
/* A copy as a string of C, cut where it is longer. */
void slice_text(grpc_slice s, char *buf, size_t size);

/* grpc_tls.c */
/* What a server shows. Invariant: set, or nothing of it is in use. */
struct keys {
	pthread_mutex_t lock;
	bool set;
	struct pem {
		char *certificate, *key, *authority; /* owned; NULL: none */
	} pem;
	bool fresh; /* gRPC has not been given it yet */
};
int keys_init(struct keys *k, const struct rpc_tls *tls, struct rs_err *e);
int keys_change(struct keys *k, const struct rpc_tls *tls, struct rs_err *e);
void keys_close(struct keys *k);
grpc_server_credentials *server_credentials(struct keys *k, struct rs_err *e); /* k must outlive the server */
grpc_channel_credentials *client_credentials(const struct rpc_tls *tls, struct rs_err *e);

/* grpc_waiting.c: calls of a server that can only go on when their client does something: send the request, or take
 * what ends the call. A client need not, and each has a place that others may need. Any thread. */
struct waiting {
	pthread_mutex_t lock;
	struct waiter *first, **last; /* the oldest first */
};
/* Part of a call; zero before waiting_add. */
struct waiter {
	struct waiting *all;
	struct waiter *next, **at; /* at is NULL: it is not in the list */
	grpc_call *call;
	const char *why; /* said when its time is over; static */
	unsigned ticks;  /* that it has waited */
};
void waiting_init(struct waiting *all);
void waiting_destroy(struct waiting *all);
void waiting_add(struct waiter *w, struct waiting *all, grpc_call *call, const char *why);
void waiting_remove(struct waiter *w); /* before the call is released; may be done twice */
/* Ends those that have waited for so many ticks. */
void waiting_tick(struct waiting *all, unsigned ticks);
/* Ends the oldest one. False: there is none. */
bool waiting_end_oldest(struct waiting *all);

/* grpc_stream.c: makes a stream of a call of a server on this queue, which belongs to it then, as its place in `live`.
 * NULL: no memory, and both still belong to the caller. */
struct rpc_stream *stream_accept(grpc_call *call, grpc_completion_queue *cq, struct waiting *waiting,
				 struct live *live);

/* grpc_client.c */
struct rpc_client {
	struct rpc_queue queue;
	struct live live; /* streams and questions */
};
/* A channel with a connection of its own. `watched`: gRPC asks its peer for signs of life, else whoever uses it does.
 * NULL: *e says why. */
grpc_channel *client_channel(const char *address, const char *authority, const struct rpc_tls *tls, int message_max,
			     bool watched, struct rs_err *e);

/* grpc_call.c: as stream_accept, of a call that is not a stream; its handler gets it when the request is complete.
 * Takes the headers. */
struct rpc_call *call_accept(grpc_call *call, grpc_metadata_array *headers, const struct rpc_method *method,
			     struct waiting *waiting, struct live *live);
/* grpc_log.c: gRPC has one log for the process, whose lines about faults go to all of these. Lines may come on any
 * thread, in the middle of anything. */
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

/* A call that has come. */
struct arrival {
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array headers;
};

struct port_options {
	uint32_t handshake_ms, detect_ms;
	struct worker **workers; /* to whose queues calls come; the first one's must go on until `closed` */
	unsigned workers_n;
	void (*arrived)(struct worker *w, struct arrival *a); /* the call belongs to the callee, the rest does not */
	/* The port is going to be freed; and it is. */
	void (*closing)(struct rpc_server *owner, const struct port *p);
	void (*closed)(struct rpc_server *owner);
	struct rpc_server *owner;
};
/* keys: NULL for none. Errors: RS_EIO, RS_ECONFIG, after which `closed` is called some time later, as it is after
 * port_close; RS_ENOMEM, after which it is not. */
int port_open(struct port **ret, const struct port_options *opt, const char *address, struct keys *keys,
	      unsigned *ret_port, struct rs_err *e);
/* Takes no more calls and connections; those that are under way go on. */
void port_close(struct port *p);
/* After port_close: ends them. */
void port_cancel(struct port *p);

/* What struct rpc_api offers; see there. */
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
void stream_error(struct rpc_stream *s, struct rs_err *ret);
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
