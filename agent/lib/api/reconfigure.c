/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator that goes on in another generation of its job: workers come and go, the
 * connections stay. The happy path: the generation ends, so that nothing is in flight ->
 * the backend joins the next one -> the communicator works again. Failure modes: the
 * ranks of the next generation do not meet; the communicator stays broken, and a newer
 * generation may be tried. */
#include "agent/lib/api/comm.h"
#include "config/config.h"

#include <limits.h>
#include <unistd.h>

static int reconfigure_check(const struct reduction_comm *c, int rank, int world_size, int64_t generation,
			     struct rs_err *e)
{
	if (!c)
		return comm_null("comm", e);
	if (comm_check_process(c->pid, e))
		return e->code;
	if (world_size < 1 || world_size > RS_WORLD_MAX)
		return rs_fail(e, RS_EINVAL, "world_size is %d, 1 to %d were expected", world_size, RS_WORLD_MAX);
	if (rank < 0 || rank >= world_size)
		return rs_fail(e, RS_EINVAL, "rank %d is not a rank of %d: 0 to %d were expected", rank, world_size,
			       world_size - 1);
	if (generation <= c->generation || generation > UINT32_MAX)
		return rs_fail(e, RS_EINVAL,
			       "generation is %lld, a newer one than %u was expected, and at most %u: generations "
			       "of a job only grow",
			       (long long)generation, c->generation, UINT32_MAX);
	if (!c->backend->v->reconfigure)
		return rs_fail(e, RS_EUNSUPPORTED,
			       "ranks behind a node's agent cannot be reconfigured: close the communicator and open "
			       "it again, or use REDUCTION_MODE_DIRECT");
	return RS_OK;
}

/* Ends the generation that runs. Threads that start operations or wait for them get the
 * reason. */
static void reconfigure_end(struct reduction_comm *c, uint32_t generation)
{
	char host[80] = "?";
	struct rs_err why;

	gethostname(host, sizeof host - 1);
	rs_fail(&why, RS_ECLOSED, "rank %u (pid %ld on %s) has left generation %u of the job for generation %u",
		c->rank, (long)getpid(), host, c->generation, generation);
	comm_break(c, &why);
	pthread_mutex_lock(&c->lock);
	c->aborted = false; /* what joins next can be aborted again */
	pthread_mutex_unlock(&c->lock);
	c->backend->v->abort(c->backend, &why);
}

int reduction_reconfigure(reduction_comm *comm, int rank, int world_size, int64_t generation, reduction_error *err)
{
	struct backend_place place = {
	    .generation = (uint32_t)generation, .rank = (unsigned)rank, .world_size = (unsigned)world_size};
	struct rs_err e = {.code = RS_OK};

	if (reconfigure_check(comm, rank, world_size, generation, &e))
		return comm_result(err, &e);
	reconfigure_end(comm, place.generation);
	pthread_mutex_lock(&comm->order); /* no operation is being started from here on */
	comm->rank = place.rank;
	comm->world_size = place.world_size;
	comm->generation = place.generation;
	if (!comm_claim_again(comm, &e) && !comm->backend->v->reconfigure(comm->backend, &place, &e))
		comm_mend(comm);
	pthread_mutex_unlock(&comm->order);
	return comm_result(err, &e);
}
