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
static const char *const failover_words[] = {"fail", "retain", NULL};
static const char *const nonfinite_words[] = {"off", "log", "fail", NULL}; /* as enum rs_nonfinite */
static const char *const single_node_words[] = {"local", "reducers", NULL};
static const char *const transport_words[] = {"tcp", "grpc", NULL};
static const char *const level_words[] = {"error", "warn", "info", "debug", "trace", NULL}; /* as enum rs_log_level */
static const char *const tls_words[] = {"off", "on", "mutual", NULL};                       /* as enum tls_mode */
static const char *const format_words[] = {"text", "json", NULL};

#define LIST(array, most)                                                                                              \
	.item_size = sizeof(*((struct rs_config *)0)->array), .items = offsetof(struct rs_config, array),              \
	.count = offsetof(struct rs_config, array##_n), .max = (most)

const struct schema_section schema_sections[] = {
    {.name = "job", .help = "What all ranks of a job must agree on, and the job's name"},
    {.name = "reducers",
     .help = "The reducers of the job: a list; without it there is one, r0 at 127.0.0.1:7600",
     LIST(reducers, RS_REDUCERS_MAX)},
    {.name = "sharding", .help = "How buffers are cut into chunks, and which reducer gets which of them"},
    {.name = "server", .help = "Read by reduction-server only"},
    {.name = "agent", .help = "Read by reduction-agent, and by local rank 0's process where that serves its node"},
    {.name = "limits", .help = "What is refused, or has to wait, so that memory stays bounded"},
    {.name = "timeouts", .help = "How long to wait before giving up"},
    {.name = "security", .help = "Who may connect"},
    {.name = "access",
     .help = "With `security.tls: mutual`, which workers may join which jobs, a list: who presents a certificate that "
	     "no entry matches is refused. Read by reduction-server only",
     LIST(access, RS_ACCESS_MAX)},
    {.name = "logging",
     .help = "What is logged on standard error. Nobody waits for who reads it: lines that find no room are lost, and "
	     "counted in the next one; of what strangers can cause a few lines a second are written, and how many more "
	     "there were"},
    {.name = "plan",
     .help = "Read by `reductionctl plan` only: for what, and for which workers, the shard map is to be made"},
    {.name = "workers",
     .help = "Read by `reductionctl plan` only: the workers that do not all have machines and links alike, a list",
     LIST(workers, RS_WORLD_MAX)},
};
const unsigned schema_sections_n = sizeof schema_sections / sizeof schema_sections[0];

#define AT(sec, field)                                                                                                 \
	.offset = offsetof(struct rs_config, sec.field), .size = sizeof(((struct rs_config *)0)->sec.field)
#define AT_REDUCER(field) .offset = offsetof(struct rs_reducer, field), .size = sizeof(((struct rs_reducer *)0)->field)
#define AT_ACCESS(field)  .offset = offsetof(struct rs_access, field), .size = sizeof(((struct rs_access *)0)->field)
#define AT_WORKER(field)  .offset = offsetof(struct rs_worker, field), .size = sizeof(((struct rs_worker *)0)->field)

/* Bits a second. */
#define KBIT(n) ((uint64_t)(n)*1000)
#define GBIT(n) ((uint64_t)(n)*1000000000)

/* clang-format off */
const struct schema_key schema_keys[] = {
{"job", "name", SCHEMA_NAME, AT(job, name), .min = 1, .max = RS_NAME_MAX - 1, .def = "default",
 .help = "Name of the job; several jobs can use the same reducers under different names"},
{"job", "deterministic", SCHEMA_BOOL, AT(job, deterministic), .def = "false",
 .help = "Sum in the order of ranks: the same bits in every run; costs reducer memory and some speed"},
{"job", "checksum", SCHEMA_BOOL, AT(job, checksum), .def = "false",
 .help = "Protect every chunk on the wire by a checksum, beyond TCP's own"},

{"job", "failover", SCHEMA_ENUM, AT(job, retain), .words = failover_words, .def = "retain",
 .help = "When a reducer is lost: `retain` moves its shards to the others, without losing an operation, and back when "
 "it returns; it keeps a copy of the last results at each worker. `fail` ends the job with an error, as does the loss "
 "of the only reducer"},
{"job", "detect_nonfinite", SCHEMA_ENUM, AT(job, detect_nonfinite), .words = nonfinite_words, .def = "log",
 .help = "When a rank sends NaN or infinity: `log` says which rank, operation and element, at most once for each "
 "operation and 3 times a second; `fail` ends the job for all ranks with that sentence, before the operation is done; "
 "`off` does not look. Ranks may differ in this"},

{"job", "transport", SCHEMA_ENUM, AT(job, grpc), .words = transport_words, .def = "tcp",
 .help = "How workers and agents talk to the reducers. With `grpc` each reducer's `address` is its `server.grpc`. "
 "Ranks may differ in this"},

{"reducers", "id", SCHEMA_NAME, AT_REDUCER(id), .min = 1, .max = RS_NAME_MAX - 1,
 .help = "Name of the reducer, unique in the list; the shard map and error messages use it"},
{"reducers", "address", SCHEMA_ADDRESS, AT_REDUCER(address), .min = 1, .max = 65535, .step = 7600,
 .help = "Where workers connect to it; without a port 7600 is used"},
{"reducers", "control", SCHEMA_ADDRESS, AT_REDUCER(control), .min = 1, .max = 65535, .step = 7601, .zero = true,
 .def = "", .help = "Where it answers `reductionctl status`, `events`, `drain` and `reload`: its `server.grpc`; "
 "without a port 7601 is used"},
{"reducers", "weight", SCHEMA_WEIGHT, AT_REDUCER(weight), .min = 1, .max = 1000000000000, .def = "1",
 .help = "Its share of the shards relative to the other reducers, when there is no `sharding.map`"},
{"reducers", "lanes", SCHEMA_NUMBER, AT_REDUCER(lanes), .min = 1, .max = RS_LANES_MAX, .zero_word = "auto",
 .def = "auto", .help = "Connections that each worker opens to it, each served by one of its threads; its shards are "
 "spread over them; `auto`: one for each 10 Gbit/s of its `bandwidth`, or of `plan.bandwidth`, at most 16, and one "
 "when neither is said"},
{"reducers", "host", SCHEMA_HOST, AT_REDUCER(host), .min = 1, .max = RS_HOST_MAX - 1, .def = "",
 .help = "Machine it runs on, for `reductionctl plan`: who names the same one shares its link; unless given, that of "
 "`address`"},
{"reducers", "bandwidth", SCHEMA_RATE, AT_REDUCER(bandwidth), .min = KBIT(1), .max = GBIT(100000), .zero_word = "auto",
 .def = "auto", .help = "Of its machine's link, each way, for `reductionctl plan`; `auto`: as another on that machine "
 "says, else `plan.bandwidth`"},
{"reducers", "tls_name", SCHEMA_HOST, AT_REDUCER(tls_name), .min = 0, .max = RS_HOST_MAX - 1, .def = "",
 .help = "With `security.tls`, the host name or address that its certificate has to be for; unless given, that of "
 "`address`"},

{"sharding", "shards", SCHEMA_NUMBER, AT(sharding, shards), .min = 1, .max = RS_SHARDS_MAX, .zero_word = "auto",
 .def = "auto", .help = "Into how many shards the work is divided; `auto`: as many as `map` names, else at least 64 "
 "and so many that equal reducers get equal shares"},
{"sharding", "chunk_bytes", SCHEMA_BYTES, AT(sharding, chunk_bytes), .min = RS_CHUNK_MIN, .max = RS_CHUNK_MAX,
 .step = 64, .zero_word = "auto", .def = "auto", .help = "Buffers are cut into chunks of this size; chunk i of "
 "operation q belongs to shard (i + q) modulo shards; `auto`: 32KiB, or 16KiB or 8KiB where it would take more than "
 "0.6 ms on the slowest link whose `bandwidth` the file names"},
{"sharding", "window", SCHEMA_NUMBER, AT(sharding, window), .min = 1, .max = 1024, .def = "32",
 .help = "Most chunks that a worker may have outstanding on a lane, and an eighth of that (at least one) more for each "
 "further priority; how many it has follows from the network's delay. Bounds a reducer's memory, see `limits.memory`"},
{"sharding", "priorities", SCHEMA_NUMBER, AT(sharding, priorities), .min = 1, .max = RS_PRIORITIES_MAX, .def = "2",
 .help = "How many priorities operations have: chunks of a more urgent one overtake those of others. An operation for "
 "which the caller names none is most urgent when it has at most 64 KiB, else least; with 1 all are sent in the order "
 "in which they are started. Each takes memory of its own in the reducers, see `limits.memory`"},
{"sharding", "map", SCHEMA_MAP, .def = "",
 .help = "Which reducer owns which shards, as in `{0-15: r0, \"16-23,30\": r1}`; without it shards are dealt out by "
 "weight"},

{"server", "listen", SCHEMA_ADDRESS, AT(server, listen), .min = 0, .max = 65535, .step = 7600,
 .def = "127.0.0.1:7600",
 .help = "Where the reducer accepts workers; without a port 7600 is used, port 0 is any free one"},
{"server", "grpc", SCHEMA_ADDRESS, AT(server, grpc), .min = 0, .max = 65535, .step = 7601, .zero = true, .def = "",
 .help = "Where the reducer speaks gRPC, for health checks and `reductionctl`; without a port 7601 is used, port 0 is "
 "any free one; empty: it does not"},
{"server", "lanes", SCHEMA_NUMBER, AT(server, lanes), .min = 1, .max = RS_LANES_MAX, .zero_word = "auto",
 .def = "auto", .help = "Threads that receive, sum and send; `auto`: one for each online CPU, at most 8"},
{"server", "cpu", SCHEMA_WORD, AT(server, cpu), .words = cpu_words, .def = "auto",
 .help = "Instructions used for summing; `auto`: the best ones this machine has"},

{"agent", "socket", SCHEMA_PATH, AT(agent, socket), .min = 1, .max = 107, .def = "/run/reduction/agent.sock",
 .help = "UNIX socket through which the training processes of this node reach the agent"},
{"agent", "shm_bytes", SCHEMA_BYTES, AT(agent, shm_bytes), .min = MIB(1), .max = GIB(16384), .def = "8GiB",
 .help = "Shared memory that all processes of this node may hold together"},
{"agent", "cpu", SCHEMA_WORD, AT(agent, cpu), .words = cpu_words, .def = "auto",
 .help = "As `server.cpu`, for adding up the node's local ranks"},
{"agent", "single_node", SCHEMA_ENUM, AT(agent, single_node_reducers), .words = single_node_words, .def = "local",
 .help = "Where a job is summed all of whose processes are on this node: `local`, in its shared memory, the reducers "
 "being connected but idle; `reducers`, as with several nodes, to try them"},

{"limits", "jobs", SCHEMA_NUMBER, AT(limits, jobs), .min = 1, .max = 4096, .def = "64",
 .help = "Jobs that one reducer serves at the same time"},
{"limits", "workers", SCHEMA_NUMBER, AT(limits, workers), .min = 1, .max = RS_WORLD_MAX, .def = "256",
 .help = "Workers (ranks, or nodes where agents are used) of one job"},
{"limits", "connections", SCHEMA_NUMBER, AT(limits, connections), .min = 1, .max = 1000000, .def = "4096",
 .help = "Connections open on one reducer at the same time; when there are so many, those that have not said who they "
 "are give their places to newer ones, and when all have, newer ones are refused and may come again"},
{"limits", "memory", SCHEMA_BYTES, AT(limits, memory_bytes), .min = MIB(1), .max = GIB(16384), .def = "4GiB",
 .help = "Memory for the chunks, tables and connections of all jobs on one reducer; a job that would pass it is "
 "refused when it joins, and the log says when a job opens how much it can take"},
{"limits", "ops", SCHEMA_NUMBER, AT(limits, ops), .min = 1, .max = 1048576, .def = "1024",
 .help = "Operations that one communicator may have in flight; further calls wait"},

{"timeouts", "connect", SCHEMA_DURATION, AT(timeouts, connect_ms), .min = 100, .max = MINUTES(1440), .def = "1min",
 .help = "Until all ranks have met on all reducers; the order in which processes start does not matter"},
{"timeouts", "detect", SCHEMA_DURATION, AT(timeouts, detect_ms), .min = 400, .max = MINUTES(60), .def = "10s",
 .help = "A peer from which nothing was heard for this long is lost, and its job fails"},
{"timeouts", "handshake", SCHEMA_DURATION, AT(timeouts, handshake_ms), .min = 100, .max = MINUTES(10), .def = "5s",
 .help = "A new connection that has not said who it is within this time is closed"},
{"timeouts", "op", SCHEMA_DURATION, AT(timeouts, op_ms), .min = 100, .max = MINUTES(1440), .zero = true, .def = "0",
 .help = "An operation that takes longer fails; 0: it may take forever, as when a rank writes a checkpoint"},
{"timeouts", "drain", SCHEMA_DURATION, AT(timeouts, drain_ms), .min = 100, .max = MINUTES(1440), .zero = true,
 .def = "30s", .help = "How long running jobs may go on after a reducer was told to end (SIGTERM)"},

{"security", "insecure", SCHEMA_BOOL, AT(security, insecure), .def = "false",
 .help = "Let a reducer listen without authentication on other addresses than loopback; for trusted networks only"},
{"security", "secret", SCHEMA_PATH, AT(security, secret), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "Of workers and agents: file with the job's secret, 16 to 1024 bytes that others than its owner and group "
 "cannot read. They prove to each reducer that they have it, and want the same of it; read at each connection"},
{"security", "secrets", SCHEMA_PATH, AT(security, secrets), .min = 0, .max = RS_PATH_LEN - 1 - RS_NAME_MAX - 8,
 .def = "", .help = "Of reducers: directory with the secret of each job in a file `<job>.secret`, as `secret`. Jobs "
 "without one are refused. Read at each connection, so secrets may come, change and go; a job that runs goes on"},
{"security", "tls", SCHEMA_ENUM, AT(security, tls), .words = tls_words, .def = "off",
 .help = "TLS 1.3 between workers and reducers: with `on` the reducer shows a certificate, with `mutual` workers and "
 "agents do too, and `access` says which jobs they may join. All sides say the same"},
{"security", "certificate", SCHEMA_PATH, AT(security, certificate), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "PEM file with the own certificate, and those between it and the authority, for reducers with `tls`, and "
 "with `tls: mutual` for workers and agents. A reducer reads it, `key`, `authority` and `access` again on SIGHUP"},
{"security", "key", SCHEMA_PATH, AT(security, key), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "PEM file with the key that belongs to `certificate`, without a passphrase; not readable by everybody"},
{"security", "authority", SCHEMA_PATH, AT(security, authority), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "PEM file with the certificates that have to have signed those of the other side; workers and agents without "
 "it trust the system's authorities"},

{"access", "certificate", SCHEMA_GLOB, AT_ACCESS(certificate), .min = 1, .max = RS_GLOB_MAX - 1,
 .help = "A DNS name in the worker's certificate, or its common name where it has no DNS names; `*` stands for any "
 "letters and `?` for one"},
{"access", "jobs", SCHEMA_GLOB, AT_ACCESS(jobs), .min = 1, .max = RS_GLOB_MAX - 1,
 .help = "Names of the jobs that it may join, in the same way"},

{"security", "read_token", SCHEMA_PATH, AT(security, read_token), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "Of reducers: file with the token, 16 to 1024 characters of ASCII without blanks, of those who may ask for "
 "status and events; empty: processes on the reducer's own machine may, and nobody else. `reductionctl FILE` reads it "
 "too"},
{"security", "admin_token", SCHEMA_PATH, AT(security, admin_token), .min = 0, .max = RS_PATH_LEN - 1, .def = "",
 .help = "As `read_token`, of those who may drain and reload; who has it may ask for status and events as well"},

{"logging", "level", SCHEMA_ENUM, AT(logging, level), .words = level_words, .def = "info",
 .help = "How much is logged: faults, daemon and job events, connections (debug), operations (trace)"},
{"logging", "format", SCHEMA_ENUM, AT(logging, json), .words = format_words, .def = "text",
 .help = "Lines for people or for a log collector"},

{"plan", "bytes", SCHEMA_BYTES, AT(plan, bytes), .min = 1, .max = GIB(16384), .def = "100MiB",
 .help = "Size of one all-reduce: of all gradients of a training step"},
{"plan", "step", SCHEMA_DURATION, AT(plan, step_ms), .min = 1, .max = MINUTES(1440), .zero_word = "unknown",
 .def = "unknown", .help = "Computing time of a training step, without its all-reduce"},
{"plan", "workers", SCHEMA_NUMBER, AT(plan, workers), .min = 2, .max = RS_WORLD_MAX, .zero_word = "auto", .def = "auto",
 .help = "How many workers (nodes where agents are used); those beyond the list `workers` have machines of their own, "
 "named worker-0 and so on by rank; `auto`: as many as the list has"},
{"plan", "bandwidth", SCHEMA_RATE, AT(plan, bandwidth), .min = KBIT(1), .max = GBIT(100000), .zero_word = "unknown",
 .def = "unknown", .help = "Of each machine's link for which none is given, each way, as one plain TCP flow measures "
 "it"},

{"workers", "host", SCHEMA_HOST, AT_WORKER(host), .min = 1, .max = RS_HOST_MAX - 1, .def = "",
 .help = "Machine the worker runs on; unless given, worker-0 for the first of the list, and so on"},
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
