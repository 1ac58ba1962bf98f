/* SPDX-License-Identifier: Apache-2.0 */
/* What reductionctl doctor finds in the past events of a reducer. */
#include "deploy/ctl/doctor.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOW_MS INT64_C(1800000000000)

/* An event: name, age, then key and value in turns. */
struct row {
	const char *name;
	int64_t ago_ms;
	const char *fields[12];
};

static void take(struct doctor_past *p, const struct row *row)
{
	Reduction__V1__Event ev = REDUCTION__V1__EVENT__INIT;
	Reduction__V1__Event__Field fields[6], *list[6];

	ev.name = (char *)row->name;
	ev.unix_ms = NOW_MS - row->ago_ms;
	ev.fields = list;
	for (; row->fields[2 * ev.n_fields]; ev.n_fields++) {
		reduction__v1__event__field__init(&fields[ev.n_fields]);
		fields[ev.n_fields].key = (char *)row->fields[2 * ev.n_fields];
		fields[ev.n_fields].value = (char *)row->fields[2 * ev.n_fields + 1];
		list[ev.n_fields] = &fields[ev.n_fields];
	}
	doctor_past_event(p, &ev);
}

#define JOB "job", "resnet", "generation", "0"
static const struct row opened = {"job-opened", 200000, {JOB}}, closed = {"job-closed", 1000, {JOB}};
static const struct row opened_again = {"job-opened", 500, {"job", "resnet", "generation", "1"}};
static const struct row other_opened = {"job-opened", 500, {"job", "bert", "generation", "0"}};
static const struct row lost = {"rank-lost", 3000, {JOB, "rank", "2", "reason", "rank 2 was lost: it closed"}};
static const struct row aborted = {"job-aborted", 2000, {JOB, "reason", "rank 1 aborted: loss is NaN"}};
static const struct row aborted_long_ago = {"job-aborted", PAST_MS + 1, {JOB, "reason", "rank 1 aborted"}};
static const struct row record = {"job-closed", 1000, {JOB, "ended", "rank-lost", "reason", "rank 2 was lost: silent"}};
static const struct row finished = {"job-closed", 1000, {JOB, "ended", "finished", "reason", ""}};
static const struct row record_left = {"job-closed", 1000, {JOB, "ended", "left", "reason", "this reducer drains"}};
static const struct row record_incomplete = {
    "job-closed", 1500, {JOB, "ended", "incomplete", "joined", "2", "world_size", "4"}};
static const struct row record_narrow = {
    "job-closed", 1000, {JOB, "ended", "rank-lost", "reason", "rank 2 was lost", "narrow", "1"}};
static const struct row left = {"job-left", 2900, {JOB, "reason", "this reducer drains"}};
static const struct row incomplete = {"job-incomplete", 1500, {JOB, "joined", "2", "world_size", "4"}};
static const struct row refused = {
    "connection-refused", 4000, {"peer", "10.0.0.7:4711", "reason", "rank 3 has not proven that it has the secret"}};

static const struct row refused_job = {
    "connection-refused", 4000, {"peer", "10.0.0.7:4711", "job", "resnet", "reason", "its secret differs"}};
static const struct row started = {"job-started", 3000, {JOB}};

static const struct {
	const struct row *events[4];
	const char *id, *job, *evidence; /* id NULL: nothing is found */
} cases[] = {
    {{&opened, &closed}, NULL, NULL, NULL},
    {{&opened, &left, &closed}, NULL, NULL, NULL}, /* it goes on elsewhere */
    {{&opened, &lost, &left, &closed}, "job-ended", "resnet", "r0: 3 s ago: rank 2 was lost: it closed"},
    {{&opened, &lost, &aborted}, "job-ended", "resnet", "r0: 3 s ago: rank 2 was lost: it closed"},
    {{&opened, &aborted, &closed}, "job-ended", "resnet", "r0: 2 s ago: rank 1 aborted: loss is NaN"},
    {{&incomplete}, "job-ended", "resnet", "its ranks left before all had joined: 2 of 4 were there"},
    {{&opened, &lost, &closed, &opened_again}, NULL, NULL, NULL}, /* it has been started again */
    {{&opened, &lost, &closed, &other_opened}, "job-ended", "resnet", "rank 2 was lost"},
    {{&record, &opened}, "job-ended", "resnet", "r0: 1 s ago: rank 2 was lost: silent"}, /* its start comes later */
    {{&record, &opened, &lost, &record}, "job-ended", "resnet", "r0: 1 s ago: rank 2 was lost: silent"},
    {{&record_narrow, &lost}, "reducer-path", "resnet", "r0: 1 s ago: rank 2 was lost"},
    {{&record, &opened_again}, NULL, NULL, NULL},
    {{&record_incomplete}, "job-ended", "resnet", "its ranks left before all had joined: 2 of 4 were there"},
    {{&finished, &record_left}, NULL, NULL, NULL},
    {{&aborted_long_ago}, NULL, NULL, NULL},
    {{&refused, &refused}, "refused", "", "r0: 2 times in 5 min, 4 s ago 10.0.0.7:4711: rank 3 has not proven"},
    {{&refused_job, &other_opened, &refused_job}, "refused", "resnet", "r0: 2 times in 5 min, 4 s ago"},
    {{&refused_job, &started}, NULL, NULL, NULL}, /* all of its ranks have joined */
    {{&refused_job, &opened}, "refused", "resnet", "its secret differs"},
    {{&refused, &started}, "refused", "", "has not proven"},
};

