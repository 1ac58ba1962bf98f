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
				  .retain = true,
				  .rejoin = true,
				  .shared = true,
				  .config_digest = UINT64_MAX - 1,
				  .processes = 8,
				  .incarnation = UINT64_MAX,
				  .detect_ms = 10000,
				  .features = UINT64_MAX - 2,
				  .has_nonce = true};

	memset(h.job, 'j', sizeof h.job - 1);
	memset(h.label, 'l', sizeof h.label - 1);
	memset(h.reducer, 'r', sizeof h.reducer - 1);
	memset(h.run, 'u', sizeof h.run - 1);
	memset(h.evidence, 'e', sizeof h.evidence - 1);
	memset(h.source, 's', sizeof h.source - 1);
	memset(h.nonce, 0xee, sizeof h.nonce);
	return h;
}

enum { NUMBERS = 18 };

static void numbers_of(const struct control_hello *h, uint64_t out[NUMBERS])
{
	const uint64_t n[NUMBERS] = {h->generation,  h->rank,        h->world_size,    h->lane,       h->lanes,
				     h->chunk_bytes, h->window,      h->deterministic, h->checksum,   h->config_digest,
				     h->processes,   h->incarnation, h->detect_ms,     h->priorities, h->retain,
				     h->rejoin,      h->features,    h->shared};

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
	ck_assert(strcmp(a->run, b->run) == 0);
	ck_assert(strcmp(a->evidence, b->evidence) == 0);
	ck_assert(strcmp(a->source, b->source) == 0);
	ck_assert_int_eq(a->has_nonce, b->has_nonce);
	ck_assert_mem_eq(a->nonce, b->nonce, sizeof a->nonce);
}

START_TEST(hello_survives_a_round_trip)
{
	struct control_hello h = full_hello(), empty = {0}, got;
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err e;
	uint32_t len;

	memset(&got, 0xa5, sizeof got);
	len = control_pack_hello(out, _i ? &h : &empty);
	ck_assert_uint_le(len, CONTROL_HELLO_LEN);
	ck_assert_int_eq(control_unpack_hello(out, len, &got, &e), RS_OK);
	expect_same(&got, _i ? &h : &empty);
}
END_TEST

