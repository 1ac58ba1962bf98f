/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a communicator. Every setting comes from the caller, else from the environment,
 * else from the configuration file, else from what a managed job says about itself
 * (config/cluster.h), else it is the default. Then the backend meets the other ranks. */
#include "agent/lib/client/open.h"
#include "agent/lib/api/comm.h"
#include "agent/lib/api/settings.h"
#include "agent/lib/direct/direct.h"
#include "common/descriptors.h"
#include "common/log.h"
#include "config/cluster.h"
#include "config/evidence.h"
#include "config/identity.h"
#include "config/job.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Ranks that contradict each other start at about the same time. Local rank 0 serves the
 * others for so long, so that they read the reason, and not a timeout. */
enum { LINGER_S = 1 };

enum { OPTIONS_SIZE_0_1 = offsetof(reduction_options, connect_timeout_ms) + sizeof(int) };

/* The caller's options, completed. Strings belong to the caller, the environment or cfg.
 * Invariant: after open_resolve all members of `to` are set. */
struct opening {
	reduction_options opt;
	struct rs_launch launch;
	struct rs_cluster cluster;
	struct rs_config *cfg;
	struct backend_options to;
	reduction_mode mode; /* what is used: AGENT, NODE or DIRECT */
	char name[NODE_AGENT_NAME];
	struct rs_identity identity;
	char evidence[RS_EVIDENCE_MAX];
	char group_job[RS_NAME_MAX]; /* the job's name with the group's digits */
};

/* Structs of older headers are shorter: missing members keep their defaults. */
static int open_copy_options(reduction_options *to, const reduction_options *from, struct rs_err *e)
{
	static const reduction_options none = REDUCTION_OPTIONS_INIT;

	*to = none;
	if (comm_check_size(from->struct_size, OPTIONS_SIZE_0_1, sizeof *to, "REDUCTION_OPTIONS_INIT", e))
		return e->code;
	memcpy(to, from, from->struct_size);
	return RS_OK;
}

static int open_resolve_rank(struct opening *o, struct rs_err *e)
{
	const struct rs_launch *l = &o->launch;
	int64_t rank, world, generation;
	int rc = setting_number(o->opt.world_size, "world_size", "REDUCTION_WORLD_SIZE", 1, RS_WORLD_MAX, &world, e);

	if (!rc)
		rc = setting_number(o->opt.rank, "rank", "REDUCTION_RANK", 0, RS_WORLD_MAX - 1, &rank, e);
	if (!rc)
		rc = setting_number(o->opt.generation, "generation", "REDUCTION_GENERATION", 0, UINT32_MAX, &generation,
				    e);
	if (!rc && world < 0 && l->world_size < 0)
		rc = rs_launch_check_alone(NULL, NULL, e);
	if (rc)
		return rc;
	if (world < 0)
		world = l->world_size < 0 ? 1 : l->world_size;
	if (rank < 0)
		rank = l->rank;
	if (rank < 0 && world > 1)
		return rs_fail(e, RS_EINVAL, "the rank among %lld is not known: set RANK or reduction_options.rank",
			       (long long)world);
	if (rank < 0)
		rank = 0;
	if (world > RS_WORLD_MAX)
		return rs_fail(e, RS_EINVAL, "the world size is %lld, at most %d is supported", (long long)world,
			       RS_WORLD_MAX);
	if (rank >= world)
		return rs_fail(e, RS_EINVAL, "rank %lld is not a rank of %lld: 0 to %lld were expected",
			       (long long)rank, (long long)world, (long long)world - 1);

	o->to.rank = (unsigned)rank;
	o->to.world_size = (unsigned)world;
	o->to.generation = (uint32_t)(generation >= 0 ? generation : l->generation >= 0 ? l->generation : 0);
	return RS_OK;
}

/* Returns whether the launcher's information about this node is about this job. */
static bool open_launcher_agrees(const struct opening *o)
{
	const struct rs_launch *l = &o->launch;

	return (l->rank < 0 || (unsigned)l->rank == o->to.rank) &&
	       (l->world_size < 0 || (unsigned)l->world_size == o->to.world_size);
}

/* Finds the number of the job's processes on this node and the index of this one; -1:
 * unknown. */
