/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of reductionctl support-bundle: names of files, also long ones. */
#include "deploy/ctl/archive.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "reduction-support-a-host-of-twenty-chr-20260101T000000Z"
#define TARGET "/targets/01-reducer-7.of.a.long.domain.example_7601"

/* A name, and its two parts in the archive. */
static const struct {
	const char *name, *prefix, *rest;
} rows[] = {
    {"a/b", "", "a/b"},
    {FOLDER TARGET "/events.jsonl", FOLDER, "targets/01-reducer-7.of.a.long.domain.example_7601/events.jsonl"},
    {FOLDER TARGET "/status.json", FOLDER, "targets/01-reducer-7.of.a.long.domain.example_7601/status.json"},
};

START_TEST(names)
{
	char path[] = "/tmp/reduction-archive-XXXXXX", header[512], rest[101], prefix[156], unpack[64];
	struct archive *a;
	struct rs_err e;
	FILE *in;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	unlink(path);
	ck_assert_int_eq(archive_create(&a, path, &e), RS_OK);
	archive_add(a, rows[_i].name, "x", 1, 0);
	ck_assert_int_eq(archive_close(a, &e), RS_OK);
	snprintf(unpack, sizeof unpack, "gzip -dc <%s", path);
	in = popen(unpack, "r");
	ck_assert_ptr_nonnull(in);
	ck_assert_uint_eq(fread(header, 1, sizeof header, in), sizeof header);
	pclose(in);
	unlink(path);
	snprintf(rest, sizeof rest, "%.100s", header);
	snprintf(prefix, sizeof prefix, "%.155s", header + 345);
	ck_assert_str_eq(rest, rows[_i].rest);
	ck_assert_str_eq(prefix, rows[_i].prefix);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("archive");
	TCase *t = tcase_create("archive");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, names, 0, sizeof rows / sizeof rows[0]);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
