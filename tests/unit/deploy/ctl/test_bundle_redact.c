/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets in texts of a support bundle, as they are and escaped. */
#include "deploy/ctl/bundle.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { SECRETS_MAX = 2 };

static const struct {
	const char *what, *secrets[SECRETS_MAX], *text, *want;
} rows[] = {
    {"none", {"secret-of-a-job"}, "a line without it\n", "a line without it\n"},
    {"as it is, twice", {"secret-a"}, "secret-a, xsecret-ax", "********, x********x"},
    {"a longer one has it", {"secret-a", "<secret-a>tail"}, "secret-a <secret-a>tail", "******** **************"},
    {"the longer one is escaped", {"secret-a", "\"secret-a\"tail"}, "{\\\"secret-a\\\"tail}", "{****************}"},
    {"two overlap", {"abcdefgh", "efghijkl"}, "-abcdefghijkl-", "-************-"},
    {"quote and backslash", {"a\"b\\c-secret"}, "{\"x\":\"a\\\"b\\\\c-secret\"}", "{\"x\":\"**************\"}"},
    {"as it is, with a backslash", {"a\\nb\\c-secret"}, "a\\nb\\c-secret", "*************"},
    {"a slash", {"c2VjcmV0/w=="}, "\"c2VjcmV0\\/w==\"", "\"*************\""},
    {"control characters", {"\b\f\n\r\t\x1f-secret"}, "\\b\\f\\n\\r\\t\\u001F-secret.", "***********************."},
    {"a letter that need not be escaped", {"secret-of-it"}, "\\u0073ecret-of-i\\u0074", "**********************"},
    {"two bytes of UTF-8", {"gehe\u00efm-12"}, "gehe\u00efm-12 gehe\\u00efm-12", "********** **************"},
    {"three bytes", {"\u20ac-secret"}, "\\u20ac-secret \\u20AC-secret", "************* *************"},
    {"four bytes", {"\U0001d11e-secret"}, "<\\ud834\\udd1e-secret>", "<*******************>"},
    {"no UTF-8, in a log line", {"\xff\xfe-secret"}, "secret=\"\\xff\\xFE-secret\"", "secret=\"***************\""},
    {"no UTF-8, in a log line in JSON", {"\xff-secret"}, "\"\\\\xff-secret\"", "\"************\""},
    {"escaped twice",
     {"a\"b-secret"},
     "{\"line\":\"x=\\\"a\\\\\\\"b-secret\\\"\"}",
     "{\"line\":\"x=\\\"*************\\\"\"}"},
    {"parts of escapes",
     {"ud834-is-it"},
     "\\ \\u \\u12 \\ud834 \\ud834\\u0041 \\udd1e \\x \\x1 \\q \\ud834-is-it \\",
     "\\ \\u \\u12 \\ud834 \\ud834\\u0041 \\udd1e \\x \\x1 \\q \\*********** \\"},
    {"an empty text", {"secret-of-a-job"}, "", ""},
};

static struct bundle_secret *secret_new(const char *text, struct bundle_secret *next)
{
	size_t n = strlen(text);
	struct bundle_secret *s = malloc(sizeof *s + n);

	ck_assert_ptr_nonnull(s);
	s->next = next;
	s->n = n;
	memcpy(s->text, text, n);
	return s;
}

/* Neither the order of the secrets nor what follows the text changes anything. */
static void check_row(unsigned row, bool reverse)
{
	size_t n = strlen(rows[row].text);
	struct bundle_secret *secrets = NULL, *next;
	char *text = malloc(n + 1);

	ck_assert_ptr_nonnull(text);
	for (unsigned i = 0; i < SECRETS_MAX; i++) {
		const char *secret = rows[row].secrets[reverse ? SECRETS_MAX - 1 - i : i];

		if (secret)
			secrets = secret_new(secret, secrets);
	}
	memcpy(text, rows[row].text, n);
	text[n] = 'q';
	ck_assert(bundle_redact(text, n, secrets));
	ck_assert_msg(strlen(rows[row].want) == n && memcmp(text, rows[row].want, n) == 0,
		      "%s: found %.*s, expected %s", rows[row].what, (int)n, text, rows[row].want);
	ck_assert_int_eq(text[n], 'q');
	for (; secrets; secrets = next) {
		next = secrets->next;
		free(secrets);
	}
	free(text);
}

START_TEST(secrets_are_removed)
{
	check_row((unsigned)_i, false);
	check_row((unsigned)_i, true);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bundle_redact");
	TCase *t = tcase_create("bundle_redact");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, secrets_are_removed, 0, sizeof rows / sizeof rows[0]);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
