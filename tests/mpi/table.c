/* SPDX-License-Identifier: Apache-2.0 */
/* A program that calls MPI, and checks every element of every result. It does not know of
 * reducers.
 *
 *     table                all types, operations, sizes and communicators
 *     table single         the same without MPI_THREAD_MULTIPLE
 *     table few            some of them
 *     table threads        several threads, each with a communicator of its own
 *     table loop SECONDS   all-reduces of 1 MiB; rank 0 prints each round
 *     table permitted      what MPI permits, but Open MPI itself fails with
 *     table many N         N communicators at a time; only the first is used again
 *     table errors         with MPI_ERRORS_RETURN: prints what an all-reduce returns
 *     table time           ns of a small and of a large call (rank 0 prints)
 *
 * Rank 0 prints "begun" and "ok N checks". Values are small integers, so that every order
 * of additions gives the same floating-point sum. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LARGE = 100003, THREADS = 3 };

static _Atomic unsigned long checks;

/* Takes the place of MPI's, so that the library under test sees as many nodes as
 * TABLE_NODES says, to which the ranks are dealt out in turn. */
int PMPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *ret)
{
	const char *nodes = getenv("TABLE_NODES");
	int rank;

	(void)type, (void)info;
	PMPI_Comm_rank(comm, &rank);
	return PMPI_Comm_split(comm, nodes ? rank % atoi(nodes) : 0, key, ret);
}

#define NAMED(type, kind)                                                                                              \
	{                                                                                                              \
		type, #type, kind                                                                                      \
	}

struct type {
	MPI_Datatype type;
	const char *name;
	char kind; /* i, u, f, c: signed, unsigned, floating, complex */
};

struct op {
	MPI_Op op;
	const char *name;
	char what; /* + * < > */
};

static void stop(const char *what, const char *type, const char *op, long i, double found, double expected)
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	fprintf(stderr, "rank %d: wrong: %s %s %s element %ld is %g, expected %g\n", rank, what, type, op, i, found,
		expected);
	MPI_Abort(MPI_COMM_WORLD, 3);
	exit(3);
}

/* What a rank contributes: never 0, and small enough for products in 8 bits. */
static int value(int rank, long i, char kind)
{
	int v = 1 + (int)((rank * 7 + i * 3) % 2);

	return (kind == 'i' || kind == 'f') && (rank + i) % 5 == 0 ? -v : v;
}

static double load(const void *at, long i, int bytes, char kind)
{
	const char *p = (const char *)at + i * bytes;
	union {
		int8_t i1;
		uint8_t u1;
		int32_t i4;
		uint32_t u4;
		int64_t i8;
		uint64_t u8;
		float f4;
		double f8;
	} v;

	memcpy(&v, p, (size_t)bytes);
	if (kind == 'f')
		return bytes == 4 ? (double)v.f4 : v.f8;
	if (kind == 'i')
		return bytes == 1 ? v.i1 : bytes == 4 ? v.i4 : (double)v.i8;
	return bytes == 1 ? v.u1 : bytes == 4 ? v.u4 : (double)v.u8;
}

static void store(void *at, long i, int bytes, char kind, int value)
{
	char *p = (char *)at + i * bytes;
	float f4 = (float)value;
	double f8 = value;
	int64_t i8 = value; /* little-endian: its first bytes are the shorter integers */

	if (kind == 'f')
		memcpy(p, bytes == 4 ? (const void *)&f4 : &f8, (size_t)bytes);
	else
		memcpy(p, &i8, (size_t)bytes);
}

static double expect(int size, long i, char kind, char what)
{
	double sum = value(0, i, kind);

	for (int r = 1; r < size; r++) {
		double v = value(r, i, kind);

		sum = what == '+'   ? sum + v
		      : what == '*' ? sum * v
		      : what == '<' ? (v < sum ? v : sum)
		      : v > sum     ? v
				    : sum;
	}
	return sum;
}

struct call {
	MPI_Comm comm;
	const struct type *t;
	const struct op *op;
	long n;
	int in_place, nonblocking;
};

