/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the reduction kernels: every table that runs here, every dtype and operation,
 * with both buffers in L2 and with both in memory, beside memcpy and a plain `a[i] = a[i]
 * + b[i]` on float32 that the compiler vectorized.
 *
 * GB/s counts the bytes of the accumulator (of the elements for copies and for
 * `nonfinite`, which only reads; of float32 for encodings), so a float16 sum at the speed
 * of a float32 one adds as many elements a second.
 *
 * With --reducer only what a reducer does: sums whose source, a chunk just received, is
 * in L2 and whose accumulators are in memory. Each repeat of a sum has a repeat of the
 * plain add and of memcpy in the same places beside it, so that a slow phase of the
 * machine does not change their ratio. */
#include "common/kernels/kernels.h"
#include "bench/help_version.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS_MAX = 101 };
#define REPEAT_SECONDS 0.004 /* a repeat calls the kernel for at least this time */

enum verb {
	V_MEMCPY,
	V_PLAIN_ADD,
	V_REDUCE,
	V_LOAD,
	V_STORE,
	V_DIVIDE,
	V_NONFINITE,
	V_ENCODE,
	V_RANDOM,
	V_DECODE,
	V_ADD
};

/* One measurement: a kernel of a table on n elements. */
struct job {
	const char *name, *place;
	enum verb verb;
	const struct rs_kernels *k;
	unsigned dtype, op, wire;
	bool nan; /* the source consists of NaNs */
	size_t n;
};

typedef void (*plain_add_fn)(float *restrict a, const float *restrict b, size_t n);

struct bench {
	char *acc, *src; /* bytes[1] each, on page boundaries */
	char *base;      /* with --reducer: like acc, of float32, for the plain add and memcpy */
	size_t bytes[2]; /* of a buffer: in L2, in memory */
	unsigned repeats;
	const char *table; /* only this table; NULL: all */
	bool json, reducer;
	plain_add_fn plain_add;
};

#define DEFINE_PLAIN_ADD(name, isa)                                                                                    \
	isa static void name(float *restrict a, const float *restrict b, size_t n)                                     \
	{                                                                                                              \
		for (size_t i = 0; i < n; i++)                                                                         \
			a[i] = a[i] + b[i];                                                                            \
	}

DEFINE_PLAIN_ADD(plain_add, )
#if defined(__x86_64__)
DEFINE_PLAIN_ADD(plain_add_avx2, __attribute__((target("avx2"))))
DEFINE_PLAIN_ADD(plain_add_avx512, __attribute__((target("avx512f"))))
#endif

