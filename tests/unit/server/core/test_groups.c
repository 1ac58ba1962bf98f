/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of jobs with groups: what a home counts and sums, what breaks the protocol, and
 * in which order results leave. */
#include "common/dtype.h"
#include "proto/features.h"
#include "tests/unit/fake_groups.h"
#include "tests/unit/oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the value of element i of a rank's contribution, which is a small whole
 * number. */
static double value(const struct frame *f, unsigned rank, uint64_t i)
{
	uint8_t at[8];
	float x;
	int32_t n;

	oracle_fill(at, 0, f->of.dtype, rs_dtype_is_half(f->of.dtype), f->of.op, rank, f->of.seq, i);
	memcpy(&x, at, sizeof x);
	memcpy(&n, at, sizeof n);
	return f->of.dtype == RS_INT32 ? n : x;
}

static double combine(unsigned op, double a, double b)
{
	switch (op) {
	case RS_PROD:
		return a * b;
	case RS_MAX:
		return a > b ? a : b;
	case RS_MIN:
		return a < b ? a : b;
	default:
		return a + b;
	}
}

/* Writes x as an element of the dtype, and returns what it is then. wide: float32. */
static double put(uint8_t *to, uint32_t i, unsigned dtype, bool wide, double x)
{
	uint16_t half = oracle_half(dtype == RS_FLOAT16 ? RS_FLOAT16 : RS_BFLOAT16, x);
	float f = (float)x;
	int32_t n = (int32_t)x;

	if (rs_dtype_is_half(dtype) && !wide) {
		memcpy(to + i * sizeof half, &half, sizeof half);
		return oracle_half_value(dtype, half);
	}
	memcpy(to + i * sizeof f, dtype == RS_INT32 ? (void *)&n : (void *)&f, sizeof f);
	return x;
}

/* Writes the sum of a group as its relay sends it. Returns its bytes. */
static uint32_t put_group(uint8_t *to, double *x, const struct frame *f, unsigned group, bool wide)
{
	const struct operation_place at = operation_place(&f->of, f->chunk_elems, f->chunk);

	for (uint32_t i = 0; i < at.elems; i++) {
		bool first = true;

		for (unsigned r = 0; r < FG_WORLD; r++)
			if (fg_group_of[r] == group) {
				double v = value(f, r, at.first + i);

				x[i] = first ? v : combine(f->of.op, x[i], v);
				first = false;
			}
		x[i] = put(to, i, f->of.dtype, wide, x[i]);
	}
	return at.elems * (wide ? 4 : (uint32_t)rs_dtype_size(f->of.dtype));
}

static const struct home_row {
	const char *what;
	unsigned uplinks, wide; /* bit g: group g comes through an uplink; its contributions are float32 */
	unsigned dtype, op;
	bool deterministic, checksum;
} home_rows[] = {
    {"all straight", 0, 0, RS_FLOAT32, RS_SUM, false, false},
    {"one group through a relay", 1, 0, RS_FLOAT32, RS_SUM, false, false},
    {"the second one, maximum", 2, 0, RS_FLOAT32, RS_MAX, false, true},
    {"all groups", 7, 0, RS_FLOAT32, RS_AVG, false, false},
    {"a group of one rank", 4, 0, RS_INT32, RS_SUM, false, true},
    {"integers, product", 3, 0, RS_INT32, RS_PROD, false, false},
    {"integers, average", 3, 0, RS_INT32, RS_AVG, true, false},
    {"float16 is rounded at the border", 1, 0, RS_FLOAT16, RS_SUM, false, false},
    {"both borders", 3, 0, RS_FLOAT16, RS_AVG, false, true},
    {"bfloat16", 7, 0, RS_BFLOAT16, RS_SUM, false, false},
    {"sums of nodes stay float32", 3, 1, RS_BFLOAT16, RS_SUM, false, true},
    {"all of them", 7, 7, RS_FLOAT16, RS_SUM, false, false},
    {"deterministic, straight", 0, 0, RS_FLOAT16, RS_SUM, true, false},
    {"deterministic, one", 1, 0, RS_FLOAT16, RS_SUM, true, true},
    {"deterministic, two", 6, 0, RS_BFLOAT16, RS_AVG, true, false},
    {"deterministic, all", 7, 0, RS_BFLOAT16, RS_MIN, true, false},
    {"deterministic, float32 sums of nodes", 2, 3, RS_FLOAT16, RS_SUM, true, false},
};
enum { HOME_ROWS = sizeof home_rows / sizeof home_rows[0] };

