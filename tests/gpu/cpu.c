/* SPDX-License-Identifier: Apache-2.0 */
/* Part cpu: does the bundle work on this machine? It needs no GPU. */
#include "tests/gpu/proc.h"
#include "tests/gpu/reducers.h"
#include "tests/gpu/row.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CPU_LIMIT_S = 25 };

/* Runs a program of the bundle with the reducers, and says whether it succeeded. Returns
 * 1 if it failed. */
static int cpu_run(const struct reducers *r, const char *check, struct proc_start *p)
{
	char program[512], config[128], log[96], text[2048];
	double began = proc_now_s();
	int status;

	proc_bundle(program, sizeof program, p->argv[0]);
	p->argv[0] = program;
	snprintf(config, sizeof config, "REDUCTION_CONFIG=%s", r->config);
	snprintf(log, sizeof log, "%s/%s.log", r->folder, strrchr(program, '/') + 1);
	p->env[0] = config;
	p->env[1] = "NCCL_COLLNET_ENABLE=1";
	p->out = log;
	status = proc_run(p, CPU_LIMIT_S);
	if (status == 0) {
		row_value("cpu", check, "ok", proc_now_s() - began, "s", "all results are right");
		return 0;
	}
	proc_read(text, sizeof text, log);
	row("cpu", check, "fail", "exit status %d: %.400s", status, text);
	return 1;
}

int main(void)
{
	struct reducers r;
	char why[512], plugin[512];
	struct proc_start bench = {.argv = {"bin/reduction-bench", "--ranks", "2", "--mode", "direct", "-b", "1M", "-e",
					    "1M", "-n", "4", "-c", "1"}};
	struct proc_start exercise = {.argv = {"bin/exercise", "--library", plugin, "--case", "sums", "--ranks", "2"}};
	int failed;

	proc_bundle(plugin, sizeof plugin, "lib/libnccl-net-reduction.so");
	if (!reducers_start(&r, 2, NULL, 0, why, sizeof why)) {
		row("cpu", "reducers", "fail", "%s", why);
		return 1;
	}
	row("cpu", "reducers", "ok", "2 reducers listen");
	failed = cpu_run(&r, "libreduction, 2 ranks", &bench) + cpu_run(&r, "NCCL plugin, 2 ranks", &exercise);
	reducers_stop(&r);
	return failed ? 1 : 0;
}