/* The plain add, compiled for the instructions of the best kernel table. */
static plain_add_fn best_plain_add(void)
{
#if defined(__x86_64__)
	const struct rs_kernels *best;

	if (rs_kernels_select("auto", &best, NULL) == RS_OK && strcmp(best->name, "avx512") == 0)
		return plain_add_avx512;
	if (rs_kernels_select("avx2", &best, NULL) == RS_OK)
		return plain_add_avx2;
#endif
	return plain_add;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void call(const struct bench *b, const struct job *j)
{
	switch (j->verb) {
	case V_MEMCPY:
		memcpy(b->acc, b->src, j->n * sizeof(float));
		break;
	case V_PLAIN_ADD:
		b->plain_add((float *)b->acc, (const float *)b->src, j->n);
		break;
	case V_REDUCE:
		j->k->reduce[j->op][j->dtype](b->acc, b->src, j->n);
		break;
	case V_LOAD:
		j->k->load[j->dtype](b->acc, b->src, j->n);
		break;
	case V_STORE:
		j->k->store[j->dtype](b->src, b->acc, j->n);
		break;
	case V_DIVIDE:
		j->k->divide[j->dtype](b->acc, 3, j->n);
		break;
	case V_NONFINITE:
		j->k->nonfinite[j->dtype](b->src, j->n);
		break;
	case V_ENCODE:
		j->k->encode[j->wire](b->src, b->acc, j->n);
		break;
	case V_RANDOM:
		j->k->encode_random[j->wire](b->src, b->acc, j->n, 39, 0);
		break;
	case V_DECODE:
		j->k->decode[j->wire](b->acc, b->src, j->n);
		break;
	case V_ADD:
		j->k->add[j->wire](b->acc, b->src, j->n);
		break;
	}
	__asm__ volatile("" ::: "memory"); /* makes the compiler treat the result as used */
}

/* Fills accumulator and source with ones, which neither overflow nor become denormal in a
 * product; or the source with NaNs. */
static void fill(const struct bench *b, const struct job *j)
{
	static const float one_f = 1, nan_f = __builtin_nanf("");
	static const double one_d = 1, nan_d = __builtin_nan("");
	uint16_t half = j->dtype == RS_FLOAT16 ? (j->nan ? 0x7e00 : 0x3c00) : (j->nan ? 0x7fc0 : 0x3f80);
	uint64_t one_i = 1;
	size_t acc_size = rs_acc_size(j->dtype), size = rs_dtype_size(j->dtype);
	const void *acc_one = &one_i, *src_one = &one_i;

	if (rs_dtype_is_half(j->dtype)) {
		acc_one = &one_f;
		src_one = &half;
	} else if (j->dtype == RS_FLOAT32) {
		acc_one = &one_f;
		src_one = j->nan ? &nan_f : &one_f;
	} else if (j->dtype == RS_FLOAT64) {
		acc_one = &one_d;
		src_one = j->nan ? &nan_d : &one_d;
	}
	for (size_t i = 0; i < j->n; i++) {
		memcpy(b->acc + i * acc_size, acc_one, acc_size);
		memcpy(b->src + i * size, src_one, size);
	}
	if (j->wire != RS_WIRE_SAME)
		j->k->encode[j->wire](b->src, b->acc, j->n);
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the bytes of an element that GB/s counts. */
static size_t counted_size(const struct job *j)
{
	return j->verb == V_NONFINITE ? rs_dtype_size(j->dtype) : rs_acc_size(j->dtype);
}

/* Writes the speeds of all repeats in GB/s into speed, sorted. */
static void measure(const struct bench *b, const struct job *j, double *speed)
{
	fill(b, j);
	call(b, j);
	for (unsigned r = 0; r < b->repeats; r++) {
		double start = now(), elapsed;
		unsigned calls = 0;

		do {
			call(b, j);
			calls++;
			elapsed = now() - start;
		} while (elapsed < REPEAT_SECONDS);
		speed[r] = (double)calls * (double)(j->n * counted_size(j)) / elapsed / 1e9;
	}
	qsort(speed, b->repeats, sizeof speed[0], compare_doubles);
}

static void run(const struct bench *b, struct job j)
{
	double speed[REPEATS_MAX], median;
	const char *table = j.k ? j.k->name : "-";
	const char *type = j.wire != RS_WIRE_SAME ? rs_wire_name(j.wire) : rs_dtype_name(j.dtype);

	for (int place = 0; place < 2; place++) {
		j.place = place ? "memory" : "L2";
		j.n = b->bytes[place] / rs_acc_size(j.dtype);
		measure(b, &j, speed);
		median = speed[b->repeats / 2];
		if (b->json)
			printf("{\"kernel\":\"%s\",\"dtype\":\"%s\",\"table\":\"%s\",\"place\":\"%s\",\"bytes\":%zu,"
			       "\"repeats\":%u,\"gbps_median\":%.6g,\"gbps_min\":%.6g,\"gbps_max\":%.6g}\n",
			       j.name, type, table, j.place, b->bytes[place], b->repeats, median, speed[0],
			       speed[b->repeats - 1]);
		else
			printf("%-10s %-9s %-7s %-7s %10zu %9.2f %9.2f %9.2f\n", j.name, type, table, j.place,
			       b->bytes[place], median, speed[0], speed[b->repeats - 1]);
		fflush(stdout);
	}
}

static void run_dtype(const struct bench *b, const struct rs_kernels *k, unsigned dtype)
{
	static const enum rs_op ops[] = {RS_SUM, RS_PROD, RS_MAX, RS_MIN};
	struct job j = {.k = k, .dtype = dtype, .verb = V_REDUCE};
	bool is_float = rs_dtype_is_half(dtype) || dtype == RS_FLOAT32 || dtype == RS_FLOAT64;

	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
		j.op = ops[i];
		j.name = rs_op_name(ops[i]);
		run(b, j);
	}
	if (is_float) {
		j.op = RS_SUM;
		j.name = "sum-nan";
		j.nan = true;
		run(b, j);
		j.nan = false;
		j.verb = V_NONFINITE;
		j.name = "nonfinite";
		run(b, j);
	}
	j.verb = V_DIVIDE;
	j.name = "divide";
	run(b, j);
	if (!rs_dtype_is_half(dtype))
		return;
	j.verb = V_LOAD;
	j.name = "load";
	run(b, j);
	j.verb = V_STORE;
	j.name = "store";
	run(b, j);
}

/* The encodings of float32. */
static void run_wire(const struct bench *b, const struct rs_kernels *k, unsigned wire)
{
	static const struct {
		const char *name;
		enum verb verb;
	} rows[] = {{"encode", V_ENCODE}, {"random", V_RANDOM}, {"decode", V_DECODE}, {"add", V_ADD}};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		run(b, (struct job){
			   .k = k, .name = rows[i].name, .verb = rows[i].verb, .dtype = RS_FLOAT32, .wire = wire});
}

/* Calls the job on one block of acc after the other, starting at *cursor, for
 * REPEAT_SECONDS. Returns GB/s. */
static double walk(const struct bench *b, const struct job *j, char *acc, size_t *cursor)
{
	struct bench at = *b;
	double start = now(), elapsed;
	size_t done = 0;

	do {
		if (*cursor + b->bytes[0] > b->bytes[1])
			*cursor = 0;
		at.acc = acc + *cursor;
		call(&at, j);
		*cursor += b->bytes[0];
		done += b->bytes[0];
		elapsed = now() - start;
	} while (elapsed < REPEAT_SECONDS);
	return (double)done / elapsed / 1e9;
}

/* Returns the ticks of the time-stamp counter in a nanosecond: its nominal frequency,
 * which may differ from the frequency of the core. 0 if there is no such counter. */
static double tsc_ghz(void)
{
#if defined(__x86_64__)
	double start = now(), elapsed;
	uint64_t ticks = __builtin_ia32_rdtsc();

	do
		elapsed = now() - start;
	while (elapsed < 0.05);
	return (double)(__builtin_ia32_rdtsc() - ticks) / elapsed / 1e9;
#else
	return 0;
#endif
}

/* Speeds of one dtype's sum and of the code it is compared with: GB/s of each repeat, and
 * the ratio within the same repeat; all sorted. */
struct sum_speed {
	double sum[REPEATS_MAX], add[REPEATS_MAX], copy[REPEATS_MAX], ratio[REPEATS_MAX];
};

static void measure_sum(const struct bench *b, const struct job *j, struct sum_speed *s)
{
	struct job whole = *j, add = {.verb = V_PLAIN_ADD, .dtype = RS_FLOAT32, .n = b->bytes[0] / sizeof(float)};
	struct job copy = add;
	struct bench ones = *b; /* a source of float32 for the plain add */
	size_t at = 0, at_add = 0, at_copy = 0;

	whole.n = b->bytes[1] / rs_acc_size(j->dtype);
	fill(b, &whole);
	copy.verb = V_MEMCPY;
	ones.src = b->base;
	walk(b, j, b->acc, &at); /* not counted: warms up caches and branch predictor */
	for (unsigned r = 0; r < b->repeats; r++) {
		s->add[r] = walk(&ones, &add, b->base, &at_add);
		s->sum[r] = walk(b, j, b->acc, &at);
		s->copy[r] = walk(&ones, &copy, b->base, &at_copy);
		s->ratio[r] = s->sum[r] / s->add[r];
	}
	qsort(s->ratio, b->repeats, sizeof s->ratio[0], compare_doubles);
	qsort(s->sum, b->repeats, sizeof s->sum[0], compare_doubles);
	qsort(s->add, b->repeats, sizeof s->add[0], compare_doubles);
	qsort(s->copy, b->repeats, sizeof s->copy[0], compare_doubles);
}

/* Writes the line of one dtype. Ticks refer to the bytes that workers send. */
static void run_sum(const struct bench *b, const struct rs_kernels *k, unsigned dtype, double ghz)
{
	struct job j = {.verb = V_REDUCE, .k = k, .dtype = dtype, .op = RS_SUM};
	size_t size = rs_dtype_size(dtype), acc_size = rs_acc_size(dtype);
	struct sum_speed s;
	double sum, add, copy, ratio, sent;

	j.n = b->bytes[0] / acc_size;
	measure_sum(b, &j, &s);
	sum = s.sum[b->repeats / 2];
	add = s.add[b->repeats / 2];
	copy = s.copy[b->repeats / 2];
	ratio = s.ratio[b->repeats / 2];
	sent = sum * (double)size / (double)acc_size;
	if (b->json)
		printf(
		    "{\"kernel\":\"sum\",\"dtype\":\"%s\",\"table\":\"%s\",\"place\":\"L2 to memory\",\"bytes\":%zu,"
		    "\"repeats\":%u,\"gbps_median\":%.6g,\"gbps_min\":%.6g,\"gbps_max\":%.6g,\"plain_add_gbps\":%.6g,"
		    "\"memcpy_gbps\":%.6g,\"over_plain_add\":%.6g,\"tsc_ghz\":%.6g,\"tsc_per_byte_sent\":%.6g}\n",
		    rs_dtype_name(dtype), k->name, b->bytes[1], b->repeats, sum, s.sum[0], s.sum[b->repeats - 1], add,
		    copy, ratio, ghz, ghz / sent);
	else
		printf("%-9s %-7s %9.2f %9.2f %9.2f %9.2f %9.2f %10.3f %10.4f\n", rs_dtype_name(dtype), k->name, sum,
		       s.sum[0], s.sum[b->repeats - 1], add, copy, ratio, ghz / sent);
	fflush(stdout);
}

/* Writes the output of --reducer. */
static void run_reducer(const struct bench *b)
{
	struct bench ones = *b;
	const struct rs_kernels *k;
	double ghz = tsc_ghz();

	rs_kernels_select(b->table ? b->table : "auto", &k, NULL);
	ones.acc = ones.src = b->base;
	fill(&ones, &(struct job){.dtype = RS_FLOAT32, .n = b->bytes[1] / sizeof(float)});
	if (!b->json)
		printf(
		    "# sums as a reducer does them: source of %zu KiB of accumulators in L2, accumulators in %zu MiB "
		    "of "
		    "memory\n# GB/s of the accumulator, median, min and max of %u repeats; ticks of the time-stamp "
		    "counter (%.2f GHz,\n# nominal) for a byte that a worker sends\n%-9s %-7s %9s %9s %9s %9s %9s %10s "
		    "%10s\n",
		    b->bytes[0] >> 10, b->bytes[1] >> 20, b->repeats, ghz, "dtype", "table", "median", "min", "max",
		    "plain-add", "memcpy", "/plain-add", "ticks/B");
	for (unsigned dtype = 0; dtype < RS_DTYPE_NR; dtype++)
		run_sum(b, k, dtype, ghz);
}

static void run_all(const struct bench *b)
{
	const struct rs_kernels *k;

	if (!b->json)
		printf("# GB/s of the accumulator, median, min and max of %u repeats\n"
		       "%-10s %-9s %-7s %-7s %10s %9s %9s %9s\n",
		       b->repeats, "kernel", "dtype", "table", "place", "bytes", "median", "min", "max");
	run(b, (struct job){.name = "memcpy", .verb = V_MEMCPY, .dtype = RS_FLOAT32});
	run(b, (struct job){.name = "plain-add", .verb = V_PLAIN_ADD, .dtype = RS_FLOAT32});
	for (unsigned dtype = 0; dtype < RS_DTYPE_NR; dtype++)
		for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
			if (!b->table || strcmp(b->table, k->name) == 0)
				run_dtype(b, k, dtype);
	for (unsigned wire = RS_WIRE_SAME + 1; wire < RS_WIRE_NR; wire++)
		for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
			if (!b->table || strcmp(b->table, k->name) == 0)
				run_wire(b, k, wire);
}

static const char usage[] =
    "Usage: reduction-bench-kernels [--json] [--reducer] [--repeats N] [--table NAME] [--memory MIB]\n"
    "Speed of the reduction kernels on one core, in L2 and from memory.\n"
    "  --json          print one JSON object for each line instead of a table\n"
    "  --reducer       only sums as a reducer does them, source in L2, accumulators in memory, beside a plain add\n"
    "                  and memcpy in the same places\n"
    "  --repeats N     measure each N times, 1 to 101 (default 7)\n"
    "  --table NAME    only this kernel table: scalar, avx2, avx512, neon (default: all that run here;\n"
    "                  with --reducer the best)\n"
    "  --memory MIB    size of each buffer in memory, 1 to 4096 (default: 4 times the last cache, 64 to 256)\n"
    "  --help          print this and exit\n";

/* Returns the number in text if it is in range; otherwise exits with a message. */
static unsigned number(const char *option, const char *text, unsigned long max)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || v < 1 || v > max) {
		fprintf(stderr, "reduction-bench-kernels: --%s %s: expected a number from 1 to %lu\n", option, text,
			max);
		exit(2);
	}
	return (unsigned)v;
}

