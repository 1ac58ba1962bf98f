/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that reduction-bench starts on this machine.
 *
 * The happy path is: start the reducers, read from their logs where they listen, fork the
 * ranks, wait until all ranks have ended, end the reducers with SIGTERM, remove the
 * temporary folder. Failure modes are: a reducer that does not start (its last log line
 * becomes the error), a rank that fails (the others get GRACE_S to report what they see,
 * then they are ended), a signal to this process (everything is ended), and this process
 * killed outright (the kernel sends its children SIGTERM). Signals are blocked and taken
 * one at a time with sigtimedwait(), so no handler is needed. */
#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_S = 10, GRACE_S = 15, END_S = 3 };

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void signals_of(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGCHLD);
}

/* Waits at most `seconds` for one of our signals; returns 0 if there was none. */
static int next_signal(double seconds)
{
	sigset_t set;
	struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
	signals_of(&set);
	int sig = sigtimedwait(&set, NULL, &t);
	return sig < 0 ? 0 : sig;
}

/* Prepares a child: default signals, and the child ends with its parent. */
static void child_setup(pid_t parent)
{
	sigset_t set;
	signals_of(&set);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
}

static int *place_of(struct bench_local *l, pid_t pid)
{
	for (int i = 0; i < l->reducers + l->ranks; i++)
		if (l->pids[i] == pid)
			return &l->pids[i];
	return NULL;
}

static void log_path(const struct bench_local *l, int i, char *buf, size_t size)
{
	snprintf(buf, size, "%s/r%d.log", l->dir, i);
}

/* Returns the last line of reducer i's log that is not empty. */
static void last_line(const struct bench_local *l, int i, char *buf, size_t size)
{
	char path[128], line[256];
	snprintf(buf, size, "(nothing)");
	log_path(l, i, path, sizeof(path));
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (line[0] != '\n') {
			line[strcspn(line, "\n")] = 0;
			snprintf(buf, size, "%s", line);
		}
	if (f)
		fclose(f);
}

static bool over_grpc(const struct bench_options *o)
{
	return o->transport && strcmp(o->transport, "grpc") == 0;
}

/* Returns the address of reducer i, once its log contains it. */
static bool read_address(const struct bench_local *l, int i, bool grpc, char *buf, size_t size)
{
	char path[128], line[512];
	bool found = false;
	log_path(l, i, path, sizeof(path));
	FILE *f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *p = strstr(line, grpc ? " grpc-ready " : " listening ");
		p = p && strchr(line, '\n') ? strstr(p, "address=") : NULL;
		if (p) {
			p += strlen("address=");
			snprintf(buf, size, "%.*s", (int)strcspn(p, " \n"), p);
			found = true;
		}
	}
	if (f)
		fclose(f);
	return found;
}

static int server_path(char *buf, size_t size, struct rs_err *e)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return rs_fail_sys(e, RS_EIO, errno, "cannot find this program's own path");
	self[n] = 0;
	const char *folder = dirname(self);
	int len = snprintf(buf, size, "%s/reduction-server", folder);
	if (access(buf, X_OK)) /* this program is not installed */
		len = snprintf(buf, size, "%s/../bin/reduction-server", folder);
	if (len < 0 || (size_t)len >= size)
		return rs_fail(e, RS_EIO, "the path of this program is too long");
	if (access(buf, X_OK))
		return rs_fail_sys(e, RS_EIO, errno, "--local-reducers starts %s, which cannot be run", buf);
	return 0;
}

static void exec_server(const struct bench_local *l, int i, const char *path, const struct bench_options *o)
{
	char log[128], lanes[16];
	log_path(l, i, log, sizeof(log));
	snprintf(lanes, sizeof(lanes), "%d", o->lanes);
	int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		_exit(1);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	setpgid(0, 0); /* Ctrl-C reaches the ranks first, then this process, which ends the reducers */
	char *argv[10] = {(char *)path, "--listen", "127.0.0.1:0", "--lanes", lanes};
	int n = 5;
	if (o->cpu) {
		argv[n++] = "--cpu";
		argv[n++] = (char *)o->cpu;
	}
	if (over_grpc(o)) {
		argv[n++] = "--grpc";
		argv[n++] = "127.0.0.1:0";
	}
	execv(path, argv);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", path, strerror(errno));
	_exit(1);
}

static int wait_listening(struct bench_local *l, int i, bool grpc, char *address, size_t size, struct rs_err *e)
{
	double deadline = now_s() + START_S;
	char line[256];
	while (!read_address(l, i, grpc, address, size)) {
		if (waitpid(l->pids[i], NULL, WNOHANG) == l->pids[i]) {
			l->pids[i] = 0;
			last_line(l, i, line, sizeof(line));
			return rs_fail(e, RS_EIO, "reducer r%d ended at its start, its last log line: %s", i, line);
		}
		if (now_s() > deadline) {
			last_line(l, i, line, sizeof(line));
			return rs_fail(e, RS_ETIMEOUT, "reducer r%d does not listen after %d s, its last log line: %s",
				       i, START_S, line);
		}
		int sig = next_signal(0.01);
		if (sig && sig != SIGCHLD)
			return rs_fail(e, RS_ECLOSED, "ended by a signal while the reducers started");
	}
	return 0;
}

static int write_config(struct bench_local *l, const struct bench_options *o, char (*address)[64], struct rs_err *e)
{
	FILE *f = fopen(l->config, "we");
	if (!f)
		return rs_fail_sys(e, RS_EIO, errno, "cannot write %s", l->config);
	fprintf(f, "job: {name: bench-%d, transport: %s}\nreducers:\n", (int)getpid(), over_grpc(o) ? "grpc" : "tcp");
	for (int i = 0; i < l->reducers; i++)
		fprintf(f, "  - {id: r%d, address: \"%s\", lanes: %d}\n", i, address[i], o->lanes);
	if (fclose(f))
		return rs_fail_sys(e, RS_EIO, errno, "cannot write %s", l->config);
	return 0;
}

