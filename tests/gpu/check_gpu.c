/* SPDX-License-Identifier: Apache-2.0 */
/* check-gpu: says what the machine has, runs the parts, each with a time limit, and
 * prints a table of their rows.
 *
 * A part is a program of the bundle that prints rows (row.h). It ends with 0, 1 (a row
 * failed) or 77 (it cannot run here). To add one, add a line to `parts`. */
#include "tests/gpu/found.h"
#include "tests/gpu/proc.h"
#include "tests/gpu/row.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS_MAX = 512, ALL_LIMIT_S = 530 };

struct part {
	const char *name, *about;
	const char *argv[4]; /* names with a slash are files of the bundle */
	int limit_s;
	bool gpu; /* it needs a GPU */
};

static const struct part parts[] = {
    {"cpu", "the bundle itself: reducers, libreduction, the NCCL plugin without NCCL", {"bin/gpu-cpu"}, 60, false},
    {"device", "buffers of GPUs in libreduction: results, streams, speed", {"bin/gpu-device"}, 200, true},
    {"nccl", "NCCL with the plugin: results, failures, speed", {"bin/gpu-nccl"}, 300, true},
    {"values", "PyTorch's CUDA tensors: values, streams, reused memory", {"pytorch/gpu-torch", "--values"}, 180, true},
    {"torch", "PyTorch in five ways: losses, bits, speed", {"pytorch/gpu-torch"}, 300, true},
};
enum { PARTS_N = sizeof parts / sizeof *parts };

/* The lines of all parts. */
struct rows {
	char *lines[ROWS_MAX];
	int n, failed;
};

static void rows_add(struct rows *r, const char *line)
{
	char result[16];

	row_get(result, sizeof result, line, "result");
	r->failed += strcmp(result, "fail") == 0;
	if (r->n < ROWS_MAX)
		r->lines[r->n++] = strdup(line);
}

/* Takes whole lines out of a buffer: rows are printed and kept, other text goes to
 * standard error. */
static size_t rows_take(struct rows *r, char *buf, size_t n)
{
	char *from = buf, *end;

	while ((end = memchr(from, '\n', n - (size_t)(from - buf)))) {
		*end = '\0';
		if (strncmp(from, "{\"part\"", 7) == 0) {
			puts(from);
			fflush(stdout);
			rows_add(r, from);
		} else {
			fprintf(stderr, "%s\n", from);
		}
		from = end + 1;
	}
	n -= (size_t)(from - buf);
	memmove(buf, from, n);
	return n;
}

/* Adds a row of check-gpu itself. */
static void rows_say(struct rows *r, const char *part, const char *result, const char *note)
{
	char line[512];

	snprintf(line, sizeof line, "{\"part\": \"%s\", \"check\": \"ends\", \"result\": \"%s\", \"note\": \"%s\"}\n",
		 part, result, note);
	rows_take(r, line, strlen(line));
}

/* Reads what a part prints until it ends. Returns false if the time is over. */
static bool read_part(struct rows *r, int fd, double until)
{
	char buf[65536];
	size_t have = 0;
	ssize_t n = 1;

	while (n > 0) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		double left = until - proc_now_s();

		if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) < 0)
			return false;
		if (!p.revents)
			continue;
		n = read(fd, buf + have, sizeof buf - 1 - have);
		have += n > 0 ? (size_t)n : 0;
		have = rows_take(r, buf, have);
		if (have == sizeof buf - 1)
			have = 0; /* no line is that long */
	}
	return true;
}

/* Ends the processes that a part left behind: this process is their parent since the part
 * has ended. */
