/* SPDX-License-Identifier: Apache-2.0 */
/* What the links of a job's machines allow, and the shard map that comes closest to it.
 *
 * n workers reduce S bytes; machine m has w(m) workers and reducers that own the share
 * x(m) of all shards. A worker sends each reducer its share of S and gets as much back,
 * except what stays on its machine, so that m receives, and sends, (w(m) + (n - 2 w(m))
 * x(m)) S bytes. The same holds for a rack and its uplink, with the workers and shares of
 * all its machines. Links are full duplex, so an all-reduce takes as long as the slowest
 * link needs for that. The best shares are those for which this is least; all x(m) >= 0
 * and their sum is 1.
 *
 * With several racks reducers may also relay for the workers of their rack: relays.h.
 *
 * A plan is made in this order: net.c (machines, racks, loads of links) -> shares.c (the
 * best shares, by bisection of the time), relays.c (the best parts with relays, by a
 * linear program: kinds.c, lp.c), times.c (the faster of both) -> whole.c, relay_map.c
 * (whole shards) -> needed.c (how many machines that only reduce suffice), far.c (long
 * links), racks.c (other ways between racks), estimate.c (steps, prices, cores, memory)
 * -> verdict.c (a sentence) -> print.c, print_racks.c, print_far.c, print_json.c. plan.c
 * calls them. outline.c says what can be said without the number of workers or the
 * bandwidth, sharded.c what sharded training gains.
 *
 * Any thread; nothing here does I/O but printing. Times are seconds, for one byte where
 * they are "of a network". */
#ifndef RS_DEPLOY_CTL_PLAN_PLAN_H
#define RS_DEPLOY_CTL_PLAN_PLAN_H

#include "common/error.h"
#include "common/socket_buffer.h"
#include "common/wire.h"
#include "config/config.h"
#include "config/exchange_params.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { PLAN_SHARDS_LEAST = 64, PLAN_SHARDS_MAX = 1024 };

/* The factor by which reducers must be faster than a ring to be worth it; the tolerance
 * of times. */
static const double plan_gain_min = 1.02, plan_slack = 1e-9;

/* Limit for the factor by which whole shards make an all-reduce slower. */
static const double plan_rounding_max = 1.02;

/* A machine and its link. */
struct plan_machine {
	char host[RS_HOST_MAX];
	double rate;                /* bytes a second, each way; > 0 */
	unsigned workers, reducers; /* on it; not both 0 */
	unsigned in;                /* 1 + the rack that the file's groups give; 0: none */
};

/* A rack: its workers, and its machines as a part of the network's `order`. */
struct plan_rack {
	unsigned workers, first, machines_n;
};

/* All machines: those of the workers first, by rank, then the others in the order of
 * their reducers. Those that the file's groups place in no rack are placed in this
 * order: machines with workers are spread over the racks, the last `spine` others are
 * in no rack, those before them are dealt to the racks in turn. The machines at the
 * spine are a place behind the racks, which has no uplink. */
struct plan_net {
	struct plan_machine *machine; /* owned */
	unsigned machines_n;
	unsigned workers;       /* the sum over all machines, >= 2 */
	struct plan_rack *rack; /* owned; places_n of them */
	unsigned racks_n;       /* >= 1 */
	unsigned spine;         /* machines without workers at the spine; 0 if there is one rack */
	unsigned places_n;      /* racks_n, and 1 for the spine if it has machines */
	unsigned *order;        /* owned; all machines, place by place */
	double uplink;          /* of each rack, bytes a second each way; > 0 if there are several */
};

/* Makes the network from plan, workers and reducers of a configuration. on[r] becomes the
 * machine of reducer r, for cfg->reducers_n of them. Release it with plan_net_close().
 * Errors: RS_ECONFIG for missing or contradicting values; RS_ENOMEM. */
int plan_net_init(struct plan_net *ret, unsigned *on, const struct rs_config *cfg, struct rs_err *e);
void plan_net_close(struct plan_net *net);

/* Fills rack, places_n and order, which are not set yet, from the machines, racks_n and
 * spine. Errors: RS_ENOMEM, then the network must be closed. */
int plan_net_spread(struct plan_net *net, struct rs_err *e);

/* Returns what a machine or rack with these workers and this share receives, and sends,
 * as a multiple of S. */
double plan_load(const struct plan_net *net, unsigned workers, double share);

