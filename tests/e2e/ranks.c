/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/ranks.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REDUCERS = 2, LIMIT_S = 120 };

void fail_at(const struct rank *r, int line, const char *fmt, ...)
{
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s: rank %d: line %d: %s\n", r->scenario, r->rank, line, text);
	_exit(1);
}

void expect_rc(const struct rank *r, int line, const char *what, int rc, int want)
{
	if (rc != want)
		fail_at(r, line, "%s gave %d, not %d; error %d: %s", what, rc, want, r->err.code, r->err.message);
	if (rc != r->err.code)
		fail_at(r, line, "%s gave %d but err->code is %d", what, rc, r->err.code);
	if (rc && !r->err.message[0])
		fail_at(r, line, "%s gave %d without a sentence", what, rc);
}

reduction_options options(const struct rank *r)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;

	opt.config = r->config;
	opt.job = r->job;
	opt.mode = r->mode;
	opt.agent_socket = r->agent_socket;
	opt.run = "ranks";
	opt.rank = opt.local_rank = r->rank;
	opt.world_size = opt.local_world_size = r->world;
	return opt;
}

void open_comm(struct rank *r)
{
	reduction_options opt = options(r);

	EXPECT_RC(reduction_open(&r->comm, &opt, &r->err), 0);
}

void close_comm(struct rank *r)
{
	EXPECT_RC(reduction_close(r->comm, &r->err), 0);
}

void let_go(struct rank *r)
{
	for (int i = 1; i < r->world; i++)
		EXPECT(write(r->go[i][1], "g", 1) == 1);
}

void wait_go(struct rank *r)
{
	char c;

	EXPECT(read(r->go[r->rank][0], &c, 1) == 1);
}

void all_here(struct rank *r)
{
	if (r->rank > 0) {
		EXPECT(write(r->here[1], "h", 1) == 1);
		wait_go(r);
		return;
	}
	for (int i = 0; i < r->world - 1; i++) {
		char c;

		EXPECT(read(r->here[0], &c, 1) == 1);
	}
	let_go(r);
}

/* A reducer on a free port, or an agent. Its log after the address is kept until it
 * ends. */
struct server {
	pid_t pid;
	int err;
	char address[64]; /* or socket */
};

/* Returns after it has logged `listening`, followed by its address. */
static bool start_server(struct server *d, const char *name, const char *const args[4], const char *listening)
{
	const char *build = getenv("REDUCTION_BUILD");
	char binary[4096], line[1024];
	int fds[2];
	FILE *f;

	snprintf(binary, sizeof binary, "%s/bin/%s", build ? build : "build/default", name);
	if (pipe(fds))
		return false;
	d->pid = fork();
	if (d->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		execl(binary, binary, args[0], args[1], args[2], args[3], (char *)NULL);
		perror(binary);
		_exit(1);
	}
	close(fds[1]);
	d->err = fds[0];
	d->address[0] = '\0';
	f = fdopen(dup(fds[0]), "r");
	while (f && !d->address[0] && fgets(line, sizeof line, f)) {
		const char *at = strstr(line, listening);

		if (at)
			sscanf(at + strlen(listening), "%63s", d->address);
		else
			fputs(line, stderr);
	}
	if (f)
		fclose(f);
	return d->address[0] != '\0';
}

static bool start_reducer(struct server *d)
{
	static const char *const args[] = {"--listen", "127.0.0.1:0", "--lanes", "2"};

	return start_server(d, "reduction-server", args, "listening address=");
}

static bool start_agent(struct server *d, const char *config)
{
	char path[64];
	const char *const args[] = {"--config", config, "--socket", path};

	snprintf(path, sizeof path, "%s.agent", config);
	return start_server(d, "reduction-agent", args, "listening socket=");
}

static bool stop_server(struct server *d)
{
	char text[4096];
	ssize_t n;
	int status;

	kill(d->pid, SIGTERM);
	while ((n = read(d->err, text, sizeof text)) > 0)
		if (getenv("CAPI_VERBOSE"))
			fwrite(text, 1, (size_t)n, stderr);
	close(d->err);
	if (waitpid(d->pid, &status, 0) == d->pid && status == 0)
		return true;
	fprintf(stderr, "a reducer or agent ended with status 0x%x\n", status);
	return false;
}

