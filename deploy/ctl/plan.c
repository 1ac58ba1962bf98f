/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl plan: whether reducers help, and the shard map with the shortest time. */
#include "deploy/ctl/plan/plan.h"

#include "config/groups.h"
#include "config/schema.h"
#include "config/value.h"
#include "deploy/ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The options before PLAN_REDUCERS are keys of the section "plan", with '-' for '_'. */
enum plan_option {
	PLAN_WORKERS,
	PLAN_RANKS,
	PLAN_BANDWIDTH,
	PLAN_BYTES,
	PLAN_WIRE,
	PLAN_STEP,
	PLAN_RACKS,
	PLAN_UPLINK,
	PLAN_SPINE,
	PLAN_MAY_RELAY,
	PLAN_PRICE_UPLINK,
	PLAN_PRICE_WORKER,
	PLAN_PRICE_REDUCER,
	PLAN_REDUCERS,
	PLAN_RTT,
	PLAN_SHARDED,
	PLAN_WRITE,
	PLAN_JSON
};

static const struct option plan_options[] = {
    [PLAN_WORKERS] = {"workers", "N", "workers: nodes if their ranks are summed first, as usual, else ranks"},
    [PLAN_RANKS] = {"ranks-per-node", "N", "ranks of each worker, summed on its machine before they are sent [1]"},
    [PLAN_BANDWIDTH] = {"bandwidth", "RATE", "each way, of links for which the file gives none: 25gbit, 25Gbps"},
    [PLAN_BYTES] = {"bytes", "SIZE", "all gradients of a step in float32, 4 bytes a parameter: 1GB [100MiB]"},
    [PLAN_WIRE] = {"wire", "TYPE", "how they are sent: fp32; bf16 or fp16, half of --bytes; fp8, int8 or int4 [fp32]"},
    [PLAN_STEP] = {"step", "TIME", "computing time of a training step, without its all-reduce: 300ms"},
    [PLAN_RACKS] = {"racks", "N", "racks over which all machines are spread evenly [1]"},
    [PLAN_UPLINK] = {"uplink", "RATE", "each way, from each rack to the others"},
    [PLAN_SPINE] = {"spine", "N", "machines that only reduce and are in no rack: the last ones [0]"},
    [PLAN_MAY_RELAY] = {"relays", "WHICH", "auto: reducers relay for their racks if it is faster; off [auto]"},
    [PLAN_PRICE_UPLINK] = {"price-uplink", "PRICE", "of a GB that leaves a rack or zone, and of one that enters it"},
    [PLAN_PRICE_WORKER] = {"price-worker", "PRICE", "of a worker's machine for an hour, in any currency"},
    [PLAN_PRICE_REDUCER] = {"price-reducer", "PRICE", "of a machine that only reduces for an hour [0]"},
    [PLAN_REDUCERS] = {"reducers", "N", "number of reducers [those of FILE; without it one for each worker]"},
    [PLAN_RTT] = {"rtt", "TIME", "round trip to reducers for which the file gives none: 100ms"},
    [PLAN_SHARDED] = {"sharded", "KIND", "training with sharded parameters: fsdp, zero1, zero2, zero3 or hsdp"},
    [PLAN_WRITE] = {"write", "FILE", "write the whole configuration with the map to FILE"},
    [PLAN_JSON] = {"json", NULL, "print the result as one JSON object"},
};
_Static_assert(sizeof plan_options / sizeof plan_options[0] <= OPTIONS_MAX, "struct call has room for the options");

/* Checks the options that are keys, and stores their values. */
static int take_keys(const struct call *call, struct rs_config *cfg, struct rs_err *e)
{
	char name[32], expected[160];

	for (unsigned i = 0; i < PLAN_REDUCERS; i++) {
		const struct schema_key *key;

		if (!call->value[i])
			continue;
		snprintf(name, sizeof name, "%s", plan_options[i].name);
		for (char *c = name; *c; c++)
			if (*c == '-')
				*c = '_';
		key = schema_find("plan", name);
		if (value_parse(key, call->value[i], cfg))
			continue;
		value_expected(key, expected, sizeof expected);
		return rs_fail(e, RS_EINVAL, "--%s: found \"%s\", expected %s", plan_options[i].name, call->value[i],
			       expected);
	}
	return RS_OK;
}

/* Returns whether one of n reducers has this name, or is on a machine of this name. */
static bool is_taken(const struct rs_reducer *list, unsigned n, const char *name)
{
	size_t len = strlen(name);

	for (unsigned i = 0; i < n; i++)
		if (strcmp(list[i].id, name) == 0 || strcmp(list[i].host, name) == 0 ||
		    (strncmp(list[i].address, name, len) == 0 && list[i].address[len] == ':'))
			return true;
	return false;
}

