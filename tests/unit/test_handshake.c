/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake, alone and against a worker's exchange that proves what it has to. */
#include "server/handshake.h"

#include "agent/exchange.h"

#include <check.h>
#include <string.h>

/* What the policy of the tests goes by. */
struct guard {
	struct handshake_policy policy;
	struct auth_secret secret;
	const char *only; /* the one job that has a secret */
	uint8_t next;     /* nonces are made of one byte each */
	const char *peer; /* whom may_join heard of */
	unsigned asked;   /* how often */
	bool closed;      /* nobody may join */
	bool no_randomness;
};

static int find_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret,
		       struct control_refused *refused)
{
	const struct guard *g = ctx;

	*ret = g->secret;
	if (!g->only || strcmp(g->only, hello->job) == 0)
		return RS_OK;
	*refused = (struct control_refused){.code = RS_EREFUSED, .message = "no secret for that job"};
	return RS_EREFUSED;
}

static int may_join(void *ctx, const char *peer, const struct control_hello *hello, struct control_refused *refused)
{
	struct guard *g = ctx;

	ck_assert_str_eq(hello->job, "resnet");
	g->peer = peer;
	g->asked++;
	if (!g->closed)
		return RS_OK;
	*refused = (struct control_refused){.code = RS_EREFUSED, .message = "not you"};
	return RS_EREFUSED;
}

static int make_random(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	struct guard *g = ctx;

	if (g->no_randomness)
		return rs_fail(e, RS_EIO, "the system has no random numbers");
	memset(buf, g->next++, n);
	return RS_OK;
}

static void guard_init(struct guard *g, const char *secret)
{
	*g = (struct guard){.policy = {.random = make_random, .ctx = g}};
	if (!secret)
		return;
	g->secret.len = (uint32_t)strlen(secret);
	memcpy(g->secret.bytes, secret, g->secret.len);
	g->policy.secret = find_secret;
}

static const struct handshake_policy anybody;

/* A HELLO as a worker sends it; returns its length. */
static uint32_t make_hello(uint8_t *out, bool nonce)
{
	struct control_hello h = {.job = "resnet",
				  .rank = 1,
				  .world_size = 2,
				  .lanes = 1,
				  .label = "pid 7 on b",
				  .reducer = "r0",
				  .has_nonce = nonce};
	uint8_t payload[FRAME_CONTROL_MAX];

	return control_frame(out, FRAME_HELLO, 3, 0, payload, control_pack_hello(payload, &h));
}

/* Feeds bytes in pieces until the handshake has an answer; *ret_used: how many it took. */
static enum handshake_step feed(struct handshake *h, const uint8_t *bytes, size_t len, size_t piece,
				struct handshake_result *ret, size_t *ret_used)
{
	enum handshake_step step = HANDSHAKE_MORE;

	*ret_used = 0;
	while (step == HANDSHAKE_MORE && len > 0) {
		uint8_t *at;
		size_t n = handshake_target(h, &at);

		ck_assert_uint_gt(n, 0);
		n = n < piece ? n : piece;
		n = n < len ? n : len;
		memcpy(at, bytes, n);
		bytes += n;
		len -= n;
		*ret_used += n;
		step = handshake_received(h, n, ret);
	}
	return step;
}

START_TEST(a_hello_is_taken_in_any_pieces_and_nothing_behind_it)
{
	uint8_t bytes[HANDSHAKE_FRAME_MAX + 100];
	uint32_t len = make_hello(bytes, false);
	struct handshake h;
	struct handshake_result res;
	size_t used;

	memset(bytes + len, 'x', 100);
	for (size_t piece = 1; piece < len + 2; piece++) {
		handshake_init(&h, &anybody);
		ck_assert_str_eq(handshake_lacks(&h), "HELLO");
		ck_assert_int_eq(feed(&h, bytes, len + 100, piece, &res, &used), HANDSHAKE_ADMIT);
		ck_assert_uint_eq(used, len);
		ck_assert_str_eq(res.hello.job, "resnet");
		ck_assert_uint_eq(res.hello.rank, 1);
		ck_assert(!res.welcome.proven);
		handshake_close(&h);
		handshake_close(&h);
	}
}
END_TEST

