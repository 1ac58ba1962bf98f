/* SPDX-License-Identifier: Apache-2.0 */
#include "config/run.h"
#include "tests/unit/fake_environment.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TORCHRUN "RANK=1", "WORLD_SIZE=2", "MASTER_PORT=29500"
#define OPENMPI  "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=444661761"
#define SLURM    "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=77"
#define LONG     "0123456789012345678901234567890123456789012345678901234567890123456789"

/* Environments, and the run that follows; the machine is called "here". */
static const struct {
	const char *env[12];
	const char *run;
} rows[] = {
    {{NULL}, ""},
    {{TORCHRUN, "MASTER_ADDR=node0", "TORCHELASTIC_RUN_ID=abc"}, "torchrun:abc@node0:29500"},
    {{TORCHRUN, "TORCHELASTIC_RUN_ID=abc"}, "torchrun:abc"},
    /* the ranks of one machine may know it as localhost, those of others by its name */
    {{TORCHRUN, "MASTER_ADDR=localhost", "TORCHELASTIC_RUN_ID=abc"}, "torchrun:abc@here:29500"},
    {{TORCHRUN, "MASTER_ADDR=127.0.0.1", "TORCHELASTIC_RUN_ID=none"}, "master:here:29500"},
    {{TORCHRUN, "MASTER_ADDR=::1"}, "master:here:29500"},
    {{TORCHRUN, "MASTER_ADDR=0.0.0.0"}, "master:here:29500"},
    {{TORCHRUN, "MASTER_ADDR=127x"}, "master:127x:29500"},
    /* without an id the port tells two trainings of one master apart */
    {{TORCHRUN, "MASTER_ADDR=node0", "TORCHELASTIC_RUN_ID=none"}, "master:node0:29500"},
    {{TORCHRUN, "MASTER_ADDR=node0", "TORCHELASTIC_RUN_ID="}, "master:node0:29500"},
    {{TORCHRUN}, ""},
    {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=node0"}, ""},
    {{TORCHRUN, "MASTER_ADDR=a b\n\xc3\xbc"}, "master:a?b???:29500"},
    {{SLURM}, "slurm:77"},
    {{SLURM, "SLURM_STEP_ID=3"}, "slurm:77.3"},
    {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOBID=78"}, "slurm:78"},
    /* one id for all components of a heterogeneous job */
    {{SLURM, "SLURM_JOB_ID_HET_GROUP_0=76", "SLURM_STEP_ID=1"}, "slurm:76.1"},
    {{OPENMPI}, "openmpi:444661761"},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_MCA_ess_base_jobid=9"}, "openmpi:9"},
    /* the launcher that gave the rank comes first: mpirun passes MASTER_ADDR to the ranks
     * of its own machine only */
    {{OPENMPI, "MASTER_ADDR=node0", "MASTER_PORT=1", "SLURM_JOB_ID=77"}, "openmpi:444661761"},
    {{SLURM, "MASTER_ADDR=node0", "MASTER_PORT=1"}, "slurm:77"},
    {{SLURM, "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=node0", "MASTER_PORT=1"}, "master:node0:1"},
    /* the program may set the ranks itself */
    {{"MASTER_ADDR=node0", "MASTER_PORT=1"}, "master:node0:1"},
    {{"RANK=1", "WORLD_SIZE=2", "SLURM_JOB_ID=77"}, "slurm:77"},
    {{"PMI_JOBID=5.0"}, "pmi:5.0"},
    {{"CLOUD_ML_JOB_ID=123"}, "vertex:123"},
    {{"CLOUD_ML_JOB_ID=123", "CLOUD_ML_TRIAL_ID=4"}, "vertex:123.4"},
    {{"JOB_COMPLETION_INDEX=12", "HOSTNAME=train-12"}, "kubernetes:train"},
    {{"JOB_COMPLETION_INDEX=12", "HOSTNAME=train-a-12"}, "kubernetes:train-a"},
    {{"JOB_COMPLETION_INDEX=12", "HOSTNAME=train12"}, ""},
    {{"JOB_COMPLETION_INDEX=12", "HOSTNAME=train-13"}, ""},
    {{"JOB_COMPLETION_INDEX=12", "HOSTNAME=-12"}, ""},
    {{"JOB_COMPLETION_INDEX=12", "HOSTNAME=2"}, ""},
    {{"JOB_COMPLETION_INDEX=12"}, ""},
};

static void detect(char ret[static RS_RUN_MAX], const char *const *env, const char *space)
{
	struct rs_launch launch;
	struct rs_err e = {0};

	ck_assert_msg(rs_launch_detect(&launch, fake_getenv, (void *)env, &e) == RS_OK, "%s", e.msg);
	memset(ret, 'x', RS_RUN_MAX);
	rs_run_detect(ret, &launch, &(struct rs_run_place){"here", space}, fake_getenv, (void *)env);
}

START_TEST(launchers_name_the_run)
{
	char run[RS_RUN_MAX];

	detect(run, rows[_i].env, "");
	ck_assert_str_eq(run, rows[_i].run);
}
END_TEST

/* Two namespaces of Kubernetes may have objects of equal names. */
static const struct {
	const char *env[6];
	const char *run;
} spaces[] = {
    {{TORCHRUN, "MASTER_ADDR=train-master-0"}, "master:train-master-0:29500/team-a"},
    {{TORCHRUN, "MASTER_ADDR=node0", "TORCHELASTIC_RUN_ID=abc"}, "torchrun:abc@node0:29500/team-a"},
    {{"JOB_COMPLETION_INDEX=12", "HOSTNAME=train-12"}, "kubernetes:train/team-a"},
    {{"PMI_JOBID=5"}, "pmi:5/team-a"},
    {{NULL}, ""},
};

START_TEST(a_namespace_is_part_of_the_run)
{
	char run[RS_RUN_MAX];

	detect(run, spaces[_i].env, "team-a");
	ck_assert_str_eq(run, spaces[_i].run);
}
END_TEST

/* POD_NAMESPACE, what the file says (NULL: there is none), and the namespace. */
static const struct {
	const char *variable, *file, *space;
} found[] = {
    {NULL, NULL, ""},
    {NULL, "team-a", "team-a"},
    {NULL, "team-a\n", "team-a"},
    {"POD_NAMESPACE=team-b", "team-a", "team-b"},
    {NULL, "", ""},
    {"POD_NAMESPACE=" LONG, NULL, ""}, /* it does not fit */
};

START_TEST(the_namespace_is_found)
{
	const char *const env[] = {found[_i].variable, NULL};
	char path[] = "/tmp/reduction-namespace-XXXXXX", space[64];
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	if (found[_i].file)
		ck_assert_int_eq(write(fd, found[_i].file, strlen(found[_i].file)), (ssize_t)strlen(found[_i].file));
	close(fd);
	if (!found[_i].file)
		unlink(path);
	rs_run_namespace(space, sizeof space, path, fake_getenv, (void *)env);
	unlink(path);
	ck_assert_str_eq(space, found[_i].space);
}
END_TEST

/* Two long ids with the same beginning are different runs. */
START_TEST(long_ids_stay_apart)
{
	const char *const a[] = {"CLOUD_ML_JOB_ID=" LONG LONG "a", NULL}, *const b[] = {
									      "CLOUD_ML_JOB_ID=" LONG LONG "b", NULL};
	char run[2][RS_RUN_MAX];
	struct rs_err e;

	detect(run[0], a, "");
	detect(run[1], b, "");
	ck_assert_str_ne(run[0], run[1]);
	ck_assert_int_eq(strncmp(run[0], "vertex:" LONG, strlen("vertex:" LONG)), 0);
	ck_assert_int_eq(rs_run_check(run[0], "run", &e), RS_OK);
}
END_TEST

START_TEST(the_environment_of_the_process_is_the_default)
{
	struct rs_launch launch = {.source = "none"};
	char run[RS_RUN_MAX];

	clearenv();
	setenv("SLURM_JOB_ID", "5", 1);
	rs_run_detect(run, &launch, &(struct rs_run_place){"here", ""}, NULL, NULL);
	ck_assert_str_eq(run, "slurm:5");
}
END_TEST

static const struct {
	const char *run, *message;
} given[] = {
    {"a", NULL},
    {"my run", "REDUCTION_RUN: found \"my run\", expected 1 to 127 printable characters without spaces"},
    {"", "REDUCTION_RUN: found \"\", expected 1 to 127 printable characters without spaces"},
    {"\xc3\xbc", "REDUCTION_RUN: found \"\xc3\xbc\", expected 1 to 127 printable characters without spaces"},
    {LONG LONG, "REDUCTION_RUN: found \"0123456789012345678901234567890123456789\"..., expected 1 to 127 printable "
		"characters without spaces"},
};

START_TEST(given_runs_are_checked)
{
	struct rs_err e = {0};

	ck_assert_int_eq(rs_run_check(given[_i].run, "REDUCTION_RUN", &e), given[_i].message ? RS_EINVAL : RS_OK);
	if (given[_i].message)
		ck_assert_str_eq(e.msg, given[_i].message);
}
END_TEST

/* A job without a name has one that is valid, shows the run and differs from that of
 * every other run. */
START_TEST(a_run_makes_a_name)
{
	static const char *const runs[] = {"torchrun:abc@node0", "torchrun:abc@node0.", "torchrun:abc-node0", "a",
					   "vertex:" LONG,       "vertex:" LONG "1"};
	enum { RUNS = sizeof runs / sizeof runs[0] };
	char names[RUNS][RS_NAME_MAX];

	for (unsigned i = 0; i < RUNS; i++) {
		rs_run_job_name(names[i], runs[i]);
		ck_assert_msg(rs_name_valid(names[i]), "%s", names[i]);
		for (unsigned k = 0; k < i; k++)
			ck_assert_str_ne(names[i], names[k]);
	}
	ck_assert_int_eq(strncmp(names[0], "torchrun-abc-node0-", 19), 0);
	ck_assert_uint_eq(strlen(names[4]), RS_NAME_MAX - 1 - 17); /* and a group's digits */
}
END_TEST

START_TEST(both_sides_of_a_mismatch_are_named)
{
	struct rs_err e;

	ck_assert_int_eq(rs_run_mismatch("j", "rank 1 (pid 7 on b)", "x", "rank 0", "", &e), RS_EMISMATCH);
	ck_assert_str_eq(e.msg,
			 "two trainings use the job name j: rank 1 (pid 7 on b) has run x, rank 0 has no run. Give "
			 "each training its own job.name; if it is one training, set REDUCTION_RUN to the same "
			 "text on all its ranks");
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

int main(void)
{
	Suite *suite = suite_create("run");
	TCase *tc = tcase_create("run");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, launchers_name_the_run, 0, COUNT(rows));
	tcase_add_loop_test(tc, a_namespace_is_part_of_the_run, 0, sizeof spaces / sizeof spaces[0]);
	tcase_add_loop_test(tc, the_namespace_is_found, 0, sizeof found / sizeof found[0]);
	tcase_add_test(tc, long_ids_stay_apart);
	tcase_add_test(tc, the_environment_of_the_process_is_the_default);
	tcase_add_loop_test(tc, given_runs_are_checked, 0, COUNT(given));
	tcase_add_test(tc, a_run_makes_a_name);
	tcase_add_test(tc, both_sides_of_a_mismatch_are_named);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
