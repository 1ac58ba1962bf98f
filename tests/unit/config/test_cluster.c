/* SPDX-License-Identifier: Apache-2.0 */
#include "config/cluster.h"
#include "tests/unit/fake_environment.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* As the managed service sets it, for a task. */
#define CLUSTER(type, index)                                                                                           \
	"CLUSTER_SPEC={\"cluster\":{\"workerpool0\":[\"cmle-training-workerpool0-ab-0:2222\"],\n"                      \
	" \"workerpool1\":[\"cmle-training-workerpool1-ab-0:2222\",\"cmle-training-workerpool1-ab-1:2222\"],\n"        \
	" \"workerpool2\":[\"cmle-training-workerpool2-ab-0:2222\",\"cmle-training-workerpool2-ab-1:2222\"],\n"        \
	" \"workerpool3\":[\"cmle-training-workerpool3-ab-0:2222\"]},\n"                                               \
	" \"environment\":\"cloud\",\n"                                                                                \
	" \"task\":{\"type\":\"" type "\",\"index\":" index ",\"trial\":\"TRIAL_ID\"},\n"                              \
	" \"job\":{\"...\":\"...\"}}"

#define TF(type, index)                                                                                                \
	"TF_CONFIG={\"cluster\":{\"chief\":[\"training-workerpool0-ID-0:2222\"],"                                      \
	"\"ps\":[\"training-workerpool2-ID-0:2222\"],\n"                                                               \
	" \"worker\":[\"training-workerpool1-ID-0:2222\",\"training-workerpool1-ID-1:2222\"]},\n"                      \
	" \"environment\":\"cloud\",\"task\":{\"cloud\":\"ID\",\"index\":" index ",\"trial\":\"1\",\"type\":\"" type   \
	"\"}}"

/* A heterogeneous job of Slurm, on a node. */
#define GROUP(n, nodes) "SLURM_JOB_NODELIST_HET_GROUP_" n "=" nodes
#define HET(node)                                                                                                      \
	"SLURM_HET_SIZE=3", GROUP("0", "gpu[1-2]"), GROUP("1", "big"), GROUP("2", "cpu[01-02]"),                       \
	    "SLURM_JOB_ID_HET_GROUP_0=77", "SLURMD_NODENAME=" node

/* One worker, and reducers as in the text; `task` is a worker's. */
#define REDUCERS(list) "CLUSTER_SPEC={\"cluster\":{\"workerpool0\":[\"w:1\"],\"workerpool2\":" list "}," WORKER "}"
#define WORKER         "\"task\":{\"type\":\"workerpool0\",\"index\":0}"
#define REDUCER        "\"task\":{\"type\":\"workerpool2\",\"index\":0}"

#define RUN_CLUSTER "cluster:cmle-training-workerpool0-ab-0:2222.TRIAL_ID"