static void parse(int argc, char **argv, struct bench *b)
{
	static const struct option options[] = {
	    {"json", no_argument, NULL, 'j'},        {"repeats", required_argument, NULL, 'r'},
	    {"table", required_argument, NULL, 't'}, {"memory", required_argument, NULL, 'm'},
	    {"reducer", no_argument, NULL, 'R'},     {0}};
	const struct rs_kernels *k;
	struct rs_err e;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'j':
			b->json = true;
			break;
		case 'R':
			b->reducer = true;
			break;
		case 'r':
			b->repeats = number("repeats", optarg, REPEATS_MAX);
			break;
		case 'm':
			b->bytes[1] = (size_t)number("memory", optarg, 4096) << 20;
			break;
		case 't':
			if (rs_kernels_select(optarg, &k, &e) != RS_OK) {
				fprintf(stderr, "reduction-bench-kernels: --table: %s\n", e.msg);
				exit(2);
			}
			b->table = k->name;
			break;
		default:
			fputs(usage, stderr);
			exit(2);
		}
	if (optind < argc) {
		fprintf(stderr, "reduction-bench-kernels: unexpected argument %s\n%s", argv[optind], usage);
		exit(2);
	}
}

/* Chooses the sizes: a quarter of L2 for each buffer, 64 KiB if its size is unknown; and
 * four times the last cache, so that it holds little of the buffer, but at most 256 MiB.
 * Some virtual machines report a cache of which they have only a part. */
