/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/control.h"
#include "proto/reduction.pb-c.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct control_hello full_hello(void)
{
	struct control_hello h = {.generation = UINT32_MAX,
				  .rank = 4094,
				  .world_size = 4095,
				  .lane = 63,
				  .lanes = 64,
				  .chunk_bytes = 4 << 20,
				  .window = 1024,
				  .priorities = 4,
				  .deterministic = true,
				  .checksum = true,
				  .config_digest = UINT64_MAX - 1,
				  .processes = 8,
				  .incarnation = UINT64_MAX,
				  .detect_ms = 10000};

	memset(h.job, 'j', sizeof h.job - 1);
	memset(h.label, 'l', sizeof h.label - 1);
	memset(h.reducer, 'r', sizeof h.reducer - 1);
	return h;
}

enum { NUMBERS = 14 };

static void numbers_of(const struct control_hello *h, uint64_t out[NUMBERS])
{
	const uint64_t n[NUMBERS] = {h->generation,  h->rank,        h->world_size,    h->lane,      h->lanes,
				     h->chunk_bytes, h->window,      h->deterministic, h->checksum,  h->config_digest,
				     h->processes,   h->incarnation, h->detect_ms,     h->priorities};

	memcpy(out, n, sizeof n);
}

static void expect_same(const struct control_hello *a, const struct control_hello *b)
{
	uint64_t na[NUMBERS], nb[NUMBERS];

	numbers_of(a, na);
	numbers_of(b, nb);
	ck_assert(memcmp(na, nb, sizeof na) == 0);
	ck_assert(strcmp(a->job, b->job) == 0);
	ck_assert(strcmp(a->label, b->label) == 0);
	ck_assert(strcmp(a->reducer, b->reducer) == 0);
}

START_TEST(hello_comes_back_as_it_was)
{
	struct control_hello h = full_hello(), empty = {0}, got;
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err e;
	uint32_t len;

	memset(&got, 0xa5, sizeof got);
	len = control_pack_hello(out, _i ? &h : &empty);
	ck_assert_uint_le(len, FRAME_CONTROL_MAX);
	ck_assert_int_eq(control_unpack_hello(out, len, &got, &e), RS_OK);
	expect_same(&got, _i ? &h : &empty);
}
END_TEST

START_TEST(the_other_messages_come_back_as_they_were)
{
	struct control_refused r = {.code = RS_EREFUSED, .retry = true}, r2;
	struct control_waiting w = {.joined = 3, .world_size = 40, .missing_n = CONTROL_MISSING}, w2;
	struct control_late l = {.seq = UINT64_MAX,
				 .waited_ms = UINT32_MAX,
				 .missing_n = CONTROL_MISSING,
				 .missing_all = 4000},
			    l2;
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err why, e;
	uint32_t len, detect;

	memset(r.message, 'm', sizeof r.message - 1);
	len = control_pack_refused(out, &r);
	ck_assert_int_eq(control_unpack_refused(out, len, &r2, &e), RS_OK);
	ck_assert_int_eq(r2.code, r.code);
	ck_assert(r2.retry);
	ck_assert_str_eq(r2.message, r.message);

	for (unsigned i = 0; i < CONTROL_MISSING; i++)
		w.missing[i] = UINT32_MAX - i;
	len = control_pack_waiting(out, &w);
	ck_assert_int_eq(control_unpack_waiting(out, len, &w2, &e), RS_OK);
	ck_assert_mem_eq(&w2, &w, sizeof w);

	memset(l.label, 'l', sizeof l.label - 1);
	for (unsigned i = 0; i < CONTROL_MISSING; i++)
		l.missing[i] = UINT32_MAX - i;
	len = control_pack_late(out, &l);
	ck_assert_uint_le(len, FRAME_CONTROL_MAX);
	ck_assert_int_eq(control_unpack_late(out, len, &l2, &e), RS_OK);
	ck_assert_mem_eq(&l2, &l, sizeof l);

	len = control_pack_welcome(out, 12345);
	ck_assert_int_eq(control_unpack_welcome(out, len, &detect, &e), RS_OK);
	ck_assert_uint_eq(detect, 12345);

	len = control_pack_abort(out, RS_EPEER, "rank 3 was lost");
	ck_assert_int_eq(control_unpack_abort(out, len, &why, &e), RS_OK);
	ck_assert_int_eq(why.code, RS_EPEER);
	ck_assert_str_eq(why.msg, "rank 3 was lost");
}
END_TEST

