/* SPDX-License-Identifier: Apache-2.0 */
#include "config/launch.h"
#include "tests/unit/fake_environment.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define TORCHRUN "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2"
#define OPENMPI  "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1"
#define MPICH    "PMI_RANK=2", "PMI_SIZE=4", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"
#define SLURM    "SLURM_PROCID=6", "SLURM_LOCALID=0", "SLURM_NODEID=3", "SLURM_NNODES=4"

/* Environments and their results. */
static const struct {
	const char *env[12];
	struct rs_launch found;
} good[] = {
    {{NULL}, {-1, -1, -1, -1, -1, -1, -1, "none", false}},
    {{"RANK=1"}, {-1, -1, -1, -1, -1, -1, -1, "none", false}},
    {{"RANK=", "WORLD_SIZE=4"}, {-1, -1, -1, -1, -1, -1, -1, "none", false}},
    {{TORCHRUN, "TORCHELASTIC_RESTART_COUNT=3"}, {5, 8, 1, 4, 1, 2, 3, "torchrun", true}},
    {{TORCHRUN, "TORCHELASTIC_RESTART_COUNT=0"}, {5, 8, 1, 4, 1, 2, 0, "torchrun", true}},
    {{TORCHRUN}, {5, 8, 1, 4, 1, 2, -1, "torchrun", true}},
    {{"RANK=0", "WORLD_SIZE=1"}, {0, 1, -1, -1, -1, -1, -1, "torchrun", false}},
    {{"RANK=5", "WORLD_SIZE=6", "LOCAL_WORLD_SIZE=2"}, {5, 6, -1, 2, 2, 3, -1, "torchrun", false}},
    {{"RANK=5", "WORLD_SIZE=6", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, {5, 6, 1, 2, 2, 3, -1, "torchrun", false}},
    /* with ranks dealt out node by node local rank 1 would be here: the layout differs
     * and the node is unknown */
    {{"RANK=5", "WORLD_SIZE=6", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"}, {5, 6, 0, 2, -1, 3, -1, "torchrun", false}},
    {{"RANK=5", "WORLD_SIZE=7", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, {5, 7, 1, 2, -1, -1, -1, "torchrun", false}},
    /* more ranks than fit the nodes in equal parts: the node is unknown */
    {{"RANK=5", "WORLD_SIZE=6", "LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=2"},
     {5, 6, -1, 2, -1, 2, -1, "torchrun", false}},
    {{OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, {3, 4, 1, 2, 1, 2, -1, "openmpi", false}},
    {{OPENMPI}, {3, 4, 1, -1, -1, -1, -1, "openmpi", false}},
    {{SLURM, "SLURM_NTASKS=7"}, {6, 7, 0, -1, 3, 4, -1, "slurm", true}},
    {{SLURM, "SLURM_NPROCS=7"}, {6, 7, 0, -1, 3, 4, -1, "slurm", true}},
    {{SLURM, "SLURM_NTASKS=7", "SLURM_STEP_TASKS_PER_NODE=2(x3),1"}, {6, 7, 0, 1, 3, 4, -1, "slurm", true}},
    {{SLURM, "SLURM_NTASKS=8", "SLURM_TASKS_PER_NODE=2(x4)"}, {6, 8, 0, 2, 3, 4, -1, "slurm", true}},
    {{SLURM, "SLURM_NTASKS=8", "SLURM_NTASKS_PER_NODE=2"}, {6, 8, 0, 2, 3, 4, -1, "slurm", true}},
    /* --ntasks-per-node is only a limit if --ntasks is given too */
    {{SLURM, "SLURM_NTASKS=7", "SLURM_NTASKS_PER_NODE=16"}, {6, 7, 0, -1, 3, 4, -1, "slurm", true}},
    /* a step of srun may be smaller than its job */
    {{SLURM, "SLURM_NTASKS=64", "SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_TASKS_PER_NODE=2,2,3,1"},
     {6, 8, 0, 1, 3, 4, -1, "slurm", true}},
    /* a step over two components: its lists are sorted by name, the numbers of its nodes
     * are not */
    {{SLURM, "SLURM_NTASKS=7", "SLURM_STEP_TASKS_PER_NODE=1(x2),2(x2)", "SLURM_STEP_NODELIST=cpu[1-2],gpu[1-2]",
      "SLURMD_NODENAME=cpu2", "SLURM_HET_SIZE=2"},
     {6, 7, 0, 1, 3, 4, -1, "slurm", true}},
    {{SLURM, "SLURM_NTASKS=7", "SLURM_STEP_TASKS_PER_NODE=1(x3),2", "SLURM_STEP_NODELIST=?", "SLURMD_NODENAME=cpu2",
      "SLURM_HET_SIZE=2"},
     {6, 7, 0, 2, 3, 4, -1, "slurm", true}},
    /* the inner launcher has precedence */
    {{SLURM, "SLURM_NTASKS=7", TORCHRUN}, {5, 8, 1, 4, 1, 2, -1, "torchrun", true}},
    /* MPICH and Intel MPI */
    {{MPICH}, {2, 4, 0, 2, 1, 2, -1, "mpich", false}},
    {{SLURM, "SLURM_NTASKS=7", MPICH}, {2, 4, 0, 2, 1, 2, -1, "mpich", false}},
    {{"PMI_RANK=3", "PMI_SIZE=4"}, {3, 4, -1, -1, -1, -1, -1, "pmi", false}},
    /* srun with PMI knows more than PMI */
    {{SLURM, "SLURM_NTASKS=7", "PMI_RANK=6", "PMI_SIZE=7"}, {6, 7, 0, -1, 3, 4, -1, "slurm", true}},
    /* the script of sbatch is one process for all tasks */
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0"}, {-1, -1, -1, -1, -1, -1, -1, "none", false}},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_STEP_ID=0"}, {0, 4, -1, -1, -1, -1, -1, "slurm", false}},
    {{SLURM, "SLURM_NTASKS=7", OPENMPI}, {3, 4, 1, -1, -1, -1, -1, "openmpi", false}},
};

static const struct {
	const char *env[12];
	const char *message;
} bad[] = {
    {{"RANK=x", "WORLD_SIZE=4"},
     "environment variable RANK: found \"x\", expected a whole number from 0 to 2147483647"},
    {{"RANK=-1", "WORLD_SIZE=4"},
     "environment variable RANK: found \"-1\", expected a whole number from 0 to 2147483647"},
    {{"RANK= 1", "WORLD_SIZE=4"},
     "environment variable RANK: found \" 1\", expected a whole number from 0 to 2147483647"},
    {{"RANK=1 ", "WORLD_SIZE=4"},
     "environment variable RANK: found \"1 \", expected a whole number from 0 to 2147483647"},
    {{"RANK=99999999999999999999", "WORLD_SIZE=4"},
     "environment variable RANK: found \"99999999999999999999\", expected a whole number from 0 to 2147483647"},
    {{"RANK=1", "WORLD_SIZE=0"},
     "environment variable WORLD_SIZE: found \"0\", expected a whole number from 1 to 2147483647"},
    {{"RANK=4", "WORLD_SIZE=4"}, "environment variable RANK: found 4, expected at most 3 since WORLD_SIZE is 4"},
    {{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"},
     "environment variable LOCAL_RANK: found 2, expected at most 1 since LOCAL_WORLD_SIZE is 2"},
    {{"RANK=3", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=5"},
     "environment variable LOCAL_WORLD_SIZE: found 5, expected at most 4 since WORLD_SIZE is 4"},
    {{"RANK=3", "WORLD_SIZE=4", "GROUP_RANK=2", "GROUP_WORLD_SIZE=2"},
     "environment variable GROUP_RANK: found 2, expected at most 1 since GROUP_WORLD_SIZE is 2"},
    {{"RANK=3", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=11"},
     "environment variable GROUP_RANK: found 11, expected at most 3 since 8 ranks with 2 on each node are 4 nodes"},
    {{"RANK=3", "WORLD_SIZE=4", "TORCHELASTIC_RESTART_COUNT=-1"},
     "environment variable TORCHELASTIC_RESTART_COUNT: found \"-1\", expected a whole number from 0 to "
     "9223372036854775807"},
    {{"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=3"},
     "environment variable OMPI_COMM_WORLD_RANK: found 3, expected at most 2 since OMPI_COMM_WORLD_SIZE is 3"},
    {{SLURM, "SLURM_NTASKS=6"},
     "environment variable SLURM_PROCID: found 6, expected at most 5 since SLURM_NTASKS is "
     "6"},
    {{SLURM, "SLURM_NTASKS=7", "SLURM_NTASKS_PER_NODE=many"},
     "environment variable SLURM_NTASKS_PER_NODE: found \"many\", expected a whole number from 1 to 2147483647"},
    {{SLURM, "SLURM_NTASKS=7", "SLURM_STEP_TASKS_PER_NODE=2(x3)"},
     "environment variable SLURM_STEP_TASKS_PER_NODE: found \"2(x3)\", expected a list such as 2(x3),1 that covers "
     "node 3"},
    {{SLURM, "SLURM_NTASKS=7", "SLURM_STEP_TASKS_PER_NODE=2(x4"},
     "environment variable SLURM_STEP_TASKS_PER_NODE: found \"2(x4\", expected a list such as 2(x3),1 that covers "
     "node 3"},
    {{SLURM, "SLURM_NTASKS=7", "SLURM_STEP_TASKS_PER_NODE=2(x99999999999999999999"},
     "environment variable SLURM_STEP_TASKS_PER_NODE: found \"2(x99999999999999999999\", expected a list such as "
     "2(x3),1 that covers node 3"},
    {{SLURM, "SLURM_NTASKS=7", "SLURM_STEP_TASKS_PER_NODE=99999999999(x4)"},
     "environment variable SLURM_STEP_TASKS_PER_NODE: found \"99999999999(x4)\", expected a list such as 2(x3),1 "
     "that covers node 3"},
};

/* ctx is an array of "NAME=value" as in the tables. */
static void check_same(const struct rs_launch *found, const struct rs_launch *expected)
{
	ck_assert_str_eq(found->source, expected->source);
	ck_assert_int_eq(found->rank, expected->rank);
	ck_assert_int_eq(found->world_size, expected->world_size);
	ck_assert_int_eq(found->local_rank, expected->local_rank);
	ck_assert_int_eq(found->local_world_size, expected->local_world_size);
	ck_assert_int_eq(found->node_rank, expected->node_rank);
	ck_assert_int_eq(found->nodes, expected->nodes);
	ck_assert_int_eq(found->generation, expected->generation);
	ck_assert_int_eq(found->nodes_said, expected->nodes_said);
}

START_TEST(known_environments_are_parsed)
{
	struct rs_launch found;
	struct rs_err e = {0};

	ck_assert_msg(rs_launch_detect(&found, fake_getenv, (void *)good[_i].env, &e) == RS_OK, "%s", e.msg);
	check_same(&found, &good[_i].found);
}
END_TEST

START_TEST(wrong_variables_are_named)
{
	struct rs_launch found = {.rank = 77};
	struct rs_err e = {0};

	ck_assert_int_eq(rs_launch_detect(&found, fake_getenv, (void *)bad[_i].env, &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, bad[_i].message);
	ck_assert_int_eq(found.rank, 77);
}
END_TEST

/* Environments of a process whose rank nobody says. message NULL: it is alone. */
static const struct {
	const char *env[4];
	const char *message;
} alone[] = {
    {{NULL}, NULL},
    {{"WORLD_SIZE=1"}, NULL},
    {{"SLURM_NTASKS=1", "SLURM_PROCID=0"}, NULL},
    {{"PMI_SIZE=1", "PMI_RANK=0"}, NULL},
    {{"SLURM_NTASKS=4", "SLURM_PROCID=0"},
     "environment variable SLURM_NTASKS is 4, but srun has not started this process: start the training with srun, "
     "torchrun or mpirun, or set RANK and WORLD_SIZE for each process"},
    {{"SLURM_NPROCS=4"}, "environment variable SLURM_NPROCS is 4, but srun has not started this process: "},
    {{"WORLD_SIZE=2"},
     "environment variable WORLD_SIZE is 2, so a launcher has started several processes, but it does not say which "
     "one of how many this is: set REDUCTION_RANK and REDUCTION_WORLD_SIZE for each process (of a process that "
     "trains alone: 0 and 1)"},
    {{"PMI_SIZE=4"}, "environment variable PMI_SIZE is 4, so a launcher "},
    {{"OMPI_COMM_WORLD_SIZE=4"}, "environment variable OMPI_COMM_WORLD_SIZE is 4, so a launcher "},
    {{"MV2_COMM_WORLD_SIZE=4", "MV2_COMM_WORLD_RANK=1"}, "environment variable MV2_COMM_WORLD_SIZE is 4, so a "},
    {{"JSM_NAMESPACE_SIZE=4", "JSM_NAMESPACE_RANK=0"}, "environment variable JSM_NAMESPACE_SIZE is 4, so a "},
    {{"PALS_RANKID=0"}, "environment variable PALS_RANKID is 0, so a launcher "},
    {{"PMIX_RANK=1"}, "environment variable PMIX_RANK is 1, so a launcher "},
};

START_TEST(a_rank_that_nobody_says_is_refused_beside_others)
{
	struct rs_err e = {0};
	int rc = rs_launch_check_alone(fake_getenv, (void *)alone[_i].env, &e);

	ck_assert_int_eq(rc, alone[_i].message ? RS_ECONFIG : RS_OK);
	if (alone[_i].message)
		ck_assert_msg(strncmp(e.msg, alone[_i].message, strlen(alone[_i].message)) == 0, "%s", e.msg);
}
END_TEST

START_TEST(process_environment_is_the_default)
{
	struct rs_launch found, expected = {2, 3, -1, -1, -1, -1, -1, "torchrun", false};
	struct rs_err e;

	clearenv();
	setenv("RANK", "2", 1);
	setenv("WORLD_SIZE", "3", 1);
	ck_assert_int_eq(rs_launch_detect(&found, NULL, NULL, &e), RS_OK);
	check_same(&found, &expected);
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

int main(void)
{
	Suite *suite = suite_create("launch");
	TCase *tc = tcase_create("launch");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, known_environments_are_parsed, 0, COUNT(good));
	tcase_add_loop_test(tc, wrong_variables_are_named, 0, COUNT(bad));
	tcase_add_loop_test(tc, a_rank_that_nobody_says_is_refused_beside_others, 0, COUNT(alone));
	tcase_add_test(tc, process_environment_is_the_default);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
