/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of test_jax_library.py: opens libreduction-jax.so as jaxlib does and calls all
 * functions that it implements, with numbers whose results are known.
 *
 *     worker_jax LIBRARY INTERFACE RANK WORLD_SIZE [lost|busy]
 *
 * `lost`: the last rank ends after a barrier, and the others print the error of the next
 * one. `busy`: the job is closed while another thread is in barriers. */
#include "agent/jax/abi.h"
#include "agent/lib/include/reduction.h"

#include <complex.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LIKE_JAXLIB = RTLD_LAZY | RTLD_LOCAL }; /* sanitizers do not work with RTLD_DEEPBIND */
#else
enum { LIKE_JAXLIB = RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND };
#endif

enum { COUNT = 24, LARGE = 40000 };

static void *library;
static int rank, size;

static void *name(const char *symbol)
{
	void *found = dlsym(library, symbol);

	if (!found) {
		fprintf(stderr, "rank %d: %s: not found: %s\n", rank, symbol, dlerror());
		exit(1);
	}
	return found;
}

static jax_handle constant(const char *symbol)
{
	return *(const jax_handle *)name(symbol);
}

/* FUNCTION(f) is the library's function f, with the type that abi.h declares. */
#define FUNCTION(f) (*(__typeof__(&f))(uintptr_t)name(#f))

static void fail(int line, const char *what)
{
	char text[JAX_ERROR_TEXT];
	int len;

	FUNCTION(MPIABI_Error_string)(JAX_ERROR, text, &len);
	fprintf(stderr, "rank %d: line %d: not true: %s (last error: %s)\n", rank, line, what, text);
	exit(1);
}

#define EXPECT(cond) ((cond) ? (void)0 : fail(__LINE__, #cond))

static void expect_error(int line, int rc, const char *part)
{
	char text[JAX_ERROR_TEXT];
	int len;

	FUNCTION(MPIABI_Error_string)(rc, text, &len);
	if (rc == JAX_SUCCESS || len != (int)strlen(text) || !strstr(text, part))
		fail(line, part);
}

#define EXPECT_ERROR(rc, part) expect_error(__LINE__, (rc), (part))

/* The types that XLA sends, and how to store and read a small whole number of each. */
enum kind { F32, F64, I8, U8, I16, U16, I32, U32, I64, U64, C64, C128, KINDS };

static const struct {
	const char *handle;
	size_t bytes;
} kinds[KINDS] = {
    [F32] = {"MPIABI_FLOAT", 4},    [F64] = {"MPIABI_DOUBLE", 8},    [I8] = {"MPIABI_INT8_T", 1},
    [U8] = {"MPIABI_UINT8_T", 1},   [I16] = {"MPIABI_INT16_T", 2},   [U16] = {"MPIABI_UINT16_T", 2},
    [I32] = {"MPIABI_INT32_T", 4},  [U32] = {"MPIABI_UINT32_T", 4},  [I64] = {"MPIABI_INT64_T", 8},
    [U64] = {"MPIABI_UINT64_T", 8}, [C64] = {"MPIABI_C_COMPLEX", 8}, [C128] = {"MPIABI_C_DOUBLE_COMPLEX", 16},
};

static void store(enum kind k, void *at, size_t i, double complex v)
{
	long n = (long)creal(v);

	switch (k) {
	case F32:
		((float *)at)[i] = (float)n;
		break;
	case F64:
		((double *)at)[i] = (double)n;
		break;
	case I8:
		((int8_t *)at)[i] = (int8_t)n;
		break;
	case U8:
		((uint8_t *)at)[i] = (uint8_t)n;
		break;
	case I16:
		((int16_t *)at)[i] = (int16_t)n;
		break;
	case U16:
		((uint16_t *)at)[i] = (uint16_t)n;
		break;
	case I32:
		((int32_t *)at)[i] = (int32_t)n;
		break;
	case U32:
		((uint32_t *)at)[i] = (uint32_t)n;
		break;
	case I64:
		((int64_t *)at)[i] = n;
		break;
	case U64:
		((uint64_t *)at)[i] = (uint64_t)n;
		break;
	case C64:
		((float complex *)at)[i] = (float complex)v;
		break;
	default:
		((double complex *)at)[i] = v;
		break;
	}
}

static bool is_complex(enum kind k)
{
	return k == C64 || k == C128;
}

/* Element i of a rank. */
static double complex element(enum kind k, int of, int i)
{
	double n = (of + i) % 3 + 1;
	bool has_sign = k != U8 && k != U16 && k != U32 && k != U64;

	if (k == I16 || k == U16)
		n += 1000; /* the product does not fit into 16 bits */
	return is_complex(k) ? n + I * (of - 1) : has_sign && i % 2 ? -n : n;
}

