/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on threads. A kernel has one block for each channel, and kernels of one channel
 * run one after the other. What a block does for the chain of CollNet: one thread carries
 * chunks up (from the rank below, plus the own values, to the rank above or the network),
 * another one carries results down. Between ranks and to NCCL's proxy each direction is a
 * ring of STEPS places; both sides count steps. After an abort a kernel waits for nothing
 * and counts on, as NCCL's do.
 *
 * For CollNet Direct with one rank on each node (all-gather, reduce-scatter): the same
 * with the network alone. */
#include "tests/nccl/real/fake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	STEPS = 8,
	CHANNELS = 64,
	BATCH_MAX = 64,    /* works of one batch */
	ARGS_BYTES = 4096, /* of arguments that come without their size */
	MODE_OFFSET = 1,   /* of a FIFO: the place is at an offset that the proxy wrote */
	BUFFER = 2,        /* index of the buffer of the protocol SIMPLE */
	TYPE_COLL = 1,     /* ncclDevWorkTypeColl, ncclWorkTypeColl */
	OLD_WORK_BYTES = 512,
	OLD_ELEMENTS = 8, /* where the elements of an ncclWork begin */
	POLL_US = 50,
};

struct kernel kernel_next;

static struct {
	pthread_mutex_t lock; /* protects everything below */
	pthread_cond_t changed;
	unsigned long issued[CHANNELS], ended[CHANNELS]; /* blocks */
	int running;
} blocks = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* One block of a kernel. */
struct block {
	struct kernel k;
	int index, channel;
	unsigned long ticket;
	char *comm;
	char *args; /* a copy of what the kernel was launched with */
};

/* One collective of a block. */
struct work {
	const struct block *b;
	const char *send;
	char *recv;
	long count, chunk; /* elements */
	int part, parts;   /* of the channels that share it */
};

/* One side of a ring of places. */
struct side {
	char *conn;
	bool sends;
	uint64_t step;
	char *place; /* of the current step; NULL: aborted */
};

static void *pointer_at(const void *base, long offset)
{
	void *p;

	memcpy(&p, (const char *)base + offset, sizeof p);
	return p;
}

static int int_at(const void *base, long offset)
{
	return *(const volatile int *)((const char *)base + offset);
}

static uint64_t long_at(const void *base, long offset)
{
	uint64_t v;

	memcpy(&v, (const char *)base + offset, sizeof v);
	return v;
}

static char *channel_of(const struct block *b)
{
	return (char *)pointer_at(b->comm, layout[COMM_CHANNELS]) + b->channel * layout[CHANNEL_SIZE];
}

static bool aborted(const struct block *b)
{
	const volatile uint32_t *flag = pointer_at(b->comm, layout[COMM_ABORT]);

	return flag && *flag;
}

static struct side side_open(const struct block *b, int peer, bool sends, int index)
{
	char *peers = pointer_at(channel_of(b), layout[CHANNEL_PEERS]),
	     *p = pointer_at(peers, peer * (long)sizeof(void *));
	struct side s = {.sends = sends};

	s.conn = p + layout[sends ? PEER_SEND : PEER_RECV] + index * layout[CONN_SIZE];
	s.step = long_at(s.conn, layout[CONN_STEP]);
	return s;
}

static void side_close(struct side *s)
{
	memcpy(s->conn + layout[CONN_STEP], &s->step, sizeof s->step);
}

static long step_bytes(const struct block *b, const struct side *s)
{
	if (layout[CONN_STEP_SIZE] >= 0)
		return int_at(s->conn, layout[CONN_STEP_SIZE]);
	return int_at(b->comm, layout[COMM_BUFFER_SIZES] + BUFFER * (long)sizeof(int)) / STEPS;
}

