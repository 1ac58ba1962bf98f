/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* Buffers of GPUs, on the fake driver of tests/cuda, directly and through agents:
 * results, streams, groups, broadcasts, wrong arguments, copies that fail, and ends in
 * the middle of operations. The processor cannot read the fake's device memory, so code
 * that does so crashes. */
#include "tests/e2e/gpu/device.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void expect_sum(struct rank *r, const void *on_device, size_t n)
{
	float *x = malloc(n * sizeof *x + 1);

	device_read(r, x, on_device, n * sizeof *x);
	for (size_t i = 0; i < n; i++)
		if (x[i] != of_ranks(r) + (float)(r->world * (int)(i % 251)))
			fail_at(r, __LINE__, "element %zu of %zu is %f", i, n, x[i]);
	free(x);
}

static void run_sizes(struct rank *r)
{
	static const size_t sizes[] = {1, 3, 1000, 20000, 131072, 300001, 2 * MEBI + 77};

	open_gpu(r);
	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		size_t n = sizes[i];
		float *x = floats(n, (float)r->rank), *back = malloc(n * sizeof *x);
		void *in = device_new(r, 0, x, n * sizeof *x), *out = device_new(r, 0, NULL, n * sizeof *x);
		reduction_tensor t = tensor(in, out, n, 0);

		EXPECT_RC(reduction_all_reduce_tensor(r->comm, &t, &r->err), 0);
		expect_sum(r, out, n);
		device_read(r, back, in, n * sizeof *x);
		EXPECT(memcmp(back, x, n * sizeof *x) == 0);
		t.recv = in;
		EXPECT_RC(reduction_all_reduce_tensor(r->comm, &t, &r->err), 0);
		expect_sum(r, in, n);
		device_free(r, in);
		device_free(r, out);
		free(x);
		free(back);
	}
	close_comm(r);
}

/* The bits of the same operation on host memory. With two ranks the order of additions
 * does not matter. */
static void run_kinds(struct rank *r)
{
	enum { N = 3000 };
	uint64_t x[N], want[N], got[N];

	open_gpu(r);
	for (int dtype = 0; dtype < DTYPES; dtype++) {
		for (int op = 0; op < OPS; op++) {
			size_t bytes = N * dtype_size[dtype];
			reduction_tensor t = tensor(x, want, N, REDUCTION_HOST);
			void *on_device;

			for (size_t i = 0; i < N; i++) /* no NaN: exponents of all float types stay low */
				x[i] = (i * 0x0123456789abcdefu + (unsigned)r->rank * 77) & 0x3f3f3f3f3f3f3f3f;
			t.dtype = dtype;
			t.op = op;
			EXPECT_RC(reduction_all_reduce_tensor(r->comm, &t, &r->err), 0);
			on_device = device_new(r, other_gpu(r), x, bytes);
			t.send = t.recv = on_device;
			t.device = other_gpu(r);
			EXPECT_RC(reduction_all_reduce_tensor(r->comm, &t, &r->err), 0);
			device_read(r, got, on_device, bytes);
			if (memcmp(got, want, bytes) != 0)
				fail_at(r, __LINE__, "dtype %d op %d differs from host memory", dtype, op);
			device_free(r, on_device);
		}
	}
	close_comm(r);
}

static void run_broadcast(struct rank *r)
{
	static const size_t sizes[] = {5, 100000, 2 * MEBI + 5};

	open_gpu(r);
	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		for (int root = 0; root < r->world; root++) {
			size_t n = sizes[i];
			float *want = floats(n, (float)root), *got = malloc(n * sizeof *got);
			/* one rank's buffer is in host memory */
			void *x = device_new(r, 0, r->rank == root ? want : NULL, n * sizeof *want);
			reduction_tensor t = tensor(NULL, x, n, 0);

			if (r->rank == 1) {
				memcpy(got, want, r->rank == root ? n * sizeof *got : 0);
				t = tensor(NULL, got, n, REDUCTION_HOST);
			}
			EXPECT_RC(reduction_broadcast_tensor(r->comm, &t, root, &r->err), 0);
			if (r->rank != 1)
				device_read(r, got, x, n * sizeof *got);
			EXPECT(memcmp(got, want, n * sizeof *got) == 0);
			device_free(r, x);
			free(want);
			free(got);
		}
	}
	close_comm(r);
}

