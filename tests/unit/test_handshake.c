/* SPDX-License-Identifier: Apache-2.0 */
#include "server/handshake.h"

#include <check.h>
#include <string.h>

/* A HELLO as a worker sends it; returns its length. */
static uint32_t make_hello(uint8_t *out)
{
	struct control_hello h = {
	    .job = "resnet", .rank = 1, .world_size = 2, .lanes = 1, .label = "pid 7 on b", .reducer = "r0"};
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
	uint32_t len = make_hello(bytes);
	struct handshake h;
	struct handshake_result res;
	size_t used;

	memset(bytes + len, 'x', 100);
	for (size_t piece = 1; piece < len + 2; piece++) {
		handshake_init(&h);
		ck_assert_str_eq(handshake_lacks(&h), "HELLO");
		ck_assert_int_eq(feed(&h, bytes, len + 100, piece, &res, &used), HANDSHAKE_ADMIT);
		ck_assert_uint_eq(used, len);
		ck_assert_str_eq(res.hello.job, "resnet");
		ck_assert_uint_eq(res.hello.rank, 1);
		handshake_close(&h);
		handshake_close(&h);
	}
}
END_TEST

static const struct {
	struct frame f;
	const char *payload, *want;
	bool damaged, retry;
} refused[] = {
    {{.type = FRAME_DATA}, "", "the first frame is DATA instead of HELLO", false, false},
    {{.type = 99}, "", "frame type 99 is unknown", false, false},
    {{.type = FRAME_HELLO, .payload_len = 5000}, "", "announces 5000 payload bytes, at most 4096", false, false},
    {{.type = FRAME_HELLO, .payload_len = 3}, "\xff\xff\xff", "the HELLO message cannot be decoded", false, false},
    {{.type = FRAME_HELLO, .payload_len = 3}, "abc", "the checksum of the HELLO frame is wrong", true, true},
    {{.type = FRAME_HELLO, .payload_len = 4},
     "\x0a\x02g\n",
     "job name in HELLO holds a control character",
     false,
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
	handshake_init(&h);
	ck_assert_int_eq(feed(&h, bytes, FRAME_HEADER + len, SIZE_MAX, &res, &used), HANDSHAKE_REFUSED);
	ck_assert_int_eq(res.refused.code, RS_EPROTO);
	ck_assert_int_eq(res.refused.retry, refused[_i].retry);
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

int main(void)
{
	Suite *s = suite_create("handshake");
	TCase *tc = tcase_create("handshake");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, a_hello_is_taken_in_any_pieces_and_nothing_behind_it);
	tcase_add_loop_test(tc, what_is_no_hello_is_refused_with_a_sentence, 0, sizeof refused / sizeof refused[0]);
	tcase_add_test(tc, a_refusal_is_a_frame_that_says_whether_to_come_again);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
