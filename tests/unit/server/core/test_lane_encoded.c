/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of encoded operations, in every order in which bytes can arrive: units of a
 * contribution are blocks, and pieces of its bytes end anywhere in them. The expected
 * bits are those of wire_ref.h. */
#include "proto/features.h"
#include "tests/unit/fake_worker.h"
#include "tests/unit/oracle.h"
#include "tests/unit/wire_ref.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD = 3, CHUNK = 512, MOST = 4 * CHUNK, WIDE_RANK = 1 };

static const size_t pieces[] = {1, 2, 61, 65, 66, 67, 129, 130, 131, 193, 194, SIZE_MAX};
enum { PIECES_N = sizeof pieces / sizeof pieces[0] };

static const struct row {
	unsigned dtype, op, up, down;
} rows[] = {
    {RS_FLOAT32, RS_SUM, RS_WIRE_FP8, RS_WIRE_FP8},   {RS_FLOAT32, RS_AVG, RS_WIRE_INT8, RS_WIRE_INT8},
    {RS_FLOAT32, RS_AVG, RS_WIRE_BF16, RS_WIRE_BF16}, {RS_FLOAT32, RS_SUM, RS_WIRE_FP8, RS_WIRE_BF16},
    {RS_FLOAT32, RS_SUM, RS_WIRE_INT8, RS_WIRE_SAME}, {RS_FLOAT32, RS_SUM, RS_WIRE_SAME, RS_WIRE_FP8},
    {RS_FLOAT16, RS_SUM, RS_WIRE_FP8, RS_WIRE_INT8},  {RS_FLOAT16, RS_AVG, RS_WIRE_INT8, RS_WIRE_SAME},
    {RS_FLOAT16, RS_AVG, RS_WIRE_SAME, RS_WIRE_FP8},  {RS_BFLOAT16, RS_SUM, RS_WIRE_SAME, RS_WIRE_INT8},
    {RS_BFLOAT16, RS_SUM, RS_WIRE_FP8, RS_WIRE_SAME}, {RS_FLOAT32, RS_SUM, RS_WIRE_FP16, RS_WIRE_FP16},
    {RS_FLOAT16, RS_AVG, RS_WIRE_FP16, RS_WIRE_SAME}, {RS_FLOAT16, RS_AVG, RS_WIRE_FP16, RS_WIRE_INT8},
    {RS_FLOAT32, RS_AVG, RS_WIRE_INT4, RS_WIRE_INT4}, {RS_BFLOAT16, RS_SUM, RS_WIRE_INT4, RS_WIRE_FP8},
};

static void open_encoded(struct fw_world *fw, struct fw_options opt)
{
	opt.chunk_bytes = CHUNK;
	opt.decoded_bytes = 8 * CHUNK;
	opt.window = 8;
	opt.features = FEATURE_ENCODINGS;
	fw_running(fw, &opt);
}

static struct frame encoded_data(const struct row *row, uint32_t tail)
{
	struct frame f = {
	    .type = FRAME_DATA,
	    .of.dtype = row->dtype & 15,
	    .of.op = row->op & 31,
	    .of.up = row->up & 15,
	    .of.down = row->down & 7,
	    .of.size = rs_dtype_size(row->dtype) & OPERATION_SIZE,
	    .of.seq = 3,
	    .generation = FAKE_GENERATION,
	};

	f.chunk_elems = operation_chunk_elems(&f.of, CHUNK, 8 * CHUNK);
	f.of.count = f.chunk_elems + tail;
	return f;
}

/* Element i of a rank: sums of what is decoded are exact in any order. */
static float element(unsigned rank, uint64_t i)
{
	return (float)((int)((i * 37 + rank * 11) % 97) - 48) * 0.25F * (float)(1 << i / 128 % 3);
}

/* Writes n values as elements of the dtype. */
static uint32_t put_elements(unsigned char *to, unsigned dtype, const float *x, uint32_t n)
{
	if (dtype == RS_FLOAT32)
		memcpy(to, x, n * sizeof *x);
	for (uint32_t i = 0; i < n && dtype != RS_FLOAT32; i++) {
		uint16_t code = oracle_half(dtype, x[i]);

		memcpy(to + i * sizeof code, &code, sizeof code);
	}
	return n * (uint32_t)rs_dtype_size(dtype);
}

/* Writes the contribution of a rank; returns its bytes. x: its values as the reducer
 * decodes them. */