/* What `op` makes of two numbers. 16-bit products wrap around when they are stored. */
static double complex combine(const char *op, double complex a, double complex b)
{
	if (!strcmp(op, "MPIABI_SUM"))
		return a + b;
	if (!strcmp(op, "MPIABI_PROD"))
		return a * b;
	return (creal(a) < creal(b)) == !strcmp(op, "MPIABI_MIN") ? a : b;
}

static void fill(enum kind k, void *at, int count, int of)
{
	for (int i = 0; i < count; i++)
		store(k, at, (size_t)i, element(k, of, i));
}

static void fill_expected(enum kind k, const char *op, void *at, int count)
{
	for (int i = 0; i < count; i++) {
		double complex all = element(k, 0, i);

		for (int of = 1; of < size; of++)
			all = combine(op, all, element(k, of, i));
		store(k, at, (size_t)i, all);
	}
}

static void try_reductions(enum kind k, const char *op)
{
	jax_handle type = constant(kinds[k].handle), o = constant(op), world = constant("MPIABI_COMM_WORLD");
	double complex send[COUNT] = {0}, recv[COUNT] = {0}, want[COUNT] = {0};
	size_t part = COUNT / (size_t)size;
	int counts[8];

	for (int i = 0; i < size; i++)
		counts[i] = (int)part;
	fill_expected(k, op, want, COUNT);
	fill(k, send, COUNT, rank);
	EXPECT(FUNCTION(MPIABI_Allreduce)(send, recv, COUNT, type, o, world) == 0);
	EXPECT(memcmp(recv, want, COUNT * kinds[k].bytes) == 0);
	EXPECT(FUNCTION(MPIABI_Allreduce)(send, send, COUNT, type, o, world) == 0);
	EXPECT(memcmp(send, want, COUNT * kinds[k].bytes) == 0);
	fill(k, recv, COUNT, rank);
	EXPECT(FUNCTION(MPIABI_Allreduce)((void *)constant("MPIABI_IN_PLACE"), recv, COUNT, type, o, world) == 0);
	EXPECT(memcmp(recv, want, COUNT * kinds[k].bytes) == 0);
	fill(k, send, COUNT, rank);
	EXPECT(FUNCTION(MPIABI_Reduce_scatter)(send, recv, counts, type, o, world) == 0);
	EXPECT(memcmp(recv, (char *)want + part * (size_t)rank * kinds[k].bytes, part * kinds[k].bytes) == 0);
}

static void try_types(void)
{
	static const char *const ops[] = {"MPIABI_SUM", "MPIABI_PROD", "MPIABI_MIN", "MPIABI_MAX"};
	double complex none = 0;

	for (enum kind k = F32; k < KINDS; k++)
		for (int o = 0; o < (is_complex(k) ? 2 : 4); o++)
			try_reductions(k, ops[o]);
	EXPECT_ERROR(FUNCTION(MPIABI_Allreduce)(&none, &none, 1, constant("MPIABI_C_COMPLEX"), constant("MPIABI_MIN"),
						constant("MPIABI_COMM_WORLD")),
		     "MPI_Allreduce with this operation is not supported");
	EXPECT_ERROR(FUNCTION(MPIABI_Allreduce)(&none, &none, -5, constant("MPIABI_FLOAT"), constant("MPIABI_SUM"),
						constant("MPIABI_COMM_WORLD")),
		     "MPI_Allreduce of more than 2147483647 elements");
	EXPECT_ERROR(FUNCTION(MPIABI_Allreduce)(&none, &none, 1, constant("MPIABI_LONG_DOUBLE"), constant("MPIABI_SUM"),
						constant("MPIABI_COMM_WORLD")),
		     "MPI_Allreduce of this type is not supported");
}

static void try_gather(int count)
{
	jax_handle type = constant("MPIABI_INT32_T");
	int32_t *send = calloc((size_t)count, 4), *recv = calloc((size_t)count * (size_t)size, 4);

	for (int i = 0; i < count; i++)
		send[i] = rank * LARGE + i;
	EXPECT(FUNCTION(MPIABI_Allgather)(send, count, type, recv, count, type, constant("MPIABI_COMM_WORLD")) == 0);
	for (int i = 0; i < count * size; i++)
		EXPECT(recv[i] == i / count * LARGE + i % count);
	free(send);
	free(recv);
}

static void try_broadcast(void)
{
	for (int root = 0; root < size; root++) {
		int16_t x[3] = {(int16_t)rank, 7, (int16_t)-rank};

		EXPECT(FUNCTION(MPIABI_Bcast)(x, 3, constant("MPIABI_INT16_T"), root, constant("MPIABI_COMM_WORLD")) ==
		       0);
		EXPECT(x[0] == root && x[1] == 7 && x[2] == -root);
	}
	EXPECT(FUNCTION(MPIABI_Barrier)(constant("MPIABI_COMM_WORLD")) == 0);
}

