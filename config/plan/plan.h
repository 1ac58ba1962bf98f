/* SPDX-License-Identifier: Apache-2.0 */
/* What the links of a job's machines allow, and the shard map that comes closest to it.
 *
 * n workers reduce S bytes; machine m has w(m) workers and reducers that own the share x(m) of all shards. A worker
 * sends each reducer its share of S and gets as much back, except what stays on its machine, so that m receives, and
 * sends, (w(m) + (n - 2 w(m)) x(m)) S bytes. Links are full duplex, so an all-reduce takes as long as the slowest link
 * needs for that. The shares for which this is least are a closed form where all links are equal, else the solution of
 * a linear program: minimize T so that no link needs longer, all x(m) >= 0 and their sum is 1.
 *
 * Any thread; nothing here does I/O but printing. Times are seconds, for one byte where they are "of a network". */
#ifndef RS_CONFIG_PLAN_PLAN_H
#define RS_CONFIG_PLAN_PLAN_H

#include "common/error.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { PLAN_SHARDS_MAX = 1024 };

/* A machine and its link. */
struct plan_machine {
	char host[RS_HOST_MAX];
	double rate;                /* bytes a second, each way; > 0 */
	unsigned workers, reducers; /* on it; not both 0 */
};

/* All machines: those of the workers first, by rank, then the others in the order of their reducers. */
struct plan_net {
	struct plan_machine *machine; /* owned */
	unsigned machines_n;
	unsigned workers; /* the sum over all machines, >= 2 */
};

/* Makes the network from plan, workers and reducers of a configuration. on[r] becomes the machine of reducer r, for
 * cfg->reducers_n of them. Release it with plan_net_close(). Errors: RS_ECONFIG for missing or contradicting values;
 * RS_ENOMEM. */
int plan_net_init(struct plan_net *ret, unsigned *on, const struct rs_config *cfg, struct rs_err *e);
void plan_net_close(struct plan_net *net);

/* Returns what a machine whose reducers have this share of the shards receives, and sends, as a multiple of S. */
double plan_load(const struct plan_net *net, unsigned machine, double share);

/* Returns the time of a network in which the reducers of machine m have share[m]. */
double plan_time(const struct plan_net *net, const double *share);

/* Return the time of a ring of the workers, and the least time of any scheme: each machine with workers must send S
 * once. 0 if all workers are on one machine. */
double plan_ring(const struct plan_net *net);
double plan_least(const struct plan_net *net);

/* Returns the least time, as a multiple of S divided by the links' rate, if all links are equal: n >= 2 workers on a
 * machine each, g of which have a reducer too, and k >= 0 machines that only reduce; k + g > 0. */
double plan_equal_time(unsigned n, unsigned k, unsigned g);

/* Computes the least time of a network by linear programming. Errors: RS_EUNSUPPORTED if built without a library for
 * it; RS_EINTERNAL if that library fails. */
int plan_lp(const struct plan_net *net, double *ret_time, struct rs_err *e);

/* Computes the best shares: share[m], 0 if machine m has no reducer. If several are equally fast, each machine's share
 * is in proportion to the most that it could take. Errors: those of plan_lp(). */
int plan_best(const struct plan_net *net, double *share, struct rs_err *e);

/* Whether reducers help, with the reason. */
enum plan_reason {
	PLAN_ONE_MACHINE,   /* no: the workers need no network */
	PLAN_RING_IS_LEAST, /* no: a ring already takes the least possible time */
	PLAN_SLOWER,        /* no: a ring is as fast or faster */
	PLAN_COMPUTE_BOUND, /* no: the all-reduce is too small a part of a step */
	PLAN_IF_NOT_HIDDEN, /* yes, unless the all-reduce overlaps with computing anyway */
	PLAN_FASTER,        /* yes */
};

/* The result. All times are of one all-reduce of `bytes`. Invariant: the sum of count is the number of shards; owned
 * arrays have reducers_n, machines or shards elements. */
struct plan {
	struct plan_net net;
	unsigned *on;    /* owned; machine of each reducer */
	unsigned *count; /* owned; shards of each reducer, may be 0 */
	double *share;   /* owned; of each machine in this map: the shards of its reducers divided by all shards */
	uint16_t *owner; /* owned; reducer of each shard */
	unsigned shards, reducers_n;

	uint64_t bytes;
	double step;          /* 0: not given */
	double time, optimum; /* with this map; without rounding to whole shards */
	double ring, least;   /* as plan_ring() and plan_least() */
	double mixed;         /* the best time if each worker's machine had a reducer too */
	double dedicated;     /* the best time with only the machines without workers; 0: there are none */
	double needed_rate;   /* of the machines that the next line counts, bytes a second */
	unsigned needed_ring, needed_least; /* machines that only reduce: to be faster than a ring, to reach `least`; 0:
					       no number suffices */
	enum plan_reason reason;
	char verdict[512]; /* a sentence that begins with "yes" or "no" */
};

/* Plans for cfg; ignores the map of cfg. Release it with plan_close(). Errors: those of plan_net_init() and
 * plan_best(). */
int plan_make(struct plan *ret, const struct rs_config *cfg, struct rs_err *e);
void plan_close(struct plan *p);

/* Fills needed_* and the verdict from the fields before them. */
void plan_verdict(struct plan *p);

/* Gives cfg the plan's shard map. Errors: RS_ENOMEM. */
int plan_apply(const struct plan *p, struct rs_config *cfg, struct rs_err *e);

/* Returns the word for a reason in JSON. */
const char *plan_reason_name(enum plan_reason reason);

/* Writes seconds for people: "8.39 ms". */
void plan_format_time(double seconds, char *buf, size_t size);

/* Writes the result as YAML comments, or everything as one JSON object. cfg is the configuration of the plan. */
void plan_print(const struct plan *p, const struct rs_config *cfg, FILE *out);
void plan_print_json(const struct plan *p, const struct rs_config *cfg, FILE *out);

#endif
