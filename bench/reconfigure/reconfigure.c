/* SPDX-License-Identifier: Apache-2.0 */
/* How long a job needs to go on in another generation, beside closing its communicators
 * and making them anew.
 *
 * The parent starts reducers and one process for each rank. It decides, tells each rank
 * its place over a socket, and each rank joins, sums 4 KiB with the others, and says when
 * it could start that and when it ended. A time is that of the slowest rank, from before
 * the first rank is told. In turn, each way of joining has three cases: all ranks stay;
 * one is killed and the others go on; a new process comes. */
#include "bench/bench.h"
#include "bench/help_version.h"

#include "agent/lib/include/reduction.h"
#include "common/descriptors.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SUM_COUNT = 1024, LIMIT_MS = 60000, ROUNDS_MAX = 1000 };
enum way { RECONFIGURE, ANEW, WAYS };
enum situation { STAY, KILLED, JOINED, SITUATIONS };
static const char *const way_names[] = {"reconfigure", "close and open"};
static const char *const situation_names[] = {"all stay", "one killed", "one joins"};

/* What the parent tells a rank. */
struct place {
	enum way way;
	int rank, world;
	int64_t generation;
};

/* What a rank says: microseconds of CLOCK_MONOTONIC. */
struct answer {
	double called, ready, summed;
	int code; /* reduction_status */
	char message[256];
};

/* The parent's view of a process. */
struct rank {
	pid_t pid; /* 0: none */
	int fd;
};

struct bench {
	struct bench_options o;
	struct bench_local local;
	struct rank *ranks; /* [o.ranks], in the order of their ranks */
	int world;
	int64_t generation;
	unsigned rounds;
	/* microseconds; [rounds] */
	double *ready[WAYS][SITUATIONS], *summed[WAYS][SITUATIONS];
	double *called[WAYS][SITUATIONS]; /* median of the ranks, from the call of each */
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int rank_open(reduction_comm **comm, const struct bench_options *o, const struct place *to, reduction_error *err)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;

	opt.config = o->config;
	opt.run = "bench";
	opt.mode = REDUCTION_MODE_DIRECT;
	opt.rank = to->rank;
	opt.world_size = to->world;
	opt.generation = to->generation;
	opt.connect_timeout_ms = LIMIT_MS / 2;
	return reduction_open(comm, &opt, err);
}

/* Joins a generation. After an error *comm may be NULL. */
static int rank_join(reduction_comm **comm, const struct bench_options *o, const struct place *to, reduction_error *err)
{
	int rc;

	if (*comm && to->way == RECONFIGURE)
		return reduction_reconfigure(*comm, to->rank, to->world, to->generation, err);
	if (*comm) {
		rc = reduction_close(*comm, err);
		*comm = NULL;
		if (rc)
			return rc;
	}
	return rank_open(comm, o, to, err);
}

static int rank_sum(reduction_comm *comm, const struct place *to, reduction_error *err)
{
	const int sum = to->world * (to->world + 1) / 2;
	float x[SUM_COUNT];
	int rc;

	for (int i = 0; i < SUM_COUNT; i++)
		x[i] = (float)(to->rank + 1);
	rc = reduction_all_reduce(comm, x, x, SUM_COUNT, REDUCTION_FLOAT32, REDUCTION_SUM, err);
	for (int i = 0; i < SUM_COUNT && !rc; i++)
		if (x[i] != (float)sum) {
			snprintf(err->message, sizeof err->message, "element %d of a sum is %g", i, (double)x[i]);
			rc = REDUCTION_EINTERNAL;
		}
	return rc;
}

/* A rank's process: until the parent closes the socket. */
static void rank_run(int fd, const struct bench_options *o)
{
	reduction_comm *comm = NULL;
	reduction_error err;
	struct place to;

	while (recv(fd, &to, sizeof to, 0) == sizeof to) {
		struct answer a = {.called = now_us()};

		a.code = rank_join(&comm, o, &to, &err);
		a.ready = now_us();
		if (!a.code)
			a.code = rank_sum(comm, &to, &err);
		a.summed = now_us();
		if (a.code)
			snprintf(a.message, sizeof a.message, "%.255s", err.message);
		if (send(fd, &a, sizeof a, MSG_NOSIGNAL) != sizeof a)
			break;
	}
	if (comm)
		reduction_close(comm, &err);
}

