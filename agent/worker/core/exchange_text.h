/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences about operations and links, for errors and warnings. */
#ifndef RS_AGENT_WORKER_CORE_EXCHANGE_TEXT_H
#define RS_AGENT_WORKER_CORE_EXCHANGE_TEXT_H

#include "agent/worker/core/link.h"

/* "all-reduce 812 (layer1.weight)" */
const char *op_text(const struct exchange_op *op, char *buf, size_t size);
/* RS_ETIMEOUT: says which reducers or ranks are missing. */
int connect_timeout_text(const struct exchange *x, struct rs_err *e);
/* Returns whether the job can start, and waits only for more reducers than it needs. */
bool waits_for_slots_only(const struct exchange *x);
/* Says who is missing while the ranks join. */
void waiting_text(const struct exchange *x, uint64_t now_ms, char *buf, size_t size);
/* Says which reducers are lost. Returns false if none is. */
bool degraded_text(const struct exchange *x, uint64_t now_ms, char *buf, size_t size);
/* RS_EPEER: says for which rank the operation waits, or which chunks have no result. */
int op_timeout_text(const struct exchange *x, const struct exchange_op *op, uint64_t now_ms, struct rs_err *e);
/* Returns the reason for which a link was lost. If the link is silent and only its small
 * messages were answered, the reason is composed in buf and says so. */
const char *loss_text(const struct link *l, const struct loss *loss, char *buf, size_t size);
/* Returns whether a reducer reports the loss of this rank, which reads that. */
bool is_own_loss(const struct exchange *x, const struct rs_cause *cause);
/* A reducer reports that it has lost this rank, for this cause: RS_EPEER, with what this
 * rank knows of it. Returns false, without a sentence, if the cause is not silence, large
 * messages got through, or this process was stopped. */
bool unheard_text(const struct exchange *x, unsigned reducer, const struct rs_cause *cause, uint64_t now_ms,
		  struct rs_err *e);
/* Says which shares the reducers get, or would get, and why; or which rank or path is
 * slow. r: of each reducer of the configuration. */
void balance_text(const struct exchange *x, const struct balance_reducer *r, const struct balance_verdict *v, bool did,
		  char *buf, size_t size);
/* Says for which ranks the operation of the link's last LATE waits. */
void late_text(const struct exchange *x, const struct link *l, uint64_t now_ms, char *buf, size_t size);

#endif
