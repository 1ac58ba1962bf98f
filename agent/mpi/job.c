/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mpi/job.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { LATER = 1 << 30, NONCE = 16, PATIENCE_S = 10, SPINS = 2000, PAUSE_NS = 200000, AGAIN_MS = 5000 };

/* What rank 0 of a communicator tells the others; equal settings have equal bytes. */
struct offer {
	int64_t min_bytes;
	int32_t use, deterministic;
	unsigned char nonce[NONCE];
};

/* What all ranks know after they have met. */
struct place {
	struct offer offer;
	int rank, size, local_rank, local_size, node_rank, nodes;
};

/* The agreement of all ranks: the least of each number. */
enum { VOTE_EQUAL, VOTE_CONFIGURED, VOTE_THREADS, VOTE_NODE, VOTE_OPTIONAL, VOTES };

/* Waits until all ranks are here, and says what is wrong if they do not come. This step
 * moves no data, so that the calls of a rank without this library are not mistaken for
 * it. Returns MPI's error. */
static int place_gather(const struct shim *s, mpi_handle comm)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	unsigned char status[MPI_STATUS_ROOM];
	mpi_handle request = 0;
	int here = 0, rc = s->mpi.call.ibarrier(comm, &request);

	for (unsigned i = 0; !rc && !here; i++) {
		rc = s->mpi.call.test(&request, &here, status);
		if (!here && i >= SPINS)
			nanosleep(&pause, NULL);
		if (!here && i == SPINS + PATIENCE_S * (1000000000U / PAUSE_NS))
			shim_say(
			    s,
			    "waits for the other ranks of a communicator since %d s. Do all ranks have LD_PRELOAD, "
			    "REDUCTION_MPI and REDUCTION_MPI_MIN_BYTES, with the same values? Open MPI passes a "
			    "variable to other nodes with `mpirun -x NAME`",
			    PATIENCE_S);
	}
	return rc;
}

/* Finds the ranks of this node, and the number of the node. Returns MPI's error. */
static int place_find_node(const struct mpi *m, mpi_handle comm, struct place *p)
{
	mpi_handle stored = 0, node;
	int rc = m->call.comm_split_type(comm, m->comm_type_shared, p->rank, m->info_null, &stored);
	int first, before = 0;

	if (rc)
		return rc;
	node = mpi_load(m, &stored);
	rc = m->call.comm_rank(node, &p->local_rank);
	rc = rc ? rc : m->call.comm_size(node, &p->local_size);
	first = p->local_rank == 0;
	rc = rc ? rc : m->call.exscan(&first, &before, 1, m->int32, m->sum, comm);
	p->node_rank = p->rank == 0 ? 0 : before;
	rc = rc ? rc : m->call.bcast(&p->node_rank, 1, m->int32, 0, node);
	m->call.comm_free(&stored);
	return rc;
}

static int nonce_draw(unsigned char to[NONCE])
{
	return getrandom(to, NONCE, 0) == NONCE ? 0 : -1;
}

/* The ranks meet, by means of MPI. Returns why there can be no job. */
static enum pass place_find(struct job *job, mpi_handle comm, struct place *p)
{
	const struct shim *s = job->shim;
	const struct settings *set = &s->settings;
	const struct mpi *m = &s->mpi;
	struct offer mine = {.min_bytes = set->min_bytes, .use = set->use, .deterministic = set->deterministic};
	int level = 0, least[VOTES];
	bool drawn = p->rank != 0 || nonce_draw(mine.nonce) == 0;
	int rc = place_gather(s, comm);