static int open_find_local(const struct opening *o, int64_t *ret_rank, int64_t *ret_size, struct rs_err *e)
{
	int64_t world = o->to.world_size;
	int rc = setting_number(o->opt.local_world_size, "local_world_size", "REDUCTION_LOCAL_WORLD_SIZE", 1, world,
				ret_size, e);

	if (!rc)
		rc = setting_number(o->opt.local_rank, "local_rank", "REDUCTION_LOCAL_RANK", 0, world - 1, ret_rank, e);
	if (rc)
		return rc;
	if (open_launcher_agrees(o)) {
		*ret_size = *ret_size < 0 ? o->launch.local_world_size : *ret_size;
		*ret_rank = *ret_rank < 0 ? o->launch.local_rank : *ret_rank;
	}
	if (world == 1) {
		*ret_size = 1;
		*ret_rank = 0;
	}
	return RS_OK;
}

static int open_resolve_local(struct opening *o, struct rs_err *e)
{
	const struct rs_launch *l = &o->launch;
	int64_t rank, size, world = o->to.world_size;
	int rc = open_find_local(o, &rank, &size, e);

	if (rc)
		return rc;
	if (size < 0 || rank < 0)
		return rs_fail(e, RS_ECONFIG,
			       "an agent must know this process's place on its node: set LOCAL_RANK and "
			       "LOCAL_WORLD_SIZE, or local_rank and local_world_size of reduction_options");
	if (rank >= size)
		return rs_fail(e, RS_EINVAL, "local rank %lld is not a rank of %lld on this node", (long long)rank,
			       (long long)size);
	o->to.local_rank = (unsigned)rank;
	o->to.local_world_size = (unsigned)size;
	if (o->opt.nodes != -1) {
		o->to.nodes = (unsigned)o->opt.nodes;
		o->to.node_rank = (unsigned)o->opt.node_rank;
		return RS_OK;
	}
	if (open_launcher_agrees(o) && l->nodes > 0 && l->node_rank >= 0 && l->node_rank < l->nodes) {
		o->to.nodes = (unsigned)l->nodes;
		o->to.node_rank = (unsigned)l->node_rank;
		return RS_OK;
	}
	if (world % size)
		return rs_fail(e, RS_ECONFIG,
			       "%lld processes are not nodes of %lld each: set GROUP_RANK and GROUP_WORLD_SIZE",
			       (long long)world, (long long)size);
	o->to.nodes = (unsigned)(world / size);
	o->to.node_rank = o->to.rank / (unsigned)size;
	return RS_OK;
}

/* Returns whether some nodes have several of the job's processes and every rank knows
 * which. All ranks must come to the same result. A rank's number alone does not say its
 * node, because mpirun may place ranks on the nodes in turn. */
static int open_shares_nodes(const struct opening *o, bool *ret, struct rs_err *e)
{
	const struct rs_launch *l = &o->launch;
	int64_t rank, size, nodes = -1;
	int rc = open_find_local(o, &rank, &size, e);

	if (rc)
		return rc;
	if (o->opt.nodes != -1)
		nodes = o->opt.nodes;
	else if (open_launcher_agrees(o) && l->nodes_said)
		nodes = l->nodes;
	else if (size == o->to.world_size)
		nodes = 1;
	*ret = rank >= 0 && size > rank && nodes > 0 && nodes < o->to.world_size;
	return RS_OK;
}

static const char *const open_modes[] = {"auto", "agent", "node", "direct"};

/* Returns the mode of that name; REDUCTION_MODE_DEFAULT: there is none. */
static reduction_mode open_mode(const char *name)
{
	for (int m = REDUCTION_MODE_AUTO; m <= REDUCTION_MODE_DIRECT; m++)
		if (strcmp(name, open_modes[m]) == 0)
			return (reduction_mode)m;
	return REDUCTION_MODE_DEFAULT;
}

/* Checks a mode and a socket (NULL: none) that one place gives; what: their names there.
 * The name of a mode is no path: whoever writes it as one wants that mode. */
static int open_check_mode(reduction_mode mode, const char *socket, const char *const what[2], int code,
			   struct rs_err *e)
{
	if (socket && open_mode(socket) != REDUCTION_MODE_DEFAULT)
		return rs_fail(e, code,
			       "%s is \"%s\", the path of an agent's socket was expected: to choose a mode, set %s",
			       what[1], socket, what[0]);
	if (socket && (mode == REDUCTION_MODE_NODE || mode == REDUCTION_MODE_DIRECT))
		return rs_fail(e, code, "%s is %s, which uses no agent, but %s is \"%s\": leave one of them out",
			       what[0], open_modes[mode], what[1], socket);
	return RS_OK;
}

/* Takes what the options leave open from the environment: the socket (NULL: none), and
 * the mode if it is REDUCTION_MODE_DEFAULT. */
