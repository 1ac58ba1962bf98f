/* SPDX-License-Identifier: Apache-2.0 */
#include "common/auth.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Made with Python: hmac.new(secret, label + NUL + three times (length as 8 bytes,
 * bytes), hashlib.sha256). */
static const struct {
	bool large; /* the secret: 0123456789abcdef, or four times the bytes 0 to 255 */
	enum auth_side side;
	const char *binding, *hello, *challenge;
	const char *want;
} vectors[] = {
    {false, AUTH_WORKER, "", "hello", "challenge", "c5e07e3d152c5a98120dd631f4f410ba88da738ec495addafdab0edb7d6a5948"},
    {false, AUTH_WORKER, "0", "", "c", "8be4aa2114c57ab6661224d40f92b3d13c49628ed346a78ee9b7f7096c37e4e3"},
    {false, AUTH_WORKER, "h", "ello", "challenge", "62035d4b6d4097317ae664774a76d3ff16b5ae46b2ad59a81b9ddeaa1f23dc38"},
    {false, AUTH_REDUCER, "", "hello", "challenge", "b2461301bda16f4be7f2de4f84e18c9214fd8131bb057ae749fde54240b37291"},
    {false, AUTH_REDUCER, "0", "", "c", "51d63b640d732c0548baf37339cd69f9f099ca34e4fcc255f1cd545c750ef79a"},
    {true, AUTH_WORKER, "", "hello", "challenge", "cf0693d854e236f8c78a2b021918bce538e7a69a936076f18640f2357a8ed725"},
    {true, AUTH_WORKER, "h", "ello", "challenge", "deee842c22771ee1d8c9b893b38498a84c48ec576c81e2c732b07d0d7bad6343"},
    {true, AUTH_REDUCER, "0", "", "c", "7088112bdeca33984b2d554d40c8fbbe169888fe253fdc96de0faa7be0bc9d25"},
};

START_TEST(proofs_match_the_specification)
{
	struct auth_secret s = {.len = 16, .bytes = "0123456789abcdef"};
	struct auth_transcript t = {
	    .binding = (const uint8_t *)vectors[_i].binding,
	    .binding_len = strlen(vectors[_i].binding),
	    .hello = (const uint8_t *)vectors[_i].hello,
	    .hello_len = strlen(vectors[_i].hello),
	    .challenge = (const uint8_t *)vectors[_i].challenge,
	    .challenge_len = strlen(vectors[_i].challenge),
	};
	uint8_t bytes[256], mac[AUTH_MAC];
	char text[2 * AUTH_MAC + 1];
	struct rs_err e;

	for (unsigned i = 0; i < 256; i++)
		bytes[i] = (uint8_t)i;
	if (vectors[_i].large)
		for (s.len = 0; s.len < 1024; s.len += 256)
			memcpy(s.bytes + s.len, bytes, 256);
	if (vectors[_i].binding[0] == '0') { /* the bytes 0 to 31 */
		t.binding = bytes;
		t.binding_len = 32;
	}
	ck_assert_int_eq(auth_mac(mac, &s, vectors[_i].side, &t, &e), RS_OK);
	for (unsigned i = 0; i < AUTH_MAC; i++)
		snprintf(text + 2 * i, 3, "%02x", mac[i]);
	ck_assert_str_eq(text, vectors[_i].want);
}
END_TEST