/* Returns a word for which streams can wait. */
static _Atomic uint32_t *gate_new(struct rank *r)
{
	_Atomic uint32_t *gate = aligned_alloc(4096, 4096);

	atomic_init(gate, 0);
	CUDA(cuMemHostRegister_v2((void *)gate, 4096, CUDA_REGISTER_PORTABLE | CUDA_REGISTER_DEVICEMAP));
	return gate;
}

/* Makes a stream wait until the word is `value`, and no other stream. */
static void gate_wait(struct rank *r, _Atomic uint32_t *gate, uint32_t value, CUstream stream)
{
	CUdeviceptr at;

	CUDA(cuMemHostGetDevicePointer_v2(&at, (void *)gate, 0));
	CUDA(cuStreamWaitValue32_v2(stream, at, value, CUDA_WAIT_VALUE_GEQ));
}

static void gate_free(struct rank *r, _Atomic uint32_t *gate)
{
	CUDA(cuMemHostUnregister((void *)gate));
	free((void *)gate);
}

/* Work that was queued before the call is waited for, and not by the caller. */
static void run_stream(struct rank *r)
{
	enum { N = 200000 };
	float one = 1, *got = malloc(N * sizeof *got);
	reduction_tensor t;
	reduction_request *req;
	CUstream stream;
	_Atomic uint32_t *gate;
	int done;
	unsigned bits;
	void *x;

	open_gpu(r);
	memcpy(&bits, &one, sizeof bits);
	x = device_new(r, 0, NULL, N * sizeof *got);
	t = tensor(x, x, N, 0);
	gate = gate_new(r);
	CUDA(cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING));
	gate_wait(r, gate, 1, stream);
	CUDA(cuMemsetD32Async((CUdeviceptr)(uintptr_t)x, bits, N, stream));
	t.stream = stream;
	EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, &req, &r->err), 0);
	EXPECT_RC(reduction_wait(req, 50, &r->err), REDUCTION_ETIMEOUT);
	EXPECT_RC(reduction_test(req, &done, &r->err), 0);
	EXPECT(!done);
	atomic_store(gate, 1);
	EXPECT_RC(reduction_wait(req, -1, &r->err), 0);
	device_read(r, got, x, N * sizeof *got);
	for (size_t i = 0; i < N; i++)
		EXPECT(got[i] == (float)r->world);
	CUDA(cuStreamDestroy_v2(stream));
	device_free(r, x);
	free(got);
	gate_free(r, gate);
	close_comm(r);
}

/* Small and large tensors of one group in the host's memory and in that of two
 * devices. */
static void run_group(struct rank *r)
{
	enum { TENSORS = 60 };
	reduction_tensor t[TENSORS];
	float *x[TENSORS];

	open_gpu(r);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < TENSORS; i++) {
			size_t n = i % 20 == 7 ? 200000 : i % 9 == 8 ? 0 : 1 + 100 * i;
			int device = (int)(i + (size_t)r->rank) % 3 - 1;
			void *at = x[i] = floats(n, (float)r->rank);

			device = device > 0 ? other_gpu(r) : device;
			if (device >= 0)
				at = device_new(r, device, x[i], n * sizeof **x + 1);
			t[i] = tensor(at, at, n, device);
		}
		EXPECT_RC(reduction_all_reduce_group(r->comm, t, TENSORS, &r->err), 0);
		for (size_t i = 0; i < TENSORS; i++) {
			if (t[i].device >= 0) {
				expect_sum(r, t[i].recv, t[i].count);
				device_free(r, t[i].recv);
			} else if (t[i].count > 0) {
				EXPECT(x[i][0] == of_ranks(r));
			}
			free(x[i]);
		}
	}
	close_comm(r);
}

/* Encoded: the bits of the same operations on host memory, alone and as groups, whose
 * tensors take whole blocks. With two ranks the order of additions does not matter. */
