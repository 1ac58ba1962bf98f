/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a job. The happy path: all clients have left, and the engine is freed.
 * Failure modes: each leads to local_job_fail; clients get ABORT only when the engine
 * does not touch their memory any more. */
#include "agent/node/core/client.h"
#include "agent/node/core/op.h"
#include "common/assert.h"

void local_job_drop_ops(struct local_job *j)
{
	struct local_op *op;

	for (; j->matched < j->newest; j->matched++)
		local_op_free(j->ring[j->matched % j->hub->ops]);
	while ((op = j->queue)) {
		j->queue = op->next;
		local_op_free(op);
	}
	j->queue_end = &j->queue;
}

void local_job_free_engine(struct local_job *j)
{
	rs_assert(!j->freeing);
	j->freeing = true;
	j->hub->ports.engine_free(j->hub->ctx, j->engine, j);
}

void local_job_finish_failing(struct local_job *j)
{
	rs_assert(j->running == 0);
	j->state = JOB_FAILED;
	local_job_drop_ops(j);
	if (local_may_log(j->hub, LOCAL_LIMITED_JOBS))
		rs_log(j->hub->log, RS_LOG_WARN, "job-failed", rs_kv_s("job", j->name),
		       rs_kv_u("generation", j->generation), rs_kv_s("reason", j->err.msg));
	for (unsigned i = 0; i < j->members_n; i++)
		if (j->members[i].client)
			local_client_send_failure(j->members[i].client, LOCAL_ABORT, &j->err, false);
	local_clients_release(j->hub, j);
	if (j->engine)
		local_job_free_engine(j);
}

void local_job_fail(struct local_job *j, const struct rs_err *err)
{
	if (j->state >= JOB_ENDING)
		return;
	j->err = *err;
	if (j->engine) {
		j->state = JOB_FAILING;
		j->hub->ports.engine_abort(j->hub->ctx, j->engine, err->code, err->msg);
	} else {
		local_job_finish_failing(j);
	}
}