START_TEST(proofs_are_equal_in_all_their_bytes)
{
	uint8_t a[AUTH_MAC] = {1, 2, 3}, b[AUTH_MAC] = {1, 2, 3};

	ck_assert(auth_equal(a, b));
	for (unsigned i = 0; i < 8 * AUTH_MAC; i++) {
		b[i / 8] ^= (uint8_t)(1 << i % 8);
		ck_assert(!auth_equal(a, b));
		b[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}
END_TEST

static char dir[] = "/tmp/test_auth.XXXXXX";

static const char *write_file(size_t len, const char *end, mode_t mode)
{
	static char path[64];
	FILE *f;

	snprintf(path, sizeof path, "%s/secret", dir);
	unlink(path);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	for (size_t i = 0; i < len; i++)
		fputc('a' + (int)(i % 26), f);
	fputs(end, f);
	fclose(f);
	ck_assert_int_eq(chmod(path, mode), 0);
	return path;
}

static const struct {
	size_t len;
	const char *end;
	mode_t mode;
	unsigned want; /* bytes of the secret; 0: refused */
	const char *says;
} files[] = {
    {16, "", 0600, 16, NULL},
    {16, "\n", 0600, 16, NULL},
    {16, "\n", 0440, 16, NULL},
    {15, "\n\n", 0400, 16, NULL}, /* only one newline is removed */
    {1024, "", 0600, 1024, NULL},
    {1024, "\n", 0600, 1024, NULL},
    {0, "", 0600, 0, "has 0 bytes; expected a secret of 16 to 1024 bytes"},
    {15, "", 0600, 0, "has 15 bytes; expected a secret of 16 to 1024 bytes"},
    {15, "\n", 0600, 0, "has 15 bytes; expected a secret of 16 to 1024 bytes"},
    {1024, "x", 0600, 0, "has more than 1024 bytes; expected a secret of 16 to 1024 bytes"},
    {1024, "\n\n", 0600, 0, "has more than 1024 bytes; expected a secret of 16 to 1024 bytes"},
    {9999, "", 0600, 0, "has more than 1024 bytes; expected a secret of 16 to 1024 bytes"},
    {32, "", 0604, 0, "has mode 0604, so everybody can read it; expected a mode such as 0600"},
    {32, "", 0644, 0, "has mode 0644, so everybody can read it; expected a mode such as 0600"},
    {32, "", 0602, 0, "has mode 0602, so everybody can change it; expected a mode such as 0600"},
};

START_TEST(secret_files_are_validated)
{
	const char *path = write_file(files[_i].len, files[_i].end, files[_i].mode);
	struct auth_secret s = {.len = 77};
	struct rs_err e = {.code = RS_OK};
	int rc = auth_secret_load(&s, path, &e);

	if (files[_i].want) {
		ck_assert_msg(rc == RS_OK, "%s", e.msg);
		ck_assert_uint_eq(s.len, files[_i].want);
		ck_assert_mem_eq(s.bytes, "abcdefghijklmno", 15);
		auth_secret_clear(&s);
		ck_assert_uint_eq(s.len, 0);
		ck_assert_uint_eq(s.bytes[0], 0);
		return;
	}
	ck_assert_int_eq(rc, RS_ECONFIG);
	ck_assert_int_eq(e.code, RS_ECONFIG);
	ck_assert_uint_eq(s.len, 77);
	ck_assert_msg(strstr(e.msg, files[_i].says), "\"%s\"", e.msg);
	ck_assert_msg(strstr(e.msg, path), "\"%s\"", e.msg);
}
END_TEST

static const struct {
	const char *end;
	bool good;
} tokens[] = {
    {"", true},     {"\n", true},    {"~!", true},        {" ", false},    {"\r\n", false},
    {"\tx", false}, {"\x7f", false}, {"\xc3\xa4", false}, {"\n\n", false},
};

/* A token is sent as the value of a header. */
START_TEST(a_token_is_text)
{
	const char *path = write_file(32, tokens[_i].end, 0600);
	struct auth_secret s = {.len = 77};
	struct rs_err e;

	ck_assert_int_eq(auth_token_load(&s, path, &e), tokens[_i].good ? RS_OK : RS_ECONFIG);
	if (tokens[_i].good)
		return;
	ck_assert_uint_eq(s.len, 77);
	ck_assert_msg(strstr(e.msg, path) && strstr(e.msg, "must be printable ASCII without blanks"), "\"%s\"", e.msg);
}
END_TEST

START_TEST(paths_that_are_no_regular_file_are_refused)
{
	struct auth_secret s;
	struct rs_err e;
	char path[64];

	ck_assert_int_eq(auth_secret_load(&s, dir, &e), RS_ECONFIG);
	ck_assert_msg(strstr(e.msg, "is not a regular file"), "\"%s\"", e.msg);
	snprintf(path, sizeof path, "%s/none", dir);
	ck_assert_int_eq(auth_secret_load(&s, path, &e), RS_EIO);
	ck_assert_msg(strstr(e.msg, "cannot be opened: No such file"), "\"%s\"", e.msg);
	/* a FIFO without a writer: opening it must not block */
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(auth_secret_load(&s, path, &e), RS_ECONFIG);
	ck_assert_msg(strstr(e.msg, "is not a regular file"), "\"%s\"", e.msg);
	unlink(path);
}
END_TEST

START_TEST(random_numbers_differ)
{
	uint8_t a[AUTH_NONCE], b[AUTH_NONCE];
	struct rs_err e;

	ck_assert_int_eq(auth_random(a, sizeof a, &e), RS_OK);
	ck_assert_int_eq(auth_random(b, sizeof b, &e), RS_OK);
	ck_assert_mem_ne(a, b, sizeof a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("auth");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	char path[64];
	int failed;

	if (!mkdtemp(dir))
		return 1;
	tcase_add_loop_test(tc, proofs_match_the_specification, 0, sizeof vectors / sizeof vectors[0]);
	tcase_add_test(tc, proofs_are_equal_in_all_their_bytes);
	tcase_add_loop_test(tc, secret_files_are_validated, 0, sizeof files / sizeof files[0]);
	tcase_add_loop_test(tc, a_token_is_text, 0, sizeof tokens / sizeof tokens[0]);
	tcase_add_test(tc, paths_that_are_no_regular_file_are_refused);
	tcase_add_test(tc, random_numbers_differ);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	snprintf(path, sizeof path, "%s/secret", dir);
	unlink(path);
	rmdir(dir);
	return failed != 0;
}
