/* SPDX-License-Identifier: Apache-2.0 */
/* Part device: buffers of GPUs in libreduction, directly and through two agents. Each
 * rank is a process, and all ranks share GPU 0. */
#include "tests/gpu/device_case.h"
#include "tests/gpu/proc.h"
#include "tests/gpu/reducers.h"
#include "tests/gpu/row.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 4, AGENTS = 2, CASE_LIMIT_S = 120, READY_S = 20, CALLS = 201, TIMELINES = 5, MEBI = 1 << 20 };

/* The command line. The last four are bars. */
struct options {
	const char *only; /* the check to run; NULL: all */
	size_t most;      /* bytes of the largest result that is checked */
	size_t bytes;     /* of a measurement; 0: 16 and 64 MiB */
	unsigned rounds;
	const char *trace; /* folder that keeps the timelines; NULL: none does */
	double host_ratio, whole_ratio, call_us, overlap;
};

/* Reducers and agents. */
struct job {
	struct reducers r;
	pid_t agents[AGENTS];
	const struct options *opt;
};

/* One start of all ranks. */
struct launch {
	struct job *job;
	struct device_case c;
	int ranks;
	bool agent;
	const char *sanitizer; /* program that runs the ranks; NULL: none */
	const char *trace;     /* folder for their timelines; NULL: none are made */
};

static void agent_socket(const struct job *j, int i, char to[128])
{
	snprintf(to, 128, "%s/agent%d.sock", j->r.folder, i);
}

static bool start_agent(struct job *j, int i)
{
	char program[512], socket[128], log[128], text[4096];
	struct proc_start p = {.argv = {program, "--config", j->r.config, "--socket", socket}, .out = log};
	double until = proc_now_s() + READY_S;

	proc_bundle(program, sizeof program, "bin/reduction-agent");
	agent_socket(j, i, socket);
	snprintf(log, sizeof log, "%s/agent%d.log", j->r.folder, i);
	j->agents[i] = proc_start(&p);
	while (j->agents[i] > 0 && proc_now_s() < until) {
		proc_read(text, sizeof text, log);
		if (strstr(text, " listening "))
			return true;
		proc_sleep(0.01);
	}
	row("device", "agents", "fail", "agent %d does not listen: %.300s", i, text);
	return false;
}

static void job_stop(struct job *j)
{
	for (int i = 0; i < AGENTS; i++)
		if (j->agents[i] > 0)
			proc_kill(j->agents[i]);
	reducers_stop(&j->r);
}

static bool job_start(struct job *j, const struct options *opt)
{
	char why[512];

	*j = (struct job){.opt = opt};
	if (!reducers_start(&j->r, 2, NULL, 0, why, sizeof why)) {
		row("device", "reducers", "fail", "%s", why);
		return false;
	}
	for (int i = 0; i < AGENTS; i++)
		if (!start_agent(j, i)) {
			job_stop(j);
			return false;
		}
	return true;
}

static void rank_log(const struct launch *l, int rank, char to[128])
{
	snprintf(to, 128, "%s/rank%d.log", l->job->r.folder, rank);
}

static const char *way_name(bool agent)
{
	return agent ? "agents" : "direct";
}

/* Starts a rank. With agents, consecutive ranks share one. */
static pid_t start_rank(const struct launch *l, int rank)
{
	int local = l->ranks / AGENTS;
	char program[512], numbers[2][32], log[128], socket[128], text[10][160];
	struct proc_start p = {.out = log};
	const char *argv[] = {program, "--case", l->c.name, "--most", numbers[0], "--rounds", numbers[1], NULL};
	int n = 0;

	proc_bundle(program, sizeof program, "bin/gpu-device");
	sprintf(numbers[0], "%zu", l->c.most);
	sprintf(numbers[1], "%u", l->c.rounds);
	agent_socket(l->job, rank / local, socket);
	rank_log(l, rank, log);
	unlink(log);
	if (l->sanitizer) {
		p.argv[n++] = l->sanitizer;
		p.argv[n++] = "--error-exitcode=86";
	}
	memcpy(&p.argv[n], argv, sizeof argv);
	n = 0;
	sprintf(text[n++], "RANK=%d", rank);
	sprintf(text[n++], "WORLD_SIZE=%d", l->ranks);
	sprintf(text[n++], "REDUCTION_RUN=device");
	sprintf(text[n++], "LOCAL_RANK=%d", rank % local);
	sprintf(text[n++], "LOCAL_WORLD_SIZE=%d", local);
	sprintf(text[n++], "REDUCTION_MODE=%s", l->agent ? "agent" : "direct");
	sprintf(text[n++], "REDUCTION_AGENT=%s", l->agent ? socket : "");
	sprintf(text[n++], "REDUCTION_CONFIG=%s", l->job->r.config);
	if (l->trace) {
		sprintf(text[n++], "REDUCTION_JOB=%s", way_name(l->agent));
		snprintf(text[n++], sizeof text[0], "REDUCTION_GPU_TRACE=%s", l->trace);
	}
	for (int i = 0; i < n; i++)
		p.env[i] = text[i];
	return proc_start(&p);
}