START_TEST(codes_from_the_wire_are_codes)
{
	static const struct {
		int code, want;
	} rows[] = {{RS_EINVAL, RS_EINVAL}, {RS_ENONFINITE, RS_ENONFINITE}, {0, RS_EPROTO},        {1, RS_EPROTO},
		    {-15, RS_EPROTO},       {INT32_MIN, RS_EPROTO},         {INT32_MAX, RS_EPROTO}};
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_refused r = {.message = "no"}, r2;
	struct rs_err why, e;
	uint32_t len;

	r.code = rows[_i].code;
	len = control_pack_refused(out, &r);
	ck_assert_int_eq(control_unpack_refused(out, len, &r2, &e), RS_OK);
	ck_assert_int_eq(r2.code, rows[_i].want);
	len = control_pack_abort(out, rows[_i].code, "x");
	ck_assert_int_eq(control_unpack_abort(out, len, &why, &e), RS_OK);
	ck_assert_int_eq(why.code, rows[_i].want);
}
END_TEST

/* Strings that no well-meaning peer sends, packed without this library's limits. */
START_TEST(names_are_checked)
{
	static const struct {
		char *job, *label, *reducer;
		const char *says;
	} rows[] = {
	    {"a\nb", "", "", "job name in HELLO holds a control character"},
	    {"a", "\033[2J", "", "label in HELLO holds a control character"},
	    {"a", "", "\177", "reducer id in HELLO holds a control character"},
	    {"0123456789012345678901234567890123456789012345678901234567890123", "", "",
	     "job name in HELLO has 64 bytes, at most 63"},
	    {"a", "", "0123456789012345678901234567890123456789012345678901234567890123",
	     "reducer id in HELLO has 64 bytes, at most 63"},
	};
	Reduction__V1__Hello m = REDUCTION__V1__HELLO__INIT;
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_hello h, before;
	struct rs_err e;

	m.job = rows[_i].job;
	m.label = rows[_i].label;
	m.reducer = rows[_i].reducer;
	memset(&h, 0x5a, sizeof h);
	before = h;
	ck_assert_int_eq(control_unpack_hello(out, (uint32_t)reduction__v1__hello__pack(&m, out), &h, &e), RS_EPROTO);
	ck_assert_ptr_nonnull(strstr(e.msg, rows[_i].says));
	ck_assert_mem_eq(&h, &before, sizeof h);
}
END_TEST

START_TEST(sentences_are_cut_and_made_harmless)
{
	Reduction__V1__Abort a = REDUCTION__V1__ABORT__INIT;
	Reduction__V1__Refused r = REDUCTION__V1__REFUSED__INIT;
	static const char controls[] = {'a', '\n', 'b', '\033', '\177'};
	static char text[2000];
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_refused refused;
	struct rs_err why, e;

	memset(text, 'x', sizeof text - 1);
	memcpy(text, controls, sizeof controls);
	a.message = r.message = text;
	ck_assert_int_eq(control_unpack_abort(out, (uint32_t)reduction__v1__abort__pack(&a, out), &why, &e), RS_OK);
	ck_assert_uint_eq(strlen(why.msg), sizeof why.msg - 1);
	ck_assert_int_eq(strncmp(why.msg, "a?b??xxx", 8), 0);
	ck_assert_int_eq(control_unpack_refused(out, (uint32_t)reduction__v1__refused__pack(&r, out), &refused, &e),
			 RS_OK);
	ck_assert_uint_eq(strlen(refused.message), sizeof refused.message - 1);
	ck_assert_int_eq(strncmp(refused.message, "a?b??xxx", 8), 0);
	a.message = r.message = "";
	ck_assert_int_eq(control_unpack_abort(out, (uint32_t)reduction__v1__abort__pack(&a, out), &why, &e), RS_OK);
	ck_assert_str_eq(why.msg, "the peer gave no reason");
	ck_assert_int_eq(control_unpack_refused(out, (uint32_t)reduction__v1__refused__pack(&r, out), &refused, &e),
			 RS_OK);
	ck_assert_str_eq(refused.message, "the peer gave no reason");
	/* what is sent is cut before */
	ck_assert_uint_lt(control_pack_abort(out, RS_EIO, text), 600);
}
END_TEST

START_TEST(more_missing_ranks_than_there_is_room_for)
{
	Reduction__V1__Waiting m = REDUCTION__V1__WAITING__INIT;
	uint32_t missing[500];
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_waiting w;
	struct rs_err e;

	for (uint32_t i = 0; i < 500; i++)
		missing[i] = i;
	m.missing = missing;
	m.n_missing = 500;
	ck_assert_int_eq(control_unpack_waiting(out, (uint32_t)reduction__v1__waiting__pack(&m, out), &w, &e), RS_OK);
	ck_assert_uint_eq(w.missing_n, CONTROL_MISSING);
	ck_assert_uint_eq(w.missing[CONTROL_MISSING - 1], CONTROL_MISSING - 1);
}
END_TEST

