/* SPDX-License-Identifier: Apache-2.0 */
/* The variables of MPI programs, and the line at their end. */
#include "agent/mpi/report.h"
#include "agent/mpi/settings.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *use, *bytes, *deterministic, *config; /* NULL: not set */
	struct settings settings;
	const char *why; /* NULL: they are right */
} rows[] = {
    {.settings = {SETTINGS_AUTO, 131072, 1, 0}},
    {"", "", "", "", .settings = {SETTINGS_AUTO, 131072, 1, 0}},
    {"off", "1", "1", "job.yaml", .settings = {SETTINGS_OFF, 1, -1, 1}},
    {"auto", "1048576", "0", "job.yaml", .settings = {SETTINGS_AUTO, 1048576, -1, 1}},
    {"required", .settings = {SETTINGS_REQUIRED, 131072, 1, 0}},
    {"on", .why = "REDUCTION_MPI is \"on\", off, auto or required was expected"},
    {.bytes = "0", .why = "REDUCTION_MPI_MIN_BYTES is \"0\", a number of bytes from 1 on was expected"},
    {.bytes = "64KiB", .why = "REDUCTION_MPI_MIN_BYTES is \"64KiB\", a number of bytes from 1 on was expected"},
    {.bytes = "99999999999999999999",
     .why = "REDUCTION_MPI_MIN_BYTES is \"99999999999999999999\", a number of bytes from 1 on was expected"},
};

static void set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

START_TEST(settings_are_read)
{
	const struct settings *want = &rows[_i].settings;
	struct settings s;
	char why[256] = "";

	set("REDUCTION_MPI", rows[_i].use);
	set("REDUCTION_MPI_MIN_BYTES", rows[_i].bytes);
	set("REDUCTION_DETERMINISTIC", rows[_i].deterministic);
	set("REDUCTION_CONFIG", rows[_i].config);
	ck_assert_int_eq(settings_read(&s, why, sizeof why), rows[_i].why ? -1 : 0);
	ck_assert_str_eq(why, rows[_i].why ? rows[_i].why : "");
	if (rows[_i].why)
		return;
	ck_assert_int_eq(s.use, want->use);
	ck_assert_int_eq(s.min_bytes, want->min_bytes);
	ck_assert_int_eq(s.deterministic, want->deterministic);
	ck_assert_int_eq(s.configured, want->configured);
}
END_TEST

START_TEST(the_line_at_the_end)
{
	struct report r = {0};
	char text[1024], little[40];

	report_text(&r, 65536, text, sizeof text);
	ck_assert_str_eq(text, "0 calls (0.0 KiB) through reducers, 0 calls (0.0 KiB) passed on to MPI");
	report_count(&r, PASS_NOT, 3 << 20);
	report_count(&r, PASS_SMALL, 512);
	report_count(&r, PASS_SMALL, 512);
	report_count(&r, PASS_TYPE, -1);
	report_text(&r, 65536, text, sizeof text);
	ck_assert_str_eq(text,
			 "1 call (3.0 MiB) through reducers, 3 calls (1.0 KiB) passed on to MPI: 2 too small (less "
			 "than 65536 bytes), 1 of a type that reducers do not sum");
	report_text(&r, 65536, little, sizeof little);
	ck_assert_str_eq(little, "1 call (3.0 MiB) through reducers, 3 ca");
	for (int p = 0; p < PASSES; p++) /* all reasons have room */
		for (int i = 0; i < 3; i++)
			report_count(&r, (enum pass)p, (int64_t)1 << 60);
	report_text(&r, 65536, text, sizeof text);
	ck_assert_ptr_nonnull(strstr(text, "3 non-blocking without MPI_THREAD_MULTIPLE"));
	ck_assert_ptr_null(strstr(text, "(null)"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mpi_settings");
	TCase *t = tcase_create("core");
	SRunner *r;
	int failed;

	tcase_add_loop_test(t, settings_are_read, 0, sizeof rows / sizeof *rows);
	tcase_add_test(t, the_line_at_the_end);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
