/* SPDX-License-Identifier: Apache-2.0 */
/* job.detect_nonfinite: who first sent NaN or infinity, in which operation, which element. A contribution is looked at
 * just before it is sent for the first time, by the exchange_op's `inspect`, whose answer is a sentence that names the
 * process; exchange_op_inspect() does with it what the configuration says. No I/O, no clock. */
#ifndef RS_AGENT_CORE_NONFINITE_H
#define RS_AGENT_CORE_NONFINITE_H

#include "agent/core/exchange.h"
#include "common/kernels/kernels.h"

/* One element that is no number. */
struct nonfinite {
	uint64_t element;  /* of the operation */
	const char *value; /* "NaN", "infinity", "-infinity" */
};

/* Whether an operation's contributions are to be looked at. */
bool nonfinite_wanted(const struct rs_config *cfg, unsigned dtype);

/* Looks at elements [first, first + n), which stand at `at`. True when one is not finite: *ret is the first. */
bool nonfinite_find(struct nonfinite *ret, const struct rs_kernels *k, unsigned dtype, const void *at, uint64_t first,
		    uint32_t n);

/* RS_ENONFINITE "rank 3 (pid 77 on b) sent NaN: element 17 of all-reduce 812 (layer1.weight)", of which
 * "rank 3 (pid 77 on b) sent" is `did`. op is submitted. */
int nonfinite_fail(struct rs_err *e, const char *did, const struct nonfinite *f, const struct exchange_op *op);

#endif
