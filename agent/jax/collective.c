/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives. An all-reduce of a type that reducers add is one operation on the buffers
 * of XLA. 16-bit integers are added in 32 bits. A product of complex numbers, which is
 * none of their parts, gathers them. A gather is a broadcast of each rank's part, so each
 * byte goes out once and comes in once; of few bytes it is one all-reduce of parts that
 * are 0 elsewhere. A reduce-scatter is an all-reduce of which a rank keeps its part. */
#include "agent/jax/state.h"

#include <stdlib.h>
#include <string.h>

enum {
	SMALL_GATHER = 64 << 10, /* bytes of all ranks up to which a gather is one all-reduce */
	IN_FLIGHT = 16,          /* broadcasts of a gather at once */
};

static int run(struct jax_comm *c, const void *send, void *recv, size_t count, reduction_dtype dtype, reduction_op op)
{
	reduction_error e;

	return reduction_all_reduce(c->group->comm, send, recv, count, dtype, op, &e)
		   ? jax_fail_error("all-reduce of JAX", &e)
		   : JAX_SUCCESS;
}

static int gather_small(struct jax_comm *c, const void *send, uint8_t *recv, size_t bytes)
{
	uint8_t *part = recv + bytes * (size_t)c->rank;

	memmove(part, send, bytes);
	memset(recv, 0, (size_t)(part - recv));
	memset(part + bytes, 0, bytes * (size_t)(c->size - 1 - c->rank));
	return run(c, recv, recv, bytes * (size_t)c->size, REDUCTION_UINT8, REDUCTION_SUM);
}

static int gather_large(struct jax_comm *c, const void *send, uint8_t *recv, size_t bytes)
{
	reduction_request *pending[IN_FLIGHT];
	int begun = 0, rc = JAX_SUCCESS;
	reduction_error e;

	memmove(recv + bytes * (size_t)c->rank, send, bytes);
	for (int ended = 0; ended < c->size && (ended < begun || !rc); ended++) {
		while (!rc && begun < c->size && begun - ended < IN_FLIGHT) {
			if (reduction_broadcast_async(c->group->comm, recv + bytes * (size_t)begun, bytes,
						      REDUCTION_UINT8, begun, NULL, &pending[begun % IN_FLIGHT], &e))
				rc = jax_fail_error("all-gather of JAX", &e);
			else
				begun++;
		}
		if (ended < begun && reduction_wait(pending[ended % IN_FLIGHT], -1, &e) && !rc)
			rc = jax_fail_error("all-gather of JAX", &e);
	}
	return rc;
}

int jax_gather(struct jax_comm *c, const void *send, void *recv, size_t bytes)
{
	if (c->size == 1) {
		memmove(recv, send, bytes);
		return JAX_SUCCESS;
	}
	if (bytes * (size_t)c->size <= SMALL_GATHER)
		return gather_small(c, send, recv, bytes);
	return gather_large(c, send, recv, bytes);
}

static int reduce_wide(struct jax_comm *c, const struct jax_type *t, const void *send, void *recv, size_t count,
		       reduction_op op)
{
	void *wide = malloc(count ? count * 4 : 1);
	int rc;

	if (!wide)
		return jax_fail("out of memory for an all-reduce of %zu elements", count);
	jax_widen(t, send, wide, count);
	rc = run(c, wide, wide, count, t->dtype, op);
	if (!rc)
		jax_narrow(wide, recv, count);
	free(wide);
	return rc;
}

static int reduce_complex(struct jax_comm *c, const struct jax_type *t, const void *send, void *recv, size_t count)
{
	size_t bytes = count * t->size;
	char *all = malloc(bytes ? bytes * (size_t)c->size : 1);
	int rc;

	if (!all)
		return jax_fail("out of memory for an all-reduce of %zu elements", count);
	rc = jax_gather(c, send, all, bytes);
	if (!rc)
		memcpy(recv, all, bytes);
	for (int i = 1; i < c->size && !rc; i++)
		jax_multiply_complex(t, recv, all + bytes * (size_t)i, count);
	free(all);
	return rc;
}

