/* SPDX-License-Identifier: Apache-2.0 */
/* What the public functions that start operations have in common (reduction.c): they
 * describe the operation, check it, and run it. */
#ifndef RS_AGENT_LIB_API_CALLS_H
#define RS_AGENT_LIB_API_CALLS_H

#include "agent/lib/api/comm.h"

/* Describes an operation. A number that is too large becomes the largest one: no dtype or
 * op, the highest priority. */
struct operation api_operation(size_t count, unsigned dtype, unsigned op, int priority, const char *name);
/* Checks dtype and count. Errors: RS_EINVAL. */
int api_check_elements(const struct operation *of, struct rs_err *e);
int api_check_op(const struct operation *of, struct rs_err *e);
/* Checks comm and the first of n tensors. argument: the name of `tensors`. Errors:
 * RS_EINVAL. */
int api_check_tensors(const struct reduction_comm *c, const reduction_tensor *tensors, size_t n, const char *argument,
		      struct rs_err *e);
/* Converts a tensor, whose struct may be that of an older header. Errors: RS_EINVAL. */
int api_request(struct backend_request *ret, const reduction_tensor *t, struct rs_err *e);

/* Starts a request of the pool for r; rc and e are the result of checking r. Returns what
 * the public function returns. */
int api_start(struct reduction_comm *c, const struct backend_request *r, int rc, struct rs_err *e,
	      reduction_request **ret, reduction_error *err);
/* The same; waits for it. */
int api_run(struct reduction_comm *c, const struct backend_request *r, int rc, struct rs_err *e, reduction_error *err);

#endif
