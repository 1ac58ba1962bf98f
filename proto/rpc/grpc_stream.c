/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of a client or a server. Received data is kept in a ring of messages. The next
 * message is requested while the ring has room; otherwise gRPC's flow control stops the
 * peer. Data to send is copied into a message. It is sent at once, or, while another
 * message is being sent, collected in the next one.
 *
 * The owner holds one reference, and every operation in progress another; the last one
 * frees. Locks: rx and tx protect one half each, also during the start of its operations,
 * as gRPC requires; wake is taken last. */
#include "proto/rpc/grpc_priv.h"

#include "proto/piece.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RX_MESSAGES = 16 };

/* One operation of a stream. */
struct stream_op {
	struct op op;
	struct rpc_stream *stream;
};

/* One stream. Invariant: ring_n is at most RX_MESSAGES, and less while a message is
 * requested; `unread` is the number of bytes in these messages. */
struct rpc_stream {
	grpc_call *call;
	grpc_completion_queue *cq; /* the call's */
	grpc_channel *channel;     /* a client's own; NULL: it is a server's stream */
	enum client_security own;  /* a client's */
	_Atomic unsigned refs;
	struct live *live;
	struct waiting *waiting; /* a server's */
	struct waiter waiter;

	pthread_mutex_t wake_lock;
	struct rpc_waker waker;

	/* Receiving. The reader uses the message in `ring` that is being read without a
	 * lock. */
	pthread_mutex_t rx_lock;
	grpc_byte_buffer *ring[RX_MESSAGES];
	unsigned ring_head, ring_n;
	size_t unread;        /* bytes in the ring */
	bool rx_under_way;    /* a message was requested */
	bool rx_end;          /* no more messages will arrive */
	bool rx_lost;         /* for another reason than that the peer has finished */
	bool rx_wanted;       /* wake when a message has arrived */
	grpc_byte_buffer *in; /* the operation's */
	bool reading;         /* the first message of the ring is open: */
	grpc_byte_buffer_reader reader;
	const uint8_t *at; /* the rest of the reader's slice */
	size_t left;
	bool foreign; /* a message that is not a Piece arrived */

	/* Sending. */
	pthread_mutex_t tx_lock;
	bool tx_under_way; /* a message is being sent */
	bool tx_wanted;    /* wake when there is room */
	bool tx_failed;
	bool finishing; /* `finish` was called */
	bool finish_sent;
	grpc_slice next;    /* the message being collected; its data begins at PIECE_HEAD_MAX */
	size_t next_len;    /* of the data; 0: there is no slice */
	enum rpc_code code; /* of the end of a server's stream */
	char why[256];

	/* The end: the status that a client got, or what a server knows about its
	 * client's end. */
	_Atomic bool up, ended;
	int cancelled;
	grpc_status_code status;
	grpc_slice details;
	grpc_metadata_array headers, trailers;

	struct stream_op rx, tx, begin, end, finish;
};

static void stream_unref(struct rpc_stream *s)
{
	struct live *live = s->live;

	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	waiting_remove(&s->waiter);
	if (s->reading)
		grpc_byte_buffer_reader_destroy(&s->reader);
	for (; s->ring_n; s->ring_n--, s->ring_head++)
		grpc_byte_buffer_destroy(s->ring[s->ring_head % RX_MESSAGES]);
	if (s->next_len)
		grpc_slice_unref(s->next);
	grpc_slice_unref(s->details);
	grpc_metadata_array_destroy(&s->headers);
	grpc_metadata_array_destroy(&s->trailers);
	if (s->call)
		grpc_call_unref(s->call);
	if (s->channel)
		grpc_channel_destroy(s->channel);
	pthread_mutex_destroy(&s->rx_lock);
	pthread_mutex_destroy(&s->tx_lock);
	pthread_mutex_destroy(&s->wake_lock);
	free(s);
	live_remove(live);
}

static void stream_wake(struct rpc_stream *s)
{
	pthread_mutex_lock(&s->wake_lock);
	if (s->waker.wake)
		s->waker.wake(s->waker.user);
	pthread_mutex_unlock(&s->wake_lock);
}