static uint32_t put_contribution(unsigned char *to, const struct frame *f, unsigned rank, float *x, uint32_t n)
{
	uint64_t first = (uint64_t)f->chunk * f->chunk_elems;

	for (uint32_t i = 0; i < n; i++)
		x[i] = element(rank, first + i);
	if (f->flags & FRAME_WIDE)
		return put_elements(to, RS_FLOAT32, x, n);
	if (!f->of.up) {
		for (uint32_t i = 0; i < n && f->of.dtype != RS_FLOAT32; i++)
			x[i] = (float)oracle_half_value(f->of.dtype, oracle_half(f->of.dtype, x[i]));
		return put_elements(to, f->of.dtype, x, n);
	}
	wref_encode(f->of.up, to, x, n, (struct wref_rounding){0});
	for (uint32_t i = 0; i < n; i++)
		x[i] = wref_decode(f->of.up, to, i);
	return operation_up_bytes(&f->of, n);
}

/* Sends all chunks of a rank, and adds its values to the sums. */
static void contribute_all(struct fw_world *fw, unsigned rank, struct frame f, float *sums)
{
	unsigned char payload[MOST * sizeof(float)];
	float x[MOST];

	for (f.chunk = 0; f.chunk < frame_chunks(f.of.count, f.chunk_elems); f.chunk++) {
		uint32_t n = frame_chunk_len(f.of.count, f.chunk_elems, f.chunk);

		f.payload_len = put_contribution(payload, &f, rank, x, n);
		f.flags &= FRAME_WIDE;
		if (fw->params.checksum) {
			f.flags |= FRAME_CHECKED;
			f.payload_sum = frame_checksum(payload, f.payload_len);
		}
		fw_send(fw, rank, f, payload);
		for (uint32_t i = 0; i < n; i++)
			sums[f.chunk * f.chunk_elems + i] += x[i];
	}
}

/* Writes the result of a chunk; returns its bytes. */
static uint32_t put_result(unsigned char *to, const struct frame *f, const float *sums)
{
	uint32_t n = frame_chunk_len(f->of.count, f->chunk_elems, f->chunk);
	float x[MOST];

	for (uint32_t i = 0; i < n; i++)
		x[i] = sums[f->chunk * f->chunk_elems + i] / (f->of.op == RS_AVG ? WORLD : 1);
	if (!f->of.down)
		return put_elements(to, f->of.dtype, x, n);
	wref_encode(f->of.down, to, x, n, (struct wref_rounding){0});
	return operation_down_bytes(&f->of, n);
}

static void expect_results(struct fw_world *fw, unsigned rank, struct frame want, const float *sums)
{
	unsigned char bytes[MOST * sizeof(float)];
	const uint8_t *payload;
	struct frame f;

	for (want.chunk = 0; want.chunk < frame_chunks(want.of.count, want.chunk_elems); want.chunk++) {
		uint32_t len = put_result(bytes, &want, sums);

		if (!fw_take(fw, rank, &f, &payload))
			ck_abort_msg("rank %u has no result (%s)", rank, fw->why.msg);
		must(f.type == FRAME_RESULT && f.chunk == want.chunk && f.payload_len == len);
		must(f.of.up == want.of.up && f.of.down == want.of.down && f.chunk_elems == want.chunk_elems);
		must(memcmp(payload, bytes, len) == 0);
	}
}

/* All pieces, with and without checksums and the order of ranks; the last block of the
 * operation has all its elements, 1, or 3. A rank may send float32 beside. */
START_TEST(blocks_are_split_anywhere)
{
	static const uint32_t tails[] = {0, 1, 131};
	const struct row *row = &rows[_i];

	for (unsigned how = 0; how < 4; how++)
		for (unsigned t = 0; t < 3; t++)
			for (unsigned p = 0; p < PIECES_N; p++) {
				struct frame f = encoded_data(row, tails[t]);
				float sums[MOST] = {0};
				struct fw_world fw;

				open_encoded(&fw, (struct fw_options){
						      .world = WORLD, .deterministic = how & 1, .checksum = how & 2});
				for (unsigned r = 0; r < WORLD; r++) {
					f.flags =
					    r == WIDE_RANK && rs_dtype_is_half(row->dtype) && !row->up ? FRAME_WIDE : 0;
					contribute_all(&fw, r, f, sums);
				}
				fw.out_piece = pieces[p];
				fw_feed_all(&fw, pieces[p]);
				for (unsigned r = 0; r < WORLD; r++)
					expect_results(&fw, r, f, sums);
				fw_say_goodbye(&fw);
			}
}
END_TEST

/* A rank that has the result sends it as it came; the others get these bytes. _i: its
 * length is wrong. */
