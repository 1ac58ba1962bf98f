/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of the net table. */
#include "tests/nccl/exercise.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NET_DEPTH = 8, NET_LIMIT_S = 300 };

/* The connections of a rank in a ring: to the next rank, and from the previous one. */
struct ring {
	const struct tables *t;
	void *listening, *to, *from;
};

static void ring_listen(struct ring *r, const struct tables *t, const struct options *o, struct shared *s, int rank)
{
	*r = (struct ring){.t = t};
	require(tables_net_listen(t, s->handles[rank], &r->listening) == NCCL_SUCCESS, "listen");
	barrier(s, o->ranks);
}

static void ring_connect(struct ring *r, const struct options *o, struct shared *s, int rank)
{
	uint8_t handle[NCCL_HANDLE_BYTES]; /* holds the state of connect */
	double until = now_s() + NET_LIMIT_S;

	memcpy(handle, s->handles[(rank + 1) % o->ranks], sizeof handle);
	while (!r->to || !r->from) {
		require(now_s() < until, "no connection");
		if (!r->to)
			require(tables_net_connect(r->t, handle, &r->to) == NCCL_SUCCESS, "connect");
		if (!r->from)
			require(r->t->net_accept(r->listening, &r->from, NULL) == NCCL_SUCCESS, "accept");
		relax(LOOK_US);
	}
}

static void ring_close(struct ring *r)
{
	require(r->t->net_close_send(r->to) == NCCL_SUCCESS, "close_send");
	require(r->t->net_close_receive(r->from) == NCCL_SUCCESS, "close_receive");
	require(r->t->net_close_listen(r->listening) == NCCL_SUCCESS, "close_listen");
}

static size_t size_of(const struct options *o, int k)
{
	static const size_t sizes[] = {0, 1, 7, 4096, 65537, 131072, 262145};

	return k % 8 == 7 ? o->bytes : sizes[k % 8];
}

static void write_message(uint8_t *to, size_t bytes, int rank, int k)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)(i * 31 + (i >> 12) + (size_t)(rank * 7 + k));
}

static bool is_message(const uint8_t *at, size_t bytes, int rank, int k)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != (uint8_t)(i * 31 + (i >> 12) + (size_t)(rank * 7 + k)))
			return false;
	return true;
}

/* Starts a send and a receive of message k. */
static void start(struct ring *r, uint8_t *out, uint8_t *in, size_t bytes, size_t room, void *requests[2])
{
	while (!requests[0])
		require(tables_send(r->t, r->to, out, bytes, NULL, &requests[0]) == NCCL_SUCCESS, "isend");
	do
		requests[1] = (void *)1; /* NCCL's hint */
	while (tables_receive(r->t, r->from, in, room, NULL, &requests[1]) == NCCL_SUCCESS && !requests[1]);
	require(requests[1] && requests[1] != (void *)1, "irecv");
}

/* Tests the requests (NULL: none) in turn until all are done: bytes move only while a
 * request of their direction is tested. */
static void end(struct ring *r, void *requests[2], size_t bytes)
{
	double until = now_s() + NET_LIMIT_S;
	int done, got;

	while (requests[0] || requests[1]) {
		for (int i = 0; i < 2; i++) {
			got = -1;
			if (!requests[i])
				continue;
			require(r->t->net_test(requests[i], &done, &got) == NCCL_SUCCESS, "test");
			require(!done || got == (int)bytes, "test says %d bytes, expected %zu", got, bytes);
			requests[i] = done ? NULL : requests[i];
		}
		require(now_s() < until, "a message is not done");
		if (requests[0] || requests[1])
			relax(LOOK_US);
	}
}

/* Sends messages of several sizes to the next rank, 8 at a time, while those of the
 * previous one arrive. */
static void messages(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	void *requests[NET_DEPTH][2] = {{NULL, NULL}}, *registered = NULL;
	size_t room = o->bytes > 262145 ? o->bytes : 262145;
	int before = (rank + o->ranks - 1) % o->ranks;
	uint8_t *memory = malloc(room * 2 * NET_DEPTH);
	struct ring r;

	require(memory, "malloc");
	ring_listen(&r, t, o, s, rank);
	ring_connect(&r, o, s, rank);
	require(t->net_register(r.to, memory, room, NCCL_PTR_HOST, &registered) == NCCL_SUCCESS, "register");
	require(t->net_register(r.to, memory, room, 2, &registered) == NCCL_INTERNAL_ERROR, "device memory");
	for (int k = 0; k < o->ops + NET_DEPTH; k++) {
		uint8_t *out = memory + (size_t)(k % NET_DEPTH) * 2 * room, *in = out + room;
		void **both = requests[k % NET_DEPTH];

		if (both[0]) {
			end(&r, both, size_of(o, k - NET_DEPTH));
			require(is_message(in, size_of(o, k - NET_DEPTH), before, k - NET_DEPTH), "message %d differs",
				k - NET_DEPTH);
		}
		if (k >= o->ops)
			continue;
		write_message(out, size_of(o, k), rank, k);
		start(&r, out, in, size_of(o, k), room, both);
	}
	require(t->net_deregister(r.to, registered) == NCCL_SUCCESS, "deregister");
	barrier(s, o->ranks);
	ring_close(&r);
	free(memory);
}

