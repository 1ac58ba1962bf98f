/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded operations on a lane: what each rank gets, after a loss too, and ranks that
 * disagree about the owner of a part. Rank r owns part r of as many parts as ranks. */
#include "common/dtype.h"
#include "proto/features.h"
#include "tests/unit/fake_lane_views.h"

enum { WORLD = 3 };

static struct frame chunk_of(const struct fw_world *fw, unsigned op, unsigned dtype, uint64_t size, uint32_t chunk)
{
	struct frame f = fw_data(fw, op, dtype, 3, WORLD * size, chunk);

	f.of.sharded = 1;
	f.of.parts = WORLD;
	return f;
}

static unsigned owner_of(const struct frame *f)
{
	return operation_place(&f->of, f->chunk_elems, f->chunk).part;
}

/* Sends DATA of a rank, with ROOT if it is the owner of the chunk. */
static void contribute(struct fw_world *fw, unsigned rank, struct frame f)
{
	f.flags |= owner_of(&f) == rank ? FRAME_ROOT : 0;
	fw_contribute(fw, rank, f);
}

/* The next frame of a rank is the RESULT of a chunk of a first view. */
static void expect_result(struct fw_world *fw, unsigned rank, struct frame f)
{
	bool owner = owner_of(&f) == rank, gather = operation_is_gather(&f.of);

	if (owner != gather)
		fw_expect_result(fw, rank, f, WORLD);
	else
		fw_expect_head(fw, rank, f);
}

static const struct {
	unsigned op, dtype;
	uint64_t size; /* of a part */
	bool deterministic, checksum;
} rows[] = {
    {RS_SUM, RS_FLOAT32, 40, false, false},
    {RS_AVG, RS_FLOAT32, 32, true, false},
    {RS_MAX, RS_INT32, 1, false, true},
    {RS_MIN, RS_FLOAT16, 33, true, true},
    {RS_PROD, RS_INT64, 20, false, true},
    {RS_SUM, RS_UINT8, 0, false, false},
    {FRAME_OP_BROADCAST, RS_FLOAT32, 40, false, false},
    {FRAME_OP_BROADCAST, RS_UINT8, 65, true, true},
    {FRAME_OP_BROADCAST, RS_BFLOAT16, 0, false, true},
};

