/* SPDX-License-Identifier: Apache-2.0 */
/* The gzip files of a build without zlib: the program gzip reads them, and failed writes
 * are reported. */
#include "deploy/ctl/gzip.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 200000 };

/* How many bytes each write has, of BYTES in total. */
static const size_t pieces[] = {37, 511, 65535, 65536, BYTES};

START_TEST(gzip_reads_it)
{
	char path[] = "/tmp/reduction-gzip-XXXXXX", unpack[64];
	unsigned char *sent = malloc(BYTES), *got = malloc(BYTES + 1);
	int fd = mkstemp(path);
	struct gzip *g = gzip_open(fd);
	FILE *in;

	ck_assert_int_ge(fd, 0);
	ck_assert(sent && got && g);
	for (size_t i = 0; i < BYTES; i++)
		sent[i] = (unsigned char)(i * i >> 7);
	for (size_t at = 0; at < BYTES; at += pieces[_i])
		ck_assert(gzip_write(g, sent + at, at + pieces[_i] < BYTES ? pieces[_i] : BYTES - at));
	ck_assert(gzip_close(g));
	snprintf(unpack, sizeof unpack, "gzip -dc <%s", path);
	in = popen(unpack, "r");
	ck_assert_ptr_nonnull(in);
	ck_assert_uint_eq(fread(got, 1, BYTES + 1, in), BYTES);
	ck_assert_int_eq(pclose(in), 0);
	ck_assert_mem_eq(got, sent, BYTES);
	unlink(path);
	free(sent);
	free(got);
}
END_TEST

START_TEST(full_disk)
{
	struct gzip *g = gzip_open(open("/dev/full", O_WRONLY));

	ck_assert_ptr_nonnull(g);
	ck_assert(!gzip_write(g, "x", 1));
	ck_assert(!gzip_close(g));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gzip");
	TCase *t = tcase_create("stored");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, gzip_reads_it, 0, sizeof pieces / sizeof pieces[0]);
	tcase_add_test(t, full_disk);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
