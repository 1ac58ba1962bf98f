/* SPDX-License-Identifier: Apache-2.0 */
#include "config/run.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Characters of a run in the name of a job. "-", 8 digits, and the "@" and 16 digits of a
 * group follow. */
enum { RUN_NAME_MAX = RS_NAME_MAX - 1 - 9 - 17 };

/* The source of variables, and the run that is made. */
struct run {
	rs_getenv_fn get;
	void *ctx;
	const struct rs_run_place *place;
	char *ret; /* [RS_RUN_MAX] */
};

static const char *run_look_up(const struct run *r, const char *name)
{
	return rs_launch_look_up(r->get, r->ctx, name);
}

static bool run_is_printable(char c)
{
	return c > 0x20 && c < 0x7f;
}

int rs_run_check(const char *run, const char *what, struct rs_err *e)
{
	size_t len = 0;

	while (run_is_printable(run[len]))
		len++;
	if (!run[len] && len > 0 && len < RS_RUN_MAX)
		return RS_OK;
	return rs_fail(e, RS_EINVAL, "%s: found \"%.40s\"%s, expected 1 to %d printable characters without spaces",
		       what, run, strlen(run) > 40 ? "..." : "", RS_RUN_MAX - 1);
}

void rs_run_make(char ret[static RS_RUN_MAX], const char *launcher, const char *id, const char *separator,
		 const char *more)
{
	char all[2048];
	int n = snprintf(all, sizeof all, "%s:%s%s%s", launcher, id, separator, more);
	size_t len = (size_t)n < sizeof all ? (size_t)n : sizeof all - 1;

	for (size_t i = 0; i < len; i++)
		if (!run_is_printable(all[i]))
			all[i] = '?';
	if (len < RS_RUN_MAX)
		memcpy(ret, all, len + 1);
	else
		snprintf(ret, RS_RUN_MAX, "%.100s~%016" PRIx64, all, (uint64_t)XXH3_64bits(all, len));
}

/* Stores the run, and returns true. */
static bool run_store(const struct run *r, const char *launcher, const char *id, const char *separator,
		      const char *more)
{
	const char *space = r->place->space;
	char all[1024];

	snprintf(all, sizeof all, "%s%s%s", more, *space ? "/" : "", space);
	rs_run_make(r->ret, launcher, id, separator, all);
	return true;
}

/* Returns the master's address. One that means this machine is replaced by its name: rank
 * 0 may know itself as localhost, where others know it by its name. */
static const char *run_master(const struct run *r)
{
	const char *master = run_look_up(r, "MASTER_ADDR");

	if (master && (strcmp(master, "localhost") == 0 || strncmp(master, "127.", 4) == 0 ||
		       strcmp(master, "::1") == 0 || strcmp(master, "0.0.0.0") == 0))
		return r->place->host;
	return master;
}

static bool run_of_torch(const struct run *r)
{
	const char *id = run_look_up(r, "TORCHELASTIC_RUN_ID"), *master = run_master(r);
	const char *port = run_look_up(r, "MASTER_PORT");
	char store[512];

	snprintf(store, sizeof store, "%s:%s", master ? master : "", port ? port : "");
	/* "none" is the id of a torchrun without --rdzv-id */
	if (id && strcmp(id, "none") != 0)
		return run_store(r, "torchrun", id, master ? "@" : "", master ? store : "");
	return master && port && run_store(r, "master", master, ":", port);
}

static bool run_of_openmpi(const struct run *r)
{
	const char *id = run_look_up(r, "PMIX_NAMESPACE");

	if (!id)
		id = run_look_up(r, "OMPI_MCA_ess_base_jobid");
	return id && run_store(r, "openmpi", id, "", "");
}

static bool run_of_slurm(const struct run *r)
{
	const char *job = run_look_up(r, "SLURM_JOB_ID_HET_GROUP_0"), *step = run_look_up(r, "SLURM_STEP_ID");

	if (!job) /* each component of a heterogeneous job has an id of its own, the first one's is that of the job */
		job = run_look_up(r, "SLURM_JOB_ID");
	if (!job)
		job = run_look_up(r, "SLURM_JOBID");
	return job && run_store(r, "slurm", job, step ? "." : "", step ? step : "");
}