/* Stores the last line that a rank has printed. */
static void last_line(const struct launch *l, int rank, char *to, size_t room)
{
	static char text[1 << 16];
	char path[128], *end;
	size_t n;

	rank_log(l, rank, path);
	n = proc_read(text, sizeof text, path);
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	end = strrchr(text, '\n');
	snprintf(to, room, "%.*s", (int)room - 1, end ? end + 1 : text);
}

/* Runs all ranks; kills those that are left when one has failed or the time is over.
 * False: `why` says what failed. */
static bool run_ranks(const struct launch *l, char *why, size_t room)
{
	double until = proc_now_s() + CASE_LIMIT_S;
	pid_t pids[RANKS_MAX];
	bool ok = true;
	char line[400];

	for (int i = 0; i < l->ranks; i++)
		pids[i] = start_rank(l, i);
	for (int left = l->ranks; left > 0; proc_sleep(0.002))
		for (int i = 0; i < l->ranks; i++) {
			int status = pids[i] ? ok ? proc_wait(pids[i], 0) : (proc_kill(pids[i]), 0) : -1;

			if (pids[i] && ok && status < 0 && proc_now_s() > until) {
				snprintf(why, room, "rank %d did not end within %d s", i, CASE_LIMIT_S);
				ok = false;
			}
			if (status > 0) {
				last_line(l, i, line, sizeof line);
				snprintf(why, room, "exit status %d: %s", status, line);
				ok = false;
			}
			if (pids[i] && status >= 0) {
				pids[i] = 0;
				left--;
			}
		}
	return ok;
}

/* Returns a number that rank 0 has printed; 0: it has not. */
static double measured(const struct launch *l, const char *name)
{
	char path[128], text[4096], line[64];
	const char *at;

	rank_log(l, 0, path);
	proc_read(text + 1, sizeof text - 1, path);
	text[0] = '\n';
	snprintf(line, sizeof line, "\n%s ", name);
	at = strstr(text, line);
	return at ? strtod(at + strlen(line), NULL) : 0;
}

/* Runs a case that prints no number. Returns 1 if it failed. */
static int check_case(const struct launch *l, const char *what, const char *note)
{
	char check[64], why[512];
	bool ok = run_ranks(l, why, sizeof why);

	snprintf(check, sizeof check, "%s, %d ranks, %s", what, l->ranks, way_name(l->agent));
	row("device", check, ok ? "ok" : "fail", "%s", ok ? note : why);
	return !ok;
}

static int check_results(struct job *j)
{
	char note[128];
	int failed = 0;

	snprintf(note, sizeof note, "10 types, 5 operations, 1 B to %zu KiB", j->opt->most >> 10);
	for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2)
		for (int agent = 0; agent < 2; agent++) {
			struct launch l = {.job = j, .c = {"results", j->opt->most, 0}, .ranks = ranks, .agent = agent};

			failed += check_case(&l, "results", note);
		}
	return failed;
}

static int check_streams(struct job *j)
{
	int failed = 0;

	for (int agent = 0; agent < 2; agent++) {
		struct launch l = {.job = j, .c = {"streams", MEBI, 20}, .ranks = 2, .agent = agent};

		failed += check_case(&l, "streams", "work before the call and after it is in order");
	}
	return failed;
}