/* Sends what rank r of a row contributes straight. */
static void contribute_straight(struct fw_world *fw, const struct home_row *row, unsigned r, struct frame f)
{
	if (row->wide >> fg_group_of[r] & 1)
		f.flags |= FRAME_WIDE;
	fw_contribute(fw, r, f);
}

/* The result of a row, from the parts that are added at the home. */
static uint32_t expect_bytes(uint8_t *want, const struct home_row *row, const struct frame *f)
{
	const struct operation_place at = operation_place(&f->of, f->chunk_elems, f->chunk);
	double part[(8 * FG_CHUNK)], sum[(8 * FG_CHUNK)];
	uint8_t scratch[4 * (8 * FG_CHUNK)];

	for (unsigned g = 0; g < FG_GROUPS; g++) {
		bool straight = !(row->uplinks >> g & 1), wide = row->wide >> g & 1;

		/* without a relay only a deterministic home rounds the sum of a group */
		put_group(scratch, part, f, g, wide || (straight && !row->deterministic));
		for (uint32_t i = 0; i < at.elems; i++)
			sum[i] = g == 0 ? part[i] : combine(f->of.op, sum[i], part[i]);
	}
	for (uint32_t i = 0; i < at.elems; i++) {
		if (row->op == RS_AVG)
			sum[i] = row->dtype == RS_INT32 ? trunc(sum[i] / FG_WORLD)
							: (double)((float)sum[i] / (float)FG_WORLD);
		put(want, i, row->dtype, false, sum[i]);
	}
	return at.elems * (uint32_t)rs_dtype_size(row->dtype);
}

/* Coverage: an uplink counts for all ranks of its group. _i: the row, then the size of
 * the pieces. */
START_TEST(a_home_sums_ranks_and_uplinks)
{
	const struct home_row *row = &home_rows[_i % HOME_ROWS];
	unsigned place[FG_GROUPS] = {0};
	uint8_t bytes[4 * (8 * FG_CHUNK)], want[4 * (8 * FG_CHUNK)];
	double part[(8 * FG_CHUNK)];
	struct fw_world fw;
	struct frame f;

	fg_running(&fw, (struct fw_options){.deterministic = row->deterministic, .checksum = row->checksum});
	for (unsigned g = 0; g < FG_GROUPS; g++)
		if (row->uplinks >> g & 1) {
			place[g] = fg_uplink(&fw, g, 1 + g % 2);
		}
	f = fw_data(&fw, row->op, row->dtype, FG_SEQ, FG_CHUNK + 40, 0);
	for (f.chunk = 0; f.chunk < operation_chunks(&f.of, f.chunk_elems); f.chunk++) {
		for (unsigned r = 0; r < FG_WORLD; r++)
			if (!(row->uplinks >> fg_group_of[r] & 1))
				contribute_straight(&fw, row, r, f);
		for (unsigned g = 0; g < FG_GROUPS; g++) {
			bool wide = row->wide >> g & 1;
			struct frame of = f;
			uint32_t len;

			if (!(row->uplinks >> g & 1))
				continue;
			len = put_group(bytes, part, &f, g, wide);
			of.flags |= wide ? FRAME_WIDE : 0;
			fg_contribute(&fw, place[g], of, bytes, len);
		}
		fw.random = (uint32_t)_i + f.chunk;
		fw_feed_shuffled(&fw, _i < HOME_ROWS ? 700 : 23);
		ck_assert_msg(fw.failed == 0, "%s: %s", row->what, fw.why.msg);
		for (unsigned r = 0; r < fw_places(&fw); r++) {
			uint32_t len, want_len = expect_bytes(want, row, &f);
			const uint8_t *got;

			if (r < FG_WORLD ? row->uplinks >> fg_group_of[r] & 1 : !fw.w[r].session) {
				fw_expect_nothing(&fw, r);
				continue;
			}
			got = fg_result(&fw, r, &f, &len);
			ck_assert_uint_eq(len, want_len);
			ck_assert_msg(memcmp(got, want, len) == 0, "%s: chunk %u is wrong at place %u", row->what,
				      f.chunk, r);
		}
		ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	}
	fw_close(&fw);
	ck_assert_uint_eq(fw.gone, FG_WORLD);
	ck_assert_uint_eq(fw.uplinks_gone, (unsigned)__builtin_popcount(row->uplinks));
}
END_TEST

