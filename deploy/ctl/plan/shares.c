/* SPDX-License-Identifier: Apache-2.0 */
/* The best shares. For a given time the link of each machine, and the uplink of each
 * rack, allow a range of shares. The shares exist if 1 is between the sums of these
 * ranges; the least time for which it is is found by bisection. */
#include "deploy/ctl/plan/plan.h"

#include <math.h>

/* Halvings of the interval in which the least time is; a double has 53 bits. */
enum { HALVINGS = 100 };

struct range {
	double least, most;
};

/* Computes the shares with which the link of a place with this many workers carries no
 * more than `capacity`, as a multiple of S. False: there is none. */
static bool range_of(const struct plan_net *net, unsigned workers, double capacity, struct range *ret)
{
	double each = net->workers - 2.0 * workers, room = capacity - workers;

	*ret = (struct range){0, 1};
	if (each > 0)
		ret->most = fmin(1, room / each);
	else if (each < 0) /* more than half of the workers are here: the larger the share, the less leaves the place */
		ret->least = fmax(0, room / each);
	else
		return room >= 0;
	return ret->least <= 1 && ret->most >= 0;
}

static bool machine_range(const struct plan_net *net, unsigned m, double time, struct range *ret)
{
	const struct plan_machine *machine = &net->machine[m];

	if (!range_of(net, machine->workers, time * machine->rate, ret))
		return false;
	if (machine->reducers)
		return true;
	ret->most = 0;
	return ret->least <= 0;
}

/* Computes the range of a rack, and the sum of the ranges of its machines. */
static bool rack_range(const struct plan_net *net, unsigned r, double time, struct range *ret, struct range *ret_sum)
{
	const struct plan_rack *rack = &net->rack[r];
	struct range own, sum = {0, 0};

	for (unsigned i = 0; i < rack->machines_n; i++) {
		if (!machine_range(net, net->order[rack->first + i], time, &own))
			return false;
		sum.least += own.least;
		sum.most += own.most;
	}
	*ret = *ret_sum = sum;
	if (net->racks_n == 1 || r == net->racks_n)
		return true;
	if (!range_of(net, rack->workers, time * net->uplink, &own))
		return false;
	ret->least = fmax(sum.least, own.least);
	ret->most = fmin(sum.most, own.most);
	return ret->least <= ret->most;
}

static bool net_range(const struct plan_net *net, double time, struct range *ret)
{
	struct range own, sum;

	*ret = (struct range){0, 0};
	for (unsigned r = 0; r < net->places_n; r++) {
		if (!rack_range(net, r, time, &own, &sum))
			return false;
		ret->least += own.least;
		ret->most += own.most;
	}
	return ret->least <= 1 && ret->most >= 1;
}

/* Returns the part of the way from least to most at which a range has this value. */
static double part_of(struct range range, double value)
{
	return range.most > range.least ? fmin(1, fmax(0, (value - range.least) / (range.most - range.least))) : 0;
}

static double within(struct range range, double part)
{
	return range.least + (range.most - range.least) * part;
}

void plan_best(const struct plan_net *net, double *share)
{
	double low = 0, high = 1 / net->machine[0].rate;
	struct range all, rack, sum, own;

	while (!net_range(net, high, &all))
		high *= 2;
	for (unsigned i = 0; i < HALVINGS; i++) {
		double middle = (low + high) / 2;

		if (net_range(net, middle, &all))
			high = middle;
		else
			low = middle;
	}
	net_range(net, high, &all);
	for (unsigned r = 0; r < net->places_n; r++) {
		double part;

		rack_range(net, r, high, &rack, &sum);
		part = part_of(sum, within(rack, part_of(all, 1)));
		for (unsigned i = 0; i < net->rack[r].machines_n; i++) {
			unsigned m = net->order[net->rack[r].first + i];

			machine_range(net, m, high, &own);
			share[m] = within(own, part);
		}
	}
}