/* Waits until the place of this step may be used. With `bytes` of a chunk to be sent. */
static void side_wait(const struct block *b, struct side *s, long bytes)
{
	const _Atomic uint64_t *head = pointer_at(s->conn, layout[CONN_HEAD]),
			       *tail = pointer_at(s->conn, layout[CONN_TAIL]);
	char *fifo = pointer_at(s->conn, layout[CONN_FIFO]);
	char *buffer = pointer_at(s->conn, layout[CONN_BUFFERS] + BUFFER * (long)sizeof(void *));
	int slot = (int)(s->step % STEPS);
	bool gone = false;

	if (fifo)
		fifo += slot * layout[FIFO_SIZE];
	s->place = NULL;
	while (s->sends ? atomic_load(head) + STEPS < s->step + 1 : atomic_load(tail) < s->step + 1) {
		gone = aborted(b);
		if (gone)
			break;
		usleep(POLL_US);
	}
	if (fifo && s->sends)
		*(volatile long *)(fifo + layout[FIFO_BYTES]) = bytes;
	if (gone)
		return;
	if (fifo && int_at(fifo, layout[FIFO_MODE]) == MODE_OFFSET)
		s->place = buffer + int_at(fifo, layout[FIFO_OFFSET]);
	else
		s->place = buffer + slot * step_bytes(b, s);
}

static void side_post(struct side *s)
{
	_Atomic uint64_t *at = pointer_at(s->conn, layout[s->sends ? CONN_TAIL : CONN_HEAD]);

	atomic_store(at, ++s->step);
}

/* The chunks of a work that belong to this block: [*begin, *end) of the loop that begins
 * at `loop`. */
static void chunk_of(const struct work *w, long loop, long all, long *begin, long *end)
{
	*begin = loop + w->part * w->chunk;
	*end = *begin + w->chunk;
	if (*begin > all)
		*begin = all;
	if (*end > all)
		*end = all;
}

static bool is_float(enum kernel_type t)
{
	return t != KERNEL_INT32;
}

static void chain_up(const struct work *w)
{
	const struct block *b = w->b;
	const struct kernel *k = &b->k;
	const char *tree = channel_of(b) + layout[CHANNEL_CHAIN];
	int down = int_at(tree, layout[TREE_DOWN]);
	struct side to = side_open(b, int_at(tree, layout[TREE_UP]), true, 1), from = to;
	size_t size = element_size(k->type);
	long begin, end;

	if (down >= 0)
		from = side_open(b, down, false, 1);
	for (long loop = 0; loop < w->count; loop += w->parts * w->chunk) {
		chunk_of(w, loop, w->count, &begin, &end);
		if (down >= 0)
			side_wait(b, &from, 0);
		side_wait(b, &to, (end - begin) * (long)size);
		if (to.place) {
			memcpy(to.place, w->send + begin * (long)size, (size_t)(end - begin) * size);
			if (k->op == KERNEL_AVERAGE && is_float(k->type))
				element_scale(k->type, to.place, (size_t)(end - begin), 1.0 / k->ranks);
			if (down >= 0 && from.place)
				element_reduce(k, to.place, from.place, (size_t)(end - begin));
		}
		if (down >= 0)
			side_post(&from);
		side_post(&to);
	}
	side_close(&to);
	if (down >= 0)
		side_close(&from);
}

static void chain_down(const struct work *w)
{
	const struct block *b = w->b;
	const struct kernel *k = &b->k;
	const char *tree = channel_of(b) + layout[CHANNEL_CHAIN];
	int up = int_at(tree, layout[TREE_UP]), down = int_at(tree, layout[TREE_DOWN]);
	struct side from = side_open(b, up, false, 0), to = from;
	size_t size = element_size(k->type);
	long begin, end;

	if (down >= 0)
		to = side_open(b, down, true, 0);
	for (long loop = 0; loop < w->count; loop += w->parts * w->chunk) {
		char *own;

		chunk_of(w, loop, w->count, &begin, &end);
		own = w->recv + begin * (long)size;
		side_wait(b, &from, 0);
		if (down >= 0)
			side_wait(b, &to, (end - begin) * (long)size);
		if (from.place) {
			memcpy(own, from.place, (size_t)(end - begin) * size);
			if (k->op == KERNEL_AVERAGE && !is_float(k->type) && up == k->ranks)
				element_scale(k->type, own, (size_t)(end - begin), 1.0 / k->ranks);
			if (down >= 0 && to.place)
				memcpy(to.place, own, (size_t)(end - begin) * size);
		}
		side_post(&from);
		if (down >= 0)
			side_post(&to);
	}
	side_close(&from);
	if (down >= 0)
		side_close(&to);
}

/* CollNet Direct: `count` belongs to one rank; an all-gather counts bytes. One side has
 * the own part alone. */
