/* SPDX-License-Identifier: Apache-2.0 */
/* Out of memory: each function is repeated, and each time the next allocation fails. It
 * must return an error with a message and leave nothing allocated, which the sanitized
 * build checks. The linker replaces functions of the C library, xxHash and libyaml by
 * those below and of fake_memory.c. */
#include "agent/worker/core/exchange.h"
#include "common/descriptors.h"
#include "common/loop_uv.h"
#include "config/config.h"
#include "proto/control.h"
#include "server/core/stripe.h"
#include "server/jobs/registry.h"
#include "server/join/handshake.h"
#include "tests/unit/fake_memory.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

char *__real_strdup(const char *s);
XXH3_state_t *__real_XXH3_createState(void);
int __real_yaml_parser_initialize(yaml_parser_t *p);
int __real_yaml_parser_parse(yaml_parser_t *p, yaml_event_t *ev);
char *__wrap_strdup(const char *s);
XXH3_state_t *__wrap_XXH3_createState(void);
int __wrap_yaml_parser_initialize(yaml_parser_t *p);
int __wrap_yaml_parser_parse(yaml_parser_t *p, yaml_event_t *ev);

char *__wrap_strdup(const char *s)
{
	return memory_runs_out() ? NULL : __real_strdup(s);
}

XXH3_state_t *__wrap_XXH3_createState(void)
{
	return memory_runs_out() ? NULL : __real_XXH3_createState();
}

int __wrap_yaml_parser_initialize(yaml_parser_t *p)
{
	return memory_runs_out() ? 0 : __real_yaml_parser_initialize(p);
}

int __wrap_yaml_parser_parse(yaml_parser_t *p, yaml_event_t *ev)
{
	if (!memory_runs_out())
		return __real_yaml_parser_parse(p, ev);
	memset(ev, 0, sizeof *ev);
	p->error = YAML_MEMORY_ERROR;
	return 0;
}

/* Repeats until memory suffices; returns the number of allocations needed. */
static unsigned exhaust(int (*attempt)(void *ctx, struct rs_err *e), void *ctx)
{
	for (unsigned i = 1;; i++) {
		struct rs_err e = {0};
		int rc;

		memory_fail_at(i, false);
		rc = attempt(ctx, &e);
		memory_unlimited();
		if (!memory_failed()) {
			ck_assert_msg(rc == RS_OK, "with enough memory: %s", e.msg);
			return i - 1;
		}
		ck_assert_msg(rc == RS_ENOMEM, "allocation %u: code %d, \"%s\"", i, rc, e.msg);
		ck_assert_int_eq(e.code, RS_ENOMEM);
		ck_assert_msg(strstr(e.msg, "memory") && strchr(e.msg, ' '), "allocation %u: \"%s\"", i, e.msg);
	}
}

/* ---- the worker ---- */

static int make_exchange(void *cfg, struct rs_err *e)
{
	struct exchange_options opt = {
	    .params = rs_config_exchange(cfg), .job = "j", .world_size = 2, .processes = 1, .connect_ms = 1000};
	struct exchange *x;
	int rc = exchange_new(&x, &opt, 1000, e);

	if (!rc)
		exchange_free(x);
	return rc;
}

START_TEST(an_exchange)
{
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_int_eq(rs_config_load(&cfg, "config/examples/four-reducers.yaml", &e), RS_OK);
	ck_assert_uint_eq(exhaust(make_exchange, &cfg), 9);
	rs_config_close(&cfg);
}
END_TEST

/* ---- lanes ---- */

struct job {
	struct lane *lane;
	struct stripe_params p;
	unsigned gone;
};

static void on_event(void *ctx, const struct lane_event *ev)
{
	struct job *j = ctx;

	j->gone += ev->type == LANE_CLOSED;
}

static int make_lane(void *ctx, struct rs_err *e)
{
	struct lane_options opt = {.event = on_event, .detect_ms = 1000, .ctx = ctx};
	struct lane *l;
	int rc;

	if (rs_kernels_select("auto", &opt.kernels, NULL))
		ck_abort();
	rc = lane_new(&l, &opt, e);
	if (!rc)
		lane_free(l);
	return rc;
}

START_TEST(a_lane)
{
	struct job j = {0};

	ck_assert_uint_eq(exhaust(make_lane, &j), 2);
}
END_TEST

static int join_lane(struct job *j, unsigned rank, struct rs_err *e)
{
	struct session_params sp = {.rank = rank, .peer_detect_ms = 1000};
	struct session *s;
	int rc = lane_attach(j->lane, &s, &j->p, &sp, NULL, 1000, e);

	if (!rc)
		session_free(s);
	return rc;
}

static int join_alone(void *ctx, struct rs_err *e)
{
	struct job *j = ctx;
	int rc = join_lane(j, 0, e);

	memory_unlimited(); /* the checks allocate too */
	ck_assert_ptr_null(j->lane->stripes);
	return rc;
}