	p->offer = mine;
	rc = rc ? rc : place_find_node(m, comm, p);
	rc = rc ? rc : m->call.bcast(&p->offer, sizeof p->offer, m->byte, 0, comm);
	rc = rc ? rc : m->call.query_thread(&level);
	const int vote[VOTES] = {
	    [VOTE_EQUAL] = drawn && memcmp(&mine, &p->offer, offsetof(struct offer, nonce)) == 0,
	    [VOTE_CONFIGURED] = set->configured,
	    [VOTE_THREADS] = level == m->thread_multiple,
	    [VOTE_NODE] = -p->node_rank,
	    [VOTE_OPTIONAL] = set->use != SETTINGS_REQUIRED,
	};
	rc = rc ? rc : m->call.allreduce(vote, least, VOTES, m->int32, m->min, comm);
	if (rc)
		return PASS_UNREACHABLE;
	p->nodes = 1 - least[VOTE_NODE];
	job->threads = least[VOTE_THREADS];
	job->required = !least[VOTE_OPTIONAL];
	if (!least[VOTE_EQUAL])
		return PASS_UNEQUAL;
	if (!least[VOTE_CONFIGURED])
		return PASS_UNCONFIGURED;
	return p->nodes < 2 && !job->required ? PASS_ONE_NODE : PASS_NOT;
}

static void hexadecimal(char *to, const unsigned char *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		snprintf(to + 2 * i, 3, "%02x", from[i]);
}

/* Waits until the rank that says what is wrong has said it: the error handler of another
 * rank may end the program at once. */
static void job_hear(const struct job *job, mpi_handle comm, int speaker)
{
	const struct mpi *m = &job->shim->mpi;
	int said = 1;

	if (job->required)
		m->call.bcast(&said, 1, m->int32, speaker, comm);
}

/* Opens the job. Returns why it is not open: the same on all ranks. */
static enum pass job_meet(struct job *job, mpi_handle comm, const struct place *p)
{
	struct shim *s = job->shim;
	const struct mpi *m = &s->mpi;
	char run[sizeof "mpi-" + 2 * NONCE] = "mpi-", group[17];
	reduction_options o = REDUCTION_OPTIONS_INIT;
	reduction_error e = {0};
	int mine, least = -1;

	hexadecimal(run + 4, p->offer.nonce, NONCE);
	hexadecimal(group, p->offer.nonce, 8);
	o.run = run;
	o.group = comm == m->comm_world ? NULL : group;
	o.rank = p->rank;
	o.world_size = p->size;
	o.local_rank = p->local_rank;
	o.local_world_size = p->local_size;
	o.node_rank = p->node_rank;
	o.nodes = p->nodes;
	o.deterministic = s->settings.deterministic;
	if (atomic_load(&s->opened))
		o.connect_timeout_ms = AGAIN_MS; /* nobody has to be started first */
	mine = reduction_open(&job->comm, &o, &e) ? p->rank : INT_MAX;
	if (mine != INT_MAX && e.code == REDUCTION_ETIMEOUT)
		mine += LATER; /* a rank that failed at once knows the cause */
	if (m->call.allreduce(&mine, &least, 1, m->int32, m->min, comm))
		least = -1;
	if (least == INT_MAX) {
		atomic_store(&s->opened, true);
		return PASS_NOT;
	}
	if (least == mine)
		shim_say(s, "%s: %s",
			 job->required ? "REDUCTION_MPI is required, and the reducers cannot be used"
				       : "MPI itself does the work of a communicator",
			 e.message);
	if (least >= 0)
		job_hear(job, comm, least % LATER);
	if (mine == INT_MAX) {
		reduction_abort(job->comm, "another rank did not reach the reducers", NULL);
		reduction_close(job->comm, NULL);
		job->comm = NULL;
	}
	return PASS_UNREACHABLE;
}

/* Says on rank 0 what all ranks have found wrong in their settings. */
static void job_explain(const struct job *job, mpi_handle comm)
{
	const struct shim *s = job->shim;

	if (job->rank == 0 && job->pass == PASS_UNEQUAL)
		shim_say(s, "the reducers cannot be used: ranks have different values of REDUCTION_MPI, "
			    "REDUCTION_MPI_MIN_BYTES or REDUCTION_DETERMINISTIC");
	if (job->rank == 0 && job->pass == PASS_UNCONFIGURED && job->required)
		shim_say(s, "REDUCTION_MPI is required, but REDUCTION_CONFIG is not set on all ranks");
	if (job->pass == PASS_UNEQUAL || job->pass == PASS_UNCONFIGURED)
		job_hear(job, comm, 0);
}

