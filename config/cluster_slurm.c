/* SPDX-License-Identifier: Apache-2.0 */
#include "config/cluster_spec.h"
#include "config/nodelist.h"
#include "config/schema.h"
#include "config/value.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 128 }; /* components of a heterogeneous job, Slurm's own limit */

/* A job while it is read. */
struct slurm {
	rs_getenv_fn get;
	void *ctx;
	struct cluster_spec *spec;
	const char *node;     /* the name of this one */
	unsigned groups;      /* components of the job */
	unsigned reducers_at; /* the group of the reducers */
	unsigned port;        /* of reducers; 0: the default */
	int worker, reducer;  /* the position of this node among them; -1: it is none of them */
	struct rs_err *e;
};

static int slurm_number(const struct slurm *s, const char *name, int64_t min, int64_t max, unsigned missing,
			unsigned *ret)
{
	int64_t v;
	int rc = rs_launch_number(s->get, s->ctx, name, min, max, &v, s->e);

	if (!rc)
		*ret = v < 0 ? missing : (unsigned)v;
	return rc;
}

/* Writes the addresses of the reducers' nodes. */
static int slurm_take_reducers(struct slurm *s, const char *variable, const struct nodelist *nodes)
{
	struct cluster_spec *spec = s->spec;

	if (nodes->n > RS_REDUCERS_MAX)
		return rs_fail(s->e, RS_ECONFIG,
			       "environment variable %s: found %u nodes, expected at most %d reducers", variable,
			       nodes->n, RS_REDUCERS_MAX);
	spec->address = calloc(nodes->n, sizeof *spec->address);
	if (!spec->address)
		return rs_oom(s->e, nodes->n * sizeof *spec->address, "%u reducers", nodes->n);
	spec->reducers = nodes->n;
	s->reducer = nodelist_find(nodes, s->node);
	for (unsigned i = 0; i < nodes->n; i++) {
		struct rs_reducer reducer;
		char text[RS_HOST_MAX + 16], port[16] = "";

		if (s->port)
			snprintf(port, sizeof port, ":%u", s->port);
		snprintf(text, sizeof text, "%s%s", nodes->name[i], port);
		if (nodelist_find(nodes, nodes->name[i]) != (int)i ||
		    !value_parse(schema_find("reducers", "address"), text, &reducer))
			return rs_fail(s->e, RS_ECONFIG,
				       "environment variable %s: found the node \"%.60s\", expected different names "
				       "of machines",
				       variable, nodes->name[i]);
		memcpy(spec->address[i], reducer.address, sizeof reducer.address);
	}
	return RS_OK;
}

static int slurm_take_workers(struct slurm *s, const char *variable, const struct nodelist *nodes)
{
	int here = nodelist_find(nodes, s->node);

	if (here >= 0 && s->worker < 0)
		s->worker = (int)s->spec->workers + here;
	s->spec->workers += nodes->n;
	if (s->spec->workers <= RS_WORLD_MAX)
		return RS_OK;
	return rs_fail(s->e, RS_ECONFIG, "environment variable %s: found %u nodes of workers, expected at most %d",
		       variable, s->spec->workers, RS_WORLD_MAX);
}

static int slurm_read_group(struct slurm *s, unsigned group)
{
	char variable[48];
	const char *text;
	struct nodelist nodes;
	int rc;

	snprintf(variable, sizeof variable, "SLURM_JOB_NODELIST_HET_GROUP_%u", group);
	text = rs_launch_look_up(s->get, s->ctx, variable);
	if (!text)
		return rs_fail(s->e, RS_ECONFIG,
			       "environment variable %s: not set, expected the nodes of this component since "
			       "SLURM_HET_SIZE is %u",
			       variable, s->groups);
	rc = nodelist_read(&nodes, variable, text, s->e);
	if (rc)
		return rc;
	rc = group == s->reducers_at ? slurm_take_reducers(s, variable, &nodes)
				     : slurm_take_workers(s, variable, &nodes);
	nodelist_close(&nodes);
	return rc;
}

/* Finds the place of this process, which must be on a node of its role. */
static int slurm_find_place(struct slurm *s, enum rs_cluster_role role)
{
	bool reducer = role == RS_CLUSTER_REDUCER;
	int place = reducer ? s->reducer : s->worker;

	if (place < 0 && reducer)
		return rs_fail(
		    s->e, RS_ECONFIG,
		    "environment variable SLURMD_NODENAME: found \"%.60s\", expected a node of component %u, "
		    "the reducers': start this with srun --het-group=%u, or name a configuration file",
		    s->node, s->reducers_at, s->reducers_at);
	if (place < 0)
		return rs_fail(s->e, RS_ECONFIG,
			       "environment variable SLURMD_NODENAME: found \"%.60s\", expected a node of another "
			       "component than %u, the reducers': start this with srun --het-group, or name a "
			       "configuration file",
			       s->node, s->reducers_at);
	s->spec->role = role;
	s->spec->index = (unsigned)place;
	return RS_OK;
}

static int slurm_read(struct slurm *s, enum rs_cluster_role role)
{
	const char *job = rs_launch_look_up(s->get, s->ctx, "SLURM_JOB_ID_HET_GROUP_0");
	unsigned step_nodes = 0;
	int rc = slurm_number(s, "SLURM_HET_SIZE", 2, GROUPS_MAX, 0, &s->groups);

	if (!rc)
		rc = slurm_number(s, "REDUCTION_HET_GROUP", 0, (int64_t)s->groups - 1, s->groups - 1, &s->reducers_at);
	if (!rc)
		rc = slurm_number(s, "REDUCTION_PORT", 1, UINT16_MAX, 0, &s->port);
	if (!rc)
		rc = slurm_number(s, "SLURM_STEP_NUM_NODES", 1, INT32_MAX, 0, &step_nodes);
	if (!rc && !s->node)
		rc = rs_fail(s->e, RS_ECONFIG,
			     "environment variable SLURMD_NODENAME: not set, expected the name of this node: start "
			     "this with srun, or name a configuration file");
	for (unsigned i = 0; i < s->groups && !rc; i++)
		rc = slurm_read_group(s, i);
	if (!rc)
		rc = slurm_find_place(s, role);
	if (rc)
		return rc;
	s->spec->mixed_step = step_nodes > s->spec->workers;
	rs_run_make(s->spec->run, "slurm", job ? job : "?", "", "");
	return RS_OK;
}

int cluster_slurm_read(struct cluster_spec *ret, enum rs_cluster_role role, rs_getenv_fn get, void *ctx,
		       struct rs_err *e)
{
	struct cluster_spec spec = {.workers = 0};
	struct slurm s = {.get = get, .ctx = ctx, .spec = &spec, .worker = -1, .reducer = -1, .e = e};
	int rc;

	s.node = rs_launch_look_up(get, ctx, "SLURMD_NODENAME");
	rc = slurm_read(&s, role);
	if (rc)
		cluster_spec_close(&spec);
	else
		*ret = spec;
	return rc;
}
