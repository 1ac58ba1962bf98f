/* SPDX-License-Identifier: Apache-2.0 */
/* Evidence: what the environment shows of the training that a process belongs to, beside
 * its run. A person may give two trainings one REDUCTION_RUN; where their launchers show
 * a difference, they do not meet all the same.
 *
 * Evidence is text: "NAME=VALUE NAME=VALUE ...". Two ranks of one training never have a
 * name with different values. A rank that lacks a name agrees with each. So each piece
 * must be one that cannot differ within a training:
 *
 *     MASTER_PORT       of torchrun and of RANK by hand. Not the address: people write it in several ways
 *     launcher          the job of Open MPI, Slurm (its step), MPICH or PMI, as in run.h. Not of Slurm's
 *                       heterogeneous jobs, each part of which has an id of its own
 *     torchrun-of-nodeN the torchrun that has started the ranks of node N, by the folder of its logs
 *     namespace         of Kubernetes
 *
 * They are used if the launcher's rank and world size are those of the job. Users, hosts
 * and boots are no evidence: they differ within a training whose ranks are started by
 * hand, or in containers. */
#ifndef RS_CONFIG_EVIDENCE_H
#define RS_CONFIG_EVIDENCE_H

#include "common/error.h"
#include "config/launch.h"

#include <stddef.h>

enum { RS_EVIDENCE_MAX = 256 }; /* bytes, terminator included */

/* Fills *ret; "": the environment shows nothing (get == NULL: getenv). launch: what
 * rs_launch_detect() has found. space: the namespace; "": none. */
void rs_evidence_find(char ret[static RS_EVIDENCE_MAX], const struct rs_launch *launch, const char *space,
		      rs_getenv_fn get, void *ctx);

/* Checks the evidence of two ranks of one job. `one` and `other` name them: "rank 3 (pid
 * 77 on HOST)". Errors: RS_EMISMATCH, with both values. */
int rs_evidence_check(const char *job, const char *one, const char *one_has, const char *other, const char *other_has,
		      struct rs_err *e);

#endif