static void run_encoded(struct rank *r)
{
	static const size_t sizes[] = {20000, MEBI + 77, 1, 0, 129, 8000};
	enum { SIZES = sizeof sizes / sizeof sizes[0] };
	reduction_tensor t[2 * SIZES];
	float *x[SIZES];

	open_gpu(r);
	for (int wire = REDUCTION_WIRE_BF16; wire <= REDUCTION_WIRE_INT8; wire++) {
		for (size_t i = 0; i < SIZES; i++) {
			size_t bytes = sizes[i] * sizeof(float);
			void *on_device;

			x[i] = floats(sizes[i], (float)r->rank / 3);
			on_device = device_new(r, i % 2 ? other_gpu(r) : 0, x[i], bytes + 1);
			t[i] = tensor(x[i], x[i], sizes[i], REDUCTION_HOST);
			t[SIZES + i] = tensor(on_device, on_device, sizes[i], i % 2 ? other_gpu(r) : 0);
			t[i].wire = t[SIZES + i].wire = (reduction_wire)wire;
		}
		EXPECT_RC(reduction_all_reduce_group(r->comm, t, SIZES, &r->err), 0);
		EXPECT_RC(reduction_all_reduce_group(r->comm, t + SIZES, SIZES, &r->err), 0);
		EXPECT(x[0][1] != (float)r->rank / 3 + 1);
		for (size_t i = 0; i < SIZES; i++) {
			float *got = floats(sizes[i], 0);

			device_read(r, got, t[SIZES + i].recv, sizes[i] * sizeof *got);
			if (memcmp(got, x[i], sizes[i] * sizeof *got) != 0)
				fail_at(r, __LINE__, "wire %d, tensor %zu differs from host memory", wire, i);
			device_free(r, t[SIZES + i].recv);
			free(got);
			free(x[i]);
		}
	}
	close_comm(r);
}

/* Tensors of a group on different streams are waited for, also behind an empty one, whose
 * device does not matter. */
static void run_group_streams(struct rank *r)
{
	enum { N = 1000 };
	float one = 1, *bytes = floats(N, (float)r->rank), got[N];
	reduction_request *req[3];
	reduction_tensor t[3];
	CUstream stream;
	_Atomic uint32_t *gate;
	unsigned bits;
	void *x, *y;

	open_gpu(r);
	memcpy(&bits, &one, sizeof bits);
	x = device_new(r, 0, bytes, N * sizeof *bytes);
	y = device_new(r, 0, NULL, N * sizeof *bytes);
	gate = gate_new(r);
	CUDA(cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING));
	for (int first = 0; first < 2; first++) {
		CUDA(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)x, bytes, N * sizeof *bytes));
		CUDA(cuStreamSynchronize(NULL));
		gate_wait(r, gate, (uint32_t)first + 1, stream);
		CUDA(cuMemsetD32Async((CUdeviceptr)(uintptr_t)y, bits, N, stream));
		t[first] = tensor(NULL, NULL, 0, first ? 0 : 1000);
		t[!first] = tensor(x, x, N, 0);
		t[2] = tensor(y, y, N, 0);
		t[1].stream = first ? stream : NULL;
		t[2].stream = stream;
		EXPECT_RC(reduction_all_reduce_group_async(r->comm, t, 3, req, &r->err), 0);
		EXPECT_RC(reduction_wait(req[2], 50, &r->err), REDUCTION_ETIMEOUT);
		atomic_fetch_add(gate, 1);
		for (int i = 0; i < 3; i++)
			EXPECT_RC(reduction_wait(req[i], -1, &r->err), 0);
		expect_sum(r, x, N);
		device_read(r, got, y, sizeof got);
		for (size_t i = 0; i < N; i++)
			EXPECT(got[i] == (float)r->world);
	}
	CUDA(cuStreamDestroy_v2(stream));
	device_free(r, x);
	device_free(r, y);
	free(bytes);
	gate_free(r, gate);
	close_comm(r);
}

/* More operations than may be in flight, of all priorities, on two devices. */
static void run_many(struct rank *r)
{
	enum { MANY = 40, N = 150000 };
	reduction_request *req[MANY];
	void *x[MANY];
	float *bytes = floats(N, (float)r->rank);

	open_gpu(r);
	for (int i = 0; i < MANY; i++) {
		reduction_tensor t;
		int device = i % 2 ? other_gpu(r) : 0;

		x[i] = device_new(r, device, bytes, N * sizeof *bytes);
		t = tensor(x[i], x[i], i % 5 ? N : 700, device);
		t.priority = i % 4 - 1;
		EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, &req[i], &r->err), 0);
	}
	for (int i = MANY; i-- > 0;) {
		EXPECT_RC(reduction_wait(req[i], -1, &r->err), 0);
		expect_sum(r, x[i], i % 5 ? N : 700);
		device_free(r, x[i]);
	}
	free(bytes);
	close_comm(r);
}