/* Starts a batch that holds a reference until its tag is done. */
static bool stream_start(struct rpc_stream *s, struct stream_op *op, const grpc_op *ops, size_t n)
{
	atomic_fetch_add(&s->refs, 1);
	op_release(&op->op);
	if (grpc_call_start_batch(s->call, ops, n, &op->op, NULL) == GRPC_CALL_OK)
		return true;
	atomic_fetch_sub(&s->refs, 1); /* never the last one: the caller holds one */
	return false;
}

static struct rpc_stream *stream_of(struct op *op)
{
	return ((struct stream_op *)op)->stream;
}

/* Requests the next message if the ring has room for it. With rx_lock. */
static void stream_rx_start(struct rpc_stream *s)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &s->in};

	if (s->rx_under_way || s->rx_end || s->ring_n == RX_MESSAGES || s->unread >= UNREAD_BYTES)
		return;
	s->in = NULL;
	s->rx_under_way = stream_start(s, &s->rx, &op, 1);
	s->rx_end = !s->rx_under_way;
}

static void stream_on_received(struct op *op, bool ok)
{
	struct rpc_stream *s = stream_of(op);
	bool wake;

	pthread_mutex_lock(&s->rx_lock);
	s->rx_under_way = false;
	if (ok && s->in) {
		s->ring[(s->ring_head + s->ring_n++) % RX_MESSAGES] = s->in;
		s->unread += grpc_byte_buffer_length(s->in);
		stream_rx_start(s);
	} else {
		s->rx_end = true;
		s->rx_lost = grpc_call_failed_before_recv_message(s->call);
	}
	wake = s->rx_wanted;
	s->rx_wanted = false;
	pthread_mutex_unlock(&s->rx_lock);
	if (wake)
		stream_wake(s);
	stream_unref(s);
}

/* Drops the first message of the ring, which was read or is invalid. */
static void stream_rx_pop(struct rpc_stream *s)
{
	grpc_byte_buffer *first = s->ring[s->ring_head];

	grpc_byte_buffer_reader_destroy(&s->reader);
	s->reading = false;
	pthread_mutex_lock(&s->rx_lock);
	s->unread -= grpc_byte_buffer_length(first);
	s->ring_head = (s->ring_head + 1) % RX_MESSAGES;
	s->ring_n--;
	stream_rx_start(s);
	pthread_mutex_unlock(&s->rx_lock);
	grpc_byte_buffer_destroy(first);
}

/* Finds the next slice that is not empty in the message that is being read. False: there
 * is none. */
static bool stream_rx_slice(struct rpc_stream *s)
{
	grpc_slice *slice;

	while (s->left == 0) {
		if (!grpc_byte_buffer_reader_peek(&s->reader, &slice))
			return false;
		s->at = GRPC_SLICE_START_PTR(*slice);
		s->left = GRPC_SLICE_LENGTH(*slice);
	}
	return true;
}

/* Reads what precedes a message's data. False: it is not a Piece. */
static bool stream_rx_head(struct rpc_stream *s)
{
	size_t len = grpc_byte_buffer_length(s->ring[s->ring_head]);
	uint8_t head[PIECE_HEAD_MAX];
	size_t have = 0;
	int rc = 0;

	while (len && rc == 0 && have < sizeof head && stream_rx_slice(s)) {
		head[have++] = *s->at++;
		s->left--;
		rc = piece_parse(head, have, len);
	}
	return len == 0 || rc > 0;
}

/* Opens the next message. 1: there is data to read; else the result for recv. */
static int stream_rx_open(struct rpc_stream *s)
{
	bool empty, end;

	pthread_mutex_lock(&s->rx_lock);
	empty = s->ring_n == 0;
	/* the status of a client's call, and the loss of a call, arrive a little later */
	end = s->rx_end && ((!s->channel && !s->rx_lost) || atomic_load(&s->ended));
	s->rx_wanted = empty && !end;
	pthread_mutex_unlock(&s->rx_lock);
	if (s->foreign)
		return RPC_BROKEN;
	if (empty && !end)
		return RPC_AGAIN;
	if (empty)
		return atomic_load(&s->ended) && (s->channel ? s->status != GRPC_STATUS_OK : s->cancelled) ? RPC_BROKEN
													   : 0;
	s->left = 0;
	s->reading = grpc_byte_buffer_reader_init(&s->reader, s->ring[s->ring_head]);
	if (s->reading && stream_rx_head(s))
		return 1;
	s->foreign = true;
	return RPC_BROKEN;
}

