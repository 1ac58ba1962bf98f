/* SPDX-License-Identifier: Apache-2.0 */
/* Lent results: they stay in the caller's memory until later results of the same
 * operation displace them from the retained ones; see retain.h. Of other results the
 * exchange has a copy. */
#include "common/dtype.h"
#include "tests/unit/fake_ops.h"
#include "tests/unit/fake_views.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum {
	SIZE = 17, /* retained results with two links: 16 apart, plus one */
	CHUNKS = 40,
	ELEMS = CHUNKS * VIEWS_CHUNK,
	RING = 20, /* chunks */
	CHUNK_BYTES = VIEWS_CHUNK * sizeof(float),
};

/* Returns where the payload of a result is stored after its header: the bytes of the
 * chunk that is due on a link. */
static const uint8_t *receives_at(struct reducers *f, unsigned link)
{
	struct reducer_link *l = &f->l[link];
	struct frame h;
	struct iovec iov[2];
	void *payload;
	size_t rest = reducers_result(f, link, l->answered, &h, &payload);

	reducers_answer(f, link);
	l->out.len -= rest;
	while (reducers_step(f, link))
		;
	ck_assert_uint_eq(exchange_recv_target(f->x, link, iov), 2);
	l->out.len += rest;
	return iov[0].iov_base;
}

/* Operations, and the number of their first results that are received where they
 * belong. */
static const struct {
	const char *what;
	struct exchange_op op;
	bool in_place;
	unsigned chunks, direct;
} rows[] = {
    {"a long one", {0}, false, CHUNKS, CHUNKS},
    {"one that fits", {0}, false, SIZE, SIZE},
    {"in place", {0}, true, CHUNKS, 0},
    {"into a ring", {.recv_ring = RING * CHUNK_BYTES}, false, CHUNKS, 0},
    {"from a ring", {.send_ring = RING * CHUNK_BYTES}, false, CHUNKS, CHUNKS},
    {"a broadcast, which sends nothing", {.of.op = FRAME_OP_BROADCAST}, true, CHUNKS, CHUNKS},
};

START_TEST(where_results_are_received)
{
	float *x = ops_numbers(ELEMS), *y = rows[_i].in_place ? x : calloc(ELEMS, sizeof *y);
	struct exchange_op op = rows[_i].op;
	struct reducers f;
	struct fake_op o;

	views_open(&f, views_two);
	f.answer = false;
	op.send = x;
	op.recv = y;
	op.of.count = (uint64_t)rows[_i].chunks * VIEWS_CHUNK;
	op.of.dtype = RS_FLOAT32;
	ops_submit(&f, &o, op);
	reducers_pump(&f);
	for (unsigned i = 0; i < rows[_i].chunks; i++) {
		const uint8_t *at = receives_at(&f, i % 2);

		if ((at == (uint8_t *)y + i * CHUNK_BYTES) != (i < rows[_i].direct))
			ck_abort_msg("%s: chunk %u goes elsewhere", rows[_i].what, i);
		reducers_pump(&f);
	}
	ck_assert_int_eq(o.done, 1);
	if (op.of.op == RS_SUM && !op.recv_ring && !op.send_ring)
		ops_expect_tripled(y, op.of.count);
	reducers_close(&f);
	if (y != x)
		free(y);
	free(x);
}
END_TEST

/* The first of two links gets results for all chunks it may send while the second gets
 * none; then the second's reducer is lost. Returns the number of chunk frames that the
 * first had sent before. */
static unsigned lose_the_second(struct reducers *f)
{
	unsigned sent;

	while (f->l[0].answered < f->l[0].data_n) {
		reducers_answer(f, 0);
		reducers_pump(f);
	}
	sent = f->l[0].data_n;
	f->l[1].dead = f->resume = true;
	reducers_cut(f, 1, "cut");
	reducers_pump(f);
	return sent;
}

/* The original contribution is sent again, even if a part of its result has been
 * received. */
START_TEST(a_partial_result_leaves_the_contribution_intact)
{
	bool in_place = _i;
	float *x = ops_numbers(ELEMS), *y = in_place ? x : calloc(ELEMS, sizeof *y);
	struct reducers f;
	struct fake_op o;
	struct frame h;
	void *payload;

	views_open(&f, views_two);
	f.answer = false;
	ops_submit_floats(&f, &o, x, y, ELEMS);
	reducers_pump(&f);
	reducers_result(&f, 1, 0, &h, &payload);
	reducers_say(&f, 1, &h, payload);
	f.l[1].out.len -= 100;
	reducers_pump(&f);
	lose_the_second(&f);
	f.answer = true;
	while (f.l[0].answered < f.l[0].data_n)
		reducers_answer(&f, 0);
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	ops_expect_tripled(y, ELEMS);
	reducers_close(&f);
	if (!in_place)
		free(y);
	free(x);
}
END_TEST

