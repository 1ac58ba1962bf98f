/* SPDX-License-Identifier: Apache-2.0 */
/* Reducers and the configuration of their job, on loopback or on hosts with shaped
 * links. */
#ifndef RS_TESTS_GPU_REDUCERS_H
#define RS_TESTS_GPU_REDUCERS_H

#include "tests/gpu/links.h"

enum { REDUCERS_MAX = 4 };

/* Invariant: pids[0 .. n) are reducers that were started; 0: killed since. */
struct reducers {
	char folder[64]; /* with config and the logs */
	char config[96]; /* for REDUCTION_CONFIG */
	pid_t pids[REDUCERS_MAX];
	int n;
};

/* Starts n reducers and waits until they accept connections: on loopback if l is NULL,
 * else on its hosts from `first` on. False: `why` says what has failed. */
bool reducers_start(struct reducers *r, int n, const struct links *l, int first, char *why, size_t room);
/* Kills one of them. */
void reducers_kill(struct reducers *r, int i);
void reducers_stop(struct reducers *r);

#endif
