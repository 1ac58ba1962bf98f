/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/deadlines.h"

#include <stddef.h>

static struct deadline_queue *queue_of(struct deadlines *all, const struct deadline *d)
{
	return d->leaves ? &all->leaving : d->kept ? &all->kept : &all->waiting;
}

static void append(struct deadline_queue *q, struct deadline *d)
{
	TAILQ_INSERT_TAIL(&q->list, d, link);
	q->n++;
}

void deadlines_init(struct deadlines *all, uint32_t wait_ms)
{
	*all = (struct deadlines){.wait_ms = wait_ms};
	TAILQ_INIT(&all->waiting.list);
	TAILQ_INIT(&all->kept.list);
	TAILQ_INIT(&all->leaving.list);
}

void deadlines_add(struct deadlines *all, struct deadline *d, uint64_t now_ms)
{
	*d = (struct deadline){.at_ms = now_ms + all->wait_ms};
	append(&all->waiting, d);
}

void deadlines_keep(struct deadlines *all, struct deadline *d, uint64_t now_ms)
{
	*d = (struct deadline){.at_ms = now_ms + DEADLINES_KEEP_MS, .kept = true};
	append(&all->kept, d);
}

void deadlines_leave(struct deadlines *all, struct deadline *d, uint64_t now_ms)
{
	deadlines_remove(all, d);
	*d = (struct deadline){.at_ms = now_ms + DEADLINES_LEAVE_MS, .leaves = true};
	append(&all->leaving, d);
}

void deadlines_remove(struct deadlines *all, struct deadline *d)
{
	struct deadline_queue *q = queue_of(all, d);

	TAILQ_REMOVE(&q->list, d, link);
	q->n--;
}

static struct deadline *due(const struct deadline_queue *q, uint64_t now_ms)
{
	struct deadline *oldest = TAILQ_FIRST(&q->list);

	return oldest && now_ms >= oldest->at_ms ? oldest : NULL;
}

struct deadline *deadlines_due(const struct deadlines *all, uint64_t now_ms)
{
	struct deadline *d = due(&all->leaving, now_ms);

	if (!d)
		d = due(&all->waiting, now_ms);
	return d ? d : due(&all->kept, now_ms);
}

struct deadline *deadlines_oldest(const struct deadlines *all)
{
	struct deadline *d = TAILQ_FIRST(&all->leaving.list);

	if (!d)
		d = TAILQ_FIRST(&all->waiting.list);
	return d ? d : TAILQ_FIRST(&all->kept.list);
}

unsigned deadlines_count(const struct deadlines *all)
{
	return all->waiting.n + all->kept.n + all->leaving.n;
}
