/* SPDX-License-Identifier: Apache-2.0 */
#include "config/tls_texts.h"
#include "tests/unit/fake_certs.h"

#include <check.h>
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

static void expect(const char *got, bool there)
{
	ck_assert_int_eq(got != NULL, there);
	if (got)
		ck_assert_ptr_nonnull(strstr(got, "-----BEGIN "));
}

static void name_files(struct rs_config *cfg, const struct certs *certs, const char *own, const char *key)
{
	snprintf(cfg->security.certificate, sizeof cfg->security.certificate, "%s", certs_file(certs, own, ".pem"));
	snprintf(cfg->security.key, sizeof cfg->security.key, "%s", certs_file(certs, key, ".key"));
	snprintf(cfg->security.authority, sizeof cfg->security.authority, "%s", certs_file(certs, "ca", ".pem"));
}

START_TEST(each_side_reads_only_the_files_it_needs)
{
	const struct cert ca = {.name = "ca", .cn = "ca"}, own = {.name = "r0", .issuer = "ca", .cn = "r0"},
			  other = {.name = "r1", .issuer = "ca", .cn = "r1"};
	bool pair = rows[_i].certificate && rows[_i].key;
	static struct rs_config cfg;
	struct certs certs;
	struct tls_texts t;
	struct rs_err e = {0};
	int rc;

	certs_init(&certs);
	certs_make(&certs, &ca);
	certs_make(&certs, &own);
	certs_make(&certs, &other);
	cfg.security.tls = rows[_i].mode;
	name_files(&cfg, &certs, "r0", "r0");
	rc = rs_config_tls_texts(&t, rows[_i].side, &cfg, &e);
	ck_assert_msg(rc == RS_OK, "%s", e.msg);
	expect(t.certificate, rows[_i].certificate);
	expect(t.key, rows[_i].key);
	expect(t.authority, rows[_i].authority);
	tls_texts_free(&t);

	/* a pair that is only half replaced */
	name_files(&cfg, &certs, "r0", "r1");
	rc = rs_config_tls_texts(&t, rows[_i].side, &cfg, &e);
	ck_assert_int_eq(rc, pair ? RS_ECONFIG : RS_OK);
	if (rc)
		ck_assert_msg(strstr(e.msg, "does not belong to the certificate"), "%s", e.msg);
	else
		tls_texts_free(&t);

	/* files that are not read may be missing */
	name_files(&cfg, &certs, "r0", "r0");
	unlink(cfg.security.authority);
	rc = rs_config_tls_texts(&t, rows[_i].side, &cfg, &e);
	ck_assert_int_eq(rc, rows[_i].authority ? RS_ECONFIG : RS_OK);
	if (rc)
		ck_assert_msg(strstr(e.msg, "security.authority"), "%s", e.msg);
	else
		tls_texts_free(&t);
	certs_close(&certs);
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