int bench_local_start(struct bench_local *l, struct bench_options *o, struct rs_err *e)
{
	sigset_t set;
	char path[PATH_MAX], address[64][64];
	pid_t self = getpid();
	int rc = 0;

	*l = (struct bench_local){0};
	l->pids = calloc((size_t)o->local_reducers + (size_t)o->ranks + 1, sizeof(*l->pids));
	if (!l->pids)
		return rs_oom(e, 0, "%d processes", o->ranks);
	signals_of(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (!o->local_reducers)
		return 0;
	rc = server_path(path, sizeof(path), e);
	if (rc)
		goto free_pids;
	snprintf(l->dir, sizeof(l->dir), "/tmp/reduction-bench.XXXXXX");
	if (!mkdtemp(l->dir)) {
		l->dir[0] = 0;
		rc = rs_fail_sys(e, RS_EIO, errno, "cannot make a temporary folder in /tmp");
		goto free_pids;
	}
	snprintf(l->config, sizeof(l->config), "%s/bench.yaml", l->dir);
	for (; l->reducers < o->local_reducers && !rc; l->reducers++) {
		pid_t pid = fork();
		if (!pid) {
			child_setup(self);
			exec_server(l, l->reducers, path, o);
		}
		l->pids[l->reducers] = pid < 0 ? 0 : pid;
		if (pid < 0)
			rc = rs_fail_sys(e, RS_EIO, errno, "cannot start a reducer");
	}
	for (int i = 0; i < l->reducers && !rc; i++)
		rc = wait_listening(l, i, over_grpc(o), address[i], sizeof(address[i]), e);
	if (!rc)
		rc = write_config(l, o, address, e);
	if (!rc) {
		o->config = l->config;
		return 0;
	}
free_pids:
	bench_local_close(l);
	return rc;
}

int bench_local_fork(struct bench_local *l, const struct bench_options *o, int *ret_rank, struct rs_err *e)
{
	pid_t self = getpid();
	char run[32];

	snprintf(run, sizeof run, "bench-%d-%lld", (int)self, (long long)time(NULL));
	setenv("REDUCTION_RUN", run, 0); /* its ranks know each other, and nobody else's */
	for (int r = 0; r < o->ranks; r++) {
		pid_t pid = fork();
		if (pid < 0)
			return rs_fail_sys(e, RS_EIO, errno, "cannot start rank %d", r);
		if (!pid) {
			child_setup(self);
			free(l->pids);
			l->pids = NULL;
			*ret_rank = r;
			return 0;
		}
		l->pids[l->reducers + r] = pid;
		l->ranks = r + 1;
	}
	*ret_rank = -1;
	return 0;
}

/* Reaps children. Returns how many ranks are left, whether one failed, and how long the
 * others may still take. */
static int reap(struct bench_local *l, bool *failed, int *grace_s)
{
	int status, left = 0;
	char line[256];
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		int *place = place_of(l, pid);
		if (!place)
			continue;
		*place = 0;
		int i = (int)(place - l->pids);
		if (i >= l->reducers) {
			*failed |= status != 0;
			if (WIFSIGNALED(status))
				fprintf(stderr, "reduction-bench: rank %d was ended by signal %d\n", i - l->reducers,
					WTERMSIG(status));
		} else {
			*failed = true;
			/* with other reducers the ranks go on without it, and report
			 * nothing */
			*grace_s = END_S;
			last_line(l, i, line, sizeof(line));
			fprintf(stderr, "reduction-bench: reducer r%d ended, its last log line: %s\n", i, line);
		}
	}
	for (int i = l->reducers; i < l->reducers + l->ranks; i++)
		left += l->pids[i] != 0;
	return left;
}

int bench_local_wait(struct bench_local *l)
{
	bool failed = false;
	int grace_s = GRACE_S;
	double deadline = 0;
	while (reap(l, &failed, &grace_s)) {
		if (failed && !deadline)
			deadline = now_s() + grace_s;
		double left = deadline ? deadline - now_s() : 3600;
		if (left <= 0) {
			fprintf(stderr, "reduction-bench: ending the other ranks, %d s after the first failure\n",
				grace_s);
			break;
		}
		int sig = next_signal(left);
		if (sig && sig != SIGCHLD)
			return 128 + sig;
	}
	return failed;
}

/* Sends sig to the processes from..to that still run, and waits up to END_S for them. */
static void end_processes(struct bench_local *l, int from, int to, int sig)
{
	double deadline = now_s() + END_S;
	int left = 0;
	for (int i = from; i < to; i++)
		if (l->pids[i])
			kill(l->pids[i], sig);
	do {
		left = 0;
		for (int i = from; i < to; i++) {
			if (l->pids[i] && waitpid(l->pids[i], NULL, WNOHANG) == l->pids[i])
				l->pids[i] = 0;
			left += l->pids[i] != 0;
		}
	} while (left && now_s() < deadline && (next_signal(0.05), true));
}

void bench_local_close(struct bench_local *l)
{
	char path[128];
	int all = l->reducers + l->ranks;
	if (l->pids) {
		end_processes(l, l->reducers, all, SIGTERM);
		end_processes(l, 0, l->reducers, SIGTERM);
		end_processes(l, 0, all, SIGKILL);
	}
	if (l->dir[0]) {
		for (int i = 0; i < l->reducers; i++) {
			log_path(l, i, path, sizeof(path));
			unlink(path);
		}
		unlink(l->config);
		rmdir(l->dir);
	}
	free(l->pids);
	*l = (struct bench_local){0};
}
