/* SPDX-License-Identifier: Apache-2.0 */
/* What the firmware says of a machine, answers of HTTP/1.1 in pieces, and what the
 * answers of providers mean. */
#include "deploy/ctl/notice.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *file, *text;
	int provider; /* -1: none */
} machines[] = {
    {"sys_vendor", "Amazon EC2\n", NOTICE_AWS},
    {"bios_version", "4.11.amazon\n", NOTICE_AWS},
    {"product_name", "Google Compute Engine\n", NOTICE_GCP},
    {"chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", NOTICE_AZURE},
    {"sys_vendor", "Microsoft Corporation\n", -1}, /* any machine of Hyper-V */
    {"sys_vendor", "", -1},
    {"other", "Amazon EC2\n", -1},
};

START_TEST(the_firmware_names_the_provider)
{
	char folder[] = "/tmp/test_notice.XXXXXX", path[64];
	enum notice_provider found = NOTICE_PROVIDERS;
	FILE *f;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/%s", folder, machines[_i].file);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(machines[_i].text, f), 0);
	fclose(f);
	ck_assert_int_eq(notice_provider_find(folder, &found), machines[_i].provider >= 0);
	if (machines[_i].provider >= 0)
		ck_assert_int_eq((int)found, machines[_i].provider);
	unlink(path);
	rmdir(folder);
}
END_TEST

static const struct {
	const char *text, *body;
	int status;
	bool closes; /* it is complete when the peer closes */
} answers[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nTRUE", "TRUE", 200, false},
    {"HTTP/1.0 404 Not Found\r\ncontent-length:0\r\n\r\n", "", 404, false},
    {"HTTP/1.1 200 OK\r\nServer: a\r\n\r\nTRUE", "TRUE", 200, true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nTR\r\n2;a=b\r\nUE\r\n0\r\n\r\n", "TRUE", 200, false},
};

START_TEST(answers_are_read_in_pieces)
{
	size_t len = strlen(answers[_i].text);
	struct notice_answer a;
	struct rs_err e;
	char text[512];
	int rc = 0;

	for (size_t n = 0; n <= len && !rc; n++) { /* what was read stays as it is, and a byte follows */
		if (n > 0)
			text[n - 1] = answers[_i].text[n - 1];
		rc = notice_http_read(text, n, false, &a, &e);
		ck_assert_int_ge(rc, 0);
	}
	ck_assert_int_eq(rc, !answers[_i].closes);
	if (!rc)
		ck_assert_int_eq(notice_http_read(text, len, true, &a, &e), 1);
	ck_assert_int_eq(a.status, answers[_i].status);
	ck_assert_str_eq(a.body, answers[_i].body);
	ck_assert_uint_eq(a.body_len, strlen(answers[_i].body));
}
END_TEST

/* Answers of one provider, in order, with what they mean and the next question. */
static const struct {
	enum notice_provider provider;
	int status;
	bool google;
	const char *body;
	enum notice_word word;
	const char *asks; /* in the next path */
	bool begins;      /* with a new watch */
} rows[] = {
    {NOTICE_AWS, 200, false, "token", NOTICE_NEXT, "instance-action", true},
    {NOTICE_AWS, 404, false, "", NOTICE_NEXT, "rebalance", false},
    {NOTICE_AWS, 200, false, "{\"noticeTime\": \"a\"}", NOTICE_HINT, "instance-action", false},
    {NOTICE_AWS, 404, false, "", NOTICE_NEXT, "rebalance", false},
    {NOTICE_AWS, 200, false, "{\"noticeTime\": \"a\"}", NOTICE_NONE, "instance-action", false},
    {NOTICE_AWS, 401, false, "", NOTICE_NEXT, "token", false},
    {NOTICE_AWS, 200, false, "new", NOTICE_NEXT, "instance-action", false},
    {NOTICE_AWS, 401, false, "", NOTICE_FAILED, "token", false}, /* a fresh one: no loop */
    {NOTICE_AWS, 200, false, "new", NOTICE_NEXT, "instance-action", false},
    {NOTICE_AWS, 503, false, "", NOTICE_FAILED, "instance-action", false},
    {NOTICE_AWS, 200, false, "{", NOTICE_FAILED, "instance-action", false},
    {NOTICE_AWS, 200, false, "{\"action\": \"stop\"}", NOTICE_STANDS, "instance-action", false},
    {NOTICE_GCP, 200, true, "FALSE", NOTICE_NONE, "last_etag=e1", true},
    {NOTICE_GCP, 503, true, "", NOTICE_FAILED, "last_etag=e1", false},
    {NOTICE_GCP, 200, false, "TRUE", NOTICE_FAILED, "last_etag=e1", false},
    {NOTICE_GCP, 200, true, "TRUE", NOTICE_STANDS, "last_etag=e1", false},
    {NOTICE_AZURE, 200, false, "vm-1", NOTICE_NEXT, "scheduledevents", true},
    {NOTICE_AZURE, 200, false, "{\"Events\":[]}", NOTICE_NONE, "scheduledevents", false},
    {NOTICE_AZURE, 200, false, "{\"Events\":[{\"EventType\":\"Preempt\",\"Resources\":[\"vm-11\"]}]}", NOTICE_NONE,
     "scheduledevents", false},
    {NOTICE_AZURE, 200, false, "{\"Events\":[{\"EventType\":\"Preempt\",\"Resources\":\"vm-1\"}]}", NOTICE_NONE,
     "scheduledevents", false},
    {NOTICE_AZURE, 200, false, "[[[]]]", NOTICE_NONE, "scheduledevents", false},
    {NOTICE_AZURE, 200, false, "{\"Events\":[{\"EventType\":\"Preempt\",\"Resources\":[\"vm-1\"],\"NotBefore\":\"\"}]}",
     NOTICE_STANDS, "scheduledevents", false},
};

START_TEST(answers_of_providers)
{
	struct notice_watch w = {.provider = NOTICE_AWS};
	struct notice_request q;
	struct rs_err e;

	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char body[256];
		struct notice_answer a = {
		    .status = rows[i].status, .google = rows[i].google, .etag = "e1", .body = body};

		a.body_len = (size_t)snprintf(body, sizeof body, "%s", rows[i].body);
		if (rows[i].begins)
			w = (struct notice_watch){.provider = rows[i].provider};
		ck_assert_msg(notice_take(&w, &a, 1000, &e) == rows[i].word, "row %u", i);
		notice_question(&w, &q);
		ck_assert_msg(strstr(q.path, rows[i].asks) != NULL, "row %u: %s", i, q.path);
	}
}
END_TEST

