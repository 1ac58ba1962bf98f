/* SPDX-License-Identifier: Apache-2.0 */
/* run: tsan */
/* The host of a daemon whose callbacks only note what they were told: signals, the drain,
 * reloads, renewals and the log. The ports and what comes through them are tested with
 * real daemons. */
#include "common/descriptors.h"
#include "common/host/host_state.h"
#include "common/loop_uv.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A daemon. */
struct world {
	uv_loop_t loop;
	struct rs_log log;
	struct rs_config cfg, reloaded;
	struct host host;
	char file[64];
	unsigned drains, reloads, renewals;
	uint64_t deadline_ms;
	bool reload_fails, renew_fails;
	char lines[4096]; /* what was logged */
};

static struct host_load on_load(void *ctx)
{
	(void)ctx;
	return (struct host_load){.jobs = 2, .ranks = 1};
}

static bool on_turned(void *ctx)
{
	(void)ctx;
	return true;
}

static void on_drain(void *ctx, uint64_t deadline_ms)
{
	struct world *w = ctx;

	w->drains++;
	w->deadline_ms = deadline_ms;
	uv_stop(&w->loop);
}

static int on_reload(void *ctx, struct rs_config *fresh, struct rs_err *e)
{
	struct world *w = ctx;

	w->reloads++;
	uv_stop(&w->loop);
	if (w->reload_fails)
		return rs_fail(e, RS_ECONFIG, "the daemon refuses");
	rs_config_close(&w->reloaded);
	w->reloaded = *fresh;
	return RS_OK;
}

static int on_renew(void *ctx, const struct rs_config *cfg, struct rs_err *e)
{
	struct world *w = ctx;

	(void)cfg;
	w->renewals++;
	return w->renew_fails ? rs_fail(e, RS_ECONFIG, "no pair") : RS_OK;
}

static void *on_collect(void *ctx, unsigned *ret_due)
{
	(void)ctx;
	(void)ret_due;
	return NULL;
}

static struct status_reply *on_complete(void *ctx, void *status)
{
	(void)ctx;
	return status;
}

static void on_status_free(void *status)
{
	free(status);
}

/* Stands for the log's file. */
static void on_line(void *ctx, enum rs_log_level level, const char *event, const struct rs_kv *kv, unsigned n)
{
	struct world *w = ctx;
	size_t used = strlen(w->lines);

	used += (size_t)snprintf(w->lines + used, sizeof w->lines - used, "%d %s", level, event);
	for (unsigned i = 0; i < n; i++)
		used += (size_t)snprintf(w->lines + used, sizeof w->lines - used, " %s=%s", kv[i].key,
					 kv[i].kind == RS_KV_STR ? kv[i].s : "number");
	snprintf(w->lines + used, sizeof w->lines - used, "\n");
}

static const char *const fixed[] = {"server.listen", "server.lanes", "timeouts.detect", NULL};

static const struct host_daemon testing = {
    .process = "reducer",
    .section = "server",
    .rank = "rank",
    .taken = "limits taken over",
    .fixed = fixed,
    .load = on_load,
    .turned = on_turned,
    .drain = on_drain,
    .reload = on_reload,
    .renew = on_renew,
    .collect = on_collect,
    .complete = on_complete,
    .status_free = on_status_free,
};

