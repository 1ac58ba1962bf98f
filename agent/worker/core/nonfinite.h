/* SPDX-License-Identifier: Apache-2.0 */
/* job.detect_nonfinite: finds which rank first sent NaN or infinity, in which operation
 * and element. A contribution is checked just before it is sent for the first time, by
 * the exchange_op's inspect(), which returns a sentence that names the process.
 * exchange_op_inspect() then does what the configuration says. NONFINITE tells the
 * reducers. No I/O, no clock. */
#ifndef RS_AGENT_WORKER_CORE_NONFINITE_H
#define RS_AGENT_WORKER_CORE_NONFINITE_H

#include "agent/worker/core/exchange.h"
#include "common/kernels/kernels.h"

/* One element that is not finite. */
struct nonfinite {
	uint64_t element;  /* of the operation */
	const char *value; /* "NaN", "infinity", "-infinity" */
};

/* Returns whether contributions of this dtype are to be checked. */
bool nonfinite_wanted(int detect, unsigned dtype);

/* Checks elements [first, first + n), which are at `at`. Returns true if one is not
 * finite; *ret is the first. */
bool nonfinite_find(struct nonfinite *ret, const struct rs_kernels *k, unsigned dtype, const void *at, uint64_t first,
		    uint32_t n);

/* Sets op->nonfinite_is_nan, and RS_ENONFINITE "rank 3 (pid 77 on b) sent NaN: element 17
 * of all-reduce 812 (layer1.weight)", where "rank 3 (pid 77 on b) sent" is `did`. op must
 * be submitted. */
int nonfinite_fail(struct rs_err *e, const char *did, const struct nonfinite *f, struct exchange_op *op);

/* Checks a contribution with op->inspect before it is sent for the first time: elements
 * [first, first + n), which are at `at`. Returns false if nothing may be sent any more:
 * the next tick ends the exchange. */
bool exchange_op_inspect(struct exchange *x, struct exchange_op *op, const void *at, uint64_t first, uint32_t n);

/* Tells every reducer that can hear it what this worker has found, if it has found more,
 * at most once a second. Returns the time at which to call it again. */
uint64_t exchange_tell_nonfinite(struct exchange *x, uint64_t now_ms);

#endif
