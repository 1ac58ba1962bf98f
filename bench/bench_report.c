/* SPDX-License-Identifier: Apache-2.0 */
/* The table and the JSON lines of reduction-bench. */
#include "bench/bench.h"

#include "agent/lib/include/reduction.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

void bench_times_of(struct bench_times *t, double *us, unsigned n)
{
	double sum = 0;
	qsort(us, n, sizeof(*us), by_value);
	for (unsigned i = 0; i < n; i++)
		sum += us[i];
	t->avg = sum / n;
	t->p50 = n % 2 ? us[n / 2] : (us[n / 2 - 1] + us[n / 2]) / 2;
	t->p99 = us[(n * 99 + 99) / 100 - 1]; /* nearest rank */
	t->min = us[0];
	t->max = us[n - 1];
}

static double algbw(const struct bench_row *r, int place)
{
	double us = r->times[place].avg;
	return us > 0 ? (double)r->bytes / us / 1e3 : 0;
}

static double busbw(const struct bench_row *r, int place)
{
	return algbw(r, place) * 2 * (r->ranks - 1) / r->ranks;
}

void bench_print_header(const struct bench_options *o, int ranks)
{
	if (o->json)
		return;
	printf("# %s %s  ranks %d  iters %u  warmup %u  in flight %u", o->system, o->version, ranks, o->iters,
	       o->warmup, o->in_flight);
	if (o->mode == REDUCTION_MODE_NODE || o->mode == REDUCTION_MODE_DIRECT)
		printf("  mode %s", o->mode == REDUCTION_MODE_NODE ? "node" : "direct");
	if (o->agent_socket)
		printf("  agent %s", o->agent_socket);
	if (o->wire)
		printf("  wire %s", o->wire);
	if (o->tensors)
		printf("  tensors %u", o->tensors);
	if (o->behind)
		printf("  behind %llu bytes", (unsigned long long)o->behind);
	if (o->local_reducers)
		printf("  local reducers %d x %d lanes", o->local_reducers, o->lanes);
	if (o->local_reducers && o->mode == REDUCTION_MODE_NODE)
		printf("\n# all ranks are on this node, which sums in its shared memory: the local reducers are idle");
	printf("\n# time in us of the slowest rank, algbw and busbw in GB/s\n#%12s %12s %9s %5s", "", "", "", "");
	if (o->tensors || o->behind)
		printf(" %9s %12s", "", "");
	if (o->place & PLACE_OUT)
		printf(" %57s", "---------------------- out of place ---------------------");
	if (o->place & PLACE_IN)
		printf(" %57s", "------------------------ in place -----------------------");
	printf("\n#%12s %12s %9s %5s", "size(B)", "count", "type", "redop");
	if (o->tensors || o->behind)
		printf(" %9s %12s", "way", "sent(B)");
	for (int i = 0; i < 2; i++)
		if (o->place & (i ? PLACE_IN : PLACE_OUT))
			printf(" %10s %10s %10s %7s %7s %8s", "avg", "p50", "p99", "algbw", "busbw", "#wrong");
	printf("\n");
	fflush(stdout);
}

static const char *const ways[] = {"", "separate", "grouped", "single", "alone", "behind", "urgent"};

static void print_table_row(const struct bench_row *r)
{
	printf(" %12llu %12llu %9s %5s", (unsigned long long)r->bytes, (unsigned long long)r->count,
	       rs_dtype_name(r->dtype), rs_op_name(r->op));
	if (r->way != WAY_PLAIN)
		printf(" %9s %12llu", ways[r->way], (unsigned long long)r->sent);
	for (int i = 0; i < 2; i++) {
		const struct bench_times *t = &r->times[i];
		if (!r->has[i])
			continue;
		printf(" %10.1f %10.1f %10.1f %7.3f %7.3f", t->avg, t->p50, t->p99, algbw(r, i), busbw(r, i));
		if (t->wrong == UINT64_MAX)
			printf(" %8s", "N/A");
		else
			printf(" %8llu", (unsigned long long)t->wrong);
	}
	printf("\n");
}

static void print_json_row(const struct bench_options *o, const struct bench_row *r)
{
	for (int i = 0; i < 2; i++) {
		const struct bench_times *t = &r->times[i];
		if (!r->has[i])
			continue;
		printf("{\"system\":\"%s\",\"bytes\":%llu,\"count\":%llu,\"dtype\":\"%s\",\"op\":\"%s\","
		       "\"inplace\":%s,"
		       "\"ranks\":%d,\"iters\":%u,\"in_flight\":%u,\"time_us\":{\"avg\":%.3f,\"p50\":%.3f,\"p99\":%.3f,"
		       "\"min\":%.3f,\"max\":%.3f},\"algbw\":%.6f,\"busbw\":%.6f,",
		       o->system, (unsigned long long)r->bytes, (unsigned long long)r->count, rs_dtype_name(r->dtype),
		       rs_op_name(r->op), i ? "true" : "false", r->ranks, o->iters, o->in_flight, t->avg, t->p50,
		       t->p99, t->min, t->max, algbw(r, i), busbw(r, i));
		if (o->wire)
			printf("\"wire\":\"%s\",", o->wire);
		if (o->tensors)
			printf("\"tensors\":%u,", o->tensors);
		if (o->behind)
			printf("\"behind\":%llu,", (unsigned long long)o->behind);
		if (r->way != WAY_PLAIN)
			printf("\"way\":\"%s\",\"sent\":%llu,", ways[r->way], (unsigned long long)r->sent);
		printf("\"wrong\":");
		if (t->wrong == UINT64_MAX)
			printf("null}\n");
		else
			printf("%llu}\n", (unsigned long long)t->wrong);
	}
}

void bench_print_row(const struct bench_options *o, const struct bench_row *r)
{
	if (o->json)
		print_json_row(o, r);
	else
		print_table_row(r);
	fflush(stdout);
}
