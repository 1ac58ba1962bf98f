/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A log into a pipe, and its output. */
struct capture {
	struct rs_log log;
	int read_fd;
	ssize_t len;
	char text[8192];
};

static void capture_init(struct capture *c, bool json)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
	c->log = (struct rs_log){.level = RS_LOG_INFO, .json = json, .fd = fds[1]};
	c->read_fd = fds[0];
}

static void capture_close(struct capture *c)
{
	close(c->read_fd);
	close(c->log.fd);
}

/* Returns the lines since the last call; "" if there are none. */
static const char *capture_text(struct capture *c)
{
	c->len = read(c->read_fd, c->text, sizeof c->text - 1);
	c->text[c->len > 0 ? c->len : 0] = '\0';
	return c->text;
}

/* Skips a JSON string of valid UTF-8 (by its leading bytes); returns NULL if there is
 * none. */
static const char *json_string(const char *s)
{
	if (*s++ != '"')
		return NULL;
	while (*s != '"') {
		unsigned char c = (unsigned char)*s;
		size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;

		if (c < 0x20 || (c >= 0x80 && c < 0xc2) || c > 0xf4)
			return NULL;
		for (size_t i = 1; i < n; i++)
			if (((unsigned char)s[i] & 0xc0) != 0x80)
				return NULL;
		s += n;
		if (c != '\\')
			continue;
		if (*s == 'u' && strspn(s + 1, "0123456789abcdefABCDEF") >= 4)
			s += 5;
		else if (*s && strchr("\"\\/bfnrt", *s))
			s++;
		else
			return NULL;
	}
	return s + 1;
}

/* Is it one line with one flat JSON object? */
static bool json_line(const char *s)
{
	char *end;

	if (*s != '{')
		return false;
	do {
		s = json_string(s + 1);
		if (!s || *s++ != ':')
			return false;
		if (*s == '"') {
			s = json_string(s);
		} else if (strncmp(s, "null", 4) == 0 || strncmp(s, "true", 4) == 0) {
			s += 4;
		} else {
			if (!strchr("-0123456789", *s))
				return false;
			strtod(s, &end);
			s = end;
		}
	} while (s && *s == ',');
	return s && strcmp(s, "}\n") == 0;
}

START_TEST(text_line)
{
	struct capture c;

	capture_init(&c, false);
	rs_log(&c.log, RS_LOG_INFO, "job-started", rs_kv_s("job", "resnet"), rs_kv_u("ranks", 4), rs_kv_i("left", -2),
	       rs_kv_d("ms", 0.25), rs_kv_s("peer", "10.0.0.1 port 7"), rs_kv_s("none", NULL));
	capture_text(&c);
	/* 2026-11-21T05:34:01.123Z */
	ck_assert_uint_eq(strspn(c.text, "0123456789-:.TZ"), 24);
	ck_assert_int_eq(c.text[23], 'Z');
	ck_assert_str_eq(c.text + 24, " info  job-started job=resnet ranks=4 left=-2 ms=0.25 peer=\"10.0.0.1 port 7\" "
				      "none=\"\"\n");
	rs_log(&c.log, RS_LOG_ERROR, "x", rs_kv_u("max", UINT64_MAX), rs_kv_i("min", INT64_MIN));
	ck_assert_str_eq(capture_text(&c) + 24, " error x max=18446744073709551615 min=-9223372036854775808\n");
	capture_close(&c);
}
END_TEST

START_TEST(json_form)
{
	struct capture c;

	capture_init(&c, true);
	rs_log(&c.log, RS_LOG_WARN, "slow-rank", rs_kv_s("job", "a b"), rs_kv_u("rank", 3), rs_kv_d("nan", NAN),
	       rs_kv_d("inf", -INFINITY), rs_kv_d("big", 1e300));
	capture_text(&c);
	ck_assert(json_line(c.text));
	ck_assert_mem_eq(c.text, "{\"ts\":\"", 7);
	ck_assert_str_eq(c.text + 31, "\",\"level\":\"warn\",\"event\":\"slow-rank\",\"job\":\"a b\",\"rank\":3,"
				      "\"nan\":null,\"inf\":null,\"big\":1e+300}\n");
	capture_close(&c);
}
END_TEST