/* Who sends a chunk, in this order; the last one is wrong. */
enum sender {
	END,
	R0, /* rank 0 of group 1, straight, and so on */
	R1,
	R2,
	U0, /* uplink of group 0 */
	U1,
	V0,   /* another one of the same group */
	VIA0, /* rank 0 to its relay */
	VIA2,
	VIA1,  /* rank 1, of another group */
	FAR2,  /* rank 2 to its relay, which is to send it to another lane */
	HAVE2, /* rank 2 has the result */
};

static const struct {
	const char *what;
	enum sender sends[4];
	const char *says, *names;
} mismatches[] = {
    {"rank, then its group", {R1, U0}, "has come on another way already", "relay r1"},
    {"group, then its rank", {R0, U0, R1}, "has come on another way already", "host-1"},
    {"group twice", {U0, V0}, "has come on another way already", "relay r2"},
    {"other group of a rank is there", {U1, R1, R2}, "has come on another way already", "host-2"},
    {"HAVE of a covered rank", {U1, HAVE2}, "has come on another way already", "host-2"},
    {"to be relayed, then straight", {VIA0, R2}, "has another relay or home than that of other ranks", "host-2"},
    {"straight, then to be relayed", {R0, VIA2}, "has another relay or home than that of other ranks", "host-2"},
    {"other home", {VIA0, FAR2}, "has another relay or home than that of other ranks", "host-2"},
    {"other group", {VIA0, VIA1}, "has another relay or home than that of other ranks", "host-1"},
    {"to be relayed, and relayed", {VIA0, U0}, "has another relay or home than that of other ranks", "relay r1"},
    {"to be relayed, and HAVE", {VIA0, HAVE2}, "has another relay or home than that of other ranks", "host-2"},
};

static void send_as(struct fw_world *fw, enum sender s, const unsigned place[3], struct frame f)
{
	static const unsigned ranks[] = {[VIA0] = 0, [VIA2] = 2, [VIA1] = 1, [FAR2] = 2};
	uint8_t bytes[FG_CHUNK] = {0};

	if (s >= R0 && s <= R2) {
		fw_contribute(fw, s - R0, f);
	} else if (s >= U0 && s <= V0) {
		fg_contribute(fw, place[s - U0], f, bytes, FG_CHUNK);
	} else if (s == HAVE2) {
		fw_have(fw, 2, f);
	} else if (s != END) {
		f = fg_relayed(f);
		f.generation += s == FAR2;
		fw_contribute(fw, ranks[s], f);
	}
	fw_feed_all(fw, 100);
}

