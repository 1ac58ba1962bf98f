/* SPDX-License-Identifier: Apache-2.0 */
/* mpi-allreduce: MPI_Allreduce of float32 with the clock, sizes, data and report of
 * reduction-bench. Built once for each MPI that is found; the launcher chooses the
 * algorithm (see bench/net/systems.py). */
#include "bench/bench.h"
#include "bench/help_version.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "Usage: mpirun ... mpi-allreduce [-b SIZE] [-e SIZE] [-f X] [-n ITERS] [-w WARMUP]\n"
			    "MPI_Allreduce of float32, sum, out of place, as JSON lines in reduction-bench's form.\n"
			    "Sizes in bytes; K, M and G are 1024-based (default -b 4K -e 64M -f 4 -n 20 -w 5).\n";

/* Parses a number that is at least 1 (or `min`); false if it is none. */
static bool number(const char *text, unsigned long long min, unsigned long long *ret)
{
	char *end;
	unsigned long long v = strtoull(text, &end, 10);
	static const char units[] = "KMG";
	const char *unit = *end ? strchr(units, *end) : NULL;

	if (unit)
		v <<= 10 * (unit - units + 1);
	if (end == text || *text == '-' || end[unit ? 1 : 0] || v < min || v > 1ull << 40)
		return false;
	*ret = v;
	return true;
}

static bool parse(struct bench_options *o, int argc, char **argv)
{
	unsigned long long v = 0;
	for (int key; (key = getopt(argc, argv, "b:e:f:n:w:")) != -1;) {
		if (key == '?' || !number(optarg, key == 'w' ? 0 : key == 'f' ? 2 : 1, &v))
			return false;
		if (key == 'b')
			o->min_bytes = v;
		else if (key == 'e')
			o->max_bytes = v;
		else if (key == 'f')
			o->factor = (double)v;
		else if (v > 1000000)
			return false;
		else if (key == 'n')
			o->iters = (unsigned)v;
		else
			o->warmup = (unsigned)v;
	}
	return optind == argc && o->min_bytes >= sizeof(float) && o->min_bytes <= o->max_bytes;
}

/* Measures one row. Errors of MPI end the program: its default handler prints the
 * reason. */
static void measure(const struct bench_options *o, const struct bench_pattern *p, struct bench_row *row, float *send,
		    float *recv, double *us)
{
	unsigned long long wrong;

	bench_pattern_fill(p, send, row->count);
	memset(recv, 0xa5, row->bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	for (unsigned i = 0; i < o->warmup + o->iters; i++) {
		double start = MPI_Wtime();
		MPI_Allreduce(send, recv, (int)row->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		if (i >= o->warmup)
			us[i - o->warmup] = (MPI_Wtime() - start) * 1e6;
	}
	/* an iteration takes as long as its slowest rank */
	MPI_Allreduce(MPI_IN_PLACE, us, (int)o->iters, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	bench_times_of(&row->times[0], us, o->iters);
	wrong = bench_pattern_wrong(p, recv, row->count);
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
	row->times[0].wrong = wrong;
	row->has[0] = true;
}

static int run(const struct bench_options *o, int rank, int world)
{
	struct bench_pattern *pattern = calloc(1, sizeof(*pattern));
	float *send = malloc(o->max_bytes), *recv = malloc(o->max_bytes);
	double *us = calloc(o->iters, sizeof(*us));
	uint64_t wrong = 0;

	if (!pattern || !send || !recv || !us) {
		fprintf(stderr, "mpi-allreduce: out of memory for buffers of %llu bytes\n",
			(unsigned long long)o->max_bytes);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	bench_pattern_init(pattern, RS_FLOAT32, RS_SUM, rank, world);
	for (uint64_t bytes = o->min_bytes; bytes; bytes = bench_next_size(o, bytes)) {
		struct bench_row row = {
		    .count = bytes / sizeof(float), .dtype = RS_FLOAT32, .op = RS_SUM, .ranks = world};
		row.bytes = row.count * sizeof(float);
		measure(o, pattern, &row, send, recv, us);
		wrong += row.times[0].wrong;
		if (rank == 0)
			bench_print_row(o, &row);
	}
	free(pattern);
	free(send);
	free(recv);
	free(us);
	return wrong != 0;
}

int main(int argc, char **argv)
{
	struct bench_options o = {.system = "mpi",
				  .min_bytes = 4096,
				  .max_bytes = 64 << 20,
				  .factor = 4,
				  .iters = 20,
				  .warmup = 5,
				  .in_flight = 1,
				  .place = PLACE_OUT,
				  .json = true};
	int rank, world, code = 2;

	if (bench_help_or_version(argc, argv, "mpi-allreduce", usage))
		return 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &world);
	if (parse(&o, argc, argv))
		code = run(&o, rank, world);
	else if (rank == 0)
		fputs(usage, stderr);
	MPI_Finalize();
	return code;
}
