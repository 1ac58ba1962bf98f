/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of the engine's connections. Lookups are answered here, without a network:
 * __wrap_getaddrinfo. */
#include "agent/worker/engine/address.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

START_TEST(wildcard_addresses_are_refused)
{
	static const char *const rows[] = {"*:7600", ":7600", "h:0", "h"};
	struct engine_address a;
	struct rs_err e = {0};

	ck_assert_int_eq(engine_address_init(&a, rows[_i], &e), RS_ECONFIG);
}
END_TEST

START_TEST(addresses_of_this_link_name_a_card)
{
	static const struct {
		const char *address, *says;
	} rows[] = {
	    {"[fe80::1]:7600",
	     "its address fe80::1 is link-local: add the network card of this machine, as in fe80::1%eth0"},
	    {"[fe80::1%nocard0]:7600",
	     "its address fe80::1%nocard0 cannot be used here: this machine has no network card of that name"},
	    {"[fe80::1%lo]:7600", NULL},
	    {"[::1]:7600", NULL},
	};
	struct engine_address a;
	struct rs_err e = {0};

	ck_assert_int_eq(engine_address_init(&a, rows[_i].address, &e), RS_OK);
	ck_assert_int_eq(engine_address_begin(&a, NULL, NULL, &e),
			 rows[_i].says ? ENGINE_ADDRESS_FAILED : ENGINE_ADDRESS_FOUND);
	if (rows[_i].says)
		ck_assert_str_eq(e.msg, rows[_i].says);
}
END_TEST

/* A loop that lookups wake, and the results of an address. */
static struct {
	struct engine_address a;
	uv_loop_t loop;
	struct wakeups wakeups;
	struct wakeup wake;
	_Atomic bool ended;
	enum engine_address_step step;
	uint64_t now_ms;
	struct rs_err e;
} at;

enum { PATIENCE_MS = 10000 };

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret);

static sem_t silence; /* lookups of "silent" that may end */
static int unknown;   /* the answer to names that are not below; 0: such a name is found */

/* "both" has the two loopback addresses, "silent" the same after a delay. */
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret)
{
	if (hints->ai_flags & AI_NUMERICHOST)
		return __real_getaddrinfo(host, port, hints, ret);
	if (strcmp(host, "silent") == 0)
		sem_wait(&silence);
	else if (strcmp(host, "both") != 0 && unknown)
		return unknown;
	return __real_getaddrinfo(NULL, port, hints, ret);
}

static void on_wake(struct wakeup *w)
{
	(void)w;
	ck_assert(atomic_exchange(&at.ended, false));
	at.step = engine_address_take(&at.a, PATIENCE_MS, at.now_ms, &at.e);
	uv_stop(&at.loop);
}

static void open_address(const char *text)
{
	sem_init(&silence, 0, 0);
	ck_assert_int_eq(uv_loop_init(&at.loop), 0);
	ck_assert_int_eq(wakeups_init(&at.wakeups, &at.loop, &at.e), RS_OK);
	wakeup_init(&at.wake, &at.wakeups, on_wake);
	ck_assert_int_eq(engine_address_init(&at.a, text, &at.e), RS_OK);
}

static void close_address(void)
{
	engine_address_close(&at.a);
	wakeup_close(&at.wake);
	wakeups_close(&at.wakeups);
	uv_run(&at.loop, UV_RUN_DEFAULT);
	wakeups_destroy(&at.wakeups);
	ck_assert_int_eq(uv_loop_close(&at.loop), 0);
}

static void begin(void)
{
	at.step = engine_address_begin(&at.a, &at.wake, &at.ended, &at.e);
}

/* Makes one attempt, with the lookup that it needs. */
static void find(void)
{
	begin();
	if (at.step != ENGINE_ADDRESS_WAIT)
		return;
	ck_assert(engine_address_busy(&at.a));
	uv_run(&at.loop, UV_RUN_DEFAULT);
	ck_assert(!engine_address_busy(&at.a));
}

static void check_at(const char *want, unsigned port)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&at.a.at;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&at.a.at;
	bool six = at.a.at.ss_family == AF_INET6;
	char got[INET6_ADDRSTRLEN];

	ck_assert_int_eq(at.step, ENGINE_ADDRESS_FOUND);
	ck_assert_uint_eq(at.a.at_len, six ? sizeof *v6 : sizeof *v4);
	inet_ntop(at.a.at.ss_family, six ? (const void *)&v6->sin6_addr : &v4->sin_addr, got, sizeof got);
	ck_assert_str_eq(got, want);
	ck_assert_uint_eq(ntohs(six ? v6->sin6_port : v4->sin_port), port);
}

