/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of reduction-bench: one table for both getopt and the help. */
#include "bench/bench.h"

#include "agent/lib/include/reduction.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
	KEY_INPLACE = 256,
	KEY_MODE,
	KEY_TENSORS,
	KEY_BEHIND,
	KEY_JSON,
	KEY_MALLOC,
	KEY_TIMEOUT,
	KEY_RANKS,
	KEY_REDUCERS,
	KEY_LANES,
	KEY_CPU,
	KEY_TRANSPORT,
	KEY_CONFIG,
	KEY_AGENT,
	KEY_JOB,
	KEY_WIRE,
	KEY_HELP,
	KEY_VERSION
};

static const struct {
	int key; /* a short option if below 256 */
	const char *name, *arg, *help;
} rows[] = {
    {0, "Sizes and operations", NULL, NULL},
    {'b', "minbytes", "SIZE", "smallest size; K, M, G are 1024-based (default 4K)"},
    {'e', "maxbytes", "SIZE", "largest size (default 64M)"},
    {'f', "stepfactor", "X", "each size is X times the previous one (default 4)"},
    {'i', "stepbytes", "SIZE", "each size is SIZE more than the previous one; replaces -f"},
    {'d', "datatype", "TYPE",
     "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16, or all\n"
     "(default float32)"},
    {'o', "op", "OP", "sum prod max min avg, or all (default sum)"},
    {0, "Measurement", NULL, NULL},
    {'n', "iters", "N", "timed iterations of each row (default 20)"},
    {'w', "warmup", "N", "untimed iterations before them (default 5)"},
    {'c', "check", "0|1", "compare every element with its expected value, exact unless it is encoded (default 1)"},
    {'a', "async", "N", "start N operations, then wait for all: one iteration, its time divided by N (default 1)"},
    {KEY_TENSORS, "tensors", "N",
     "N tensors of each size at once in three rows: operations of their own, as a group,\n"
     "and one operation of N times the size; size and time are those of all together"},
    {KEY_BEHIND, "behind", "SIZE",
     "time each size in three rows: alone, and started while an operation of SIZE is in flight,\n"
     "with the same priority and with a higher one"},
    {KEY_INPLACE, "inplace", "WHICH", "both, only (in place only) or no (out of place only) (default both)"},
    {KEY_MALLOC, "malloc", NULL, "buffers from malloc instead of memory shared with the agent"},
    {KEY_TIMEOUT, "timeout", "SECONDS", "give up when one operation takes longer (default 60)"},
    {KEY_JSON, "json", NULL, "print one JSON object for each row instead of the table"},
    {0, "Processes", NULL, NULL},
    {KEY_RANKS, "ranks", "N",
     "start N ranks on this machine; without it this process is one rank, identified by\n"
     "the environment of torchrun, Slurm or Open MPI (RANK, WORLD_SIZE, ...)"},
    {KEY_REDUCERS, "local-reducers", "K", "start K reducers on free loopback ports, and use them"},
    {KEY_LANES, "lanes", "L", "lanes (threads) of each local reducer (default 1)"},
    {KEY_TRANSPORT, "transport", "NAME", "tcp or grpc, to the local reducers (default tcp)"},
    {KEY_CPU, "cpu", "NAME", "reduction kernels of the local reducers: scalar avx2 avx512 neon auto (default auto)"},
    {0, "Connection", NULL, NULL},
    {KEY_CONFIG, "config", "FILE",
     "configuration file with the reducers (default $REDUCTION_CONFIG, or $REDUCTION_REDUCERS)"},
    {KEY_MODE, "mode", "NAME",
     "auto, agent (the agent of this node), node (local rank 0's process serves its node) or\n"
     "direct (default $REDUCTION_MODE, then auto; direct with --local-reducers, which agent and\n"
     "node leave idle: one node sums by itself)"},
    {KEY_AGENT, "agent", "PATH", "socket of the node's agent; this is mode agent (default $REDUCTION_AGENT)"},
    {KEY_JOB, "job", "NAME", "name of the job (default $REDUCTION_JOB, then the configuration's)"},
    {KEY_WIRE, "wire", "WORD",
     "same, bf16, fp8, int8, fp16 or int4: encoding on the network, also as up=fp8,down=bf16\n"
     "(default $REDUCTION_WIRE, then job.wire)"},
    {0, "Other", NULL, NULL},
    {'h', "help", NULL, "print this and exit"},
    {KEY_VERSION, "version", NULL, "print the version and exit"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void print_help(void)
{
	printf("Usage: reduction-bench [OPTION]...\n"
	       "Measures all-reduce over a range of sizes, in the format of nccl-tests.\n"
	       "Try: reduction-bench --ranks 4 --local-reducers 2 -b 4K -e 64M -f 4\n");
	for (int i = 0; i < ROWS; i++) {
		char left[64];
		if (!rows[i].key) {
			printf("\n%s:\n", rows[i].name);
			continue;
		}
		snprintf(left, sizeof(left), "%c%c%s --%s%s%s", rows[i].key < 256 ? '-' : ' ',
			 rows[i].key < 256 ? rows[i].key : ' ', rows[i].key < 256 ? "," : " ", rows[i].name,
			 rows[i].arg ? " " : "", rows[i].arg ? rows[i].arg : "");
		printf("  %-26s  ", left);
		for (const char *p = rows[i].help; *p; p++) {
			putchar(*p);
			if (*p == '\n')
				printf("%30s", "");
		}
		putchar('\n');
	}
	printf(
	    "\nColumns: size in bytes; count of elements; time of one operation in microseconds (average, median, "
	    "99th\n"
	    "percentile), where an iteration counts as long as on its slowest rank; algbw = size / average time and\n"
	    "busbw = algbw * 2(n-1)/n for n ranks, in GB/s (1e9 bytes), as nccl-tests defines them; #wrong = elements\n"
	    "over all ranks that differ from their exact value. \"out of place\" receives into a buffer of its own.\n"
	    "Exit code: 0 success; 1 an error or a wrong element; 2 wrong usage.\n");
}

static bool parse_size(const char *s, uint64_t *ret)
{
	static const char units[] = "KMGT";
	char *end;
	errno = 0;
	unsigned long long v = strtoull(s, &end, 10);
	if (errno || end == s || *s == '-')
		return false;
	const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
	unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	if (unit) {
		end++;
		if (!strcmp(end, "iB") || !strcmp(end, "B"))
			end += strlen(end);
	}
	if (*end || v > (UINT64_MAX >> 1) >> shift)
		return false;
	*ret = v << shift;
	return true;
}

static bool parse_int(const char *s, long min, long max, long *ret)
{
	char *end;
	errno = 0;
	long v = strtol(s, &end, 10);
	if (errno || end == s || *end || v < min || v > max)
		return false;
	*ret = v;
	return true;
}

/* Returns the bit of `word` among n names, all bits for "all", 0 for an unknown word. */
static unsigned parse_names(const char *word, const char *(*name)(unsigned), unsigned n)
{
	if (!strcmp(word, "all"))
		return (1u << n) - 1;
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(word, name(i)))
			return 1u << i;
	return 0;
}

static bool parse_place(const char *s, enum bench_place *ret)
{
	static const struct {
		const char *word;
		enum bench_place place;
	} words[] = {{"both", PLACE_BOTH}, {"only", PLACE_IN}, {"no", PLACE_OUT}};
	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(s, words[i].word)) {
			*ret = words[i].place;
			return true;
		}
	return false;
}

