/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/lane_command.h"

#include <stdlib.h>

struct lane_command *lane_command_new(enum lane_command_type type, uint64_t job, size_t frame_len)
{
	struct lane_command *l = calloc(1, sizeof *l + frame_len);

	if (l) {
		l->type = type;
		l->job = job;
	}
	return l;
}

static struct reserve **reserve_at(struct reserves *all, uint64_t job)
{
	struct reserve **at = &all->first;

	while (*at && (*at)->job != job)
		at = &(*at)->next;
	return at;
}

static void reserve_free(struct reserve **at)
{
	struct reserve *r = *at;

	*at = r->next;
	free(r->abort);
	free(r);
}

bool reserves_add(struct reserves *all, uint64_t job)
{
	struct reserve **at = reserve_at(all, job);

	if (*at)
		return true;
	*at = calloc(1, sizeof **at);
	if (!*at)
		return false;
	(*at)->job = job;
	(*at)->abort = lane_command_new(COMMAND_ABORT, job, 0);
	if ((*at)->abort)
		return true;
	reserve_free(at);
	return false;
}

struct lane_command *reserves_take(struct reserves *all, uint64_t job)
{
	struct reserve *r = *reserve_at(all, job);
	struct lane_command *l = r ? r->abort : NULL;

	if (l)
		r->abort = NULL;
	return l;
}

void reserves_remove(struct reserves *all, uint64_t job)
{
	struct reserve **at = reserve_at(all, job);

	if (*at)
		reserve_free(at);
}

void reserves_close(struct reserves *all)
{
	while (all->first)
		reserve_free(&all->first);
}
