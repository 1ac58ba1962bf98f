/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of the checks, each with a time limit. */
#ifndef RS_TESTS_GPU_PROC_H
#define RS_TESTS_GPU_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PROC_ENV_MAX = 24, PROC_ARGS_MAX = 32 };

/* A process to start. */
struct proc_start {
	const char *argv[PROC_ARGS_MAX]; /* the program is looked up in PATH; ends with NULL */
	const char *env[PROC_ENV_MAX];   /* NAME=value; ends with NULL */
	pid_t host;                      /* a process in whose network namespace it runs; 0: the caller's */
	const char *out;                 /* file that gets both outputs; NULL: the caller's */
	bool own_group;                  /* it leads a process group */
};

/* Starts a process, which gets SIGKILL when its parent ends. Returns its id; -1: it could
 * not be started. */
pid_t proc_start(const struct proc_start *p);

/* Waits until a process ends. Returns its exit status, 128 + signal, or -1 if it has not
 * ended after `seconds`. */
int proc_wait(pid_t pid, double seconds);

/* Kills a process and waits for its end. */
void proc_kill(pid_t pid);

/* Starts a process and waits for its end, as proc_start and proc_wait; kills it after
 * `seconds`. */
int proc_run(const struct proc_start *p, double seconds);

double proc_now_s(void);
void proc_sleep(double seconds);

/* Writes the path of a file of the bundle: its folder is that above the running program's
 * "bin". */
void proc_bundle(char *to, size_t room, const char *name);

/* Reads a file as text; returns its length. */
size_t proc_read(char *to, size_t room, const char *path);

#endif