static const struct {
	struct frame f;
	const char *payload, *want;
	bool damaged;
} refused[] = {
    {{.type = FRAME_DATA}, "", "the first frame is DATA instead of HELLO", false},
    {{.type = FRAME_PROOF}, "", "the first frame is PROOF instead of HELLO", false},
    {{.type = 99}, "", "frame type 99 is unknown", false},
    {{.type = FRAME_HELLO, .payload_len = 5000}, "", "announces 5000 payload bytes, at most 4096", false},
    {{.type = FRAME_HELLO, .payload_len = 3}, "\xff\xff\xff", "the HELLO message cannot be decoded", false},
    {{.type = FRAME_HELLO, .payload_len = 3}, "abc", "the checksum of the HELLO frame is wrong", true},
    {{.type = FRAME_HELLO, .payload_len = 4}, "\x0a\x02g\n", "job name in HELLO holds a control character", false},
    {{.type = FRAME_HELLO, .payload_len = 5},
     "\xaa\x01\x02nn",
     "the nonce in HELLO has 2 bytes, 32 were expected",
     false},
};

START_TEST(what_is_no_hello_is_refused_with_a_sentence)
{
	uint8_t bytes[HANDSHAKE_FRAME_MAX];
	struct frame f = refused[_i].f;
	struct handshake h;
	struct handshake_result res = {.refused = {.code = 0}};
	size_t len = strlen(refused[_i].payload), used;

	if (refused[_i].damaged) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = 1 + frame_checksum(refused[_i].payload, len);
	}
	frame_encode(&f, bytes);
	memcpy(bytes + FRAME_HEADER, refused[_i].payload, len);
	handshake_init(&h, &anybody);
	ck_assert_int_eq(feed(&h, bytes, FRAME_HEADER + len, SIZE_MAX, &res, &used), HANDSHAKE_REFUSED);
	ck_assert_int_eq(res.refused.code, RS_EPROTO);
	ck_assert_int_eq(res.refused.retry, refused[_i].damaged);
	ck_assert_msg(strstr(res.refused.message, refused[_i].want), "\"%s\"", res.refused.message);
	handshake_close(&h);
}
END_TEST

START_TEST(a_refusal_is_a_frame_that_says_whether_to_come_again)
{
	static const struct {
		int code;
		bool retry;
	} cases[] = {{RS_ENOMEM, true}, {RS_ETIMEOUT, true}, {RS_EPROTO, false}, {RS_EREFUSED, false}};
	uint8_t out[HANDSHAKE_FRAME_MAX];

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct control_refused refusal, got;
		struct rs_err why;
		struct frame f;
		uint32_t len;

		rs_fail(&why, cases[i].code, "because");
		refusal = handshake_refusal(&why);
		len = handshake_pack_refused(out, &refusal);
		ck_assert_int_eq(frame_decode(out, &f, &why), RS_OK);
		ck_assert_uint_eq(f.type, FRAME_REFUSED);
		ck_assert_uint_eq(len, FRAME_HEADER + f.payload_len);
		ck_assert_int_eq(control_unpack_refused(out + FRAME_HEADER, f.payload_len, &got, &why), RS_OK);
		ck_assert_int_eq(got.code, cases[i].code);
		ck_assert_int_eq(got.retry, cases[i].retry);
		ck_assert_str_eq(got.message, "because");
	}
}
END_TEST

