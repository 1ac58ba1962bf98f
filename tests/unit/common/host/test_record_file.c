/* SPDX-License-Identifier: Apache-2.0 */
/* The records of ended jobs on disk: they are the same after a restart, whatever a crash,
 * a full disk or an editor has done to the file. */
#include "common/host/record_file.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[80];
static struct events *ring;
static struct record_file file;

static void setup(void)
{
	strcpy(folder, "/tmp/reduction-records-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/jobs", folder);
	ring = malloc(sizeof *ring);
	events_init(ring);
	file.fd = -1;
}

static void teardown(void)
{
	record_file_close(&file);
	unlink(path);
	rmdir(folder);
	free(ring);
}

static void reopen(void)
{
	struct rs_err e;

	record_file_close(&file);
	events_init(ring);
	ck_assert_msg(record_file_open(&file, folder, ring, &e) == RS_OK, "%s", e.msg);
}

static int add(const char *job, const char *reason)
{
	const struct rs_kv kv[] = {rs_kv_s("job", job), rs_kv_s("reason", reason), rs_kv_u("bytes", 12)};
	struct rs_err e;

	events_add(ring, 1764150000123, RS_LOG_INFO, EVENT_JOB, kv, 3);
	return record_file_add(&file, ring, &e);
}

/* Returns a text of the record with this number, 0 the oldest; texts are key, value, key,
 * ... */
static const char *text_of(uint64_t number, unsigned text)
{
	const struct event *ev = events_get(ring, events_oldest(ring) + number);
	const char *at = ev->text;

	while (text--)
		at += strlen(at) + 1;
	return at;
}

static void write_file(const char *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	close(fd);
}

static off_t size_of_file(void)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	return st.st_size;
}

START_TEST(records_survive_a_restart)
{
	static const char *const reasons[] = {"", "plain", "a \\ and \\x41", "tab\tnewline\nend",
					      "\xc3\xbc\xe2\x82\xac"};

	reopen();
	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(add("j", reasons[i]), RS_OK);
	reopen();
	ck_assert_uint_eq(ring->next, 6);
	for (unsigned i = 0; i < 5; i++) {
		ck_assert_str_eq(text_of(i, 3), i == 3 ? "tab?newline?end" : reasons[i]);
		ck_assert_str_eq(text_of(i, 4), "bytes");
		ck_assert_str_eq(text_of(i, 5), "12");
		ck_assert_int_eq(events_get(ring, 1 + i)->unix_ms, 1764150000123);
		ck_assert_str_eq(events_get(ring, 1 + i)->name, EVENT_JOB);
	}
}
END_TEST

#define GOOD "1764150000123\tjob\tgood\n"

/* What a crash or a person left. `good`: records that are read; `left`: bytes that
 * stay. */
static const struct {
	const char *name, *text;
	unsigned good;
	off_t left;
} rows[] = {
    {"empty", "", 0, 0},
    {"one", GOOD, 1, sizeof GOOD - 1},
    {"cut in a value", GOOD "1764150000124\tjob\tba", 1, sizeof GOOD - 1},
    {"cut in the time", GOOD "176", 1, sizeof GOOD - 1},
    {"no time", "job\tx\n" GOOD, 1, sizeof GOOD + 5},
    {"a negative time", "-5\tjob\tx\n" GOOD, 1, sizeof GOOD + 8},
    {"a time that is too large", "99999999999999999999\tjob\tx\n" GOOD, 1, sizeof GOOD + 26},
    {"a key without a value", "1\tjob\n" GOOD, 1, sizeof GOOD + 5},
    {"no keys", "1\n" GOOD, 1, sizeof GOOD + 1},
    {"blank lines", "\n\n" GOOD, 1, sizeof GOOD + 1},
};

START_TEST(a_damaged_file_is_read_as_far_as_it_goes)
{
	write_file(rows[_i].text, strlen(rows[_i].text));
	reopen();
	ck_assert_msg(ring->next == 1 + rows[_i].good, "%s: %d records", rows[_i].name, (int)ring->next - 1);
	ck_assert_msg(size_of_file() == rows[_i].left, "%s: %d bytes", rows[_i].name, (int)size_of_file());
	if (rows[_i].good)
		ck_assert_str_eq(text_of(0, 1), "good");
	ck_assert_int_eq(add("next", "r"), RS_OK);
	reopen();
	ck_assert_uint_eq(ring->next, 2 + rows[_i].good);
	ck_assert_str_eq(text_of(rows[_i].good, 1), "next");
}
END_TEST

START_TEST(a_line_without_end_is_left_out)
{
	size_t n = 1 << 20;
	char *text = malloc(n);

	memset(text, 'x', n);
	memcpy(text, "1\tjob\t", 6);
	text[n - 1] = '\n';
	write_file(text, n);
	free(text);
	reopen();
	ck_assert_uint_eq(ring->next, 1);
}
END_TEST

START_TEST(the_file_stays_small)
{
	char name[16];
	off_t most = 0;

	reopen();
	for (unsigned i = 0; i < 10 * EVENTS_KEPT; i++) {
		snprintf(name, sizeof name, "job%u", i);
		ck_assert_int_eq(add(name, "reason"), RS_OK);
		if (i % 64 == 0 && size_of_file() > most)
			most = size_of_file();
	}
	ck_assert_int_lt(most, 5 * EVENTS_KEPT * 60);
	reopen();
	ck_assert_uint_ge(ring->next, EVENTS_KEPT);
	ck_assert_str_eq(text_of(ring->next - 1 - events_oldest(ring), 1), name);
	ck_assert_str_eq(text_of(0, 1), "job9216");
}
END_TEST

/* One error for as long as there is no room; then records are written again. */
START_TEST(a_full_disk)
{
	struct rlimit limit = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};

	signal(SIGXFSZ, SIG_IGN);
	reopen();
	ck_assert_int_eq(add("first", "fits"), RS_OK);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(add("second", "this text is longer than the room that is left, which is known in advance"),
			 RS_EIO);
	ck_assert_int_eq(add("third", "this text is longer than the room that is left, which is known in advance"),
			 RS_OK);
	limit.rlim_cur = RLIM_INFINITY;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(add("fourth", "fits"), RS_OK);
	reopen();
	ck_assert_uint_eq(ring->next, 3);
	ck_assert_str_eq(text_of(0, 1), "first");
	ck_assert_str_eq(text_of(1, 1), "fourth");
}
END_TEST

START_TEST(a_folder_that_cannot_be_used)
{
	struct record_file other;
	struct rs_err e;

	reopen();
	ck_assert_int_eq(record_file_open(&other, folder, ring, &e), RS_ECONFIG);
	ck_assert_ptr_nonnull(
	    strstr(e.msg, "/jobs is in use by another process: each reducer needs a folder of its own"));
	record_file_close(&file);
	ck_assert_int_eq(truncate(path, 1 << 30), 0);
	ck_assert_int_eq(record_file_open(&other, folder, ring, &e), RS_ECONFIG);
	ck_assert_ptr_nonnull(strstr(e.msg, "/jobs is no file of records: remove it"));
	ck_assert_int_eq(record_file_open(&other, "/nonexistent", ring, &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, "cannot open /nonexistent/jobs: No such file or directory");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("record_file");
	TCase *t = tcase_create("record_file");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, records_survive_a_restart);
	tcase_add_loop_test(t, a_damaged_file_is_read_as_far_as_it_goes, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(t, a_line_without_end_is_left_out);
	tcase_add_test(t, the_file_stays_small);
	tcase_add_test(t, a_full_disk);
	tcase_add_test(t, a_folder_that_cannot_be_used);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
