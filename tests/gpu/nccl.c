/* SPDX-License-Identifier: Apache-2.0 */
/* Part nccl: NCCL with the plugin. Each rank is a process, and all ranks share the first
 * GPU as different nodes (NCCL_HOSTID). So ratios on loopback claim nothing: ranks get
 * the GPU in turn. On links of 1 Gbit/s the links decide.
 */
#include "tests/gpu/nccl_case.h"
#include "tests/gpu/nccl_log.h"
#include "tests/gpu/proc.h"
#include "tests/gpu/reducers.h"
#include "tests/gpu/row.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CASE_LIMIT_S = 120, ABORT_LIMIT_S = 5, LINK_MBIT = 1000 };

/* The command line. */
struct options {
	size_t bytes;     /* of a measurement */
	unsigned ops;     /* of the case with many operations */
	const char *only; /* the check to run; NULL: all */
};

/* One start of all ranks. */
struct launch {
	const char *name; /* of the case */
	int ranks;
	size_t bytes;
	unsigned ops;
	bool socket;           /* NCCL's own transport instead of the plugin */
	const struct links *l; /* rank i is on host i; NULL: loopback */
	struct reducers *r;
	unsigned kill_after; /* operations after which reducer 1 is killed; 0: never */
};

/* What came of it. */
struct outcome {
	bool ok;
	char why[700];
	double result, largest;
	char log[1 << 20]; /* NCCL's, of rank 0 */
};

/* Writes the environment of a rank; `text` keeps it. */
static void rank_environment(const struct launch *c, int rank, struct proc_start *p, char text[16][600])
{
	char plugin[512];
	int n = 0;

	proc_bundle(plugin, sizeof plugin, "lib/libnccl-net-reduction.so");
	sprintf(text[n++], "NCCL_HOSTID=node%d", rank);
	sprintf(text[n++], "NCCL_NET_PLUGIN=%s", c->socket ? "none" : plugin);
	sprintf(text[n++], "NCCL_NET=%s", c->socket ? "Socket" : "reduction");
	sprintf(text[n++], "NCCL_COLLNET_ENABLE=%d", !c->socket);
	if (!c->socket)
		sprintf(text[n++], "NCCL_ALGO=allreduce:collnetchain");
	sprintf(text[n++], "NCCL_SOCKET_IFNAME=%s", c->l ? "eth0" : "lo");
	sprintf(text[n++], "NCCL_IB_DISABLE=1");
	sprintf(text[n++], "NCCL_MNNVL_ENABLE=0");
	sprintf(text[n++], "NCCL_RAS_ENABLE=0");
	sprintf(text[n++], "NCCL_MAX_NCHANNELS=2");
	sprintf(text[n++], "NCCL_DEBUG=INFO");
	sprintf(text[n++], "NCCL_DEBUG_FILE=%s/nccl%d.log", c->r->folder, rank);
	sprintf(text[n++], "NCCL_DEBUG_SUBSYS=INIT,NET,TUNING");
	sprintf(text[n++], "NCCL_NET_PLUGIN_REF_COUNT=1");
	sprintf(text[n++], "REDUCTION_REQUIRED=%d", !c->socket);
	sprintf(text[n++], "REDUCTION_CONFIG=%s", c->r->config);
	for (int i = 0; i < n; i++)
		p->env[i] = text[i];
}

static pid_t start_rank(const struct launch *c, int rank, const char *shared)
{
	char program[512], numbers[4][32], log[128], text[16][600];
	struct proc_start p = {.argv = {program, "--case", c->name, "--shared", shared, "--rank", numbers[0], "--ranks",
					numbers[1], "--bytes", numbers[2], "--ops", numbers[3]},
			       .host = c->l ? c->l->hosts[rank] : 0,
			       .out = log};

	proc_bundle(program, sizeof program, "bin/gpu-nccl");
	sprintf(numbers[0], "%d", rank);
	sprintf(numbers[1], "%d", c->ranks);
	sprintf(numbers[2], "%zu", c->bytes);
	sprintf(numbers[3], "%u", c->ops);
	snprintf(log, sizeof log, "%s/nccl%d.log", c->r->folder, rank);
	unlink(log);
	snprintf(log, sizeof log, "%s/rank%d.log", c->r->folder, rank);
	unlink(log);
	rank_environment(c, rank, &p, text);
	return proc_start(&p);
}

/* Waits for all ranks; kills those that are left when one has failed or the time is
 * over. */