START_TEST(who_does_not_go_on_is_told_what_was_expected)
{
	const struct {
		struct control_refused refused;
		int code;
		bool retry;
		const char *message;
	} cases[] = {
	    {handshake_late("PROOF", 400), RS_ETIMEOUT, true, "no complete PROOF came within 0.4 s"},
	    {handshake_broken_off("HELLO"), RS_EPROTO, false, "it closed the connection before a complete HELLO"},
	    {handshake_displaced("TLS handshake", "there are 2 connections"), RS_EREFUSED, true,
	     "no TLS handshake has come yet and there are 2 connections: the place goes to a newer connection"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		ck_assert_int_eq(cases[i].refused.code, cases[i].code);
		ck_assert_int_eq(cases[i].refused.retry, cases[i].retry);
		ck_assert_str_eq(cases[i].refused.message, cases[i].message);
	}
}
END_TEST

/* ---- with a secret ---- */

static const char shared[] = "correct horse battery staple";

/* Says HELLO and expects to be asked; *ret_len: what HELLO's payload has. */
static void be_challenged(struct handshake *h, const struct guard *g, uint8_t *hello, uint32_t *ret_len,
			  struct handshake_result *ret)
{
	size_t used;

	handshake_init(h, &g->policy);
	*ret_len = make_hello(hello, true);
	ck_assert_int_eq(feed(h, hello, *ret_len, SIZE_MAX, ret, &used), HANDSHAKE_SEND);
	ck_assert_uint_eq(used, *ret_len);
	*ret_len -= FRAME_HEADER;
	ck_assert_str_eq(handshake_lacks(h), "PROOF");
}

/* The PROOF of somebody who knows that secret. */
static uint32_t make_proof(uint8_t *out, const struct auth_secret *s, const struct handshake_channel *ch,
			   const uint8_t *hello, uint32_t hello_len, const struct handshake_result *res)
{
	struct auth_transcript t = {.hello = hello + FRAME_HEADER,
				    .hello_len = hello_len,
				    .challenge = res->frame + FRAME_HEADER,
				    .challenge_len = res->frame_len - FRAME_HEADER};
	uint8_t mac[AUTH_MAC], payload[CONTROL_PROOF_LEN];
	struct rs_err e;

	if (ch) {
		t.binding = ch->binding;
		t.binding_len = ch->binding_len;
	}
	ck_assert_int_eq(auth_mac(mac, s, AUTH_WORKER, &t, &e), RS_OK);
	return control_frame(out, FRAME_PROOF, 3, 0, payload, control_pack_proof(payload, mac));
}

START_TEST(who_proves_the_secret_is_admitted_and_gets_a_proof)
{
	uint8_t hello[HANDSHAKE_FRAME_MAX], proof[HANDSHAKE_FRAME_MAX], want[AUTH_MAC];
	struct handshake h;
	struct handshake_result res;
	struct auth_transcript t = {.hello = hello + FRAME_HEADER};
	uint8_t challenge[CONTROL_PROOF_LEN];
	uint32_t hello_len, len;
	struct guard g;
	struct rs_err e;
	size_t used;

	guard_init(&g, shared);
	for (size_t piece = 1; piece < 100; piece++) {
		be_challenged(&h, &g, hello, &hello_len, &res);
		t.hello_len = hello_len;
		t.challenge_len = res.frame_len - FRAME_HEADER;
		t.challenge = memcpy(challenge, res.frame + FRAME_HEADER, t.challenge_len);
		len = make_proof(proof, &g.secret, NULL, hello, hello_len, &res);
		memset(proof + len, 'x', 50);
		ck_assert_int_eq(feed(&h, proof, len + 50, piece, &res, &used), HANDSHAKE_ADMIT);
		ck_assert_uint_eq(used, len);
		ck_assert_str_eq(res.hello.job, "resnet");
		ck_assert_str_eq(res.hello.label, "pid 7 on b");
		ck_assert(res.welcome.proven);
		ck_assert_int_eq(auth_mac(want, &g.secret, AUTH_REDUCER, &t, &e), RS_OK);
		ck_assert_mem_eq(res.welcome.mac, want, sizeof want);
		handshake_close(&h);
	}
}
END_TEST

/* Each bit of the answer counts, and so does each of HELLO and of the channel. */
static const struct {
	const char *what;
	enum { SECRET, HELLO_BIT, BINDING, NO_BINDING, OTHER_CHALLENGE } wrong;
} unproven[] = {
    {"another secret", SECRET},
    {"another HELLO", HELLO_BIT},
    {"another channel", BINDING},
    {"no channel", NO_BINDING},
    {"the proof of an earlier connection", OTHER_CHALLENGE},
};

START_TEST(who_does_not_prove_it_is_refused)
{
	uint8_t hello[HANDSHAKE_FRAME_MAX], proof[HANDSHAKE_FRAME_MAX], ends[2][32] = {"here", "there"};
	struct handshake_channel here = {.binding = ends[0], .binding_len = 32},
				 there = {.binding = ends[1], .binding_len = 32};
	struct handshake h;
	struct handshake_result res, earlier;
	struct auth_secret s;
	uint32_t hello_len, len;
	struct guard g;
	size_t used;

	guard_init(&g, shared);
	s = g.secret;
	be_challenged(&h, &g, hello, &hello_len, &earlier);
	handshake_close(&h);
	handshake_init(&h, &g.policy);
	handshake_set_channel(&h, &here);
	ck_assert_int_eq(feed(&h, hello, hello_len + FRAME_HEADER, SIZE_MAX, &res, &used), HANDSHAKE_SEND);
	if (unproven[_i].wrong == SECRET)
		s.bytes[0] ^= 1;
	if (unproven[_i].wrong == HELLO_BIT)
		hello[FRAME_HEADER + hello_len - 1] ^= 1;
	if (unproven[_i].wrong == OTHER_CHALLENGE)
		res = earlier;
	len = make_proof(proof, &s,
			 unproven[_i].wrong == BINDING      ? &there
			 : unproven[_i].wrong == NO_BINDING ? NULL
							    : &here,
			 hello, hello_len, &res);
	ck_assert_msg(feed(&h, proof, len, SIZE_MAX, &res, &used) == HANDSHAKE_REFUSED, "%s", unproven[_i].what);
	ck_assert_int_eq(res.refused.code, RS_EREFUSED);
	ck_assert(!res.refused.retry);
	ck_assert_msg(strstr(res.refused.message, "rank 1 of job resnet (pid 7 on b) has not proven"), "\"%s\"",
		      res.refused.message);
	handshake_close(&h);
}
END_TEST

START_TEST(challenges_differ)
{
	uint8_t hello[HANDSHAKE_FRAME_MAX];
	struct handshake_result a, b;
	struct handshake h;
	uint32_t len;
	struct guard g;

	guard_init(&g, shared);
	be_challenged(&h, &g, hello, &len, &a);
	handshake_close(&h);
	be_challenged(&h, &g, hello, &len, &b);
	handshake_close(&h);
	ck_assert_uint_eq(a.frame_len, b.frame_len);
	ck_assert_mem_ne(a.frame + FRAME_HEADER, b.frame + FRAME_HEADER, a.frame_len - FRAME_HEADER);
}
END_TEST

static const struct {
	struct frame f;
	const char *payload, *want;
	bool damaged;
} no_proofs[] = {
    {{.type = FRAME_HELLO}, "", "the second frame is HELLO instead of PROOF", false},
    {{.type = FRAME_ABORT}, "", "the second frame is ABORT instead of PROOF", false},
    {{.type = FRAME_PROOF, .payload_len = 65}, "", "announces 65 payload bytes, at most 64", false},
    {{.type = FRAME_PROOF, .payload_len = 0}, "", "the proof in PROOF has 0 bytes, 32 were expected", false},
    {{.type = FRAME_PROOF, .payload_len = 3}, "\x0a\x01x", "the proof in PROOF has 1 bytes, 32 were expected", false},
    {{.type = FRAME_PROOF, .payload_len = 3}, "\xff\xff\xff", "the PROOF message cannot be decoded", false},
    {{.type = FRAME_PROOF, .payload_len = 3}, "abc", "the checksum of the PROOF frame is wrong", true},
};

START_TEST(what_is_no_proof_is_refused_with_a_sentence)
{
	uint8_t bytes[HANDSHAKE_FRAME_MAX];
	struct frame f = no_proofs[_i].f;
	size_t len = strlen(no_proofs[_i].payload), used;
	struct handshake h;
	struct handshake_result res;
	uint32_t hello_len;
	struct guard g;

	guard_init(&g, shared);
	be_challenged(&h, &g, bytes, &hello_len, &res);
	if (no_proofs[_i].damaged) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = 1 + frame_checksum(no_proofs[_i].payload, len);
	}
	frame_encode(&f, bytes);
	memcpy(bytes + FRAME_HEADER, no_proofs[_i].payload, len);
	ck_assert_int_eq(feed(&h, bytes, FRAME_HEADER + len, SIZE_MAX, &res, &used), HANDSHAKE_REFUSED);
	ck_assert_msg(strstr(res.refused.message, no_proofs[_i].want), "\"%s\"", res.refused.message);
	ck_assert_int_eq(res.refused.retry, no_proofs[_i].damaged);
	handshake_close(&h);
}
END_TEST