/* Starts a process at the end of b->ranks; it waits for its first place. */
static int bench_add(struct bench *b, struct rs_err *e)
{
	pid_t parent = getpid(), pid;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return rs_fail_sys(e, RS_EIO, errno, "cannot make a socket");
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		for (int i = 0; i < b->world; i++)
			close(b->ranks[i].fd);
		close(fds[0]);
		rank_run(fds[1], &b->o);
		_exit(0);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return rs_fail_sys(e, RS_EIO, errno, "cannot start rank %d", b->world);
	}
	b->ranks[b->world++] = (struct rank){.pid = pid, .fd = fds[0]};
	return RS_OK;
}

/* Ends a rank's process, and moves the last rank to its place. */
static void bench_kill(struct bench *b, int rank)
{
	kill(b->ranks[rank].pid, SIGKILL);
	waitpid(b->ranks[rank].pid, NULL, 0);
	close(b->ranks[rank].fd);
	b->ranks[rank] = b->ranks[--b->world];
}

/* Waits for a rank's answer, or for a signal that ends the program. */
static int bench_answer(const struct rank *r, int rank, struct answer *ret, struct rs_err *e)
{
	const struct timespec limit = {.tv_sec = LIMIT_MS / 1000};
	struct pollfd p = {.fd = r->fd, .events = POLLIN};
	sigset_t none;
	int n;

	sigemptyset(&none);
	n = ppoll(&p, 1, &limit, &none);
	if (n < 0)
		return rs_fail_sys(e, RS_EIO, errno, "no answer of rank %d", rank);
	if (n == 0)
		return rs_fail(e, RS_ETIMEOUT, "no answer of rank %d within %d s", rank, LIMIT_MS / 1000);
	if (recv(r->fd, ret, sizeof *ret, 0) != sizeof *ret)
		return rs_fail(e, RS_EIO, "rank %d has ended", rank);
	if (ret->code)
		return rs_fail(e, RS_EIO, "rank %d: %s", rank, ret->message);
	return RS_OK;
}

/* All processes join the next generation, in the order of b->ranks. */
static int bench_move(struct bench *b, enum way way, enum situation what, unsigned round, struct rs_err *e)
{
	struct place to = {.way = way, .world = b->world, .generation = ++b->generation};
	double *called = calloc((size_t)b->world, sizeof *called), decided, ready = 0, summed = 0;
	struct bench_times median;
	struct answer a;
	int rc = RS_OK;

	if (!called)
		return rs_oom(e, 0, "the times of %d ranks", b->world);
	decided = now_us();
	for (to.rank = 0; to.rank < b->world && !rc; to.rank++)
		if (send(b->ranks[to.rank].fd, &to, sizeof to, MSG_NOSIGNAL) != sizeof to)
			rc = rs_fail_sys(e, RS_EIO, errno, "rank %d has ended", to.rank);
	for (int i = 0; i < b->world && !rc; i++) {
		rc = bench_answer(&b->ranks[i], i, &a, e);
		ready = a.ready > ready ? a.ready : ready;
		summed = a.summed > summed ? a.summed : summed;
		called[i] = a.ready - a.called;
	}
	if (!rc) {
		bench_times_of(&median, called, (unsigned)b->world);
		b->ready[way][what][round] = ready - decided;
		b->summed[way][what][round] = summed - decided;
		b->called[way][what][round] = median.p50;
	}
	free(called);
	return rc;
}

/* Measures each case once with each way of joining. */
static int bench_round(struct bench *b, unsigned round, struct rs_err *e)
{
	int rc = RS_OK;

	for (int way = 0; way < WAYS && !rc; way++) {
		rc = bench_move(b, (enum way)way, STAY, round, e);
		if (rc)
			break;
		bench_kill(b, (int)(round * 7) % b->world);
		rc = bench_move(b, (enum way)way, KILLED, round, e);
		if (!rc)
			rc = bench_add(b, e);
		if (!rc)
			rc = bench_move(b, (enum way)way, JOINED, round, e);
	}
	return rc;
}

static void print_times(const char *name, double *us, unsigned n)
{
	struct bench_times t;

	bench_times_of(&t, us, n);
	printf(",\"%s\":{\"min\":%.2f,\"p50\":%.2f,\"max\":%.2f}", name, t.min / 1e3, t.p50 / 1e3, t.max / 1e3);
}