/* How the providers write times. */
static const struct {
	enum notice_provider provider;
	const char *body;
	int64_t at_s;
} times[] = {
    {NOTICE_AWS, "{\"action\": \"terminate\", \"time\": \"2017-09-18T08:22:00Z\"}", 1505722920},
    {NOTICE_AWS, "{\"action\": \"terminate\", \"time\": \"soon\"}", 0},
    {NOTICE_GCP, "TRUE\n", 1030},
    {NOTICE_AZURE,
     "{\"Events\":[{\"EventType\":\"Terminate\",\"Resources\":[\"vm\"],"
     "\"NotBefore\":\"Mon, 19 Sep 2016 18:29:47 GMT\"}]}",
     1474309787},
};

START_TEST(times_of_providers)
{
	char body[256];
	struct notice_watch w = {.provider = times[_i].provider, .step = NOTICE_STEP_EVENTS, .name = "vm"};
	struct notice_answer a = {.status = 200, .google = true, .etag = "e1", .body = body};
	struct rs_err e;

	a.body_len = (size_t)snprintf(body, sizeof body, "%s", times[_i].body);
	ck_assert_int_eq(notice_take(&w, &a, 1000, &e), NOTICE_STANDS);
	ck_assert_int_eq(w.at_s, times[_i].at_s);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("notice");
	Suite *s = suite_create("notice");
	SRunner *r;
	int failed;

	tcase_add_loop_test(t, the_firmware_names_the_provider, 0, sizeof machines / sizeof machines[0]);
	tcase_add_loop_test(t, answers_are_read_in_pieces, 0, sizeof answers / sizeof answers[0]);
	tcase_add_test(t, answers_of_providers);
	tcase_add_loop_test(t, times_of_providers, 0, sizeof times / sizeof times[0]);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