static bool run_of_pmi(const struct run *r)
{
	const char *id = run_look_up(r, "PMI_JOBID");

	return id && run_store(r, "pmi", id, "", "");
}

static bool run_of_vertex(const struct run *r)
{
	const char *job = run_look_up(r, "CLOUD_ML_JOB_ID"), *trial = run_look_up(r, "CLOUD_ML_TRIAL_ID");

	return job && run_store(r, "vertex", job, trial ? "." : "", trial ? trial : "");
}

/* A pod of an Indexed Job has the host name JOB-INDEX. */
static bool run_of_kubernetes(const struct run *r)
{
	const char *index = run_look_up(r, "JOB_COMPLETION_INDEX"), *host = run_look_up(r, "HOSTNAME");
	size_t host_len = host ? strlen(host) : 0, index_len = index ? strlen(index) : 0;
	char job[256];

	if (!index || host_len <= index_len + 1 || host_len >= sizeof job)
		return false;
	memcpy(job, host, host_len + 1);
	if (strcmp(job + host_len - index_len, index) != 0 || job[host_len - index_len - 1] != '-')
		return false;
	job[host_len - index_len - 1] = '\0';
	return run_store(r, "kubernetes", job, "", "");
}

void rs_run_namespace(char *ret, size_t size, const char *file, rs_getenv_fn get, void *ctx)
{
	const char *given = rs_launch_look_up(get, ctx, "POD_NAMESPACE");
	size_t n = 0;
	int fd;

	if (given) {
		n = strlen(given) < size ? strlen(given) : 0;
		memcpy(ret, given, n);
	} else if ((fd = open(file, O_RDONLY | O_CLOEXEC)) >= 0) {
		ssize_t got = read(fd, ret, size - 1);

		n = got > 0 ? (size_t)got : 0;
		close(fd);
	}
	ret[n] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
}

void rs_run_detect(char ret[static RS_RUN_MAX], const struct rs_launch *launch, const struct rs_run_place *place,
		   rs_getenv_fn get, void *ctx)
{
	/* `source`: of rs_launch. Without a launcher all of them count, since a program
	 * may have set the ranks itself.
	 */
	static const struct {
		const char *source;
		bool (*detect)(const struct run *r);
	} launchers[] = {
	    {"torchrun", run_of_torch}, {"openmpi", run_of_openmpi}, {"mpich", run_of_pmi}, {"slurm", run_of_slurm},
	    {"pmi", run_of_pmi},        {NULL, run_of_torch},        {NULL, run_of_slurm},  {NULL, run_of_pmi},
	    {NULL, run_of_vertex},      {NULL, run_of_kubernetes},
	};
	const struct run r = {.get = get, .ctx = ctx, .place = place, .ret = ret};

	ret[0] = '\0';
	for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
		if ((!launchers[i].source || strcmp(launchers[i].source, launch->source) == 0) &&
		    launchers[i].detect(&r))
			return;
}

int rs_run_mismatch(const char *job, const char *one, const char *one_run, const char *other, const char *other_run,
		    struct rs_err *e)
{
	return rs_fail(
	    e, RS_EMISMATCH,
	    "two trainings use the job name %s: %.100s has %s%s, %.100s has %s%s. Give each training its own "
	    "job.name; if it is one training, set REDUCTION_RUN to the same text on all its ranks",
	    job, one, one_run[0] ? "run " : "no run", one_run, other, other_run[0] ? "run " : "no run", other_run);
}

void rs_run_job_name(char ret[static RS_NAME_MAX], const char *run)
{
	int n = snprintf(ret, RUN_NAME_MAX + 1, "%s", run);
	size_t len = n < RUN_NAME_MAX ? (size_t)n : RUN_NAME_MAX;

	for (size_t i = 0; i < len; i++)
		if (!rs_name_char(ret[i]))
			ret[i] = '-';
	snprintf(ret + len, RS_NAME_MAX - len, "-%08" PRIx32, (uint32_t)XXH3_64bits(run, strlen(run)));
}