static bool write_config(const char *path, const struct server *d)
{
	FILE *f = fopen(path, "w");

	if (!f)
		return false;
	fprintf(f, "reducers:\n");
	for (int i = 0; i < REDUCERS; i++)
		/* one by number, one by name */
		fprintf(f, "  - {id: r%d, address: \"%s%s\", lanes: %d}\n", i, i ? "localhost" : "127.0.0.1",
			strrchr(d[i].address, ':'), i + 1);
	fprintf(f, "sharding: {shards: 7, chunk_bytes: 16KiB, window: 6, priorities: 3}\njob: {max_ops: 20}\n");
	/* a rank that was not woken is not saved by a heartbeat within LIMIT_S, nor one
	 * that waits for others to close
	 */
	fprintf(f, "timeouts: {detect: 10min, drain: 10min}\n");
	return fclose(f) == 0;
}

static bool run_scenario(const struct scenario *s, const char *config, reduction_mode mode, const char *socket)
{
	static const char *const modes[] = {"", " through an agent", " through local rank 0", " directly"};
	int world = s->ranks;
	pid_t pids[RANKS_MAX];
	bool ok = true;
	struct timespec from, to;
	struct rank r = {.scenario = s->name, .config = config, .mode = mode, .agent_socket = socket, .world = world};

	/* a job of its own */
	snprintf(r.job, sizeof r.job, "%s.%d%s", r.scenario, world, (const char *[]){"", "a", "n", ""}[mode]);
	for (int i = 0; i < world; i++)
		ok = pipe(r.go[i]) == 0 && ok;
	if (pipe(r.here) || !ok)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (r.rank = 0; r.rank < world; r.rank++) {
		pids[r.rank] = fork();
		if (pids[r.rank] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			alarm(LIMIT_S);
			s->run(&r);
			exit(0); /* not _exit: the leak checker runs at exit */
		}
	}
	for (int i = 0; i < world; i++) {
		int status = -1;

		waitpid(pids[i], &status, 0);
		if (i == s->killed ? !WIFSIGNALED(status) : status != 0) {
			fprintf(stderr, "%s: rank %d ended with status 0x%x\n", s->name, i, status);
			ok = false;
		}
	}
	for (int i = 0; i < world; i++) {
		close(r.go[i][0]);
		close(r.go[i][1]);
	}
	close(r.here[0]);
	close(r.here[1]);
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%s %s with %d ranks%s, %.2f s\n", ok ? "ok  " : "FAIL", s->name, world, modes[mode],
	       (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9);
	fflush(stdout);
	return ok;
}

int run_scenarios(const struct scenario *all, size_t n, int argc, char **argv)
{
	char path[] = "/tmp/reduction-capi-XXXXXX";
	struct server d[REDUCERS + 1]; /* the last one is the agent */
	int fd = mkstemp(path), started = 0;
	bool ok = fd >= 0;

	while (ok && started < REDUCERS)
		ok = start_reducer(&d[started++]);
	ok = ok && write_config(path, d) && start_agent(&d[started++], path);
	if (!ok)
		fprintf(stderr, "the reducers and the agent cannot be started\n");
	for (size_t s = 0; ok && s < n; s++) {
		bool wanted = argc < 2;

		for (int i = 1; i < argc; i++)
			wanted |= strcmp(argv[i], all[s].name) == 0;
		if (wanted)
			ok = run_scenario(&all[s], path, REDUCTION_MODE_DIRECT, NULL) &&
			     (!(all[s].also & ALSO_AGENT) ||
			      run_scenario(&all[s], path, REDUCTION_MODE_AGENT, d[REDUCERS].address)) &&
			     (!(all[s].also & ALSO_NODE) || run_scenario(&all[s], path, REDUCTION_MODE_NODE, NULL));
	}
	while (started > 0)
		ok = stop_server(&d[--started]) && ok;
	close(fd);
	unlink(path);
	return ok ? 0 : 1;
}

int element(int rank, size_t i)
{
	return (int)((i * 7 + (size_t)rank * 3) % 11) + 1;
}

double expected(reduction_op op, int world, size_t i)
{
	double v = element(0, i);

	for (int rank = 1; rank < world; rank++) {
		double x = element(rank, i);

		if (op == REDUCTION_SUM || op == REDUCTION_AVG)
			v += x;
		else if (op == REDUCTION_PROD)
			v *= x;
		else if (op == REDUCTION_MAX)
			v = v > x ? v : x;
		else
			v = v < x ? v : x;
	}
	return op == REDUCTION_AVG ? v / world : v;
}

void make_tensors(const struct rank *r, reduction_tensor *tensors, float *memory, size_t n, size_t count)
{
	for (size_t t = 0; t < n; t++) {
		tensors[t] = (reduction_tensor)REDUCTION_TENSOR_INIT;
		tensors[t].send = tensors[t].recv = memory + t * count;
		tensors[t].count = count;
		for (size_t i = 0; i < count; i++)
			memory[t * count + i] = (float)element(r->rank, t + i);
	}
}