START_TEST(a_rank_is_covered_once)
{
	unsigned place[3], n = 0;
	struct fw_world fw;
	struct frame f;

	fg_running(&fw, (struct fw_options){0});
	place[0] = fg_uplink(&fw, 0, 1);
	place[1] = fg_uplink(&fw, 1, 2);
	place[2] = fg_uplink(&fw, 0, 2);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK / 4, 0);
	while (n < 4 && mismatches[_i].sends[n] != END) {
		ck_assert_msg(fw.failed == 0, "%s: %s", mismatches[_i].what, fw.why.msg);
		send_as(&fw, mismatches[_i].sends[n++], place, f);
	}
	ck_assert_msg(fw.failed == 1, "%s: nothing was found", mismatches[_i].what);
	ck_assert_int_eq(fw.why.code, RS_EMISMATCH);
	ck_assert_msg(strstr(fw.why.msg, mismatches[_i].says) && strstr(fw.why.msg, mismatches[_i].names), "%s: \"%s\"",
		      mismatches[_i].what, fw.why.msg);
	fw_close(&fw);
}
END_TEST

enum spoilt {
	TO_ITSELF,
	TO_NOBODY,
	TO_LANE_64,
	BROADCAST,
	SHARDED,
	HAVE_RELAYED,
	UPLINK_RELAYED,
	UPLINK_HAVE,
	UPLINK_KEPT,
	UPLINK_BROADCAST,
	UPLINK_SHARDED,
	UPLINK_NONFINITE,
	UPLINK_LOAD,
	UPLINK_GENERATION,
};

/* What breaks the protocol. An uplink is closed, and the job goes on. */
static const struct {
	const char *what;
	enum spoilt how;
	const char *says;
} spoilt_rows[] = {
    {"its own home", TO_ITSELF, "a chunk is to be relayed to lane 3 of reducer 0, which is not there"},
    {"no such reducer", TO_NOBODY, "a chunk is to be relayed to lane 3 of reducer 3, which is not there"},
    {"no such lane", TO_LANE_64, "a chunk is to be relayed to lane 64 of reducer 1, which is not there"},
    {"broadcast", BROADCAST, "the RELAY flag goes with all-reduces only"},
    {"sharded", SHARDED, "the RELAY flag goes with all-reduces only"},
    {"HAVE", HAVE_RELAYED, "HAVE came with flags 0x8"},
    {"relays in a row", UPLINK_RELAYED, "and comes from a relay"},
    {"an uplink has no results", UPLINK_HAVE, NULL},
    {"and keeps none", UPLINK_KEPT, NULL},
    {"an uplink's broadcast", UPLINK_BROADCAST, NULL},
    {"an uplink's part", UPLINK_SHARDED, NULL},
    {"nor does it look at elements", UPLINK_NONFINITE, NULL},
    {"or report its load", UPLINK_LOAD, NULL},
    {"another generation", UPLINK_GENERATION, NULL},
};