static void choose_sizes(struct bench *b)
{
	long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE), l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);

	b->bytes[0] = l2 >= 65536 ? (size_t)l2 / 4 / 4096 * 4096 : 65536;
	b->bytes[1] = 64u << 20;
	if (l3 > 16 << 20)
		b->bytes[1] = l3 > 64 << 20 ? 256u << 20 : (size_t)l3 * 4;
}

int main(int argc, char **argv)
{
	struct bench b = {.repeats = 7};

	if (bench_help_or_version(argc, argv, "reduction-bench-kernels", usage))
		return 0;
	choose_sizes(&b);
	parse(argc, argv, &b);
	b.plain_add = best_plain_add();
	if (b.bytes[0] > b.bytes[1])
		b.bytes[0] = b.bytes[1];
	b.acc = aligned_alloc(4096, b.bytes[1]);
	b.src = aligned_alloc(4096, b.bytes[1]);
	b.base = b.reducer ? aligned_alloc(4096, b.bytes[1]) : NULL;
	if (!b.acc || !b.src || (b.reducer && !b.base)) {
		fprintf(stderr, "reduction-bench-kernels: no memory for %d buffers of %zu bytes\n", b.reducer ? 3 : 2,
			b.bytes[1]);
		return 1;
	}
	if (b.reducer)
		run_reducer(&b);
	else
		run_all(&b);
	free(b.acc);
	free(b.src);
	free(b.base);
	return 0;
}