static void wait_ranks(const struct launch *c, const pid_t *pids, struct case_shared *s, struct outcome *o)
{
	double until = proc_now_s() + CASE_LIMIT_S;
	int left = c->ranks, status;
	bool ended[CASE_RANKS_MAX] = {false}, killed = false;

	while (left > 0) {
		for (int i = 0; i < c->ranks; i++) {
			if (ended[i])
				continue;
			status = o->ok ? proc_wait(pids[i], 0) : (proc_kill(pids[i]), 1);
			ended[i] = status >= 0;
			left -= ended[i];
			if (status > 0 && o->ok)
				snprintf(o->why, sizeof o->why, "%s (rank %d: exit status %d)", s->why, i, status);
			o->ok &= status <= 0;
		}
		if (o->ok && left > 0 && proc_now_s() > until) {
			snprintf(o->why, sizeof o->why, "not all ranks ended within %d s", CASE_LIMIT_S);
			o->ok = false;
		}
		if (c->kill_after && !killed && atomic_load(&s->done) >= c->kill_after) {
			reducers_kill(c->r, 1);
			killed = true;
		}
		proc_sleep(0.002);
	}
	if (c->kill_after && o->ok && !killed) {
		snprintf(o->why, sizeof o->why, "the operations ended before the reducer was killed");
		o->ok = false;
	}
}

/* Prints the outputs of all ranks to standard error. */
static void show_outputs(const struct launch *c)
{
	char path[128], text[4096];

	for (int i = 0; i < c->ranks; i++) {
		snprintf(path, sizeof path, "%s/rank%d.log", c->r->folder, i);
		proc_read(text, sizeof text, path);
		fprintf(stderr, "# output of rank %d:\n%s\n", i, text);
	}
}

static void run_case(const struct launch *c, struct outcome *o)
{
	char path[128];
	pid_t pids[CASE_RANKS_MAX];
	struct case_shared *s;
	int fd;

	o->ok = false;
	snprintf(path, sizeof path, "%s/shared", c->r->folder);
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof *s)) {
		snprintf(o->why, sizeof o->why, "%s cannot be made", path);
		return;
	}
	s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	o->ok = true;
	for (int i = 0; i < c->ranks; i++)
		pids[i] = start_rank(c, i, path);
	wait_ranks(c, pids, s, o);
	o->result = s->result;
	o->largest = s->largest;
	munmap(s, sizeof *s);
	snprintf(path, sizeof path, "%s/nccl0.log", c->r->folder);
	proc_read(o->log, sizeof o->log, path);
	if (!o->ok)
		show_outputs(c);
}

/* Says how a case ended, and whether the log proves that it used the reducers. Returns 1
 * if something failed. */
static int report(const char *check, const struct outcome *o, const char *note)
{
	char why[512];

	if (!o->ok) {
		row("nccl", check, "fail", "%s", o->why);
		fprintf(stderr, "# NCCL's log of rank 0:\n%s\n", o->log);
		return 1;
	}
	if (!nccl_log_proves(o->log, why, sizeof why)) {
		row("nccl", check, "fail", "the reducers were not used: %s", why);
		return 1;
	}
	row("nccl", check, "ok", "%s; %s", note, why);
	return 0;
}

static int check_sums(struct reducers *r, struct outcome *o, int ranks)
{
	struct launch c = {.name = "sums", .ranks = ranks, .bytes = 8 << 20, .r = r};
	char check[64], note[128];

	run_case(&c, o);
	snprintf(check, sizeof check, "results, %d ranks", ranks);
	snprintf(note, sizeof note, "10 types, 4 operations; floats at most %.2f of the bound", o->largest);
	return report(check, o, note);
}

static int check_many(struct reducers *r, struct outcome *o, unsigned ops)
{
	struct launch c = {.name = "many", .ranks = 4, .bytes = 1 << 20, .ops = ops, .r = r};
	char note[64];

	run_case(&c, o);
	snprintf(note, sizeof note, "%u operations", ops);
	return report("many operations, 4 ranks", o, note);
}

static int check_abort(struct reducers *r, struct outcome *o)
{
	struct launch c = {.name = "aborts", .ranks = 4, .bytes = 8 << 20, .r = r};

	run_case(&c, o);
	if (o->ok && o->result < ABORT_LIMIT_S) {
		row_value("nccl", "ncclCommAbort, 4 ranks", "ok", o->result, "s", "the bound is %d s", ABORT_LIMIT_S);
		return 0;
	}
	if (o->ok)
		row_value("nccl", "ncclCommAbort, 4 ranks", "fail", o->result, "s", "the bound is %d s", ABORT_LIMIT_S);
	return o->ok ? 1 : report("ncclCommAbort, 4 ranks", o, "");
}

/* Ends with one reducer less. */
static int check_loss(struct reducers *r, struct outcome *o, unsigned ops)
{
	struct launch c = {.name = "many", .ranks = 4, .bytes = 1 << 20, .ops = ops, .r = r, .kill_after = ops / 4};

	run_case(&c, o);
	return report("a reducer is killed, 4 ranks", o, "no result is lost");
}

