/* SPDX-License-Identifier: Apache-2.0 */
#include "config/cluster.h"

#include "common/address.h"
#include "config/cluster_spec.h"
#include "config/schema.h"
#include "config/value.h"

#include <stdlib.h>
#include <string.h>

/* The source of variables, and where errors go. */
struct environment {
	rs_getenv_fn get;
	void *ctx;
	struct rs_err *e;
};

static const char *look_up(const struct environment *env, const char *name)
{
	return rs_launch_look_up(env->get, env->ctx, name);
}

/* Stores the text of a variable in a key's field of the struct at base. */
static int take(const struct environment *env, const char *variable, const char *text, const char *section,
		const char *name, void *base)
{
	const struct schema_key *key = schema_find(section, name);
	char expected[160];

	if (value_parse(key, text, base))
		return RS_OK;
	value_expected(key, expected, sizeof expected);
	return rs_fail(env->e, RS_ECONFIG, "environment variable %s: found \"%.40s\", expected %s", variable, text,
		       expected);
}

/* Reads the next weight of the list at *at, and moves *at behind it. */
static int take_weight(const struct environment *env, const char **at, struct rs_reducer *ret)
{
	char text[32];
	size_t n = strcspn(*at, ",");

	snprintf(text, sizeof text, "%.*s", n < sizeof text ? (int)n : (int)sizeof text - 1, *at);
	*at += n + ((*at)[n] == ',');
	return take(env, "REDUCTION_WEIGHTS", text, "reducers", "weight", ret);
}

/* Writes the section `reducers` of a file. */
static int write_reducers(const struct environment *env, const struct cluster_spec *s, FILE *out)
{
	const char *weights = look_up(env, "REDUCTION_WEIGHTS"), *at = weights;
	const char *bandwidth = look_up(env, "REDUCTION_BANDWIDTH");
	unsigned given = weights ? 1 : s->reducers;
	struct rs_reducer r = {.weight = 1};
	char weight[32];

	for (const char *c = weights; c && *c; c++)
		given += *c == ',';
	if (given != s->reducers)
		return rs_fail(env->e, RS_ECONFIG,
			       "environment variable REDUCTION_WEIGHTS: found %u numbers in \"%.40s\", expected %u, "
			       "one for each reducer",
			       given, weights, s->reducers);
	if (bandwidth && take(env, "REDUCTION_BANDWIDTH", bandwidth, "reducers", "bandwidth", &r))
		return env->e->code;
	fprintf(out, "reducers:\n");
	for (unsigned i = 0; i < s->reducers; i++) {
		if (weights && take_weight(env, &at, &r))
			return env->e->code;
		value_format(schema_find("reducers", "weight"), &r, weight, sizeof weight);
		fprintf(out, "- {id: r%u, address: \"%s\", weight: %s%s%s}\n", i, s->address[i], weight,
			bandwidth ? ", bandwidth: " : "", bandwidth ? bandwidth : "");
	}
	return RS_OK;
}

/* Makes the configuration by way of a file's text, so that it is checked and completed
 * like one. */
static int make_config(const struct environment *env, const char *variable, const struct cluster_spec *s,
		       struct rs_config *ret)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	int rc;

	if (!out)
		return rs_oom(env->e, 0, "the configuration");
	rc = write_reducers(env, s, out);
	if (fclose(out) && !rc)
		rc = rs_oom(env->e, 0, "the configuration");
	if (!rc)
		rc = rs_config_parse(ret, variable, text, len, env->e);
	free(text);
	return rc;
}

/* Sets what a reducer needs beyond the list of reducers, or a worker. */
static int complete(const struct environment *env, const struct cluster_spec *s, struct rs_config *cfg)
{
	const char *secret = look_up(env, "REDUCTION_SECRET");
	bool reducer = s->role == RS_CLUSTER_REDUCER;
	struct rs_host_port own;
	int rc = RS_OK;

	if (secret)
		rc = take(env, "REDUCTION_SECRET", secret, reducer ? "server" : "security", "secret", cfg);
	if (rc || !reducer)
		return rc;
	rc = rs_host_port_split(&own, s->address[s->index], false, env->e);
	if (rc)
		return rc;
	snprintf(cfg->server.listen, sizeof cfg->server.listen, "*:%s", own.port);
	cfg->server.insecure = s->managed && !secret;
	if (s->workers > cfg->server.max_workers)
		cfg->server.max_workers = s->workers;
	return RS_OK;
}

/* Refuses a process that is started in a replica of another role, and workers without
 * reducers. */
static int check_role(const struct environment *env, const char *variable, const struct cluster_spec *s,
		      enum rs_cluster_role role)
{
	static const char *const roles[] = {"a worker", "a reducer",
					    "an evaluator, which takes no part in all-reduces"};