/* Environments, and what a process of that role finds. */
static const struct {
	const char *env[10];
	enum rs_cluster_role role;
	unsigned index, workers, reducers;
	const char *run, *last_reducer, *listen, *secret;
	bool insecure;
} good[] = {
    {{CLUSTER("workerpool0", "0")},
     RS_CLUSTER_WORKER,
     0,
     3,
     2,
     RUN_CLUSTER,
     "cmle-training-workerpool2-ab-1:2222",
     "127.0.0.1:7600",
     "",
     false},
    {{CLUSTER("workerpool1", "0")},
     RS_CLUSTER_WORKER,
     1,
     3,
     2,
     RUN_CLUSTER,
     "cmle-training-workerpool2-ab-1:2222",
     "127.0.0.1:7600",
     "",
     false},
    {{CLUSTER("workerpool1", "1"), "REDUCTION_SECRET=/s/key"},
     RS_CLUSTER_WORKER,
     2,
     3,
     2,
     RUN_CLUSTER,
     "cmle-training-workerpool2-ab-1:2222",
     "127.0.0.1:7600",
     "/s/key",
     false},
    {{CLUSTER("workerpool2", "1")},
     RS_CLUSTER_REDUCER,
     1,
     3,
     2,
     RUN_CLUSTER,
     "cmle-training-workerpool2-ab-1:2222",
     "*:2222",
     "",
     true},
    {{CLUSTER("workerpool2", "1"), "REDUCTION_SECRET=/s/key"},
     RS_CLUSTER_REDUCER,
     1,
     3,
     2,
     RUN_CLUSTER,
     "cmle-training-workerpool2-ab-1:2222",
     "*:2222",
     "/s/key",
     false},
    {{CLUSTER("workerpool3", "0")},
     RS_CLUSTER_EVALUATOR,
     0,
     3,
     2,
     RUN_CLUSTER,
     "cmle-training-workerpool2-ab-1:2222",
     "127.0.0.1:7600",
     "",
     false},
    {{TF("chief", "0")},
     RS_CLUSTER_WORKER,
     0,
     3,
     1,
     "cluster:ID.1",
     "training-workerpool2-ID-0:2222",
     "127.0.0.1:7600",
     "",
     false},
    {{TF("worker", "1")},
     RS_CLUSTER_WORKER,
     2,
     3,
     1,
     "cluster:ID.1",
     "training-workerpool2-ID-0:2222",
     "127.0.0.1:7600",
     "",
     false},
    {{TF("ps", "0")},
     RS_CLUSTER_REDUCER,
     0,
     3,
     1,
     "cluster:ID.1",
     "training-workerpool2-ID-0:2222",
     "*:2222",
     "",
     true},
    /* CLUSTER_SPEC comes first */
    {{TF("ps", "0"), CLUSTER("workerpool1", "0")},
     RS_CLUSTER_WORKER,
     1,
     3,
     2,
     RUN_CLUSTER,
     "cmle-training-workerpool2-ab-1:2222",
     "127.0.0.1:7600",
     "",
     false},
    /* IPv6, a port left out, one node, no trial, no environment */
    {{REDUCERS("[\"[fd00::1]:99\"]")},
     RS_CLUSTER_WORKER,
     0,
     1,
     1,
     "cluster:w:1",
     "[fd00::1]:99",
     "127.0.0.1:7600",
     "",
     false},
    {{REDUCERS("[\"[fd00::1]\"]")},
     RS_CLUSTER_WORKER,
     0,
     1,
     1,
     "cluster:w:1",
     "[fd00::1]:7600",
     "127.0.0.1:7600",
     "",
     false},
    {{REDUCERS("[\"host\"]")}, RS_CLUSTER_WORKER, 0, 1, 1, "cluster:w:1", "host:7600", "127.0.0.1:7600", "", false},
    /* not on a managed network: no reducer without authentication */
    {{"CLUSTER_SPEC={\"cluster\":{\"workerpool0\":[\"w\"],\"workerpool2\":[\"r\"]}," REDUCER "}"},
     RS_CLUSTER_REDUCER,
     0,
     1,
     1,
     "cluster:w",
     "r:7600",
     "*:7600",
     "",
     false},
    /* Kubeflow writes "cloud" too, and has no identifier of the job */
    {{"TF_CONFIG={\"cluster\":{\"worker\":[\"w\"],\"ps\":[\"r\"]},\"environment\":\"cloud\","
      "\"task\":{\"type\":\"ps\",\"index\":0}}"},
     RS_CLUSTER_REDUCER,
     0,
     1,
     1,
     "cluster:w",
     "r:7600",
     "*:7600",
     "",
     false},
    /* escapes that JSON has and YAML has not */
    {{"CLUSTER_SPEC={\"cluster\":{\"workerpool0\":[\"w\"],\"workerpool2\":[\"r\"]}," WORKER
      ",\"job\":{\"args\":[\"\\ud83d\\ude00\",\"a\\/b\\\\ud83d\"],\"deep\":[[[[{\"a\":[[[{}]]]}]]]]}}"},
     RS_CLUSTER_WORKER,
     0,
     1,
     1,
     "cluster:w",
     "r:7600",
     "127.0.0.1:7600",
     "",
     false},
    /* null is as good as nothing; "master" is the chief of older jobs */
    {{"TF_CONFIG={\"cluster\":{\"master\":[\"m:1\"],\"worker\":null,\"ps\":[\"p:2\"]},"
      "\"task\":{\"type\":\"master\",\"index\":0,\"trial\":null}}"},
     RS_CLUSTER_WORKER,
     0,
     1,
     1,
     "cluster:m:1",
     "p:2",
     "127.0.0.1:7600",
     "",
     false},
    {{HET("big")}, RS_CLUSTER_WORKER, 2, 3, 2, "slurm:77", "cpu02:7600", "127.0.0.1:7600", "", false},
    {{HET("cpu02"), "REDUCTION_PORT=7700", "REDUCTION_SECRET=/s"},
     RS_CLUSTER_REDUCER,
     1,
     3,
     2,
     "slurm:77",
     "cpu02:7700",
     "*:7700",
     "/s",
     false},
    /* another component has the reducers */
    {{HET("gpu2"), "REDUCTION_HET_GROUP=0"}, RS_CLUSTER_REDUCER, 1, 3, 2, "slurm:77", "gpu2:7600", "*:7600", "", false},
    /* a list of reducers goes before all of these, but a reducer has no use for it */
    {{"REDUCTION_REDUCERS=10.0.0.11, [fd00::1] ,r1:7700", CLUSTER("workerpool1", "0"), HET("big")},
     RS_CLUSTER_WORKER,
     0,
     0,
     3,
     "",
     "r1:7700",
     "127.0.0.1:7600",
     "",
     false},
    {{"REDUCTION_REDUCERS=r0,r1", "REDUCTION_SECRET=/s", "REDUCTION_WEIGHTS=1,0.5"},
     RS_CLUSTER_WORKER,
     0,
     0,
     2,
     "",
     "r1:7600",
     "127.0.0.1:7600",
     "/s",
     false},
    {{"REDUCTION_REDUCERS=x", CLUSTER("workerpool2", "1")},
     RS_CLUSTER_REDUCER,
     1,
     3,
     2,
     RUN_CLUSTER,
     "cmle-training-workerpool2-ab-1:2222",
     "*:2222",
     "",
     true},
    /* a managed job comes first */
    {{HET("big"), CLUSTER("workerpool0", "0")},
     RS_CLUSTER_WORKER,
     0,
     3,
     2,
     RUN_CLUSTER,
     "cmle-training-workerpool2-ab-1:2222",
     "127.0.0.1:7600",
     "",
     false},
};

