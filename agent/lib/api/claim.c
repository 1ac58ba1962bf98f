/* SPDX-License-Identifier: Apache-2.0 */
/* The places in jobs that this process has. Without this list a rank that opens twice
 * would wait for itself: reducers and agents let a rank retry while its last connection
 * may be about to end. */
#include "agent/lib/api/comm.h"

#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* The only variable state of the library that no communicator owns: communicators of one
 * process know each other only through it. After a fork() the child has the parent's
 * entries, whose pid is not its own. */
static struct {
	pthread_once_t once;
	pthread_mutex_t lock;
	struct reduction_comm *first; /* those that claim a place */
} claims = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void claim_lock(void)
{
	pthread_mutex_lock(&claims.lock);
}

static void claim_unlock(void)
{
	pthread_mutex_unlock(&claims.lock);
}

/* A child must not inherit a mutex that another thread held. */
static void claim_init(void)
{
	pthread_atfork(claim_lock, claim_unlock, claim_unlock);
}

static uint64_t claim_hash(const struct backend_options *opt)
{
	const uint32_t place[] = {opt->generation, opt->rank};
	uint64_t h = XXH3_64bits_withSeed(opt->job, strlen(opt->job), XXH3_64bits(place, sizeof place));

	for (unsigned i = 0; i < opt->cfg->reducers_n; i++)
		h = XXH3_64bits_withSeed(opt->cfg->reducers[i].address, strlen(opt->cfg->reducers[i].address), h);
	return h ? h : 1;
}

int comm_claim(struct reduction_comm *c, const struct backend_options *opt, struct rs_err *e)
{
	uint64_t claim = claim_hash(opt);
	struct reduction_comm *other;
	struct rs_err broken;

	pthread_once(&claims.once, claim_init);
	claim_lock();
	other = claims.first;
	while (other && (other->claim != claim || other->pid != c->pid || comm_check(other, &broken)))
		other = other->claims_next;
	if (!other) {
		c->claim = claim;
		c->claims_next = claims.first;
		claims.first = c;
	}
	claim_unlock();
	if (other)
		return rs_fail(
		    e, RS_EREFUSED,
		    "rank %u of job %s, generation %u, is already open in this process (pid %ld): close that "
		    "communicator first, or give the second one another job name",
		    opt->rank, opt->job, opt->generation, (long)c->pid);
	return RS_OK;
}

void comm_unclaim(struct reduction_comm *c)
{
	struct reduction_comm **at = &claims.first;

	if (!c->claim)
		return;
	claim_lock();
	while (*at != c)
		at = &(*at)->claims_next;
	*at = c->claims_next;
	c->claim = 0;
	claim_unlock();
}
