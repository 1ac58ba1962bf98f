/* SPDX-License-Identifier: Apache-2.0 */
#include "config/evidence.h"
#include "tests/unit/fake_environment.h"

#include <check.h>
#include <string.h>

#define TORCHRUN "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=node0"
#define LOGS     "TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_5k/9_qw/attempt_0/1/error.json"
#define SLURM    "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=77", "SLURM_STEP_ID=3"
#define LONG     "0123456789012345678901234567890123456789012345678901234567890123456789"

/* Environments, a namespace, and the evidence. */
static const struct {
	const char *env[12];
	const char *space, *evidence;
} rows[] = {
    {{NULL}, "", ""},
    {{NULL}, "team-a", "namespace=team-a"},
    {{TORCHRUN, "MASTER_PORT=29500"}, "", "MASTER_PORT=29500"},
    {{TORCHRUN, "MASTER_PORT=29500"}, "team-a", "MASTER_PORT=29500 namespace=team-a"},
    {{TORCHRUN}, "", ""},
    /* the address, and an id that a person may give to each node, are no evidence */
    {{TORCHRUN, "MASTER_PORT=1", "TORCHELASTIC_RUN_ID=9"}, "", "MASTER_PORT=1"},
    {{TORCHRUN, "MASTER_PORT=1", "GROUP_RANK=4", LOGS}, "", "MASTER_PORT=1 torchrun-of-node4=9_qw"},
    {{TORCHRUN, "MASTER_PORT=1", LOGS}, "", "MASTER_PORT=1"},
    {{TORCHRUN, "GROUP_RANK=4", "TORCHELASTIC_ERROR_FILE=/tmp/x"}, "", ""},
    {{TORCHRUN, "GROUP_RANK=4", "TORCHELASTIC_ERROR_FILE=/attempt_0"}, "", ""},
    {{TORCHRUN, "GROUP_RANK=4", "TORCHELASTIC_ERROR_FILE=x/attempt_0"}, "", "torchrun-of-node4=x"},
    {{TORCHRUN, "MASTER_PORT=2 9"}, "", "MASTER_PORT=2?9"},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=4"}, "", "launcher=openmpi:4"},
    {{"PMI_RANK=1", "PMI_SIZE=2", "PMI_JOBID=8.0"}, "a", "launcher=pmi:8.0 namespace=a"},
    {{"PMI_RANK=1", "PMI_SIZE=2"}, "", ""},
    {{SLURM}, "", "launcher=slurm:77.3"},
    {{SLURM, "MASTER_PORT=29500"}, "", "launcher=slurm:77.3"},
    {{SLURM, "SLURM_HET_SIZE=2"}, "", ""},
    {{SLURM, "SLURM_PACK_SIZE=2"}, "", ""},
    /* what does not fit is left out */
    {{TORCHRUN, "MASTER_PORT=" LONG LONG LONG LONG}, "a", "namespace=a"},
};

START_TEST(launchers_leave_evidence)
{
	struct rs_launch launch;
	struct rs_err e = {0};
	char found[RS_EVIDENCE_MAX];
	void *env = (void *)rows[_i].env;

	ck_assert_msg(rs_launch_detect(&launch, fake_getenv, env, &e) == RS_OK, "%s", e.msg);
	memset(found, 'x', sizeof found);
	rs_evidence_find(found, &launch, rows[_i].space, fake_getenv, env);
	ck_assert_str_eq(found, rows[_i].evidence);
}
END_TEST

/* The evidence of two ranks; what differs, NULL: nothing. */
static const struct {
	const char *a, *b, *differs;
} pairs[] = {
    {"", "", NULL},
    {"a=1", "", NULL},
    {"a=1", "b=2", NULL},
    {"a=1 b=2", "b=2 a=1", NULL},
    {"a=1", "a=2", "a is 1 to rank 0, and 2 to rank 1"},
    {"a=1", "a=12", "a is 1 to rank 0, and 12 to rank 1"},
    {"a=12 b=3", "a=1", "a is 12 to rank 0, and 1 to rank 1"},
    {"b=2 a=1", "a=1 b=3", "b is 2 to rank 0, and 3 to rank 1"},
    {"a=", "a=1", "a is  to rank 0, and 1 to rank 1"},
    {"aa=1", "a=2", NULL},
    /* from a peer that does not keep the rules */
    {"a", "a", NULL},
    {"a b=1", "a=1 b=1", NULL},
    {"  =", "= =1  ", NULL},
};

START_TEST(different_pieces_are_named)
{
	struct rs_err e = {0};
	int rc = rs_evidence_check("train", "rank 0", pairs[_i].a, "rank 1", pairs[_i].b, &e);

	ck_assert_int_eq(rc, pairs[_i].differs ? RS_EMISMATCH : RS_OK);
	if (rc)
		ck_assert_msg(strstr(e.msg, pairs[_i].differs) != NULL, "%s", e.msg);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("evidence");
	TCase *tc = tcase_create("evidence");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, launchers_leave_evidence, 0, sizeof rows / sizeof rows[0]);
	tcase_add_loop_test(tc, different_pieces_are_named, 0, sizeof pairs / sizeof pairs[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