START_TEST(finds_the_place)
{
	struct rs_cluster c;
	struct rs_config cfg;
	struct rs_err e = {0};
	enum rs_cluster_role role = good[_i].role;
	int rc = rs_cluster_load(&c, &cfg, role, fake_getenv, (void *)good[_i].env, &e);

	ck_assert_msg(rc == RS_OK, "%s", e.msg);
	ck_assert_ptr_nonnull(c.variable);
	ck_assert_uint_eq(c.index, good[_i].index);
	ck_assert_uint_eq(c.workers, good[_i].workers);
	ck_assert_uint_eq(c.reducers, good[_i].reducers);
	ck_assert_str_eq(c.run, good[_i].run);
	ck_assert_uint_eq(cfg.reducers_n, good[_i].reducers);
	ck_assert_str_eq(cfg.reducers[cfg.reducers_n - 1].address, good[_i].last_reducer);
	ck_assert_str_eq(cfg.server.listen, good[_i].listen);
	ck_assert_str_eq(role == RS_CLUSTER_REDUCER ? cfg.server.secret : cfg.security.secret, good[_i].secret);
	ck_assert(cfg.server.insecure == good[_i].insecure);
	rs_config_close(&cfg);
}
END_TEST

/* All ranks must agree, also if some have the list and others a file. */
START_TEST(a_list_is_as_good_as_a_file)
{
	static const char yaml[] = "reducers: [{id: r0, address: 10.0.0.11}, {id: r1, address: 10.0.0.12:7700}]";
	static const char *const env[] = {"REDUCTION_REDUCERS=10.0.0.11,10.0.0.12:7700", NULL};
	struct rs_config file, list;
	struct rs_cluster c;
	struct rs_err e = {0};

	ck_assert_int_eq(rs_config_parse(&file, "file", yaml, strlen(yaml), &e), RS_OK);
	ck_assert_int_eq(rs_cluster_load(&c, &list, RS_CLUSTER_WORKER, fake_getenv, (void *)env, &e), RS_OK);
	ck_assert_str_eq(c.variable, "REDUCTION_REDUCERS");
	ck_assert(rs_config_digest(&file) == rs_config_digest(&list));
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_str_eq(list.reducers[i].id, file.reducers[i].id);
		ck_assert_str_eq(list.reducers[i].address, file.reducers[i].address);
		ck_assert_str_eq(list.reducers[i].grpc, file.reducers[i].grpc);
	}
	rs_config_close(&file);
	rs_config_close(&list);
}
END_TEST

