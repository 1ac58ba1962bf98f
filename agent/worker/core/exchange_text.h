/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences about operations and links, for errors and warnings. */
#ifndef RS_AGENT_WORKER_CORE_EXCHANGE_TEXT_H
#define RS_AGENT_WORKER_CORE_EXCHANGE_TEXT_H

#include "agent/worker/core/link.h"

/* "all-reduce 812 (layer1.weight)" */
const char *op_text(const struct exchange_op *op, char *buf, size_t size);
/* RS_ETIMEOUT: says which reducers or ranks are missing. */
int connect_timeout_text(const struct exchange *x, struct rs_err *e);
/* Says who is missing while the ranks join. */
void waiting_text(const struct exchange *x, uint64_t now_ms, char *buf, size_t size);
/* Says which reducers are lost. Returns false if none is. */
bool degraded_text(const struct exchange *x, uint64_t now_ms, char *buf, size_t size);
/* RS_EPEER: says for which rank the operation waits, or which chunks have no result. */
int op_timeout_text(const struct exchange *x, const struct exchange_op *op, uint64_t now_ms, struct rs_err *e);
/* Says for which ranks the operation of the link's last LATE waits. */
void late_text(const struct exchange *x, const struct link *l, uint64_t now_ms, char *buf, size_t size);

#endif