static void job_open(struct job *job, mpi_handle comm)
{
	struct shim *s = job->shim;
	struct place p = {.rank = 0};
	int inter = 0;

	job->pass = PASS_GROUP;
	if (s->mpi.call.comm_test_inter(comm, &inter) || inter || s->mpi.call.comm_rank(comm, &p.rank) ||
	    s->mpi.call.comm_size(comm, &p.size) || p.size < 2)
		return;
	job->rank = p.rank;
	job->pass = place_find(job, comm, &p);
	if (job->pass == PASS_NOT)
		job->pass = job_meet(job, comm, &p);
	else
		job_explain(job, comm);
}

static void *job_close(void *arg)
{
	struct job *job = arg;

	waiter_close(&job->waiter);
	reduction_close(job->comm, NULL);
	atomic_store(&job->closed, true);
	return NULL;
}

/* Starts to close a job; with the shim's lock. */
static void job_start_close(struct job *job)
{
	if (job->closing)
		return;
	job->closing = true;
	if (!job->comm) {
		waiter_close(&job->waiter);
		atomic_store(&job->closed, true);
	} else if (pthread_create(&job->closer, NULL, job_close, job)) {
		job_close(job);
		job->comm = NULL;
	}
}

static void job_join(struct job *job)
{
	if (job->comm)
		pthread_join(job->closer, NULL);
	job->comm = NULL;
}

/* Frees the jobs that have been closed. */
static void job_reap(struct shim *s)
{
	struct job **at = &s->jobs, *job;

	while ((job = *at)) {
		if (!atomic_load(&job->closed)) {
			at = &job->next;
			continue;
		}
		*at = job->next;
		job_join(job);
		free(job);
	}
}

static struct job *job_new(struct shim *s, mpi_handle comm)
{
	struct job *job = calloc(1, sizeof *job);

	if (!job)
		return NULL;
	job->shim = s;
	waiter_init(&job->waiter);
	pthread_mutex_lock(&s->lock);
	job_reap(s);
	job->next = s->jobs;
	s->jobs = job;
	pthread_mutex_unlock(&s->lock);
	job_open(job, comm);
	if (s->mpi.call.comm_set_attr(comm, s->key, job)) {
		shim_say(s, "MPI has stored no attribute of a communicator");
		s->mpi.call.abort(s->mpi.comm_world, 1);
	}
	return job;
}

struct job *job_find(struct shim *s, mpi_handle comm, bool blocking, enum pass *ret_why, bool *ret_refused)
{
	struct job *job = NULL;
	int found = 0;

	*ret_why = PASS_GROUP;
	*ret_refused = false;
	if (s->mpi.call.comm_get_attr(comm, s->key, &job, &found))
		return NULL; /* an invalid communicator, of which MPI says so */
	*ret_why = PASS_NOT_OPEN;
	if (!found && !blocking)
		return NULL;
	if (!found)
		job = job_new(s, comm);
	if (!job) {
		shim_say(s, "out of memory");
		s->mpi.call.abort(s->mpi.comm_world, 1);
		return NULL;
	}
	*ret_why = job->pass != PASS_NOT || blocking || job->threads ? job->pass : PASS_THREADS;
	*ret_refused = job->required &&
		       (job->pass == PASS_UNREACHABLE || job->pass == PASS_UNEQUAL || job->pass == PASS_UNCONFIGURED);
	return *ret_why == PASS_NOT ? job : NULL;
}

int job_on_free(mpi_handle comm, int key, void *job, void *shim)
{
	struct shim *s = shim;

	(void)comm, (void)key;
	pthread_mutex_lock(&s->lock);
	job_start_close(job);
	pthread_mutex_unlock(&s->lock);
	return MPI_SUCCEEDED;
}

void job_close_all(struct shim *s)
{
	pthread_mutex_lock(&s->lock);
	for (struct job *job = s->jobs; job; job = job->next)
		job_start_close(job);
	for (struct job *job = s->jobs; job; job = job->next)
		job_join(job);
	pthread_mutex_unlock(&s->lock);
}