#define SPEC "environment variable CLUSTER_SPEC"
#define LIST "environment variable REDUCTION_REDUCERS"

static const struct {
	const char *env[10];
	enum rs_cluster_role role;
	const char *message;
} bad[] = {
    {{"REDUCTION_REDUCERS=a,b:0"},
     RS_CLUSTER_WORKER,
     LIST ": entry 2: found \"b:0\", expected host, host:port, [IPv6] or [IPv6]:port, with a port from 1 to 65535"},
    {{"REDUCTION_REDUCERS=a,,b"}, RS_CLUSTER_WORKER, LIST ": entry 2: found \"\", expected host"},
    {{"REDUCTION_REDUCERS=a,"}, RS_CLUSTER_WORKER, LIST ": entry 2: found \"\", expected host"},
    {{"REDUCTION_REDUCERS= "}, RS_CLUSTER_WORKER, LIST ": entry 1: found \"\", expected host"},
    {{"REDUCTION_REDUCERS=fd00::1"}, RS_CLUSTER_WORKER, LIST ": entry 1: found \"fd00::1\", expected host"},
    {{"REDUCTION_REDUCERS=a\"b"}, RS_CLUSTER_WORKER, LIST ": entry 1: found \"a\"b\", expected host"},
    {{"REDUCTION_REDUCERS=b,a,A:7600"},
     RS_CLUSTER_WORKER,
     LIST ": entry 3: found A:7600, which entry 2 is too, expected different ones"},
    {{"REDUCTION_REDUCERS=a,b", "REDUCTION_WEIGHTS=1"},
     RS_CLUSTER_WORKER,
     "environment variable REDUCTION_WEIGHTS: found 1 numbers in \"1\", expected 2, one for each reducer"},
    {{"REDUCTION_REDUCERS=a,b", "REDUCTION_CONFIG=job.yaml"},
     RS_CLUSTER_WORKER,
     "environment variables REDUCTION_CONFIG (\"job.yaml\") and REDUCTION_REDUCERS (\"a,b\"): found both, expected "
     "one"},
    {{"CLUSTER_SPEC=[]"}, RS_CLUSTER_WORKER, SPEC ": found \"[]\", expected a JSON object"},
    {{"CLUSTER_SPEC={\"cluster\":"}, RS_CLUSTER_WORKER, SPEC ":2:1: not valid JSON: "},
    {{"CLUSTER_SPEC={}"}, RS_CLUSTER_WORKER, SPEC ":1:1: cluster: not found, expected an object"},
    {{"CLUSTER_SPEC={\"cluster\":[]}"}, RS_CLUSTER_WORKER, SPEC ":1:12: cluster: found a list, expected an object"},
    {{"CLUSTER_SPEC={\"cluster\":{},\"cluster\":{}}"},
     RS_CLUSTER_WORKER,
     SPEC ":1:15: cluster: found a second time, expected once"},
    {{"CLUSTER_SPEC={\"cluster\":{}}"}, RS_CLUSTER_WORKER, SPEC ":1:1: task: not found, expected an object"},
    {{"CLUSTER_SPEC={\"cluster\":{}," WORKER "}"},
     RS_CLUSTER_WORKER,
     SPEC ":1:12: cluster: found 0 workers in workerpool0 and workerpool1, expected 1 to 4096 of them"},
    {{"CLUSTER_SPEC={\"cluster\":{\"workerpool0\":\"w:1\"}," WORKER "}"},
     RS_CLUSTER_WORKER,
     SPEC ":1:27: cluster.workerpool0: found \"w:1\", expected a list of addresses"},
    {{"CLUSTER_SPEC={\"cluster\":{\"workerpool0\":[\"w:1\",[]]}," WORKER "}"},
     RS_CLUSTER_WORKER,
     SPEC ":1:34: cluster.workerpool0[1]: found a list, expected an address"},
    {{REDUCERS("[]")},
     RS_CLUSTER_WORKER,
     SPEC ": cluster.workerpool2: found no reducers, expected their addresses: give the job this pool, or name a "
	  "configuration file"},
    {{REDUCERS("[\"a:1\",\"a:0\"]")},
     RS_CLUSTER_WORKER,
     SPEC ":1:56: cluster.workerpool2[1]: found \"a:0\", expected host, host:port or [IPv6]:port, with a port from 1 "
	  "to 65535"},
    {{REDUCERS("[\"fd00::1:99\"]")},
     RS_CLUSTER_WORKER,
     SPEC ":1:50: cluster.workerpool2[0]: found \"fd00::1:99\", expected host, host:port or [IPv6]:port"},
    {{REDUCERS("[\"a:1\",\"b:1\",\"a:1\"]")},
     RS_CLUSTER_WORKER,
     SPEC ":1:62: cluster.workerpool2[2]: found a:1, which cluster.workerpool2[0] is too, expected different ones"},
    {{CLUSTER("workerpool4", "0")},
     RS_CLUSTER_WORKER,
     SPEC ":6:9: task.type: found \"workerpool4\", expected the name of a pool in \"cluster\" that has replicas"},
    {{CLUSTER("workerpool1", "2")},
     RS_CLUSTER_WORKER,
     SPEC ":6:39: task.index: found 2, expected less than 2, the length of cluster.workerpool1"},
    {{CLUSTER("workerpool1", "-1")},
     RS_CLUSTER_WORKER,
     SPEC ":6:39: task.index: found \"-1\", expected a whole number"},
    {{CLUSTER("workerpool1", "99999999999999999999")},
     RS_CLUSTER_WORKER,
     SPEC ":6:39: task.index: found 99999999999999999999, expected less than 2"},
    {{CLUSTER("workerpool1", "null")}, RS_CLUSTER_WORKER, SPEC ":6:9: task.index: not found, expected a whole number"},
    {{CLUSTER("workerpool3", "0")},
     RS_CLUSTER_WORKER,
     SPEC ": task.type: found \"workerpool3\", an evaluator, which takes no part in all-reduces; expected a worker. To "
	  "start it here nevertheless, name a configuration file"},
    {{CLUSTER("workerpool0", "0")},
     RS_CLUSTER_REDUCER,
     SPEC ": task.type: found \"workerpool0\", a worker; expected workerpool2. To start it here"},
    {{"TF_CONFIG={\"cluster\":{\"worker\":[\"w\"],\"ps\":[\"r\"]},\"environment\":\"cloud\","
      "\"task\":{\"type\":\"evaluator\",\"index\":0}}"},
     RS_CLUSTER_WORKER,
     "environment variable TF_CONFIG: task.type: found \"evaluator\", an evaluator, which takes no part in "
     "all-reduces; expected a worker. To start it here nevertheless, name a configuration file"},
    {{"TF_CONFIG={\"sparseCluster\":{\"worker\":{\"0\":\"w\"},\"ps\":[\"r\"]},\"task\":{\"type\":\"worker\","
      "\"index\":0}}"},
     RS_CLUSTER_WORKER,
     "environment variable TF_CONFIG:1:18: sparseCluster: found a job whose number of workers may change, which each "
     "process sees another part of; expected cluster: set enableDynamicWorker to false in the TFJob, or name a "
     "configuration file"},
    {{TF("worker", "0")},
     RS_CLUSTER_REDUCER,
     "environment variable TF_CONFIG: task.type: found \"worker\", a worker; expected ps. To start it here"},
    {{CLUSTER("workerpool0", "0"), "REDUCTION_WEIGHTS=1"},
     RS_CLUSTER_WORKER,
     "environment variable REDUCTION_WEIGHTS: found 1 numbers in \"1\", expected 2, one for each reducer"},
    {{CLUSTER("workerpool0", "0"), "REDUCTION_WEIGHTS=1,x"},
     RS_CLUSTER_WORKER,
     "environment variable REDUCTION_WEIGHTS: found \"x\", expected a number"},
    {{CLUSTER("workerpool0", "0"), "REDUCTION_BANDWIDTH=fast"},
     RS_CLUSTER_WORKER,
     "environment variable REDUCTION_BANDWIDTH: found \"fast\", expected a number with kbit, mbit or gbit"},
    {{"SLURM_HET_SIZE=1"},
     RS_CLUSTER_WORKER,
     "environment variable SLURM_HET_SIZE: found \"1\", expected a whole number from 2 to 128"},
    {{"SLURM_HET_SIZE=2", GROUP("0", "a"), GROUP("1", "b")},
     RS_CLUSTER_WORKER,
     "environment variable SLURMD_NODENAME: not set, expected the name of this node: start this with srun"},
    {{"SLURM_HET_SIZE=2", GROUP("0", "a"), "SLURMD_NODENAME=a"},
     RS_CLUSTER_WORKER,
     "environment variable SLURM_JOB_NODELIST_HET_GROUP_1: not set, expected the nodes of this component since "
     "SLURM_HET_SIZE is 2"},
    {{"SLURM_HET_SIZE=2", GROUP("0", "a["), "SLURMD_NODENAME=a"},
     RS_CLUSTER_WORKER,
     "environment variable SLURM_JOB_NODELIST_HET_GROUP_0: found \"a[\", expected a list of nodes"},
    {{"SLURM_HET_SIZE=2", GROUP("0", "a"), GROUP("1", "b,b"), "SLURMD_NODENAME=a"},
     RS_CLUSTER_WORKER,
     "environment variable SLURM_JOB_NODELIST_HET_GROUP_1: found the node \"b\", expected different names of machines"},
    {{"SLURM_HET_SIZE=2", GROUP("0", "a"), GROUP("1", "b[1-257]"), "SLURMD_NODENAME=a"},
     RS_CLUSTER_WORKER,
     "environment variable SLURM_JOB_NODELIST_HET_GROUP_1: found 257 nodes, expected at most 256 reducers"},
    {{"SLURM_HET_SIZE=3", GROUP("0", "a[1-4000]"), GROUP("1", "b[1-97]"), GROUP("2", "c"), "SLURMD_NODENAME=c"},
     RS_CLUSTER_REDUCER,
     "environment variable SLURM_JOB_NODELIST_HET_GROUP_1: found 4097 nodes of workers, expected at most 4096"},
    {{HET("cpu01")},
     RS_CLUSTER_WORKER,
     "environment variable SLURMD_NODENAME: found \"cpu01\", expected a node of another component than 2, the "
     "reducers'"},
    {{HET("big")},
     RS_CLUSTER_REDUCER,
     "environment variable SLURMD_NODENAME: found \"big\", expected a node of component 2, the reducers': start this "
     "with srun --het-group=2"},
    {{HET("big"), "REDUCTION_HET_GROUP=3"},
     RS_CLUSTER_WORKER,
     "environment variable REDUCTION_HET_GROUP: found \"3\", expected a whole number from 0 to 2"},
    {{HET("big"), "REDUCTION_PORT=0"},
     RS_CLUSTER_WORKER,
     "environment variable REDUCTION_PORT: found \"0\", expected a whole number from 1 to 65535"},
};

