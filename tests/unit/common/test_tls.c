/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tls_own.h"
#include "tests/unit/fake_certs.h"

#include <check.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static struct certs certs;

static void setup(void)
{
	static const struct cert list[] = {
	    {.name = "ca", .cn = "authority"},
	    {.name = "r0", .issuer = "ca", .cn = "r0", .sans = "DNS:localhost,IP:127.0.0.1"},
	    {.name = "other", .issuer = "ca", .cn = "other"},
	    {.name = "old", .issuer = "ca", .cn = "old", .from_s = -7200, .till_s = -3600},
	    {.name = "early", .issuer = "ca", .cn = "early", .from_s = 3600, .till_s = 7200},
	};
	FILE *f;

	certs_init(&certs);
	for (unsigned i = 0; i < sizeof list / sizeof list[0]; i++)
		certs_make(&certs, &list[i]);
	f = fopen(certs_file(&certs, "text", ".pem"), "w");
	fputs("this is no PEM\n", f);
	fclose(f);
	f = fopen(certs_file(&certs, "damaged", ".pem"), "w");
	fputs("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", f);
	fclose(f);
	f = fopen(certs_file(&certs, "open", ".key"), "w");
	fclose(f);
	chmod(certs_file(&certs, "open", ".key"), 0644);
}

static void teardown(void)
{
	certs_close(&certs);
}

/* want: a part of the error, NULL if there is none. */
static const struct {
	bool reducer;
	enum tls_mode mode;
	const char *certificate, *key, *authority;
	const char *want;
} loads[] = {
    {true, TLS_ON, "r0.pem", "r0.key", NULL, NULL},
    {true, TLS_ON, "r0.pem", "r0.key", "ca.pem", NULL},
    {true, TLS_MUTUAL, "r0.pem", "r0.key", "ca.pem", NULL},
    {true, TLS_MUTUAL, "r0.pem", "r0.key", NULL, "mutual needs security.authority"},
    {true, TLS_ON, NULL, "r0.key", NULL, "security.certificate is empty"},
    {true, TLS_ON, "r0.pem", NULL, NULL, "security.key is empty"},
    {true, TLS_ON, "none.pem", "r0.key", NULL, "/none.pem cannot be opened: No such file"},
    {true, TLS_ON, "r0.pem", "none.key", NULL, "/none.key cannot be opened: No such file"},
    {true, TLS_ON, ".", "r0.key", NULL, "is not a file"},
    {true, TLS_ON, "text.pem", "r0.key", NULL, "/text.pem holds no certificate in PEM form"},
    {true, TLS_ON, "damaged.pem", "r0.key", NULL, "security.certificate /tmp/"},
    {true, TLS_ON, "r0.key", "r0.key", NULL, "/r0.key holds no certificate in PEM form"},
    {true, TLS_ON, "r0.pem", "r0.pem", NULL, "/r0.pem holds no private key in PEM form without a passphrase"},
    {true, TLS_ON, "r0.pem", "other.key", NULL, "other.key does not belong to the certificate in"},
    {true, TLS_ON, "r0.pem", "open.key", NULL, "open.key may be read or written by everybody (mode 0644)"},
    {true, TLS_ON, "old.pem", "old.key", NULL, "old.pem has expired on 20"},
    {true, TLS_ON, "early.pem", "early.key", NULL, "early.pem is not valid before 20"},
    {true, TLS_MUTUAL, "r0.pem", "r0.key", "text.pem", "security.authority"},
    {true, TLS_MUTUAL, "r0.pem", "r0.key", "damaged.pem", "damaged.pem: "},
    {false, TLS_ON, NULL, NULL, "ca.pem", NULL},
    {false, TLS_ON, NULL, NULL, NULL, NULL}, /* the system's authorities */
    {false, TLS_ON, NULL, NULL, "none.pem", "none.pem cannot be opened"},
    {false, TLS_MUTUAL, NULL, NULL, "ca.pem", "security.certificate is empty"},
    {false, TLS_MUTUAL, "r0.pem", "r0.key", "ca.pem", NULL},
};

START_TEST(test_load)
{
	const char *certificate = loads[_i].certificate, *key = loads[_i].key, *authority = loads[_i].authority;
	struct tls_files f = {.certificate = certificate ? certs_file(&certs, certificate, "") : "",
			      .key = key ? certs_file(&certs, key, "") : "",
			      .authority = authority ? certs_file(&certs, authority, "") : ""};
	SSL_CTX *ctx = NULL;
	struct rs_err e = {0};
	int rc = (loads[_i].reducer ? tls_reducer : tls_worker)(&ctx, loads[_i].mode, &f, &e);

	if (loads[_i].want)
		ck_assert_msg(rc == RS_ECONFIG && strstr(e.msg, loads[_i].want), "%d: %d %s", _i, rc, e.msg);
	else
		ck_assert_msg(rc == RS_OK, "%d: %s", _i, e.msg);
	SSL_CTX_free(ctx);
}
END_TEST

