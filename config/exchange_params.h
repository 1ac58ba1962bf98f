/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker's exchange knows of the configuration. */
#ifndef RS_CONFIG_EXCHANGE_PARAMS_H
#define RS_CONFIG_EXCHANGE_PARAMS_H

#include "config/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* A reducer of the configuration. */
struct rs_reducer {
	char id[RS_NAME_MAX];         /* unique in the file; [A-Za-z0-9._-]+ */
	char address[RS_ADDRESS_MAX]; /* host:port the workers connect to over TCP */
	char grpc[RS_ADDRESS_MAX];    /* host:port of its gRPC port; the host of `address`, port 7601 if not given */
	double weight;                /* > 0; share of the shards if the map is made from weights */
	unsigned lanes;               /* connections each worker opens to it, 1..RS_LANES_MAX */
	bool lanes_auto;              /* lanes is computed from the bandwidth, not read from the file */
	char host[RS_HOST_MAX];       /* machine it runs on; that of its address if the file names none */
	uint32_t rtt_ms;              /* round trip to it; 0: measured */
	uint64_t bandwidth;           /* of that machine's link, bits a second each way; 0: not given */
	char tls_name[RS_HOST_MAX];   /* the name that its certificate must be for; "": the host of its address */
	bool shared;                  /* other reducers have the same address: it is a name of several machines */
};

/* In place of a relay: the shard's chunks go straight to the shard's reducer. */
#define RS_NO_RELAY UINT16_MAX

/* What happens to a contribution with NaN or infinity in it. */
enum rs_nonfinite { RS_NONFINITE_OFF, RS_NONFINITE_LOG, RS_NONFINITE_FAIL };

/* What follows if other shares of the reducers would save time. */
enum rs_rebalance { RS_REBALANCE_OFF, RS_REBALANCE_LOG, RS_REBALANCE_ON };

/* A part of struct rs_config, whose comments hold here too. All ranks of a job must have
 * the same digest. */
struct exchange_params {
	const struct rs_reducer *reducers; /* borrowed from the configuration, as are home and relays */
	unsigned reducers_n;
	const uint16_t *home; /* [shards]: index of the reducer that owns a shard in the map */
	unsigned shards;
	unsigned groups_n;        /* 0: no groups are declared */
	unsigned group;           /* index of this rank's group; set when a job is opened (config/group.h) */
	const uint16_t *relays;   /* [groups_n * shards]: index of the reducer that relays a shard for a group;
				     RS_NO_RELAY: none. Entry group * shards + shard; NULL without groups */
	unsigned uplinks;         /* most connections that relays have to a lane of a home; with groups */
	uint64_t relay_above;     /* bytes: smaller operations go straight home */
	uint64_t reducers_digest; /* rs_config_reducers_digest(); with groups */
	uint32_t chunk_bytes;
	unsigned window, priorities;
	unsigned ahead; /* most chunks without a result on a lane; more than `window`: the job is decoupled */
	bool deterministic, checksum, retain;
	unsigned min_reducers;
	uint32_t lead_most;         /* LEAD_MOST, which simulations lower */
	int detect_nonfinite;       /* enum rs_nonfinite */
	int rebalance;              /* enum rs_rebalance */
	uint8_t wire_up, wire_down; /* enum rs_wire: encodings of contributions and results */
	bool wire_random;           /* contributions are rounded at random, not to nearest */
	uint64_t bandwidth;         /* bits per second of a worker's link; 0: not known */
	uint32_t decoded_bytes;     /* most bytes of one decoded chunk on a reducer */
	uint64_t wire_feedback;     /* bytes for the residuals of error feedback; 0: none */
	bool grpc;
	const char *transport; /* "tcp", "tcp+tls", "grpc", "grpc+tls" */
	uint32_t detect_ms, op_ms;
	uint64_t digest; /* rs_config_digest() */
};

/* Returns the address that workers and agents connect to: the reducer's gRPC port with
 * job.transport: grpc. */
static inline const char *exchange_params_address(const struct exchange_params *p, const struct rs_reducer *reducer)
{
	return p->grpc ? reducer->grpc : reducer->address;
}

/* A rule for where shards live. */
typedef void (*exchange_params_place_fn)(const struct exchange_params *p, const uint32_t *lives, const uint32_t *shares,
					 uint16_t *owner, uint16_t *lane);

/* Where each shard lives while some reducers are dead: owner[shard] is an index in
 * reducers, lane[shard] a lane of it. Shards of living reducers stay; those of dead
 * ones go, in ascending order, each to the one that then has the smallest load for its
 * share of the map (D'Hondt's method; one without shards in the map counts as an
 * average one). A function of the map, the lanes and `lives` alone, since all ranks
 * have to come to the same end. lives[r] odd: dead. At least one reducer lives. shares:
 * the weight of each reducer, 1 to CONTROL_SHARE_MAX, of which the map is made anew;
 * NULL: the map is that of the configuration, as it is with fewer shards than reducers.
 * Both arrays have `shards` entries. */
void exchange_params_place(const struct exchange_params *p, const uint32_t *lives, const uint32_t *shares,
			   uint16_t *owner, uint16_t *lane);

/* The same in jobs with FEATURE_SLOTS: no reducer gets more than its part of all shards
 * by its share of the map among the living ones, rounded up. Shards of living reducers
 * stay; each of the others goes, in ascending order, to the reducer with the highest
 * score for it that has room (rendezvous hashing with bounded loads). So few shards move
 * when a reducer is lost or comes, apart from its own. */
void exchange_params_place_slots(const struct exchange_params *p, const uint32_t *lives, const uint32_t *shares,
				 uint16_t *owner, uint16_t *lane);

/* Where a group's chunks of each shard are added first: relay[shard] is a reducer, and
 * lane[shard] a lane of it, or relay[shard] is RS_NO_RELAY: they go straight home. owner:
 * as placed. A shard stays at its relay while that lives; those of dead relays go, in
 * ascending order, to the group's living relay that has the fewest, or home if none
 * lives. A function of the configuration and the view alone. */
void exchange_params_place_relays(const struct exchange_params *p, const uint32_t *lives, const uint16_t *owner,
				  uint16_t *relay, uint16_t *lane);

enum {
	RELAY_ABOVE = 64 << 10, /* two more hops would cost a smaller operation more than the bytes that they save */
	LEAD_PER_LINK = 8,      /* chunks for each connection in the lead of one building */
	LEAD_MOST = 512,        /* that lead at most, however many slots a job declares: 16 MiB of retained results */
	LONG_ROUND_TRIPS = 4,   /* bandwidth x round trip in flight at most: some for the repair of losses */
	LONG_BYTES = 32 << 20,  /* in flight at most if the bandwidth is not configured */
	LONG_BYTES_PER_S = 1250000000 /* bandwidth that is assumed then: the limit above ends it */
};

/* Returns the window that a worker with so many connections to reducers would use on one
 * with this round trip, at least the configured one. */
uint32_t exchange_params_window(const struct exchange_params *p, uint64_t rtt_us, unsigned links);
/* Returns the largest window that a worker has memory for because a link of another rank
 * is long: LONG_BYTES in flight on all its connections. */
uint32_t exchange_params_others_window(const struct exchange_params *p, unsigned links);
/* Returns by how many chunks a connection may be ahead of the slowest one, if the largest
 * window is this one. bounded: as jobs with FEATURE_SLOTS do. In a decoupled job a rank
 * may be ahead on all connections at once. */
uint64_t exchange_params_lead(const struct exchange_params *p, uint32_t window, unsigned links, bool bounded);

#endif
