/* SPDX-License-Identifier: Apache-2.0 */
#include "config/tls_texts.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	enum tls_mode mode;
	enum rs_tls_side side;
	bool certificate, key, authority; /* are read */
} rows[] = {
    {TLS_OFF, RS_TLS_REDUCER, false, false, false}, {TLS_OFF, RS_TLS_WORKER, false, false, false},
    {TLS_ON, RS_TLS_REDUCER, true, true, false},    {TLS_ON, RS_TLS_WORKER, false, false, true},
    {TLS_MUTUAL, RS_TLS_REDUCER, true, true, true}, {TLS_MUTUAL, RS_TLS_WORKER, true, true, true},
};

/* Writes `text` to DIR/text. */
static void make_file(const char *dir, const char *text, char path[RS_PATH_LEN])
{
	int fd;

	snprintf(path, RS_PATH_LEN, "%s/%s", dir, text);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void expect(const char *got, bool there, const char *want)
{
	if (there)
		ck_assert_str_eq(got, want);
	else
		ck_assert_ptr_null(got);
}

static void remove_files(const struct rs_config *cfg, const char *dir)
{
	unlink(cfg->security.certificate);
	unlink(cfg->security.key);
	unlink(cfg->security.authority);
	ck_assert_int_eq(rmdir(dir), 0);
}

START_TEST(each_side_reads_only_the_files_it_needs)
{
	char dir[] = "/tmp/reduction-test-XXXXXX";
	static struct rs_config cfg;
	struct tls_texts t;
	struct rs_err e = {0};
	int rc;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	cfg.security.tls = rows[_i].mode;
	make_file(dir, "certificate", cfg.security.certificate);
	make_file(dir, "key", cfg.security.key);
	make_file(dir, "authority", cfg.security.authority);
	rc = rs_config_tls_texts(&t, rows[_i].side, &cfg, &e);
	ck_assert_msg(rc == RS_OK, "%s", e.msg);
	expect(t.certificate, rows[_i].certificate, "certificate");
	expect(t.key, rows[_i].key, "key");
	expect(t.authority, rows[_i].authority, "authority");
	tls_texts_free(&t);

	/* files that are not read may be missing */
	unlink(cfg.security.authority);
	rc = rs_config_tls_texts(&t, rows[_i].side, &cfg, &e);
	ck_assert_int_eq(rc, rows[_i].authority ? RS_ECONFIG : RS_OK);
	if (rc)
		ck_assert_msg(strstr(e.msg, "security.authority"), "%s", e.msg);
	else
		tls_texts_free(&t);
	remove_files(&cfg, dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tls_texts");
	TCase *t = tcase_create("tls_texts");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, each_side_reads_only_the_files_it_needs, 0, sizeof rows / sizeof rows[0]);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
