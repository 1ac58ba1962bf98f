/* SPDX-License-Identifier: Apache-2.0 */
/* Which features the job uses, and which start of it this is. All ranks come to the same
 * set without a coordinator: each START has what all ranks and one reducer have, and a
 * job begins with what the STARTs of all living reducers have in common. A rank that
 * loses a reducer before it begins may have seen fewer of them than a rank that has
 * begun. So each VIEW has the sender's set, and RESUME, for which such a rank waits, what
 * all ranks have said. A reducer that was lost is back only for ranks that find in it
 * what the job uses. */
#ifndef RS_AGENT_WORKER_CORE_FEATURES_H
#define RS_AGENT_WORKER_CORE_FEATURES_H

#include "agent/worker/core/link.h"

/* Returns what the job uses as far as this rank knows. */
uint64_t features_known(const struct exchange *x);
/* Leaves out what is not in `set`. Without effect once the features are fixed. */
void features_narrow(struct exchange *x, uint64_t set);
/* A chunk may be sent from now on: the features stay as they are. */
void features_fix(struct exchange *x);

/* Checks that the reducer, of which WELCOME has told the release ("": unknown), has what
 * the job uses. Without effect before both are known. Errors: RS_EREFUSED. */
int features_check_reducer(const struct link *l, const char *software, struct rs_err *e);
/* Takes over the START of a link. Errors: RS_EPROTO, RS_EMISMATCH if it is another start
 * than that of other reducers.
 */
int features_take_start(struct link *l, const struct control_start *s, struct rs_err *e);

#endif