START_TEST(kept_results_are_encoded)
{
	static const struct row row = {RS_FLOAT32, RS_SUM, RS_WIRE_FP8, RS_WIRE_INT8};
	struct frame f = encoded_data(&row, 0), got;
	unsigned char bytes[MOST * sizeof(float)];
	float sums[MOST] = {0};
	const uint8_t *payload;
	struct fw_world fw;

	f.of.count = 131;
	open_encoded(&fw, (struct fw_options){.world = 2, .retain = true});
	fw_have(&fw, 0, f);
	contribute_all(&fw, 1, f, sums);
	fw_feed_all(&fw, 130);
	got = fw_expect(&fw, 0, FRAME_FETCH);
	ck_assert_uint_eq(got.of.up, RS_WIRE_FP8);
	ck_assert_uint_eq(got.of.down, RS_WIRE_INT8);
	f.type = FRAME_KEPT;
	f.payload_len = put_result(bytes, &f, sums) + (uint32_t)_i;
	fw_send(&fw, 0, f, bytes);
	fw_feed_all(&fw, 130);
	if (_i) {
		fw_expect_abort(&fw, 1, RS_ECUT, "rank 0 (host-0)", "136 bytes");
		fw_close(&fw);
		return;
	}
	must(fw_take(&fw, 1, &got, &payload) && got.type == FRAME_RESULT && got.payload_len == f.payload_len);
	ck_assert_mem_eq(payload, bytes, f.payload_len);
	must(fw_take(&fw, 0, &got, &payload) && got.type == FRAME_RESULT && got.payload_len == 0);
	fw_say_goodbye(&fw);
}
END_TEST

/* Headers that a reducer refuses, of a job with the feature or without. */
static const struct {
	struct row row;
	uint8_t flags;
	bool feature;
	uint32_t elems; /* != 0: of a chunk */
	const char *says;
} refused[] = {
    {{RS_FLOAT32, RS_SUM, 2, 0}, 0, false, 0, "encodings 2 and 0 came in a job that has agreed on none"},
    {{RS_FLOAT32, RS_SUM, 0, 1}, 0, false, 0, "encodings 0 and 1 came in a job that has agreed on none"},
    {{RS_FLOAT32, RS_SUM, 15, 0}, 0, true, 0, "the encodings 15 (wire?) and 0 (same) do not go with sum of float32"},
    {{RS_FLOAT32, RS_SUM, 6, 7}, 0, true, 0, "the encodings 6 (wire?) and 7 (wire?) do not go with sum of float32"},
    {{RS_FLOAT16, RS_SUM, 4, 0}, 0, true, 0, "the encodings 4 (fp16) and 0 (same) do not go with sum of float16"},
    {{RS_FLOAT16, RS_AVG, 4, 4}, 0, true, 0, "the encodings 4 (fp16) and 4 (fp16) do not go with avg of float16"},
    {{RS_BFLOAT16, RS_AVG, 4, 0}, 0, true, 0, "the encodings 4 (fp16) and 0 (same) do not go with avg of bfloat16"},
    {{RS_INT8, RS_SUM, 5, 5}, 0, true, 0, "the encodings 5 (int4) and 5 (int4) do not go with sum of int8"},
    {{RS_INT32, RS_SUM, 2, 2}, 0, true, 0, "the encodings 2 (fp8) and 2 (fp8) do not go with sum of int32"},
    {{RS_FLOAT16, RS_SUM, 1, 0}, 0, true, 0, "the encodings 1 (bf16) and 0 (same) do not go with sum of float16"},
    {{RS_FLOAT32, RS_MAX, 0, 3}, 0, true, 0, "the encodings 0 (same) and 3 (int8) do not go with max of float32"},
    {{RS_FLOAT32, FRAME_OP_BROADCAST, 2, 2}, FRAME_ROOT, true, 0, "do not go with broadcast of float32"},
    {{RS_FLOAT16, RS_SUM, 2, 2},
     FRAME_WIDE,
     true,
     0,
     "the WIDE flag does not go with encoded contributions of float16"},
    {{RS_FLOAT32, RS_SUM, 2, 2}, 0, true, 384, "chunks of 512 bytes have 384 elements of float32 instead of 512"},
};

START_TEST(headers_that_do_not_fit_are_refused)
{
	const struct fw_options opt = {.world = 2,
				       .chunk_bytes = CHUNK,
				       .decoded_bytes = 8 * CHUNK,
				       .features = refused[_i].feature ? FEATURE_ENCODINGS : 0};
	struct frame f = encoded_data(&refused[_i].row, 0);
	struct fw_world fw;

	fw_running(&fw, &opt);
	f.of.count = 1;
	f.flags = refused[_i].flags;
	f.chunk_elems = refused[_i].elems ? refused[_i].elems : f.chunk_elems;
	f.payload_len = 0;
	fw_send(&fw, 1, f, NULL);
	fw_feed_all(&fw, 70);
	fw_expect_end(&fw, RS_EPROTO, "rank 1 (host-1)", refused[_i].says);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lane_encoded");
	TCase *tc = tcase_create("sums");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, blocks_are_split_anywhere, 0, sizeof rows / sizeof rows[0]);
	tcase_add_loop_test(tc, headers_that_do_not_fit_are_refused, 0, sizeof refused / sizeof refused[0]);
	tcase_add_loop_test(tc, kept_results_are_encoded, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
