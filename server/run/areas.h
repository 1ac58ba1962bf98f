/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the slots of jobs. It has to be touched before a job runs, since the first touch of a page costs more than
 * the sum it is for, and one HELLO can ask for as much as limits.memory allows: seconds of work. So libuv's thread pool
 * does it in slices, one of each job in turn, and the loop goes on accepting. All calls are for the loop's thread. */
#ifndef RS_SERVER_RUN_AREAS_H
#define RS_SERVER_RUN_AREAS_H

#include <stdint.h>
#include <uv.h>

struct areas;

struct areas_options {
	uv_loop_t *loop;
	/* The memory of `job`, for which areas_start was called, is touched. */
	void (*touched)(void *ctx, uint64_t job, uint64_t processes);
	void *ctx;
};

/* NULL: no memory. */
struct areas *areas_new(const struct areas_options *opt);
/* Page-aligned zeros, which begin to be touched; NULL when there are none. */
void *areas_alloc(struct areas *all, uint64_t bytes);
/* The area that was allocated last belongs to this job. */
void areas_name(struct areas *all, uint64_t job);
/* touched() follows, from within this call when nothing is left to do. */
void areas_start(struct areas *all, uint64_t job, uint64_t processes);
void areas_release(struct areas *all, void *memory);
/* Nothing more is touched, and touched() is not called any more. What is under way keeps the loop alive for one slice.
 */
void areas_stop(struct areas *all);
/* After the loop has ended and everything was released. */
void areas_free(struct areas *all);

#endif