/* Sends to the next rank and receives from the one before, of a communicator; as XLA does
 * for collective-permute. */
static void try_ring(jax_handle comm, int own, int of, int count)
{
	jax_handle byte = constant("MPIABI_BYTE"), in, out;
	char *sent = malloc((size_t)count), *received = malloc((size_t)count);

	if (of == 1)
		goto free_both;
	memset(sent, 'a' + own, (size_t)count);
	EXPECT(FUNCTION(MPIABI_Irecv)(received, count, byte, (own + of - 1) % of, 0, comm, &in) == 0);
	EXPECT(FUNCTION(MPIABI_Isend)(sent, count, byte, (own + 1) % of, 0, comm, &out) == 0);
	EXPECT(FUNCTION(MPIABI_Wait)(&in, NULL) == 0);
	EXPECT(FUNCTION(MPIABI_Wait)(&out, NULL) == 0);
	EXPECT(in == constant("MPIABI_REQUEST_NULL") && out == in);
	for (int i = 0; i < count; i++)
		EXPECT(received[i] == 'a' + (own + of - 1) % of);
	EXPECT(FUNCTION(MPIABI_Sendrecv)(sent, count, byte, (own + of - 1) % of, 0, received, count, byte,
					 (own + 1) % of, 0, comm, NULL) == 0);
	for (int i = 0; i < count; i++)
		EXPECT(received[i] == 'a' + (own + 1) % of);

free_both:
	free(sent);
	free(received);
}

/* Only some ranks send and receive. */
static void try_one_message(void)
{
	jax_handle request, type = constant("MPIABI_DOUBLE"), world = constant("MPIABI_COMM_WORLD");
	double x = rank;

	if (size == 1)
		return;
	if (rank == 0)
		EXPECT(FUNCTION(MPIABI_Isend)(&x, 1, type, size - 1, 0, world, &request) == 0);
	else if (rank == size - 1)
		EXPECT(FUNCTION(MPIABI_Irecv)(&x, 1, type, 0, 0, world, &request) == 0);
	else
		return;
	EXPECT(FUNCTION(MPIABI_Wait)(&request, NULL) == 0);
	EXPECT(x == 0);
	EXPECT_ERROR(FUNCTION(MPIABI_Isend)(&x, 1, type, size, 0, world, &request),
		     "cannot exchange messages with rank");
}

static void try_all_to_all(void)
{
	int64_t send[8], recv[8];

	for (int i = 0; i < size; i++)
		send[i] = rank * 100 + i;
	EXPECT(FUNCTION(MPIABI_Alltoall)(send, 1, constant("MPIABI_INT64_T"), recv, 1, constant("MPIABI_INT64_T"),
					 constant("MPIABI_COMM_WORLD")) == 0);
	for (int i = 0; i < size; i++)
		EXPECT(recv[i] == i * 100 + rank);
}

/* XLA's communicators: of all ranks, of every other one, and of one device too many. */
static void try_splits(void)
{
	jax_handle world = constant("MPIABI_COMM_WORLD"), type = constant("MPIABI_INT32_T"),
		   sum = constant("MPIABI_SUM");
	int own, of, x, want = 0;
	jax_handle comm;

	for (int again = 0; again < 2; again++) {
		EXPECT(FUNCTION(MPIABI_Comm_split)(world, rank % 2, rank / 2, &comm) == 0);
		EXPECT(FUNCTION(MPIABI_Comm_rank)(comm, &own) == 0 && own == rank / 2);
		EXPECT(FUNCTION(MPIABI_Comm_size)(comm, &of) == 0 && of == (size + 1 - rank % 2) / 2);
		x = rank;
		EXPECT(FUNCTION(MPIABI_Allreduce)(&x, &x, 1, type, sum, comm) == 0);
		for (int i = want = rank % 2; i + 2 < size; i += 2)
			want += i + 2;
		EXPECT(x == want);
		try_ring(comm, own, of, 10);
		EXPECT(FUNCTION(MPIABI_Comm_free)(&comm) == 0 && comm == constant("MPIABI_COMM_NULL"));
	}
	EXPECT(FUNCTION(MPIABI_Comm_split)(world, 0, rank, &comm) == 0);
	try_ring(comm, rank, size, 100000);
	if (size == 1)
		return;
	EXPECT_ERROR(FUNCTION(MPIABI_Comm_split)(world, 0, 2 * rank, &comm), "a process has several CPU devices");
	EXPECT_ERROR(FUNCTION(MPIABI_Allreduce)(&x, &x, 1, type, sum, comm), "a process has several CPU devices");
}