static bool parse_mode(const char *s, int *ret)
{
	static const char *const words[] = {"auto", "agent", "node", "direct"};
	for (int mode = REDUCTION_MODE_AUTO; mode <= REDUCTION_MODE_DIRECT; mode++)
		if (!strcmp(s, words[mode])) {
			*ret = mode;
			return true;
		}
	return false;
}

static bool parse_seconds(const char *s, int *ret_ms)
{
	char *end;
	double v = strtod(s, &end);
	if (end == s || *end || !(v > 0 && v <= 1e6))
		return false;
	*ret_ms = v < 0.001 ? 1 : (int)(v * 1000);
	return true;
}

static bool parse_factor(const char *s, double *ret)
{
	char *end;
	double v = strtod(s, &end);
	if (end == s || *end || !(v > 1 && v <= 1e6))
		return false;
	*ret = v;
	return true;
}

/* Stores one option. Returns NULL, or what was expected if the argument is invalid. */
static const char *store(struct bench_options *o, int key, const char *arg)
{
	long v = 0;
	switch (key) {
	case 'b':
		return parse_size(arg, &o->min_bytes) ? NULL : "a size such as 4K";
	case 'e':
		return parse_size(arg, &o->max_bytes) ? NULL : "a size such as 64M";
	case 'i':
		return parse_size(arg, &o->step_bytes) && o->step_bytes ? NULL : "a size above 0 such as 1M";
	case 'f':
		return parse_factor(arg, &o->factor) ? NULL : "a number above 1";
	case 'd':
		return (o->dtypes = parse_names(arg, rs_dtype_name, RS_DTYPE_NR)) ? NULL
										  : "a dtype (see --help) or all";
	case 'o':
		return (o->ops = parse_names(arg, rs_op_name, RS_OP_NR)) ? NULL : "sum, prod, max, min, avg or all";
	case 'n':
		return parse_int(arg, 1, 1000000, &v) ? (o->iters = (unsigned)v, NULL) : "1 to 1000000";
	case 'w':
		return parse_int(arg, 0, 1000000, &v) ? (o->warmup = (unsigned)v, NULL) : "0 to 1000000";
	case 'c':
		return parse_int(arg, 0, 1, &v) ? (o->check = v, NULL) : "0 or 1";
	case 'a':
		return parse_int(arg, 1, 4096, &v) ? (o->in_flight = (unsigned)v, NULL) : "1 to 4096";
	case KEY_TENSORS:
		return parse_int(arg, 1, 4096, &v) ? (o->tensors = (unsigned)v, NULL) : "1 to 4096";
	case KEY_BEHIND:
		return parse_size(arg, &o->behind) && o->behind ? NULL : "a size above 0 such as 64M";
	case KEY_MODE:
		return parse_mode(arg, &o->mode) ? NULL : "auto, agent, node or direct";
	case KEY_INPLACE:
		return parse_place(arg, &o->place) ? NULL : "both, only or no";
	case KEY_TIMEOUT:
		return parse_seconds(arg, &o->timeout_ms) ? NULL : "seconds above 0";
	case KEY_RANKS:
		return parse_int(arg, 1, 1024, &v) ? (o->ranks = (int)v, NULL) : "1 to 1024";
	case KEY_REDUCERS:
		return parse_int(arg, 1, 64, &v) ? (o->local_reducers = (int)v, NULL) : "1 to 64";
	case KEY_LANES:
		return parse_int(arg, 1, 64, &v) ? (o->lanes = (int)v, NULL) : "1 to 64";
	}
	return "nothing";
}

