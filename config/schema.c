/* SPDX-License-Identifier: Apache-2.0 */
#include "config/schema.h"

#include "config/config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* Milliseconds of the longest durations. */
#define MINUTES(n) ((uint64_t)(n)*60000)

static const char *const cpu_words[] = {"auto", "scalar", "avx2", "avx512", "neon", NULL};
static const char *const partials_words[] = {"rounded", "exact", NULL};
static const char *const features_words[] = {"all", "baseline", NULL};
static const char *const failover_words[] = {"fail", "retain", NULL};
static const char *const nonfinite_words[] = {"off", "log", "fail", NULL}; /* as enum rs_nonfinite */
static const char *const rebalance_words[] = {"off", "log", "on", NULL};   /* as enum rs_rebalance */
static const char *const single_node_words[] = {"local", "reducers", NULL};
static const char *const transport_words[] = {"tcp", "grpc", NULL};
static const char *const level_words[] = {"error", "warn", "info", "debug", "trace", NULL}; /* as enum rs_log_level */
static const char *const tls_words[] = {"off", "on", "mutual", NULL};                       /* as enum tls_mode */
static const char *const wire_words[] = {"same", "bf16", "fp8", "int8", "fp16", "int4", NULL}; /* as enum rs_wire */
static const char *const rounding_words[] = {"nearest", "stochastic", NULL};
static const char *const plan_wire_words[] = {"fp32", "bf16", "fp16", "fp8",
					      "int8", "int4", NULL};  /* as enum rs_plan_wire */
static const char *const plan_relays_words[] = {"auto", "off", NULL}; /* as enum rs_plan_relays */
static const char *const format_words[] = {"text", "json", NULL};

