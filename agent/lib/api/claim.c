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

/* Hashes the job with its reducers. */
static uint64_t claim_hash_job(const struct backend_options *opt)
{
	uint64_t h = XXH3_64bits(opt->job, strlen(opt->job));

	for (unsigned i = 0; i < opt->cfg->reducers_n; i++) {
		const char *name = rs_config_lasting_name(opt->cfg, &opt->cfg->reducers[i]);

		h = XXH3_64bits_withSeed(name, strlen(name), h);
	}
	return h;
}

/* Claims the communicator's place. Returns false if another one of this process has it
 * and works. */
static bool claim_place(struct reduction_comm *c)
{
	const uint32_t place[] = {c->generation, c->rank};
	uint64_t claim = XXH3_64bits_withSeed(place, sizeof place, c->claim_job);
	struct reduction_comm *other;
	struct rs_err broken;

	claim = claim ? claim : 1;
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
	return !other;
}

int comm_claim(struct reduction_comm *c, const struct backend_options *opt, struct rs_err *e)
{
	c->claim_job = claim_hash_job(opt);
	if (claim_place(c))
		return RS_OK;
	return rs_fail(e, RS_EREFUSED,
		       "rank %u of job %s, generation %u, is already open in this process (pid %ld): close that "
		       "communicator first, or give the second one another job name",
		       opt->rank, opt->job, opt->generation, (long)c->pid);
}

int comm_claim_again(struct reduction_comm *c, struct rs_err *e)
{
	comm_unclaim(c);
	if (claim_place(c))
		return RS_OK;
	return rs_fail(e, RS_EREFUSED,
		       "rank %u of this job, generation %u, is already open in this process (pid %ld): close that "
		       "communicator first",
		       c->rank, c->generation, (long)c->pid);
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