static void expect_invalid(struct rank *r, const reduction_tensor *t, const char *says)
{
	reduction_request *req;

	EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, t, &req, &r->err), REDUCTION_EINVAL);
	if (!strstr(r->err.message, says))
		fail_at(r, __LINE__, "\"%s\" does not contain \"%s\"", r->err.message, says);
}

static void run_arguments(struct rank *r)
{
	float on_host[100] = {0};
	reduction_tensor t, old;
	void *x, *y;

	open_gpu(r);
	x = device_new(r, 0, on_host, sizeof on_host);
	y = device_new(r, 1, on_host, sizeof on_host);
	t = tensor(on_host, on_host, 100, 0);
	expect_invalid(r, &t, "is not memory of a GPU, but its device is 0");
	t = tensor(x, x, 101, 0);
	expect_invalid(r, &t, "the buffer has 404 bytes, but GPU 0 has only 400 bytes");
	t = tensor(x, x, 100, 1);
	expect_invalid(r, &t, "is memory of GPU 0, but its device is 1");
	t = tensor(x, y, 100, 0);
	expect_invalid(r, &t, "is memory of GPU 1, but its device is 0");
	t = tensor(x, x, 100, 2);
	expect_invalid(r, &t, "device is 2, 0 to 1 were expected");
	t = tensor(x, x, 100, -2);
	expect_invalid(r, &t, "device is -2");
	setenv("FAKE_CUDA_CAPTURING", "1", 1);
	t = tensor(x, x, 100, 0);
	expect_invalid(r, &t, "is being captured");
	unsetenv("FAKE_CUDA_CAPTURING");
	/* a program that was compiled before: what is behind `priority` is not read */
	old = tensor(on_host, on_host, 100, 77);
	old.struct_size = offsetof(reduction_tensor, stream);
	EXPECT_RC(reduction_all_reduce_tensor(r->comm, &old, &r->err), 0);
	t = tensor(x, x, 0, 0);
	EXPECT_RC(reduction_all_reduce_tensor(r->comm, &t, &r->err), 0);
	t = tensor(x, x, 100, 0);
	EXPECT_RC(reduction_all_reduce_tensor(r->comm, &t, &r->err), 0);
	device_free(r, x);
	device_free(r, y);
	close_comm(r);
}

/* A copy of rank 1 fails: all ranks read why. */
static void fail_copy(struct rank *r, const char *variable, const char *value, const char *says)
{
	enum { N = 3 * MEBI };
	float *bytes = floats(N, 0);
	reduction_tensor t;
	void *x;
	int rc;

	if (r->rank == 1)
		setenv(variable, value, 1);
	open_gpu(r);
	x = device_new(r, 0, bytes, N * sizeof *bytes);
	t = tensor(x, x, N, 0);
	do
		rc = reduction_all_reduce_tensor(r->comm, &t, &r->err);
	while (rc == 0);
	EXPECT(strstr(r->err.message, says) != NULL);
	EXPECT(r->rank == 1 || r->err.code == REDUCTION_EABORTED);
	EXPECT(r->rank == 1 || strstr(r->err.message, "rank 1 (pid ") == r->err.message);
	device_free(r, x);
	free(bytes);
	EXPECT_RC(reduction_close(r->comm, &r->err), 0);
}