	if (s->role != role)
		return rs_fail(env->e, RS_ECONFIG,
			       "environment variable %s: task.type: found \"%s\", %s; expected %s. To start it here "
			       "nevertheless, name a configuration file",
			       variable, s->type, roles[s->role],
			       role == RS_CLUSTER_REDUCER ? s->reducer_type : roles[role]);
	if (s->reducers == 0)
		return rs_fail(env->e, RS_ECONFIG,
			       "environment variable %s: cluster.%s: found no reducers, expected their addresses: give "
			       "the job this pool, or name a configuration file",
			       variable, s->reducer_type);
	return RS_OK;
}

static int cluster_read_list(const struct environment *env, const char *text, struct cluster_spec *ret)
{
	const char *file = look_up(env, "REDUCTION_CONFIG");

	if (file)
		return rs_fail(env->e, RS_ECONFIG,
			       "environment variables REDUCTION_CONFIG (\"%.60s\") and REDUCTION_REDUCERS (\"%.60s\"): "
			       "found both, expected one: the reducers come from the file or from the list",
			       file, text);
	return cluster_list_read(ret, "REDUCTION_REDUCERS", text, env->e);
}

/* Reads what describes the job; *ret_variable NULL: nothing does. A list of reducers goes
 * before the rest, as a file does; a reducer has no use for it. */
static int read_environment(const struct environment *env, enum rs_cluster_role role, const char **ret_variable,
			    struct cluster_spec *ret)
{
	const char *list = role == RS_CLUSTER_REDUCER ? NULL : look_up(env, "REDUCTION_REDUCERS");
	const char *variable = look_up(env, "CLUSTER_SPEC") ? "CLUSTER_SPEC" : "TF_CONFIG";
	const char *text = look_up(env, variable);
	int rc;

	*ret_variable = list ? "REDUCTION_REDUCERS" : text ? variable : look_up(env, "SLURM_HET_SIZE") ? "Slurm" : NULL;
	if (!*ret_variable)
		return RS_OK;
	if (list)
		return cluster_read_list(env, list, ret);
	if (!text)
		return cluster_slurm_read(ret, role, env->get, env->ctx, env->e);

	rc = cluster_spec_read(ret, variable, text, env->e);
	if (rc)
		return rc;
	rc = check_role(env, variable, ret, role);
	if (rc)
		cluster_spec_close(ret);
	return rc;
}

int rs_cluster_load(struct rs_cluster *ret, struct rs_config *cfg, enum rs_cluster_role role, rs_getenv_fn get,
		    void *ctx, struct rs_err *e)
{
	const struct environment env = {.get = get, .ctx = ctx, .e = e};
	const char *variable;
	struct cluster_spec spec;
	struct rs_config made;
	int rc = read_environment(&env, role, &variable, &spec);

	if (rc)
		return rc;
	if (!variable) {
		*ret = (struct rs_cluster){.variable = NULL};
		return RS_OK;
	}
	rc = make_config(&env, variable, &spec, &made);
	if (!rc && (rc = complete(&env, &spec, &made)))
		rs_config_close(&made);
	if (!rc) {
		*cfg = made;
		*ret = (struct rs_cluster){.variable = variable,
					   .index = spec.index,
					   .workers = spec.workers,
					   .reducers = spec.reducers,
					   .managed = spec.managed,
					   .insecure = spec.managed && !look_up(&env, "REDUCTION_SECRET"),
					   .mixed_step = spec.mixed_step};
		memcpy(ret->run, spec.run, sizeof ret->run);
	}
	cluster_spec_close(&spec);
	return rc;
}

int rs_cluster_load_or_file(struct rs_cluster *ret, struct rs_config *cfg, const char *file, struct rs_err *e)
{
	struct rs_cluster found = {.variable = NULL};
	int rc = RS_OK;

	if (!file && !rs_launch_look_up(NULL, NULL, "REDUCTION_REDUCERS"))
		file = rs_launch_look_up(NULL, NULL, "REDUCTION_CONFIG");
	if (!file)
		rc = rs_cluster_load(&found, cfg, RS_CLUSTER_WORKER, NULL, NULL, e);
	if (!rc && !found.variable)
		rc = rs_config_load(cfg, file, e);
	if (rc)
		return rc;
	found.source = file ? file : found.variable ? found.variable : "defaults";
	*ret = found;
	return RS_OK;
}

bool rs_cluster_named(void)
{
	return rs_launch_look_up(NULL, NULL, "REDUCTION_CONFIG") || rs_launch_look_up(NULL, NULL, "REDUCTION_REDUCERS");
}

void rs_cluster_warn(const struct rs_cluster *c, const struct rs_log *log)
{
	if (c->insecure)
		rs_log(log, RS_LOG_WARN, "insecure",
		       rs_kv_s("reason", "no REDUCTION_SECRET: every machine in this job's network may join"));
}

struct rs_launch rs_cluster_launch(const struct rs_cluster *c)
{
	return (struct rs_launch){.rank = (int)c->index,
				  .world_size = (int)c->workers,
				  .local_rank = 0,
				  .local_world_size = 1,
				  .node_rank = (int)c->index,
				  .nodes = (int)c->workers,
				  .generation = -1,
				  .source = "cluster",
				  .nodes_said = true};
}