START_TEST(the_protocol_is_checked)
{
	enum spoilt how = spoilt_rows[_i].how;
	bool uplink = how >= UPLINK_RELAYED;
	uint8_t bytes[FG_CHUNK] = {0};
	struct fw_world fw;
	struct frame f;
	unsigned place;

	fg_running(&fw, (struct fw_options){0});
	place = fg_uplink(&fw, 0, 1);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK / 4, 0);
	f.payload_len = FG_CHUNK;
	if (how <= SHARDED || how == UPLINK_RELAYED)
		f = fg_relayed(f);
	if (how == TO_ITSELF || how == TO_NOBODY)
		f.generation = frame_home(how == TO_ITSELF ? 0 : FAKE_REDUCERS, FG_LANE);
	else if (how == TO_LANE_64)
		f.generation = frame_home(FG_HOME, 64);
	else if (how == UPLINK_GENERATION)
		f.generation++;
	if (how == BROADCAST || how == UPLINK_BROADCAST) {
		f.of.op = FRAME_OP_BROADCAST;
		f.flags |= FRAME_ROOT;
	}
	if (how == SHARDED || how == UPLINK_SHARDED) {
		f.of.sharded = 1;
		f.of.parts = 1;
	}
	if (how == HAVE_RELAYED)
		f.flags = FRAME_RELAY;
	if (how == HAVE_RELAYED || how == UPLINK_HAVE || how == UPLINK_KEPT) {
		f.type = how == UPLINK_KEPT ? FRAME_KEPT : FRAME_HAVE;
		f.payload_len = 0;
	}
	if (how == UPLINK_NONFINITE || how == UPLINK_LOAD)
		f = (struct frame){.type = how == UPLINK_LOAD ? FRAME_LOAD : FRAME_NONFINITE,
				   .generation = FAKE_GENERATION};
	fw_send(&fw, uplink ? place : 1, f, bytes);
	fw_feed_all(&fw, SIZE_MAX);
	if (!uplink) {
		ck_assert_msg(fw.failed == 1, "%s is taken", spoilt_rows[_i].what);
		ck_assert_int_eq(fw.why.code, RS_ECUT);
		ck_assert_msg(strstr(fw.why.msg, spoilt_rows[_i].says), "\"%s\"", fw.why.msg);
	} else {
		/* the relay leaves the job then, not this reducer */
		ck_assert_msg(fw.w[place].shut, "%s is taken", spoilt_rows[_i].what);
		ck_assert_msg(fw.failed == 0, "%s: %s", spoilt_rows[_i].what, fw.why.msg);
		fw_expect_abort(&fw, place, RS_EPROTO, "relay r1", spoilt_rows[_i].says ? spoilt_rows[_i].says : "");
	}
	fw_close(&fw);
}
END_TEST

/* Each session has sent its own contributions in the order (seq, chunk), and gets the
 * results so. Chunk 2 is complete before chunk 1. _i: deterministic */
START_TEST(results_leave_in_order)
{
	struct fw_world fw;
	struct frame f;
	unsigned place;
	uint8_t bytes[FG_CHUNK] = {0};
	uint32_t len;

	fg_running(&fw, (struct fw_options){.deterministic = _i});
	place = fg_uplink(&fw, 1, 1);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK, 0);
	ck_assert_uint_eq(operation_chunks(&f.of, f.chunk_elems), 4);
	/* chunk 0 and 1: rank 4 is missing; chunk 2 is straight from all but group 1, of
	 * which the relay sends it first */
	for (f.chunk = 0; f.chunk < 4; f.chunk++)
		for (unsigned r = 0; r < FG_WORLD; r++)
			if (r != 4 && (f.chunk != 2 || fg_group_of[r] != 1))
				fw_contribute(&fw, r, f);
	fw_feed_all(&fw, 100);
	f.chunk = 2;
	fg_contribute(&fw, place, f, bytes, FG_CHUNK);
	fw_feed_all(&fw, 100);
	for (unsigned r = 0; r < fw_places(&fw); r++)
		fw_expect_nothing(&fw, r);
	/* rank 4 sends 0 and 2: its frames may have any distance */
	for (f.chunk = 0; f.chunk < 4; f.chunk += 2)
		fw_contribute(&fw, 4, f);
	fw_feed_all(&fw, 100);
	f.chunk = 0;
	for (unsigned r = 0; r < FG_WORLD; r++) {
		fg_result(&fw, r, &f, &len);
		fw_expect_nothing(&fw, r); /* 2 waits for 1 */
	}
	fw_expect_nothing(&fw, place);
	ck_assert_uint_eq(fw_slots_alive(&fw), 3);
	fw_close(&fw);
}
END_TEST

