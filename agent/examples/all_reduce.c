/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce with libreduction's C API: every rank contributes a vector and gets the sum
 * of all vectors.
 *
 *     cc all_reduce.c $(pkg-config --cflags --libs reduction) -o all_reduce
 *     reduction-server --listen 127.0.0.1:7600 &
 *     REDUCTION_CONFIG=job.yaml torchrun --no-python --nproc_per_node 4 ./all_reduce
 *
 * Rank and world size come from the launcher (torchrun, srun, mpirun), the reducers from
 * the configuration file. */
#include <reduction.h>

#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20 };

static void die(const reduction_error *err)
{
	fprintf(stderr, "all_reduce: %s\n", err->message);
	exit(1);
}

/* Checks the sum over ranks of (rank + 1) * (i % 100), which is known without
 * communication. */
static int check(const float *sum, int world_size)
{
	float ranks = (float)world_size * (float)(world_size + 1) / 2;

	for (size_t i = 0; i < COUNT; i++)
		if (sum[i] != ranks * (float)(i % 100))
			return 1;
	return 0;
}

int main(void)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;
	reduction_error err;
	reduction_comm *comm;
	reduction_request *req;
	reduction_stats stats = REDUCTION_STATS_INIT;
	void *memory;
	float *x;
	int wrong;

	if (reduction_open(&comm, &opt, &err))
		die(&err);
	/* memory that is shared with the node's agent, if there is one; all other memory
	 * works too */
	if (reduction_buffer_alloc(comm, COUNT * sizeof(*x), &memory, &err))
		die(&err);
	x = memory;
	for (size_t i = 0; i < COUNT; i++)
		x[i] = (float)(reduction_rank(comm) + 1) * (float)(i % 100);

	if (reduction_all_reduce_async(comm, x, x, COUNT, REDUCTION_FLOAT32, REDUCTION_SUM, "example", &req, &err))
		die(&err);
	/* ... other work here, while the reducers sum ... */
	if (reduction_wait(req, -1, &err) || reduction_get_stats(comm, &stats, &err))
		die(&err);

	wrong = check(x, reduction_world_size(comm));
	printf("rank %d of %d: %s, %llu bytes sent, %llu received\n", reduction_rank(comm), reduction_world_size(comm),
	       wrong ? "WRONG" : "the sum is right", (unsigned long long)stats.tx_bytes,
	       (unsigned long long)stats.rx_bytes);
	reduction_buffer_free(comm, memory);
	if (reduction_close(comm, &err))
		die(&err);
	return wrong;
}