static const struct {
	const char *value, *text, *json;
} values[] = {
    {"plain", "plain", "\"plain\""},
    {"", "\"\"", "\"\""},
    {"a=b", "\"a=b\"", "\"a=b\""},
    {"a\"b\\", "\"a\\\"b\\\\\"", "\"a\\\"b\\\\\""},
    {"two\nlines\r", "\"two\\nlines\\u000d\"", "\"two\\nlines\\u000d\""},
    {"\x1b[2J\x7f", "\"\\u001b[2J\\u007f\"", "\"\\u001b[2J\\u007f\""},
    {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"",
     "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\""},
    {"\xc2\x9b", "\"\\u009b\"", "\"\\u009b\""},                                 /* a control character of terminals */
    {"\xff\x80", "\"\\\\xff\\\\x80\"", "\"\\\\xff\\\\x80\""},                   /* no UTF-8 */
    {"\xc3", "\"\\\\xc3\"", "\"\\\\xc3\""},                                     /* ends too early */
    {"\xe2\x82z", "\"\\\\xe2\\\\x82z\"", "\"\\\\xe2\\\\x82z\""},                /* so does that */
    {"\xc0\xaf", "\"\\\\xc0\\\\xaf\"", "\"\\\\xc0\\\\xaf\""},                   /* overlong */
    {"\xed\xa0\x80", "\"\\\\xed\\\\xa0\\\\x80\"", "\"\\\\xed\\\\xa0\\\\x80\""}, /* a surrogate */
    {"\xf4\x90\x80\x80", "\"\\\\xf4\\\\x90\\\\x80\\\\x80\"", "\"\\\\xf4\\\\x90\\\\x80\\\\x80\""},
};

START_TEST(values_are_escaped)
{
	char want[256];
	struct capture c;

	capture_init(&c, false);
	rs_log(&c.log, RS_LOG_INFO, "e", rs_kv_s("k", values[_i].value));
	snprintf(want, sizeof want, " info  e k=%s\n", values[_i].text);
	ck_assert_str_eq(capture_text(&c) + 24, want);
	c.log.json = true;
	rs_log(&c.log, RS_LOG_INFO, "e", rs_kv_s("k", values[_i].value));
	snprintf(want, sizeof want, ",\"event\":\"e\",\"k\":%s}\n", values[_i].json);
	ck_assert(json_line(capture_text(&c)));
	ck_assert_str_eq(strstr(c.text, ",\"event\""), want);
	capture_close(&c);
}
END_TEST

/* lines around and over the limit, from characters of all widths, with more pairs
 * behind */