/* Returns the share of a rack if the reducers of machine m have share[m]. */
double plan_rack_share(const struct plan_net *net, unsigned rack, const double *share);

/* Return the time of a network in which the reducers of machine m have share[m], and the
 * parts that its machines' links and its racks' uplinks (0 if there is one rack) need of
 * it. */
double plan_time(const struct plan_net *net, const double *share);
double plan_links_time(const struct plan_net *net, const double *share);
double plan_uplinks_time(const struct plan_net *net, const double *share);

/* Return the time of a ring in which each worker has that many members, and the least
 * time of any scheme: each machine with workers, and each rack, must send S once. 0 if
 * all workers are on one machine. */
double plan_ring(const struct plan_net *net, unsigned ranks);
double plan_least(const struct plan_net *net);

/* Returns the least time, as a multiple of S divided by the links' rate, if all links are
 * equal: n >= 2 workers on a machine each, g of which have a reducer too, and k >= 0
 * machines that only reduce; k + g > 0. */
double plan_equal_time(unsigned n, unsigned k, unsigned g);

/* Computes the best shares: share[m], 0 if machine m has no reducer. If several are
 * equally fast, the share of each machine of a rack, and of each rack, is in proportion
 * to the most that it could take. At least one machine must have a reducer. */
void plan_best(const struct plan_net *net, double *share);

/* Computes the least time of the network: with relays, if they are allowed and faster
 * by at least plan_gain_min, which *ret_relays tells. share[machines_n] is scratch.
 * Errors: RS_ENOMEM. */
int plan_fastest(const struct plan_net *net, bool may_relay, double *share, double *ret_time, bool *ret_relays,
		 struct rs_err *e);

/* Ways to all-reduce between racks. */
enum plan_way {
	PLAN_RING,        /* a ring of the workers, rack by rack */
	PLAN_RANDOM_RING, /* a ring of the workers in random order, on average */
	PLAN_2D_RING,     /* rings in each rack, then across the racks, pipelined */
	PLAN_FLAT,        /* the reducers of the plan without relays */
	PLAN_RELAYS,      /* the plan, if it has relays */
	PLAN_WAYS
};

/* What a way needs. */
struct plan_cost {
	double time;   /* of an all-reduce; 0: the way does not exist */
	double uplink; /* the most that an uplink carries each way, as a multiple of the gradients */
	double leave;  /* bytes that leave a rack, or the spine, in an all-reduce, all together */
	double price;  /* of 1000 all-reduces; 0: no price is given */
};

/* Whether reducers help, with the reason. */
enum plan_reason {
	PLAN_ONE_MACHINE,   /* no: the workers need no network */
	PLAN_RING_IS_LEAST, /* no: a ring already takes the least possible time */
	PLAN_SLOWER,        /* no: a ring is as fast or faster */
	PLAN_COMPUTE_BOUND, /* no: the all-reduce is too small a part of a step */
	PLAN_TOO_DEAR,      /* no: the reducers cost more than the time that they save */
	PLAN_IF_NOT_HIDDEN, /* yes, unless the all-reduce overlaps with computing anyway */
	PLAN_FASTER,        /* yes */
};

/* A value with a ring and with reducers. */
struct plan_pair {
	double ring, reducers;
};

/* How much of the all-reduce runs while the step computes. */
enum plan_overlap { PLAN_NO_OVERLAP, PLAN_FULL_OVERLAP, PLAN_OVERLAPS };

/* What one reducer needs: the one with the most work, at the plan's speed. */
struct plan_needs {
	double cores_least, cores_most; /* busy during an all-reduce */
	double cpu_least, cpu_most;     /* measured: CPU seconds for each GiB that workers send */
	unsigned lanes;                 /* its threads, so the most cores that it can use */
	uint64_t memory;                /* bytes, for this job */
	unsigned ahead;                 /* decoupled ranks: chunks without a result on a lane; 0: they are not */
	uint64_t retained;              /* then the bytes of each worker for retained results; 0: it retains none */
};

/* Buffers of TCP sockets: net.ipv4.tcp_rmem and tcp_wmem. */
struct plan_sockets {
	bool read;                 /* from this machine; otherwise Linux's defaults */
	uint64_t rmem[3], wmem[3]; /* bytes: least, default, most */
};

