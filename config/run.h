/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a run: a text that all ranks of one training send, and no rank of
 * another. Reducers and agents refuse a rank of another run, since two trainings whose
 * jobs have the same name would be summed together. */
#ifndef RS_CONFIG_RUN_H
#define RS_CONFIG_RUN_H

#include "common/error.h"
#include "config/config.h"
#include "config/launch.h"

#include <stddef.h>

enum { RS_RUN_MAX = 128 }; /* bytes of a run, terminator included */

/* What a run needs to know of the place where the process runs. */
struct rs_run_place {
	const char *host;  /* name of this machine, for a master address that means this machine ("localhost") */
	const char *space; /* namespace of Kubernetes; "": none */
};

/* Where Kubernetes tells a pod its namespace. */
#define RS_RUN_NAMESPACE_FILE "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

/* Finds the namespace of this pod: POD_NAMESPACE (get == NULL: getenv), else the first
 * line of the file; "" if neither says it or it does not fit. */
void rs_run_namespace(char *ret, size_t size, const char *file, rs_getenv_fn get, void *ctx);

/* Checks a run that a user has given: 1 to 127 printable ASCII characters without spaces.
 * Errors: RS_EINVAL, with `what` in the sentence. */
int rs_run_check(const char *run, const char *what, struct rs_err *e);

/* Makes a run from the launcher's variables (get == NULL: getenv); "" if they say nothing
 * about it. `launch` is what rs_launch_detect() has found: its launcher's variables come
 * first.
 *
 *     torchrun        torchrun:RUN_ID@MASTER_ADDR:MASTER_PORT, since people repeat the id of a tutorial
 *     RANK by hand    master:MASTER_ADDR:MASTER_PORT; also torchrun without a run id
 *     Open MPI        openmpi:JOB
 *     Slurm           slurm:JOB.STEP, of a heterogeneous job its first component's job
 *     PMI             pmi:JOB
 *     Vertex AI       vertex:JOB or vertex:JOB.TRIAL
 *     Kubernetes      kubernetes:JOB, of a Job with completionMode Indexed
 *
 * In Kubernetes "/" and the namespace follow: two namespaces may have objects of equal
 * names.
 *
 * In a managed job for which these say nothing, the run is that of config/cluster.h:
 * cluster:JOB or cluster:JOB.TRIAL.
 */
void rs_run_detect(char ret[static RS_RUN_MAX], const struct rs_launch *launch, const struct rs_run_place *place,
		   rs_getenv_fn get, void *ctx);

/* Makes a run "launcher:id" with `separator` and `more` behind it. Other characters than
 * printable ones become '?'; the end of a run that is too long becomes a hash of all of
 * it. */
void rs_run_make(char ret[static RS_RUN_MAX], const char *launcher, const char *id, const char *separator,
		 const char *more);

/* The sentence for two ranks of one job whose runs differ: fills *e with it and returns
 * RS_EMISMATCH. `one` and `other` name the ranks: "rank 3 (pid 77 on HOST)". */
int rs_run_mismatch(const char *job, const char *one, const char *one_run, const char *other, const char *other_run,
		    struct rs_err *e);

/* Makes the name of a job that has none: the run with other characters than those of
 * names replaced, and a hash of it. Different runs have different names, and there is
 * room for "@" and the digits of a group. */
void rs_run_job_name(char ret[static RS_NAME_MAX], const char *run);

#endif