START_TEST(other_messages_survive_a_round_trip)
{
	struct control_refused r = {.code = RS_EREFUSED, .retry = true, .elsewhere = true, .reducer = "r7"}, r2;
	struct control_waiting w = {.joined = 3, .world_size = 40, .missing_n = CONTROL_MISSING}, w2;
	struct control_late l = {.seq = UINT64_MAX,
				 .waited_ms = UINT32_MAX,
				 .missing_n = CONTROL_MISSING,
				 .missing_all = 4000},
			    l2;
	uint8_t out[FRAME_CONTROL_MAX];
	uint8_t proof[AUTH_MAC], back[AUTH_MAC];
	struct control_start start = {.features = UINT64_MAX, .start = UINT64_MAX - 1}, start2;
	struct rs_cause cause;
	struct rs_err why, e;
	uint32_t len;

	memset(r.message, 'm', sizeof r.message - 1);
	len = control_pack_refused(out, &r);
	ck_assert_int_eq(control_unpack_refused(out, len, &r2, &e), RS_OK);
	ck_assert_int_eq(r2.code, r.code);
	ck_assert(r2.retry);
	ck_assert(r2.elsewhere);
	ck_assert_str_eq(r2.reducer, "r7");
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

	for (unsigned i = 0; i < 2; i++) {
		struct control_welcome in = {.detect_ms = 12345, .proven = i, .features = i ? UINT64_MAX : 0}, got;

		memset(in.mac, i ? 0xab : 0, sizeof in.mac);
		len = control_pack_welcome(out, &in);
		ck_assert_int_eq(control_unpack_welcome(out, len, &got, &e), RS_OK);
		ck_assert_uint_eq(got.detect_ms, 12345);
		ck_assert_int_eq(got.proven, in.proven);
		ck_assert_mem_eq(got.mac, in.mac, sizeof in.mac);
		ck_assert_uint_le(len, CONTROL_WELCOME_LEN);
		ck_assert_uint_eq(got.features, in.features);
	}
	len = control_pack_start(out, &start);
	ck_assert_uint_le(len, CONTROL_START_LEN);
	ck_assert_int_eq(control_unpack_start(out, len, &start2, &e), RS_OK);
	ck_assert_mem_eq(&start2, &start, sizeof start);
	ck_assert_int_eq(control_unpack_start(out, 0, &start2, &e), RS_OK);
	ck_assert(start2.features == 0 && start2.start == 0);
	memset(proof, 0x5a, sizeof proof);
	len = control_pack_challenge(out, proof);
	ck_assert_uint_le(len, CONTROL_PROOF_LEN);
	ck_assert_int_eq(control_unpack_challenge(out, len, back, &e), RS_OK);
	ck_assert_mem_eq(back, proof, sizeof proof);
	memset(proof, 0xa5, sizeof proof);
	len = control_pack_proof(out, proof);
	ck_assert_uint_le(len, CONTROL_PROOF_LEN);
	ck_assert_int_eq(control_unpack_proof(out, len, back, &e), RS_OK);
	ck_assert_mem_eq(back, proof, sizeof proof);

	rs_fail(&why, RS_ECUT, "rank 3 was lost");
	len = control_pack_abort(out, &why, &(struct rs_cause){RS_EPEER, 1 + 2, 1 + 4, RS_LOSS_RESET, true});
	memset(&why, 0, sizeof why);
	ck_assert_int_eq(control_unpack_abort(out, len, &why, &cause, &e), RS_OK);
	ck_assert_int_eq(why.code, RS_ECUT);
	ck_assert(cause.code == RS_EPEER && cause.rank == 1 + 2 && cause.reducer == 1 + 4 &&
		  cause.loss == RS_LOSS_RESET && cause.narrow);
	ck_assert_str_eq(why.msg, "rank 3 was lost");
}
END_TEST

START_TEST(unknown_codes_become_a_protocol_error)
{
	static const struct {
		int code, want;
	} rows[] = {{RS_EINVAL, RS_EINVAL}, {RS_ENONFINITE, RS_ENONFINITE}, {0, RS_EPROTO},        {1, RS_EPROTO},
		    {-16, RS_EPROTO},       {INT32_MIN, RS_EPROTO},         {INT32_MAX, RS_EPROTO}};
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_refused r = {.message = "no"}, r2;
	struct rs_cause cause;
	struct rs_err why, e;
	uint32_t len;

	r.code = rows[_i].code;
	len = control_pack_refused(out, &r);
	ck_assert_int_eq(control_unpack_refused(out, len, &r2, &e), RS_OK);
	ck_assert_int_eq(r2.code, rows[_i].want);
	rs_fail(&why, rows[_i].code, "x");
	len = control_pack_abort(out, &why, NULL);
	ck_assert_int_eq(control_unpack_abort(out, len, &why, &cause, &e), RS_OK);
	ck_assert_int_eq(why.code, rows[_i].want);
	ck_assert_int_eq(cause.code, rows[_i].want);
}
END_TEST

/* Strings that a correct peer never sends, packed without this library's limits. */
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