ssize_t stream_recv(struct rpc_stream *s, const struct iovec *iov, unsigned n)
{
	size_t total = 0, off = 0;
	int rc = 1;

	while (n == 0 && rc > 0) {
		if (!s->reading)
			rc = stream_rx_open(s);
		else if (stream_rx_slice(s))
			return RPC_AGAIN;
		else
			stream_rx_pop(s);
	}
	while (n && rc > 0) {
		size_t take;

		if (off == iov->iov_len) {
			iov++;
			n--;
			off = 0;
			continue;
		}
		if (!s->reading) {
			rc = stream_rx_open(s);
			continue;
		}
		if (!stream_rx_slice(s)) {
			stream_rx_pop(s);
			continue;
		}
		take = s->left < iov->iov_len - off ? s->left : iov->iov_len - off;
		memcpy((uint8_t *)iov->iov_base + off, s->at, take);
		s->at += take;
		s->left -= take;
		off += take;
		total += take;
	}
	return total ? (ssize_t)total : rc;
}

/* Allocates a slice with room for `size` bytes of data and for what precedes them. */
static grpc_slice stream_tx_slice(size_t size)
{
	return grpc_slice_malloc(PIECE_HEAD_MAX + size);
}

/* Sends len bytes of data of a slice of stream_tx_slice's; gives the slice away. With
 * tx_lock. */
static void stream_tx_start(struct rpc_stream *s, grpc_slice slice, size_t len)
{
	uint8_t head[PIECE_HEAD_MAX];
	unsigned n = piece_head(head, (uint32_t)len);
	grpc_slice piece = grpc_slice_sub_no_ref(slice, PIECE_HEAD_MAX - n, PIECE_HEAD_MAX + len);
	grpc_byte_buffer *message;
	grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .flags = GRPC_WRITE_NO_COMPRESS};

	memcpy(GRPC_SLICE_START_PTR(piece), head, n);
	message = grpc_raw_byte_buffer_create(&piece, 1);
	grpc_slice_unref(piece);
	op.data.send_message.send_message = message;
	s->tx_under_way = stream_start(s, &s->tx, &op, 1);
	s->tx_failed = !s->tx_under_way;
	grpc_byte_buffer_destroy(message); /* the operation has taken the slices */
}

/* True if all data was sent, or is lost. With tx_lock. */
static void stream_finish_start(struct rpc_stream *s)
{
	grpc_slice why = grpc_slice_from_static_string(s->why);
	grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

	if (!s->finishing || s->finish_sent || s->tx_under_way || s->next_len)
		return;
	s->finish_sent = true;
	if (!s->channel) {
		op.op = GRPC_OP_SEND_STATUS_FROM_SERVER;
		op.data.send_status_from_server.status = (grpc_status_code)s->code;
		op.data.send_status_from_server.status_details = &why;
	}
	stream_start(s, &s->finish, &op, 1);
}

static void stream_on_sent(struct op *op, bool ok)
{
	struct rpc_stream *s = stream_of(op);
	bool wake;

	pthread_mutex_lock(&s->tx_lock);
	s->tx_under_way = false;
	s->tx_failed |= !ok;
	if (s->next_len && !s->tx_failed) {
		size_t len = s->next_len;

		s->next_len = 0;
		stream_tx_start(s, s->next, len);
	}
	if (!s->tx_failed)
		stream_finish_start(s);
	wake = s->tx_wanted;
	s->tx_wanted = false;
	pthread_mutex_unlock(&s->tx_lock);
	if (wake)
		stream_wake(s);
	stream_unref(s);
}

static size_t stream_gather(uint8_t *to, size_t room, const struct iovec *iov, unsigned n)
{
	size_t total = 0;

	for (unsigned i = 0; i < n && total < room; i++) {
		size_t take = iov[i].iov_len < room - total ? iov[i].iov_len : room - total;

		memcpy(to + total, iov[i].iov_base, take);
		total += take;
	}
	return total;
}