static int check_call(struct job *j)
{
	int failed = 0;

	for (int agent = 0; agent < 2; agent++) {
		struct launch l = {.job = j, .c = {"call", MEBI, CALLS}, .ranks = 2, .agent = agent};
		char check[64], why[512];
		bool ok = run_ranks(&l, why, sizeof why);
		double us = ok ? measured(&l, "call") * 1e6 : 0;

		snprintf(check, sizeof check, "asynchronous call, %s", way_name(agent));
		if (ok)
			row_value("device", check, us < j->opt->call_us ? "ok" : "fail", us, "us",
				  "1 MiB, median of %d, the bar is %g us", CALLS, j->opt->call_us);
		else
			row("device", check, "fail", "%s", why);
		failed += !ok || us >= j->opt->call_us;
	}
	return failed;
}

/* Measures one size through the agents. */
static int check_ratios(struct job *j, size_t bytes)
{
	struct launch l = {.job = j, .c = {"speed", bytes, j->opt->rounds}, .ranks = 2, .agent = true};
	char check[64], why[512];
	double host, device, whole;
	int failed;

	if (!run_ranks(&l, why, sizeof why)) {
		row("device", "speed", "fail", "%s", why);
		return 1;
	}
	host = measured(&l, "host");
	device = measured(&l, "device");
	whole = measured(&l, "whole");
	snprintf(check, sizeof check, "%zu KiB, GPU to shared host memory", bytes >> 10);
	failed = device / host > j->opt->host_ratio;
	row_value("device", check, failed ? "fail" : "ok", device / host, "ratio",
		  "%.3f and %.3f ms through agents, median of %u, the bar is at most %g", device * 1e3, host * 1e3,
		  l.c.rounds, j->opt->host_ratio);
	snprintf(check, sizeof check, "%zu KiB, whole copies to pieces", bytes >> 10);
	row_value("device", check, whole / device < j->opt->whole_ratio ? "fail" : "ok", whole / device, "ratio",
		  "%.3f and %.3f ms through agents, median of %u, the bar is at least %g", whole * 1e3, device * 1e3,
		  l.c.rounds, j->opt->whole_ratio);
	return failed + (whole / device < j->opt->whole_ratio);
}

static int check_speed(struct job *j)
{
	if (j->opt->bytes)
		return check_ratios(j, j->opt->bytes);
	return check_ratios(j, 16 * MEBI) + check_ratios(j, 64 * MEBI);
}

/* Returns a number at the end of a timeline; -1: it is not there. */
static double timeline_number(const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	char text[512], quoted[32];
	const char *at;
	size_t n;

	if (!f)
		return -1;
	fseek(f, -(long)sizeof text + 1, SEEK_END);
	n = fread(text, 1, sizeof text - 1, f);
	text[n] = '\0';
	fclose(f);
	snprintf(quoted, sizeof quoted, "\"%s\":", key);
	at = strstr(text, quoted);
	return at ? strtod(at + strlen(quoted), NULL) : -1;
}

/* How much of the copies' time is the network busy too? */
static int check_timeline(struct job *j)
{
	int failed = 0;

	for (int agent = 0; agent < 2; agent++) {
		struct launch l = {.job = j, .ranks = 2, .agent = agent};
		char check[64], why[512], path[600];
		double copies, overlap = 0;
		bool ok;

		l.c = (struct device_case){"timeline", j->opt->bytes ? j->opt->bytes : 64 * MEBI, TIMELINES};
		l.trace = j->opt->trace ? j->opt->trace : j->r.folder;
		ok = run_ranks(&l, why, sizeof why);
		snprintf(path, sizeof path, "%s/%s.0.0.json", l.trace, way_name(agent));
		copies = ok ? timeline_number(path, "copies_us") : 0;
		if (ok && copies <= 0)
			snprintf(why, sizeof why, "%.400s has no copies", path);
		if (copies > 0)
			overlap = timeline_number(path, "overlap_us") / copies;
		ok = copies > 0 && overlap >= j->opt->overlap;
		snprintf(check, sizeof check, "copies under network, %s", way_name(agent));
		if (copies > 0)
			row_value("device", check, ok ? "ok" : "fail", 100 * overlap, "%",
				  "%.1f ms of copies, %zu KiB a buffer, the bar is at least %g %%", copies / 1000,
				  l.c.most >> 10, 100 * j->opt->overlap);
		else
			row("device", check, "fail", "%s", why);
		failed += !ok;
	}
	return failed;
}