/* The same, and the missing chunk is completed by an uplink. */
START_TEST(a_waiting_result_leaves_after_the_one_before_it)
{
	struct fw_world fw;
	struct frame f;
	unsigned place;
	uint8_t bytes[FG_CHUNK] = {0};
	uint32_t len;

	fg_running(&fw, (struct fw_options){0});
	place = fg_uplink(&fw, 1, 1);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK, 0);
	for (f.chunk = 0; f.chunk < 4; f.chunk++)
		for (unsigned r = 0; r < FG_WORLD; r++)
			if (f.chunk != 1 || fg_group_of[r] != 1)
				fw_contribute(&fw, r, f);
	fw_feed_all(&fw, 100);
	for (unsigned r = 0; r < FG_WORLD; r++) {
		f.chunk = 0;
		fg_result(&fw, r, &f, &len);
		fw_expect_nothing(&fw, r);
	}
	f.chunk = 1;
	fg_contribute(&fw, place, f, bytes, FG_CHUNK);
	fw_feed_all(&fw, 100);
	fg_result(&fw, place, &f, &len);
	fw_expect_nothing(&fw, place);
	for (unsigned r = 0; r < FG_WORLD; r++) {
		for (f.chunk = fg_group_of[r] == 1 ? 2 : 1; f.chunk < 4; f.chunk++)
			fg_result(&fw, r, &f, &len);
		fw_expect_nothing(&fw, r);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	fw_close(&fw);
}
END_TEST

/* A far relay gets its result as soon as that is there, and once; a near one after those
 * of earlier chunks. _i: it is far */
START_TEST(a_far_relay_does_not_wait)
{
	struct fw_world fw;
	struct frame f;
	unsigned place;
	uint8_t bytes[FG_CHUNK] = {0};
	uint32_t len;

	fg_running(&fw, (struct fw_options){0});
	place = fg_uplink(&fw, 1, 1);
	session_network(fw.w[place].session, 40000, _i ? 20000 : 100, 0, 0);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK / 2, 0);
	ck_assert_uint_eq(operation_chunks(&f.of, f.chunk_elems), 2);
	/* chunk 0 of rank 2 is missing; chunk 1 comes from the relay of its group */
	for (f.chunk = 0; f.chunk < 2; f.chunk++)
		for (unsigned r = 0; r < FG_WORLD; r++)
			if (f.chunk ? fg_group_of[r] != 1 : r != 2)
				fw_contribute(&fw, r, f);
	f.chunk = 1;
	fg_contribute(&fw, place, f, bytes, FG_CHUNK);
	fw_feed_all(&fw, 100);
	if (_i)
		fg_result(&fw, place, &f, &len);
	for (unsigned r = 0; r < fw_places(&fw); r++)
		fw_expect_nothing(&fw, r);
	ck_assert_uint_eq(fw_slots_alive(&fw), 2);
	/* it is known to be near, or far, by now */
	session_network(fw.w[place].session, 40000, _i ? 100 : 20000, 0, 0);
	f.chunk = 0;
	fw_contribute(&fw, 2, f);
	fw_feed_all(&fw, 100);
	if (!_i) {
		f.chunk = 1;
		fg_result(&fw, place, &f, &len);
	}
	for (unsigned r = 0; r < FG_WORLD; r++) {
		for (f.chunk = 0; f.chunk < (fg_group_of[r] == 1 ? 1 : 2); f.chunk++)
			fg_result(&fw, r, &f, &len);
		fw_expect_nothing(&fw, r);
	}
	fw_expect_nothing(&fw, place);
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	fw_close(&fw);
}
END_TEST

/* No rank is in the group of this home, and far relays have the result before the chunk
 * ahead of it is complete. */
