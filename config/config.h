/* SPDX-License-Identifier: Apache-2.0 */
/* The YAML configuration of the reduction server, the agent and processes that open a
 * communicator directly.
 *
 * A file is parsed and validated once; later code takes `const struct rs_config *`. All
 * keys, with type, range, unit, default and help, are in one table (config/schema.c).
 * Parsing, `reductionctl print` and the reference documentation come from that table. */
#ifndef RS_CONFIG_CONFIG_H
#define RS_CONFIG_CONFIG_H

#include "common/error.h"
#include "common/stamp.h"
#include "config/exchange_params.h"
#include "config/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A rule: which workers may join which jobs. Used with certificates only. */
struct rs_access {
	char certificate[RS_GLOB_MAX]; /* a pattern for names in the certificate */
	char jobs[RS_GLOB_MAX];        /* a pattern for names of jobs */
	double weight;                 /* of each of their connections, in what reducers share among jobs */
};

/* A worker as the planner knows it; a job runs without such entries. */
struct rs_worker {
	char host[RS_HOST_MAX]; /* machine it runs on; worker-<index> if the file names none */
	uint64_t bandwidth;     /* as that of a reducer */
};

/* A network: the addresses whose first `bits` bits are the same. */
struct rs_network {
	uint8_t ip[16]; /* as in struct rs_endpoint; the bits behind the first ones are 0 */
	uint8_t bits;   /* 0 to 128; an IPv4 network has 96 or more */
};

/* A group of workers, such as those of a rack, for which some reducers relay. */
struct rs_group {
	char name[RS_NAME_MAX];       /* unique in the file; [A-Za-z0-9._-]+ */
	char *nodes;                  /* owned; host names of its workers (config/nodelist.h); NULL: none are given */
	struct rs_network *addresses; /* owned; in which its workers have an address; NULL: none are given */
	unsigned addresses_n;
};

/* How gradients are sent: their data type, or, of float32, the encoding. */
enum rs_plan_wire { RS_PLAN_FP32, RS_PLAN_BF16, RS_PLAN_FP16, RS_PLAN_FP8, RS_PLAN_INT8, RS_PLAN_INT4 };

/* The file that a configuration was read from. */
struct rs_config_source {
	char file[RS_PATH_LEN]; /* an absolute path; "": from elsewhere */
	struct rs_stamp stamp;  /* of its contents, or of earlier ones */
};

/* Whether a plan may have relays. */
enum rs_plan_relays { RS_PLAN_RELAYS_AUTO, RS_PLAN_RELAYS_OFF };

/* The configuration, after all checks of schema.c and config.c. */
struct rs_config {
	bool paranoid; /* not of the file: check all invariants after each turn of each loop */
	struct rs_config_source source;

	struct {
		char name[RS_NAME_MAX]; /* "": made from the run (run.h); else rs_name_valid() */
		bool deterministic;     /* sum in rank order */
		bool checksum;          /* checksum of every payload */
		bool retain;            /* survive the loss of reducers, if there are at least two */
		unsigned min_reducers;  /* reducers that must be there when a job starts; 0 ("all"): all of them */
		int detect_nonfinite;   /* enum rs_nonfinite */
		bool exact_partials;    /* a node sends its sums of 16-bit floats in float32 */
		uint8_t wire_up;        /* enum rs_wire: encoding of large contributions */
		uint8_t wire_down;      /* the same of results */
		bool wire_random;       /* contributions are rounded at random, not to nearest */
		uint64_t wire_feedback; /* bytes for the residuals of error feedback; 0: none */
		bool baseline;          /* use no feature that release 0.1 does not have */
		bool grpc;              /* workers and agents speak gRPC to the reducers, not TCP */
		unsigned max_ops;       /* operations one communicator may have in flight; further calls wait */
	} job;

	struct rs_reducer *reducers; /* owned; at least one: if the file has no such section, r0 at 127.0.0.1:7600 */
	unsigned reducers_n;

