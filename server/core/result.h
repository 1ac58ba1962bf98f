/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the result of a chunk to the ranks. */
#ifndef RS_SERVER_CORE_RESULT_H
#define RS_SERVER_CORE_RESULT_H

#include "server/core/stripe.h"

/* Queues the result in the slot for all ranks. It waits if an earlier chunk of its
 * priority still waits for a retained result: ranks expect results in the order of their
 * contributions. */
void result_send(struct stripe *st, struct slot *slot);
/* Queues the result in the slot for all ranks at once. Ranks that have the result get
 * only its header. */
void result_queue(struct stripe *st, struct slot *slot);

#endif
