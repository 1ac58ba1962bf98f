/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/deadlines.h"

#include <stddef.h>

static struct deadline_queue *queue_of(struct deadlines *all, const struct deadline *d)
{
	return d->leaves ? &all->leaving : &all->waiting;
}

static void append(struct deadline_queue *q, struct deadline *d)
{
	d->next = NULL;
	d->prev = q->last;
	*(q->last ? &q->last->next : &q->first) = d;
	q->last = d;
	q->n++;
}

void deadlines_init(struct deadlines *all, uint32_t wait_ms)
{
	*all = (struct deadlines){.wait_ms = wait_ms};
}

void deadlines_add(struct deadlines *all, struct deadline *d, uint64_t now_ms)
{
	*d = (struct deadline){.at_ms = now_ms + all->wait_ms};
	append(&all->waiting, d);
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

	*(d->prev ? &d->prev->next : &q->first) = d->next;
	*(d->next ? &d->next->prev : &q->last) = d->prev;
	q->n--;
}

static struct deadline *due(const struct deadline_queue *q, uint64_t now_ms)
{
	return q->first && now_ms >= q->first->at_ms ? q->first : NULL;
}

struct deadline *deadlines_due(const struct deadlines *all, uint64_t now_ms)
{
	struct deadline *d = due(&all->leaving, now_ms);

	return d ? d : due(&all->waiting, now_ms);
}

struct deadline *deadlines_oldest(const struct deadlines *all)
{
	return all->leaving.first ? all->leaving.first : all->waiting.first;
}

unsigned deadlines_count(const struct deadlines *all)
{
	return all->waiting.n + all->leaving.n;
}