	struct {
		unsigned shards;      /* 1..RS_SHARDS_MAX */
		uint32_t chunk_bytes; /* RS_CHUNK_MIN..RS_CHUNK_MAX, multiple of 64 */
		bool chunk_auto;      /* chunk_bytes is computed from the links' bandwidths, not read from the file */
		unsigned window;      /* most chunks a worker may have in flight on a lane, 1..1024 */
		uint64_t
		    decoupled; /* bytes by which a rank may be ahead of the others, on all lanes together; 0: off */
		unsigned priorities; /* number of priorities, 1..RS_PRIORITIES_MAX */
		int rebalance;       /* enum rs_rebalance */
		uint16_t *owner;     /* owned; owner[shard] = index in reducers; `shards` entries */
	} sharding;

	struct rs_group *groups; /* owned; NULL: there are none; else at least two */
	unsigned groups_n;
	uint16_t *relays; /* owned; [groups_n * sharding.shards], as in struct exchange_params */

	struct {
		char listen[RS_ADDRESS_MAX]; /* address of this reducer; default 127.0.0.1:7600 */
		char grpc[RS_ADDRESS_MAX];   /* the same for gRPC; "": none */
		char http[RS_ADDRESS_MAX];   /* the same for HTTP; "": none */
		int http_tls;                /* enum tls_mode */
		unsigned lanes;     /* threads, 1..RS_LANES_MAX; 0 in the file ("auto") = online CPUs, at most 8 */
		bool lanes_auto;    /* lanes is computed from this machine's CPUs, not read from the file */
		char cpu[16];       /* kernels: auto, scalar, avx2, avx512, neon */
		bool insecure;      /* allow other addresses than loopback without authentication */
		bool http_insecure; /* the same without TLS, but only for HTTP */
		char secrets_dir[RS_PATH_LEN]; /* directory with the secret of each job; "": there is none */
		char state_dir[RS_PATH_LEN];   /* folder for records of jobs; "": $STATE_DIRECTORY */
		char notice[RS_PATH_LEN];      /* file that exists while the machine is about to end; "": none */
		char secret[RS_PATH_LEN];      /* file with the secret of all other jobs; "": there is none */
		unsigned max_jobs;             /* at once */
		unsigned max_workers;          /* ranks of one job */
		unsigned max_connections;      /* open at once */
		uint64_t memory_bytes;         /* of all jobs */
	} server;

	struct {
		char socket[RS_PATH_LEN]; /* default /run/reduction/agent.sock; a leading "$VAR" is not expanded */
		uint64_t shm_bytes;       /* shared memory that all local clients may use together */
		char cpu[16];
		char grpc[RS_ADDRESS_MAX]; /* address of the status service, or "unix:/path"; "": none */
		char http[RS_ADDRESS_MAX]; /* address for HTTP; "": none */
		int http_tls;              /* enum tls_mode */
		bool insecure;             /* allow HTTP on other addresses than loopback without TLS */
		unsigned max_jobs;         /* at once */
		bool single_node_reducers; /* reducers also sum a job that runs on one node, not the agent alone */
	} agent;

	struct {                     /* milliseconds */
		uint32_t connect_ms; /* until all ranks have joined on all reducers; start order does not matter */
		uint32_t
		    resolve_ms;     /* until a name that does not exist is an error; 0 ("auto"): rs_config_resolve_ms */
		uint32_t detect_ms; /* silence after which a peer counts as lost */
		uint32_t stopped_ms;   /* the same for a rank whose machine acknowledges */
		uint32_t handshake_ms; /* from accept to a complete HELLO */
		uint32_t op_ms;        /* an operation fails after this; 0 = never */
		uint32_t drain_ms;     /* SIGTERM: how long jobs may finish */
	} timeouts;

