/* SPDX-License-Identifier: Apache-2.0 */
/* CLUSTER_SPEC, TF_CONFIG, REDUCTION_REDUCERS and Slurm's lists of nodes: the first byte
 * of the input says which, and the role that is expected; after it comes the text. With
 * Slurm it is the nodes of the reducers, and in a second line those of the workers; this
 * node is node1.
 * Any text is refused with a message that names the variable, or gives a place inside the
 * job and a configuration with the job's reducers. */
#include "tests/fuzz/fuzz.h"

#include "config/cluster.h"

#include <string.h>

/* Of Slurm `variable` is a prefix of those with the lists, and `workers` is set. */
struct environment {
	const char *variable, *text, *workers;
};

static const char *get(void *ctx, const char *name)
{
	const struct environment *env = ctx;

	if (env->workers) {
		if (strcmp(name, "SLURM_HET_SIZE") == 0)
			return "2";
		if (strcmp(name, "SLURMD_NODENAME") == 0)
			return "node1";
		if (strcmp(name, "SLURM_JOB_NODELIST_HET_GROUP_0") == 0)
			return env->workers;
		if (strcmp(name, "SLURM_JOB_NODELIST_HET_GROUP_1") == 0)
			return env->text;
	} else if (strcmp(name, env->variable) == 0) {
		return env->text;
	}
	return strcmp(name, "REDUCTION_BANDWIDTH") == 0 ? "25gbit" : NULL;
}

static void check_found(const struct rs_cluster *c, const struct rs_config *cfg, const struct environment *env,
			enum rs_cluster_role role)
{
	struct rs_launch l = rs_cluster_launch(c);
	struct rs_err e;

	must(strcmp(c->variable, env->workers ? "Slurm" : env->variable) == 0);
	must(c->reducers >= 1 && c->reducers == cfg->reducers_n);
	if (strcmp(c->variable, "REDUCTION_REDUCERS") == 0) {
		must(c->workers == 0 && !c->run[0] && role != RS_CLUSTER_REDUCER && !cfg->server.insecure);
		return;
	}
	must(c->workers >= 1 && c->workers <= RS_WORLD_MAX);
	must(role != RS_CLUSTER_WORKER || (c->index < c->workers && l.rank < l.world_size));
	must(role != RS_CLUSTER_REDUCER || c->index < c->reducers);
	must(!cfg->server.insecure || (c->managed && role == RS_CLUSTER_REDUCER));
	must(rs_run_check(c->run, "run", &e) == RS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_cluster c = {.index = 7};
	struct environment env;
	struct rs_config cfg;
	struct rs_err e = {0};
	enum rs_cluster_role role;
	char *text = calloc(1, size + 1);
	int rc;

	must(text);
	if (size)
		memcpy(text, data + 1, size - 1);
	env = (struct environment){size && data[0] & 1 ? "TF_CONFIG" : "CLUSTER_SPEC", text, NULL};
	role = size ? (enum rs_cluster_role)(data[0] / 2 % 3) : RS_CLUSTER_WORKER;
	if (size && data[0] >= 64)
		env.variable = "REDUCTION_REDUCERS";
	if (size && data[0] >= 128) {
		char *line = strchr(text, '\n');

		if (line)
			*line++ = '\0';
		env = (struct environment){"SLURM", text, line ? line : "node1"};
	}
	rc = rs_cluster_load(&c, &cfg, role, get, &env, &e);
	if (rc) {
		must(rc == RS_ECONFIG && e.code == rc && strstr(e.msg, env.variable) && c.index == 7);
	} else if (c.variable) {
		check_found(&c, &cfg, &env, role);
		rs_config_close(&cfg);
	} else {
		must(!env.workers && (!text[0] || role == RS_CLUSTER_REDUCER));
	}
	free(text);
	return 0;
}
