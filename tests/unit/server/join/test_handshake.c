/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer's side of the handshake. */
#include "tests/unit/fake_guard.h"

#include <check.h>
#include <string.h>

static const struct handshake_policy anybody;

/* Makes a HELLO as a worker sends it; returns its length. */
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

START_TEST(hello_is_received_in_pieces_and_bytes_after_it_are_left)
{
	uint8_t bytes[HANDSHAKE_FRAME_MAX + 100];
	uint32_t len = make_hello(bytes, false);
	struct handshake h;
	struct handshake_result res;
	size_t used;

	memset(bytes + len, 'x', 100);
	for (size_t piece = 1; piece < len + 2; piece++) {
		handshake_init(&h, &anybody);
		ck_assert_str_eq(handshake_missing(&h), "HELLO");
		ck_assert_int_eq(guard_feed(&h, bytes, len + 100, piece, &res, &used), HANDSHAKE_ADMIT);
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

START_TEST(other_frames_than_hello_are_refused)
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
	ck_assert_int_eq(guard_feed(&h, bytes, FRAME_HEADER + len, SIZE_MAX, &res, &used), HANDSHAKE_REFUSED);
	ck_assert_int_eq(res.refused.code, RS_EPROTO);
	ck_assert_int_eq(res.refused.retry, refused[_i].damaged);
	ck_assert_msg(strstr(res.refused.message, refused[_i].want), "\"%s\"", res.refused.message);
	handshake_close(&h);
}
END_TEST

START_TEST(refused_says_whether_to_retry)
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

START_TEST(refusals_name_the_missing_frame)
{
	const struct {
		struct control_refused refused;
		int code;
		bool retry;
		const char *message;
	} cases[] = {
	    {handshake_refusal_timeout("PROOF", 400), RS_ETIMEOUT, true, "no complete PROOF came within 0.4 s"},
	    {handshake_refusal_closed("HELLO"), RS_EPROTO, false, "it closed the connection before a complete HELLO"},
	    {handshake_refusal_displaced("TLS handshake", "there are 2 connections"), RS_EREFUSED, true,
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

/* Sends HELLO and expects CHALLENGE; *ret_len is the length of HELLO's payload. */
static void be_challenged(struct handshake *h, const struct guard *g, uint8_t *hello, uint32_t *ret_len,
			  struct handshake_result *ret)
{
	size_t used;

	handshake_init(h, &g->policy);
	*ret_len = make_hello(hello, true);
	ck_assert_int_eq(guard_feed(h, hello, *ret_len, SIZE_MAX, ret, &used), HANDSHAKE_SEND);
	ck_assert_uint_eq(used, *ret_len);
	*ret_len -= FRAME_HEADER;
	ck_assert_str_eq(handshake_missing(h), "PROOF");
}

/* Decodes the WELCOME of a step. */
static void expect_welcome(const struct handshake_result *res, struct control_welcome *ret)
{
	struct frame f;
	struct rs_err e;

	ck_assert_uint_le(res->frame_len, sizeof res->frame);
	ck_assert_int_eq(frame_decode(res->frame, &f, &e), RS_OK);
	ck_assert_uint_eq(f.type, FRAME_WELCOME);
	ck_assert_uint_eq(res->frame_len, FRAME_HEADER + f.payload_len);
	ck_assert(control_intact(&f, res->frame + FRAME_HEADER));
	ck_assert_int_eq(control_unpack_welcome(res->frame + FRAME_HEADER, f.payload_len, ret, &e), RS_OK);
	ck_assert_int_eq(strncmp(ret->software, "reduction ", 10), 0);
}

/* Makes the PROOF of a worker that knows that secret. */
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

START_TEST(a_proof_is_answered_with_a_proof)
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

	guard_init(&g, guard_shared);
	for (size_t piece = 1; piece < 100; piece++) {
		be_challenged(&h, &g, hello, &hello_len, &res);
		t.hello_len = hello_len;
		t.challenge_len = res.frame_len - FRAME_HEADER;
		t.challenge = memcpy(challenge, res.frame + FRAME_HEADER, t.challenge_len);
		len = make_proof(proof, &g.secret, NULL, hello, hello_len, &res);
		memset(proof + len, 'x', 50);
		ck_assert_int_eq(guard_feed(&h, proof, len + 50, piece, &res, &used), HANDSHAKE_ADMIT);
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

/* A HELLO for no world is answered and not admitted, after the same proofs as any
 * other. */
START_TEST(a_question_joins_nothing)
{
	uint8_t hello[HANDSHAKE_FRAME_MAX], proof[HANDSHAKE_FRAME_MAX], payload[FRAME_CONTROL_MAX];
	struct control_hello asks = {.job = "resnet", .lanes = 1, .has_nonce = _i};
	struct control_welcome welcome;
	struct handshake_result res;
	struct handshake h;
	struct guard g;
	uint32_t len;
	size_t used;

	guard_init(&g, guard_shared);
	len = control_frame(hello, FRAME_HELLO, 3, 0, payload, control_pack_hello(payload, &asks));
	handshake_init(&h, _i ? &g.policy : &anybody);
	if (_i) {
		ck_assert_int_eq(guard_feed(&h, hello, len, SIZE_MAX, &res, &used), HANDSHAKE_SEND);
		len = make_proof(proof, &g.secret, NULL, hello, len - FRAME_HEADER, &res);
		ck_assert_int_eq(guard_feed(&h, proof, len, SIZE_MAX, &res, &used), HANDSHAKE_PROBED);
	} else {
		ck_assert_int_eq(guard_feed(&h, hello, len, SIZE_MAX, &res, &used), HANDSHAKE_PROBED);
	}
	expect_welcome(&res, &welcome);
	ck_assert_int_eq(welcome.proven, _i);
	handshake_close(&h);
}
END_TEST

/* Each flipped bit of PROOF, of HELLO and of the channel binding is detected. */
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

START_TEST(a_wrong_proof_is_refused)
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

	guard_init(&g, guard_shared);
	s = g.secret;
	be_challenged(&h, &g, hello, &hello_len, &earlier);
	handshake_close(&h);
	handshake_init(&h, &g.policy);
	handshake_set_channel(&h, &here);
	ck_assert_int_eq(guard_feed(&h, hello, hello_len + FRAME_HEADER, SIZE_MAX, &res, &used), HANDSHAKE_SEND);
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
	ck_assert_msg(guard_feed(&h, proof, len, SIZE_MAX, &res, &used) == HANDSHAKE_REFUSED, "%s", unproven[_i].what);
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

	guard_init(&g, guard_shared);
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

START_TEST(other_frames_than_proof_are_refused)
{
	uint8_t bytes[HANDSHAKE_FRAME_MAX];
	struct frame f = no_proofs[_i].f;
	size_t len = strlen(no_proofs[_i].payload), used;
	struct handshake h;
	struct handshake_result res;
	uint32_t hello_len;
	struct guard g;

	guard_init(&g, guard_shared);
	be_challenged(&h, &g, bytes, &hello_len, &res);
	if (no_proofs[_i].damaged) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = 1 + frame_checksum(no_proofs[_i].payload, len);
	}
	frame_encode(&f, bytes);
	memcpy(bytes + FRAME_HEADER, no_proofs[_i].payload, len);
	ck_assert_int_eq(guard_feed(&h, bytes, FRAME_HEADER + len, SIZE_MAX, &res, &used), HANDSHAKE_REFUSED);
	ck_assert_msg(strstr(res.refused.message, no_proofs[_i].want), "\"%s\"", res.refused.message);
	ck_assert_int_eq(res.refused.retry, no_proofs[_i].damaged);
	handshake_close(&h);
}
END_TEST

START_TEST(the_policy_decides_who_may_join)
{
	uint8_t hello[HANDSHAKE_FRAME_MAX];
	struct handshake_channel channel = {.peer = "node7.example"};
	uint32_t len = make_hello(hello, true);
	struct handshake_result res;
	struct handshake h;
	struct guard g;
	size_t used;

	/* a name without access; one with access; no name */
	for (unsigned i = 0; i < 3; i++) {
		guard_init(&g, NULL);
		g.policy.may_join = guard_may_join;
		g.closed = i == 0;
		handshake_init(&h, &g.policy);
		if (i < 2)
			handshake_set_channel(&h, &channel);
		ck_assert_int_eq(guard_feed(&h, hello, len, SIZE_MAX, &res, &used),
				 i ? HANDSHAKE_ADMIT : HANDSHAKE_REFUSED);
		if (i == 0)
			ck_assert_str_eq(res.refused.message, "not you");
		else
			ck_assert_double_eq(res.weight, 2.5);
		ck_assert_uint_eq(g.asked, 1);
		ck_assert_ptr_eq(g.peer, i < 2 ? channel.peer : NULL);
		handshake_close(&h);
	}
}
END_TEST

START_TEST(no_challenge_without_secret_nonce_or_randomness)
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

	guard_init(&g, guard_shared);
	g.only = _i == 1 ? "bert" : NULL;
	g.no_randomness = _i == 2;
	handshake_init(&h, &g.policy);
	ck_assert_int_eq(guard_feed(&h, hello, len, SIZE_MAX, &res, &used), HANDSHAKE_REFUSED);
	ck_assert_str_eq(res.refused.message, says[_i]);
	handshake_close(&h);
}
END_TEST

#define COUNT(list) (int)(sizeof(list) / sizeof(list)[0])

int main(void)
{
	Suite *s = suite_create("handshake");
	TCase *tc = tcase_create("handshake");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, hello_is_received_in_pieces_and_bytes_after_it_are_left);
	tcase_add_loop_test(tc, other_frames_than_hello_are_refused, 0, COUNT(refused));
	tcase_add_test(tc, refused_says_whether_to_retry);
	tcase_add_test(tc, refusals_name_the_missing_frame);
	tcase_add_test(tc, a_proof_is_answered_with_a_proof);
	tcase_add_loop_test(tc, a_question_joins_nothing, 0, 2);
	tcase_add_loop_test(tc, a_wrong_proof_is_refused, 0, COUNT(unproven));
	tcase_add_test(tc, challenges_differ);
	tcase_add_loop_test(tc, other_frames_than_proof_are_refused, 0, COUNT(no_proofs));
	tcase_add_test(tc, the_policy_decides_who_may_join);
	tcase_add_loop_test(tc, no_challenge_without_secret_nonce_or_randomness, 0, 3);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