/* _i: the row, then the size of the pieces */
START_TEST(each_rank_gets_what_is_its_own)
{
	unsigned row = (unsigned)_i % (sizeof rows / sizeof rows[0]);
	struct fw_world fw;
	struct frame f;
	uint64_t chunks;

	fw_running(&fw, &(struct fw_options){.world = WORLD,
					     .window = 16,
					     .features = FEATURE_SHARDED,
					     .deterministic = rows[row].deterministic,
					     .checksum = rows[row].checksum});
	f = chunk_of(&fw, rows[row].op, rows[row].dtype, rows[row].size, 0);
	chunks = operation_chunks(&f.of, f.chunk_elems);
	for (unsigned r = 0; r < WORLD; r++)
		for (f.chunk = 0; f.chunk < chunks; f.chunk++)
			contribute(&fw, r, f);
	fw_feed_shuffled(&fw, (unsigned)_i < sizeof rows / sizeof rows[0] ? 300 : 17);
	for (unsigned r = 0; r < WORLD; r++) {
		for (f.chunk = 0; f.chunk < chunks; f.chunk++)
			expect_result(&fw, r, f);
		fw_expect_nothing(&fw, r);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(fw.failed, 0);
	fw_close(&fw);
}
END_TEST

enum { DATA, HAVE, GOODBYE, NOTHING };

/* What the owner of a chunk and the other two ranks of a reduce-scatter send after a
 * loss, in this order; GOODBYE comes with the results of operation 3. */
static const struct {
	const char *what;
	unsigned rank[WORLD], sends[WORLD]; /* of the chunk of rank 1 */
	bool ends;                          /* it is over: all ranks get RESULT without payload */
	bool summed;                        /* all ranks get what they would get without a loss */
} losses[] = {
    {"the owner has its part", {0, 1, 2}, {DATA, HAVE, DATA}, true, false},
    {"the owner says so first", {1, 2, 0}, {HAVE, DATA, DATA}, true, false},
    {"the owner says so last", {0, 2, 1}, {DATA, DATA, HAVE}, true, false},
    {"the owner lacks its part", {2, 1, 0}, {DATA, DATA, DATA}, false, true},
    {"the owner has left before", {1, 0, 2}, {GOODBYE, DATA, DATA}, true, false},
    {"the owner leaves at last", {0, 2, 1}, {DATA, DATA, GOODBYE}, true, false},
    {"another rank has left, the owner has its part", {2, 0, 1}, {GOODBYE, DATA, HAVE}, true, false},
    {"another rank leaves at last", {0, 1, 2}, {DATA, HAVE, GOODBYE}, true, false},
    {"the owner contributes in a view of before", {2, 0, 1}, {GOODBYE, DATA, DATA}, false, false},
    {"the owner is missing", {0, 2, 1}, {DATA, DATA, NOTHING}, false, false},
    {"a rank is missing", {0, 1, 2}, {DATA, HAVE, NOTHING}, false, false},
};

/* _i: the row; then deterministic */
START_TEST(after_a_loss)
{
	unsigned row = (unsigned)_i % (sizeof losses / sizeof losses[0]);
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.world = WORLD,
					    .features = FEATURE_SHARDED,
					    .deterministic = (size_t)_i >= sizeof losses / sizeof losses[0]});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = chunk_of(&fw, RS_SUM, RS_FLOAT32, 10, 1);
	ck_assert_uint_eq(owner_of(&f), 1);
	for (unsigned i = 0; i < WORLD; i++) {
		unsigned r = losses[row].rank[i];

		if (losses[row].sends[i] == DATA)
			contribute(&fw, r, f);
		else if (losses[row].sends[i] == HAVE)
			fw_have(&fw, r, f);
		else if (losses[row].sends[i] == GOODBYE)
			fw_send(&fw, r, (struct frame){.type = FRAME_GOODBYE, .generation = FAKE_GENERATION, .ack = 4},
				NULL);
		fw_feed_all(&fw, 19);
	}
	for (unsigned i = 0; i < WORLD; i++) {
		unsigned r = losses[row].rank[i];

		if (losses[row].summed)
			expect_result(&fw, r, f);
		else if (losses[row].ends && losses[row].sends[i] != GOODBYE)
			fw_expect_head(&fw, r, f);
		fw_expect_nothing(&fw, r);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), !losses[row].ends && !losses[row].summed);
	ck_assert_msg(fw.failed == 0, "%s: %s", losses[row].what, fw.why.msg);
	fw_close(&fw);
}
END_TEST

/* An all-gather fails over as a broadcast: the owner or another rank answers FETCH. _i:
 * the ranks that have the chunk of rank 1 (bits) */
START_TEST(a_gathered_part_is_fetched)
{
	const float values[10] = {1, 2, 3};
	struct fw_world fw;
	struct frame f, asked;
	const uint8_t *payload;
	unsigned from = UINT32_MAX;

	lv_running(&fw, (struct fw_options){.world = WORLD, .features = FEATURE_SHARDED});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = chunk_of(&fw, FRAME_OP_BROADCAST, RS_FLOAT32, 10, 1);
	for (unsigned r = 0; r < WORLD; r++)
		if (_i >> r & 1)
			fw_have(&fw, r, f);
		else
			contribute(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < WORLD; r++)
		if (fw_take(&fw, r, &asked, &payload)) {
			ck_assert(asked.type == FRAME_FETCH && asked.of.sharded && asked.of.parts == WORLD);
			ck_assert(from == UINT32_MAX && _i >> r & 1);
			from = r;
		}
	ck_assert_uint_ne(from, UINT32_MAX);
	f.type = FRAME_KEPT;
	f.payload_len = sizeof values;
	fw_send(&fw, from, f, values);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < WORLD; r++) {
		ck_assert(fw_take(&fw, r, &f, &payload) && f.type == FRAME_RESULT);
		ck_assert_uint_eq(f.payload_len, _i >> r & 1 || r == 1 ? 0 : sizeof values);
		if (f.payload_len)
			ck_assert_mem_eq(payload, values, sizeof values);
	}
	ck_assert_uint_eq(fw.failed, 0);
	fw_close(&fw);
}
END_TEST