	struct {
		char secret[RS_PATH_LEN];      /* file with the job's secret, for workers and agents; "": none */
		char read_token[RS_PATH_LEN];  /* file with the token for reading the control service; "": none */
		char admin_token[RS_PATH_LEN]; /* file with the token for drain and reload; "": none */
		int tls;                       /* enum tls_mode of common/tls.h */
		char certificate[RS_PATH_LEN]; /* PEM file; "": none */
		char key[RS_PATH_LEN];         /* the same */
		char authority[RS_PATH_LEN];   /* the same; "": workers use the system's authorities */
	} security;

	struct {
		int level; /* enum rs_log_level */
		bool json;
	} logging;

	struct {                         /* for reductionctl plan */
		uint64_t bytes;          /* of the gradients as float32 */
		int wire;                /* enum rs_plan_wire */
		uint32_t step_ms;        /* computing time of a training step; 0: not given */
		unsigned workers;        /* 0 ("auto"): as many as in the list of workers */
		unsigned ranks_per_node; /* ranks of one worker */
		uint64_t bandwidth;      /* of machines for which none is given, bits a second each way; 0: not given */
		unsigned racks;
		uint64_t uplink;      /* of each rack, bits a second each way; 0: not given */
		unsigned spine;       /* machines that only reduce, in no rack */
		int relays;           /* enum rs_plan_relays */
		double price_uplink;  /* of a GB out of, and into, a rack; 0: not given */
		double price_worker;  /* of a worker's machine for an hour; 0: not given */
		double price_reducer; /* the same of a machine that only reduces */
	} plan;

	struct rs_worker *workers; /* owned; may be NULL */
	unsigned workers_n;

	struct rs_access *access; /* owned; NULL unless security.tls is mutual */
	unsigned access_n;
};

/* Reads and validates FILE (NULL: the defaults). On success *ret_cfg is initialized;
 * release it with rs_config_close(). Errors: RS_ECONFIG "file:line:column: key: what was
 * found, what was expected"; RS_EIO if the file cannot be read; RS_ENOMEM. Any thread. */
int rs_config_load(struct rs_config *ret_cfg, const char *file, struct rs_err *e);

/* Does the same with a text in memory; `name` stands for the file name in errors. */
int rs_config_parse(struct rs_config *ret_cfg, const char *name, const void *text, size_t len, struct rs_err *e);

/* Returns whether a group has a relay for any shard. */
bool rs_config_has_relays(const struct rs_config *cfg);

/* Returns the bytes of a chunk: what the file says, or, if that is `auto`, what suits its
 * bandwidths, with relays or without. */
uint32_t rs_config_chunk(const struct rs_config *cfg, bool relays);

/* Computes again what depends on bandwidths and relays and is `auto` in the file: lanes
 * of the reducers, and the chunk size. For programs that change bandwidths or relays. The
 * shard map stays. */
void rs_config_choose(struct rs_config *cfg);

/* Does the same, and calls report() for each error in the file, not only for the first;
 * *e is then one of them. Errors that concern the file as a whole, as YAML that cannot be
 * read, end it, and are in *e alone. */
int rs_config_parse_all(struct rs_config *ret_cfg, const char *name, const void *text, size_t len,
			void (*report)(void *user, const struct rs_err *e), void *user, struct rs_err *e);

/* Reads the text of a file (NULL: standard input), as much of it as a configuration may
 * have and one byte more. The caller frees *ret. Errors: RS_EIO, RS_ENOMEM. */
int rs_config_read(char **ret, size_t *ret_len, const char *file, struct rs_err *e);

/* Takes logging.level from the variable REDUCTION_LOG, if it is set. Errors: RS_ECONFIG
 * with what was found. */
int rs_config_take_log_level(struct rs_config *cfg, struct rs_err *e);

/* Takes job.wire from a text such as "fp8" or "up=fp8,down=bf16,rounding=stochastic",
 * where keys that are left out have their defaults; `from` names its source in errors.
 * Errors: RS_ECONFIG with what was found. */
