/* SPDX-License-Identifier: Apache-2.0 */
/* mpi-sharded: MPI_Ireduce_scatter_block and MPI_Iallgather of float32, alone or at the
 * same time, for bench/sharded/bench.py. Rank 0 prints one JSON line with the times of
 * the slowest rank. The sums are of small whole numbers, which are exact. */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is measured, and the buffers: `own` elements of each of `world` parts. */
struct sharded {
	bool scatter, gather;
	int rank, world, own;
	float *grads, *sums, *part, *full;
};

static double once(const struct sharded *s, MPI_Comm other)
{
	MPI_Request sums = MPI_REQUEST_NULL, parts = MPI_REQUEST_NULL;
	double start;

	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	if (s->scatter)
		MPI_Ireduce_scatter_block(s->grads, s->sums, s->own, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &sums);
	if (s->gather)
		MPI_Iallgather(s->part, s->own, MPI_FLOAT, s->full, s->own, MPI_FLOAT, other, &parts);
	MPI_Wait(&sums, MPI_STATUS_IGNORE);
	MPI_Wait(&parts, MPI_STATUS_IGNORE);
	return MPI_Wtime() - start;
}

static bool is_right(const struct sharded *s)
{
	for (long i = 0; s->scatter && i < s->own; i++)
		if (s->sums[i] !=
		    (float)(((long)s->rank * s->own + i) % 509 * s->world + s->world * (s->world - 1) / 2))
			return false;
	for (long i = 0; s->gather && i < (long)s->own * s->world; i++)
		if (s->full[i] != (float)(i / s->own + 1))
			return false;
	return true;
}

static void measure(const struct sharded *s, int iters)
{
	MPI_Comm other;
	double took, slowest;
	int right, all;

	MPI_Comm_dup(MPI_COMM_WORLD, &other);
	if (s->rank == 0)
		printf("{\"rank\": 0, \"times\": [");
	for (int i = 0; i <= iters; i++) {
		took = once(s, other);
		MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		if (i > 0 && s->rank == 0)
			printf("%s%.6f", i > 1 ? ", " : "", slowest);
	}
	right = is_right(s);
	MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (s->rank == 0)
		printf("], \"right\": %s}\n", all ? "true" : "false");
	MPI_Comm_free(&other);
}

int main(int argc, char **argv)
{
	struct sharded s = {0};
	int iters;
	long n;

	if (argc != 7 || strcmp(argv[1], "--what") || strcmp(argv[3], "--bytes") || strcmp(argv[5], "--iters")) {
		fprintf(stderr, "Usage: mpirun ... mpi-sharded --what scatter|gather|both --bytes N --iters N\n");
		return 2;
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &s.world);
	s.scatter = strcmp(argv[2], "gather") != 0;
	s.gather = strcmp(argv[2], "scatter") != 0;
	s.own = (int)(atol(argv[4]) / 4 / s.world);
	iters = atoi(argv[6]);
	n = (long)s.own * s.world;
	s.grads = calloc((size_t)n, sizeof(float));
	s.full = calloc((size_t)n, sizeof(float));
	s.sums = calloc((size_t)s.own, sizeof(float));
	s.part = calloc((size_t)s.own, sizeof(float));
	if (!s.grads || !s.full || !s.sums || !s.part)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (long i = 0; i < n; i++)
		s.grads[i] = (float)(i % 509 + s.rank);
	for (long i = 0; i < s.own; i++)
		s.part[i] = (float)(s.rank + 1);
	measure(&s, iters);
	free(s.part);
	free(s.sums);
	free(s.full);
	free(s.grads);
	MPI_Finalize();
	return 0;
}