static void store_plain(struct bench_options *o, int key, const char *arg)
{
	if (key == KEY_JSON)
		o->json = true;
	else if (key == KEY_MALLOC)
		o->plain_memory = true;
	else if (key == KEY_CPU)
		o->cpu = arg;
	else if (key == KEY_TRANSPORT)
		o->transport = arg;
	else if (key == KEY_CONFIG)
		o->config = arg;
	else if (key == KEY_AGENT)
		o->agent_socket = arg;
	else if (key == KEY_JOB)
		o->job = arg;
	else if (key == KEY_WIRE)
		o->wire = arg;
}

static int usage_error(const char *sentence)
{
	fprintf(stderr, "reduction-bench: %s; see --help\n", sentence);
	return 2;
}

static int check_together(struct bench_options *o)
{
	if (o->min_bytes > o->max_bytes)
		return usage_error("-b is larger than -e");
	if (o->tensors && o->in_flight > 1)
		return usage_error("--tensors and --async cannot be given together");
	if (o->behind && (o->tensors || o->in_flight > 1))
		return usage_error("--behind cannot be given together with --tensors or --async");
	if (o->tensors && o->max_bytes > UINT64_MAX / 2 / o->tensors)
		return usage_error("-e times --tensors is too large");
	if (o->local_reducers && !o->ranks)
		return usage_error("--local-reducers needs --ranks: ranks of another launcher do not know the "
				   "addresses of these reducers");
	if (o->local_reducers && o->config)
		return usage_error("--local-reducers makes its own configuration, so --config cannot be given with it");
	if (!o->local_reducers && (o->lanes || o->cpu || o->transport))
		return usage_error("--lanes, --transport and --cpu require --local-reducers");
	if (o->transport && strcmp(o->transport, "tcp") != 0 && strcmp(o->transport, "grpc") != 0)
		return usage_error("--transport must be tcp or grpc");
	if (o->local_reducers && !o->lanes)
		o->lanes = 1;
	if (o->agent_socket && (o->mode == REDUCTION_MODE_NODE || o->mode == REDUCTION_MODE_DIRECT))
		return usage_error(
		    "--agent cannot be given together with --mode node or --mode direct, which use no agent");
	if (o->local_reducers && o->mode == REDUCTION_MODE_DEFAULT && !o->agent_socket)
		o->mode = REDUCTION_MODE_DIRECT;
	return 0;
}