START_TEST(what_far_relays_have_is_done)
{
	struct fw_world fw;
	struct frame f;
	unsigned place[FG_GROUPS];
	uint8_t bytes[FG_CHUNK] = {0};
	uint32_t len;

	fg_running(&fw, (struct fw_options){0});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK / 2, 0);
	fw_contribute(&fw, 0, f);
	f.chunk = 1;
	for (unsigned g = 0; g < FG_GROUPS; g++) {
		place[g] = fg_uplink(&fw, g, 1);
		session_network(fw.w[place[g]].session, 20000, 20000, 0, 0);
	}
	fw_feed_all(&fw, 100);
	for (unsigned g = 0; g < FG_GROUPS; g++)
		fg_contribute(&fw, place[g], f, bytes, FG_CHUNK);
	fw_feed_all(&fw, 100);
	for (unsigned g = 0; g < FG_GROUPS; g++)
		fg_result(&fw, place[g], &f, &len);
	f.chunk = 0;
	for (unsigned r = 1; r < FG_WORLD; r++)
		fw_contribute(&fw, r, f);
	fw_feed_all(&fw, 100);
	for (unsigned r = 0; r < FG_WORLD; r++) {
		fg_result(&fw, r, &f, &len);
		fw_expect_nothing(&fw, r);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	fw_close(&fw);
}
END_TEST

/* Groups and uplinks send different chunks, each in its own window: none runs out of
 * slots. Group 0 and the uplinks come first, with all that they may have without a
 * result. _i: priorities - 1 */
START_TEST(slots_never_run_out)
{
	enum { WINDOW = 3 };
	unsigned place[4], n = 0;
	uint8_t bytes[FG_CHUNK] = {0};
	struct fw_world fw;
	struct frame f;

	fg_running(&fw, (struct fw_options){.window = WINDOW, .priorities = (unsigned)_i + 1});
	for (unsigned i = 0; i < 4; i++) {
		place[i] = fg_uplink(&fw, i % 2, 1 + i / 2);
	}
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, 100 * FG_CHUNK, 0);
	for (f.of.priority = 0; f.of.priority <= _i; f.of.priority++, n += 100)
		for (unsigned w = 0; w < (f.of.priority ? frame_reserve(WINDOW) : WINDOW); w++) {
			f.of.seq = FG_SEQ + f.of.priority;
			for (unsigned r = 0; r < FG_WORLD; r++) {
				f.chunk = n + 10 * r + w;
				fw_contribute(&fw, r, f);
			}
			for (unsigned i = 0; i < 4; i++) {
				f.chunk = n + 60 + 10 * i + w;
				fg_contribute(&fw, place[i], f, bytes, FG_CHUNK);
			}
			fw_feed_all(&fw, SIZE_MAX);
		}
	ck_assert_msg(fw.failed == 0, "%s", fw.why.msg);
	fw_close(&fw);
}
END_TEST

/* A rank of a job with groups names a reducer that is not in this reducer's file. */
START_TEST(an_unknown_name_of_this_reducer_ends_the_job)
{
	struct fw_options opt = fg_options((struct fw_options){0});
	struct control_hello hello = {.job = "train", .reducer = "nobody", .groups = FG_GROUPS};
	struct fw_world fw;

	fw_attached(&fw, &opt);
	lane_start(fw.lane, FAKE_JOB,
		   &(struct lane_begin){.processes = FG_WORLD, .agreed.features = opt.features, .hello = &hello});
	fw_flush(&fw);
	fw_expect_end(&fw, RS_ECUT, "nobody", "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("groups");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, a_home_sums_ranks_and_uplinks, 0, 2 * HOME_ROWS);
	tcase_add_loop_test(tc, a_rank_is_covered_once, 0, sizeof mismatches / sizeof mismatches[0]);
	tcase_add_loop_test(tc, the_protocol_is_checked, 0, sizeof spoilt_rows / sizeof spoilt_rows[0]);
	tcase_add_loop_test(tc, results_leave_in_order, 0, 2);
	tcase_add_test(tc, a_waiting_result_leaves_after_the_one_before_it);
	tcase_add_loop_test(tc, a_far_relay_does_not_wait, 0, 2);
	tcase_add_test(tc, what_far_relays_have_is_done);
	tcase_add_loop_test(tc, slots_never_run_out, 0, 2);
	tcase_add_test(tc, an_unknown_name_of_this_reducer_ends_the_job);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
