/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's exchange and a reducer's handshake, or an impostor in place of the
 * reducer. */
#include "config/config.h"
#include "tests/unit/fake_guard.h"

#include "agent/worker/core/exchange.h"

#include <check.h>
#include <string.h>

static const char yaml[] = "job: {name: resnet}\nreducers: [{id: r0, address: h:1}]\n";

struct pair {
	struct rs_config cfg;
	struct guard worker, reducer;
	struct exchange *x;
	struct handshake h;
	struct handshake_result res;
};

static int worker_secret(void *user, struct auth_secret *ret, struct rs_err *e)
{
	struct pair *p = user;

	*ret = p->worker.secret;
	return ret->len == 1 ? rs_fail(e, RS_EIO, "the file is gone") : RS_OK;
}

static int worker_random(void *user, void *buf, size_t n, struct rs_err *e)
{
	return guard_random(&((struct pair *)user)->worker, buf, n, e);
}

static void pair_open(struct pair *p, const char *worker, const char *reducer)
{
	struct exchange_options opt = {.job = "resnet",
				       .label = "pid 7 on b",
				       .generation = 3,
				       .rank = 0,
				       .world_size = 2,
				       .processes = 1,
				       .connect_ms = 10000,
				       .secret = worker ? worker_secret : NULL,
				       .random = worker_random,
				       .user = p};
	struct rs_err e;

	memset(p, 0, sizeof *p);
	guard_init(&p->worker, worker);
	guard_init(&p->reducer, reducer);
	ck_assert_int_eq(rs_config_parse(&p->cfg, "test", yaml, strlen(yaml), &e), RS_OK);
	opt.params = rs_config_exchange(&p->cfg);
	ck_assert_int_eq(exchange_new(&p->x, &opt, 1000, &e), RS_OK);
	handshake_init(&p->h, &p->reducer.policy);
	ck_assert_int_eq(exchange_want(p->x, 0, 1000), EXCHANGE_CONNECT);
	exchange_connecting(p->x, 0, 1000);
}

static void pair_close(struct pair *p)
{
	handshake_close(&p->h);
	exchange_free(p->x);
	rs_config_close(&p->cfg);
}

/* Feeds the exchange's output to the handshake. MORE: it has no more output. */
static enum handshake_step pump(struct pair *p)
{
	enum handshake_step step = HANDSHAKE_MORE;
	struct iovec iov[8];

	while (step == HANDSHAKE_MORE && exchange_send_target(p->x, 0, iov, 8)) {
		size_t used;

		step = guard_feed(&p->h, iov[0].iov_base, iov[0].iov_len, SIZE_MAX, &p->res, &used);
		ck_assert_uint_eq(used, iov[0].iov_len);
		exchange_sent(p->x, 0, used, 1001);
	}
	return step;
}

static void answer(struct pair *p, const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		struct iovec iov[2];
		unsigned n = exchange_recv_target(p->x, 0, iov);
		size_t part;

		if (!n)
			return;
		part = iov[0].iov_len < len ? iov[0].iov_len : len;
		memcpy(iov[0].iov_base, bytes, part);
		bytes += part;
		len -= part;
		exchange_received(p->x, 0, part, 1002);
	}
}

static void say(struct pair *p, unsigned type, const uint8_t *payload, uint32_t len)
{
	uint8_t frame[HANDSHAKE_FRAME_MAX];

	answer(p, frame, control_frame(frame, type, 3, 0, payload, len));
}

static void welcome(struct pair *p)
{
	uint8_t payload[FRAME_CONTROL_MAX];

	p->res.welcome.detect_ms = 5000;
	say(p, FRAME_WELCOME, payload, control_pack_welcome(payload, &p->res.welcome));
}

/* WAITING is valid only after the exchange has joined. */
static bool joined(struct pair *p)
{
	struct control_waiting w = {.world_size = 2, .missing = {1}, .missing_n = 1};
	uint8_t payload[FRAME_CONTROL_MAX];

	say(p, FRAME_WAITING, payload, control_pack_waiting(payload, &w));
	return exchange_state(p->x) == EXCHANGE_JOINING;
}

static const struct {
	const char *worker, *reducer; /* their secrets */
	const char *binding[2];       /* of their ends of the channel; NULL: it has none */
	const char *refused;          /* the reducer's refusal, */
	const char *error;            /* and the exchange's error; NULL: the rank has joined */
} meetings[] = {
    {NULL, NULL, {NULL, NULL}, NULL, NULL},
    {guard_shared, guard_shared, {NULL, NULL}, NULL, NULL},
    {guard_shared, guard_shared, {"channel", "channel"}, NULL, NULL},
    {guard_shared,
     guard_shared,
     {"channel", "another"},
     "or another machine intercepts the connection",
     "has not proven that it has the job's"},
    {guard_shared,
     guard_shared,
     {"channel", NULL},
     "has not proven that it has the job's secret",
     "has not proven that it has the job's"},
    {"not the right secret",
     guard_shared,
     {NULL, NULL},
     "has not proven that it has the job's secret",
     "has not proven that it has the job's"},
    {NULL,
     guard_shared,
     {NULL, NULL},
     "asks for the secret of job resnet and rank 0 has none",
     "reducer r0 (h:1): this reducer asks for"},
    {guard_shared,
     NULL,
     {NULL, NULL},
     NULL,
     "reducer r0 (h:1): it has not proven that it has the secret of job resnet"},
};