static int open_mode_variables(reduction_mode *mode, const char **ret_socket, struct rs_err *e)
{
	static const char *const variables[] = {"REDUCTION_MODE", "REDUCTION_AGENT"};
	const char *name = setting_text(NULL, variables[0]);

	if (*mode == REDUCTION_MODE_DEFAULT && name) {
		*mode = open_mode(name);
		if (*mode == REDUCTION_MODE_DEFAULT)
			return rs_fail(e, RS_ECONFIG,
				       "REDUCTION_MODE is \"%s\", auto, agent, node or direct was expected", name);
	}
	*ret_socket = setting_text(NULL, variables[1]);
	return open_check_mode(*mode, *ret_socket, variables, RS_ECONFIG, e);
}

/* Finds the mode and the socket that are asked for; *ret_socket NULL: none. */
static int open_find_mode(const reduction_options *opt, reduction_mode *ret_mode, const char **ret_socket,
			  struct rs_err *e)
{
	static const char *const members[] = {"mode", "agent_socket"};
	const char *socket = opt->agent_socket && *opt->agent_socket ? opt->agent_socket : NULL;
	reduction_mode mode = opt->mode;

	if (mode < REDUCTION_MODE_DEFAULT || mode > REDUCTION_MODE_DIRECT)
		return rs_fail(e, RS_EINVAL, "mode is %d, %d to %d were expected", mode, REDUCTION_MODE_DEFAULT,
			       REDUCTION_MODE_DIRECT);
	if (open_check_mode(mode, socket, members, RS_EINVAL, e))
		return e->code;
	/* NODE and DIRECT use no socket; one in the environment is not this program's
	 * mistake */
	if (!socket && mode != REDUCTION_MODE_NODE && mode != REDUCTION_MODE_DIRECT &&
	    open_mode_variables(&mode, &socket, e))
		return e->code;
	if (mode == REDUCTION_MODE_DEFAULT || mode == REDUCTION_MODE_AUTO)
		mode = socket ? REDUCTION_MODE_AGENT : REDUCTION_MODE_AUTO;
	*ret_mode = mode;
	*ret_socket = socket;
	return RS_OK;
}

static int open_resolve_mode(struct opening *o, struct rs_err *e)
{
	const char *socket = NULL;
	bool shared = false;
	int rc = open_find_mode(&o->opt, &o->mode, &socket, e);

	if (rc)
		return rc;
	o->to.agent_path = socket ? socket : o->cfg->agent.socket;
	if (o->mode != REDUCTION_MODE_AUTO)
		return RS_OK;
	if (client_agent_listens(o->to.agent_path)) {
		o->mode = REDUCTION_MODE_AGENT;
		return RS_OK;
	}
	rc = open_shares_nodes(o, &shared, e);
	o->mode = shared ? REDUCTION_MODE_NODE : REDUCTION_MODE_DIRECT;
	return rc;
}

/* Adds the group's digits to the job's name. */
static int open_name_group(struct opening *o, struct rs_err *e)
{
	char name[RS_NAME_MAX];
	int n = snprintf(name, sizeof name, "%s@%s", o->to.job, o->opt.group);

	if (n < 0 || (size_t)n >= sizeof name)
		return rs_fail(e, RS_EINVAL,
			       "the name of job \"%s\" is too long for a group: with \"@%s\" it has %d characters, up "
			       "to %d were expected",
			       o->to.job, o->opt.group, n, RS_NAME_MAX - 1);
	if (!rs_job_valid(name))
		return rs_fail(e, RS_EINVAL, "group is \"%s\", 16 lower-case hexadecimal digits were expected",
			       o->opt.group);
	memcpy(o->group_job, name, (size_t)n + 1);
	o->to.job = o->group_job;
	return RS_OK;
}

/* Finds evidence, if the launcher's information is about this job. */
static void open_find_evidence(struct opening *o)
{
	char space[RS_HOST_MAX];

	if (o->launch.rank < 0 || !open_launcher_agrees(o))
		return;
	rs_run_namespace(space, sizeof space, RS_RUN_NAMESPACE_FILE, NULL, NULL);
	rs_evidence_find(o->evidence, &o->launch, space, NULL, NULL);
}

