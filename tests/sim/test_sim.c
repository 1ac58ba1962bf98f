/* SPDX-License-Identifier: Apache-2.0 */
/* run: idle */
/* Runs the simulator: a number of seeds, or as many as fit into a number of seconds. On a
 * failure it prints the seed and the trace of that run, which the same seed repeats. */
#include "tests/sim/sim.h"

#include "common/error.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRACE_TAIL = 60000 };

struct options {
	uint64_t first, seeds;
	double seconds;
	bool trace;
};

static double seconds_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void print_stats(const struct sim_stats *st, double seconds)
{
	printf("%llu seeds in %.1f s: %.0f a second, %.0f events and %.0f bytes each\n", (unsigned long long)st->seeds,
	       seconds, (double)st->seeds / seconds, (double)st->steps / (double)st->seeds,
	       (double)st->bytes / (double)st->seeds);
	printf("generations: %llu in good order, %llu failed as they had to\n", (unsigned long long)st->teams_clean,
	       (unsigned long long)st->teams_failed);
	printf("operations:  %llu completed, %llu of them encoded, %llu sharded, %llu failed",
	       (unsigned long long)st->ops_ok, (unsigned long long)st->encoded, (unsigned long long)st->sharded,
	       (unsigned long long)st->ops_failed);
	for (int i = 1; i < 16; i++)
		if (st->codes[i])
			printf(", %s %llu", rs_code_text(-i), (unsigned long long)st->codes[i]);
	printf("\nfaults (of those, felt by their job):");
	for (int i = 1; i < FAULT_NR; i++)
		printf(" %s %llu (%llu)", fault_name(i), (unsigned long long)st->faults[i],
		       (unsigned long long)st->faults_felt[i]);
	printf(
	    "\nreducers:    lost %llu times and back %llu times, as ranks saw it; %llu faults that had to be survived, "
	    "%llu ranks were only stopped, %llu times only small messages passed, also when %llu were to show whether "
	    "large ones do; shares were set %llu times, connections made anew %llu times",
	    (unsigned long long)st->lost, (unsigned long long)st->back, (unsigned long long)st->survived,
	    (unsigned long long)st->stopped, (unsigned long long)st->narrow, (unsigned long long)st->probes,
	    (unsigned long long)st->reshared, (unsigned long long)st->anew);
	printf("\nworkers:     %llu went on in the next generation, on %llu of their connections",
	       (unsigned long long)st->moved, (unsigned long long)st->kept);
	printf("\ndecoupled:   %llu times a link was found ahead of its window", (unsigned long long)st->ahead);
	printf("\nrelays:      sent %llu bytes of sums to homes", (unsigned long long)st->relayed);
	printf("\nelse:        %llu unauthenticated connections, %llu recorded handshakes, %llu refusals, %llu "
	       "connects to be retried, "
	       "%llu signals, %llu processes in the place of a rank, %llu of them refused for good\n",
	       (unsigned long long)st->unauth, (unsigned long long)st->replays, (unsigned long long)st->refused,
	       (unsigned long long)st->retried, (unsigned long long)st->signals, (unsigned long long)st->intruders,
	       (unsigned long long)st->intruders_refused);
}

/* A fault that never happens is not tested: then the simulator itself is broken. */
static bool covers_everything(const struct sim_stats *st)
{
	bool ok = st->ops_ok && st->encoded && st->sharded && st->ops_failed && st->unauth && st->replays &&
		  st->refused && st->retried && st->signals && st->intruders_refused && st->lost && st->back &&
		  st->survived && st->stopped && st->narrow && st->moved && st->kept && st->reshared && st->anew &&
		  st->ahead && st->relayed && (st->probes || st->seeds < 40000); /* one run in some thousands */

	for (int i = 1; i < FAULT_NR; i++)
		if (!st->faults[i] || (!st->faults_felt[i] && i != FAULT_PAUSE && i != FAULT_STORM)) {
			fprintf(stderr, "no job has felt fault %s\n", fault_name(i));
			ok = false;
		}
	return ok;
}

/* Prints the end of the trace, from a temporary file, because it may be long. */
static void tell(uint64_t seed, const struct sim_setup *setup)
{
	struct sim_stats waste = {0};
	char why[1024], buf[4096];
	FILE *f = tmpfile();
	size_t n;
	long len;

	if (!f)
		return;
	sim_run(seed, setup, &waste, f, why, sizeof why);
	len = ftell(f);
	fseek(f, len > TRACE_TAIL ? len - TRACE_TAIL : 0, SEEK_SET);
	while ((n = fread(buf, 1, sizeof buf, f)) > 0)
		fwrite(buf, 1, n, stderr);
	fclose(f);
}

static int run(const struct options *o, const struct sim_setup *setup)
{
	struct sim_stats stats = {0};
	double start = seconds_now();
	char why[1024];
	uint64_t seed = o->first;

	for (uint64_t i = 0; o->seeds ? i < o->seeds : seconds_now() - start < o->seconds; i++, seed++) {
		if (sim_run(seed, setup, &stats, o->trace ? stdout : NULL, why, sizeof why))
			continue;
		if (!o->trace)
			tell(seed, setup);
		fprintf(stderr, "seed %llu failed: %s\nagain: make sim SEED=%llu TRACE=1%s%s\n",
			(unsigned long long)seed, why, (unsigned long long)seed, setup->namesakes ? " NAMESAKES=1" : "",
			setup->grouped ? " GROUPED=1" : "");
		return 1;
	}
	print_stats(&stats, seconds_now() - start);
	/* a few seeds do not have every fault */
	return stats.seeds < 2000 || setup->namesakes || setup->grouped || covers_everything(&stats) ? 0 : 1;
}

static const char usage[] =
    "usage: test_sim [--seeds N | --seconds S] [--first SEED] [--namesakes] [--grouped] [--trace]\n"
    "  --seeds N     that many runs, each of one seed (0: as many as --seconds allows)\n"
    "  --seconds S   for about that long; 60 without options\n"
    "  --first SEED  begin with this seed; 1 without it\n"
    "  --namesakes   in each run two to four trainings have one job name\n"
    "  --grouped     in each run jobs have groups of ranks, if they can\n"
    "  --trace       print everything that happens\n";

int main(int argc, char **argv)
{
	static const struct option longs[] = {
	    {"seeds", required_argument, NULL, 'n'}, {"seconds", required_argument, NULL, 's'},
	    {"first", required_argument, NULL, 'f'}, {"trace", no_argument, NULL, 't'},
	    {"namesakes", no_argument, NULL, 'm'},   {"grouped", no_argument, NULL, 'g'},
	    {"help", no_argument, NULL, 'h'},        {0}};
	struct options o = {.first = 1, .seconds = 60};
	struct rs_config base;
	struct sim_setup setup = {.base = &base};
	struct rs_err e;
	int c, rc;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			o.seeds = strtoull(optarg, NULL, 0);
			break;
		case 's':
			o.seconds = strtod(optarg, NULL);
			break;
		case 'f':
			o.first = strtoull(optarg, NULL, 0);
			break;
		case 'm':
			setup.namesakes = true;
			break;
		case 'g':
			setup.grouped = true;
			break;
		case 't':
			o.trace = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (rs_config_load(&base, NULL, &e) || rs_kernels_select("auto", &setup.kernels, &e)) {
		fprintf(stderr, "%s\n", e.msg);
		return 1;
	}
	rc = run(&o, &setup);
	rs_config_close(&base);
	return rc;
}
