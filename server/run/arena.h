/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: the memory for the slots of jobs. An arena is touched before its job runs,
 * because the first touch of a page costs more than the sum in it. One HELLO can ask for
 * as much as server.memory, which takes seconds to touch. So a pool of threads touches
 * arenas in slices, those of all jobs in turn, and the loop goes on accepting. Only the
 * loop's thread may call these functions. */
#ifndef RS_SERVER_RUN_ARENA_H
#define RS_SERVER_RUN_ARENA_H

#include "common/pool.h"
#include "server/core/lane_types.h"

#include <stdint.h>

struct arenas;

/* The threads, and the callback, of arenas. */
struct arenas_options {
	struct rs_pool *pool; /* rs_pool_finish is called on the loop's thread */
	/* Says that the arena of `job`, for which arenas_start was called, is touched. */
	void (*touched)(void *ctx, uint64_t job, const struct lane_begin *begin);
	void *ctx;
};

/* Creates the list of arenas. NULL: no memory. */
struct arenas *arenas_new(const struct arenas_options *opt);
/* Allocates an arena of page-aligned zeros and starts to touch it. NULL: no memory. */
void *arenas_alloc(struct arenas *all, uint64_t bytes);
/* Assigns the last allocated arena to a job. */
void arenas_set_job(struct arenas *all, uint64_t job);
/* Requests a call of touched(), which comes from within this call if the arena is already
 * touched. */
void arenas_start(struct arenas *all, uint64_t job, const struct lane_begin *begin);
/* Frees an arena, when the slice that is being touched is done. */
void arenas_release(struct arenas *all, void *memory);
/* Stops touching, and calls of touched(). The pool may still have slices, so it must be
 * stopped next. */
void arenas_stop(struct arenas *all);
/* Frees the list, after the loop has ended and all arenas were released. */
void arenas_free(struct arenas *all);

#endif
