/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_rpc.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 20000, ALARM_S = 120 };

/* Records of handlers and wakers for the test. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned wakes;
	struct rpc_stream *stream; /* the last that came */
	struct rpc_call *call;
} box = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

struct fake_rpc frpc;

static void wake(void *user)
{
	(void)user;
	pthread_mutex_lock(&box.lock);
	box.wakes++;
	pthread_cond_signal(&box.changed);
	pthread_mutex_unlock(&box.lock);
	if (frpc.served)
		frpc.api->queue_kick(frpc.served); /* this may be a thread of another queue */
}

const struct rpc_waker frpc_waker = {.wake = wake};

static void on_stream(void *user, struct rpc_stream *s)
{
	frpc.api->stream_waker(s, frpc_waker);
	pthread_mutex_lock(&box.lock);
	box.stream = s;
	pthread_mutex_unlock(&box.lock);
	wake(user);
}

static void on_call(void *user, struct rpc_call *c)
{
	frpc.api->call_waker(c, frpc_waker);
	pthread_mutex_lock(&box.lock);
	box.call = c;
	pthread_mutex_unlock(&box.lock);
	wake(user);
}

unsigned frpc_wakes(void)
{
	pthread_mutex_lock(&box.lock);
	unsigned n = box.wakes;
	pthread_mutex_unlock(&box.lock);
	return n;
}

bool frpc_woken_within(unsigned *seen, int ms)
{
	struct timespec by;
	unsigned before = *seen;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &by);
	by.tv_nsec += ms % 1000 * 1000000L;
	by.tv_sec += ms / 1000 + by.tv_nsec / 1000000000;
	by.tv_nsec %= 1000000000;
	pthread_mutex_lock(&box.lock);
	while (box.wakes == before && !rc)
		rc = pthread_cond_timedwait(&box.changed, &box.lock, &by);
	*seen = box.wakes;
	pthread_mutex_unlock(&box.lock);
	return !rc;
}

unsigned frpc_woken_after(unsigned seen)
{
	while (frpc.served && frpc_wakes() == seen)
		frpc.api->queue_serve(frpc.served, -1);
	ck_assert_msg(frpc_woken_within(&seen, WAIT_MS), "nobody was woken");
	return seen;
}

int64_t frpc_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void frpc_pass_ms(int ms)
{
	struct timespec t = {0, ms * 1000000L};
	int64_t end = frpc_now_ms() + ms, now;

	if (!frpc.served)
		nanosleep(&t, NULL);
	while (frpc.served && (now = frpc_now_ms()) < end)
		frpc.api->queue_serve(frpc.served, (int)(end - now));
}

static void *taken(void **from)
{
	void *got;

	for (unsigned seen = frpc_wakes();; seen = frpc_woken_after(seen)) {
		pthread_mutex_lock(&box.lock);
		got = *from;
		*from = NULL;
		pthread_mutex_unlock(&box.lock);
		if (got)
			return got;
	}
}

struct rpc_stream *frpc_stream(void)
{
	return taken((void **)&box.stream);
}

struct rpc_call *frpc_call(void)
{
	return taken((void **)&box.call);
}

void frpc_load(void)
{
	char file[4096];
	ssize_t n = readlink("/proc/self/exe", file, sizeof file - 1);
	struct rs_err e;

	ck_assert_int_gt(n, 0);
	file[n] = '\0';
	*strstr(file, "/tests/unit/") = '\0';
	strcat(file, "/lib/libreduction-grpc.so");
	ck_assert_msg(!rpc_load_file(&frpc.api, file, &e), "%s", e.msg);
}