/* Runs the ranks under compute-sanitizer, once. */
static int check_sanitizer(struct job *j)
{
	static const char of_toolkit[] = "/usr/local/cuda/bin/compute-sanitizer";
	struct proc_start p = {.argv = {"sh", "-c", "command -v compute-sanitizer"}, .out = "/dev/null"};
	bool in_path = proc_run(&p, READY_S) == 0;
	struct launch l = {.job = j, .c = {"results", MEBI, 0}, .ranks = 2};

	l.sanitizer = in_path ? "compute-sanitizer" : of_toolkit;
	if (!in_path && access(of_toolkit, X_OK) != 0) {
		row("device", "compute-sanitizer", "skip", "it is neither in PATH nor %s", of_toolkit);
		return 0;
	}
	return check_case(&l, "compute-sanitizer", "it found nothing");
}

static int run_part(const struct options *opt)
{
	static const struct {
		const char *name;
		int (*run)(struct job *j);
	} checks[] = {{"results", check_results}, {"streams", check_streams},   {"call", check_call},
		      {"speed", check_speed},     {"timeline", check_timeline}, {"sanitizer", check_sanitizer}};
	struct job j;
	int failed = 0;

	if (!job_start(&j, opt))
		return 1;
	for (unsigned i = 0; i < sizeof checks / sizeof *checks; i++)
		if (!opt->only || strcmp(opt->only, checks[i].name) == 0)
			failed += checks[i].run(&j);
	job_stop(&j);
	return failed ? 1 : 0;
}

static void usage(void)
{
	fprintf(stderr,
		"Usage: gpu-device [OPTION ...]\n"
		"--only CHECK       results, streams, call, speed, timeline or sanitizer; default: all\n"
		"--most BYTES       of the largest result that is checked (256 MiB)\n"
		"--bytes BYTES      of the checks \"speed\" (16 MiB, then 64 MiB) and \"timeline\" (64 MiB)\n"
		"--rounds N         of the check \"speed\" (11)\n"
		"--trace FOLDER     keeps the timelines of the check \"timeline\"\n"
		"--host-ratio X     bar: time on a GPU to that in shared host memory (at most 1.15)\n"
		"--whole-ratio X    bar: time with whole copies to that on a GPU (at least 1.3)\n"
		"--call-us X        bar: microseconds of an asynchronous call (less than 100)\n"
		"--overlap X        bar: share of the copies' time in which the network is busy (at least 0.8)\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option names[] = {
	    {"only", required_argument, NULL, 'o'},
	    {"most", required_argument, NULL, 'm'},
	    {"bytes", required_argument, NULL, 'b'},
	    {"rounds", required_argument, NULL, 'r'},
	    {"host-ratio", required_argument, NULL, 'h'},
	    {"whole-ratio", required_argument, NULL, 'w'},
	    {"call-us", required_argument, NULL, 'c'},
	    {"overlap", required_argument, NULL, 'l'},
	    {"trace", required_argument, NULL, 't'},
	    {"case", required_argument, NULL, 'n'},
	    {NULL, 0, NULL, 0},
	};
	struct options opt = {
	    .most = 256 * MEBI, .rounds = 11, .host_ratio = 1.15, .whole_ratio = 1.3, .call_us = 100, .overlap = 0.8};
	const char *name = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (c == 'o')
			opt.only = optarg;
		else if (c == 'm')
			opt.most = strtoul(optarg, NULL, 10);
		else if (c == 'b')
			opt.bytes = strtoul(optarg, NULL, 10);
		else if (c == 'r')
			opt.rounds = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'h')
			opt.host_ratio = strtod(optarg, NULL);
		else if (c == 'w')
			opt.whole_ratio = strtod(optarg, NULL);
		else if (c == 'c')
			opt.call_us = strtod(optarg, NULL);
		else if (c == 'l')
			opt.overlap = strtod(optarg, NULL);
		else if (c == 't')
			opt.trace = optarg;
		else if (c == 'n')
			name = optarg;
		else
			usage();
	}
	if (optind < argc)
		usage();
	if (name)
		return device_case_run(&(struct device_case){name, opt.most, opt.rounds});
	return run_part(&opt);
}
