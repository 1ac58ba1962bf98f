/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: alloc -> the pool touches slice after slice -> start -> touched() ->
 * release. Failure mode: the job ends before its arena is touched: the arena is freed
 * after the slice in progress. */
#include "server/run/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENA_SLICE = 4 << 20 }; /* bytes; takes 1 to 10 ms */

/* One job's memory. Invariant: while `busy`, only the pool writes to the slice at
 * `touched`. */
struct arena {
	struct arena *next;
	struct arenas *all;
	struct rs_task task;
	uint8_t *memory;
	uint64_t bytes, touched;
	uint64_t job;
	struct lane_begin begin;
	bool busy, started, released;
};

/* The arenas of a reducer. Invariant: `list` contains every arena until it is freed. */
struct arenas {
	struct arenas_options opt;
	struct arena *list; /* the newest first */
	bool stopped;
};

static uint64_t arena_slice_of(const struct arena *a)
{
	return a->bytes - a->touched < ARENA_SLICE ? a->bytes - a->touched : ARENA_SLICE;
}

static struct arena *arena_from(struct rs_task *t)
{
	return (struct arena *)((char *)t - offsetof(struct arena, task));
}

static void arena_on_run(struct rs_task *t)
{
	struct arena *a = arena_from(t);

	memset(a->memory + a->touched, 0, arena_slice_of(a));
}

static void arena_free(struct arena *a)
{
	struct arena **at = &a->all->list;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	munmap(a->memory, a->bytes);
	free(a);
}

static void arena_continue(struct arena *a)
{
	struct arenas *all = a->all;

	if (a->touched < a->bytes && !all->stopped) {
		a->busy = true;
		rs_pool_add(all->opt.pool, &a->task);
		return;
	}
	if (a->started && !all->stopped)
		all->opt.touched(all->opt.ctx, a->job, &a->begin);
}

static void arena_on_done(struct rs_task *t)
{
	struct arena *a = arena_from(t);

	a->busy = false;
	a->touched += arena_slice_of(a);
	if (a->released)
		arena_free(a);
	else
		arena_continue(a);
}

struct arenas *arenas_new(const struct arenas_options *opt)
{
	struct arenas *all = calloc(1, sizeof *all);

	if (all)
		all->opt = *opt;
	return all;
}

void *arenas_alloc(struct arenas *all, uint64_t bytes)
{
	struct arena *a = calloc(1, sizeof *a);
	void *p = a ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;

	if (p == MAP_FAILED) {
		free(a);
		return NULL;
	}
	/* fewer TLB misses if the kernel has huge pages */
	madvise(p, bytes, MADV_HUGEPAGE);
	madvise(p, bytes, MADV_DONTDUMP); /* gradients are not for those who read cores */
	a->all = all;
	a->task = (struct rs_task){.run = arena_on_run, .done = arena_on_done};
	a->memory = p;
	a->bytes = bytes;
	a->next = all->list;
	all->list = a;
	arena_continue(a);
	return p;
}

void arenas_set_job(struct arenas *all, uint64_t job)
{
	all->list->job = job;
}

void arenas_start(struct arenas *all, uint64_t job, const struct lane_begin *begin)
{
	struct arena *a = all->list;

	while (a->job != job || a->released)
		a = a->next;
	a->started = true;
	a->begin = *begin;
	if (!a->busy)
		arena_continue(a);
}

void arenas_release(struct arenas *all, void *memory)
{
	struct arena *a = all->list;

	while (a->memory != memory || a->released)
		a = a->next;
	a->released = true;
	if (!a->busy)
		arena_free(a);
}

void arenas_stop(struct arenas *all)
{
	all->stopped = true;
}

void arenas_free(struct arenas *all)
{
	free(all);
}