START_TEST(messages_are_cut_and_escaped)
{
	Reduction__V1__Abort a = REDUCTION__V1__ABORT__INIT;
	Reduction__V1__Refused r = REDUCTION__V1__REFUSED__INIT;
	static const char controls[] = {'a', '\n', 'b', '\033', '\177'};
	static char text[2000];
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_refused refused;
	struct rs_cause cause;
	struct rs_err why, e;

	memset(text, 'x', sizeof text - 1);
	memcpy(text, controls, sizeof controls);
	a.message = r.message = text;
	ck_assert_int_eq(control_unpack_abort(out, (uint32_t)reduction__v1__abort__pack(&a, out), &why, &cause, &e),
			 RS_OK);
	ck_assert_uint_eq(strlen(why.msg), sizeof why.msg - 1);
	ck_assert_int_eq(strncmp(why.msg, "a?b??xxx", 8), 0);
	ck_assert_int_eq(control_unpack_refused(out, (uint32_t)reduction__v1__refused__pack(&r, out), &refused, &e),
			 RS_OK);
	ck_assert_uint_eq(strlen(refused.message), sizeof refused.message - 1);
	ck_assert_int_eq(strncmp(refused.message, "a?b??xxx", 8), 0);
	a.message = r.message = "";
	ck_assert_int_eq(control_unpack_abort(out, (uint32_t)reduction__v1__abort__pack(&a, out), &why, &cause, &e),
			 RS_OK);
	ck_assert_str_eq(why.msg, "the peer gave no reason");
	ck_assert_int_eq(control_unpack_refused(out, (uint32_t)reduction__v1__refused__pack(&r, out), &refused, &e),
			 RS_OK);
	ck_assert_str_eq(refused.message, "the peer gave no reason");
}
END_TEST

