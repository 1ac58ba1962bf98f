/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the slots of jobs. It has to be touched before a job runs, since the first touch of a page costs more than
 * the sum it is for, and one HELLO can ask for as much as limits.memory allows: seconds of work. So libuv's thread pool
 * does it in slices, one of each job in turn, and the loop goes on accepting. All calls are for the loop's thread. */
#ifndef RS_SERVER_RUN_ARENA_H
#define RS_SERVER_RUN_ARENA_H

#include <stdint.h>
#include <uv.h>

struct arenas;

struct arenas_options {
	uv_loop_t *loop;
	/* The memory of `job`, for which arenas_start was called, is touched. */
	void (*touched)(void *ctx, uint64_t job, uint64_t processes);
	void *ctx;
};

/* NULL: no memory. */
struct arenas *arenas_new(const struct arenas_options *opt);
/* Page-aligned zeros, which begin to be touched; NULL when there are none. */
void *arenas_alloc(struct arenas *all, uint64_t bytes);
/* The area that was allocated last belongs to this job. */
void arenas_set_job(struct arenas *all, uint64_t job);
/* touched() follows, from within this call when nothing is left to do. */
void arenas_start(struct arenas *all, uint64_t job, uint64_t processes);
void arenas_release(struct arenas *all, void *memory);
/* Nothing more is touched, and touched() is not called any more. What is under way keeps the loop alive for one slice.
 */
void arenas_stop(struct arenas *all);
/* After the loop has ended and everything was released. */
void arenas_free(struct arenas *all);

#endif