#define LIST(array, least, most)                                                                                       \
	.item_size = sizeof(*((struct rs_config *)0)->array), .items = offsetof(struct rs_config, array),              \
	.count = offsetof(struct rs_config, array##_n), .min = (least), .max = (most)

const struct schema_section schema_sections[] = {
    {.name = "job", .help = "What all ranks of a job must agree on, and the job's name. Read by workers and agents"},
    {.name = "reducers",
     .help =
	 "The reducers of the job, a list; without it there is one, r0 at 127.0.0.1:7600. Read by workers, agents and "
	 "`reductionctl`",
     LIST(reducers, 1, RS_REDUCERS_MAX)},
    {.name = "sharding",
     .help = "How buffers are cut into chunks, and which reducer sums which chunks. Read by workers "
	     "and agents"},
    {.name = "groups",
     .help = "Workers that are near to each other, a list: see [Racks and zones](#racks-and-zones). All ranks of a job "
	     "must have the same groups and relays. Read by workers and agents, and by reducers that relay",
     LIST(groups, 2, RS_GROUPS_MAX)},
    {.name = "server",
     .help = "The reducer: its addresses, its limits and whom it trusts. Read by reduction-server only"},
    {.name = "agent",
     .help =
	 "The agent of a node. Read by reduction-agent, and by the process of local rank 0 if that serves its node"},
    {.name = "timeouts", .help = "How long to wait before an error. Read by workers, agents and reducers"},
    {.name = "security", .help = "Authentication and encryption. Read by workers, agents and reducers"},
    {.name = "access",
     .help = "With `security.tls: mutual`, which workers may join which jobs, a list: a worker whose certificate "
	     "matches no entry is refused. Read by reduction-server only",
     LIST(access, 1, RS_ACCESS_MAX)},
    {.name = "logging",
     .help = "What is logged on standard error. Logging never blocks: lines that cannot be written are dropped, and "
	     "the next line states how many. Events that unauthenticated peers can cause are limited to a few lines a "
	     "second; a further line states how many were suppressed"},
    {.name = "plan",
     .help = "Read by `reductionctl plan` only: the training for which it predicts times and makes the shard map. "
	     "Each key has an option of the same name, with `-` for `_`"},
    {.name = "workers",
     .help = "Read by `reductionctl plan` only: the workers, a list; needed only if their machines or links differ",
     LIST(workers, 1, RS_WORLD_MAX)},
};
const unsigned schema_sections_n = sizeof schema_sections / sizeof schema_sections[0];

#define AT(sec, field)                                                                                                 \
	.offset = offsetof(struct rs_config, sec.field), .size = sizeof(((struct rs_config *)0)->sec.field)
#define AT_REDUCER(field) .offset = offsetof(struct rs_reducer, field), .size = sizeof(((struct rs_reducer *)0)->field)
#define AT_GROUP(field)   .offset = offsetof(struct rs_group, field), .size = sizeof(((struct rs_group *)0)->field)
#define AT_ACCESS(field)  .offset = offsetof(struct rs_access, field), .size = sizeof(((struct rs_access *)0)->field)
#define AT_WORKER(field)  .offset = offsetof(struct rs_worker, field), .size = sizeof(((struct rs_worker *)0)->field)

/* Bits a second. */
#define KBIT(n) ((uint64_t)(n)*1000)
#define GBIT(n) ((uint64_t)(n)*1000000000)

/* clang-format off */
const struct schema_key schema_keys[] = {
{"job", "name", SCHEMA_NAME, AT(job, name), .min = 0, .max = RS_NAME_MAX - 1, .def = "",
 .help = "Name of the job. By default it is made from the run (`REDUCTION_RUN`), so that two trainings never have the "
 "same name; a single process without a run has `default`"},
{"job", "deterministic", SCHEMA_BOOL, AT(job, deterministic), .def = "false",
 .help = "Sum in the order of ranks, so that every run gives the same bits; costs reducer memory and some speed"},
{"job", "checksum", SCHEMA_BOOL, AT(job, checksum), .def = "false",
 .help = "Protect every chunk by a checksum, in addition to TCP's own"},

{"job", "failover", SCHEMA_ENUM, AT(job, retain), .words = failover_words, .def = "retain",
 .help = "What happens when a reducer is lost: `retain` moves its shards to the other reducers without losing an "
 "operation, and back when it returns; each worker keeps a copy of its last results. `fail`, or the loss of the only "
 "reducer, ends the job with an error"},
{"job", "min_reducers", SCHEMA_NUMBER, AT(job, min_reducers), .min = 1, .max = RS_REDUCERS_MAX, .zero_word = "all",
 .def = "all", .help = "Reducers that must be there when a job with `failover: retain` starts. Others may be missing: "
 "the job starts without them after 5 s, and uses them when they come: so more entries may be listed than run, as "
 "slots. `all`: a job waits for every reducer, until `timeouts.connect`. Ranks may use different numbers, but `all` "
 "only together, since the number of shards depends on it"},
{"job", "detect_nonfinite", SCHEMA_ENUM, AT(job, detect_nonfinite), .words = nonfinite_words, .def = "log",
 .help = "What happens when a rank sends NaN or infinity: `log` writes the rank, operation and element; `fail` ends "
 "the job for all ranks with that sentence, before the operation is complete; `off` does not check. Ranks may use "
 "different values"},

{"job", "partials", SCHEMA_ENUM, AT(job, exact_partials), .words = partials_words, .def = "rounded",
 .help = "How a node with several ranks sends its sum of float16 or bfloat16 tensors: `rounded` to the tensor's type, "
 "or `exact` in float32, twice the bytes. Averages of float16 are rounded as `fp16` of `wire`, with a scale, so that "
 "no sum overflows. Always sent in float32: products, and averages of float16 of at most 64 KiB or of groups. All "
 "nodes must use the same value"},

{"job", "wire", SCHEMA_WIRE, .def = "same",
 .help = "Encoding of sums and averages of floating-point tensors of more than 64 KiB on the network: `same` as the "
 "tensor, `bf16` or `fp16` for float32 tensors, 8 bits an element, `fp8` or `int8`, or 4, `int4`. Tensors that it "
 "does not fit are sent as they are. One word, or `{up: fp8, down: bf16, rounding: stochastic}` for contributions, "
 "results, and how contributions are rounded (`nearest` by default). `feedback: 2GiB` adds what a contribution has "
 "lost to the next one of the same name, with at most so much memory in each worker. All ranks must use the same "
 "encodings"},
{"job.wire", "up", SCHEMA_ENUM, AT(job, wire_up), .words = wire_words, .def = "same"},
{"job.wire", "down", SCHEMA_ENUM, AT(job, wire_down), .words = wire_words, .def = "same"},
{"job.wire", "rounding", SCHEMA_ENUM, AT(job, wire_random), .words = rounding_words, .def = "nearest"},
{"job.wire", "feedback", SCHEMA_BYTES, AT(job, wire_feedback), .min = 1 << 20, .max = GIB(1024), .zero_word = "off",
 .def = "off"},

{"job", "features", SCHEMA_ENUM, AT(job, baseline), .words = features_words, .def = "all",
 .help = "Which parts of the protocol that release 0.1 does not have may be used: `all` those that all ranks and "
 "reducers of the job have, which they find out when it starts, or `baseline` none. Ranks may use different values; "
 "one with `baseline` is enough"},

{"job", "transport", SCHEMA_ENUM, AT(job, grpc), .words = transport_words, .def = "tcp",
 .help = "Protocol between workers or agents and the reducers: with `tcp` they connect to `reducers.address`, "
 "with `grpc` to `reducers.grpc`. Ranks may use different values"},
{"job", "max_ops", SCHEMA_NUMBER, AT(job, max_ops), .min = 1, .max = 1048576, .def = "1024",
 .help = "Most operations that one communicator may have in flight; further calls wait. Bounds memory"},

{"reducers", "id", SCHEMA_NAME, AT_REDUCER(id), .min = 1, .max = RS_NAME_MAX - 1,
 .help = "Name of the reducer, unique in the list; the shard map and error messages use it"},
{"reducers", "address", SCHEMA_ADDRESS, AT_REDUCER(address), .min = 1, .max = 65535, .step = 7600, .def = "",
 .help = "Address that workers connect to, the reducer's `server.listen`; the default port is 7600. A name "
 "is looked up at each attempt to connect. A change in the file is used from the next attempt on, also by running "
 "jobs. With `job.min_reducers`, a slot for a later reducer needs none, and several may have one name, each of whose "
 "addresses is the machine of one of them"},
{"reducers", "grpc", SCHEMA_ADDRESS, AT_REDUCER(grpc), .min = 1, .max = 65535, .step = 7601, .zero = true,
 .def = "", .help = "Address of its gRPC port, the reducer's `server.grpc`: for `reductionctl`, and for workers with "
 "`job.transport: grpc`; by default the host of `address` with port 7601"},
{"reducers", "weight", SCHEMA_WEIGHT, AT_REDUCER(weight), .min = 1, .max = 1000000000000, .def = "1",
 .help = "Its share of the shards relative to the other reducers, if there is no `sharding.map`"},
{"reducers", "lanes", SCHEMA_NUMBER, AT_REDUCER(lanes), .min = 1, .max = RS_LANES_MAX, .zero_word = "auto",
 .def = "auto", .help = "Connections that each worker opens to it; each is served by one of the reducer's threads, "
 "and its shards are distributed over them; `auto`: one for each 10 Gbit/s of its `bandwidth`, or of "
 "`plan.bandwidth`, at most 16, and one if neither is given"},
{"reducers", "host", SCHEMA_HOST, AT_REDUCER(host), .min = 1, .max = RS_HOST_MAX - 1, .def = "",
 .help = "Machine it runs on, for `reductionctl plan`: reducers and workers with the same `host` share its link; by "
 "default the host of `address`"},
{"reducers", "bandwidth", SCHEMA_RATE, AT_REDUCER(bandwidth), .min = KBIT(1), .max = GBIT(100000), .zero_word = "auto",
 .def = "auto", .help = "Bandwidth of its machine's link, each way, for `reductionctl plan`; `auto`: the bandwidth "
 "that another entry gives for that machine, else `plan.bandwidth`"},
{"reducers", "rtt", SCHEMA_DURATION, AT_REDUCER(rtt_ms), .min = 1, .max = 2000, .zero_word = "auto", .def = "auto",
 .help = "Round trip to it. From 10 ms on, workers keep more in flight than `sharding.window`: four times "
 "`plan.bandwidth` x this time, or 32 MiB in all without `plan.bandwidth`, if the reducers' `server.memory` has room; "
 "`auto`: measured when a worker connects"},
{"reducers", "tls_name", SCHEMA_HOST, AT_REDUCER(tls_name), .min = 0, .max = RS_HOST_MAX - 1, .def = "",
 .help = "With `security.tls`, the host name or address that its certificate must be for; by default the host of "
 "`address`"},

{"sharding", "shards", SCHEMA_NUMBER, AT(sharding, shards), .min = 1, .max = RS_SHARDS_MAX, .zero_word = "auto",
 .def = "auto", .help = "Number of shards into which the work is divided; `auto`: as many as `map` names, else at "
 "least 64, or 256 with `rebalance: on` or slots (`job.min_reducers`), chosen so that equal reducers get equal "
 "shares"},
{"sharding", "chunk_bytes", SCHEMA_BYTES, AT(sharding, chunk_bytes), .min = RS_CHUNK_MIN, .max = RS_CHUNK_MAX,
 .step = 64, .zero_word = "auto", .def = "auto", .help = "Size of the chunks into which buffers are cut; chunk i of "
 "operation q belongs to shard (i + q) modulo shards; `auto`: 32KiB, or 16KiB or 8KiB if a chunk would take more "
 "than 0.6 ms on the slowest link whose `bandwidth` the file gives, with relays 0.3 ms"},
{"sharding", "window", SCHEMA_NUMBER, AT(sharding, window), .min = 1, .max = 1024, .def = "32",
 .help = "Most chunks that a worker may have in flight on a lane; each further priority adds an eighth of that (at "
 "least one). The actual number adapts to the delay of the network. Bounds the memory of a reducer, see "
 "`server.memory`"},
{"sharding", "decoupled", SCHEMA_BYTES, AT(sharding, decoupled), .min = RS_CHUNK_MIN, .max = GIB(1024),
 .zero_word = "off", .def = "off", .help = "Bytes, as they are sent, by which a rank may be ahead of the slowest one; "
 "`off`: about a `window` on each lane. For reduce-scatters of steps that take longer on some ranks, with fewer "
 "reducers than workers ([what it gains](../bench/DECISIONS.md#decoupled-ranks)): give the bytes of a step's "
 "gradients. A reducer needs four times its part of them for each priority, with `deterministic` as much again for "
 "each rank but one, and refuses jobs for which `server.memory` has no room. With `failover: retain` a worker keeps "
 "so many bytes for each priority. All ranks must use the same value. At most 1024 chunks on a lane. Bytes are "
 "counted in chunks of `chunk_bytes`; those of reduce-scatters have at most 128 KiB divided by the number of "
 "workers, but 16 KiB or more: with more than four workers a rank is ahead by so much less"},
{"sharding", "priorities", SCHEMA_NUMBER, AT(sharding, priorities), .min = 1, .max = RS_PRIORITIES_MAX, .def = "2",
 .help = "Number of priorities of operations: chunks of a more urgent operation overtake those of others. An "
 "operation without a priority is most urgent if it has at most 64 KiB, else least urgent. Each priority takes memory "
 "of its own in the reducers"},
{"sharding", "map", SCHEMA_MAP, .def = "",
 .help = "Which reducer owns which shards, as in `{0-15: r0, \"16-23,30\": r1}`; without it shards are assigned by "
 "weight"},
{"sharding", "rebalance", SCHEMA_ENUM, AT(sharding, rebalance), .words = rebalance_words, .def = "log",
 .help = "What rank 0 does when a reducer or its link has become slower than the others, so that other shares would "
 "save at least 10 % of the communication: `log` writes what they would be and why, `on` sets them for all ranks while "
 "the job runs, `off` measures nothing. With `on` and `shards: auto` there are at least 256 shards, so that shares "
 "can be fine. Needs `failover: retain`. All ranks must use the same value, since the number of shards depends on it"},

{"groups", "name", SCHEMA_NAME, AT_GROUP(name), .min = 1, .max = RS_NAME_MAX - 1,
 .help = "Name of the group, unique in the list"},
{"groups", "nodes", SCHEMA_NODES, .def = "",
 .help = "Host names of its workers in Slurm's notation, as in `gpu-a[0-3,7]`: full names, or up to the first dot"},
{"groups", "addresses", SCHEMA_NETWORKS, .def = "",
 .help = "Networks in which its workers have an address, as in `[10.1.0.0/16]`; at most 64"},
{"groups", "relays", SCHEMA_RELAYS, .def = "",
 .help = "Reducers that relay for this group: which for which shards, as in `{0-31: ra0, 32-63: ra1}`, or a list, as "
 "in `[ra0, ra1]`, over which the shards of other reducers are distributed evenly. A reducer may relay for one group "
 "only. Shards without a relay go straight to their reducer"},

{"server", "listen", SCHEMA_ADDRESS, AT(server, listen), .min = 0, .max = 65535, .step = 7600,
 .def = "127.0.0.1:7600",
 .help = "Address on which the reducer accepts workers; the default port is 7600"},
{"server", "grpc", SCHEMA_ADDRESS, AT(server, grpc), .min = 0, .max = 65535, .step = 7601, .zero = true, .def = "",
 .help = "Address on which the reducer serves gRPC, for health checks and `reductionctl`; the default port is 7601"},
{"server", "http", SCHEMA_ADDRESS, AT(server, http), .min = 0, .max = 65535, .step = 7603, .zero = true, .def = "",
 .help = "Address on which the reducer serves HTTP: metrics for Prometheus, a status page, health checks. Other "
 "addresses than loopback need `http_tls`, or `http_insecure`. The default port is 7603"},
{"server", "http_tls", SCHEMA_ENUM, AT(server, http_tls), .words = tls_words, .def = "off",
 .help = "TLS 1.3 on the port `http`, with `security.certificate` and `security.key`. With `on`, other addresses than "
 "loopback need `security.read_token`. With `mutual`, only clients may read whose certificate `security.authority` has "
 "signed; health checks need none"},
{"server", "http_insecure", SCHEMA_BOOL, AT(server, http_insecure), .def = "false",
 .help = "Serve `http` without TLS on other addresses than loopback; for trusted networks only. `insecure` "
 "permits it too"},
{"server", "lanes", SCHEMA_NUMBER, AT(server, lanes), .min = 1, .max = RS_LANES_MAX, .zero_word = "auto",
 .def = "auto", .help = "Threads that receive, sum and send; `auto`: one for each CPU that the process can use "
 "(affinity, cpuset and CPU time of its control groups), at most 8"},
{"server", "cpu", SCHEMA_WORD, AT(server, cpu), .words = cpu_words, .def = "auto",
 .help = "Instruction set used for summing; `auto`: the fastest that this machine supports"},
{"server", "insecure", SCHEMA_BOOL, AT(server, insecure), .def = "false",
 .help = "Listen without authentication on other addresses than loopback; for trusted networks only"},
{"server", "secrets_dir", SCHEMA_PATH, AT(server, secrets_dir), .min = 0,
 .max = RS_PATH_LEN - 1 - RS_NAME_MAX - 8, .secret = true, .def = "",
 .help = "Directory with the secret of each job in a file `<job>.secret`, in the format of `security.secret`. Jobs "
 "without a secret are refused. Read at each connection, so secrets may be added, changed and removed"},
{"server", "secret", SCHEMA_PATH, AT(server, secret), .min = 0, .secret = true, .max = RS_PATH_LEN - 1, .def = "",
 .help = "File with the secret of every job that has none in `secrets_dir`. Read at each connection"},
{"server", "state_dir", SCHEMA_PATH, AT(server, state_dir), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "Folder in which a reducer with `grpc` or `http` keeps the records of its last 1024 jobs. Empty: "
 "`$STATE_DIRECTORY`, which the systemd units set; without it they are forgotten at the end"},
{"server", "notice", SCHEMA_PATH, AT(server, notice), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "File that exists while this machine is about to end, as `reductionctl notice` writes it: the reducer drains "
 "within a second after it appears. Its first line is the reason; a second line `before 2026-11-27T20:10:00Z` "
 "replaces `timeouts.drain`. Empty: none"},
{"server", "max_jobs", SCHEMA_NUMBER, AT(server, max_jobs), .min = 1, .max = 4096, .def = "64",
 .help = "Most jobs at the same time; further ones are refused and may retry"},
{"server", "max_workers", SCHEMA_NUMBER, AT(server, max_workers), .min = 1, .max = RS_WORLD_MAX, .def = "256",
 .help = "Most workers of one job (ranks, or nodes if agents are used); a larger job is refused"},
{"server", "max_connections", SCHEMA_NUMBER, AT(server, max_connections), .min = 1, .max = 1000000, .def = "4096",
 .help = "Most connections open at the same time. At the limit, connections whose handshake is not complete are closed "
 "in favour of newer ones; if there are none, newer connections are refused and may retry"},
{"server", "memory", SCHEMA_BYTES, AT(server, memory_bytes), .min = MIB(1), .max = GIB(16384), .def = "4GiB",
 .help = "Most memory for the chunks, tables and connections of all jobs. A job that would exceed it is refused when "
 "it joins"},

{"agent", "socket", SCHEMA_PATH, AT(agent, socket), .min = 1, .max = 107, .def = "/run/reduction/agent.sock",
 .help = "UNIX socket through which the training processes of this node reach the agent"},
{"agent", "grpc", SCHEMA_SERVICE, AT(agent, grpc), .min = 0, .max = 65535, .step = 7602, .zero = true, .def = "",
 .help = "Address on which the agent serves gRPC, for health checks and `reductionctl`: host:port, or "
 "`unix:/run/reduction/agent-status.sock`, a UNIX socket of mode 0660 in an existing directory; the default port is "
 "7602. It never uses TLS. Read by the daemon only"},
{"agent", "http", SCHEMA_ADDRESS, AT(agent, http), .min = 0, .max = 65535, .step = 7604, .zero = true, .def = "",
 .help = "As `server.http`, for the agent; the default port is 7604. Read by the daemon only"},
{"agent", "http_tls", SCHEMA_ENUM, AT(agent, http_tls), .words = tls_words, .def = "off",
 .help = "As `server.http_tls`, for the agent. Its certificate must be for servers, and with `security.tls: mutual` "
 "for clients too"},
{"agent", "insecure", SCHEMA_BOOL, AT(agent, insecure), .def = "false",
 .help = "Serve `http` without TLS on other addresses than loopback; for trusted networks only"},
{"agent", "shm_bytes", SCHEMA_BYTES, AT(agent, shm_bytes), .min = MIB(1), .max = GIB(16384), .def = "8GiB",
 .help = "Most shared memory that all processes of this node may use together"},
{"agent", "max_jobs", SCHEMA_NUMBER, AT(agent, max_jobs), .min = 1, .max = 4096, .def = "64",
 .help = "Most jobs of this node at the same time; further ones are refused"},
{"agent", "cpu", SCHEMA_WORD, AT(agent, cpu), .words = cpu_words, .def = "auto",
 .help = "As `server.cpu`, for summing the ranks of the node"},
{"agent", "single_node", SCHEMA_ENUM, AT(agent, single_node_reducers), .words = single_node_words, .def = "local",
 .help = "Where a job is summed if all its processes are on this node: `local`: in the node's shared memory, with the "
 "reducers connected but idle; `reducers`: on the reducers, as with several nodes"},

{"timeouts", "connect", SCHEMA_DURATION, AT(timeouts, connect_ms), .min = 100, .max = MINUTES(1440), .def = "1min",
 .help = "Workers: time in which all ranks must join on all reducers"},
{"timeouts", "resolve", SCHEMA_DURATION, AT(timeouts, resolve_ms), .min = 100, .max = MINUTES(1440),
 .zero_word = "auto", .def = "auto",
 .help = "Workers: time after which a reducer's name that does not exist is an error; `auto`: 10 s, and in Kubernetes, "
 "where a name exists only while its pod does, `connect`"},
{"timeouts", "detect", SCHEMA_DURATION, AT(timeouts, detect_ms), .min = 400, .max = MINUTES(60), .def = "10s",
 .help = "All: silence after which a peer counts as lost, and its job fails"},
{"timeouts", "stopped", SCHEMA_DURATION, AT(timeouts, stopped_ms), .min = 400, .max = MINUTES(1440), .def = "10min",
 .help = "All: a rank whose process is silent while its machine acknowledges (a debugger, SIGSTOP, no processor) is "
 "late, and lost only after this time. With gRPC or behind a proxy `detect` decides"},
{"timeouts", "handshake", SCHEMA_DURATION, AT(timeouts, handshake_ms), .min = 100, .max = MINUTES(10), .def = "5s",
 .help = "Reducers and agents: time in which a new connection must identify itself; otherwise it is closed"},
{"timeouts", "op", SCHEMA_DURATION, AT(timeouts, op_ms), .min = 100, .max = MINUTES(1440), .zero = true, .def = "0",
 .help = "Workers: time after which an operation fails; 0: no limit"},
{"timeouts", "drain", SCHEMA_DURATION, AT(timeouts, drain_ms), .min = 100, .max = MINUTES(1440), .zero = true,
 .def = "30s", .help = "Reducers and agents: time for which running jobs may go on after SIGTERM"},

{"security", "secret", SCHEMA_PATH, AT(security, secret), .min = 0, .secret = true, .max = RS_PATH_LEN - 1, .def = "",
 .help = "For workers and agents: file with the job's secret (reducers: `server.secrets_dir`, `server.secret`), 16 to "
 "1024 bytes, readable only by its owner and group. Read at each connection"},
{"security", "tls", SCHEMA_ENUM, AT(security, tls), .words = tls_words, .def = "off",
 .help = "TLS 1.3 between workers and reducers: with `on` reducers show a certificate; with `mutual` workers and "
 "agents do too, and `access` says which jobs they may join. Workers, agents and reducers need the same value"},
{"security", "certificate", SCHEMA_PATH, AT(security, certificate), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "PEM file with the own certificate, then those between it and the authority; for reducers with `tls`, and "
 "for workers and agents with `tls: mutual`. Read again when it changes, as well as `key`, `authority` and tokens"},
{"security", "key", SCHEMA_PATH, AT(security, key), .min = 0, .secret = true, .max = RS_PATH_LEN - 1, .def = "",
 .help = "PEM file with the key of `certificate`, without a passphrase; it must not be readable by everybody"},
{"security", "authority", SCHEMA_PATH, AT(security, authority), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "PEM file with the certificates of the authorities that sign the peers' certificates; workers and agents "
 "without it trust the system's authorities"},

{"access", "certificate", SCHEMA_GLOB, AT_ACCESS(certificate), .min = 1, .max = RS_GLOB_MAX - 1,
 .help = "A DNS name in the worker's certificate, or its common name if it has no DNS names; `*` matches any letters "
 "and `?` one letter"},
{"access", "jobs", SCHEMA_GLOB, AT_ACCESS(jobs), .min = 1, .max = RS_GLOB_MAX - 1,
 .help = "Names of the jobs that it may join; `*` and `?` as in `certificate`"},
{"access", "weight", SCHEMA_WEIGHT, AT_ACCESS(weight), .min = 10000, .max = 100000000, .def = "1",
 .help = "What each connection of these jobs gets of a lane's time, relative to other connections, while "
 "there is not enough for all. Links are shared by TCP, equally for each connection"},

{"security", "read_token", SCHEMA_PATH, AT(security, read_token), .min = 0, .max = RS_PATH_LEN - 1,
 .secret = true, .def = "",
 .help = "For reducers and agents: file with the token, 16 to 1024 ASCII characters without blanks, that reading "
 "(`status`, `events`, `doctor`, `trace`) requires; empty: only callers on a loopback address may read. "
 "`reductionctl FILE` reads it too"},
{"security", "admin_token", SCHEMA_PATH, AT(security, admin_token), .min = 0, .max = RS_PATH_LEN - 1,
 .secret = true, .def = "",
 .help = "As `read_token`, for `drain` and `reload`; this token also permits reading. Empty: only root and the user of "
 "the process may do this, on a loopback address"},

{"logging", "level", SCHEMA_ENUM, AT(logging, level), .words = level_words, .def = "info",
 .help = "How much is logged: faults (error, warn), events of daemons and jobs (info), connections (debug), "
 "operations (trace)"},
{"logging", "format", SCHEMA_ENUM, AT(logging, json), .words = format_words, .def = "text",
 .help = "Format of the lines: `text` for people, `json` for log collectors"},

{"plan", "bytes", SCHEMA_BYTES, AT(plan, bytes), .min = 1, .max = GIB(16384), .def = "100MiB",
 .help = "Size of all gradients of a training step in float32: 4 bytes for each trained parameter"},
{"plan", "wire", SCHEMA_ENUM, AT(plan, wire), .words = plan_wire_words, .def = "fp32",
 .help = "Data type in which gradients are sent, with reducers and in the ring: `bf16` and `fp16` are half of `bytes`. "
 "`fp8`, `int8` and `int4`, or `job.wire`: how reducers get them; the ring then has 16 bits"},
{"plan", "step", SCHEMA_DURATION, AT(plan, step_ms), .min = 1, .max = MINUTES(1440), .zero_word = "unknown",
 .def = "unknown", .help = "Computing time of a training step, without its all-reduce"},
{"plan", "workers", SCHEMA_NUMBER, AT(plan, workers), .min = 2, .max = RS_WORLD_MAX, .zero_word = "auto", .def = "auto",
 .help = "Number of workers: of nodes if their ranks are summed first, as usual, else of ranks. Those beyond the list "
 "`workers` have machines of their own, named worker-0 and so on by rank; `auto`: as many as the list has"},
{"plan", "ranks_per_node", SCHEMA_NUMBER, AT(plan, ranks_per_node), .min = 1, .max = 1024, .def = "1",
 .help = "Ranks of one worker, whose gradients are summed on its machine first, with reducers and in the ring. A ring "
 "of all ranks, as of gloo, is printed too"},
{"plan", "bandwidth", SCHEMA_RATE, AT(plan, bandwidth), .min = KBIT(1), .max = GBIT(100000), .zero_word = "unknown",
 .def = "unknown", .help = "Bandwidth of each machine's link for which none is given, each way, as measured with one "
 "plain TCP connection"},
{"plan", "racks", SCHEMA_NUMBER, AT(plan, racks), .min = 1, .max = RS_WORLD_MAX, .def = "1",
 .help = "Number of racks, or other parts of the network that are joined by slower links"},
{"plan", "uplink", SCHEMA_RATE, AT(plan, uplink), .min = KBIT(1), .max = GBIT(1000000), .zero_word = "unknown",
 .def = "unknown", .help = "Bandwidth, each way, with which each rack is joined to the others; required if there are "
 "several racks"},
{"plan", "spine", SCHEMA_NUMBER, AT(plan, spine), .min = 1, .max = RS_REDUCERS_MAX, .zero = true, .def = "0",
 .help = "Number of machines that only reduce and are in no rack: their links join them to what joins the racks, as in "
 "a rack without workers. They are the last ones"},
{"plan", "relays", SCHEMA_ENUM, AT(plan, relays), .words = plan_relays_words, .def = "auto",
 .help = "Whether reducers may relay for the workers of their rack; `auto`: if that is faster"},
{"plan", "price_uplink", SCHEMA_WEIGHT, AT(plan, price_uplink), .min = 1, .max = 1000000000000, .zero_word = "unknown",
 .def = "unknown", .help = "Price of a GB (10^9 bytes) that leaves a rack or zone, and again of one that enters one, "
 "in the same currency"},
{"plan", "price_worker", SCHEMA_WEIGHT, AT(plan, price_worker), .min = 1, .max = 1000000000000,
 .zero_word = "unknown", .def = "unknown", .help = "Price of a worker's machine for an hour, in any currency"},
{"plan", "price_reducer", SCHEMA_WEIGHT, AT(plan, price_reducer), .min = 1, .max = 1000000000000, .zero = true,
 .def = "0", .help = "Price of a machine that only reduces for an hour, in the same currency. A reducer on a worker's "
 "machine costs nothing more"},

{"workers", "host", SCHEMA_HOST, AT_WORKER(host), .min = 1, .max = RS_HOST_MAX - 1, .def = "",
 .help = "Machine the worker runs on; by default worker-0 for the first of the list, and so on"},
{"workers", "bandwidth", SCHEMA_RATE, AT_WORKER(bandwidth), .min = KBIT(1), .max = GBIT(100000), .zero_word = "auto",
 .def = "auto", .help = "As `bandwidth` of a reducer"},
};
/* clang-format on */
const unsigned schema_keys_n = sizeof schema_keys / sizeof schema_keys[0];
_Static_assert(sizeof schema_keys / sizeof schema_keys[0] <= SCHEMA_KEYS_MAX, "readers note each key they saw");
_Static_assert(sizeof schema_sections / sizeof schema_sections[0] <= SCHEMA_SECTIONS_MAX, "as above");

const struct schema_section *schema_find_section(const char *name)
{
	for (unsigned i = 0; i < schema_sections_n; i++)
		if (strcmp(schema_sections[i].name, name) == 0)
			return &schema_sections[i];
	return NULL;
}

const struct schema_key *schema_find(const char *section, const char *key)
{
	for (unsigned i = 0; i < schema_keys_n; i++)
		if (strcmp(schema_keys[i].section, section) == 0 && strcmp(schema_keys[i].key, key) == 0)
			return &schema_keys[i];
	return NULL;
}

unsigned schema_distance(const char *a, const char *b)
{
	enum { LONGEST = 64 };
	size_t an = strnlen(a, LONGEST + 1), bn = strnlen(b, LONGEST + 1);
	unsigned row[LONGEST + 1];

	if (an > LONGEST || bn > LONGEST)
		return UINT_MAX;
	for (size_t j = 0; j <= bn; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= an; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= bn; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);

			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[bn];
}

bool schema_is_near(const char *found, const char *known, unsigned distance)
{
	size_t n = strlen(found), shorter = strlen(known) < n ? strlen(known) : n;

	if (shorter >= 3 && strncmp(found, known, shorter) == 0)
		return true;
	return distance <= 1 + n / 4 && distance < n;
}

/* Where a key of this name stands in another section; NULL when nowhere. */
static const struct schema_key *find_anywhere(const char *key)
{
	for (unsigned i = 0; i < schema_keys_n; i++)
		if (strcmp(schema_keys[i].key, key) == 0)
			return &schema_keys[i];
	return NULL;
}

/* The i-th name that may stand in the section, or among the sections; NULL at the end. */
static const char *name_at(const char *section, unsigned i)
{
	if (!section)
		return i < schema_sections_n ? schema_sections[i].name : NULL;
	for (unsigned k = 0; k < schema_keys_n; k++)
		if (strcmp(schema_keys[k].section, section) == 0 && i-- == 0)
			return schema_keys[k].key;
	return NULL;
}

/* Names of earlier versions. section is NULL for a section. */
static const struct {
	const char *section, *name, *now;
} renamed[] = {
    {NULL, "limits",
     "server.max_jobs, server.max_workers, server.max_connections, server.memory, agent.max_jobs and "
     "job.max_ops"},
    {"reducers", "control", "grpc"},
    {"security", "insecure", "server.insecure"},
    {"security", "secrets", "server.secrets_dir"},
};

static const char *new_name(const char *section, const char *name)
{
	for (unsigned i = 0; i < sizeof renamed / sizeof renamed[0]; i++)
		if (strcmp(renamed[i].name, name) == 0 &&
		    (section ? renamed[i].section && strcmp(renamed[i].section, section) == 0 : !renamed[i].section))
			return renamed[i].now;
	return NULL;
}

void schema_advise(const char *section, const char *found, char *buf, size_t size)
{
	const char *nearest = NULL, *name;
	unsigned least = UINT_MAX;
	const struct schema_key *other;
	size_t len;

	for (unsigned i = 0; (name = name_at(section, i)); i++) {
		unsigned d = schema_distance(found, name);

		if (schema_is_near(found, name, d) && d < least) {
			least = d;
			nearest = name;
		}
	}
	other = find_anywhere(found);
	name = new_name(section, found);
	if (name) {
		snprintf(buf, size, "it is now called %s", name);
		return;
	}
	if (nearest) {
		snprintf(buf, size, "did you mean %s?", nearest);
		return;
	}
	if (other) {
		snprintf(buf, size, "did you mean %s.%s?", other->section, other->key);
		return;
	}
	len = (size_t)snprintf(buf, size, "expected one of ");
	for (unsigned i = 0; (name = name_at(section, i)) && len < size; i++)
		len += (size_t)snprintf(buf + len, size - len, "%s%s", i ? ", " : "", name);
}