/* Reduces `count` elements. send may be recv. */
static int reduce(struct jax_comm *c, const struct jax_type *t, const void *send, void *recv, size_t count,
		  reduction_op op)
{
	if (c->size == 1) {
		memmove(recv, send, count * t->size);
		return JAX_SUCCESS;
	}
	if (t->wide)
		return reduce_wide(c, t, send, recv, count, op);
	if (t->parts == 2 && op == REDUCTION_PROD)
		return reduce_complex(c, t, send, recv, count);
	return run(c, send, recv, count * t->parts, t->dtype, op);
}

JAX_EXPORT int MPIABI_Allreduce(const void *send, void *recv, int count, jax_handle type, jax_handle op,
				jax_handle comm)
{
	const struct jax_type *t;
	struct jax_comm *c;
	reduction_op o;

	if (!jax_begin(comm, &c))
		return JAX_ERROR;
	if (!jax_type_of(type, count, "MPI_Allreduce", &t) || !jax_op_of(op, t, "MPI_Allreduce", &o))
		return jax_end(JAX_ERROR);
	return jax_end(reduce(c, t, (uintptr_t)send == MPIABI_IN_PLACE ? recv : send, recv, (size_t)count, o));
}

JAX_EXPORT int MPIABI_Reduce_scatter(const void *send, void *recv, const int *counts, jax_handle type, jax_handle op,
				     jax_handle comm)
{
	size_t sum = 0, before = 0;
	const struct jax_type *t;
	struct jax_comm *c;
	reduction_op o;
	char *whole;
	int rc;

	if (!jax_begin(comm, &c))
		return JAX_ERROR;
	if (!jax_type_of(type, counts[0], "MPI_Reduce_scatter", &t) || !jax_op_of(op, t, "MPI_Reduce_scatter", &o))
		return jax_end(JAX_ERROR);
	for (int i = 0; i < c->size; i++) {
		before += i < c->rank ? (size_t)counts[i] : 0;
		sum += (size_t)counts[i];
	}
	whole = malloc(sum ? sum * t->size : 1);
	if (!whole)
		return jax_end(jax_fail("out of memory for a reduce-scatter of %zu elements", sum));
	rc = reduce(c, t, (uintptr_t)send == MPIABI_IN_PLACE ? recv : send, whole, sum, o);
	if (!rc)
		memcpy(recv, whole + before * t->size, (size_t)counts[c->rank] * t->size);
	free(whole);
	return jax_end(rc);
}

JAX_EXPORT int MPIABI_Allgather(const void *send, int count, jax_handle type, void *recv, int recv_count,
				jax_handle recv_type, jax_handle comm)
{
	const struct jax_type *t;
	struct jax_comm *c;
	size_t bytes;

	(void)recv_count, (void)recv_type;
	if (!jax_begin(comm, &c))
		return JAX_ERROR;
	if (!jax_type_of(type, count, "MPI_Allgather", &t))
		return jax_end(JAX_ERROR);
	bytes = (size_t)count * t->size;
	if ((uintptr_t)send == MPIABI_IN_PLACE)
		send = (char *)recv + bytes * (size_t)c->rank;
	return jax_end(jax_gather(c, send, recv, bytes));
}

static int broadcast(struct jax_comm *c, void *buf, int count, jax_handle type, int root)
{
	const struct jax_type *t;
	reduction_error e;

	if (!jax_type_of(type, count, "MPI_Bcast", &t))
		return JAX_ERROR;
	if (c->size == 1)
		return JAX_SUCCESS;
	return reduction_broadcast(c->group->comm, buf, (size_t)count * t->size, REDUCTION_UINT8, root, &e)
		   ? jax_fail_error("broadcast of JAX", &e)
		   : JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Bcast(void *buf, int count, jax_handle type, int root, jax_handle comm)
{
	struct jax_comm *c;

	return jax_begin(comm, &c) ? jax_end(broadcast(c, buf, count, type, root)) : JAX_ERROR;
}

static int barrier(struct jax_comm *c)
{
	reduction_error e;

	if (c->size == 1)
		return JAX_SUCCESS;
	return reduction_barrier(c->group->comm, &e) ? jax_fail_error("barrier of JAX", &e) : JAX_SUCCESS;
}

JAX_EXPORT int MPIABI_Barrier(jax_handle comm)
{
	struct jax_comm *c;

	return jax_begin(comm, &c) ? jax_end(barrier(c)) : JAX_ERROR;
}
