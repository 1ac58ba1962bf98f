/* SPDX-License-Identifier: Apache-2.0 */
#include "common/notify.h"

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The service manager's socket: an abstract one. */
struct manager {
	int fd;
	char text[2048];
};

static void manager_init(struct manager *m)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	char name[40];
	int n = snprintf(name, sizeof name, "@test-notify-%d", (int)getpid());

	memcpy(at.sun_path + 1, name + 1, (size_t)n - 1);
	m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(
	    bind(m->fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)), 0);
	setenv("NOTIFY_SOCKET", name, 1);
}

/* Returns the next message; "" if there is none. */
static const char *manager_text(struct manager *m)
{
	ssize_t n = recv(m->fd, m->text, sizeof m->text - 1, 0);

	m->text[n > 0 ? n : 0] = '\0';
	return m->text;
}

START_TEST(test_messages)
{
	struct manager m;
	struct rs_notify n;
	struct rs_err e;

	manager_init(&m);
	rs_notify_open(&n);
	ck_assert(rs_notify_on(&n));
	ck_assert_ptr_null(getenv("NOTIFY_SOCKET"));
	rs_notify_status(&n, "serving %d jobs", 3);
	ck_assert_str_eq(manager_text(&m), "STATUS=serving 3 jobs");
	rs_notify_status(&n, "serving %d jobs", 3);
	ck_assert_str_eq(manager_text(&m), ""); /* nothing has changed */
	rs_notify_ready(&n);
	ck_assert_str_eq(manager_text(&m), "READY=1");
	rs_notify_reloading(&n);
	ck_assert_int_eq(strncmp(manager_text(&m), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
	rs_fail(&e, RS_ECONFIG, "line 3 is wrong");
	rs_notify_reloaded(&n, &e);
	ck_assert_str_eq(manager_text(&m), "STATUS=serving 3 jobs; the last reload was refused: line 3 is wrong");
	ck_assert_str_eq(manager_text(&m), "READY=1");
	rs_notify_status(&n, "serving 0 jobs");
	ck_assert_str_eq(manager_text(&m), "STATUS=serving 0 jobs; the last reload was refused: line 3 is wrong");
	rs_notify_reloaded(&n, NULL);
	ck_assert_str_eq(manager_text(&m), "STATUS=serving 0 jobs");
	ck_assert_str_eq(manager_text(&m), "READY=1");
	rs_notify_stopping(&n, 30000);
	ck_assert_str_eq(manager_text(&m), "STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000");
	rs_notify_close(&n);
	rs_notify_ready(&n);
	ck_assert_str_eq(manager_text(&m), "");
	close(m.fd);
}
END_TEST

START_TEST(test_watchdog)
{
	static const struct {
		const char *usec, *pid; /* pid NULL: none; "": this process */
		uint64_t every_ms;
	} cases[] = {
	    {NULL, NULL, 0},   {"30000000", NULL, 7500}, {"30000000", "", 7500}, {"30000000", "1", 0},
	    {"2000", NULL, 1}, {"0", NULL, 0},           {"many", NULL, 0},
	};
	struct manager m;
	char pid[20];

	manager_init(&m);
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char name[40];
		struct rs_notify n;

		snprintf(name, sizeof name, "@test-notify-%d", (int)getpid());
		setenv("NOTIFY_SOCKET", name, 1);
		if (cases[i].usec)
			setenv("WATCHDOG_USEC", cases[i].usec, 1);
		if (cases[i].pid)
			setenv("WATCHDOG_PID", cases[i].pid[0] ? cases[i].pid : pid, 1);
		rs_notify_open(&n);
		ck_assert_uint_eq(n.alive_every_ms, cases[i].every_ms);
		ck_assert_int_eq(rs_notify_due(&n, 1000000), cases[i].every_ms > 0);
		rs_notify_alive(&n, 1000000);
		ck_assert_str_eq(manager_text(&m), "WATCHDOG=1");
		ck_assert(!rs_notify_due(&n, 1000000));
		ck_assert_int_eq(rs_notify_due(&n, 1000000 + cases[i].every_ms), cases[i].every_ms > 0);
		rs_notify_close(&n);
	}
	close(m.fd);
}
END_TEST

START_TEST(test_no_manager)
{
	static const char *const sockets[] = {NULL, "", "/", "relative", "vsock:2:1", "@"};

	for (size_t i = 0; i < sizeof sockets / sizeof sockets[0]; i++) {
		struct rs_notify n;

		if (sockets[i])
			setenv("NOTIFY_SOCKET", sockets[i], 1);
		rs_notify_open(&n);
		ck_assert(!rs_notify_on(&n));
		rs_notify_ready(&n);
		rs_notify_status(&n, "none");
		ck_assert(!rs_notify_due(&n, 1000000));
		rs_notify_close(&n);
	}
	ck_assert(!rs_notify_on(NULL));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("notify");
	TCase *tc = tcase_create("notify");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, test_messages);
	tcase_add_test(tc, test_watchdog);
	tcase_add_test(tc, test_no_manager);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
