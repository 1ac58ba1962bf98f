/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks, as XLA sends them for collective-permute and all-to-all. A
 * message is a broadcast in a group of the two ranks, so it goes through the reducers,
 * and ranks need not reach each other. The happy path: XLA calls MPIABI_Irecv and
 * MPIABI_Isend for all messages of an instruction, and then MPIABI_Wait for each; the
 * first MPIABI_Wait starts all of them. Each rank starts them ordered by pair and
 * direction: opening a group waits for the other rank, so in any other order ranks could
 * wait for each other in a circle. */
#include "agent/jax/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message. */
struct jax_request {
	struct jax_request *next;
	struct jax_comm *comm;
	void *data;
	size_t bytes;
	int low, high; /* ranks of the job */
	bool from_low; /* the sender is `low` */
	bool started;
	reduction_request *op;      /* NULL: not started, or an error */
	char error[JAX_ERROR_TEXT]; /* "": none */
};

/* Returns whether a is started before b. */
static bool is_before(const struct jax_request *a, const struct jax_request *b)
{
	if (a->low != b->low)
		return a->low < b->low;
	if (a->high != b->high)
		return a->high < b->high;
	return a->from_low && !b->from_low;
}

static void keep_error(struct jax_request *r)
{
	int len;

	MPIABI_Error_string(JAX_ERROR, r->error, &len);
}

static void start(struct jax_request *r)
{
	struct jax_group *g = jax_group_of((const int[]){r->low, r->high}, 2);
	reduction_error e;

	r->started = true;
	if (g && reduction_broadcast_async(g->comm, r->data, r->bytes, REDUCTION_UINT8, r->from_low ? 0 : 1, NULL,
					   &r->op, &e))
		g = jax_fail_error("message of JAX", &e) ? NULL : g;
	if (!g)
		keep_error(r);
}

/* Takes all messages of a communicator that have not been started, and starts them. Those
 * of one pair and direction stay in the order of the calls. */
static void start_all(struct jax_comm *c)
{
	while (c->requests) {
		struct jax_request **first = &c->requests, *r;

		for (struct jax_request **at = &c->requests; *at; at = &(*at)->next)
			if (is_before(*at, *first))
				first = at;
		r = *first;
		*first = r->next;
		start(r);
	}
}

static int queue(struct jax_comm *c, void *data, int count, jax_handle type, bool sends, int peer, jax_handle *ret)
{
	const char *what = sends ? "MPI_Isend" : "MPI_Irecv";
	struct jax_request *r, **at;
	const struct jax_type *t;
	int own, other;

	if (!jax_type_of(type, count, what, &t))
		return JAX_ERROR;
	if (peer < 0 || peer >= c->size || peer == c->rank)
		return jax_fail("%s: rank %d of %d cannot exchange messages with rank %d", what, c->rank, c->size,
				peer);
	r = calloc(1, sizeof *r);
	if (!r)
		return jax_fail("out of memory for a message");
	own = c->group->members[c->rank];
	other = c->group->members[peer];
	*r = (struct jax_request){
	    .comm = c,
	    .data = data,
	    .bytes = (size_t)count * t->size,
	    .low = own < other ? own : other,
	    .high = own < other ? other : own,
	    .from_low = sends == (own < other),
	};
	for (at = &c->requests; *at; at = &(*at)->next)
		;
	*at = r;
	*ret = (jax_handle)r;
	return JAX_SUCCESS;
}

/* The library does not write the buffer of a root. */
JAX_EXPORT int MPIABI_Isend(const void *buf, int count, jax_handle type, int to, int tag, jax_handle comm,
			    jax_handle *request)
{
	struct jax_comm *c;

	(void)tag;
	*request = MPIABI_REQUEST_NULL;
	if (!jax_begin(comm, &c))
		return JAX_ERROR;
	return jax_end(queue(c, (void *)(uintptr_t)buf, count, type, true, to, request));
}

JAX_EXPORT int MPIABI_Irecv(void *buf, int count, jax_handle type, int from, int tag, jax_handle comm,
			    jax_handle *request)
{
	struct jax_comm *c;

	(void)tag;
	*request = MPIABI_REQUEST_NULL;
	if (!jax_begin(comm, &c))
		return JAX_ERROR;
	return jax_end(queue(c, buf, count, type, false, from, request));
}

JAX_EXPORT int MPIABI_Wait(jax_handle *request, void *status)
{
	struct jax_request *r;
	struct jax_comm *c;
	reduction_error e;
	bool begun;
	int rc;

	(void)status;
	if (*request == MPIABI_REQUEST_NULL)
		return JAX_SUCCESS;
	r = (struct jax_request *)*request;
	*request = MPIABI_REQUEST_NULL;
	begun = jax_begin((jax_handle)r->comm, &c);
	if (begun && !r->started)
		start_all(c);
	if (r->op)
		rc = reduction_wait(r->op, -1, &e) ? jax_fail_error("message of JAX", &e) : JAX_SUCCESS;
	else
		rc = r->started ? jax_fail("%s", r->error) : JAX_ERROR;
	free(r);
	return begun ? jax_end(rc) : rc;
}

JAX_EXPORT int MPIABI_Sendrecv(const void *send, int count, jax_handle type, int to, int tag, void *recv,
			       int recv_count, jax_handle recv_type, int from, int recv_tag, jax_handle comm,
			       void *status)
{
	jax_handle in = MPIABI_REQUEST_NULL, out = MPIABI_REQUEST_NULL;
	int rc = MPIABI_Irecv(recv, recv_count, recv_type, from, recv_tag, comm, &in);
	int sent = rc ? rc : MPIABI_Isend(send, count, type, to, tag, comm, &out);
	int received = MPIABI_Wait(&in, status);

	rc = MPIABI_Wait(&out, status);
	return sent ? sent : received ? received : rc;
}

JAX_EXPORT int MPIABI_Alltoall(const void *send, int count, jax_handle type, void *recv, int recv_count,
			       jax_handle recv_type, jax_handle comm)
{
	const struct jax_type *t;
	struct jax_comm *c;
	size_t bytes;
	int rc = JAX_SUCCESS;

	if (!jax_begin(comm, &c))
		return JAX_ERROR;
	if (!jax_type_of(type, count, "MPI_Alltoall", &t))
		return jax_end(JAX_ERROR);
	bytes = (size_t)count * t->size;
	memcpy((char *)recv + bytes * (size_t)c->rank, (const char *)send + bytes * (size_t)c->rank, bytes);
	for (int i = 1; i < c->size && !rc; i++) {
		int to = (c->rank + i) % c->size, from = (c->rank + c->size - i) % c->size;

		rc = MPIABI_Sendrecv((const char *)send + bytes * (size_t)to, count, type, to, 0,
				     (char *)recv + bytes * (size_t)from, recv_count, recv_type, from, 0, comm, NULL);
	}
	return jax_end(rc);
}