START_TEST(a_worker_and_a_reducer_complete_a_handshake)
{
	struct pair p;
	enum handshake_step step;
	uint8_t frame[HANDSHAKE_FRAME_MAX];

	pair_open(&p, meetings[_i].worker, meetings[_i].reducer);
	if (meetings[_i].binding[0])
		exchange_bind(p.x, 0, (const uint8_t *)meetings[_i].binding[0], strlen(meetings[_i].binding[0]));
	if (meetings[_i].binding[1])
		handshake_set_channel(&p.h,
				      &(struct handshake_channel){.binding = (const uint8_t *)meetings[_i].binding[1],
								  .binding_len = strlen(meetings[_i].binding[1])});
	exchange_connected(p.x, 0, 1000);
	step = pump(&p);
	if (step == HANDSHAKE_SEND) {
		ck_assert_uint_eq(pump(&p), HANDSHAKE_MORE); /* it waits */
		answer(&p, p.res.frame, p.res.frame_len);
		step = pump(&p);
	}
	ck_assert_int_eq(step, meetings[_i].refused ? HANDSHAKE_REFUSED : HANDSHAKE_ADMIT);
	if (meetings[_i].refused) {
		ck_assert_msg(strstr(p.res.refused.message, meetings[_i].refused), "\"%s\"", p.res.refused.message);
		answer(&p, frame, handshake_pack_refused(frame, &p.res.refused));
	} else {
		ck_assert_int_eq(p.res.welcome.proven, meetings[_i].reducer != NULL);
		welcome(&p);
	}
	ck_assert_int_eq(joined(&p), meetings[_i].error == NULL);
	if (meetings[_i].error) {
		ck_assert_int_eq(exchange_error(p.x)->code, RS_EREFUSED);
		ck_assert_msg(strstr(exchange_error(p.x)->msg, meetings[_i].error), "\"%s\"", exchange_error(p.x)->msg);
	}
	exchange_abort(p.x, RS_ECLOSED, "the test is over", 3000);
	exchange_tick(p.x, 9000);
	pair_close(&p);
}
END_TEST

/* Frames of an impostor that does not know the secret. */
static const struct {
	const char *what;
	bool challenge; /* sends CHALLENGE, and accepts any PROOF */
	enum { NO_MAC, ZEROS, REFLECTED, GUESSED } mac;
} impostors[] = {
    {"no questions, no answers", false, NO_MAC},
    {"an answer to no question", false, ZEROS},
    {"no answer", true, NO_MAC},
    {"zeros", true, ZEROS},
    {"what the worker said", true, REFLECTED},
    {"any bytes", true, GUESSED},
};

START_TEST(an_impostor_is_not_trusted)
{
	uint8_t payload[CONTROL_PROOF_LEN], nonce[AUTH_NONCE] = {1}, proof[200];
	struct pair p;
	struct iovec iov[8];
	struct rs_err e;

	pair_open(&p, guard_shared, NULL);
	exchange_connected(p.x, 0, 1000);
	ck_assert_int_eq(pump(&p), HANDSHAKE_ADMIT); /* the impostor cannot know */
	ck_assert(p.res.hello.has_nonce);
	p.res.welcome = (struct control_welcome){.proven = impostors[_i].mac != NO_MAC};
	if (impostors[_i].challenge) {
		say(&p, FRAME_CHALLENGE, payload, control_pack_challenge(payload, nonce));
		ck_assert_uint_eq(exchange_send_target(p.x, 0, iov, 8), 1);
		ck_assert_uint_le(iov[0].iov_len, sizeof proof);
		memcpy(proof, iov[0].iov_base, iov[0].iov_len);
		exchange_sent(p.x, 0, iov[0].iov_len, 1001);
		ck_assert_int_eq(
		    control_unpack_proof(proof + FRAME_HEADER, (uint32_t)iov[0].iov_len - FRAME_HEADER, proof, &e),
		    RS_OK);
	}
	if (impostors[_i].mac == REFLECTED)
		memcpy(p.res.welcome.mac, proof, AUTH_MAC);
	if (impostors[_i].mac == GUESSED)
		memset(p.res.welcome.mac, 0x42, AUTH_MAC);
	welcome(&p);
	ck_assert_msg(!joined(&p), "%s", impostors[_i].what);
	ck_assert_int_eq(exchange_error(p.x)->code, RS_EREFUSED);
	ck_assert_str_eq(
	    exchange_error(p.x)->msg,
	    "reducer r0 (h:1): it has not proven that it has the secret of job resnet: its server.secrets_dir "
	    "is not set, or another process listens at its address");
	pair_close(&p);
}
END_TEST

