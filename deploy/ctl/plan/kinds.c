/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/plan/kinds.h"

#include <math.h>
#include <stdlib.h>

/* Appends the pools of a place behind those of the kinds so far. Returns their number. */
static unsigned append_pools(struct plan_kinds *k, const struct plan_net *net, unsigned place)
{
	struct plan_pool *pool = &k->pool[k->pools_n];
	unsigned n = 0;

	for (unsigned i = 0; i < net->rack[place].machines_n; i++) {
		const struct plan_machine *machine = &net->machine[net->order[net->rack[place].first + i]];
		unsigned p = 0;

		if (machine->reducers == 0)
			continue;
		while (p < n && pool[p].workers != machine->workers)
			p++;
		if (p == n)
			pool[n++] = (struct plan_pool){
			    .kind = k->kinds_n, .workers = machine->workers, .slowest = machine->rate};
		pool[p].machines_n++;
		pool[p].rate += machine->rate;
		pool[p].slowest = fmin(pool[p].slowest, machine->rate);
	}
	return n;
}

static bool is_alike(const struct plan_pool *a, const struct plan_pool *b)
{
	return a->machines_n == b->machines_n && a->workers == b->workers && a->rate == b->rate &&
	       a->slowest == b->slowest;
}

/* Gives a place its kind, a new one if it is like no place before it. */
static void find_kind(struct plan_kinds *k, const struct plan_net *net, unsigned place)
{
	struct plan_kind own = {.first = place,
				.workers = net->rack[place].workers,
				.pool = k->pools_n,
				.pools_n = append_pools(k, net, place)};
	unsigned i, p = 0;

	for (i = 0; i < k->kinds_n; i++) {
		const struct plan_kind *kind = &k->kind[i];

		if (kind->workers != own.workers || kind->pools_n != own.pools_n)
			continue;
		for (p = 0; p < own.pools_n; p++)
			if (!is_alike(&k->pool[kind->pool + p], &k->pool[own.pool + p]))
				break;
		if (p == own.pools_n)
			break;
	}
	if (i == k->kinds_n) {
		k->kind[k->kinds_n++] = own;
		k->pools_n += own.pools_n;
	}
	k->kind[i].n++;
	k->kind_of[place] = i;
}

int plan_kinds_init(struct plan_kinds *ret, const struct plan_net *net, struct rs_err *e)
{
	struct plan_kinds k = {.kinds_n = 0};

	k.kind = calloc(net->places_n, sizeof *k.kind);
	k.pool = calloc(net->machines_n, sizeof *k.pool);
	k.kind_of = calloc(net->places_n, sizeof *k.kind_of);
	if (!k.kind || !k.pool || !k.kind_of) {
		plan_kinds_close(&k);
		return rs_oom(e, 0, "the kinds of %u machines", net->machines_n);
	}
	for (unsigned q = 0; q < net->places_n; q++)
		find_kind(&k, net, q);
	*ret = k;
	return RS_OK;
}

void plan_kinds_close(struct plan_kinds *k)
{
	free(k->kind);
	free(k->pool);
	free(k->kind_of);
}

unsigned plan_kinds_pool(const struct plan_kinds *k, unsigned place, const struct plan_machine *machine)
{
	unsigned p = k->kind[k->kind_of[place]].pool;

	while (k->pool[p].workers != machine->workers)
		p++;
	return p;
}

unsigned plan_kinds_others(const struct plan_kinds *k, unsigned kind, unsigned beside)
{
	return k->kind[kind].n - (kind == beside);
}