/* Makes the list of reducers that long: keeps the first `keep` ones, the others are
 * placeholders on machines of their own. */
static int set_reducers(struct rs_config *cfg, unsigned keep, unsigned n, struct rs_err *e)
{
	struct rs_reducer *list = realloc(cfg->reducers, n * sizeof *list);

	if (!list)
		return rs_oom(e, n * sizeof *list, "%u reducers", n);
	cfg->reducers = list;
	cfg->reducers_n = n;
	for (size_t i = 0; i < (size_t)cfg->groups_n * cfg->sharding.shards; i++)
		if (cfg->relays[i] >= keep)
			cfg->relays[i] = RS_NO_RELAY;
	if (n == 1)
		groups_close(cfg);
	if (cfg->job.min_reducers > n)
		cfg->job.min_reducers = n;
	for (unsigned i = keep, number = keep; i < n; i++) {
		struct rs_reducer *r = &list[i];
		char name[32];

		do
			snprintf(name, sizeof name, "reducer-%u", number++);
		while (is_taken(list, i, name));
		*r = (struct rs_reducer){.weight = 1, .lanes_auto = true};
		snprintf(r->id, sizeof r->id, "%s", name);
		snprintf(r->address, sizeof r->address, "%s:7600", name);
		snprintf(r->host, sizeof r->host, "%s", name);
	}
	return RS_OK;
}

/* Takes the number of reducers: that of --reducers, else that of the file, else that of
 * the workers. */
static int take_reducers(const struct call *call, struct rs_config *cfg, struct rs_err *e)
{
	const char *text = call->value[PLAN_REDUCERS];
	uint32_t keep = call->file ? cfg->reducers_n : 0, n = cfg->plan.workers;

	if (call->file && !text)
		return RS_OK;
	if (take_number(text, "reducers", 1, RS_REDUCERS_MAX, &n, e))
		return e->code;
	n = n < 1 ? 1 : n > RS_REDUCERS_MAX ? RS_REDUCERS_MAX : n;
	return set_reducers(cfg, keep < n ? keep : n, n, e);
}

/* Gives --rtt to the reducers without one. */
static int take_rtt(const struct call *call, struct rs_config *cfg, struct rs_err *e)
{
	const struct schema_key *key = schema_find("reducers", "rtt");
	const char *text = call->value[PLAN_RTT];
	char expected[160];

	for (unsigned i = 0; text && i < cfg->reducers_n; i++)
		if (!cfg->reducers[i].rtt_ms && !value_parse(key, text, &cfg->reducers[i])) {
			value_expected(key, expected, sizeof expected);
			return rs_fail(e, RS_EINVAL, "--rtt: found \"%s\", expected %s", text, expected);
		}
	return RS_OK;
}

/* Writes a temporary file first, so that a full disk does not damage the existing
 * file. */
static int write_config(struct rs_config *cfg, const char *file, struct rs_err *e)
{
	char fresh[RS_PATH_LEN];
	int rc = RS_OK;
	FILE *out;

	if ((size_t)snprintf(fresh, sizeof fresh, "%s.new", file) >= sizeof fresh)
		return rs_fail(e, RS_EINVAL, "--write: found a path of %zu bytes, expected less than %d", strlen(file),
			       RS_PATH_LEN - 4);
	out = fopen(fresh, "we");
	if (!out)
		return rs_fail_sys(e, RS_EIO, errno, "cannot create %s", fresh);
	if (cfg->server.lanes_auto)
		cfg->server.lanes = 0; /* the machines that read the file may have other CPUs than this one */
	if (cfg->sharding.chunk_auto)
		cfg->sharding.chunk_bytes = 0; /* remains so for other bandwidths */
	rs_config_print(cfg, out);
	errno = 0;
	if (fflush(out) || ferror(out))
		rc = rs_fail_sys(e, RS_EIO, errno, "cannot write %s", fresh);
	if (fclose(out) && rc == RS_OK)
		rc = rs_fail_sys(e, RS_EIO, errno, "cannot write %s", fresh);
	if (rc == RS_OK && rename(fresh, file))
		rc = rs_fail_sys(e, RS_EIO, errno, "cannot replace %s", file);
	if (rc)
		remove(fresh);
	return rc;
}

static bool read_three(const char *path, uint64_t to[3])
{
	FILE *in = fopen(path, "re");
	uint64_t found[3];
	bool ok = in && fscanf(in, "%" SCNu64 " %" SCNu64 " %" SCNu64, &found[0], &found[1], &found[2]) == 3;

	if (in)
		fclose(in);
	if (ok)
		memcpy(to, found, sizeof found);
	return ok;
}