static void bench_print(const struct bench *b)
{
	for (int what = 0; what < SITUATIONS; what++)
		for (int way = 0; way < WAYS; way++) {
			printf("{\"case\":\"%s\",\"way\":\"%s\",\"ranks\":%d,\"reducers\":%d,\"lanes\":%d,"
			       "\"repeats\":%u",
			       situation_names[what], way_names[way], what == KILLED ? b->world - 1 : b->world,
			       b->o.local_reducers, b->o.lanes, b->rounds);
			print_times("ready_ms", b->ready[way][what], b->rounds);
			print_times("summed_ms", b->summed[way][what], b->rounds);
			print_times("call_ms", b->called[way][what], b->rounds);
			printf("}\n");
		}
}

static int bench_measure(struct bench *b, struct rs_err *e)
{
	int rc = RS_OK;

	setenv("REDUCTION_LOG", "error", 0); /* of ranks: a line for each communicator would be too many */
	while (b->world < b->o.ranks && !rc)
		rc = bench_add(b, e);
	for (unsigned i = 0; i <= b->rounds && !rc; i++)
		rc = bench_round(b, i ? i - 1 : 0, e); /* the first one warms up */
	return rc;
}

/* Allocates the times. Returns false without memory. */
static bool bench_alloc(struct bench *b)
{
	double *at = calloc((size_t)3 * WAYS * SITUATIONS * b->rounds, sizeof *at);

	b->ranks = calloc((size_t)b->o.ranks, sizeof *b->ranks);
	b->ready[0][0] = at;
	for (int i = 0; i < WAYS * SITUATIONS && at; i++, at += 3 * (size_t)b->rounds) {
		b->ready[i / SITUATIONS][i % SITUATIONS] = at;
		b->summed[i / SITUATIONS][i % SITUATIONS] = at + b->rounds;
		b->called[i / SITUATIONS][i % SITUATIONS] = at + 2 * (size_t)b->rounds;
	}
	return at && b->ranks;
}

static void bench_close(struct bench *b)
{
	for (int i = 0; i < b->world; i++)
		close(b->ranks[i].fd);
	for (int i = 0; i < b->world; i++) {
		kill(b->ranks[i].pid, SIGKILL);
		waitpid(b->ranks[i].pid, NULL, 0);
	}
	bench_local_close(&b->local);
	free(b->ready[0][0]);
	free(b->ranks);
}

static void on_signal(int sig)
{
	(void)sig; /* ppoll returns */
}

static bool parse(struct bench *b, int argc, char **argv)
{
	static const struct option longs[] = {{"ranks", required_argument, NULL, 'n'},
					      {"reducers", required_argument, NULL, 'k'},
					      {"lanes", required_argument, NULL, 'l'},
					      {"repeats", required_argument, NULL, 'r'},
					      {0}};
	int key;

	while ((key = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		int v = key == '?' ? 0 : atoi(optarg);

		if (v < 1 || v > ROUNDS_MAX)
			return false;
		*(key == 'n'   ? &b->o.ranks
		  : key == 'k' ? &b->o.local_reducers
		  : key == 'l' ? &b->o.lanes
			       : (int *)&b->rounds) = v;
	}
	return optind == argc && b->o.ranks > 1 && b->o.local_reducers <= 64 && b->o.lanes <= 64;
}

int main(int argc, char **argv)
{
	static const char usage[] =
	    "Usage: reduction-bench-reconfigure [--ranks N] [--reducers N] [--lanes N] [--repeats N]\n"
	    "Moves a job to its next generation: all ranks stay, one is killed, one joins, each with\n"
	    "reduction_reconfigure() and by closing and opening communicators. Default: 64 ranks, 2 reducers\n"
	    "of 1 lane, 21 repeats. Prints a JSON line for each, with the times of the slowest rank from the\n"
	    "decision until its next all-reduce can start (ready_ms) and until one of 4 KiB has ended\n"
	    "(summed_ms), and the median rank's time in the call (call_ms).\n";
	struct bench b = {.o = {.ranks = 64, .local_reducers = 2, .lanes = 1}, .rounds = 21};
	struct sigaction act = {.sa_handler = on_signal};
	struct rs_err err;
	int rc;

	rs_descriptors_hold_standard();
	if (bench_help_or_version(argc, argv, "reduction-bench-reconfigure", usage))
		return 0;
	if (!parse(&b, argc, argv)) {
		fputs(usage, stderr);
		return 2;
	}
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	rc = bench_alloc(&b) ? bench_local_start(&b.local, &b.o, &err) : rs_oom(&err, 0, "the times");
	if (!rc)
		rc = bench_measure(&b, &err);
	if (!rc)
		bench_print(&b);
	else
		fprintf(stderr, "reduction-bench-reconfigure: %s\n", err.msg);
	bench_close(&b);
	return rc ? 1 : 0;
}
