/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: alloc -> slice after slice on the thread pool -> touched, and start -> release. Failure modes: a job
 * that ends before its memory is touched: the area goes when the slice under way has ended. */
#include "server/run/areas.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { AREA_SLICE = 4 << 20 }; /* bytes: about a millisecond to ten */

/* Invariant: while `busy`, the thread pool writes to the slice at `touched`; the loop's thread does not. */
struct area {
	struct area *next;
	struct areas *all;
	uv_work_t work;
	uint8_t *memory;
	uint64_t bytes, touched;
	uint64_t job, processes;
	bool busy, started, released;
};

struct areas {
	struct areas_options opt;
	struct area *list; /* the last one first */
	bool stopped;
};

static uint64_t slice_of(const struct area *a)
{
	return a->bytes - a->touched < AREA_SLICE ? a->bytes - a->touched : AREA_SLICE;
}

static void on_work(uv_work_t *work)
{
	struct area *a = work->data;

	memset(a->memory + a->touched, 0, slice_of(a));
}

static void area_free(struct area *a)
{
	struct area **at = &a->all->list;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	munmap(a->memory, a->bytes);
	free(a);
}

static void on_worked(uv_work_t *work, int status);

static void area_go_on(struct area *a)
{
	struct areas *all = a->all;

	if (a->touched < a->bytes && !all->stopped) {
		a->busy = uv_queue_work(all->opt.loop, &a->work, on_work, on_worked) == 0;
		if (a->busy)
			return;
		/* nobody can do it for us */
		while (a->touched < a->bytes) {
			on_work(&a->work);
			a->touched += slice_of(a);
		}
	}
	if (a->started && !all->stopped)
		all->opt.touched(all->opt.ctx, a->job, a->processes);
}

static void on_worked(uv_work_t *work, int status)
{
	struct area *a = work->data;

	(void)status; /* work is never cancelled */
	a->busy = false;
	a->touched += slice_of(a);
	if (a->released)
		area_free(a);
	else
		area_go_on(a);
}

struct areas *areas_new(const struct areas_options *opt)
{
	struct areas *all = calloc(1, sizeof *all);

	if (all)
		all->opt = *opt;
	return all;
}

void *areas_alloc(struct areas *all, uint64_t bytes)
{
	struct area *a = calloc(1, sizeof *a);
	void *p = a ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;

	if (p == MAP_FAILED) {
		free(a);
		return NULL;
	}
	/* a hint: fewer TLB misses where the kernel has huge pages to give */
	madvise(p, bytes, MADV_HUGEPAGE);
	a->all = all;
	a->work.data = a;
	a->memory = p;
	a->bytes = bytes;
	a->next = all->list;
	all->list = a;
	area_go_on(a);
	return p;
}

void areas_name(struct areas *all, uint64_t job)
{
	all->list->job = job;
}

void areas_start(struct areas *all, uint64_t job, uint64_t processes)
{
	struct area *a = all->list;

	while (a->job != job)
		a = a->next;
	a->started = true;
	a->processes = processes;
	if (!a->busy)
		area_go_on(a);
}

void areas_release(struct areas *all, void *memory)
{
	struct area *a = all->list;

	while (a->memory != memory || a->released)
		a = a->next;
	a->released = true;
	if (!a->busy)
		area_free(a);
}

void areas_stop(struct areas *all)
{
	all->stopped = true;
}

void areas_free(struct areas *all)
{
	free(all);
}