static void direct(const struct work *w, bool up)
{
	const struct block *b = w->b;
	const struct kernel *k = &b->k;
	struct side s = side_open(b, k->ranks, up, up ? 1 : 0);
	long size = k->kind == KERNEL_GATHER ? 1 : (long)element_size(k->type), all = w->count * k->ranks, begin, end;
	long own = k->rank * w->count;
	bool part = (k->kind == KERNEL_GATHER) == up;

	for (long loop = 0; loop < all; loop += w->parts * w->chunk) {
		long from = 0;

		chunk_of(w, loop, all, &begin, &end);
		if (part) { /* of the chunk, what is the own part's */
			begin = begin > own ? begin : own;
			end = end < own + w->count ? end : own + w->count;
			end = end > begin ? end : begin;
			from = own;
		}
		side_wait(b, &s, (end - begin) * size);
		if (s.place && up)
			memcpy(s.place, w->send + (begin - from) * size, (size_t)((end - begin) * size));
		if (s.place && !up)
			memcpy(w->recv + (begin - from) * size, s.place, (size_t)((end - begin) * size));
		side_post(&s);
	}
	side_close(&s);
}

static void *up_main(void *arg)
{
	const struct work *w = arg;

	if (w->b->k.kind == KERNEL_CHAIN)
		chain_up(w);
	else
		direct(w, true);
	return NULL;
}

static void work_run(struct work *w)
{
	pthread_t up;

	if (w->part < 0 || w->part >= w->parts)
		return;
	if (pthread_create(&up, NULL, up_main, w))
		die("no thread for a kernel");
	if (w->b->k.kind == KERNEL_CHAIN)
		chain_down(w);
	else
		direct(w, false);
	pthread_join(up, NULL);
}

/* ncclDevWorkColl of NCCL 2.22 and later; its first word has the first and the last
 * channel. */
static void work_at(const struct block *b, const char *at)
{
	unsigned first = (uint8_t)at[0], last = (uint8_t)at[1];
	struct work w = {
	    .b = b,
	    .send = pointer_at(at, layout[WORK_SEND]),
	    .recv = pointer_at(at, layout[WORK_RECV]),
	    .chunk = (unsigned)int_at(at, layout[WORK_CHUNK]),
	    .part = b->channel - (int)first,
	    .parts = (int)(last - first) + 1,
	};

	w.count = layout[WORK_COUNT_SIZE] == 8 ? (long)long_at(at, layout[WORK_COUNT])
					       : (unsigned)int_at(at, layout[WORK_COUNT]);
	work_run(&w);
}

/* Follows the batches of this block, each with a set of works. */
static void block_run(const struct block *b)
{
	bool in_args = b->args[layout[ARGS_STORAGE]] == 0;
	const char *fifo = pointer_at(b->args, layout[ARGS_WORK]);
	unsigned mask = (unsigned)int_at(b->args, layout[ARGS_WORK_MASK]), jump = 1;

	for (unsigned at = (unsigned)b->index; jump; at += jump) {
		const char *batch = b->args + layout[ARGS_SIZE] + at * layout[BATCH_SIZE];
		unsigned flags = (unsigned)int_at(batch, 0), base = (unsigned)int_at(batch, layout[BATCH_BASE]);
		uint64_t works = long_at(batch, layout[BATCH_SET]);

		jump = flags & 0x3fff;
		if ((flags >> 15 & 3) != TYPE_COLL)
			die("a kernel has work of type %u, which is not emulated", flags >> 15 & 3);
		for (unsigned i = 0; i < BATCH_MAX; i++) {
			unsigned offset = base + i * (unsigned)layout[WORK_SIZE];

			if (works >> i & 1)
				work_at(b, in_args ? b->args + offset : fifo + (offset & mask));
		}
	}
}

/* ncclWork of NCCL before 2.22: a header, then elements; the next work is `next` works
 * after the first. */