/* Two frames of a chunk of part 1, from ranks 0 and 1; flags of DATA, or HAVE. */
enum { IS_HAVE = 128 };

static const struct {
	const char *what, *says;
	unsigned op;
	uint8_t flags[2];
} owners[] = {
    {"two owners",
     "both rank 1 (host-1) and rank 0 (host-0) say that part 1 is their own",
     RS_SUM,
     {FRAME_ROOT, FRAME_ROOT}},
    {"no owner", "no rank says that part 1 is its own", RS_SUM, {0, 0}},
    {"two owners",
     "both rank 1 (host-1) and rank 0 (host-0) say that part 1 is their own",
     FRAME_OP_BROADCAST,
     {FRAME_ROOT, FRAME_ROOT}},
    {"no owner", "no rank says that part 1 is its own", FRAME_OP_BROADCAST, {0, 0}},
    {"another rank has it",
     "both rank 1 (host-1) and rank 0 (host-0) say that part 1 is their own",
     RS_SUM,
     {IS_HAVE, FRAME_ROOT}},
    {"another rank has it",
     "both rank 1 (host-1) and rank 0 (host-0) say that part 1 is their own",
     RS_SUM,
     {FRAME_ROOT, IS_HAVE}},
    {"two have it",
     "both rank 1 (host-1) and rank 0 (host-0) say that part 1 is their own",
     RS_SUM,
     {IS_HAVE, IS_HAVE}},
};

START_TEST(each_part_has_one_owner)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.features = FEATURE_SHARDED});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = chunk_of(&fw, owners[_i].op, RS_FLOAT32, 10, 1);
	for (unsigned r = 0; r < 2; r++) {
		f.flags = owners[_i].flags[r];
		if (f.flags == IS_HAVE)
			fw_have(&fw, r, f);
		else
			fw_contribute(&fw, r, f);
		fw_feed_all(&fw, SIZE_MAX);
	}
	lv_expect_end(&fw, RS_EMISMATCH, owners[_i].says);
	fw_close(&fw);
}
END_TEST

/* Headers of a sharded operation of 12 elements in 3 parts, with one change. */
static const struct {
	const char *says;
	uint32_t parts;
	uint64_t count;
	uint32_t chunk;
	unsigned op, dtype, up;
	uint8_t flags;
	bool unknown; /* the job has not agreed on the feature */
} headers[] = {
    {"12 elements came in 5 parts, which must be equal", 5, 12, 0, RS_SUM, RS_FLOAT32, 0, 0, false},
    {"12 elements came in 24 parts, which must be equal", 24, 12, 0, RS_SUM, RS_FLOAT32, 0, 0, false},
    {"2097152 elements came in 2097152 parts", 1 << 21, 1 << 21, 0, FRAME_OP_BROADCAST, RS_FLOAT32, 0, 0, false},
    {"a sharded operation came in a job that has agreed on none", 3, 12, 0, RS_SUM, RS_FLOAT32, 0, 0, true},
    {"a sharded operation came in a job that has agreed on none", 3, 12, 0, FRAME_OP_BROADCAST, RS_FLOAT32, 0, 0, true},
    {"operation type 8 is unknown", 0, 12, 0, 8, RS_FLOAT32, 0, 0, false},
    {"operation type 24 is unknown", 0, 12, 0, 24, RS_FLOAT32, 0, 0, false},
    {"operation type 5 is unknown", 3, 12, 0, 5, RS_FLOAT32, 0, 0, false},
    {"operation type 23 is unknown", 3, 12, 0, 23, RS_FLOAT32, 0, 0, false},
    {"chunk 3 is past the end of 12 elements", 3, 12, 3, RS_SUM, RS_FLOAT32, 0, 0, false},
    {"chunk 3 is past the end of 0 elements", 3, 0, 3, RS_SUM, RS_FLOAT32, 0, 0, false},
    {"the WIDE flag does not go with", 3, 12, 0, FRAME_OP_BROADCAST, RS_FLOAT16, 0, FRAME_WIDE, false},
    {"do not go with broadcast of float32", 3, 12, 0, FRAME_OP_BROADCAST, RS_FLOAT32, RS_WIRE_BF16, 0, false},
    {"has 16 payload bytes instead of 0", 3, 12, 0, FRAME_OP_BROADCAST, RS_FLOAT32, 0, 0, false},
    {"has 16 payload bytes instead of 20", 3, 15, 0, RS_SUM, RS_FLOAT32, 0, FRAME_ROOT, false},
};

