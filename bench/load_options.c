/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load.h"

#include "common/version.h"
#include "config/config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One option: a number is stored in `at` if it is a multiple of `step` from min to max;
 * other values are stored by `take`. */
struct row {
	const char *name, *arg, *help;
	size_t at;
	enum { SIZE64, SIZE32, COUNT, SECONDS, TEXT, DTYPE, FLAG } kind;
	double min, max;
};
#define AT(field) offsetof(struct load_options, field)

static const struct row rows[] = {
    {"address", "HOST:PORT", "the reducer (default 127.0.0.1:7600)", AT(address), TEXT, 0, 0},
    {"name", "NAME", "name of the jobs; -0, -1, ... is appended (default load)", AT(name), TEXT, 0, 0},
    {"ranks", "N", "ranks of each job (default 8)", AT(ranks), COUNT, 1, RS_WORLD_MAX},
    {"jobs", "N", "jobs at the same time (default 1)", AT(jobs), COUNT, 1, 4096},
    {"bytes", "SIZE", "size of one all-reduce; K, M, G are 1024-based (default 1M)", AT(bytes), SIZE64, 1, 1e12},
    {"seconds", "S", "measured time in seconds (default 5)", AT(seconds), SECONDS, 0.01, 1e6},
    {"warmup", "S", "warm-up before that, in seconds (default 1)", AT(warmup), SECONDS, 0, 1e6},
    {"ops", "N", "measure N all-reduces from the first one on, instead of --seconds", AT(ops), SIZE64, 1, 1e12},
    {"chunk", "SIZE", "bytes of a chunk, a multiple of 64 (default 32K)", AT(chunk), SIZE32, RS_CHUNK_MIN,
     RS_CHUNK_MAX},
    {"window", "N", "chunks of a rank in flight (default 4)", AT(window), COUNT, 1, RS_WINDOW_MAX},
    {"dtype", "TYPE", "dtype of the elements (default float32)", AT(dtype), DTYPE, 0, 0},
    {"check-all", NULL, "compare every element of every result, not only the first 64 bytes", AT(check_all), FLAG, 0,
     0},
    {"silent", "N", "further connections that never send HELLO, reopened when they are closed (default 0)", AT(silent),
     COUNT, 0, 100000},
    {"server-pid", "PID", "process of the reducer; its processor time and memory are shown too", AT(server_pid), COUNT,
     1, 1e9},
    {"timeout", "S", "give up after S seconds without progress (default 60)", AT(timeout), SECONDS, 0.1, 1e6},
    {"json", NULL, "print one JSON object", AT(json), FLAG, 0, 0},
    {"help", NULL, "print this and exit (-h too)", 0, FLAG, 0, 0},
    {"version", NULL, "print the version and exit", 0, FLAG, 0, 0},
};
enum { ROWS = sizeof rows / sizeof rows[0], ROW_HELP = ROWS - 2, ROW_VERSION = ROWS - 1 };

static void print_help(void)
{
	printf("Usage: reduction-load [OPTION]...\n"
	       "Simulates many ranks of one or several jobs against a running reducer, and checks the sums.\n"
	       "The reducer needs server.max_workers of at least --ranks.\n\n");
	for (int i = 0; i < ROWS; i++)
		printf("  --%-10s %-9s  %s\n", rows[i].name, rows[i].arg ? rows[i].arg : "", rows[i].help);
	printf(
	    "\nA GiB counts once for each rank that contributes it. Exit code: 0 success; 1 an error or a wrong sum; 2 "
	    "wrong usage.\n");
}

/* Parses a number with an optional unit; negative if it is not one. */
static double number(const char *s, bool units, bool fraction)
{
	static const char unit[] = "KMG";
	const char *u;
	char *end;
	double v = strtod(s, &end);

	if (end == s || s[strspn(s, fraction ? "0123456789." : "0123456789")] != *end)
		return -1;
	u = units && *end ? strchr(unit, *end & ~0x20) : NULL;
	for (const char *c = unit; u && c <= u; c++)
		v *= 1024;
	return u ? (end[1] ? -1 : v) : (*end ? -1 : v);
}