/* One all-reduce. A complex number is two elements of half its size. */
static void reduce(const struct call *c)
{
	int rank, size, bytes, each;
	char kind = c->t->kind == 'c' ? 'f' : c->t->kind;
	long n = c->n;
	char *send, *recv;
	MPI_Request request;

	MPI_Comm_rank(c->comm, &rank);
	MPI_Comm_size(c->comm, &size);
	MPI_Type_size(c->t->type, &bytes);
	each = c->t->kind == 'c' ? bytes / 2 : bytes;
	n = c->t->kind == 'c' ? 2 * n : n;
	send = malloc((size_t)(n * each) + 1);
	recv = malloc((size_t)(n * each) + 1);
	for (long i = 0; i < n; i++)
		store(c->in_place ? recv : send, i, each, kind, value(rank, i, kind));
	recv[n * each] = 77;
	if (c->nonblocking) {
		MPI_Iallreduce(c->in_place ? MPI_IN_PLACE : send, recv, (int)c->n, c->t->type, c->op->op, c->comm,
			       &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else {
		MPI_Allreduce(c->in_place ? MPI_IN_PLACE : send, recv, (int)c->n, c->t->type, c->op->op, c->comm);
	}
	for (long i = 0; i < n; i++) {
		double found = load(recv, i, each, kind), expected = expect(size, i, kind, c->op->what);

		if (found != expected)
			stop(c->nonblocking ? "Iallreduce" : "Allreduce", c->t->name, c->op->name, i, found, expected);
	}
	if (recv[n * each] != 77)
		stop("a byte behind the buffer", c->t->name, c->op->name, n, recv[n * each], 77);
	free(send);
	free(recv);
	checks++;
}

static void broadcast(MPI_Comm comm, long n, int root)
{
	MPI_Datatype pairs, gaps;
	int rank, size;
	double *v = malloc((size_t)n * sizeof *v * 2);

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	root %= size;
	/* the same data as numbers, as contiguous pairs, and every second number: the
	 * ranks have different types of the same signature. Only if reducers take it:
	 * Open MPI itself hangs. */
	MPI_Type_contiguous(2, MPI_DOUBLE, &pairs);
	MPI_Type_vector((int)n, 1, 2, MPI_DOUBLE, &gaps);
	MPI_Type_commit(&pairs);
	MPI_Type_commit(&gaps);
	int way = n >= LARGE - 1 ? rank % 3 : 0, step = way == 2 ? 2 : 1;

	for (long i = 0; i < 2 * n; i++)
		v[i] = rank == root && i % step == 0 && i / step < n ? (double)(i / step) : -1;
	if (way == 0)
		MPI_Bcast(v, (int)n, MPI_DOUBLE, root, comm);
	else if (way == 1)
		MPI_Bcast(v, (int)n / 2, pairs, root, comm);
	else
		MPI_Bcast(v, 1, gaps, root, comm);
	for (long i = 0; i < n * step; i++)
		if (v[i] != (i % step ? -1 : (double)(i / step)))
			stop("Bcast", "MPI_DOUBLE", "", i, v[i], (double)(i / step));
	MPI_Type_free(&pairs);
	MPI_Type_free(&gaps);
	free(v);
	checks++;
}

/* Half of the ranks have a matrix by columns, in a type without gaps, the others by
 * rows. */
static void transposed(MPI_Comm comm, int root)
{
	enum { N = 320 };
	MPI_Datatype column, columns;
	int rank, size, by_columns;
	double *v = malloc(sizeof *v * N * N);

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	root %= size;
	by_columns = (rank + root) % 2;
	MPI_Type_vector(N, 1, N, MPI_DOUBLE, &column);
	MPI_Type_create_hvector(N, 1, sizeof *v, column, &columns);
	MPI_Type_commit(&columns);
	for (long i = 0; i < N * N; i++)
		v[i] = rank != root ? -1 : (double)(by_columns ? i % N * N + i / N : i);
	MPI_Bcast(v, by_columns ? 1 : N * N, by_columns ? columns : MPI_DOUBLE, root, comm);
	for (long i = 0; i < N * N; i++)
		if (v[i] != (double)(by_columns ? i % N * N + i / N : i))
			stop("Bcast", "columns", "", i, v[i], (double)(by_columns ? i % N * N + i / N : i));
	MPI_Type_free(&columns);
	MPI_Type_free(&column);
	free(v);
	checks++;
}

static void table_of(MPI_Comm comm, int all)
{
	/* to Open MPI 4 MPI_OFFSET is unsigned: no negative values */
	const struct type types[] = {
	    NAMED(MPI_FLOAT, 'f'),
	    NAMED(MPI_DOUBLE, 'f'),
	    NAMED(MPI_INT, 'i'),
	    NAMED(MPI_LONG, 'i'),
	    NAMED(MPI_LONG_LONG, 'i'),
	    NAMED(MPI_UNSIGNED, 'u'),
	    NAMED(MPI_UNSIGNED_LONG, 'u'),
	    NAMED(MPI_UNSIGNED_LONG_LONG, 'u'),
	    NAMED(MPI_SIGNED_CHAR, 'i'),
	    NAMED(MPI_UNSIGNED_CHAR, 'u'),
	    NAMED(MPI_INT8_T, 'i'),
	    NAMED(MPI_INT32_T, 'i'),
	    NAMED(MPI_INT64_T, 'i'),
	    NAMED(MPI_UINT8_T, 'u'),
	    NAMED(MPI_UINT32_T, 'u'),
	    NAMED(MPI_UINT64_T, 'u'),
	    NAMED(MPI_C_FLOAT_COMPLEX, 'c'),
	    NAMED(MPI_C_DOUBLE_COMPLEX, 'c'),
	    NAMED(MPI_AINT, 'i'),
	    NAMED(MPI_OFFSET, 'u'),
	    NAMED(MPI_COUNT, 'i'),
	};
	const struct op ops[] = {
	    {MPI_SUM, "sum", '+'}, {MPI_PROD, "prod", '*'}, {MPI_MIN, "min", '<'}, {MPI_MAX, "max", '>'}};
	const long sizes[] = {1, 1000, LARGE};

	for (size_t t = 0; t < (all ? sizeof types / sizeof *types : 3); t++)
		for (size_t o = 0; o < (types[t].kind == 'c' ? 1 : 4); o++)
			for (size_t n = 0; n < 3; n++)
				for (int way = 0; way < 4; way++)
					reduce(&(struct call){comm, &types[t], &ops[o], sizes[n], way & 1, way >> 1});
	for (int root = 0; root < 3; root++)
		for (size_t n = 0; n < 3; n++)
			broadcast(comm, sizes[n] & ~1L, root);
}

static void own_sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *n; i++)
		((double *)inout)[i] += ((double *)in)[i];
}