/* All that jaxlib looks up is there, and what is not implemented says so. */
static void try_interface(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[200], version[JAX_LIBRARY_TEXT];
	int len;

	EXPECT(file);
	while (fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] != '#')
			name(line);
	}
	fclose(file);
	EXPECT(*(const int *)name("mpiabi_version_major") == 2 && *(const int *)name("mpiabi_version_minor") == 10);
	EXPECT(FUNCTION(MPIABI_Get_library_version)(version, &len) == 0 && strstr(version, reduction_version()));
	EXPECT_ERROR(((int (*)(void))(uintptr_t)name("MPIABI_Scan"))(), "MPI_Scan is not supported by reducers");
}

static void open_job(void)
{
	int (*open)(int, int, const char *, reduction_error *) =
	    (int (*)(int, int, const char *, reduction_error *))(uintptr_t)name("reduction_jax_open");
	jax_handle world = constant("MPIABI_COMM_WORLD");
	int provided, x = 0, flag;
	reduction_error e;

	EXPECT_ERROR(FUNCTION(MPIABI_Barrier)(world), "call jax.distributed.initialize() after");
	if (open(rank, size, NULL, &e)) {
		fprintf(stderr, "rank %d: %s\n", rank, e.message);
		exit(1);
	}
	EXPECT(FUNCTION(MPIABI_Init_thread)(NULL, NULL, 1, &provided) == 0 && provided == 3);
	EXPECT(FUNCTION(MPIABI_Is_thread_main)(&flag) == 0 && flag);
	EXPECT(FUNCTION(MPIABI_Initialized)(&flag) == 0 && flag);
	EXPECT(FUNCTION(MPIABI_Finalized)(&flag) == 0 && !flag);
	EXPECT(FUNCTION(MPIABI_Comm_rank)(world, &x) == 0 && x == rank);
	EXPECT(FUNCTION(MPIABI_Comm_size)(world, &x) == 0 && x == size);
}

static int lose_a_rank(void)
{
	jax_handle world = constant("MPIABI_COMM_WORLD");
	char text[JAX_ERROR_TEXT];
	int len, rc;

	EXPECT(FUNCTION(MPIABI_Barrier)(world) == 0);
	if (rank == size - 1)
		_exit(0);
	rc = FUNCTION(MPIABI_Barrier)(world);
	FUNCTION(MPIABI_Error_string)(rc, text, &len);
	printf("%d: %s\n", rc, text);
	return 0;
}

static atomic_int barriers;

/* A thread of XLA: ends with the first error. */
static void *pass_barriers(void *none)
{
	while (FUNCTION(MPIABI_Barrier)(constant("MPIABI_COMM_WORLD")) == JAX_SUCCESS)
		atomic_fetch_add(&barriers, 1);
	return none;
}

static int close_busy(void)
{
	pthread_t thread;

	EXPECT(pthread_create(&thread, NULL, pass_barriers, NULL) == 0);
	while (atomic_load(&barriers) < 10)
		;
	((void (*)(void))(uintptr_t)name("reduction_jax_close"))();
	EXPECT(pthread_join(thread, NULL) == 0);
	EXPECT_ERROR(FUNCTION(MPIABI_Barrier)(constant("MPIABI_COMM_WORLD")), "the job is closed");
	return 0;
}

int main(int argc, char **argv)
{
	int flag;

	if (argc < 5)
		return 2;
	rank = atoi(argv[3]);
	size = atoi(argv[4]);
	library = dlopen(argv[1], LIKE_JAXLIB);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	((void (*)(void))(uintptr_t)name("mpiwrapper_export_fortran_constants_"))();
	open_job();
	if (argc > 5)
		return strcmp(argv[5], "busy") ? lose_a_rank() : close_busy();
	try_interface(argv[2]);
	try_types();
	try_gather(3);
	try_gather(LARGE);
	try_broadcast();
	try_ring(constant("MPIABI_COMM_WORLD"), rank, size, 5);
	try_one_message();
	try_all_to_all();
	try_splits();
	EXPECT(FUNCTION(MPIABI_Finalize)() == 0);
	EXPECT(FUNCTION(MPIABI_Finalized)(&flag) == 0 && flag);
	EXPECT(FUNCTION(MPIABI_Barrier)(constant("MPIABI_COMM_WORLD")) == 0);
	((void (*)(void))(uintptr_t)name("reduction_jax_close"))();
	EXPECT_ERROR(FUNCTION(MPIABI_Barrier)(constant("MPIABI_COMM_WORLD")), "the job is closed");
	return 0;
}