/* What links with a long round trip cost and need, at the speed of the plan. */
struct plan_far {
	double rtt;           /* the longest round trip, seconds; 0: no link is long, nothing else is known */
	double time;          /* of an all-reduce, as far as windows limit it */
	unsigned connections; /* of each worker */
	uint32_t window;      /* chunks in flight on one of them at most */
	double product;       /* bytes that a worker must have in flight: bandwidth x round trip */
	double flight;        /* bytes that it may have in flight */
	double product_each;  /* the same as product, of the connection with the most */
	uint64_t retained;    /* bytes of each worker for retained results; 0: it retains none */

	/* set by plan_far_sockets() */
	struct plan_sockets sockets;
	double socket;      /* bytes in flight for which a connection has room */
	double socket_time; /* of an all-reduce with them; 0: they are large enough */
	unsigned lanes;     /* of each reducer with which they would be; 0: no number is */
};

/* The result. All times are of one all-reduce of `sent` bytes. Invariant: the sum of
 * count is the number of shards; owned arrays have reducers_n, machines or shards
 * elements. */
struct plan {
	struct plan_net net;
	unsigned *on;    /* owned; machine of each reducer */
	unsigned *count; /* owned; shards of each reducer, may be 0 */
	double *share;   /* owned; of each machine in this map: the shards of its reducers divided by all shards */
	uint16_t *owner; /* owned; reducer of each shard */
	unsigned shards, reducers_n;

	unsigned *relayed;     /* owned; shards that each reducer relays for its rack, may be 0 */
	uint16_t *relay;       /* owned; [racks_n * shards]: reducer that relays a shard for a rack, RS_NO_RELAY: none;
				  NULL: the plan has no relays */
	double *load;          /* owned; what each machine's link carries each way, as a multiple of S */
	double *uplink;        /* owned; the same of each rack's uplink, and of all links to the spine */
	double *work;          /* owned; what each reducer receives, from its own machine too, as a multiple of S */
	bool may_relay;        /* relays were considered */
	const char *no_relays; /* why they were not, if nobody asked for that; else NULL */

	uint64_t bytes;                     /* of the gradients in float32 */
	double sent;                        /* bytes that each worker sends to reducers */
	double elements;                    /* bytes of the gradients as a ring sends them */
	unsigned up, down;                  /* enum rs_wire: encodings between workers and reducers */
	const char *ring_name;              /* "a ring", or a ring of what */
	unsigned ranks;                     /* of one worker */
	double step;                        /* 0: not given */
	double price_worker, price_reducer; /* of a machine for an hour; price_worker 0: not given */

	double time, optimum; /* with this map; without rounding to whole shards */
	double ring, least;   /* as plan_ring() with one member, and plan_least() */
	double ring_ranks;    /* as plan_ring() with all ranks as members */
	double flat;          /* as `optimum`, without relays */
	double mixed;         /* the best time if each worker's machine had a reducer too */
	double dedicated;     /* the best time with only the machines without workers; 0: there are none */
	unsigned dedicated_n; /* machines without workers */
	double at_spine;      /* the best time with spine_n machines at the spine instead of the racks; 0: not faster */
	unsigned spine_n;

	struct plan_cost way[PLAN_WAYS]; /* all 0 if there is one rack */
	double price_uplink;             /* of a GB that leaves, and again of one that enters, a rack; 0: not given */

	/* how many machines that only reduce suffice, instead of all reducers; their
	 * links have needed_rate, bytes a second: that of the best such machine, or of
	 * the slowest worker */
	double needed_rate;
	unsigned needed_ring, needed_least; /* to be faster than a ring, for the least time; 0: no number suffices */
	unsigned needed_same;               /* for `optimum`; 0: no number suffices */

	struct plan_pair steps[PLAN_OVERLAPS]; /* time of a step; 0 if that of computing is not given */
	struct plan_pair cost[PLAN_OVERLAPS];  /* of 1000 steps; 0 if prices or the step's time are not given */
	struct plan_needs needs;
	struct plan_far far;
	enum plan_reason reason;
	char verdict[800]; /* a sentence that begins with "yes" or "no"; its parts are separated by "; " */
};

/* Plans for cfg; ignores the map of cfg. Release it with plan_close(). Errors: those of
 * plan_net_init(). */
int plan_make(struct plan *ret, const struct rs_config *cfg, struct rs_err *e);
void plan_close(struct plan *p);