static int open_resolve_identity(struct opening *o, struct rs_err *e)
{
	bool group = o->opt.group && *o->opt.group;

	if (rs_identity_find(&o->identity, o->opt.job, o->opt.run, o->cfg, &o->launch, &o->cluster, e))
		return e->code;
	o->to.run = o->identity.run;
	o->to.job = o->identity.job;
	o->to.evidence = o->evidence;
	if (!group) /* the digits of a group are known to its ranks alone */
		open_find_evidence(o);
	if (!o->to.run[0] && o->to.world_size > 1 && !group)
		return rs_fail(
		    e, RS_ECONFIG,
		    "nothing tells this start of %u ranks from another one: there is no id of a launcher, and the "
		    "name of a job does not tell two starts apart. Set REDUCTION_RUN to the same text on all its "
		    "ranks, "
		    "another one for each start",
		    o->to.world_size);
	return group ? open_name_group(o, e) : RS_OK;
}

/* Checks the node's number; without one both members are -1. */
static int open_check_node(const struct opening *o, struct rs_err *e)
{
	int node_rank = o->opt.node_rank, nodes = o->opt.nodes;

	if (node_rank == -1 && nodes == -1)
		return RS_OK;
	if (nodes < 1 || (unsigned)nodes > o->to.world_size || node_rank < 0 || node_rank >= nodes)
		return rs_fail(e, RS_EINVAL,
			       "node_rank is %d and nodes is %d: a node of 1 to %u, or -1 for both, was expected",
			       node_rank, nodes, o->to.world_size);
	return RS_OK;
}

/* Finds rank, world size and configuration. A managed job gives each worker a place, but
 * a launcher inside knows it better. */
static int open_resolve_place(struct opening *o, struct rs_err *e)
{
	int rc = rs_launch_detect(&o->launch, NULL, NULL, e);

	if (!rc)
		rc = settings_load(&o->opt, o->cfg, &o->cluster, e);
	if (rc)
		return rc;
	if (o->cluster.workers && strcmp(o->launch.source, "none") == 0)
		o->launch = rs_cluster_launch(&o->cluster);
	if (o->cluster.mixed_step && strcmp(o->launch.source, "slurm") == 0)
		rc = rs_fail(
		    e, RS_ECONFIG,
		    "this step of Slurm has other nodes than those of the workers, so that its %d tasks are not "
		    "the ranks: start workers and reducers with an srun for each",
		    o->launch.world_size);
	else
		rc = open_resolve_rank(o, e);
	if (!rc)
		rc = open_check_node(o, e);
	if (rc)
		rs_config_close(o->cfg);
	return rc;
}

/* Returns the job and the place that this node's agent serves. */
static struct node_agent_place open_node_place(const struct opening *o)
{
	return (struct node_agent_place){
	    .job = o->to.job, .generation = o->to.generation, .node_rank = o->to.node_rank};
}

static int open_resolve(struct opening *o, const reduction_options *opt, struct rs_err *e)
{
	struct node_agent_place place;
	int64_t connect_ms = -1;
	int rc = open_copy_options(&o->opt, opt, e);

	if (!rc)
		rc = setting_number(o->opt.connect_timeout_ms, "connect_timeout_ms", NULL, 1, INT_MAX, &connect_ms, e);
	if (!rc)
		rc = open_resolve_place(o, e);
	if (rc)
		return rc;
	o->to.cfg = o->cfg;
	o->to.connect_ms = connect_ms < 0 ? o->cfg->timeouts.connect_ms : (uint32_t)connect_ms;
	o->to.local_world_size = 1;
	o->to.node_rank = o->to.rank;
	o->to.nodes = o->to.world_size;
	rc = open_resolve_identity(o, e);
	if (!rc)
		rc = open_resolve_mode(o, e);
	if (!rc && o->mode != REDUCTION_MODE_DIRECT)
		rc = open_resolve_local(o, e);
	if (!rc && o->mode == REDUCTION_MODE_NODE) {
		place = open_node_place(o);
		node_agent_name(o->name, o->cfg, &place);
		o->to.agent_path = o->name;
	}
	if (rc)
		rs_config_close(o->cfg);
	return rc;
}

/* Starts the node agent in local rank 0's process, before that connects as a client like
 * the others. */
static int open_serve_node(struct reduction_comm *c, const struct opening *o, struct rs_err *e)
{
	const struct node_agent_place place = open_node_place(o);
	struct rs_cluster cluster;
	struct rs_config *cfg;
	int rc;

	if (o->mode != REDUCTION_MODE_NODE || o->to.local_rank != 0)
		return RS_OK;
	cfg = malloc(sizeof *cfg);
	if (!cfg)
		return rs_oom(e, 0, "the configuration");
	rc = settings_load(&o->opt, cfg, &cluster, e);
	if (!rc) {
		rc = node_agent_start(&c->node, cfg, &place, o->to.connect_ms, e);
		if (rc)
			rs_config_close(cfg);
	}
	if (rc)
		free(cfg);
	return rc;
}

