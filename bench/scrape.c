/* SPDX-License-Identifier: Apache-2.0 */
/* What a scrape costs a lane: the time for which the lane's thread copies its counters,
 * with many jobs of many ranks. Nothing else of a scrape runs on a lane: the text is made
 * by the thread of the HTTP port.
 *
 * Between two reports as many bytes are written elsewhere as fill the caches, since a
 * lane that sums has other data in them. */
#include "bench/help_version.h"
#include "server/core/lane.h"
#include "server/core/report.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { REPORTS = 101, JOBS_MAX = 512, RANKS_MAX = 4096, CACHES = 64 << 20 };

static void die(const char *what)
{
	fprintf(stderr, "reduction-bench-scrape: %s\n", what);
	exit(1);
}

static void ignore_event(void *ctx, const struct lane_event *ev)
{
	(void)ctx;
	(void)ev;
}

/* Adds a job with the connections of all its ranks. Its slots are not touched: no bytes
 * arrive. */
static void add_job(struct lane *l, unsigned job, unsigned ranks)
{
	struct stripe_params p = {
	    .job = job + 1, .world_size = ranks, .chunk_bytes = 32 << 10, .window = 4, .priorities = 2, .retain = true};
	size_t size = stripe_memory(&p);
	struct session *session;
	struct rs_err e;

	p.memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p.memory == MAP_FAILED)
		die("no memory for slots");
	for (unsigned r = 0; r < ranks; r++) {
		struct session_params sp = {.rank = r, .peer_detect_ms = 10000};

		snprintf(sp.label, sizeof sp.label, "pid %u on host%u", 1000 + r, job);
		if (lane_attach(l, &session, &p, &sp, NULL, 1, &e))
			die(e.msg);
	}
	lane_start(l, p.job, &(struct lane_begin){.processes = ranks});
}

/* Returns the microseconds of processor time that one report takes. */
static double report_us(const struct lane *l, unsigned sessions, uint64_t now_ms)
{
	struct timespec from, to;
	struct lane_report *r;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	r = lane_report_new(l, now_ms);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	if (!r || r->sessions_n != sessions)
		die("the report is not complete");
	free(r);
	return (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const char usage[] =
	    "Usage: reduction-bench-scrape [JOBS RANKS]\n"
	    "prints JSON: what a report of one lane takes, with 64 jobs of 256 ranks if not told\n";
	struct lane_options opt = {.kernels = rs_kernels_usable(0), .detect_ms = 10000, .event = ignore_event};
	long jobs = argc == 3 ? strtol(argv[1], NULL, 10) : 64, ranks = argc == 3 ? strtol(argv[2], NULL, 10) : 256;
	char *caches;
	double us[REPORTS];
	struct lane *l;
	struct rs_err e;

	if (bench_help_or_version(argc, argv, "reduction-bench-scrape", usage))
		return 0;
	if ((argc != 1 && argc != 3) || jobs < 1 || jobs > JOBS_MAX || ranks < 1 || ranks > RANKS_MAX) {
		fputs(usage, stderr);
		return 2;
	}
	caches = malloc(CACHES);
	if (!caches)
		die("no memory for what fills the caches");
	if (lane_new(&l, &opt, &e))
		die(e.msg);
	for (long j = 0; j < jobs; j++)
		add_job(l, (unsigned)j, (unsigned)ranks);
	for (unsigned i = 0; i < REPORTS; i++) {
		memset(caches, (int)i, CACHES);
		us[i] = report_us(l, (unsigned)(jobs * ranks), 1000 + i);
	}
	qsort(us, REPORTS, sizeof us[0], by_value);
	printf("{\"jobs\":%ld,\"ranks\":%ld,\"report_us_median\":%.1f,\"report_us_max\":%.1f}\n", jobs, ranks,
	       us[REPORTS / 2], us[REPORTS - 1]);
	lane_free(l);
	free(caches);
	return 0;
}