START_TEST(refuses_with_the_field)
{
	struct rs_cluster c = {.index = 7};
	struct rs_config cfg;
	struct rs_err e = {0};

	ck_assert_int_eq(rs_cluster_load(&c, &cfg, bad[_i].role, fake_getenv, (void *)bad[_i].env, &e), RS_ECONFIG);
	ck_assert_msg(strncmp(e.msg, bad[_i].message, strlen(bad[_i].message)) == 0, "%s", e.msg);
	ck_assert_uint_eq(c.index, 7);
}
END_TEST

START_TEST(weights_and_bandwidth)
{
	const char *const env[] = {CLUSTER("workerpool0", "0"), "REDUCTION_WEIGHTS=1,3", "REDUCTION_BANDWIDTH=32gbit",
				   NULL};
	struct rs_cluster c;
	struct rs_config cfg;
	struct rs_err e = {0};
	unsigned shards = 0;

	ck_assert_int_eq(rs_cluster_load(&c, &cfg, RS_CLUSTER_WORKER, fake_getenv, (void *)env, &e), RS_OK);
	for (unsigned s = 0; s < cfg.sharding.shards; s++)
		shards += cfg.sharding.owner[s] == 1;
	ck_assert_uint_eq(shards * 4, cfg.sharding.shards * 3);
	ck_assert_uint_eq(cfg.reducers[0].lanes, 4);
	rs_config_close(&cfg);
}
END_TEST