/* Reads the socket buffers of this machine; Linux's defaults if it does not say. */
static void sockets_read(struct plan_sockets *ret)
{
	*ret = (struct plan_sockets){.rmem = {4096, 131072, 6 << 20}, .wmem = {4096, 16384, 4 << 20}};
	ret->read = read_three("/proc/sys/net/ipv4/tcp_rmem", ret->rmem) &&
		    read_three("/proc/sys/net/ipv4/tcp_wmem", ret->wmem);
}

/* Checks --sharded. */
static int check_sharded(const struct call *call, const struct rs_config *cfg, struct rs_err *e)
{
	const char *text = call->value[PLAN_SHARDED];
	enum plan_sharded_kind kind;

	if (text && !plan_sharded_find(text, &kind))
		return rs_fail(e, RS_EINVAL, "--sharded: found \"%s\", expected fsdp, zero1, zero2, zero3 or hsdp",
			       text);
	if (text && plan_is_outline(cfg))
		return rs_fail(e, RS_EINVAL,
			       "--sharded needs the number of workers and the bandwidth: --workers and "
			       "--bandwidth");
	return RS_OK;
}

static void show_sharded(const struct plan *plan, const struct call *call, const char *prefix)
{
	enum plan_sharded_kind kind = PLAN_FSDP;
	struct plan_sharded s;

	plan_sharded_find(call->value[PLAN_SHARDED], &kind);
	plan_sharded(&s, plan, kind);
	if (call->value[PLAN_JSON])
		plan_sharded_print_json(&s, plan, stdout);
	else
		plan_sharded_print(&s, plan, prefix, stdout);
}

/* Prints the plan. The map can be used only if the file names its reducers; then all
 * other lines are comments. */
static int show_plan(const struct plan *plan, const struct call *call, struct rs_config *cfg, struct rs_err *e)
{
	bool placeholders = !call->file || call->value[PLAN_REDUCERS], map = !placeholders && !call->value[PLAN_WRITE];
	bool nodes = plan->relay && cfg->groups_n == 0 && cfg->workers_n < plan->net.workers;
	int rc = plan_apply(plan, cfg, e);

	if (rc == RS_OK && call->value[PLAN_WRITE])
		rc = write_config(cfg, call->value[PLAN_WRITE], e);
	if (rc)
		return rc;
	if (call->value[PLAN_SHARDED])
		show_sharded(plan, call, map ? "# " : "");
	else if (call->value[PLAN_JSON])
		plan_print_json(plan, cfg, stdout);
	else
		plan_print(plan, cfg, map ? "# " : "", stdout);
	if (call->value[PLAN_JSON])
		return RS_OK;
	if (call->value[PLAN_WRITE])
		printf("written to %s%s\n%s", call->value[PLAN_WRITE],
		       placeholders ? "; replace the addresses reducer-N:7600" : "",
		       nodes ? "replace the nodes worker-N of its groups\n" : "");
	else if (map)
		rs_config_print_sharding(cfg, stdout);
	return RS_OK;
}

/* Prints what can be said without the number of workers or the bandwidth. */
static void show_outline(const struct call *call, const struct rs_config *cfg)
{
	bool as_many = !call->file && !call->value[PLAN_REDUCERS];

	if (call->value[PLAN_JSON])
		plan_outline_print_json(cfg, as_many, stdout);
	else
		plan_outline_print(cfg, as_many, stdout);
}

static int run_plan(const struct call *call, struct rs_err *e)
{
	struct plan_sockets sockets;
	struct rs_config cfg;
	struct plan plan;
	int rc = call->file ? load_config(&cfg, call, e) : rs_config_load(&cfg, NULL, e);

	if (rc)
		return rc;
	rc = take_keys(call, &cfg, e);
	if (rc == RS_OK)
		rc = take_reducers(call, &cfg, e);
	if (rc == RS_OK)
		rc = take_rtt(call, &cfg, e);
	if (rc)
		goto close_config;
	rs_config_choose(&cfg);
	rc = check_sharded(call, &cfg, e);
	if (rc)
		goto close_config;
	if (plan_is_outline(&cfg) && !call->value[PLAN_WRITE]) {
		show_outline(call, &cfg);
		goto close_config;
	}
	rc = plan_make(&plan, &cfg, e);
	if (rc) {
		if (call->file)
			rs_wrap(e, "%s", file_name(call));
		goto close_config;
	}
	sockets_read(&sockets);
	plan_far_sockets(&plan, &cfg, &sockets);
	rc = show_plan(&plan, call, &cfg, e);
	plan_close(&plan);
close_config:
	rs_config_close(&cfg);
	return rc;
}

const struct command plan_command = {
    "plan",   FILE_OPTIONAL, "print whether reducers help, and the shard map with the shortest time",
    run_plan, plan_options,  sizeof plan_options / sizeof plan_options[0]};
