/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a process without a file. REDUCTION_REDUCERS is a list of the
 * reducers' addresses ("10.0.0.11,r1:7700"), with the ids r0, r1 and so on; reducers do
 * not read it. Without it, that of a managed job, from the variable CLUSTER_SPEC, else
 * TF_CONFIG: JSON texts that name all replicas of the job and which of them this one is.
 * Without them, from the variables of a heterogeneous job of Slurm (SLURM_HET_SIZE): the
 * nodes of its last component, or of component REDUCTION_HET_GROUP, are reducers with
 * port REDUCTION_PORT (7600), the nodes of the others are workers.
 *
 *     pool of CLUSTER_SPEC         task of TF_CONFIG          role
 *     workerpool0, workerpool1     chief or master, worker    workers; the position in this order is the node rank
 *     workerpool2                  ps                         reducers
 *     workerpool3                  evaluator                  evaluators, which take no part in all-reduces
 *
 * Further variables: REDUCTION_WEIGHTS ("1,1,0.5": reducers.weight, by position),
 * REDUCTION_BANDWIDTH ("32gbit": reducers.bandwidth of each of them) and REDUCTION_SECRET
 * (the path of a file: server.secret or security.secret). */
#ifndef RS_CONFIG_CLUSTER_H
#define RS_CONFIG_CLUSTER_H

#include "common/error.h"
#include "common/log.h"
#include "config/config.h"
#include "config/launch.h"
#include "config/run.h"

#include <stdbool.h>

enum rs_cluster_role { RS_CLUSTER_WORKER, RS_CLUSTER_REDUCER, RS_CLUSTER_EVALUATOR };

/* What the variable says about the job. If workers >= 1, index is below the number of
 * workers or reducers, whichever this process is. REDUCTION_REDUCERS says nothing about
 * workers (0). */
struct rs_cluster {
	const char *variable; /* "CLUSTER_SPEC", "Slurm" and so on, static storage; NULL: none is set */
	const char *source;   /* the file, the variable or "defaults"; set by rs_cluster_load_or_file() */
	unsigned index;       /* of a worker its node rank */
	unsigned workers, reducers;
	bool managed;    /* "environment" is "cloud": the network between the replicas belongs to this job */
	bool insecure;   /* managed, and REDUCTION_SECRET is not set */
	bool mixed_step; /* the step of Slurm has more nodes than there are workers: its tasks are not the ranks */
	char run[RS_RUN_MAX];
};

/* Reads the environment (get == NULL: getenv). If a variable is set, fills *cfg, which
 * the caller releases with rs_config_close(); else only *ret, with variable == NULL. A
 * reducer of a managed job without REDUCTION_SECRET is insecure. Errors: RS_ECONFIG with
 * the variable, the field in it, what was found and what was expected; also if this
 * process is not of the role `role`, and if REDUCTION_REDUCERS and REDUCTION_CONFIG are
 * both set. RS_ENOMEM. */
int rs_cluster_load(struct rs_cluster *ret, struct rs_config *cfg, enum rs_cluster_role role, rs_getenv_fn get,
		    void *ctx, struct rs_err *e);

/* Loads a worker's file; without one (NULL) that of REDUCTION_CONFIG, else what
 * rs_cluster_load() finds, else the defaults. ret->source may be the caller's text.
 * Errors: those of rs_config_load() and rs_cluster_load(). */
int rs_cluster_load_or_file(struct rs_cluster *ret, struct rs_config *cfg, const char *file, struct rs_err *e);

/* Returns whether REDUCTION_CONFIG or REDUCTION_REDUCERS is set. */
bool rs_cluster_named(void);

/* Warns that a job is insecure, if it is. */
void rs_cluster_warn(const struct rs_cluster *c, const struct rs_log *log);

/* The place of a worker that no launcher has started: one process on each node. */
struct rs_launch rs_cluster_launch(const struct rs_cluster *c);

#endif