/* A step over workers and reducers has other tasks than the ranks. */
START_TEST(steps_of_slurm)
{
	const char *const alone[] = {HET("big"), "SLURM_STEP_NUM_NODES=3", NULL};
	const char *const mixed[] = {HET("big"), "SLURM_STEP_NUM_NODES=5", NULL};
	struct rs_cluster c;
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_int_eq(rs_cluster_load(&c, &cfg, RS_CLUSTER_WORKER, fake_getenv, (void *)alone, &e), RS_OK);
	ck_assert(!c.mixed_step);
	rs_config_close(&cfg);
	ck_assert_int_eq(rs_cluster_load(&c, &cfg, RS_CLUSTER_WORKER, fake_getenv, (void *)mixed, &e), RS_OK);
	ck_assert(c.mixed_step);
	rs_config_close(&cfg);
}
END_TEST

START_TEST(nothing_without_a_variable)
{
	const char *const env[] = {"CLUSTER_SPEC=", "REDUCTION_WEIGHTS=x", NULL};
	struct rs_cluster c = {.variable = "x"};
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_int_eq(rs_cluster_load(&c, &cfg, RS_CLUSTER_WORKER, fake_getenv, (void *)env, &e), RS_OK);
	ck_assert_ptr_null(c.variable);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cluster");
	TCase *tc = tcase_create("cluster");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, finds_the_place, 0, (int)(sizeof good / sizeof good[0]));
	tcase_add_loop_test(tc, refuses_with_the_field, 0, (int)(sizeof bad / sizeof bad[0]));
	tcase_add_test(tc, a_list_is_as_good_as_a_file);
	tcase_add_test(tc, weights_and_bandwidth);
	tcase_add_test(tc, steps_of_slurm);
	tcase_add_test(tc, nothing_without_a_variable);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