START_TEST(the_owner_decides_who_may_join_what)
{
	uint8_t hello[HANDSHAKE_FRAME_MAX];
	struct handshake_channel channel = {.peer = "node7.example"};
	uint32_t len = make_hello(hello, true);
	struct handshake_result res;
	struct handshake h;
	struct guard g;
	size_t used;

	/* a name that may not; one that may; no name at all */
	for (unsigned i = 0; i < 3; i++) {
		guard_init(&g, NULL);
		g.policy.may_join = may_join;
		g.closed = i == 0;
		handshake_init(&h, &g.policy);
		if (i < 2)
			handshake_set_channel(&h, &channel);
		ck_assert_int_eq(feed(&h, hello, len, SIZE_MAX, &res, &used), i ? HANDSHAKE_ADMIT : HANDSHAKE_REFUSED);
		if (i == 0)
			ck_assert_str_eq(res.refused.message, "not you");
		ck_assert_uint_eq(g.asked, 1);
		ck_assert_ptr_eq(g.peer, i < 2 ? channel.peer : NULL);
		handshake_close(&h);
	}
}
END_TEST

START_TEST(without_secret_nonce_or_randomness_nobody_is_asked)
{
	static const char *const says[] = {
	    "this reducer asks for the secret of job resnet and rank 1 has none: set security.secret",
	    "no secret for that job", "the system has no random numbers"};
	uint8_t hello[HANDSHAKE_FRAME_MAX];
	uint32_t len = make_hello(hello, _i != 0);
	struct handshake_result res;
	struct handshake h;
	struct guard g;
	size_t used;

	guard_init(&g, shared);
	g.only = _i == 1 ? "bert" : NULL;
	g.no_randomness = _i == 2;
	handshake_init(&h, &g.policy);
	ck_assert_int_eq(feed(&h, hello, len, SIZE_MAX, &res, &used), HANDSHAKE_REFUSED);
	ck_assert_str_eq(res.refused.message, says[_i]);
	handshake_close(&h);
}
END_TEST