START_TEST(wrong_headers)
{
	uint64_t features = headers[_i].unknown ? 0 : FEATURE_SHARDED;
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.features = features | FEATURE_ENCODINGS});
	f = chunk_of(&fw, headers[_i].op & 23, headers[_i].dtype, 4, headers[_i].chunk);
	f.of.count = headers[_i].count;
	f.of.parts = headers[_i].parts;
	if (!headers[_i].parts) { /* as it is decoded */
		f.of.sharded = 0;
		f.of.op = headers[_i].op & 31;
	}
	f.of.up = headers[_i].up & 15;
	f.flags = headers[_i].flags;
	f.payload_len = 16;
	fw_send(&fw, 0, f, "0123456789abcdef");
	fw_feed_all(&fw, SIZE_MAX);
	lv_expect_end(&fw, RS_ECUT, headers[_i].says);
	fw_close(&fw);
}
END_TEST

/* Operations of rank 1 that differ from the reduce-scatter of rank 0. */
static const struct {
	const char *says;
	uint32_t parts;
	unsigned op;
	bool whole; /* it is not sharded */
} different[] = {
    {"rank 1 (host-1) called a reduce-scatter sum of 12 float32 in 2 parts", 2, RS_SUM, false},
    {"rank 1 (host-1) called a reduce-scatter max of 12 float32 in 3 parts", 3, RS_MAX, false},
    {"rank 1 (host-1) called an all-gather of 12 float32 in 3 parts", 3, FRAME_OP_BROADCAST, false},
    {"rank 1 (host-1) called an all-reduce sum of 12 float32", 0, RS_SUM, true},
    {"rank 1 (host-1) called a broadcast of 12 float32 from rank 2", 3, FRAME_OP_BROADCAST, true}, /* parts: the root */
};

START_TEST(ranks_that_differ)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.features = FEATURE_SHARDED});
	f = chunk_of(&fw, RS_SUM, RS_FLOAT32, 4, 0);
	contribute(&fw, 0, f);
	fw_feed_all(&fw, SIZE_MAX);
	f.of.op = different[_i].op & 31;
	f.of.sharded = !different[_i].whole;
	f.of.parts = different[_i].parts;
	if (different[_i].whole && f.of.op == FRAME_OP_BROADCAST)
		f.of.root = 2;
	fw_contribute(&fw, 1, f);
	fw_feed_all(&fw, SIZE_MAX);
	lv_expect_end(&fw, RS_EMISMATCH, different[_i].says);
	fw_close(&fw);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("sharded");
	TCase *tc = tcase_create("lane");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, each_rank_gets_what_is_its_own, 0, 2 * COUNT(rows));
	tcase_add_loop_test(tc, after_a_loss, 0, 2 * COUNT(losses));
	tcase_add_loop_test(tc, a_gathered_part_is_fetched, 1, 7);
	tcase_add_loop_test(tc, each_part_has_one_owner, 0, COUNT(owners));
	tcase_add_loop_test(tc, wrong_headers, 0, COUNT(headers));
	tcase_add_loop_test(tc, ranks_that_differ, 0, COUNT(different));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