static int join_second(void *ctx, struct rs_err *e)
{
	struct job *j = ctx;
	int rc = join_lane(j, 1, e);

	memory_unlimited();
	ck_assert_uint_eq(j->lane->stripes->attached, 1);
	return rc;
}

START_TEST(a_session)
{
	struct job j = {.p = {.job = 7, .world_size = 2, .chunk_bytes = 1024, .window = 2, .priorities = 2}};
	struct lane_options opt = {.event = on_event, .detect_ms = 1000, .ctx = &j};
	struct session_params sp = {.rank = 0, .peer_detect_ms = 1000};
	struct session *s;
	struct rs_err e;

	ck_assert_int_eq(rs_kernels_select("auto", &opt.kernels, &e), RS_OK);
	ck_assert_int_eq(lane_new(&j.lane, &opt, &e), RS_OK);
	j.p.memory = aligned_alloc(64, stripe_memory(&j.p));
	ck_assert_uint_eq(exhaust(join_alone, &j), 8);
	ck_assert_uint_eq(j.gone, 1);
	ck_assert_int_eq(lane_attach(j.lane, &s, &j.p, &sp, NULL, 1000, &e), RS_OK);
	ck_assert_uint_eq(exhaust(join_second, &j), 3);
	ck_assert_uint_eq(j.gone, 2);
	lane_free(j.lane);
	free(j.p.memory);
}
END_TEST

/* ---- a handshake ---- */

static const struct auth_secret secret = {.len = 16, .bytes = "0123456789abcdef"};

static int find_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret,
		       struct control_refused *refused)
{
	(void)ctx;
	(void)hello;
	(void)refused;
	*ret = secret;
	return RS_OK;
}

static int make_random(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	(void)ctx;
	(void)e;
	memset(buf, 7, n);
	return RS_OK;
}

static enum handshake_step tell(struct handshake *h, const uint8_t *bytes, size_t len, struct handshake_result *ret)
{
	enum handshake_step step = HANDSHAKE_MORE;

	while (len > 0 && step == HANDSHAKE_MORE) {
		uint8_t *at;
		size_t n = handshake_target(h, &at);

		n = n < len ? n : len;
		memcpy(at, bytes, n);
		bytes += n;
		len -= n;
		step = handshake_received(h, n, ret);
	}
	return step;
}

/* HELLO, CHALLENGE and PROOF. */
static int shake_hands(void *ctx, struct rs_err *e)
{
	static const struct handshake_policy policy = {.secret = find_secret, .random = make_random};
	uint8_t payload[FRAME_CONTROL_MAX], frame[HANDSHAKE_FRAME_MAX], mac[AUTH_MAC];
	struct control_hello hello = {.job = "j", .world_size = 1, .has_nonce = true};
	struct auth_transcript t = {.hello = frame + FRAME_HEADER, .hello_len = control_pack_hello(payload, &hello)};
	uint32_t len = control_frame(frame, FRAME_HELLO, 0, 0, payload, (uint32_t)t.hello_len);
	struct handshake_result res;
	enum handshake_step step;
	struct handshake h;

	(void)ctx;
	handshake_init(&h, &policy);
	step = tell(&h, frame, len, &res);
	if (step == HANDSHAKE_SEND) {
		t.challenge = res.frame + FRAME_HEADER;
		t.challenge_len = res.frame_len - FRAME_HEADER;
		if (auth_mac(mac, &secret, AUTH_WORKER, &t, e)) /* no check here, which would allocate */
			abort();
		len = control_frame(frame, FRAME_PROOF, 0, 0, payload, control_pack_proof(payload, mac));
		step = tell(&h, frame, len, &res);
	}
	memory_unlimited();
	handshake_close(&h);
	if (step == HANDSHAKE_ADMIT)
		return RS_OK;
	ck_assert_int_eq(step, HANDSHAKE_REFUSED);
	ck_assert(res.refused.retry);
	return rs_fail(e, res.refused.code, "%s", res.refused.message);
}

START_TEST(a_handshake)
{
	ck_assert_uint_ge(exhaust(shake_hands, NULL), 3); /* and those of protobuf-c */
}
END_TEST

/* ---- the registry ---- */

static void *slots_alloc(void *ctx, uint64_t bytes)
{
	(void)ctx;
	return malloc(bytes);
}

static void slots_free(void *ctx, void *memory, uint64_t bytes)
{
	(void)ctx;
	(void)bytes;
	free(memory);
}

static void on_action(void *ctx, const struct registry_action *a)
{
	unsigned *opened = ctx;

	*opened += a->type == REGISTRY_OPENED;
}

static const struct registry_options registry_options = {
    .limits = {.jobs = 2, .workers = 8, .memory_bytes = 1 << 30},
    .threads = 1,
    .alloc = slots_alloc,
    .free = slots_free,
    .action = on_action,
};