static void start(unsigned threads)
{
	static const struct rpc_method methods[] = {
	    {.path = "/test.Bytes/Exchange", .kind = RPC_STREAM, .stream = on_stream},
	    {.path = "/test.Ask/Ask", .kind = RPC_CALL, .call = on_call},
	};
	struct rpc_server_options opt = {
	    .address = "127.0.0.1:0",
	    .methods = methods,
	    .methods_n = 2,
	    .threads = threads,
	    .handshake_ms = FRPC_HANDSHAKE_MS,
	    .detect_ms = 5000,
	    .calls_max = FRPC_CALLS_MAX,
	};
	struct rs_err e;

	alarm(ALARM_S); /* without fork Check has no timeout */
	frpc_load();
	ck_assert_msg(!frpc.api->server_start(&frpc.server, &opt, &e), "%s", e.msg);
	ck_assert_msg(!frpc.api->client_new(&frpc.client, &e), "%s", e.msg);
	snprintf(frpc.address, sizeof frpc.address, "127.0.0.1:%u", frpc.api->server_port(frpc.server));
}

void frpc_setup(void)
{
	start(2);
}

/* Serves this queue on the test's thread. */
static void serve(struct rpc_queue *q)
{
	frpc.api->queue_take(q);
	frpc.api->queue_leave(q); /* leave and serve again: any thread may take it */
	frpc.api->queue_take(q);
	frpc.served = q;
}

void frpc_setup_client_served(void)
{
	start(2);
	serve(frpc.api->client_queue(frpc.client));
}

void frpc_setup_server_served(void)
{
	start(1);
	serve(frpc.api->server_queue(frpc.server, 0));
}

static void *stop(void *arg)
{
	struct fake_rpc *old = arg;

	old->api->client_free(old->client);
	old->api->server_stop(old->server);
	free(old);
	return NULL;
}

/* Stops both ends. A failed test has left streams open, and they cannot be stopped: they
 * are left, so that Check can report the failure. */
static void stop_both(void)
{
	struct fake_rpc *old = malloc(sizeof *old);
	struct timespec by;
	pthread_t thread;

	*old = frpc;
	clock_gettime(CLOCK_REALTIME, &by);
	by.tv_sec += WAIT_MS / 1000;
	ck_assert(!pthread_create(&thread, NULL, stop, old));
	if (pthread_timedjoin_np(thread, NULL, &by) == 0)
		return;
	box.stream = NULL;
	box.call = NULL;
	ck_abort_msg("streams or calls were left open");
}

void frpc_teardown(void)
{
	if (frpc.served)
		frpc.api->queue_leave(frpc.served);
	frpc.served = NULL;
	stop_both();
	ck_assert_ptr_null(box.stream);
	ck_assert_ptr_null(box.call);
}

struct rpc_stream *frpc_open_at(const char *where, const char *path)
{
	struct rpc_open_options opt = {.address = where, .authority = "localhost", .path = path, .waker = frpc_waker};
	struct rpc_stream *s;
	struct rs_err e;

	ck_assert_msg(!frpc.api->stream_open(&s, frpc.client, &opt, &e), "%s", e.msg);
	return s;
}

struct rpc_stream *frpc_open(void)
{
	return frpc_open_at(frpc.address, "/test.Bytes/Exchange");
}

struct rpc_query *frpc_query(const void *request, size_t len, uint32_t timeout_ms)
{
	struct rpc_query_options opt = {
	    .address = frpc.address,
	    .path = "/test.Ask/Ask",
	    .request = request,
	    .request_len = len,
	    .header = "authorization",
	    .value = "Bearer secret",
	    .timeout_ms = timeout_ms,
	};
	struct rpc_query *a;
	struct rs_err e;

	ck_assert_msg(!frpc.api->query(&a, frpc.client, &opt, &e), "%s", e.msg);
	return a;
}

static void *run(void *suite)
{
	SRunner *r = srunner_create(suite);
	bool failed;

	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r) > 0;
	srunner_free(r);
	return failed ? suite : NULL;
}

bool frpc_run(Suite *s)
{
	pthread_t thread;
	void *failed = s;

	if (pthread_create(&thread, NULL, run, s) == 0)
		pthread_join(thread, &failed);
	return !failed;
}