static void old_block_run(const struct block *b)
{
	const char *heap = pointer_at(b->args, 0), *at = b->args + sizeof heap;

	for (;;) {
		unsigned flags = (uint8_t)at[6];
		int next = int_at(at, 0);

		if ((uint8_t)at[7] != TYPE_COLL)
			die("a kernel has work of type %u, which is not emulated", (uint8_t)at[7]);
		if ((flags & 3) == 3) /* the last one, and in the FIFO: it may be used again */
			*(volatile int *)pointer_at(channel_of(b), layout[CHANNEL_FIFO_DONE]) = next;
		for (const char *e = at + OLD_ELEMENTS; e + layout[ELEM_SIZE] <= at + OLD_WORK_BYTES && (e[0] & 1);
		     e += layout[ELEM_SIZE]) {
			long after =
			    layout[ELEM_COUNT] + 16; /* chunkCount : 25, then 8 bytes later bid and nChannels */
			struct work w = {
			    .b = b,
			    .send = pointer_at(e, layout[ELEM_SEND]),
			    .recv = pointer_at(e, layout[ELEM_RECV]),
			    .count = (long)long_at(e, layout[ELEM_COUNT]),
			    .chunk = (long)(long_at(e, after) & 0x1ffffff),
			    .part = int_at(e, after + 8),
			    .parts = int_at(e, after + 12),
			};

			work_run(&w);
		}
		if (flags & 1)
			return;
		at = heap + (long)next * OLD_WORK_BYTES;
	}
}

static void *block_main(void *arg)
{
	struct block *b = arg;

	pthread_mutex_lock(&blocks.lock);
	while (blocks.ended[b->channel] != b->ticket)
		pthread_cond_wait(&blocks.changed, &blocks.lock);
	pthread_mutex_unlock(&blocks.lock);
	if (layout[ARGS_SIZE] < 0)
		old_block_run(b);
	else
		block_run(b);
	pthread_mutex_lock(&blocks.lock);
	blocks.ended[b->channel]++;
	blocks.running--;
	pthread_cond_broadcast(&blocks.changed);
	pthread_mutex_unlock(&blocks.lock);
	free(b->args);
	free(b);
	return NULL;
}

static void block_start(int index, int channel, char *comm, const void *args, size_t bytes)
{
	struct block *b = calloc(1, sizeof *b);
	pthread_t thread;

	if (!b)
		die("out of memory");
	*b = (struct block){.k = kernel_next, .index = index, .channel = channel, .comm = comm, .args = malloc(bytes)};
	if (!b->args)
		die("out of memory");
	memcpy(b->args, args, bytes);
	pthread_mutex_lock(&blocks.lock);
	b->ticket = blocks.issued[channel]++;
	blocks.running++;
	pthread_mutex_unlock(&blocks.lock);
	if (pthread_create(&thread, NULL, block_main, b))
		die("no thread for a kernel");
	pthread_detach(thread);
}

/* Before 2.22 the arguments are the communicator, the set of channels, and the works, of
 * which block i has the i-th. */
static void old_launch(void **args)
{
	char *comm = pointer_at(args[0], 0), *heap = pointer_at(args[2], 0);
	uint64_t channels = long_at(args[1], 0);
	char copy[sizeof heap + OLD_WORK_BYTES];
	int index = 0;

	for (int c = 0; c < CHANNELS; c++) {
		if (!(channels >> c & 1))
			continue;
		memcpy(copy, &heap, sizeof heap);
		memcpy(copy + sizeof heap, heap + (long)index * OLD_WORK_BYTES, OLD_WORK_BYTES);
		block_start(index++, c, comm, copy, sizeof copy);
	}
}

void kernel_launch(void **args)
{
	bool sized = args[0] == (void *)1; /* CUDA's mark of a buffer; then the buffer, a mark, the buffer's size */
	const char *a = args[sized ? 1 : 0];
	uint64_t channels;
	int index = 0;

	if (kernel_next.kind == KERNEL_NONE)
		return;
	if (layout[ARGS_SIZE] < 0) {
		old_launch(args);
		return;
	}
	channels = long_at(a, layout[ARGS_MASK]);
	for (int c = 0; c < CHANNELS; c++)
		if (channels >> c & 1)
			block_start(index++, c, pointer_at(a, 0), a, sized ? *(size_t *)args[3] : ARGS_BYTES);
}

int kernels_running(void)
{
	int n;

	pthread_mutex_lock(&blocks.lock);
	n = blocks.running;
	pthread_mutex_unlock(&blocks.lock);
	return n;
}