static void run_copy_out_fails(struct rank *r)
{
	fail_copy(r, "FAKE_CUDA_FAIL", "cuMemcpyDtoHAsync_v2:9:700",
		  "cannot copy from the device on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
}

static void run_copy_in_fails(struct rank *r)
{
	fail_copy(r, "FAKE_CUDA_FAIL", "cuMemcpyHtoDAsync_v2:24:700",
		  "cannot copy to the device on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
}

static void run_fence_fails(struct rank *r)
{
	fail_copy(r, "FAKE_CUDA_FAIL", "cuLaunchHostFunc:7:700", "cannot follow copies on GPU 0");
}

/* The device breaks while it copies, which the driver does not report by itself. */
static void run_device_breaks(struct rank *r)
{
	fail_copy(r, "FAKE_CUDA_BREAK", "20:700", "on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
}

/* Rank 0 has started operations that no other rank starts, and ends the job. Nothing
 * touches the buffers then. */
static void end_pending(struct rank *r, bool abort)
{
	enum { N = 3 * MEBI, PENDING = 3 };
	float *bytes = floats(N, 0);
	reduction_request *req[PENDING];
	void *x[PENDING];

	open_gpu(r);
	for (int i = 0; i < PENDING && r->rank == 0; i++) {
		reduction_tensor t;

		x[i] = device_new(r, 0, bytes, N * sizeof *bytes);
		t = tensor(x[i], x[i], N, 0);
		EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, &req[i], &r->err), 0);
	}
	all_here(r);
	if (r->rank == 0 && abort)
		EXPECT_RC(reduction_abort(r->comm, "it is enough", &r->err), 0);
	if (r->rank == 0 && !abort)
		EXPECT_RC(reduction_close(r->comm, &r->err), 0);
	for (int i = 0; i < PENDING && r->rank == 0; i++) {
		EXPECT_RC(reduction_wait(req[i], -1, &r->err), abort ? REDUCTION_EABORTED : REDUCTION_ECLOSED);
		device_free(r, x[i]);
	}
	free(bytes);
	if (abort)
		all_here(r); /* a rank that leaves earlier may be the reason that wins */
	if (abort || r->rank != 0)
		EXPECT_RC(reduction_close(r->comm, &r->err), 0);
}

static void run_abort(struct rank *r)
{
	end_pending(r, true);
}

static void run_close(struct rank *r)
{
	end_pending(r, false);
}

/* The driver cannot be used: a sentence, and host memory works. */
static void run_no_gpu(struct rank *r)
{
	float x[10] = {0};
	reduction_tensor t = tensor(x, x, 10, 0);

	setenv("FAKE_CUDA_DEVICES", "0", 1);
	open_comm(r);
	EXPECT_RC(reduction_all_reduce_tensor(r->comm, &t, &r->err), REDUCTION_EUNSUPPORTED);
	EXPECT(strstr(r->err.message, "no GPU can be used: CUDA_ERROR_NO_DEVICE (100)") != NULL);
	t.device = REDUCTION_HOST;
	EXPECT_RC(reduction_all_reduce_tensor(r->comm, &t, &r->err), 0);
	close_comm(r);
}

/* The same with copies that take time and end in random order. */
static void run_slow_copies(struct rank *r)
{
	setenv("FAKE_CUDA_JITTER_US", "500", 1);
	run_many(r);
}

/* The same while they are recorded: each rank writes one file. */
static void run_traced(struct rank *r)
{
	char folder[] = "/tmp/reduction-trace-XXXXXX", path[200];

	EXPECT(mkdtemp(folder) != NULL);
	setenv("REDUCTION_GPU_TRACE", folder, 1);
	run_many(r);
	snprintf(path, sizeof path, "%s/%s.0.%d.json", folder, r->job, r->rank);
	EXPECT(unlink(path) == 0);
	EXPECT(rmdir(folder) == 0);
}

int main(int argc, char **argv)
{
	static const struct scenario all[] = {
	    {"sizes", 3, run_sizes, -1, ALSO_AGENT},
	    {"kinds", 2, run_kinds, -1, ALSO_AGENT},
	    {"broadcast", 3, run_broadcast, -1, ALSO_AGENT},
	    {"stream", 2, run_stream, -1, ALSO_AGENT},
	    {"group", 2, run_group, -1, ALSO_AGENT | ALSO_NODE},
	    {"encoded", 2, run_encoded, -1, ALSO_AGENT | ALSO_NODE},
	    {"group-streams", 2, run_group_streams, -1, ALSO_AGENT},
	    {"many", 2, run_many, -1, ALSO_AGENT},
	    {"slow-copies", 2, run_slow_copies, -1, ALSO_AGENT},
	    {"traced", 2, run_traced, -1, ALSO_AGENT},
	    {"arguments", 2, run_arguments, -1, ALSO_AGENT},
	    {"copy-out-fails", 2, run_copy_out_fails, -1, ALSO_AGENT},
	    {"copy-in-fails", 2, run_copy_in_fails, -1, ALSO_AGENT},
	    {"fence-fails", 2, run_fence_fails, -1, 0},
	    {"device-breaks", 2, run_device_breaks, -1, ALSO_AGENT},
	    {"abort", 2, run_abort, -1, ALSO_AGENT},
	    {"close", 2, run_close, -1, ALSO_AGENT},
	    {"no-gpu", 2, run_no_gpu, -1, 0},
	};

	return run_scenarios(all, sizeof all / sizeof all[0], argc, argv);
}
