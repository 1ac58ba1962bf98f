/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that does what its standard input says, for test_steady_state.py: lines "OPS
 * BYTES HOW" run OPS all-reduces of BYTES of float32 each. HOW: "plain" or "buffer"
 * (memory of the communicator), with "-async" behind it several at a time. It says "open"
 * first, "full N" when several at a time are under way, and "done N" for the N-th line.
 * Each HOW's memory is made when it is asked for the first time, for the largest size
 * that any line may ask for. */
#include "agent/lib/include/reduction.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 8 << 20, IN_FLIGHT = 4 };

struct memory {
	float *at[IN_FLIGHT];
};

static void die(const char *what, const reduction_error *err)
{
	fprintf(stderr, "worker_steady: %s: %s\n", what, err->message);
	exit(1);
}

static void make_memory(reduction_comm *comm, struct memory *m, bool shared)
{
	reduction_error err = {0};
	void *p;

	for (unsigned i = 0; i < IN_FLIGHT && !m->at[i]; i++) {
		p = NULL;
		if (shared && reduction_buffer_alloc(comm, BYTES_MAX, &p, &err))
			die("buffer", &err);
		if (!shared)
			p = malloc(BYTES_MAX);
		if (!p)
			die("memory", &err);
		m->at[i] = memset(p, 0, BYTES_MAX); /* entered, so that only the library can cause page faults later */
	}
}

static void finish(reduction_request **req)
{
	reduction_error err;

	if (*req && reduction_wait(*req, -1, &err))
		die("wait", &err);
	*req = NULL;
}

static void run(reduction_comm *comm, struct memory *m, unsigned ops, size_t count, bool async, unsigned line)
{
	reduction_request *req[IN_FLIGHT] = {NULL};
	reduction_error err;

	for (unsigned i = 0; i < ops; i++) {
		unsigned k = i % IN_FLIGHT;
		float *x = m->at[async ? k : 0];

		finish(&req[k]);
		if (async && reduction_all_reduce_async(comm, x, x, count, REDUCTION_FLOAT32, REDUCTION_SUM, "steady",
							&req[k], &err))
			die("start", &err);
		if (async && i + 1 == IN_FLIGHT)
			printf("{\"what\": \"full %u\"}\n", line);
		if (!async && reduction_all_reduce(comm, x, x, count, REDUCTION_FLOAT32, REDUCTION_SUM, &err))
			die("all-reduce", &err);
	}
	for (unsigned k = 0; k < IN_FLIGHT; k++)
		finish(&req[(ops + k) % IN_FLIGHT]);
}

int main(void)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;
	struct memory memory[2] = {{{NULL}}, {{NULL}}};
	reduction_comm *comm;
	reduction_error err;
	char line[128], how[32];
	unsigned ops, said = 0;
	size_t bytes;

	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	if (reduction_open(&comm, &opt, &err))
		die("open", &err);
	puts("{\"what\": \"open\"}");
	while (fgets(line, sizeof line, stdin)) {
		bool shared, async;

		if (sscanf(line, "%u %zu %31s", &ops, &bytes, how) != 3 || bytes > BYTES_MAX) {
			fprintf(stderr, "worker_steady: expected OPS BYTES HOW, found %s", line);
			return 1;
		}
		shared = strncmp(how, "buffer", 6) == 0;
		async = strstr(how, "-async") != NULL;
		make_memory(comm, &memory[shared], shared);
		run(comm, &memory[shared], ops, bytes / sizeof(float), async, said);
		printf("{\"what\": \"done %u\", \"ops\": %u}\n", said++, ops);
	}
	return reduction_close(comm, &err) ? 1 : 0;
}