/* CHALLENGEs that a worker cannot or must not answer. */
static const struct {
	const char *secret;
	unsigned times;    /* number of times that it is sent */
	const char *bytes; /* in place of a nonce */
	const char *error;
} challenges[] = {
    {NULL, 1, NULL, "it asks for the secret of job resnet, and this rank has none: set security.secret"},
    {guard_shared, 2, NULL, "a CHALLENGE frame with 34 payload bytes in a state that does not allow it"},
    {guard_shared, 1, "\x0a\x01x", "the nonce in CHALLENGE has 1 bytes, 32 were expected"},
    {guard_shared, 1, "", "the nonce in CHALLENGE has 0 bytes, 32 were expected"},
    {"x", 1, NULL, "the file is gone"},
};

START_TEST(a_challenge_that_cannot_be_answered_is_an_error)
{
	uint8_t payload[CONTROL_PROOF_LEN], nonce[AUTH_NONCE] = {1};
	uint32_t len = control_pack_challenge(payload, nonce);
	struct pair p;

	pair_open(&p, challenges[_i].secret, NULL);
	exchange_connected(p.x, 0, 1000);
	ck_assert_int_eq(pump(&p), HANDSHAKE_ADMIT);
	if (challenges[_i].bytes) {
		len = (uint32_t)strlen(challenges[_i].bytes);
		memcpy(payload, challenges[_i].bytes, len);
	}
	for (unsigned i = 0; i < challenges[_i].times; i++)
		say(&p, FRAME_CHALLENGE, payload, len);
	ck_assert_msg(strstr(exchange_error(p.x)->msg, challenges[_i].error), "\"%s\"", exchange_error(p.x)->msg);
	exchange_tick(p.x, 9000);
	pair_close(&p);
}
END_TEST

START_TEST(a_nonce_is_new_for_each_connection_and_a_secret_is_read_for_each)
{
	uint8_t nonces[2][AUTH_NONCE];
	struct pair p;

	pair_open(&p, guard_shared, guard_shared);
	for (unsigned i = 0; i < 2; i++) {
		exchange_connected(p.x, 0, 1000);
		ck_assert_int_eq(pump(&p), HANDSHAKE_SEND);
		memcpy(nonces[i], p.res.hello.nonce, AUTH_NONCE);
		answer(&p, p.res.frame, p.res.frame_len);
		ck_assert_int_eq(pump(&p), HANDSHAKE_ADMIT);
		if (i)
			break;
		/* the connection breaks before WELCOME, and both sides have another
		 * secret then */
		exchange_disconnected(p.x, 0, "it broke", RS_LOSS_OTHER, 1003);
		handshake_close(&p.h);
		handshake_init(&p.h, &p.reducer.policy);
		p.worker.secret.bytes[0] ^= 1;
		p.reducer.secret.bytes[0] ^= 1;
		ck_assert_int_eq(exchange_want(p.x, 0, 2000), EXCHANGE_CONNECT);
		exchange_connecting(p.x, 0, 2000);
	}
	ck_assert_mem_ne(nonces[0], nonces[1], AUTH_NONCE);
	welcome(&p);
	ck_assert(joined(&p));
	exchange_abort(p.x, RS_ECLOSED, "the test is over", 3000);
	exchange_tick(p.x, 9000);
	pair_close(&p);
}
END_TEST

START_TEST(without_random_numbers_a_worker_tries_again)
{
	struct pair p;

	pair_open(&p, guard_shared, guard_shared);
	p.worker.no_randomness = true;
	exchange_connected(p.x, 0, 1000);
	ck_assert_int_eq(exchange_want(p.x, 0, 1000), EXCHANGE_CLOSE);
	ck_assert_int_eq(exchange_state(p.x), EXCHANGE_JOINING);
	pair_close(&p);
}
END_TEST

#define COUNT(list) (int)(sizeof(list) / sizeof(list)[0])

int main(void)
{
	Suite *s = suite_create("handshake_pair");
	TCase *tc = tcase_create("handshake_pair");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, a_worker_and_a_reducer_complete_a_handshake, 0, COUNT(meetings));
	tcase_add_loop_test(tc, an_impostor_is_not_trusted, 0, COUNT(impostors));
	tcase_add_loop_test(tc, a_challenge_that_cannot_be_answered_is_an_error, 0, COUNT(challenges));
	tcase_add_test(tc, a_nonce_is_new_for_each_connection_and_a_secret_is_read_for_each);
	tcase_add_test(tc, without_random_numbers_a_worker_tries_again);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