START_TEST(long_lines_are_cut_and_stay_valid)
{
	static const char *const units[] = {"a",    " ",        "\"",           "\x01",
					    "\xff", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
	char big[6000];

	for (int json = 0; json < 2; json++)
		for (size_t len = 0; len < 5000; len = len < 600 ? len + 599 : len + 1) {
			const char *unit = units[len % (sizeof units / sizeof units[0])];
			struct capture c;

			for (size_t i = 0; i < len; i++)
				big[i] = unit[i % strlen(unit)];
			big[len - len % strlen(unit)] = '\0';
			capture_init(&c, json);
			rs_log(&c.log, RS_LOG_INFO, "e", rs_kv_s("first", "1"), rs_kv_s("big", big), rs_kv_u("n", len),
			       rs_kv_s("last", "word"));
			capture_text(&c);
			ck_assert_int_le(c.len, 4096);
			ck_assert_ptr_eq(strchr(c.text, '\n'), c.text + c.len - 1);
			ck_assert_msg(!json || json_line(c.text), "no JSON at %zu bytes: %s", len, c.text);
			if (strstr(c.text, json ? "\"cut\":true}" : " cut=true\n"))
				ck_assert_msg(c.len > 4096 - 32 - 20, "cut at %zd bytes for %zu: %s", c.len, len,
					      c.text);
			else
				ck_assert_ptr_nonnull(strstr(c.text, json ? "\"last\":\"word\"}" : " last=word\n"));
			capture_close(&c);
		}
}
END_TEST

START_TEST(many_pairs_are_cut_whole)
{
	struct rs_kv kv[500];
	struct capture c;

	for (size_t i = 0; i < 500; i++)
		kv[i] = i % 2 ? rs_kv_u("number", 1000000 + i) : rs_kv_s("word", "abcdefg");
	capture_init(&c, true);
	rs_log_write(&c.log, RS_LOG_INFO, "e", kv, 500);
	ck_assert(json_line(capture_text(&c)));
	ck_assert_ptr_nonnull(strstr(c.text, ",\"cut\":true}\n"));
	c.log.json = false;
	rs_log_write(&c.log, RS_LOG_INFO, "e", kv, 500);
	ck_assert_ptr_nonnull(strstr(capture_text(&c), " cut=true\n"));
	capture_close(&c);
}
END_TEST

START_TEST(levels_filter)
{
	struct capture c;
	int evaluated = 0;

	capture_init(&c, false);
	for (int limit = 0; limit < RS_LOG_NR; limit++)
		for (int level = 0; level < RS_LOG_NR; level++) {
			c.log.level = limit;
			rs_log(&c.log, (enum rs_log_level)level, "e", rs_kv_i("n", ++evaluated));
			ck_assert_int_eq(capture_text(&c)[0] != '\0', level <= limit);
			rs_log_write(&c.log, (enum rs_log_level)level, "e", NULL, 0);
			ck_assert_int_eq(capture_text(&c)[0] != '\0', level <= limit);
		}
	ck_assert_int_eq(evaluated, 5 + 4 + 3 + 2 + 1);
	rs_log((const struct rs_log *)NULL, RS_LOG_ERROR, "e", rs_kv_i("n", 1));
	capture_close(&c);
}
END_TEST

START_TEST(level_names)
{
	static const char *const names[RS_LOG_NR] = {"error", "warn", "info", "debug", "trace"};

	for (int i = 0; i < RS_LOG_NR; i++) {
		ck_assert_str_eq(rs_log_level_name((enum rs_log_level)i), names[i]);
		ck_assert_int_eq(rs_log_level_parse(names[i]), i);
	}
	ck_assert_str_eq(rs_log_level_name(RS_LOG_NR), "level?");
	ck_assert_int_eq(rs_log_level_parse(""), -1);
	ck_assert_int_eq(rs_log_level_parse("INFO"), -1);
}
END_TEST

/* a log that cannot be written does no harm */
START_TEST(write_errors_are_ignored)
{
	struct rs_log log = {.level = RS_LOG_INFO, .fd = -1};

	errno = ENOENT;
	rs_log(&log, RS_LOG_ERROR, "e", rs_kv_i("n", 1));
	ck_assert_int_eq(errno, ENOENT);
}
END_TEST

/* systemd sets JOURNAL_STREAM to the device and inode of the descriptor that is the
 * journal. */
START_TEST(the_journal_is_found)
{
	struct capture c;
	struct stat st;
	char stream[80];

	capture_init(&c, false);
	unsetenv("JOURNAL_STREAM");
	ck_assert(!rs_log_is_journal(c.log.fd));
	fstat(c.log.fd, &st);
	snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	ck_assert(rs_log_is_journal(c.log.fd));
	ck_assert(!rs_log_is_journal(STDIN_FILENO));
	ck_assert(!rs_log_is_journal(-1));
	setenv("JOURNAL_STREAM", "x", 1);
	ck_assert(!rs_log_is_journal(c.log.fd));
	capture_close(&c);
}
END_TEST

START_TEST(the_journal_gets_priorities)
{
	static const char *const lines[RS_LOG_NR] = {"<3>error e k=1\n", "<4>warn  e k=1\n", "<6>info  e k=1\n",
						     "<7>debug e k=1\n", "<7>trace e k=1\n"};
	struct capture c;
	const char *text;

	capture_init(&c, false);
	c.log.level = RS_LOG_TRACE;
	c.log.journal = true;
	rs_log(&c.log, (enum rs_log_level)_i, "e", rs_kv_u("k", 1));
	ck_assert_str_eq(capture_text(&c), lines[_i]);
	c.log.json = true;
	rs_log(&c.log, (enum rs_log_level)_i, "e", rs_kv_u("k", 1));
	text = capture_text(&c);
	ck_assert_int_eq(strncmp(text, lines[_i], 3), 0);
	ck_assert(json_line(text + 3));
	capture_close(&c);
}
END_TEST

/* Returns whether the message has a field of the binary form. */
static bool has_field(const char *message, size_t len, const char *name, const char *value)
{
	size_t name_len = strlen(name), n = strlen(value), want = name_len + 1 + 8 + n + 1;
	char field[256] = {0};

	memcpy(field, name, name_len);
	field[name_len] = '\n';
	field[name_len + 1] = (char)n;
	memcpy(field + name_len + 9, value, n);
	field[want - 1] = '\n';
	return memmem(message, len, field, want) != NULL;
}

START_TEST(journald_gets_fields)
{
	_Atomic unsigned lost = 0;
	char message[16384];
	struct capture c;
	ssize_t n;
	int fds[2];

	capture_init(&c, false);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds), 0);
	c.log.journal = true;
	c.log.journald = fds[0];
	c.log.lost = &lost;
	rs_log(&c.log, RS_LOG_WARN, "rank-late", rs_kv_s("job", "two\nlines"), rs_kv_u("rank", 3), rs_kv_i("i", -1),
	       rs_kv_d("d", 0.5), rs_kv_s("event", "other"));
	n = recv(fds[1], message, sizeof message, 0);
	ck_assert_int_gt(n, 0);
	ck_assert(has_field(message, (size_t)n, "MESSAGE",
			    "warn  rank-late job=\"two\\nlines\" rank=3 i=-1 d=0.5 event=other"));
	ck_assert(has_field(message, (size_t)n, "PRIORITY", "4"));
	ck_assert(has_field(message, (size_t)n, "SYSLOG_IDENTIFIER", "test_log"));
	ck_assert(has_field(message, (size_t)n, "EVENT", "rank-late"));
	ck_assert(has_field(message, (size_t)n, "JOB", "two\nlines"));
	ck_assert(has_field(message, (size_t)n, "RANK", "3"));
	ck_assert(has_field(message, (size_t)n, "I", "-1"));
	ck_assert(has_field(message, (size_t)n, "D", "0.5"));
	ck_assert(!has_field(message, (size_t)n, "EVENT", "other"));
	ck_assert_str_eq(capture_text(&c), "");
	/* a socket without room: the line is counted */
	while (!lost)
		rs_log(&c.log, RS_LOG_INFO, "e", rs_kv_u("k", 1));
	ck_assert_str_eq(capture_text(&c), "");
	/* without journald the lines go to standard error, as before */
	close(fds[1]);
	rs_log(&c.log, RS_LOG_INFO, "e", rs_kv_u("k", 1));
	ck_assert_str_eq(capture_text(&c), "<4>warn  log-lines-lost lines=1\n<6>info  e k=1\n");
	close(fds[0]);
	capture_close(&c);
}
END_TEST

