/* SPDX-License-Identifier: Apache-2.0 */
/* Matching the operations of a node's local ranks. */
#ifndef RS_AGENT_NODE_CORE_SUBMIT_H
#define RS_AGENT_NODE_CORE_SUBMIT_H

#include "agent/node/core/op_state.h"

/* Handles SUBMIT. Errors: RS_EPROTO. */
int local_job_submit(struct local_client *c, const struct local_submit *s, struct rs_err *e);
/* Passes matched operations to the engine as far as stages allow. */
void local_job_start_ops(struct local_job *j);
/* Returns when the oldest operation that waits for local ranks has waited too long;
 * UINT64_MAX: never. */
uint64_t local_job_op_deadline(const struct local_job *j);
/* That time has come: ends the job and names the local rank that has not started the
 * operation. */
void local_job_op_late(struct local_job *j);
/* Ends the job if an operation waits for a local rank that has left. */
void local_job_check_left(struct local_job *j);
/* The engine has ended op. */
void local_job_op_done(struct local_op *op);

#endif