/* Fills all times but `time`, dedicated_n and spine_n from the network and the sizes, and
 * best[machines_n] with the best shares. *ret_relays: whether relays are faster. Errors:
 * RS_ENOMEM. */
int plan_times(struct plan *p, double *best, bool *ret_relays, struct rs_err *e);

/* Fills the map of a plan without relays from the best shares: shards, count, share,
 * owner, load, uplink, work and time. Errors: RS_ENOMEM. */
int plan_whole(struct plan *p, const double *best, const struct rs_config *cfg, struct rs_err *e);

/* Fills way. Errors: RS_ENOMEM. */
int plan_ways(struct plan *p, struct rs_err *e);

/* Fills needed_* from the fields before them. Errors: RS_ENOMEM. */
int plan_count_needed(struct plan *p, struct rs_err *e);

/* Returns the bytes of each worker for retained results, if the largest window is this
 * one; 0: it retains none. */
uint64_t plan_retained(const struct plan *p, const struct rs_config *cfg, uint32_t window);

/* Fills far from the fields before it. */
void plan_far(struct plan *p, const struct rs_config *cfg);

/* Fills the rest of far for these socket buffers. */
void plan_far_sockets(struct plan *p, const struct rs_config *cfg, const struct plan_sockets *s);

/* Returns the socket buffer, in whole MiB, that has room for twice what a connection must
 * have in flight. */
uint64_t plan_far_buffer(const struct plan *p);

/* Fills steps, cost and needs from the fields before them. */
void plan_estimate(struct plan *p, const struct rs_config *cfg);

/* Fills reason and verdict from the fields before them. */
void plan_verdict(struct plan *p);

/* Gives cfg the plan's shard map and relays. If there are relays but no groups, it makes
 * one of each rack, with the names of its workers' machines. If the groups were not the
 * racks of the plan, it deals their relays anew. Errors: RS_ENOMEM. */
int plan_apply(const struct plan *p, struct rs_config *cfg, struct rs_err *e);

/* Returns the word for a reason in JSON. */
const char *plan_reason_name(enum plan_reason reason);

/* Write seconds and bytes for people: "8.39 ms", "1.5 GB". */
void plan_format_time(double seconds, char *buf, size_t size);
void plan_format_bytes(double bytes, char *buf, size_t size);

/* Writes the result as text, each line after `prefix`, or everything as one JSON object.
 * cfg is the configuration of the plan. */
void plan_print(const struct plan *p, const struct rs_config *cfg, const char *prefix, FILE *out);
void plan_print_json(const struct plan *p, const struct rs_config *cfg, FILE *out);

/* The parts about long links of both; nothing, and null, if there are none. */
void plan_print_far(const struct plan *p, const struct rs_config *cfg, const char *prefix, FILE *out);
void plan_print_far_json(const struct plan *p, FILE *out);

/* A way of sharded training. */
enum plan_sharded_kind { PLAN_FSDP, PLAN_ZERO1, PLAN_ZERO2, PLAN_ZERO3, PLAN_HSDP, PLAN_SHARDED_NR };

/* Times of its operations, each of all parts together, and of what a step sends in
 * all. */
struct plan_sharded {
	enum plan_sharded_kind kind;
	struct plan_pair scatter, gather, both, all_reduce; /* both: a scatter and a gather at once */
	struct plan_pair step;
	struct plan_pair steps[PLAN_OVERLAPS]; /* time of a step; 0 if that of computing is not given */
};

/* Finds a kind by its name. Returns false if there is none. */
bool plan_sharded_find(const char *name, enum plan_sharded_kind *ret);
void plan_sharded(struct plan_sharded *ret, const struct plan *p, enum plan_sharded_kind kind);
/* As plan_print() and plan_print_json(). */
void plan_sharded_print(const struct plan_sharded *s, const struct plan *p, const char *prefix, FILE *out);
void plan_sharded_print_json(const struct plan_sharded *s, const struct plan *p, FILE *out);

/* Returns whether cfg lacks the number of workers or all bandwidths, so that only
 * plan_outline_print() can say something. */
bool plan_is_outline(const struct rs_config *cfg);

/* Writes how times depend on the number of workers, relative to the time of one link,
 * with the reducers of cfg, or with as many as workers if as_many. */
void plan_outline_print(const struct rs_config *cfg, bool as_many, FILE *out);
void plan_outline_print_json(const struct rs_config *cfg, bool as_many, FILE *out);

#endif