static void end_orphans(pid_t group)
{
	kill(-group, SIGKILL);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void run_part(struct rows *r, const struct part *p, double limit_s)
{
	static char paths[4][512];
	struct proc_start start = {.own_group = true};
	char note[128];
	int fds[2], status = -1, failed = r->failed, saved = dup(1);
	pid_t pid;
	double until = proc_now_s() + limit_s;

	snprintf(note, sizeof note, "%.0f", limit_s);
	setenv("CHECK_GPU_SECONDS", note, 1);
	for (int i = 0; p->argv[i]; i++) {
		proc_bundle(paths[i], sizeof paths[i], p->argv[i]);
		start.argv[i] = strchr(p->argv[i], '/') ? paths[i] : p->argv[i];
	}
	if (saved < 0 || pipe(fds))
		return;
	dup2(fds[1], 1);
	close(fds[1]);
	pid = proc_start(&start);
	dup2(saved, 1);
	close(saved);
	if (pid > 0 && read_part(r, fds[0], until))
		status = proc_wait(pid, until - proc_now_s());
	if (pid > 0 && status < 0)
		proc_kill(pid);
	end_orphans(pid);
	close(fds[0]);
	if (status < 0)
		snprintf(note, sizeof note, "did not end within %.0f s", limit_s);
	else
		snprintf(note, sizeof note, "exit status %d", status);
	if (status != 0 && status != ROW_SKIPPED && r->failed == failed)
		rows_say(r, p->name, "fail", note);
}

static void print_table(const struct rows *r)
{
	char part[32], check[64], result[16], value[32], unit[16], note[512];

	printf("\n%-14s %-40s %-6s %12s %-6s %s\n", "part", "check", "result", "value", "unit", "note");
	for (int i = 0; i < r->n; i++) {
		row_get(part, sizeof part, r->lines[i], "part");
		row_get(check, sizeof check, r->lines[i], "check");
		row_get(result, sizeof result, r->lines[i], "result");
		row_get(value, sizeof value, r->lines[i], "value");
		row_get(unit, sizeof unit, r->lines[i], "unit");
		row_get(note, sizeof note, r->lines[i], "note");
		printf("%-14s %-40s %-6s %12s %-6s %s\n", part, check, result, value, unit, note);
	}
}

static const struct part *find_part(const char *name)
{
	for (int i = 0; i < PARTS_N; i++)
		if (strcmp(parts[i].name, name) == 0)
			return &parts[i];
	fprintf(stderr, "Usage: check-gpu [PART ...]    without a part: all of them\n");
	for (int i = 0; i < PARTS_N; i++)
		fprintf(stderr, "  %-14s %s, at most %d s\n", parts[i].name, parts[i].about, parts[i].limit_s);
	exit(strcmp(name, "--help") == 0 ? 0 : 2);
}

static void set_environment(const struct found *f)
{
	char text[2048], root[512];

	proc_bundle(root, sizeof root, "");
	snprintf(text, sizeof text, "%s/bin:%s", root, getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	setenv("PATH", text, 1);
	snprintf(text, sizeof text, "%s/lib/libreduction.so.0", root);
	setenv("REDUCTION_LIBRARY", text, 1);
	snprintf(text, sizeof text, "%s/python", root);
	setenv("PYTHONPATH", text, 1);
	setenv("PYTHONUNBUFFERED", "1", 1);
	if (f && f->nccl[0])
		setenv("REDUCTION_NCCL", f->nccl, 1);
	if (f)
		setenv("REDUCTION_LINKS", f->links ? "1" : "0", 1);
}

int main(int argc, char **argv)
{
	double until = proc_now_s() + ALL_LIMIT_S;
	bool gpu = false, ran = false;
	struct rows rows = {.n = 0};
	struct found found;

	for (int i = 1; i < argc; i++)
		find_part(argv[i]);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	set_environment(NULL);
	found_print(&found);
	set_environment(&found);
	for (int i = 0; i < PARTS_N; i++) {
		const struct part *p = &parts[i];
		double left = until - proc_now_s();
		bool wanted = argc == 1;

		for (int k = 1; k < argc; k++)
			wanted |= strcmp(argv[k], p->name) == 0;
		if (!wanted)
			continue;
		gpu |= p->gpu || argc == 1;
		if (found.gpus == 0 && (p->gpu || argc == 1))
			continue;
		ran = true;
		run_part(&rows, p, left < p->limit_s ? left : p->limit_s);
	}
	if (ran)
		print_table(&rows);
	if (gpu && found.gpus == 0)
		printf("no GPU here\n");
	return rows.failed ? 1 : gpu && found.gpus == 0 ? ROW_SKIPPED : 0;
}
