/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/doctor.h"

#include <string.h>

/* Returns whether both say the same; of several processes about a job that is one
 * finding, too. */
static bool is_same(const struct finding *a, const struct finding *b, bool of_processes)
{
	return strcmp(a->id, b->id) == 0 && strcmp(a->job, b->job) == 0 && strcmp(a->what, b->what) == 0 &&
	       ((of_processes && a->job[0]) || strcmp(a->process, b->process) == 0);
}

void doctor_watch_add(struct doctor_watch *w, const struct findings *window)
{
	w->windows++;
	for (unsigned i = 0; i < window->n; i++) {
		const struct finding *f = &window->at[i];
		unsigned k = 0, held;

		while (k < w->n && !is_same(&w->at[k], f, false))
			k++;
		if (k == WATCHED_MAX || (k < w->n && w->last[k] == w->windows))
			continue;
		held = k < w->n ? w->at[k].held : 0;
		if (k == w->n)
			w->n++;
		w->at[k] = *f;
		w->at[k].held = held + 1;
		w->last[k] = w->windows;
	}
}

/* Returns whether a finding of the list makes this one superfluous: it says the same, or
 * that the rank has not come at all. */
static bool is_said(const struct findings *all, const struct finding *f)
{
	for (unsigned i = 0; i < all->n; i++) {
		const struct finding *g = &all->at[i];

		if (is_same(g, f, true) || (f->rank && f->rank == g->rank && strcmp(f->job, g->job) == 0 &&
					    strcmp(f->id, "rank-late") == 0 && strcmp(g->id, "rank-missing") == 0))
			return true;
	}
	return false;
}

void doctor_watch_end(const struct doctor_watch *w, struct findings *ret)
{
	unsigned n;

	ret->n = 0;
	for (unsigned i = 0; i < w->n; i++)
		if (w->at[i].is_fact ? w->last[i] == w->windows : w->at[i].held * 4 >= w->windows * 3)
			findings_put(ret, &w->at[i]);
	n = ret->n;
	ret->n = 0;
	for (unsigned i = 0; i < n; i++) { /* the worst first */
		const struct finding f = ret->at[i];

		if (!is_said(ret, &f))
			ret->at[ret->n++] = f;
	}
}
