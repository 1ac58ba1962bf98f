/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON text of CLUSTER_SPEC or TF_CONFIG, for cluster.c. */
#ifndef RS_CONFIG_CLUSTER_SPEC_H
#define RS_CONFIG_CLUSTER_SPEC_H

#include "config/cluster.h"

/* A text as read. Invariant: index is below the number of replicas in this process's pools. */
struct cluster_spec {
	enum rs_cluster_role role;
	unsigned index; /* among the replicas of this role */
	unsigned workers, reducers;
	char (*address)[RS_ADDRESS_MAX]; /* owned; of each reducer, with its port */
	char type[RS_NAME_MAX];          /* "workerpool2" */
	const char *reducer_type;        /* the same of reducers; static storage */
	bool managed;
	char run[RS_RUN_MAX];
};

/* Reads the text of `variable`, which is CLUSTER_SPEC or TF_CONFIG. Release *ret with cluster_spec_close(). Errors:
 * RS_ECONFIG, RS_ENOMEM. */
int cluster_spec_read(struct cluster_spec *ret, const char *variable, const char *text, struct rs_err *e);
void cluster_spec_close(struct cluster_spec *s);

#endif