static int make_registry(void *ctx, struct rs_err *e)
{
	struct registry *r;
	int rc = registry_new(&r, &registry_options, e);

	(void)ctx;
	if (!rc)
		registry_free(r);
	return rc;
}

START_TEST(a_registry)
{
	ck_assert_uint_eq(exhaust(make_registry, NULL), 1);
}
END_TEST

static int admit(void *ctx, struct rs_err *e)
{
	struct control_hello h = {.job = "j",
				  .world_size = 2,
				  .lanes = 1,
				  .chunk_bytes = 1024,
				  .window = 2,
				  .priorities = 2,
				  .processes = 1,
				  .reducer = "r0",
				  .incarnation = 1,
				  .detect_ms = 1000};
	struct control_refused refused = {0};
	struct registry_admit admit;
	struct registry *r = ctx;
	int rc = registry_hello(r, &h, &admit, &refused);

	memory_unlimited();
	if (rc) {
		ck_assert(refused.retry);
		ck_assert_uint_eq(registry_jobs(r), 0);
		return rs_fail(e, refused.code, "%s", refused.message);
	}
	ck_assert_uint_eq(registry_jobs(r), 1);
	registry_session_closed(r, admit.stripe.job, 0, 0, true);
	ck_assert_uint_eq(registry_jobs(r), 0);
	return RS_OK;
}

START_TEST(an_admission)
{
	struct registry_options opt = registry_options;
	struct registry *r;
	unsigned opened = 0;
	struct rs_err e;

	opt.ctx = &opened;
	ck_assert_int_eq(registry_new(&r, &opt, &e), RS_OK);
	ck_assert_uint_eq(exhaust(admit, r), 3);
	ck_assert_uint_eq(opened, 1);
	registry_free(r);
}
END_TEST

/* ---- messages ---- */

static int decode(void *message, struct rs_err *e)
{
	static const uint8_t mac[AUTH_MAC] = {1};
	struct control_hello hello = {.job = "j", .label = "l", .has_nonce = true}, got;
	uint8_t bytes[FRAME_CONTROL_MAX], back[AUTH_MAC];

	if (message)
		return control_unpack_proof(bytes, control_pack_proof(bytes, mac), back, e);
	return control_unpack_hello(bytes, control_pack_hello(bytes, &hello), &got, e);
}

START_TEST(a_message)
{
	ck_assert_uint_ge(exhaust(decode, _i ? "PROOF" : NULL), 2);
}
END_TEST

/* ---- event loops ---- */

/* Watches two descriptors; the number of the second one is higher than all before. */
static int run_loop(void *ctx, struct rs_err *e)
{
	const int *fds = ctx;
	uv_loop_t loop;
	uv_poll_t polls[2];
	unsigned n = 0;
	int rc = rs_loop_init(&loop, RS_LOOP_DESCRIPTORS, e);

	if (rc)
		return rc;
	while (n < 2 && !rc) {
		rc = rs_poll_init(&loop, &polls[n], fds[n], e);
		n += !rc;
	}
	for (unsigned i = 0; i < n; i++)
		uv_close((uv_handle_t *)&polls[i], NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&loop)) /* no check here, which would allocate */
		abort();
	return rc;
}

START_TEST(an_event_loop)
{
	int pipes[2], fds[2];

	ck_assert_int_eq(pipe(pipes), 0);
	fds[0] = pipes[0];
	fds[1] = fcntl(pipes[1], F_DUPFD_CLOEXEC, 900);
	ck_assert_int_ge(fds[1], 900);
	ck_assert_uint_ge(exhaust(run_loop, fds), 4);
	close(fds[1]);
	close(pipes[0]);
	close(pipes[1]);
}
END_TEST

/* ---- configuration ---- */

static int load(void *file, struct rs_err *e)
{
	struct rs_config cfg;
	int rc = rs_config_load(&cfg, file, e);

	if (!rc)
		rs_config_close(&cfg);
	return rc;
}

START_TEST(a_configuration)
{
	static const char *const files[] = {NULL,        "agent.yaml",    "explicit-map.yaml",
					    "plan.yaml", "weighted.yaml", "two-racks.yaml"};
	char path[80];

	snprintf(path, sizeof path, "config/examples/%s", files[_i] ? files[_i] : "");
	ck_assert_uint_ge(exhaust(load, files[_i] ? path : NULL), files[_i] ? 20 : 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory runs out");
	TCase *tc = tcase_create("oom");
	SRunner *runner;
	int failures;

	rs_loop_own_libuv();
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, an_exchange);
	tcase_add_test(tc, a_lane);
	tcase_add_test(tc, a_session);
	tcase_add_test(tc, a_registry);
	tcase_add_test(tc, an_admission);
	tcase_add_test(tc, a_handshake);
	tcase_add_loop_test(tc, a_message, 0, 2);
	tcase_add_test(tc, an_event_loop);
	tcase_add_loop_test(tc, a_configuration, 0, 6);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failures = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failures != 0;
}