/* A peer of release 0.1 has the cause in its sentence alone. */
START_TEST(causes_of_an_older_peer)
{
	static const struct {
		char *why;
		unsigned rank; /* 1 + rank; 0: none */
	} rows[] = {{"rank 3 (pid 7 on b) was lost: it closed the connection", 4},
		    {"rank 0 was lost while the job was starting", 1},
		    {"rank 3 continues without reducer r1 (b:7600): connection reset by peer", 0},
		    {"reducer r1 (b:7600) was lost: connection reset by peer", 0},
		    {"rank 4294967295 was lost", 0},
		    {"this reducer is shutting down", 0}};
	Reduction__V1__Abort a = REDUCTION__V1__ABORT__INIT;
	Reduction__V1__View v = REDUCTION__V1__VIEW__INIT;
	uint64_t start[FRAME_PRIORITIES] = {0};
	uint32_t lives[] = {0, 1};
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_view view;
	struct rs_cause cause;
	struct rs_err why, e;

	a.code = RS_ECUT;
	a.message = v.why = rows[_i].why;
	ck_assert_int_eq(control_unpack_abort(out, (uint32_t)reduction__v1__abort__pack(&a, out), &why, &cause, &e),
			 RS_OK);
	ck_assert_uint_eq(cause.rank, rows[_i].rank);
	ck_assert_int_eq(cause.code, rows[_i].rank ? RS_EPEER : RS_ECUT);
	v.lives = lives;
	v.n_lives = 2;
	v.start = start;
	v.n_start = FRAME_PRIORITIES;
	v.lost = 2;
	v.reported = true;
	ck_assert_int_eq(control_unpack_view(out, (uint32_t)reduction__v1__view__pack(&v, out), &view, &e), RS_OK);
	ck_assert_uint_eq(view.cause.rank, rows[_i].rank);
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

/* A peer that sends no counts or names is distinguished from one that does. */
START_TEST(late_messages_carry_the_label)
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

/* Every unpacker handles any bytes without a crash, and a refusal has a message. */
static void unpack_all(const uint8_t *in, uint32_t len)
{
	/* exactly that size, so that the sanitizer sees an access past the end */
	uint8_t *copy = malloc(len + !len);
	struct control_hello h;
	struct control_refused r;
	struct control_waiting w;
	struct control_late l;
	struct control_view v;
	struct control_welcome welcome;
	uint8_t bytes[AUTH_NONCE];
	struct rs_cause cause;
	struct rs_err why, e[9] = {0};
	int rc[9];

	memcpy(copy, in, len);
	rc[0] = control_unpack_hello(copy, len, &h, &e[0]);
	rc[1] = control_unpack_welcome(copy, len, &welcome, &e[1]);
	rc[2] = control_unpack_refused(copy, len, &r, &e[2]);
	rc[3] = control_unpack_waiting(copy, len, &w, &e[3]);
	rc[4] = control_unpack_abort(copy, len, &why, &cause, &e[4]);
	rc[5] = control_unpack_late(copy, len, &l, &e[5]);
	rc[6] = control_unpack_view(copy, len, &v, &e[6]);
	rc[7] = control_unpack_challenge(copy, len, bytes, &e[7]);
	rc[8] = control_unpack_proof(copy, len, bytes, &e[8]);
	for (unsigned i = 0; i < 9; i++)
		if (rc[i] != RS_OK && (rc[i] != RS_EPROTO || !e[i].msg[0]))
			ck_abort_msg("unpacker %u: code %d, \"%s\"", i, rc[i], e[i].msg);
	free(copy);
}

START_TEST(truncated_and_corrupt_messages_are_refused)
{
	struct control_hello h = full_hello();
	struct control_view v = {.n = 9, .lives = {1, 2, 3, 300, 70000}, .start = {1, UINT64_MAX, 3, 1 << 20}};
	uint8_t out[FRAME_CONTROL_MAX];
	uint32_t len = _i ? control_pack_view(out, &v) : control_pack_hello(out, &h);

	for (uint32_t n = 0; n <= len; n++)
		unpack_all(out, n);
	for (uint32_t bit = 0; bit < 8 * len; bit++) {
		out[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		unpack_all(out, len);
		out[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
}
END_TEST

static struct control_view view_of(unsigned n, uint32_t life, uint64_t start)
{
	struct control_view v = {.n = n};

	for (unsigned i = 0; i < n; i++)
		v.lives[i] = life - i % 2;
	for (unsigned p = 0; p < FRAME_PRIORITIES; p++)
		v.start[p] = start - p;
	return v;
}

/* The largest message fits into a control frame, and into the queues' space for one. */
START_TEST(views_survive_a_round_trip)
{
	static const struct {
		unsigned n;
		uint32_t life;
		uint64_t start;
		uint32_t epoch, share;
	} rows[] = {
	    {1, 1, 3, 0, 0},
	    {2, 1, 3, 0, 0},
	    {3, 1 << 16, 1 << 20, 0, 0},
	    {3, 1, 3, 1, 2},
	    {3, 1, 3, CONTROL_LIFE_MAX, CONTROL_SHARE_MAX},
	    {CONTROL_REDUCERS, CONTROL_LIFE_MAX, UINT64_MAX, CONTROL_LIFE_MAX, CONTROL_SHARE_MAX},
	};
	struct control_view v = view_of(rows[_i].n, rows[_i].life, rows[_i].start), got;
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err e;
	uint32_t len;

	v.epoch = rows[_i].epoch;
	for (unsigned i = 0; v.epoch && i < v.n; i++)
		v.shares[i] = rows[_i].share - i % 2;
	v.lost = v.n;
	memset(v.why, 'w', sizeof v.why - 1);
	memset(v.lost_id, 'i', sizeof v.lost_id - 1);
	v.reported = true;
	v.cause = (struct rs_cause){.code = RS_EPEER, .rank = UINT16_MAX, .reducer = v.n, .loss = RS_LOSS_RESET};
	v.features = UINT64_MAX;
	v.lead = UINT32_MAX;
	memset(v.empty, true, v.n);
	len = control_pack_view(out, &v);
	ck_assert_uint_le(len, CONTROL_VIEW);
	memset(&got, 0xa5, sizeof got);
	ck_assert_int_eq(control_unpack_view(out, len, &got, &e), RS_OK);
	ck_assert_mem_eq(got.empty, v.empty, v.n);
	ck_assert_uint_eq(got.n, v.n);
	ck_assert_mem_eq(got.lives, v.lives, sizeof v.lives);
	ck_assert_mem_eq(got.start, v.start, sizeof v.start);
	ck_assert_uint_eq(got.epoch, v.epoch);
	ck_assert_mem_eq(got.shares, v.shares, sizeof v.shares);
}
END_TEST

/* Shares that come with an epoch, for three reducers. */
START_TEST(shares_of_a_view_are_checked)
{
	static const struct {
		uint32_t epoch;
		size_t n;
		uint32_t first, last;
		int rc;
	} rows[] = {
	    {0, 0, 0, 0, RS_OK},
	    {1, 3, 1, 1, RS_OK},
	    {CONTROL_LIFE_MAX, 3, 1, CONTROL_SHARE_MAX, RS_OK},
	    {CONTROL_LIFE_MAX + 1, 3, 1, 1, RS_EPROTO},
	    {UINT32_MAX, 3, 1, 1, RS_EPROTO},
	    {1, 0, 0, 0, RS_EPROTO}, /* an epoch without shares */
	    {1, 2, 1, 1, RS_EPROTO},
	    {1, 4, 1, 1, RS_EPROTO},
	    {0, 3, 1, 1, RS_EPROTO}, /* shares without an epoch */
	    {0, 1, 1, 1, RS_EPROTO},
	    {1, 3, 0, 1, RS_EPROTO},
	    {1, 3, 1, 0, RS_EPROTO},
	    {1, 3, CONTROL_SHARE_MAX + 1, 1, RS_EPROTO},
	    {1, 3, 1, UINT32_MAX, RS_EPROTO},
	};
	Reduction__V1__View m = REDUCTION__V1__VIEW__INIT;
	uint32_t lives[3] = {0, 1, 0}, shares[4] = {9, 9, 9, 9};
	uint64_t start[FRAME_PRIORITIES] = {0};
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_view v, before;
	struct rs_err e = {0};

	m.lives = lives;
	m.n_lives = 3;
	m.start = start;
	m.n_start = FRAME_PRIORITIES;
	m.epoch = rows[_i].epoch;
	m.shares = shares;
	m.n_shares = rows[_i].n;
	shares[0] = rows[_i].first;
	if (rows[_i].n)
		shares[rows[_i].n - 1] = rows[_i].last;
	memset(&v, 0x5a, sizeof v);
	before = v;
	ck_assert_int_eq(control_unpack_view(out, (uint32_t)reduction__v1__view__pack(&m, out), &v, &e), rows[_i].rc);
	if (rows[_i].rc) {
		ck_assert_ptr_nonnull(strstr(e.msg, "a VIEW or RESUME message holds numbers that are out of range"));
		ck_assert_mem_eq(&v, &before, sizeof v);
	} else {
		ck_assert_uint_eq(v.epoch, rows[_i].epoch);
		ck_assert_mem_eq(v.shares, m.epoch ? shares : (uint32_t[4]){0}, sizeof lives);
	}
}
END_TEST

START_TEST(invalid_views_are_refused)
{
	static const struct {
		size_t lives, starts;
		uint32_t last_life;
		int rc;
	} rows[] = {
	    {1, FRAME_PRIORITIES, CONTROL_LIFE_MAX, RS_OK},
	    {CONTROL_REDUCERS, FRAME_PRIORITIES, 0, RS_OK},
	    {0, FRAME_PRIORITIES, 0, RS_EPROTO},
	    {CONTROL_REDUCERS + 1, FRAME_PRIORITIES, 0, RS_EPROTO},
	    {2, FRAME_PRIORITIES - 1, 0, RS_EPROTO},
	    {2, FRAME_PRIORITIES + 1, 0, RS_EPROTO},
	    {2, 0, 0, RS_EPROTO},
	    {2, FRAME_PRIORITIES, CONTROL_LIFE_MAX + 1, RS_EPROTO},
	    {2, FRAME_PRIORITIES, UINT32_MAX, RS_EPROTO},
	};
	Reduction__V1__View m = REDUCTION__V1__VIEW__INIT;
	uint32_t lives[CONTROL_REDUCERS + 1] = {0};
	uint64_t start[FRAME_PRIORITIES + 1] = {0};
	uint8_t out[FRAME_CONTROL_MAX];
	struct control_view v, before;
	struct rs_err e = {0};

	m.lives = lives;
	m.n_lives = rows[_i].lives;
	if (m.n_lives)
		lives[m.n_lives - 1] = rows[_i].last_life;
	m.start = start;
	m.n_start = rows[_i].starts;
	memset(&v, 0x5a, sizeof v);
	before = v;
	ck_assert_int_eq(control_unpack_view(out, (uint32_t)reduction__v1__view__pack(&m, out), &v, &e), rows[_i].rc);
	if (rows[_i].rc) {
		ck_assert_ptr_nonnull(strstr(e.msg, rows[_i].starts == FRAME_PRIORITIES
							? "a VIEW or RESUME message holds numbers that are out of range"
							: "numbers in start, 4 were expected"));
		ck_assert_mem_eq(&v, &before, sizeof v);
	}
}
END_TEST

/* Known lives of three reducers, received lives, and the merged lives. */
static const struct {
	uint32_t to[3], from[3], want[3];
	bool changed;
	uint64_t number;
} merges[] = {
    {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, false, 0},
    {{0, 0, 0}, {0, 1, 0}, {0, 1, 0}, true, 1},
    {{1, 0, 0}, {0, 1, 0}, {1, 1, 0}, true, 2},
    {{1, 1, 0}, {0, 1, 0}, {1, 1, 0}, false, 2}, /* nothing is taken back */
    {{2, 0, 0}, {1, 0, 0}, {2, 0, 0}, false, 2}, /* nor is a returned reducer lost again */
    {{1, 0, 0}, {2, 0, 0}, {2, 0, 0}, true, 2},
    {{3, 0, 4}, {2, 1, 5}, {3, 1, 5}, true, 9},
};

START_TEST(views_are_merged_by_their_maximum)
{
	struct control_view to = {.n = 3, .start = {9}}, from = {.n = 3, .start = {99}};

	memcpy(to.lives, merges[_i].to, sizeof merges[_i].to);
	memcpy(from.lives, merges[_i].from, sizeof merges[_i].from);
	ck_assert(control_view_merge(&to, &from) == merges[_i].changed);
	ck_assert_mem_eq(to.lives, merges[_i].want, sizeof merges[_i].want);
	ck_assert_uint_eq(control_view_number(&to), merges[_i].number);
	ck_assert_uint_eq(to.start[0], 9); /* each rank's own start */
	ck_assert(!control_view_merge(&to, &from));
}
END_TEST

/* The epochs of two views, and of the merged one; the shares of the views differ, unless
 * they are of one epoch. */
static const struct {
	uint32_t to, from, want;
	bool changed, conflicts;
} epochs[] = {
    {0, 0, 0, false, false}, {0, 1, 1, true, false},
    {1, 0, 1, false, false}, {1, 2, 2, true, false},
    {2, 1, 2, false, false}, {2, 2, 2, false, false},
    {2, 2, 2, false, true},  {5, CONTROL_LIFE_MAX, CONTROL_LIFE_MAX, true, false},
};

START_TEST(shares_of_the_larger_epoch_are_taken)
{
	struct control_view to = {.n = 3, .lives = {0, 1, 2}, .epoch = epochs[_i].to};
	struct control_view from = {.n = 3, .lives = {0, 1, 2}, .epoch = epochs[_i].from, .lost = 2}, want;

	for (unsigned i = 0; i < 3; i++) {
		to.shares[i] = to.epoch ? to.epoch + i : 0;
		from.shares[i] = from.epoch ? from.epoch + i + (i == 2 && epochs[_i].conflicts) : 0;
	}
	want = from.epoch > to.epoch ? from : to;
	ck_assert(control_view_conflicts(&to, &from) == epochs[_i].conflicts);
	ck_assert(control_view_conflicts(&from, &to) == epochs[_i].conflicts);
	ck_assert(control_view_merge(&to, &from) == epochs[_i].changed);
	ck_assert_uint_eq(to.epoch, epochs[_i].want);
	ck_assert_mem_eq(to.shares, want.shares, sizeof want.shares);
	ck_assert_uint_eq(control_view_number(&to), 3 + (uint64_t)epochs[_i].want);
	ck_assert_uint_eq(to.lost, 0); /* shares are no news of a loss */
	ck_assert(!control_view_merge(&to, &from));
}
END_TEST

/* All orders of the same views give the same result. */
START_TEST(merging_views_is_independent_of_order)
{
	static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	static const uint32_t news[3][3] = {{1, 0, 2}, {0, 3, 1}, {2, 1, 0}};
	static const uint32_t want[3] = {2, 3, 2};
	struct control_view v = {.n = 3};

	for (unsigned i = 0; i < 3; i++) {
		uint32_t epoch = orders[_i][i]; /* one of the views has no shares */
		struct control_view from = {.n = 3, .epoch = epoch, .shares = {epoch, 2 * epoch, 3 * epoch}};

		memcpy(from.lives, news[orders[_i][i]], sizeof news[0]);
		control_view_merge(&v, &from);
	}
	ck_assert_mem_eq(v.lives, want, sizeof want);
	ck_assert(v.epoch == 2 && v.shares[0] == 2 && v.shares[1] == 4 && v.shares[2] == 6);
}
END_TEST

START_TEST(corruption_is_detected)
{
	struct control_view v = view_of(5, 3, 70);
	uint8_t out[FRAME_HEADER + FRAME_CONTROL_MAX], payload[FRAME_CONTROL_MAX];
	uint32_t len = control_frame(out, FRAME_VIEW, 1, 0, payload, control_pack_view(payload, &v));
	struct frame f;
	struct rs_err e;

	ck_assert_int_eq(frame_decode(out, &f, &e), RS_OK);
	ck_assert(control_intact(&f, out + FRAME_HEADER));
	for (uint32_t bit = 8 * FRAME_HEADER; bit < 8 * len; bit++) {
		out[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		ck_assert(!control_intact(&f, out + FRAME_HEADER));
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

	tcase_add_loop_test(tc, hello_survives_a_round_trip, 0, 2);
	tcase_add_test(tc, other_messages_survive_a_round_trip);
	tcase_add_test(tc, late_messages_carry_the_label);
	tcase_add_loop_test(tc, unknown_codes_become_a_protocol_error, 0, 7);
	tcase_add_loop_test(tc, names_are_checked, 0, 5);
	tcase_add_test(tc, messages_are_cut_and_escaped);
	tcase_add_loop_test(tc, causes_of_an_older_peer, 0, 6);
	tcase_add_loop_test(tc, causes_of_an_older_peer, 0, 6);
	tcase_add_test(tc, more_missing_ranks_than_there_is_room_for);
	tcase_add_loop_test(tc, truncated_and_corrupt_messages_are_refused, 0, 2);
	tcase_add_loop_test(tc, views_survive_a_round_trip, 0, 6);
	tcase_add_loop_test(tc, shares_of_a_view_are_checked, 0, 14);
	tcase_add_loop_test(tc, shares_of_the_larger_epoch_are_taken, 0, sizeof epochs / sizeof epochs[0]);
	tcase_add_loop_test(tc, invalid_views_are_refused, 0, 9);
	tcase_add_loop_test(tc, views_are_merged_by_their_maximum, 0, sizeof merges / sizeof merges[0]);
	tcase_add_loop_test(tc, merging_views_is_independent_of_order, 0, 6);
	tcase_add_test(tc, corruption_is_detected);
	tcase_add_loop_test(tc, a_frame_holds_header_and_payload, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
