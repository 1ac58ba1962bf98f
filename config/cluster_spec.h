/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a job for cluster.c: the JSON text of CLUSTER_SPEC or TF_CONFIG, or
 * Slurm's variables. */
#ifndef RS_CONFIG_CLUSTER_SPEC_H
#define RS_CONFIG_CLUSTER_SPEC_H

#include "config/cluster.h"

/* A description as read. Invariant: index is below the number of replicas in this
 * process's pools. */
struct cluster_spec {
	enum rs_cluster_role role;
	unsigned index; /* among the replicas of this role */
	unsigned workers, reducers;
	char (*address)[RS_ADDRESS_MAX]; /* owned; of each reducer, with its port */
	char type[RS_NAME_MAX];          /* "workerpool2"; "" with Slurm */
	const char *reducer_type;        /* the same of reducers; static storage, NULL with Slurm */
	bool mixed_step;                 /* see struct rs_cluster */
	bool managed;
	char run[RS_RUN_MAX];
};

/* Reads the text of `variable`, which is CLUSTER_SPEC or TF_CONFIG. Release *ret with
 * cluster_spec_close(). Errors: RS_ECONFIG, RS_ENOMEM. */
int cluster_spec_read(struct cluster_spec *ret, const char *variable, const char *text, struct rs_err *e);

/* Does the same with a heterogeneous job of Slurm, if SLURM_HET_SIZE is set. This process
 * must be on a node of `role`.
 */
int cluster_slurm_read(struct cluster_spec *ret, enum rs_cluster_role role, rs_getenv_fn get, void *ctx,
		       struct rs_err *e);

/* Does the same with a list of reducers, "10.0.0.11,r1:7700,[fd00::1]": there are no
 * workers in it. */
int cluster_list_read(struct cluster_spec *ret, const char *variable, const char *text, struct rs_err *e);

void cluster_spec_close(struct cluster_spec *s);

#endif