static const struct {
	const char *cn, *sans, *want;
} names[] = {
    {"resnet", NULL, "resnet"},
    {"resnet", "DNS:a.example,DNS:b.example",
     "a.example,b.example"}, /* a common name counts only without other names */
    {"resnet", "IP:127.0.0.1", "resnet"},
    {"resnet", "IP:127.0.0.1,DNS:node-1,email:a@b.c", "node-1"},
    {"team a@b", NULL, "team a@b"},
    {"two,names", NULL, ""}, /* would look like two names */
    {"line\nbreak", NULL, ""},
    {"\xc3\xa9", NULL, ""},
    {NULL, NULL, ""},
};

START_TEST(test_names)
{
	struct cert what = {.name = "named", .issuer = "ca", .cn = names[_i].cn, .sans = names[_i].sans};
	char found[TLS_NAMES_MAX], expiry[TLS_EXPIRY_TEXT];
	SSL_CTX *ctx;

	certs_make(&certs, &what);
	ctx = certs_reducer(&certs, TLS_ON, "named", NULL);
	tls_own_certificate(ctx, found, expiry);
	ck_assert_str_eq(found, names[_i].want);
	ck_assert_uint_eq(strlen(expiry), strlen("2026-11-21T18:37:04Z"));
	SSL_CTX_free(ctx);
}
END_TEST

/* Days of a certificate's life, and before its end from which it should be renewed. */
static const struct {
	long days, renew_hours;
} lives[] = {{365, 30 * 24}, {91, 30 * 24}, {60, 20 * 24}, {1, 8}};

START_TEST(test_validity)
{
	struct cert what = {
	    .name = "life", .issuer = "ca", .cn = "life", .from_s = -60, .till_s = lives[_i].days * 86400 - 60};
	struct tls_validity of_ctx, of_pem;
	struct tls_texts texts;
	struct tls_files files = {.certificate = certs_file(&certs, "life", ".pem"), .key = "", .authority = ""};
	struct rs_err e;
	SSL_CTX *ctx;

	certs_make(&certs, &what);
	ctx = certs_reducer(&certs, TLS_ON, "life", NULL);
	of_ctx = tls_own_validity(ctx);
	ck_assert_int_le(llabs(of_ctx.expires_s - (time(NULL) + what.till_s)), 60);
	ck_assert_int_eq(of_ctx.expires_s - of_ctx.renew_s, lives[_i].renew_hours * 3600);
	ck_assert_int_eq(tls_texts_load(&texts, &files, &e), RS_OK);
	of_pem = tls_pem_validity(texts.certificate);
	ck_assert_int_eq(of_pem.expires_s, of_ctx.expires_s);
	ck_assert_int_eq(of_pem.renew_s, of_ctx.renew_s);
	ck_assert_int_eq(tls_pem_validity("no certificate").expires_s, 0);
	ck_assert_int_eq(tls_own_validity(NULL).renew_s, 0);
	tls_texts_free(&texts);
	SSL_CTX_free(ctx);
}
END_TEST

/* A name with a zero byte inside, and more names than fit. */
START_TEST(test_odd_names)
{
	char found[TLS_NAMES_MAX], name[64];
	X509 *cert = X509_new();
	GENERAL_NAMES *all = sk_GENERAL_NAME_new_null();

	for (int i = 0; i < 40; i++) {
		GENERAL_NAME *one = GENERAL_NAME_new();
		ASN1_IA5STRING *s = ASN1_IA5STRING_new();

		snprintf(name, sizeof name, i ? "node-%02d.somewhere.example" : "good.example%cevil.example", i);
		ASN1_STRING_set(s, name, i ? -1 : (int)sizeof "good.example.evil.example" - 1);
		GENERAL_NAME_set0_value(one, GEN_DNS, s);
		sk_GENERAL_NAME_push(all, one);
	}
	X509_add1_ext_i2d(cert, NID_subject_alt_name, all, 0, 0);
	tls_names(cert, found);
	ck_assert_msg(strncmp(found, "node-01.somewhere.example,node-02.", 34) == 0, "%s", found);
	ck_assert_uint_lt(strlen(found), TLS_NAMES_MAX);
	ck_assert_msg(strlen(found) > TLS_NAMES_MAX - 32, "%s", found);
	ck_assert_str_eq(strrchr(found, ',') + 8, ".somewhere.example");
	GENERAL_NAMES_free(all);
	X509_free(cert);
	tls_names(NULL, found);
	ck_assert_str_eq(found, "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tls");
	TCase *tc = tcase_create("tls");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_load, 0, (int)(sizeof loads / sizeof loads[0]));
	tcase_add_loop_test(tc, test_names, 0, (int)(sizeof names / sizeof names[0]));
	tcase_add_test(tc, test_odd_names);
	tcase_add_loop_test(tc, test_validity, 0, (int)(sizeof lives / sizeof lives[0]));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