/* Opens a TCP connection to the listener of a handle; the address is where the plugin
 * puts it. */
static int stranger(const uint8_t *handle)
{
	struct sockaddr_in to;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(&to, handle + 20, sizeof to);
	require(fd >= 0 && to.sin_family == AF_INET && connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "stranger");
	return fd;
}

/* Others connect to the listener: silent ones, more than it keeps, and one that sends
 * something else. */
static void strangers(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	uint8_t wrong[64] = {1, 2, 3};
	int fds[100];
	struct ring r;

	ring_listen(&r, t, o, s, rank);
	for (int i = 0; i < 100; i++) {
		fds[i] = stranger(s->handles[rank]);
		require(i % 2 || send(fds[i], wrong, sizeof wrong, MSG_NOSIGNAL) == sizeof wrong, "send");
		require(t->net_accept(r.listening, &r.from, NULL) == NCCL_SUCCESS && !r.from, "accept");
	}
	barrier(s, o->ranks); /* a connection that is accepted ends the accepting of strangers */
	ring_connect(&r, o, s, rank);
	barrier(s, o->ranks);
	for (int i = 0; i < 100; i++)
		close(fds[i]);
	ring_close(&r);
}

/* Without descriptors accept fails while a peer waits, and not before one does. */
static void descriptors(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	struct rlimit before, none;
	struct ring r;
	int fd, other, next;

	ring_listen(&r, t, o, s, rank);
	fd = stranger(s->handles[rank]);
	require(t->net_accept(r.listening, &r.from, NULL) == NCCL_SUCCESS && !r.from, "accept");
	require(getrlimit(RLIMIT_NOFILE, &before) == 0, "getrlimit");
	none = before;
	other = dup(fd); /* its number is that of the next one */
	next = dup(fd);
	none.rlim_cur = (rlim_t)next;
	close(next);
	require(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
	require(t->net_accept(r.listening, &r.from, NULL) == NCCL_SUCCESS && !r.from, "accept of nothing");
	close(other);
	other = stranger(s->handles[rank]);
	require(t->net_accept(r.listening, &r.from, NULL) == NCCL_SYSTEM_ERROR && !r.from,
		"accept without descriptors");
	require(setrlimit(RLIMIT_NOFILE, &before) == 0, "setrlimit");
	barrier(s, o->ranks);
	ring_connect(&r, o, s, rank);
	barrier(s, o->ranks);
	close(fd);
	close(other);
	ring_close(&r);
}

/* A message that is longer than its receive, and a peer that closes, are errors. */
static void breaks(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	static uint8_t out[100], in[100];
	void *request = NULL, *both[2] = {NULL, NULL};
	int done = 0, rc = NCCL_SUCCESS;
	struct ring r;

	ring_listen(&r, t, o, s, rank);
	ring_connect(&r, o, s, rank);
	require(tables_send(t, r.to, out, sizeof out, NULL, &request) == NCCL_SUCCESS && request, "isend");
	barrier(s, o->ranks);
	request = NULL;
	if (rank == 0) { /* too little room */
		rc = tables_receive(t, r.from, in, 99, NULL, &request);
	} else { /* all is there, then nothing more comes */
		require(tables_receive(t, r.from, in, 100, NULL, &both[1]) == NCCL_SUCCESS && both[1], "irecv");
		end(&r, both, 100);
	}
	barrier(s, o->ranks);
	if (rank == 0)
		require(t->net_close_send(r.to) == NCCL_SUCCESS, "close_send");
	barrier(s, o->ranks);
	if (rank == 1)
		rc = tables_receive(t, r.from, in, 100, NULL, &request);
	while (rank < 2 && rc == NCCL_SUCCESS)
		rc = t->net_test(request, &done, NULL);
	require(rank > 1 || rc == NCCL_REMOTE_ERROR, "result %d", rc);
	barrier(s, o->ranks);
	if (rank != 0)
		require(t->net_close_send(r.to) == NCCL_SUCCESS, "close_send");
	require(t->net_close_receive(r.from) == NCCL_SUCCESS, "close_receive");
	require(t->net_close_listen(r.listening) == NCCL_SUCCESS, "close_listen");
}

/* Without reducers connect of the CollNet table fails, and NCCL would use the net table
 * instead. */
static void fallback(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	struct member m;
	struct ring r = {.t = t};

	require(member_open(&m, t, o, s, rank) != NCCL_SUCCESS, "connect without reducers");
	if (tables_net_listen(t, s->handles[rank], &r.listening) != NCCL_SUCCESS) {
		puts("net fails");
		return;
	}
	barrier(s, o->ranks);
	ring_connect(&r, o, s, rank);
	puts("net works");
	barrier(s, o->ranks);
	ring_close(&r);
}

/* Measures one direction, from rank 0 to rank 1: rank 0 prints bytes per second. */
static void net_speed(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	void *requests[DEPTH_MAX][2] = {{NULL, NULL}};
	uint8_t *memory = malloc(o->bytes * (size_t)o->depth);
	double began = 0;
	struct ring r;

	require(memory, "malloc");
	memset(memory, 1, o->bytes * (size_t)o->depth);
	ring_listen(&r, t, o, s, rank);
	ring_connect(&r, o, s, rank);
	barrier(s, o->ranks);
	for (int k = 0; k < o->ops + 2 * o->depth; k++) {
		void **at = requests[k % o->depth];
		uint8_t *data = memory + (size_t)(k % o->depth) * o->bytes;

		if (k == 2 * o->depth)
			began = now_s();
		if (*at)
			end(&r, at, o->bytes);
		while (k < o->ops + o->depth && !*at)
			require((rank == 0 ? tables_send(t, r.to, data, o->bytes, NULL, at)
					   : tables_receive(t, r.from, data, o->bytes, NULL, at)) == NCCL_SUCCESS,
				"isend or irecv");
	}
	if (rank == 1)
		printf("{\"case\": \"net-speed\", \"bytes\": %zu, \"depth\": %d, \"MBps\": %.1f}\n", o->bytes, o->depth,
		       (double)o->ops * (double)o->bytes / (now_s() - began) / 1e6);
	barrier(s, o->ranks);
	ring_close(&r);
	free(memory);
}

/* One step of a ring: sends `part` elements at out, and receives as many at to, or adds
 * them there. Pieces of 512 KiB, 8 of them under way, as NCCL has. */
static void ring_step(struct ring *r, float *out, float *to, float *in, size_t part, bool sums)
{
	void *requests[NET_DEPTH][2] = {{NULL, NULL}};
	size_t piece = 128 << 10, pieces = (part + piece - 1) / piece;

	for (size_t k = 0; k < pieces + NET_DEPTH; k++) {
		size_t at = k * piece, old = (k - NET_DEPTH) * piece, n;
		void **both = requests[k % NET_DEPTH];
		float *from = in + k % NET_DEPTH * piece;

		if (k >= NET_DEPTH && old < part) {
			n = part - old < piece ? part - old : piece;
			end(r, both, n * 4);
			for (size_t i = 0; sums && i < n; i++)
				to[old + i] += from[i];
		}
		if (k >= pieces)
			continue;
		n = part - at < piece ? part - at : piece;
		start(r, (uint8_t *)(out + at), (uint8_t *)(sums ? from : to + at), n * 4, n * 4, both);
	}
}

/* One all-reduce of float32 by a ring over the net table. */
static void ring_all_reduce(struct ring *r, const struct options *o, int rank, float *data, float *in, size_t count)
{
	size_t part = count / (size_t)o->ranks;

	for (int step = 0; step < 2 * (o->ranks - 1); step++)
		ring_step(r, data + part * (size_t)((rank - step + 2 * o->ranks) % o->ranks),
			  data + part * (size_t)((rank - step - 1 + 2 * o->ranks) % o->ranks), in, part,
			  step < o->ranks - 1);
}

/* Measures the ring: rank 0 prints bytes per second of one rank's buffer. */
static void ring_speed(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	size_t count = o->bytes / 4;
	float *data = calloc(count, 4), *in = calloc(NET_DEPTH * (128 << 10), 4);
	double began = 0;
	struct ring r;

	require(data && in, "malloc");
	ring_listen(&r, t, o, s, rank);
	ring_connect(&r, o, s, rank);
	barrier(s, o->ranks);
	for (int k = 0; k < o->ops + 2; k++) {
		if (k == 2)
			began = now_s();
		ring_all_reduce(&r, o, rank, data, in, count);
	}
	if (rank == 0)
		printf("{\"case\": \"ring-speed\", \"ranks\": %d, \"bytes\": %zu, \"algbw_MBps\": %.1f}\n", o->ranks,
		       o->bytes, (double)o->ops * (double)o->bytes / (now_s() - began) / 1e6);
	barrier(s, o->ranks);
	ring_close(&r);
	free(data);
	free(in);
}

const struct test_case net_cases[] = {
    {"messages", messages},   {"strangers", strangers},   {"descriptors", descriptors}, {"breaks", breaks},
    {"net-speed", net_speed}, {"ring-speed", ring_speed}, {"fallback", fallback},       {NULL, NULL},
};