START_TEST(each_case)
{
	struct doctor_past p = {.now_ms = NOW_MS};
	struct findings all = {.n = 0};

	for (unsigned i = 0; i < 4 && cases[_i].events[i]; i++)
		take(&p, cases[_i].events[i]);
	doctor_past_end(&p, &all, "r0", NULL);
	ck_assert_uint_eq(all.n, cases[_i].id != NULL);
	if (!all.n)
		return;
	ck_assert_str_eq(all.at[0].id, cases[_i].id);
	ck_assert_str_eq(all.at[0].job, cases[_i].job);
	ck_assert_msg(strstr(all.at[0].evidence, cases[_i].evidence) != NULL, "%s", all.at[0].evidence);
	ck_assert(all.at[0].is_fact);
}
END_TEST

START_TEST(one_job)
{
	struct doctor_past p = {.now_ms = NOW_MS};
	struct findings all = {.n = 0};

	take(&p, &aborted);
	doctor_past_end(&p, &all, "r0", "bert");
	ck_assert_uint_eq(all.n, 0);
	doctor_past_end(&p, &all, "r0", "resnet");
	ck_assert_uint_eq(all.n, 1);
	ck_assert_str_eq(all.at[0].what, "generation 0 has ended");
}
END_TEST

/* How the last job ended is known, also if that was long ago and well. */
START_TEST(the_last_job)
{
	struct doctor_past p = {.now_ms = NOW_MS};

	take(&p, &closed); /* of an older release: it has no record */
	ck_assert_int_eq(p.last.unix_ms, 0);
	take(&p, &(struct row){"job-closed", PAST_MS * 9, {JOB, "ended", "aborted", "reason", "rank 1 aborted"}});
	take(&p, &finished);
	ck_assert_str_eq(p.last.job, "resnet");
	ck_assert_str_eq(p.last.reason, "finished");
	ck_assert_int_eq(p.last.unix_ms, NOW_MS - 1000);
	ck_assert_uint_eq(p.ends_n, 0);
}
END_TEST

/* Of many ends the latest stay; texts from the network are cut and cleaned. */
START_TEST(bounded)
{
	struct doctor_past p = {.now_ms = NOW_MS};
	struct findings all = {.n = 0};
	char generation[16], reason[2000];

	memset(reason, '\x1b', sizeof reason - 1);
	reason[sizeof reason - 1] = '\0';
	for (unsigned i = 0; i < 3 * PAST_ENDS; i++) {
		snprintf(generation, sizeof generation, "%u", i);
		take(&p, &(struct row){"job-aborted", 0, {"job", "j", "generation", generation, "reason", reason}});
	}
	take(&p, &(struct row){"connection-refused", 0, {"peer", reason, "reason", reason}});
	for (unsigned i = 0; i < 3 * PAST_REFUSALS; i++) {
		snprintf(generation, sizeof generation, "%u", i);
		take(&p, &(struct row){"connection-refused", 0, {"job", generation, "peer", reason, "reason", reason}});
	}
	doctor_past_end(&p, &all, "r0", NULL);
	ck_assert_uint_eq(all.n, PAST_ENDS + PAST_REFUSALS);
	ck_assert_str_eq(all.at[0].id, "refused");
	ck_assert_ptr_null(strchr(all.at[0].evidence, '\x1b'));
	for (unsigned i = 0; i < PAST_ENDS; i++) {
		snprintf(reason, sizeof reason, "generation %u has ended", 2 * PAST_ENDS + i);
		ck_assert_str_eq(all.at[PAST_REFUSALS + i].what, reason);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("doctor_past");
	TCase *t = tcase_create("doctor_past");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, each_case, 0, sizeof cases / sizeof cases[0]);
	tcase_add_test(t, one_job);
	tcase_add_test(t, the_last_job);
	tcase_add_test(t, bounded);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