/* With tx_lock. */
static ssize_t stream_take(struct rpc_stream *s, const struct iovec *iov, unsigned n, size_t bytes)
{
	size_t took;

	if (s->tx_failed || s->finishing || atomic_load(&s->ended))
		return RPC_BROKEN;
	if (!s->tx_under_way) {
		grpc_slice slice = stream_tx_slice(bytes < PIECE_BYTES ? bytes : PIECE_BYTES);

		took = stream_gather(GRPC_SLICE_START_PTR(slice) + PIECE_HEAD_MAX, PIECE_BYTES, iov, n);
		stream_tx_start(s, slice, took);
		return (ssize_t)took;
	}
	if (!s->next_len)
		s->next = stream_tx_slice(PIECE_BYTES);
	took = stream_gather(GRPC_SLICE_START_PTR(s->next) + PIECE_HEAD_MAX + s->next_len, PIECE_BYTES - s->next_len,
			     iov, n);
	s->next_len += took;
	s->tx_wanted = took < bytes;
	return took ? (ssize_t)took : RPC_AGAIN;
}

ssize_t stream_send(struct rpc_stream *s, const struct iovec *iov, unsigned n)
{
	size_t bytes = 0;
	ssize_t took;
	void *done;
	int ok;

	for (unsigned i = 0; i < n; i++)
		bytes += iov[i].iov_len;
	/* What the kernel takes at once completes within this call: gRPC keeps that event
	 * for this thread instead of waking the queue's thread. */
	grpc_completion_queue_thread_local_cache_init(s->cq);
	pthread_mutex_lock(&s->tx_lock);
	took = stream_take(s, iov, n, bytes);
	pthread_mutex_unlock(&s->tx_lock);
	if (grpc_completion_queue_thread_local_cache_flush(s->cq, &done, &ok)) {
		struct op *op = done;

		op_acquire(op);
		op->done(op, ok);
	}
	return took;
}

void stream_finish(struct rpc_stream *s)
{
	pthread_mutex_lock(&s->tx_lock);
	s->finishing = true;
	if (!s->tx_failed)
		stream_finish_start(s);
	pthread_mutex_unlock(&s->tx_lock);
}

static void stream_on_done(struct op *op, bool ok)
{
	(void)ok;
	stream_unref(stream_of(op));
}

/* A client's stream: the peer has answered. */
static void stream_on_begun(struct op *op, bool ok)
{
	struct rpc_stream *s = stream_of(op);

	atomic_store(&s->up, ok);
	stream_wake(s);
	stream_unref(s);
}

static void stream_on_ended(struct op *op, bool ok)
{
	struct rpc_stream *s = stream_of(op);

	(void)ok;
	atomic_store(&s->ended, true);
	stream_wake(s);
	stream_unref(s);
}

bool stream_up(const struct rpc_stream *s)
{
	return atomic_load(&s->up);
}

void stream_waker(struct rpc_stream *s, struct rpc_waker w)
{
	pthread_mutex_lock(&s->wake_lock);
	s->waker = w;
	pthread_mutex_unlock(&s->wake_lock);
}

enum rs_loss stream_error(struct rpc_stream *s, struct rs_err *ret)
{
	char details[384];

	if (s->foreign) {
		rs_fail(ret, RS_EPROTO, "it sent a message that is not a reduction.v1.Piece");
	} else if (!atomic_load(&s->ended)) {
		rs_fail(ret, RS_EIO, "the stream is broken");
	} else if (s->channel) {
		slice_text(s->details, details, sizeof details);
		status_text(s->status, details, s->own, ret);
		return status_loss(details);
	} else {
		rs_fail(ret, RS_EIO,
			s->cancelled ? "the connection was lost or the call cancelled" : "the call has ended");
	}
	return RS_LOSS_OTHER;
}

void stream_peer(const struct rpc_stream *s, char buf[RPC_PEER_MAX])
{
	call_peer_text(s->call, buf);
}

void stream_certificate(const struct rpc_stream *s, char buf[RPC_CERTIFICATE_MAX])
{
	call_certificate_text(s->call, buf);
}