int rs_config_take_wire(struct rs_config *cfg, const char *text, const char *from, struct rs_err *e);

/* Fills in the source of a file that is read afterwards. One that cannot be read again by
 * its path, such as a pipe, or a descriptor in /dev/fd, is from elsewhere. Any thread. */
void rs_config_source(struct rs_config_source *ret, const char *file);

/* Returns whether a job may start and run without some of its reducers: their entries are
 * slots. */
bool rs_config_has_slots(const struct rs_config *cfg);

/* Returns what names a reducer for as long as a job runs: its address or, as slots change
 * theirs, its id. */
const char *rs_config_lasting_name(const struct rs_config *cfg, const struct rs_reducer *reducer);

/* Takes over the addresses of a reducer from another reading of its file, which has it by
 * the same id or, by a change of its list, not at all. Returns whether they differ. */
bool rs_config_take_addresses(struct rs_reducer *reducer, const struct rs_config *fresh);

void rs_config_close(struct rs_config *cfg);

/* Returns the time after which a reducer's name that does not exist is an error at the
 * start of a job. */
uint32_t rs_config_resolve_ms(const struct rs_config *cfg);

/* Returns the address that workers and agents connect to: the reducer's gRPC port with
 * job.transport: grpc. */
static inline const char *rs_config_address(const struct rs_config *cfg, const struct rs_reducer *reducer)
{
	return cfg->job.grpc ? reducer->grpc : reducer->address;
}

/* Writes the effective configuration as YAML that parses back to the same struct; the map
 * as ranges. */
void rs_config_print(const struct rs_config *cfg, FILE *out);

/* Writes the section `sharding` with the complete map, and `groups` if there are some, as
 * rs_config_print does. */
void rs_config_print_sharding(const struct rs_config *cfg, FILE *out);

/* Writes the reference of all keys in Markdown, from the table of keys. */
void rs_config_reference(FILE *out);

/* A number that is equal on two ranks exactly when their reducers (ids, lanes, order),
 * shards, owners, chunk size, window, priorities, determinism and checksum setting are:
 * what all ranks of a job must agree on. Addresses may differ. It is a chain of XXH3-64,
 * each step seeded by the one before, the first by 0: deterministic, checksum,
 * chunk_bytes, window, priorities, number of reducers, then for each reducer the bytes of
 * its id and its lanes, then the number of shards and each shard's owner as an index. If
 * there are groups: their number, then for each the bytes of its name and its relay of
 * each shard, RS_NO_RELAY for none. Numbers as 8 bytes, little-endian. */
uint64_t rs_config_digest(const struct rs_config *cfg);

/* Returns a digest of the number and the ids of the reducers: with it a relay finds out
 * whether a job counts reducers as it does. */
uint64_t rs_config_reducers_digest(const struct rs_config *cfg);

/* Returns the part that a worker's exchange needs; it borrows from cfg. */
struct exchange_params rs_config_exchange(const struct rs_config *cfg);

/* Returns whether a certificate with these names (separated by commas, as common/tls.h
 * gives them) may join a job: the `certificate` of a rule matches one of them, and its
 * `jobs` the job. Case matters in names of jobs only. */
const struct rs_access *rs_config_may_join(const struct rs_access *rules, unsigned n, const char *names,
					   const char *job);

/* Returns the name that the reducer's certificate must be for: its tls_name, else the
 * host of its address. */
void rs_config_tls_name(const struct rs_reducer *r, char ret[RS_HOST_MAX]);

/* Returns the lane of its reducer on which a shard lives: its index among that reducer's
 * shards, modulo the lanes. */
unsigned rs_config_lane(const struct rs_config *cfg, unsigned shard);

/* Returns how many chunks a worker may have without a result on a lane: `window`, or more
 * with `decoupled`, so that the lane with the most shards has room for its part. Not
 * limited to RS_WINDOW_MAX. */
uint64_t rs_config_ahead(const struct rs_config *cfg);

#endif