/* Measures CollNet and NCCL's sockets in turn. On shaped links the bar is 1.3. */
static int compare(struct reducers *r, struct outcome *o, const struct links *l, size_t bytes)
{
	struct launch c = {.name = "speed", .ranks = 4, .bytes = bytes, .l = l, .r = r};
	const char *check = l ? "1 Gbit/s, CollNet to NCCL_NET=Socket" : "loopback, CollNet to NCCL_NET=Socket";
	double ours, socket;

	run_case(&c, o);
	if (!o->ok || report(l ? "1 Gbit/s, CollNet" : "loopback, CollNet", o, "results are right"))
		return o->ok ? 1 : report(check, o, "");
	ours = o->result;
	c.socket = true;
	run_case(&c, o);
	if (!o->ok)
		return report(check, o, "");
	socket = o->result;
	row_value("nccl", check,
		  !l                     ? "info"
		  : ours / socket >= 1.3 ? "ok"
					 : "fail",
		  ours / socket, "ratio", "%zu MiB, 4 ranks on one GPU: %.1f and %.1f MB/s%s", bytes >> 20, ours / 1e6,
		  socket / 1e6, l ? ", bar 1.3" : "; nothing is claimed, the ranks get the GPU in turn");
	return l && ours / socket < 1.3;
}

static int compare_on_links(struct outcome *o, size_t bytes)
{
	struct reducers r;
	struct links l;
	char why[512];
	int failed;

	if (!links_start(&l, 8, LINK_MBIT, why, sizeof why)) {
		row("nccl", "1 Gbit/s, CollNet to NCCL_NET=Socket", "skip", "%s", why);
		return 0;
	}
	if (!reducers_start(&r, 4, &l, 4, why, sizeof why)) {
		row("nccl", "1 Gbit/s, CollNet to NCCL_NET=Socket", "fail", "%s", why);
		links_stop(&l);
		return 1;
	}
	failed = compare(&r, o, &l, bytes);
	reducers_stop(&r);
	links_stop(&l);
	return failed;
}

static bool wanted(const struct options *opt, const char *check)
{
	return !opt->only || strcmp(opt->only, check) == 0;
}

static int run_part(const struct options *opt)
{
	static struct outcome o;
	struct reducers r;
	char why[512];
	int failed = 0;

	if (!reducers_start(&r, 2, NULL, 0, why, sizeof why)) {
		row("nccl", "reducers", "fail", "%s", why);
		return 1;
	}
	if (wanted(opt, "results"))
		failed += check_sums(&r, &o, 2) + check_sums(&r, &o, 4);
	if (wanted(opt, "abort"))
		failed += check_abort(&r, &o);
	if (wanted(opt, "many"))
		failed += check_many(&r, &o, opt->ops);
	if (wanted(opt, "loopback"))
		failed += compare(&r, &o, NULL, opt->bytes);
	if (wanted(opt, "loss"))
		failed += check_loss(&r, &o, opt->ops / 4);
	reducers_stop(&r);
	return failed + (wanted(opt, "links") ? compare_on_links(&o, opt->bytes) : 0);
}

static int judge(const char *path)
{
	static char text[1 << 20];
	char why[512];
	bool proves = proc_read(text, sizeof text, path) && nccl_log_proves(text, why, sizeof why);

	row("nccl", "log", proves ? "ok" : "fail", "%s", *text ? why : "the file cannot be read or is empty");
	return !proves;
}

static void usage(void)
{
	fprintf(stderr, "Usage: gpu-nccl [--bytes N] [--ops N] [--only CHECK]\n"
			"       gpu-nccl --judge FILE\n"
			"--bytes    of a measurement (64 MiB)\n"
			"--ops      operations of the check \"many\" (2000)\n"
			"--only     results, abort, many, loopback, loss or links; default: all\n"
			"--judge    does this log of NCCL prove that all-reduces went through the reducers?\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option names[] = {
	    {"bytes", required_argument, NULL, 'b'},
	    {"ops", required_argument, NULL, 'o'},
	    {"judge", required_argument, NULL, 'j'},
	    {"only", required_argument, NULL, 'O'},
	    {"case", required_argument, NULL, 'c'},
	    {"shared", required_argument, NULL, 's'},
	    {"rank", required_argument, NULL, 'r'},
	    {"ranks", required_argument, NULL, 'n'},
	    {NULL, 0, NULL, 0},
	};
	struct options opt = {.bytes = 64 << 20, .ops = 2000};
	const char *name = NULL, *shared = NULL;
	int c, rank = 0, ranks = 0;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (c == 'b')
			opt.bytes = strtoul(optarg, NULL, 10);
		else if (c == 'o')
			opt.ops = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'O')
			opt.only = optarg;
		else if (c == 'j')
			return judge(optarg);
		else if (c == 'c')
			name = optarg;
		else if (c == 's')
			shared = optarg;
		else if (c == 'r')
			rank = atoi(optarg);
		else if (c == 'n')
			ranks = atoi(optarg);
		else
			usage();
	}
	if (name && shared)
		return case_run(name, shared, rank, ranks, opt.bytes, opt.ops);
	return run_part(&opt) ? 1 : 0;
}