/* ---- against an exchange ---- */

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
	return make_random(&((struct pair *)user)->worker, buf, n, e);
}

static void pair_open(struct pair *p, const char *worker, const char *reducer)
{
	struct exchange_options opt = {.cfg = &p->cfg,
				       .job = "resnet",
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

/* What the exchange has to send, to the handshake; MORE: it has nothing more to say. */
static enum handshake_step pump(struct pair *p)
{
	enum handshake_step step = HANDSHAKE_MORE;
	struct iovec iov[8];

	while (step == HANDSHAKE_MORE && exchange_send_target(p->x, 0, iov, 8)) {
		size_t used;

		step = feed(&p->h, iov[0].iov_base, iov[0].iov_len, SIZE_MAX, &p->res, &used);
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

/* A WAITING belongs only where the exchange has joined. */
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
	const char *refused;          /* what the reducer says, */
	const char *error;            /* and the exchange; NULL: the rank has joined */
} meetings[] = {
    {NULL, NULL, {NULL, NULL}, NULL, NULL},
    {shared, shared, {NULL, NULL}, NULL, NULL},
    {shared, shared, {"channel", "channel"}, NULL, NULL},
    {shared,
     shared,
     {"channel", "another"},
     "or somebody stands between the two",
     "has not proven that it has the job's"},
    {shared,
     shared,
     {"channel", NULL},
     "has not proven that it has the job's secret",
     "has not proven that it has the job's"},
    {"not the right secret",
     shared,
     {NULL, NULL},
     "has not proven that it has the job's secret",
     "has not proven that it has the job's"},
    {NULL,
     shared,
     {NULL, NULL},
     "asks for the secret of job resnet and rank 0 has none",
     "reducer r0 (h:1): this reducer asks for"},
    {shared, NULL, {NULL, NULL}, NULL, "reducer r0 (h:1): it has not proven that it has the secret of job resnet"},
};

START_TEST(a_worker_and_a_reducer_meet)
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

/* What somebody without the secret may say in the reducer's place. */
static const struct {
	const char *what;
	bool challenge; /* asks for a proof, and takes it, whatever it is */
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

	pair_open(&p, shared, NULL);
	exchange_connected(p.x, 0, 1000);
	ck_assert_int_eq(pump(&p), HANDSHAKE_ADMIT); /* it does not know better */
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
	    "reducer r0 (h:1): it has not proven that it has the secret of job resnet: its security.secrets "
	    "is not set, or it is somebody else's");
	pair_close(&p);
}
END_TEST

/* CHALLENGEs that a worker cannot or must not answer. */
static const struct {
	const char *secret;
	unsigned times;    /* that it comes */
	const char *bytes; /* in place of a nonce's */
	const char *error;
} challenges[] = {
    {NULL, 1, NULL, "it asks for the secret of job resnet, and this rank has none: set security.secret"},
    {shared, 2, NULL, "a CHALLENGE frame with 34 payload bytes came where none belongs"},
    {shared, 1, "\x0a\x01x", "the nonce in CHALLENGE has 1 bytes, 32 were expected"},
    {shared, 1, "", "the nonce in CHALLENGE has 0 bytes, 32 were expected"},
    {"x", 1, NULL, "the file is gone"},
};

START_TEST(a_challenge_that_cannot_be_met_is_an_error)
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

	pair_open(&p, shared, shared);
	for (unsigned i = 0; i < 2; i++) {
		exchange_connected(p.x, 0, 1000);
		ck_assert_int_eq(pump(&p), HANDSHAKE_SEND);
		memcpy(nonces[i], p.res.hello.nonce, AUTH_NONCE);
		answer(&p, p.res.frame, p.res.frame_len);
		ck_assert_int_eq(pump(&p), HANDSHAKE_ADMIT);
		if (i)
			break;
		/* the connection breaks before WELCOME, and on both sides the secret is another one now */
		exchange_disconnected(p.x, 0, "it broke", 1003);
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

	pair_open(&p, shared, shared);
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
	Suite *s = suite_create("handshake");
	TCase *tc = tcase_create("handshake");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, a_hello_is_taken_in_any_pieces_and_nothing_behind_it);
	tcase_add_loop_test(tc, what_is_no_hello_is_refused_with_a_sentence, 0, COUNT(refused));
	tcase_add_test(tc, a_refusal_is_a_frame_that_says_whether_to_come_again);
	tcase_add_test(tc, who_does_not_go_on_is_told_what_was_expected);
	tcase_add_test(tc, who_proves_the_secret_is_admitted_and_gets_a_proof);
	tcase_add_loop_test(tc, who_does_not_prove_it_is_refused, 0, COUNT(unproven));
	tcase_add_test(tc, challenges_differ);
	tcase_add_loop_test(tc, what_is_no_proof_is_refused_with_a_sentence, 0, COUNT(no_proofs));
	tcase_add_test(tc, the_owner_decides_who_may_join_what);
	tcase_add_loop_test(tc, without_secret_nonce_or_randomness_nobody_is_asked, 0, 3);
	tcase_add_loop_test(tc, a_worker_and_a_reducer_meet, 0, COUNT(meetings));
	tcase_add_loop_test(tc, an_impostor_is_not_trusted, 0, COUNT(impostors));
	tcase_add_loop_test(tc, a_challenge_that_cannot_be_met_is_an_error, 0, COUNT(challenges));
	tcase_add_test(tc, a_nonce_is_new_for_each_connection_and_a_secret_is_read_for_each);
	tcase_add_test(tc, without_random_numbers_a_worker_tries_again);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