static bool store_dtype(enum rs_dtype *to, const char *arg)
{
	for (unsigned i = 0; i < RS_DTYPE_NR; i++)
		if (strcmp(arg, rs_dtype_name(i)) == 0) {
			*to = (enum rs_dtype)i;
			return true;
		}
	return false;
}

static bool store(struct load_options *o, const struct row *row, const char *arg)
{
	void *to = (char *)o + row->at;
	double v = 0;

	if (row->kind == TEXT)
		return *(const char **)to = arg, *arg != '\0';
	if (row->kind == DTYPE)
		return store_dtype(to, arg);
	if (row->kind == FLAG)
		return *(bool *)to = true;
	v = number(arg, row->kind <= SIZE32, row->kind == SECONDS);
	if (!(v >= row->min && v <= row->max))
		return false;
	if (row->kind == SECONDS)
		*(double *)to = v;
	else if (row->kind == SIZE64)
		*(uint64_t *)to = (uint64_t)v;
	else
		*(uint32_t *)to = (uint32_t)v;
	return true;
}

static int usage_error(const struct row *row, const char *arg)
{
	fprintf(stderr, "reduction-load: --%s: found \"%s\", expected ", row->name, arg);
	if (row->kind == DTYPE)
		fprintf(stderr, "int8, uint8, int32, uint32, int64, uint64, float16, float32, float64 or bfloat16\n");
	else if (row->kind == TEXT)
		fprintf(stderr, "a text that is not empty\n");
	else
		fprintf(stderr, "a number from %.10g to %.10g\n", row->min, row->max);
	return 2;
}

static int check_together(const struct load_options *o)
{
	if (o->chunk % 64) {
		fprintf(stderr, "reduction-load: --chunk: found %u, expected a multiple of 64\n", o->chunk);
		return 2;
	}
	if (o->bytes % rs_dtype_size(o->dtype)) {
		fprintf(stderr, "reduction-load: --bytes: found %llu, expected a multiple of %s's %zu bytes\n",
			(unsigned long long)o->bytes, rs_dtype_name(o->dtype), rs_dtype_size(o->dtype));
		return 2;
	}
	return 0;
}

int load_options_parse(struct load_options *o, int argc, char **argv, int *ret_exit)
{
	struct option longs[ROWS + 1] = {{0}};
	int key;

	*o = (struct load_options){.address = "127.0.0.1:7600",
				   .name = "load",
				   .ranks = 8,
				   .jobs = 1,
				   .bytes = 1 << 20,
				   .seconds = 5,
				   .warmup = 1,
				   .chunk = 32 << 10,
				   .window = 4,
				   .dtype = RS_FLOAT32,
				   .timeout = 60};
	for (int i = 0; i < ROWS; i++)
		longs[i] = (struct option){rows[i].name, rows[i].arg ? required_argument : no_argument, NULL, 256 + i};
	*ret_exit = 2;
	while ((key = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (key == '?') {
			fprintf(stderr, "Try 'reduction-load --help'.\n"); /* getopt has printed the error */
			return 1;
		}
		if (key == 'h' || key == 256 + ROW_HELP || key == 256 + ROW_VERSION) {
			key == 256 + ROW_VERSION ? (void)printf("reduction-load %s\n", RS_VERSION) : print_help();
			*ret_exit = 0;
			return 1;
		}
		if (!store(o, &rows[key - 256], optarg)) {
			*ret_exit = usage_error(&rows[key - 256], optarg);
			return 1;
		}
		if (rows[key - 256].at == AT(ops))
			o->seconds = 0;
		else if (rows[key - 256].at == AT(seconds))
			o->ops = 0;
	}
	if (optind < argc) {
		fprintf(stderr, "reduction-load: unexpected argument \"%s\"; see --help\n", argv[optind]);
		return 1;
	}
	*ret_exit = check_together(o);
	return *ret_exit != 0;
}