static void expect_kept(const struct reducers *f, unsigned chunk, float factor)
{
	const float *got = (const float *)(const void *)f->l[0].kept_payload;

	ck_assert_uint_eq(f->l[0].kept.chunk, chunk);
	ck_assert_uint_eq(f->l[0].kept.payload_len, CHUNK_BYTES);
	for (unsigned i = 0; i < VIEWS_CHUNK; i++)
		if (got[i] != factor * (float)((chunk * VIEWS_CHUNK + i) % 1000 + 1))
			ck_abort_msg("element %u of chunk %u is %g", i, chunk, (double)got[i]);
}

/* Other ranks get the lent bytes; for a broadcast the root's own bytes. */
START_TEST(lent_results_can_be_fetched)
{
	bool root = _i;
	float *x = ops_numbers(ELEMS), *y = calloc(ELEMS, sizeof *y);
	struct reducers f;
	struct fake_op o;
	unsigned sent;

	views_open(&f, views_two);
	f.answer = false;
	ops_submit(&f, &o,
		   (struct exchange_op){.send = x,
					.recv = y,
					.of.count = ELEMS,
					.of.dtype = RS_FLOAT32,
					.of.op = root ? FRAME_OP_BROADCAST : RS_SUM,
					.root = root});
	reducers_pump(&f);
	sent = lose_the_second(&f);
	ck_assert_str_eq(views_said(&f, 0, sent), "H0 D1 H2 D3");
	ck_assert_int_eq(o.done, 0);
	reducers_fetch(&f, 0, sent + 2);
	reducers_pump(&f);
	expect_kept(&f, 2, root ? 1 : 3);
	while (!o.done) {
		reducers_answer(&f, 0);
		reducers_pump(&f);
	}
	if (!root)
		ops_expect_tripled(y, ELEMS);
	reducers_close(&f);
	free(x);
	free(y);
}
END_TEST

/* The exchange reads no memory that belongs to the caller again, even if a reducer asks
 * for a result it does not need and reads the answer late. */
START_TEST(a_late_kept_reads_no_memory_of_the_caller)
{
	float *x = ops_numbers(ELEMS), *y = calloc(ELEMS, sizeof *y);
	struct reducers f;
	struct fake_op o;
	unsigned sent;

	views_open(&f, views_two);
	f.answer = false;
	ops_submit_floats(&f, &o, x, y, ELEMS);
	reducers_pump(&f);
	sent = lose_the_second(&f);
	f.mute = true;
	reducers_fetch(&f, 0, sent + 2);
	reducers_pump(&f);
	memset(y + 2 * VIEWS_CHUNK, 0xdb, CHUNK_BYTES); /* as if it were completed */
	f.mute = false;
	reducers_pump(&f);
	expect_kept(&f, 2, 3);
	exchange_abort(f.x, RS_ECLOSED, "enough", f.now_ms);
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	reducers_close(&f);
	free(x);
	free(y);
}
END_TEST

/* The last results of an operation are copied: its owner may change its memory when it is
 * done. */
START_TEST(the_last_results_are_copied)
{
	unsigned chunks = SIZE + (unsigned)_i; /* of SIZE + 2 chunks the first two are lent */
	float *x = ops_numbers(ELEMS), *y = calloc(ELEMS, sizeof *y);
	struct reducers f;
	struct fake_op o;
	unsigned sent;

	views_open(&f, views_two);
	f.answer = false;
	ops_submit_floats(&f, &o, x, y, (uint64_t)chunks * VIEWS_CHUNK);
	reducers_pump(&f);
	sent = lose_the_second(&f);
	memset(y, 0xdb, CHUNK_BYTES * (size_t)chunks);
	reducers_fetch(&f, 0, sent + 2);
	reducers_pump(&f);
	expect_kept(&f, 2, 3);
	reducers_close(&f);
	free(x);
	free(y);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("link_retained");
	TCase *tc = tcase_create("results");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, where_results_are_received, 0, COUNT(rows));
	tcase_add_loop_test(tc, a_partial_result_leaves_the_contribution_intact, 0, 2);
	tcase_add_loop_test(tc, lent_results_can_be_fetched, 0, 2);
	tcase_add_test(tc, a_late_kept_reads_no_memory_of_the_caller);
	tcase_add_loop_test(tc, the_last_results_are_copied, 0, 3);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