/* Calls that reducers do not take: they must give MPI's results. */
static void passed_on(void)
{
	double *v = calloc(LARGE, sizeof *v), *sum = calloc(LARGE, sizeof *sum);
	short small[2] = {1, 2}, *shorts = calloc(LARGE, sizeof *shorts), *total = calloc(LARGE, sizeof *total);
	int rank, size;
	MPI_Comm half, between;
	MPI_Op own;

	(void)small;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Op_create(own_sum, 1, &own);
	for (long i = 0; i < LARGE; i++)
		v[i] = shorts[i] = 1;
	MPI_Allreduce(v, sum, LARGE, MPI_DOUBLE, own, MPI_COMM_WORLD);
	MPI_Allreduce(shorts, total, LARGE, MPI_SHORT, MPI_SUM, MPI_COMM_WORLD);
	for (long i = 0; i < LARGE; i++)
		if (sum[i] != size || total[i] != size)
			stop("passed on", "", "", i, sum[i], size);
	MPI_Op_free(&own);
	MPI_Allreduce(v, sum, LARGE, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
	if (size > 1) {
		MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
		MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &between);
		MPI_Allreduce(v, sum, LARGE, MPI_DOUBLE, MPI_SUM, between);
		if (sum[7] != (rank % 2 ? (size + 1) / 2 : size / 2))
			stop("intercommunicator", "", "", 7, sum[7], size / 2);
		MPI_Comm_free(&between);
		MPI_Comm_free(&half);
	}
	free(v), free(sum), free(shorts), free(total);
	checks += 4;
}

/* The program waits long after it has freed the communicator. */
static void freed_before_wait(void)
{
	const struct type t = NAMED(MPI_FLOAT, 'f');
	const struct op op = {MPI_SUM, "sum", '+'};
	float *v = calloc(LARGE, sizeof *v);
	MPI_Comm freed, other;
	MPI_Request request;

	MPI_Comm_dup(MPI_COMM_WORLD, &freed);
	reduce(&(struct call){freed, &t, &op, LARGE, 0, 0});
	MPI_Iallreduce(MPI_IN_PLACE, v, LARGE, MPI_FLOAT, MPI_SUM, freed, &request);
	MPI_Comm_free(&freed);
	for (int i = 0; i < 5; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &other);
		reduce(&(struct call){other, &t, &op, LARGE, 0, 0});
		MPI_Comm_free(&other);
	}
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	free(v);
	checks++;
}

static void permitted(void)
{
	for (int root = 0; root < 3; root++)
		transposed(MPI_COMM_WORLD, root);
	freed_before_wait();
}

