/* SPDX-License-Identifier: Apache-2.0 */
/* A worker for test_memory.py: opens a communicator, sums and closes it while the first
 * allocation fails, then the second one, and so on until there are no more (shim_oom.c).
 * It says {"what": "tried", "k", "failed", "step", "code", "message"} each time: whether
 * the k-th allocation has failed, and the step that returned an error. */
#include "agent/lib/include/reduction.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static float small[10], large[300000];

static const char *attempt(int64_t k, reduction_error *err)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;
	reduction_comm *comm;
	const char *step = "open";
	int rc;

	opt.generation = k;
	if (reduction_open(&comm, &opt, err))
		return step;
	step = "small";
	rc = reduction_all_reduce(comm, small, small, sizeof small / sizeof *small, REDUCTION_FLOAT32, REDUCTION_SUM,
				  err);
	if (!rc) {
		step = "large";
		rc = reduction_all_reduce(comm, large, large, sizeof large / sizeof *large, REDUCTION_FLOAT32,
					  REDUCTION_SUM, err);
	}
	if (rc) {
		reduction_close(comm, NULL);
		return step;
	}
	return reduction_close(comm, err) ? "close" : "";
}

int main(void)
{
	int64_t (*fail_at)(int64_t k);
	bool failed = true;

	*(void **)&fail_at = dlsym(RTLD_DEFAULT, "shim_oom_fail_at");
	if (!fail_at) {
		fprintf(stderr, "worker_memory: shim_oom.so is not preloaded\n");
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	for (int64_t k = 1; failed; k++) {
		reduction_error err = {0};
		const char *step;

		fail_at(k);
		step = attempt(k, &err);
		failed = fail_at(0) <= 0;
		printf("{\"what\": \"tried\", \"k\": %lld, \"failed\": %s, \"step\": \"%s\", \"code\": %d, ",
		       (long long)k, failed ? "true" : "false", step, err.code);
		printf("\"message\": \"%s\"}\n", err.message);
	}
	return 0;
}