START_TEST(numeric_ones_need_no_lookup)
{
	static const char *const rows[][2] = {{"127.0.0.9:7601", "127.0.0.9"}, {"[::9]:7601", "::9"}};

	open_address(rows[_i][0]);
	for (unsigned i = 0; i < 3; i++) {
		begin();
		check_at(rows[_i][1], 7601);
		ck_assert(!engine_address_busy(&at.a));
		ck_assert_int_eq(engine_address_take(&at.a, PATIENCE_MS, 0, &at.e), ENGINE_ADDRESS_WAIT);
	}
	close_address();
}
END_TEST

START_TEST(each_attempt_takes_the_next_address)
{
	sa_family_t before = AF_UNSPEC;

	open_address("both:7602");
	for (unsigned i = 0; i < 4; i++) {
		find();
		ck_assert_int_ne(at.a.at.ss_family, before);
		before = at.a.at.ss_family;
		check_at(before == AF_INET6 ? "::1" : "127.0.0.1", 7602);
	}
	close_address();
}
END_TEST

/* A name that never exists is an error that lasts; a name server that does not answer, or
 * a name that has existed meanwhile, starts the time again. */
START_TEST(an_unknown_name_fails_each_attempt)
{
	static const struct {
		uint64_t now_ms;
		int answer, code;
		const char *message;
	} steps[] = {
	    {1000, EAI_NONAME, RS_EIO, "its name does not exist: "},
	    {10999, EAI_NODATA, RS_EIO, "its name does not exist: "},
	    {11000, EAI_NONAME, RS_EREFUSED, "its name does not exist, for 10 s (timeouts.resolve): "},
	    {12000, EAI_AGAIN, RS_EIO, "its name cannot be resolved: "},
	    {13000, EAI_NONAME, RS_EIO, "its name does not exist: "},
	    {22999, EAI_NONAME, RS_EIO, "its name does not exist: "},
	    {22999, 0, RS_OK, ""},
	    {23000, EAI_NONAME, RS_EIO, "its name does not exist: "},
	    {33000, EAI_NONAME, RS_EREFUSED, "its name does not exist, for 10 s (timeouts.resolve): "},
	};

	open_address("nobody:7603");
	for (unsigned i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		at.now_ms = steps[i].now_ms;
		unknown = steps[i].answer;
		find();
		ck_assert_int_eq(at.step, unknown ? ENGINE_ADDRESS_FAILED : ENGINE_ADDRESS_FOUND);
		ck_assert_msg(!unknown || at.e.code == steps[i].code, "%u: %d", i, at.e.code);
		ck_assert_msg(!unknown || strstr(at.e.msg, steps[i].message) == at.e.msg, "%u: %s", i, at.e.msg);
	}
	close_address();
}
END_TEST

START_TEST(a_lookup_is_pending_until_its_result_is_taken)
{
	open_address("silent:7604");
	begin();
	ck_assert_int_eq(at.step, ENGINE_ADDRESS_WAIT);
	ck_assert_int_eq(engine_address_take(&at.a, PATIENCE_MS, 0, &at.e), ENGINE_ADDRESS_WAIT);
	ck_assert(engine_address_busy(&at.a));
	sem_post(&silence);
	uv_run(&at.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(at.step, ENGINE_ADDRESS_FOUND);
	ck_assert(!engine_address_busy(&at.a));
	close_address();
}
END_TEST

START_TEST(closing_does_not_wait_for_a_lookup)
{
	open_address("silent:7605");
	begin();
	ck_assert_int_eq(at.step, ENGINE_ADDRESS_WAIT);
	close_address();
	ck_assert(!at.ended);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine_address");
	TCase *t = tcase_create("engine_address");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, wildcard_addresses_are_refused, 0, 4);
	tcase_add_loop_test(t, addresses_of_this_link_name_a_card, 0, 4);
	tcase_add_loop_test(t, numeric_ones_need_no_lookup, 0, 2);
	tcase_add_test(t, each_attempt_takes_the_next_address);
	tcase_add_test(t, an_unknown_name_fails_each_attempt);
	tcase_add_test(t, a_lookup_is_pending_until_its_result_is_taken);
	tcase_add_test(t, closing_does_not_wait_for_a_lookup);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