void stream_close(struct rpc_stream *s, enum rpc_code code, const char *why)
{
	bool cancel;

	stream_waker(s, (struct rpc_waker){0});
	pthread_mutex_lock(&s->tx_lock);
	cancel = s->channel || s->tx_under_way || s->tx_failed || s->finishing;
	if (!cancel && !atomic_load(&s->ended)) {
		s->code = code;
		snprintf(s->why, sizeof s->why, "%s", why ? why : "");
		s->finishing = true;
		stream_finish_start(s);
	}
	pthread_mutex_unlock(&s->tx_lock);
	if (cancel && !atomic_load(&s->ended))
		grpc_call_cancel_with_status(s->call, code ? (grpc_status_code)code : GRPC_STATUS_CANCELLED,
					     why ? why : "closed", NULL);
	else if (s->waiting)
		waiting_add(&s->waiter, s->waiting, s->call, "the end was not taken in time");
	stream_unref(s);
}

static void stream_tag(struct rpc_stream *s, struct stream_op *op, void (*done)(struct op *op, bool ok))
{
	op->op.done = done;
	op->stream = s;
}

static struct rpc_stream *stream_new(void)
{
	struct rpc_stream *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	atomic_init(&s->refs, 1);
	pthread_mutex_init(&s->rx_lock, NULL);
	pthread_mutex_init(&s->tx_lock, NULL);
	pthread_mutex_init(&s->wake_lock, NULL);
	s->details = grpc_empty_slice();
	grpc_metadata_array_init(&s->headers);
	grpc_metadata_array_init(&s->trailers);
	stream_tag(s, &s->rx, stream_on_received);
	stream_tag(s, &s->tx, stream_on_sent);
	stream_tag(s, &s->begin, stream_on_begun);
	stream_tag(s, &s->end, stream_on_ended);
	stream_tag(s, &s->finish, stream_on_done);
	return s;
}

static void stream_receive(struct rpc_stream *s)
{
	pthread_mutex_lock(&s->rx_lock);
	stream_rx_start(s);
	pthread_mutex_unlock(&s->rx_lock);
}

struct rpc_stream *stream_accept(grpc_call *call, grpc_completion_queue *cq, struct waiting *waiting, struct live *live)
{
	struct rpc_stream *s = stream_new();
	grpc_op hello = {.op = GRPC_OP_SEND_INITIAL_METADATA};
	grpc_op end = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

	if (!s)
		return NULL;
	s->call = call;
	s->cq = cq;
	s->live = live;
	s->waiting = waiting;
	atomic_store(&s->up, true);
	stream_tag(s, &s->begin, stream_on_done);
	end.data.recv_close_on_server.cancelled = &s->cancelled;
	stream_start(s, &s->end, &end, 1);
	stream_start(s, &s->begin, &hello, 1);
	stream_receive(s);
	return s;
}

int stream_open(struct rpc_stream **ret, struct rpc_client *c, const struct rpc_open_options *opt, struct rs_err *e)
{
	struct rpc_stream *s = stream_new();
	grpc_op begin[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};
	grpc_op end = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
	grpc_channel *channel;
	grpc_slice path;

	if (!s)
		return rs_oom(e, 0, "a gRPC stream");
	s->live = &c->live;
	live_add(s->live);
	channel = client_channel(opt->address, opt->authority, opt->tls, MESSAGE_MAX, false, e);
	if (!channel) {
		stream_unref(s);
		return e->code;
	}

	s->channel = channel;
	s->own = client_security(opt->tls);
	s->waker = opt->waker;
	s->cq = c->queue.cq;
	path = grpc_slice_from_copied_string(opt->path);
	s->call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue.cq, path, NULL,
					   gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	grpc_slice_unref(path);
	begin[1].data.recv_initial_metadata.recv_initial_metadata = &s->headers;
	end.data.recv_status_on_client.trailing_metadata = &s->trailers;
	end.data.recv_status_on_client.status = &s->status;
	end.data.recv_status_on_client.status_details = &s->details;
	stream_start(s, &s->end, &end, 1);
	stream_start(s, &s->begin, begin, 2);
	stream_receive(s);
	*ret = s;
	return RS_OK;
}