static void write_file(struct world *w, const char *text)
{
	FILE *f = fopen(w->file, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

static struct world w;

static void setup(void)
{
	struct rs_err e;
	int fd;

	memset(&w, 0, sizeof w);
	snprintf(w.file, sizeof w.file, "/tmp/test_host.XXXXXX");
	fd = mkstemp(w.file);
	ck_assert_int_ge(fd, 0);
	close(fd);
	write_file(&w, "timeouts: {drain: 7s}\nlogging: {level: info}\n");
	ck_assert_int_eq(rs_config_load(&w.cfg, w.file, &e), RS_OK);
	w.log =
	    (struct rs_log){.level = RS_LOG_ERROR, .fd = -1, .tap = on_line, .tap_ctx = &w, .tap_level = RS_LOG_INFO};
	ck_assert_int_eq(rs_loop_init(&w.loop, RS_LOOP_DESCRIPTORS, &e), RS_OK);
	host_init(&w.host, &(struct host_options){.daemon = &testing,
						  .ctx = &w,
						  .loop = &w.loop,
						  .cfg = &w.cfg,
						  .config_file = w.file,
						  .as_read = &w.cfg,
						  .log = &w.log});
}

static void teardown(void)
{
	host_stop(&w.host);
	host_stop_grpc(&w.host);
	host_close(&w.host);
	while (uv_run(&w.loop, UV_RUN_DEFAULT)) /* uv_stop may have been called outside */
		continue;
	host_free(&w.host);
	ck_assert_int_eq(uv_loop_close(&w.loop), 0);
	rs_config_close(&w.cfg);
	rs_config_close(&w.reloaded);
	unlink(w.file);
}

START_TEST(a_signal_drains)
{
	kill(getpid(), _i ? SIGINT : SIGTERM);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(w.drains, 1);
	ck_assert_uint_eq(w.deadline_ms, w.host.deadline_ms);
	ck_assert_uint_eq(w.host.drain_limit_ms, 7000); /* timeouts.drain */
	ck_assert_str_eq(w.lines,
			 _i ? "2 draining by=SIGINT jobs=number ranks=number left_ms=number because=SIGINT\n"
			    : "2 draining by=SIGTERM jobs=number ranks=number left_ms=number because=SIGTERM\n");
}
END_TEST

START_TEST(sigpwr_drains_and_does_not_count)
{
	kill(getpid(), SIGPWR);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(w.drains, 1);
	ck_assert_str_eq(w.host.because, "SIGPWR");
	ck_assert(!w.host.signalled); /* SIGTERM, which follows, does not end the process at once */
}
END_TEST

/* A notice: the text of its file, with its reason and the time that jobs have. "%s" in it
 * is the time in `in_s` seconds. */
static const struct {
	const char *text;
	int in_s;
	const char *because;
	uint32_t least_ms, most_ms;
} notices[] = {
    {"", 0, "a notice without a reason", 7000, 7000}, /* timeouts.drain */
    {"maintenance", 0, "maintenance", 7000, 7000},
    {"maintenance\nbefore %s\n", 120, "maintenance", 116000, 118000},
    {"maintenance\nbefore %s\n", 0, "maintenance", 1000, 1000},
    {"maintenance\nbefore %s\n", -600, "maintenance", 1000, 1000},
    {"maintenance\nbefore %s\n", 864000, "maintenance", 86400000, 86400000},
    {"maintenance\nbefore %s and more\n", 120, "maintenance", 7000, 7000},
    {"maintenance\nbefore noon\n", 0, "maintenance", 7000, 7000},
    {"bell\a and \xff\n\nmore\n", 0, "bell? and ?", 7000, 7000},
};

START_TEST(a_notice_drains)
{
	char text[128], at[32];
	time_t then = time(NULL) + notices[_i].in_s;

	strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime(&then));
	snprintf(text, sizeof text, notices[_i].text, at);
	w.host.opt.notice = w.file;
	write_file(&w, text);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(w.drains, 1);
	ck_assert_str_eq(w.host.because, notices[_i].because);
	ck_assert_uint_ge(w.host.drain_limit_ms, notices[_i].least_ms);
	ck_assert_uint_le(w.host.drain_limit_ms, notices[_i].most_ms);
	ck_assert_ptr_nonnull(strstr(w.lines, "2 draining by=notice "));
}
END_TEST

START_TEST(a_long_notice_is_cut)
{
	char text[3000];

	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = '\0';
	w.host.opt.notice = w.file;
	write_file(&w, text);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(strlen(w.host.because), sizeof w.host.because - 1);
}
END_TEST

START_TEST(a_notice_gives_a_signal_its_reason)
{
	w.host.opt.notice = w.file;
	write_file(&w, "maintenance");
	host_drain(&w.host, "SIGTERM", NULL, 0);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(w.host.because, "maintenance");
	ck_assert_ptr_nonnull(strstr(w.lines, "2 draining by=SIGTERM "));
}
END_TEST

START_TEST(a_notice_from_before_the_start_drains_before_the_loop_runs)
{
	w.host.opt.notice = w.file;
	host_ready(&w.host);
	ck_assert_uint_eq(w.drains, 1);
}
END_TEST

START_TEST(a_notice_that_cannot_be_read_is_none)
{
	w.host.opt.notice = "/tmp";
	host_notice_tick(&w.host);
	host_notice_tick(&w.host);
	ck_assert(!w.host.draining);
	ck_assert_str_eq(w.lines, "1 notice-unreadable file=/tmp reason=Is a directory\n"); /* once */
	w.host.opt.notice = "/nowhere/notice";
	host_notice_tick(&w.host);
	ck_assert(!w.host.draining);
}
END_TEST

START_TEST(a_second_drain_changes_the_limit_only_if_it_has_one)
{
	uint64_t first;

	ck_assert_uint_eq(host_drain_left_ms(&w.host), 0);
	host_drain(&w.host, "a", NULL, 0);
	ck_assert_uint_eq(w.drains, 0); /* not from within the call */
	uv_run(&w.loop, UV_RUN_DEFAULT);
	first = w.deadline_ms;
	host_drain(&w.host, "b", NULL, 0);
	uv_run(&w.loop, UV_RUN_NOWAIT);
	uv_run(&w.loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(w.drains, 1);
	ck_assert_uint_eq(w.host.deadline_ms, first);
	host_drain(&w.host, "c", NULL, 90000);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(w.drains, 2);
	ck_assert_uint_gt(w.deadline_ms, first);
	ck_assert_uint_eq(w.host.drain_limit_ms, 90000);
	ck_assert_uint_gt(host_drain_left_ms(&w.host), 7000);
}
END_TEST

static const struct {
	const char *yaml;
	const char *result; /* NULL: refused */
	const char *says;   /* in the log, or the error */
} reloads[] = {
    {"{}", "limits taken over", "2 reload result=limits taken over"},
    {"server: {max_jobs: 3}", "limits taken over", "2 reload result=limits taken over"},
    {"server: {listen: 127.0.0.1:1, lanes: 3}\ntimeouts: {detect: 3s}",
     "limits taken over; changes of server.listen, server.lanes, timeouts.detect need a restart",
     "1 reload result=changes of server.listen, server.lanes, timeouts.detect need a restart"},
    {"server: {lanes: none}", NULL, "server.lanes"},
    {"security: {read_token: /nowhere/token}", "limits taken over", "2 reload"}, /* there is no port that needs it */
};

START_TEST(a_reload_says_what_needs_a_restart)
{
	char result[SERVICE_RESULT] = "";
	struct rs_err e;
	int rc;

	write_file(&w, reloads[_i].yaml);
	rc = host_reload(&w.host, result, &e);
	ck_assert_int_eq(rc == RS_OK, reloads[_i].result != NULL);
	ck_assert_uint_eq(w.reloads, reloads[_i].result != NULL);
	if (reloads[_i].result)
		ck_assert_str_eq(result, reloads[_i].result);
	ck_assert_msg(strstr(w.lines, reloads[_i].says) != NULL, "%s", w.lines);
}
END_TEST

START_TEST(what_a_reload_changes)
{
	char result[SERVICE_RESULT];
	struct rs_err e;

	write_file(&w, "timeouts: {drain: 9s}\nlogging: {level: info}\n");
	ck_assert_int_eq(host_reload(&w.host, result, &e), RS_OK);
	ck_assert_int_eq(w.log.level, RS_LOG_ERROR); /* of the command line: the file has not changed */
	host_drain(&w.host, "test", NULL, 0);
	ck_assert_uint_eq(w.host.drain_limit_ms, 9000);
	write_file(&w, "logging: {level: warn}\n");
	ck_assert_int_eq(host_reload(&w.host, result, &e), RS_OK);
	ck_assert_int_eq(w.log.level, RS_LOG_WARN);
	w.reload_fails = true;
	write_file(&w, "logging: {level: debug}\n");
	ck_assert_int_eq(host_reload(&w.host, result, &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, "the daemon refuses");
	ck_assert_int_eq(w.log.level, RS_LOG_WARN);
	ck_assert_ptr_nonnull(strstr(w.lines, "0 reload result=kept the old configuration reason=the daemon refuses"));
}
END_TEST

START_TEST(sighup_reloads)
{
	kill(getpid(), SIGHUP);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(w.reloads, 1);
}
END_TEST

/* The next look at the files is due. */
static void look(void)
{
	w.host.renewal.looked_ms = uv_now(&w.loop) - HOST_LOOK_MS;
	w.lines[0] = '\0';
	host_renewal_tick(&w.host);
}

START_TEST(changed_files_are_read_again)
{
	static const char refused[] = "1 renew result=kept the old files reason=no pair\n";
	static const char renewed[] = "2 renew result=certificate, key, authority and tokens read again\n";
	char result[SERVICE_RESULT], other[sizeof w.file + 4];
	struct rs_err e;

	look();
	ck_assert_uint_eq(w.renewals, 0);
	/* a reload that names them has read them */
	write_file(&w, "security: {key: /nowhere/key}\n");
	ck_assert_int_eq(host_reload(&w.host, result, &e), RS_OK);
	snprintf(w.host.renewal.cfg.security.key, sizeof w.host.renewal.cfg.security.key, "%s", w.file);
	w.renew_fails = true;
	look();
	ck_assert_str_eq(w.lines, refused);
	look(); /* tried again, and said once */
	ck_assert_uint_eq(w.renewals, 2);
	ck_assert_str_eq(w.lines, "");
	w.renew_fails = false;
	look();
	ck_assert_str_eq(w.lines, renewed);
	look();
	ck_assert_uint_eq(w.renewals, 3);
	/* another file of the same size in its place */
	snprintf(other, sizeof other, "%s.new", w.file);
	ck_assert_int_eq(rename(w.file, other), 0);
	write_file(&w, "security: {key: /nowhere/key}\n");
	unlink(other);
	look();
	ck_assert_uint_eq(w.renewals, 4);
	/* a token is not a matter of TLS */
	snprintf(w.host.renewal.cfg.security.read_token, sizeof w.host.renewal.cfg.security.read_token, "%s", w.file);
	look();
	ck_assert_uint_eq(w.renewals, 4);
	ck_assert_str_eq(w.lines, "2 renew result=tokens read again\n");
	host_renewal_tick(&w.host); /* not due */
}
END_TEST

/* In a process of its own, also where Check's tests share one. */
START_TEST(a_second_signal_ends_at_once)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		if (uv_loop_fork(&w.loop))
			_exit(2);
		for (unsigned i = 0; i < 2; i++) {
			kill(getpid(), SIGTERM);
			uv_run(&w.loop, UV_RUN_DEFAULT);
		}
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("host");
	TCase *t = tcase_create("host");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_signal_drains, 0, 2);
	tcase_add_test(t, sigpwr_drains_and_does_not_count);
	tcase_add_loop_test(t, a_notice_drains, 0, sizeof notices / sizeof notices[0]);
	tcase_add_test(t, a_long_notice_is_cut);
	tcase_add_test(t, a_notice_gives_a_signal_its_reason);
	tcase_add_test(t, a_notice_from_before_the_start_drains_before_the_loop_runs);
	tcase_add_test(t, a_notice_that_cannot_be_read_is_none);
	tcase_add_test(t, a_second_drain_changes_the_limit_only_if_it_has_one);
	tcase_add_loop_test(t, a_reload_says_what_needs_a_restart, 0, sizeof reloads / sizeof reloads[0]);
	tcase_add_test(t, what_a_reload_changes);
	tcase_add_test(t, sighup_reloads);
	tcase_add_test(t, changed_files_are_read_again);
	tcase_add_test(t, a_second_signal_ends_at_once);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
