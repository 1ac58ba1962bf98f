/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* Reduce-scatters and all-gathers of buffers of GPUs, on the fake driver of tests/cuda,
 * directly and through agents. */
#include "tests/e2e/gpu/device.h"

#include <string.h>

#ifdef __SANITIZE_THREAD__
enum { LARGE = MEBI / 4 }; /* each byte takes many times as long */
#else
enum { LARGE = MEBI };
#endif

/* A reduce-scatter or an all-gather on a device: with the bits of the same operation on
 * host memory, and nothing else is written. in_place: one buffer is a part of the
 * other. */
static void shard(struct rank *r, bool gather, bool in_place, size_t part, int dtype, int op, reduction_wire wire)
{
	size_t own = part * dtype_size[dtype], all = own * (size_t)r->world, at = (size_t)r->rank * own;
	size_t in = gather ? own : all, out = gather ? all : own;
	uint8_t *x = malloc(all + 1), *want = malloc(all + 1), *got = malloc(all + 1), *on_device, *apart;
	reduction_tensor t = tensor(x, want, part, REDUCTION_HOST);
	reduction_request *req;

	for (size_t i = 0; i < all; i++) /* no NaN: exponents of all float types stay low */
		x[i] = (uint8_t)((i * 7 + i / 251 + (unsigned)r->rank * 77) & 0x3f);
	t.dtype = dtype;
	t.op = op;
	t.wire = wire;
	on_device = device_new(r, 0, x, all);
	apart = device_new(r, 0, x, all);
	for (int device = REDUCTION_HOST; device <= 0; device++) {
		if (device == 0) {
			t.send = gather && in_place ? apart + at : on_device;
			t.recv = gather || !in_place ? apart : on_device + at;
			if (gather && in_place)
				CUDA(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)(apart + at), x, own));
			CUDA(cuStreamSynchronize(NULL));
			t.device = 0;
		}
		EXPECT_RC((gather ? reduction_all_gather_tensor_async
				  : reduction_reduce_scatter_tensor_async)(r->comm, &t, &req, &r->err),
			  0);
		EXPECT_RC(reduction_wait(req, -1, &r->err), 0);
	}
	device_read(r, got, t.recv, out);
	if (memcmp(got, want, out) != 0)
		fail_at(r, __LINE__, "%s of %zu, dtype %d, op %d, wire %d differs from host memory",
			gather ? "all-gather" : "reduce-scatter", part, dtype, op, (int)wire);
	if (!in_place) {
		device_read(r, got, on_device, in);
		EXPECT(memcmp(got, x, in) == 0);
		device_read(r, got, apart, all);
		EXPECT(memcmp(got + out, x + out, all - out) == 0);
	}
	device_free(r, on_device);
	device_free(r, apart);
	free(x);
	free(want);
	free(got);
}

static void run_sizes(struct rank *r)
{
	/* less than a chunk, a few, several rings; all but one end with a short chunk */
	static const size_t parts[] = {1, 3, 1000, 8192, 8193, 100001, 2 * LARGE + 77};

	open_gpu(r);
	EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	for (unsigned i = 0; i < 4 * sizeof parts / sizeof parts[0]; i++)
		shard(r, i & 1, i & 2, parts[i / 4], REDUCTION_INT32, REDUCTION_SUM, REDUCTION_WIRE_JOB);
	close_comm(r);
}

/* With two ranks the order of additions does not matter. */
static void run_kinds(struct rank *r)
{
	static const size_t parts[] = {1, 129, 20000, LARGE + 77};

	open_gpu(r);
	EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	for (int dtype = 0; dtype < DTYPES; dtype++)
		for (int op = 0; op <= OPS; op++)
			shard(r, op == OPS, op & 1, 20001, dtype, op % OPS, REDUCTION_WIRE_JOB);
	for (int wire = REDUCTION_WIRE_BF16; wire <= REDUCTION_WIRE_INT4; wire++)
		for (unsigned i = 0; i < 2 * sizeof parts / sizeof parts[0]; i++)
			shard(r, false, i & 1, parts[i / 2], REDUCTION_FLOAT32, REDUCTION_SUM, (reduction_wire)wire);
	close_comm(r);
}

/* Both kinds at once, more of them than there is pinned memory for; one rank has its
 * buffers in host memory. */
static void run_many(struct rank *r)
{
	enum { MANY = 24, PART = 150000 };
	size_t all = (size_t)r->world * PART;
	reduction_request *req[MANY];
	float *bytes = floats(all, (float)r->rank), *x[MANY], *got = malloc(all * sizeof *got);

	open_gpu(r);
	for (int i = 0; i < MANY; i++) {
		bool gather = i % 2, host = r->rank == 1 && i % 3 == 0;
		reduction_tensor t;

		x[i] = host ? floats(all, (float)r->rank) : device_new(r, 0, bytes, all * sizeof *bytes);
		t = tensor(x[i], x[i], PART, host ? REDUCTION_HOST : 0);
		*(gather ? (float **)&t.send : (float **)&t.recv) = x[i] + (size_t)r->rank * PART;
		EXPECT_RC((gather ? reduction_all_gather_tensor_async
				  : reduction_reduce_scatter_tensor_async)(r->comm, &t, &req[i], &r->err),
			  0);
	}
	for (int i = MANY; i-- > 0;) {
		bool gather = i % 2, host = r->rank == 1 && i % 3 == 0;

		EXPECT_RC(reduction_wait(req[i], -1, &r->err), 0);
		if (host)
			memcpy(got, x[i], all * sizeof *got);
		else
			device_read(r, got, x[i], all * sizeof *got);
		for (size_t j = 0; j < all; j++) {
			size_t part = j / PART;
			float want = !gather && part == (size_t)r->rank
					 ? of_ranks(r) + (float)(r->world * (int)(j % 251))
					 : (gather ? (float)part : (float)r->rank) + (float)(j % 251);

			if (got[j] != want)
				fail_at(r, __LINE__, "operation %d: element %zu is %f, expected was %f", i, j, got[j],
					want);
		}
		if (host)
			free(x[i]);
		else
			device_free(r, x[i]);
	}
	free(bytes);
	free(got);
	close_comm(r);
}

static void run_slow_copies(struct rank *r)
{
	setenv("FAKE_CUDA_JITTER_US", "500", 1);
	run_many(r);
}

int main(int argc, char **argv)
{
	static const struct scenario all[] = {
	    {"sizes", 3, run_sizes, -1, ALSO_AGENT | ALSO_NODE},
	    {"kinds", 2, run_kinds, -1, ALSO_AGENT | ALSO_NODE},
	    {"many", 3, run_many, -1, ALSO_AGENT},
	    {"slow-copies", 2, run_slow_copies, -1, ALSO_AGENT},
	};

	return run_scenarios(all, sizeof all / sizeof all[0], argc, argv);
}