/* A peer that cannot count or name nobody is told from one that can. */
START_TEST(who_is_late_has_a_name)
{
	uint32_t missing[20] = {7, 8};
	Reduction__V1__Late m = REDUCTION__V1__LATE__INIT;
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_late l;
	struct rs_err e;

	m.seq = 3;
	ck_assert_int_eq(control_unpack_late(out, (uint32_t)reduction__v1__late__pack(&m, out), &l, &e), RS_EPROTO);
	m.missing = missing;
	m.n_missing = 20;
	m.missing_all = 1;
	m.label = (char[]){"b\nad"};
	ck_assert_int_eq(control_unpack_late(out, (uint32_t)reduction__v1__late__pack(&m, out), &l, &e), RS_OK);
	ck_assert_uint_eq(l.missing_n, CONTROL_MISSING);
	ck_assert_uint_eq(l.missing_all, CONTROL_MISSING);
	ck_assert_str_eq(l.label, "b?ad");
}
END_TEST

/* Every unpacker survives the bytes; a refusal has a sentence. */
static void unpack_all(const uint8_t *in, uint32_t len)
{
	/* of exactly that size, so that the sanitizer sees a byte too far */
	uint8_t *copy = malloc(len + !len);
	struct control_hello h;
	struct control_refused r;
	struct control_waiting w;
	struct control_late l;
	struct rs_err why, e[6] = {0};
	uint32_t detect;
	int rc[6];

	memcpy(copy, in, len);
	rc[0] = control_unpack_hello(copy, len, &h, &e[0]);
	rc[1] = control_unpack_welcome(copy, len, &detect, &e[1]);
	rc[2] = control_unpack_refused(copy, len, &r, &e[2]);
	rc[3] = control_unpack_waiting(copy, len, &w, &e[3]);
	rc[4] = control_unpack_abort(copy, len, &why, &e[4]);
	rc[5] = control_unpack_late(copy, len, &l, &e[5]);
	for (unsigned i = 0; i < 6; i++)
		if (rc[i] != RS_OK && (rc[i] != RS_EPROTO || !e[i].msg[0]))
			ck_abort_msg("unpacker %u: code %d, \"%s\"", i, rc[i], e[i].msg);
	free(copy);
}

START_TEST(cut_and_flipped_bytes_are_survived)
{
	struct control_hello h = full_hello();
	uint8_t out[FRAME_CONTROL_MAX];
	uint32_t len = control_pack_hello(out, &h);

	for (uint32_t n = 0; n <= len; n++)
		unpack_all(out, n);
	for (uint32_t bit = 0; bit < 8 * len; bit++) {
		out[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		unpack_all(out, len);
		out[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
}
END_TEST

START_TEST(a_frame_holds_header_and_payload)
{
	uint8_t out[FRAME_HEADER + FRAME_CONTROL_MAX], payload[FRAME_CONTROL_MAX];
	uint32_t n = _i ? FRAME_CONTROL_MAX : 0;
	struct frame f;
	struct rs_err e;

	memset(payload, 0x3c, sizeof payload);
	ck_assert_uint_eq(control_frame(out, FRAME_WAITING, 9, 44, _i ? payload : NULL, n), FRAME_HEADER + n);
	ck_assert_int_eq(frame_decode(out, &f, &e), RS_OK);
	ck_assert_uint_eq(f.type, FRAME_WAITING);
	ck_assert_uint_eq(f.generation, 9);
	ck_assert_uint_eq(f.ack, 44);
	ck_assert_uint_eq(f.payload_len, n);
	ck_assert_int_eq(memcmp(out + FRAME_HEADER, payload, n), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, hello_comes_back_as_it_was, 0, 2);
	tcase_add_test(tc, the_other_messages_come_back_as_they_were);
	tcase_add_test(tc, who_is_late_has_a_name);
	tcase_add_loop_test(tc, codes_from_the_wire_are_codes, 0, 7);
	tcase_add_loop_test(tc, names_are_checked, 0, 5);
	tcase_add_test(tc, sentences_are_cut_and_made_harmless);
	tcase_add_test(tc, more_missing_ranks_than_there_is_room_for);
	tcase_add_test(tc, cut_and_flipped_bytes_are_survived);
	tcase_add_loop_test(tc, a_frame_holds_header_and_payload, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