/* A value that is longer than a message: the line is cut as always, and the value is no
 * field. */
START_TEST(journald_gets_no_long_fields)
{
	char message[16384], value[14000];
	struct capture c;
	ssize_t n;
	int fds[2];

	memset(value, 'x', sizeof value - 1);
	value[sizeof value - 1] = '\0';
	capture_init(&c, false);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds), 0);
	c.log.journal = true;
	c.log.journald = fds[0];
	rs_log(&c.log, RS_LOG_INFO, "e", rs_kv_s("long", value), rs_kv_u("after", 7));
	n = recv(fds[1], message, sizeof message, 0);
	ck_assert_int_gt(n, 4000);
	ck_assert_int_lt(n, 5000);
	ck_assert(has_field(message, (size_t)n, "AFTER", "7"));
	ck_assert_ptr_null(memmem(message, (size_t)n, "LONG\n", 5));
	close(fds[0]);
	close(fds[1]);
	capture_close(&c);
}
END_TEST

/* A pipe that is not read: logging does not block, and a later reader gets the number of
 * lost lines. */
START_TEST(full_pipes_do_not_block)
{
	_Atomic unsigned lost = 0;
	struct rs_log log = {.level = RS_LOG_INFO, .lost = &lost};
	char filler[4096] = {0}, text[8192];
	int fds[2], flags;
	ssize_t n;

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	log.fd = fds[1];
	flags = fcntl(fds[1], F_GETFL);
	fcntl(fds[1], F_SETFL, flags | O_NONBLOCK);
	while (write(fds[1], filler, sizeof filler) > 0)
		continue;
	fcntl(fds[1], F_SETFL, flags); /* as a daemon gets it */
	errno = ENOENT;
	for (int i = 0; i < 3; i++)
		rs_log(&log, RS_LOG_INFO, "unheard", rs_kv_i("n", i));
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_uint_eq(lost, 3);
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	while (read(fds[0], text, sizeof text) > 0)
		continue;
	rs_log(&log, RS_LOG_INFO, "heard", rs_kv_i("n", 3));
	n = read(fds[0], text, sizeof text - 1);
	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	ck_assert_ptr_eq(strstr(text, " warn  log-lines-lost lines=3\n"), text + 24);
	ck_assert_ptr_nonnull(strstr(text, " info  heard n=3\n"));
	ck_assert_uint_eq(lost, 0);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* A full disk takes no line; lost lines are counted too. */
START_TEST(full_disks_are_counted)
{
	_Atomic unsigned lost = 0;
	struct rs_log log = {.level = RS_LOG_INFO, .lost = &lost};

	log.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(log.fd, 0);
	rs_log(&log, RS_LOG_INFO, "e", rs_kv_i("n", 1));
	rs_log(&log, RS_LOG_INFO, "e", rs_kv_i("n", 2));
	ck_assert_uint_eq(lost, 2);
	close(log.fd);
}
END_TEST

START_TEST(limits)
{
	struct rs_log_limit lim = {.event = "knock", .per_s = 3};
	struct capture c;
	unsigned passed = 0;

	capture_init(&c, false);
	for (int i = 0; i < 10; i++)
		passed += rs_log_limit_pass(&lim, 5000 + (uint64_t)i);
	ck_assert_uint_eq(passed, 3);
	/* the second has not passed yet */
	ck_assert(rs_log_limit_report(&lim, &c.log, RS_LOG_WARN, 5999));
	ck_assert_uint_eq(rs_log_limit_next(&lim), 6000);
	ck_assert_str_eq(capture_text(&c), "");
	ck_assert(!rs_log_limit_report(&lim, &c.log, RS_LOG_WARN, 6000));
	ck_assert_str_eq(capture_text(&c) + 24, " warn  suppressed event=knock lines=7\n");
	ck_assert(!rs_log_limit_report(&lim, &c.log, RS_LOG_WARN, 7000));
	ck_assert_uint_eq(rs_log_limit_next(&lim), UINT64_MAX);
	ck_assert_str_eq(capture_text(&c), "");
	/* a new second has its own lines; suppressed ones of the last second are
	 * counted */
	for (int i = 0; i < 5; i++)
		rs_log_limit_pass(&lim, 8000);
	ck_assert(rs_log_limit_pass(&lim, 9000));
	ck_assert(!rs_log_limit_report(&lim, &c.log, RS_LOG_WARN, 9001));
	ck_assert_str_eq(capture_text(&c) + 24, " warn  suppressed event=knock lines=2\n");
	capture_close(&c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, text_line);
	tcase_add_test(tc, json_form);
	tcase_add_loop_test(tc, values_are_escaped, 0, sizeof values / sizeof values[0]);
	tcase_add_test(tc, long_lines_are_cut_and_stay_valid);
	tcase_add_test(tc, many_pairs_are_cut_whole);
	tcase_add_test(tc, levels_filter);
	tcase_add_test(tc, level_names);
	tcase_add_test(tc, write_errors_are_ignored);
	tcase_add_test(tc, the_journal_is_found);
	tcase_add_loop_test(tc, the_journal_gets_priorities, 0, RS_LOG_NR);
	tcase_add_test(tc, journald_gets_fields);
	tcase_add_test(tc, journald_gets_no_long_fields);
	tcase_add_test(tc, full_pipes_do_not_block);
	tcase_add_test(tc, full_disks_are_counted);
	tcase_add_test(tc, limits);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
