/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/proc.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double proc_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void proc_sleep(double seconds)
{
	nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (time_t)seconds) * 1e9)},
		  NULL);
}

void proc_bundle(char *to, size_t room, const char *name)
{
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	self[n < 0 ? 0 : n] = '\0';
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(self, '/');

		if (slash)
			*slash = '\0';
	}
	snprintf(to, room, "%s%s%s", self, *name ? "/" : "", name);
}

size_t proc_read(char *to, size_t room, const char *path)
{
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(to, 1, room - 1, f) : 0;

	to[n] = '\0';
	if (f)
		fclose(f);
	return n;
}

/* Enters the network namespace of a process. */
static bool proc_enter(pid_t host)
{
	char path[64];
	int fd;
	bool entered;

	snprintf(path, sizeof path, "/proc/%d/ns/net", (int)host);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	entered = setns(fd, CLONE_NEWNET) == 0;
	close(fd);
	return entered;
}

/* In the child. */
static void proc_become(const struct proc_start *p)
{
	int fd = p->out ? open(p->out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (p->own_group)
		setpgid(0, 0);
	if (p->host && !proc_enter(p->host))
		_exit(126);
	if (fd >= 0 && (dup2(fd, 1) < 0 || dup2(fd, 2) < 0))
		_exit(126);
	for (int i = 0; p->env[i]; i++)
		putenv((char *)p->env[i]);
	execvp(p->argv[0], (char **)p->argv);
	fprintf(stderr, "%s cannot be started\n", p->argv[0]);
	_exit(127);
}

pid_t proc_start(const struct proc_start *p)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		proc_become(p);
	return pid;
}

int proc_wait(pid_t pid, double seconds)
{
	double until = proc_now_s() + seconds;
	int status;

	for (;;) {
		pid_t ended = waitpid(pid, &status, WNOHANG);

		if (ended < 0)
			return 127;
		if (ended == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (proc_now_s() >= until)
			return -1;
		proc_sleep(0.002);
	}
}

void proc_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int proc_run(const struct proc_start *p, double seconds)
{
	pid_t pid = proc_start(p);
	int status = pid < 0 ? 127 : proc_wait(pid, seconds);

	if (status < 0)
		proc_kill(pid);
	return status;
}
