/* SPDX-License-Identifier: Apache-2.0 */
#include "config/job.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char rules[] = "security: {tls: mutual}\n"
			    "access:\n"
			    "  - {certificate: resnet, jobs: resnet}\n"
			    "  - {certificate: \"*.vision.example\", jobs: \"vision-*\", weight: 2.5}\n"
			    "  - {certificate: \"node-?\", jobs: \"*\"}\n"
			    "  - {certificate: \"team a@b\", jobs: a}\n";

static const struct {
	const char *names, *job;
	bool may;
} joins[] = {
    {"resnet", "resnet", true},
    {"resnet", "resnet2", false},
    {"resnet", "Resnet", false}, /* names of jobs are case-sensitive */
    {"RESNET", "resnet", true},  /* names in certificates are DNS names, which are not */
    {"resnet2", "resnet", false},
    {"", "resnet", false},
    {"", "", false},
    {"a.vision.example", "vision-1", true},
    {"a.b.vision.example", "vision-1", true},
    {"vision.example", "vision-1", false},
    {"a.vision.example.evil", "vision-1", false},
    {"a.vision.example", "vision", false},
    {"a.vision.example", "xvision-1", false},
    {"node-1", "anything", true},
    {"node-12", "anything", false},
    {"other,resnet", "resnet", true}, /* any of its names */
    {"resnet,other", "resnet", true},
    {"other,resnet2,", "resnet", false},
    {"x,resnet,node-10", "vision-1", false},
    {"team a@b", "a", true},
    {"team a@b", "b", false},
    {"[r]esnet", "resnet", false},
    {"*", "resnet", false}, /* a certificate's name is no pattern */
    /* a communicator of the job */
    {"resnet", "resnet@0123456789abcdef", true},
    {"resnet", "resnet2@0123456789abcdef", false},
    {"resnet", "resnet@0123456789abcde", false},
    {"a.vision.example", "vision-1@0123456789abcdef", true},
};

START_TEST(test_may_join)
{
	const struct rs_access *rule;
	struct rs_config cfg;
	struct rs_err e = {0};

	ck_assert_msg(rs_config_parse(&cfg, "test", rules, sizeof rules - 1, &e) == RS_OK, "%s", e.msg);
	ck_assert_uint_eq(cfg.access_n, 4);
	rule = rs_config_may_join(cfg.access, cfg.access_n, joins[_i].names, joins[_i].job);
	ck_assert_msg((rule != NULL) == joins[_i].may, "\"%s\" and job %s", joins[_i].names, joins[_i].job);
	if (rule)
		ck_assert_double_eq(rule->weight, rule == &cfg.access[1] ? 2.5 : 1);
	ck_assert_msg(!rs_config_may_join(NULL, 0, joins[_i].names, joins[_i].job), "no rule, no right");
	rs_config_close(&cfg);
}
END_TEST

START_TEST(test_long_name)
{
	struct rs_access all = {.certificate = "*", .jobs = "*"};
	char name[RS_GLOB_MAX + 20];

	memset(name, 'a', sizeof name);
	name[sizeof name - 1] = '\0';
	ck_assert(!rs_config_may_join(&all, 1, name, "job"));
	name[RS_GLOB_MAX - 1] = '\0';
	ck_assert(rs_config_may_join(&all, 1, name, "job"));
}
END_TEST

static const struct {
	const char *text, *want;
} wrong[] = {
    {"access: [{certificate: a, jobs: b}]", "none unless security.tls is mutual"},
    {"security: {tls: on}\naccess: [{certificate: a, jobs: b}]", "none unless security.tls is mutual"},
    {"security: {tls: mutual}\naccess: []", "expected a list of 1 to 1024 access"},
    {"security: {tls: mutual}\naccess: [{certificate: a}]", "found no jobs"},
    {"security: {tls: mutual}\naccess: [{certificate: \"a,b\", jobs: c}]", "access[0].certificate"},
    {"security: {tls: mutual}\naccess: [{certificate: a, jobs: \"[c]\"}]", "access[0].jobs"},
    {"security: {tls: mutual}\naccess: [{certificate: a, jobs: b, weight: 0}]", "access[0].weight"},
    {"security: {tls: true}", "expected off, on or mutual"},
};

START_TEST(test_wrong)
{
	struct rs_config cfg;
	struct rs_err e = {0};

	ck_assert_int_eq(rs_config_parse(&cfg, "test", wrong[_i].text, strlen(wrong[_i].text), &e), RS_ECONFIG);
	ck_assert_msg(strstr(e.msg, wrong[_i].want), "%s", e.msg);
}
END_TEST

static const struct {
	const char *address, *tls_name, *want;
} tls_names[] = {
    {"r0.cluster:7600", "", "r0.cluster"},
    {"10.0.0.1:7600", "", "10.0.0.1"},
    {"[::1]:7600", "", "::1"},
    {"[fe80::1%eth0]:7600", "", "fe80::1"},
    {"10.0.0.1:7600", "r0.cluster", "r0.cluster"},
};

START_TEST(test_tls_name)
{
	struct rs_reducer r = {.id = "r0"};
	char name[RS_HOST_MAX];

	snprintf(r.address, sizeof r.address, "%s", tls_names[_i].address);
	snprintf(r.tls_name, sizeof r.tls_name, "%s", tls_names[_i].tls_name);
	rs_config_tls_name(&r, name);
	ck_assert_str_eq(name, tls_names[_i].want);
}
END_TEST

#define NAME_46 "0123456789012345678901234567890123456789012345"

static const struct {
	const char *job, *base;
	bool valid;
} names[] = {
    {"resnet", "resnet", true},
    {"resnet@0123456789abcdef", "resnet", true},
    {NAME_46 "@0123456789abcdef", NAME_46, true},
    {NAME_46 "6@0123456789abcdef", NAME_46 "6", false}, /* too long together */
    {"resnet@0123456789abcdeF", "resnet@0123456789abcdeF", false},
    {"resnet@0123456789abcde", "resnet@0123456789abcde", false},
    {"resnet@0123456789abcdef0", "resnet@0123456789abcdef0", false},
    {"@0123456789abcdef", "@0123456789abcdef", false},
    {"a@0123456789abcdef@0123456789abcdef", "a@0123456789abcdef", false},
    {"../a@0123456789abcdef", "../a", false},
    {"", "", false},
};

START_TEST(test_job)
{
	char base[RS_NAME_MAX];

	rs_job_base(base, names[_i].job);
	ck_assert_str_eq(base, names[_i].base);
	ck_assert_msg(rs_job_valid(names[_i].job) == names[_i].valid, "%s", names[_i].job);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("access");
	TCase *tc = tcase_create("access");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, test_may_join, 0, (int)(sizeof joins / sizeof joins[0]));
	tcase_add_test(tc, test_long_name);
	tcase_add_loop_test(tc, test_wrong, 0, (int)(sizeof wrong / sizeof wrong[0]));
	tcase_add_loop_test(tc, test_tls_name, 0, (int)(sizeof tls_names / sizeof tls_names[0]));
	tcase_add_loop_test(tc, test_job, 0, (int)(sizeof names / sizeof names[0]));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