static void table(void)
{
	MPI_Comm dup, half;
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	table_of(MPI_COMM_WORLD, 1);
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	MPI_Comm_split(dup, rank % 2, -rank, &half);
	table_of(dup, 0);
	table_of(half, 0);
	MPI_Comm_free(&half);
	passed_on();
	for (int i = 0; i < 5; i++) { /* communicators come and go */
		MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &half);
		broadcast(half, LARGE - 1, i);
		MPI_Comm_free(&half);
	}
	table_of(MPI_COMM_SELF, 0);
	/* dup is left to MPI_Finalize */
}

static void *thread(void *comm)
{
	const struct type t = NAMED(MPI_FLOAT, 'f');
	const struct op op = {MPI_SUM, "sum", '+'};
	MPI_Comm *c = comm;

	for (int i = 0; i < 40; i++)
		reduce(&(struct call){*c, &t, &op, i % 3 ? LARGE : 10, i & 1, i % 4 == 3});
	return NULL;
}

/* The threads start in an order that differs between ranks. */
static void threads(void)
{
	MPI_Comm comm[THREADS];
	pthread_t running[THREADS];
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&running[(i + rank) % THREADS], NULL, thread, &comm[(i + rank) % THREADS]);
	for (int i = 0; i < THREADS; i++)
		pthread_join(running[i], NULL);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_free(&comm[(i + rank) % THREADS]); /* also in another order */
}

static void many(int n)
{
	const struct type t = NAMED(MPI_FLOAT, 'f');
	const struct op op = {MPI_SUM, "sum", '+'};
	MPI_Comm *comm = calloc((size_t)n, sizeof *comm);

	for (int i = 0; i < n; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
		reduce(&(struct call){comm[i], &t, &op, LARGE, 0, 0});
	}
	reduce(&(struct call){comm[0], &t, &op, LARGE, 0, 0});
	for (int i = 0; i < n; i++)
		MPI_Comm_free(&comm[i]);
	free(comm);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void loop(double seconds)
{
	const struct type t = NAMED(MPI_FLOAT, 'f');
	const struct op op = {MPI_SUM, "sum", '+'};
	double end = now() + seconds;
	int rank, go = 1;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; go; i++) {
		reduce(&(struct call){MPI_COMM_WORLD, &t, &op, 1 << 18, 0, 0});
		if (rank == 0)
			printf("round %d\n", i);
		fflush(stdout);
		go = now() < end;
		MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
}

static void errors(void)
{
	float *v = calloc(LARGE, sizeof *v);
	int rank, rc;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	rc = MPI_Allreduce(MPI_IN_PLACE, v, LARGE, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d: %s\n", rank, rc == MPI_SUCCESS ? "success" : "error");
	fflush(stdout);
	free(v);
}

static void measure(void)
{
	const int counts[] = {1, 1 << 18};
	float *v = calloc(1 << 18, sizeof *v);
	int rank, rounds;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int c = 0; c < 2; c++) {
		double best = 1e9;

		for (int repeat = 0; repeat < 5; repeat++) {
			double start;

			rounds = c ? 20 : 20000;
			MPI_Barrier(MPI_COMM_WORLD);
			start = now();
			for (int i = 0; i < rounds; i++)
				MPI_Allreduce(MPI_IN_PLACE, v, counts[c], MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
			start = (now() - start) / rounds;
			best = start < best ? start : best;
		}
		if (rank == 0)
			printf("%zu bytes: %.0f ns\n", counts[c] * sizeof *v, best * 1e9);
	}
	free(v);
}

int main(int argc, char **argv)
{
	int rank, level, wanted = argc > 1 && strcmp(argv[1], "single") == 0 ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;

	MPI_Init_thread(&argc, &argv, wanted, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("begun\n");
	fflush(stdout);
	if (argc > 2 && strcmp(argv[1], "loop") == 0)
		loop(atof(argv[2]));
	else if (argc > 1 && strcmp(argv[1], "permitted") == 0)
		permitted();
	else if (argc > 2 && strcmp(argv[1], "many") == 0)
		many(atoi(argv[2]));
	else if (argc > 1 && strcmp(argv[1], "errors") == 0)
		errors();
	else if (argc > 1 && strcmp(argv[1], "time") == 0)
		measure();
	else if (argc > 1 && strcmp(argv[1], "threads") == 0 && level == MPI_THREAD_MULTIPLE)
		threads();
	else if (argc > 1 && strcmp(argv[1], "few") == 0)
		table_of(MPI_COMM_WORLD, 0);
	else
		table();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("ok %lu checks\n", checks);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