static int open_client(struct reduction_comm *c, const struct opening *o, struct rs_err *e)
{
	int rc = open_serve_node(c, o, e);

	if (rc)
		return rc;
	rc = client_open(&c->backend, &o->to, e);
	if (rc && c->node) {
		if (rc == RS_EMISMATCH)
			nanosleep(&(struct timespec){.tv_sec = LINGER_S}, NULL);
		node_agent_stop(c->node, 0);
		c->node = NULL;
	}
	if (!rc && setting_wire(&o->opt)) {
		c->backend->wire_up = o->cfg->job.wire_up;
		c->backend->wire_down = o->cfg->job.wire_down;
	}
	if (rc == RS_ETIMEOUT && o->mode == REDUCTION_MODE_NODE && o->to.local_rank != 0)
		return rs_wrap(e,
			       "local rank 0, whose process serves this node (none does with REDUCTION_MODE=direct)");
	return rc;
}

/* Names the file for the trace of buffers of GPUs. */
static int open_gpu_trace(struct reduction_comm *c, const struct opening *o, struct rs_err *e)
{
	const char *folder = setting_text(NULL, "REDUCTION_GPU_TRACE");
	size_t room = folder ? strlen(folder) + RS_NAME_MAX + sizeof "/.4294967295.4294967295.json" : 0;

	if (!folder)
		return RS_OK;
	c->gpu_trace = malloc(room);
	if (!c->gpu_trace)
		return rs_oom(e, room, "a path");
	snprintf(c->gpu_trace, room, "%s/%s.%u.%u.json", folder, o->to.job, o->to.generation, o->to.rank);
	return RS_OK;
}

/* Rank 0 says once what has been opened: above all who sums. */
static void open_report(const struct reduction_comm *c, const struct opening *o)
{
	const struct rs_log log = {.level = o->cfg->logging.level,
				   .json = o->cfg->logging.json,
				   .journal = rs_log_is_journal(STDERR_FILENO),
				   .fd = STDERR_FILENO};

	if (c->rank == 0) {
		rs_cluster_warn(&o->cluster, &log);
		rs_log(&log, RS_LOG_INFO, "communicator-open", rs_kv_s("job", o->to.job),
		       rs_kv_u("generation", o->to.generation), rs_kv_s("run", o->to.run), rs_kv_u("rank", c->rank),
		       rs_kv_u("world_size", c->world_size), rs_kv_u("nodes", o->to.nodes),
		       rs_kv_s("summed_by", c->backend->single_node ? "node" : "reducers"),
		       rs_kv_u("reducers", o->cfg->reducers_n), rs_kv_s("config", o->cluster.source));
	}
}

static int open_backend(struct reduction_comm *c, const reduction_options *opt, struct rs_err *e)
{
	struct opening o = {.cfg = malloc(sizeof *o.cfg)};
	int rc;

	if (!o.cfg)
		return rs_oom(e, 0, "the configuration");
	rc = open_resolve(&o, opt, e);
	if (rc) {
		free(o.cfg);
		return rc;
	}
	c->rank = o.to.rank;
	c->world_size = o.to.world_size;
	c->generation = o.to.generation;
	rc = comm_claim(c, &o.to, e);
	if (!rc)
		rc = open_gpu_trace(c, &o, e);
	if (!rc)
		rc = o.mode == REDUCTION_MODE_DIRECT ? direct_open(&c->backend, &o.to, e) : open_client(c, &o, e);
	if (rc) {
		comm_unclaim(c);
		rs_config_close(o.cfg);
		free(o.cfg);
	} else {
		open_report(c, &o);
	}
	return rc;
}

int reduction_open(reduction_comm **ret, const reduction_options *opt, reduction_error *err)
{
	struct reduction_comm *c;
	struct rs_err e;
	int rc;

	if (!ret || !opt) {
		comm_null(ret ? "opt" : "ret", &e);
		return comm_result(err, &e);
	}
	rs_descriptors_hold_standard();
	c = comm_new(&e);
	if (!c)
		return comm_result(err, &e);
	rc = open_backend(c, opt, &e);
	if (rc) {
		comm_delete(c);
		return comm_result(err, &e);
	}
	request_pool_open(c->requests, c->backend);
	*ret = c;
	if (err) {
		err->code = REDUCTION_OK;
		err->message[0] = '\0';
	}
	return REDUCTION_OK;
}
