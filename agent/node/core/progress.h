/* SPDX-License-Identifier: Apache-2.0 */
/* Operations whose input arrives, and whose results leave, while they run. */
#ifndef RS_AGENT_NODE_CORE_PROGRESS_H
#define RS_AGENT_NODE_CORE_PROGRESS_H

#include "agent/node/core/op_state.h"

/* Checks the ring of a SUBMIT. Errors: RS_EPROTO. */
int local_ring_check(const struct local_job *j, const struct local_submit *s, struct rs_err *e);
/* Handles FILLED. Errors: RS_EPROTO. */
int local_job_filled(struct local_client *c, const struct local_filled *f, struct rs_err *e);
/* All local ranks have started op: from now on its missing input is tracked, until it is
 * complete or op is over. */
void local_op_track_input(struct local_op *op);
void local_op_untrack_input(struct local_op *op);
/* Checks that no local rank has left that owes bytes to an operation. Errors: RS_ECLOSED
 * (names it). */
int local_job_check_input(const struct local_job *j, struct rs_err *e);
/* Returns the oldest operation for which a local rank could provide more bytes; NULL:
 * none. */
const struct local_op *local_job_lagging_op(const struct local_job *j);
/* That operation has waited too long. Sets and returns RS_EPEER, which names the local
 * rank. */
int local_op_input_late(const struct local_op *op, struct rs_err *e);
/* Prepares the counting of pieces, before op runs, if a part has a ring. */
void local_op_pieces(struct local_op *op);
/* A chunk has landed, given by its first element. On the engine's thread. */
void local_op_landed(struct local_op *op, uint64_t first);
/* Sends LANDED. On the hub's thread. */
void local_op_send_landed(struct local_op *op);

#endif
