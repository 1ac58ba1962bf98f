/* SPDX-License-Identifier: Apache-2.0 */
#include "common/auth.h"
#include "common/credential.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const char hint[] = " (systemd passed no such credential: see LoadCredential= of this unit; if it is cleared, "
			   "as in containers of LXC and Proxmox, name the file itself)";

START_TEST(only_credentials_get_the_hint)
{
	unsetenv("CREDENTIALS_DIRECTORY");
	ck_assert_str_eq(rs_credential_hint("/run/credentials/reduction-server.service/reduction.key"), hint);
	ck_assert_str_eq(rs_credential_hint("/run/credentials"), "");
	ck_assert_str_eq(rs_credential_hint("/etc/reduction/key"), "");
	setenv("CREDENTIALS_DIRECTORY", "/somewhere/else", 1);
	ck_assert_str_eq(rs_credential_hint("/somewhere/else/key"), hint);
	ck_assert_str_eq(rs_credential_hint("/somewhere/elsewhere"), "");
	setenv("CREDENTIALS_DIRECTORY", "", 1);
	ck_assert_str_eq(rs_credential_hint("/somewhere/else/key"), "");
}
END_TEST

START_TEST(a_secret_that_was_not_passed)
{
	struct auth_secret s;
	struct rs_err e;

	ck_assert_int_eq(auth_secret_load(&s, "/run/credentials/none.service/job.secret", &e), RS_EIO);
	ck_assert_ptr_nonnull(strstr(e.msg, "cannot be opened (systemd passed no such credential: "));
	ck_assert_ptr_nonnull(strstr(e.msg, "name the file itself): No such file or directory"));
}
END_TEST

static const struct {
	const char *file;
	bool shown;
} names[] = {
    {"/etc/reduction/job", true},
    {"/tmp", true},
    {"/none/job.secret", true},
    {"job.secret", true},
    {"./job", true},
    {"", true},
    {"5ebe2294ecd0e0f08eab7690d2a6ee69aabbccdd00112233", false}, /* openssl rand -hex */
    {"/Vt0Zx9b3Ah1W/0kqYwLrQm2n7s8dFg5hJk4lPoIuY=", false},      /* -base64 */
    {"Vt0Zx9b3Ah1W/0kqYwLrQm2n7s8dFg5hJk4lPoIuYtA", false},
    {"-----BEGIN PRIVATE KEY-----", false},
    {"hunter2.is my password", false},
    {"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0.dozjgNryP4J3jVmNHl0w",
     false},
};

START_TEST(only_paths_are_shown)
{
	ck_assert_int_eq(strcmp(rs_credential_name(names[_i].file), names[_i].file) == 0, names[_i].shown);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("credential");
	TCase *t = tcase_create("credential");
	SRunner *runner;
	int failed;

	tcase_add_test(t, only_credentials_get_the_hint);
	tcase_add_loop_test(t, only_paths_are_shown, 0, sizeof names / sizeof names[0]);
	tcase_add_test(t, a_secret_that_was_not_passed);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