static const char *row_name(int key)
{
	for (int i = 0; i < ROWS; i++)
		if (rows[i].key == key)
			return rows[i].name;
	return "?";
}

int bench_options_parse(struct bench_options *o, int argc, char **argv, const char *version, int *ret_exit)
{
	struct option longs[ROWS + 1] = {{0}};
	char shorts[2 * ROWS + 1] = "";
	char sentence[256];
	int key, n = 0;

	for (int i = 0; i < ROWS; i++) {
		if (!rows[i].key)
			continue;
		longs[n++] =
		    (struct option){rows[i].name, rows[i].arg ? required_argument : no_argument, NULL, rows[i].key};
		if (rows[i].key < 256)
			strcat(strncat(shorts, &(char){(char)rows[i].key}, 1), rows[i].arg ? ":" : "");
	}
	*o = (struct bench_options){.system = "reduction",
				    .version = version,
				    .min_bytes = 4096,
				    .max_bytes = 64 << 20,
				    .factor = 4,
				    .iters = 20,
				    .warmup = 5,
				    .dtypes = 1u << RS_FLOAT32,
				    .ops = 1u << RS_SUM,
				    .check = true,
				    .in_flight = 1,
				    .place = PLACE_BOTH,
				    .mode = REDUCTION_MODE_DEFAULT,
				    .timeout_ms = 60000};
	while ((key = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		const char *expected = NULL;
		if (key == '?') {
			fprintf(stderr, "Try 'reduction-bench --help'.\n"); /* getopt has printed the error */
			*ret_exit = 2;
			return 1;
		}
		if (key == 'h' || key == KEY_VERSION) {
			key == 'h' ? print_help() : (void)printf("reduction-bench %s\n", version);
			*ret_exit = 0;
			return 1;
		}
		if (key == KEY_JSON || key == KEY_MALLOC || key >= KEY_CPU)
			store_plain(o, key, optarg);
		else
			expected = store(o, key, optarg);
		if (expected) {
			snprintf(sentence, sizeof(sentence), "--%s: found \"%s\", expected %s", row_name(key), optarg,
				 expected);
			*ret_exit = usage_error(sentence);
			return 1;
		}
	}
	if (optind < argc) {
		snprintf(sentence, sizeof(sentence), "unexpected argument \"%s\"", argv[optind]);
		*ret_exit = usage_error(sentence);
		return 1;
	}
	*ret_exit = check_together(o);
	return *ret_exit != 0;
}

uint64_t bench_next_size(const struct bench_options *o, uint64_t bytes)
{
	uint64_t next;
	if (o->step_bytes) {
		next = bytes + o->step_bytes;
	} else {
		double f = (double)bytes * o->factor;
		next = f > 9e18 ? UINT64_MAX : (uint64_t)f;
		if (next <= bytes)
			next = bytes + 1;
	}
	return next > o->max_bytes ? 0 : next;
}
