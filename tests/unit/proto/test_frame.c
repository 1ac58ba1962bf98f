/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"

#include <check.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* Every field has another value, so that swapped fields are seen. */
static const struct frame full = {
    .type = FRAME_RESULT,
    .flags = FRAME_CHECKED | FRAME_WIDE,
    .of.priority = 3,
    .of.dtype = 7,
    .of.op = 4,
    .of.up = 9,
    .of.down = 5,
    .payload_len = 0x00a1b2c3,
    .chunk = 0x01020304,
    .of.seq = 0x1112131415161718,
    .of.count = 0x2122232425262728,
    .ack = 0x3132333435363738,
    .generation = 0x41424344,
    .of.name_hash = 0x51525354,
    .chunk_elems = 0x61626364,
    .of.tensors = 0x68676665,
    .payload_sum = 0x71727374,
};

static void seal(uint8_t *raw)
{
	uint32_t sum = htole32(frame_checksum(raw, 60));

	memcpy(raw + 60, &sum, sizeof sum);
}

START_TEST(layout)
{
	static const uint8_t want[56] = {
	    'R',  'S',  1,    7,    5,    3,    0x97, 0xa4, 0xc3, 0xb2, 0xa1, 0x00, 4,    3,
	    2,    1,    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25,
	    0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 0x44, 0x43,
	    0x42, 0x41, 0x54, 0x53, 0x52, 0x51, 0x64, 0x63, 0x62, 0x61, 0x65, 0x66, 0x67, 0x68,
	};
	static const uint8_t sum[4] = {0x74, 0x73, 0x72, 0x71};
	uint8_t raw[FRAME_HEADER];

	frame_encode(&full, raw);
	ck_assert_mem_eq(raw, want, sizeof want);
	ck_assert_mem_eq(raw + 56, sum, sizeof sum);
	seal(raw);
	ck_assert_int_eq(frame_decode(raw, &(struct frame){0}, NULL), RS_OK);
}
END_TEST

START_TEST(round_trip)
{
	uint8_t raw[FRAME_HEADER], again[FRAME_HEADER];
	struct frame f;
	struct rs_err e;

	frame_encode(&full, raw);
	ck_assert_int_eq(frame_decode(raw, &f, &e), RS_OK);
	ck_assert_uint_eq(f.type, full.type);
	ck_assert_uint_eq(f.flags, full.flags);
	ck_assert_uint_eq(f.of.priority, full.of.priority);
	ck_assert_uint_eq(f.of.dtype, full.of.dtype);
	ck_assert_uint_eq(f.of.op, full.of.op);
	ck_assert_uint_eq(f.of.up, full.of.up);
	ck_assert_uint_eq(f.of.down, full.of.down);
	ck_assert_uint_eq(f.payload_len, full.payload_len);
	ck_assert_uint_eq(f.chunk, full.chunk);
	ck_assert_uint_eq(f.of.seq, full.of.seq);
	ck_assert_uint_eq(f.of.count, full.of.count);
	ck_assert_uint_eq(f.ack, full.ack);
	ck_assert_uint_eq(f.generation, full.generation);
	ck_assert_uint_eq(f.of.name_hash, full.of.name_hash);
	ck_assert_uint_eq(f.of.tensors, full.of.tensors);
	ck_assert_uint_eq(f.chunk_elems, full.chunk_elems);
	ck_assert_uint_eq(f.payload_sum, full.payload_sum);
	frame_encode(&f, again);
	ck_assert_mem_eq(raw, again, sizeof raw);
}
END_TEST

/* One byte of a valid header (DATA, no payload, no flags) is replaced. seal: the checksum
 * is made valid again. */
static const struct {
	const char *name;
	unsigned at;
	uint8_t value;
	bool seal;
	const char *says; /* part of the error; NULL: it decodes */
} bytes[] = {
    {"unchanged", 3, FRAME_DATA, true, NULL},
    {"magic 1", 0, 'r', true, "not frames of this protocol"},
    {"magic 2", 1, 0, true, "not frames of this protocol"},
    {"version 0", 2, 0, true, "protocol version 0"},
    {"version 2", 2, 2, true, "protocol version 2"},
    {"version before checksum", 2, 9, false, "protocol version 9"},
    {"type 0", 3, 0, true, "frame type 0 is unknown"},
    {"the last type", 3, FRAME_TYPE_NR - 1, true, NULL},
    {"type 25", 3, 25, true, "frame type 25 is unknown"},
    {"type 255", 3, 255, true, "frame type 255 is unknown"},
    {"all flags", 4, 15, true, NULL},
    {"flag 16", 4, 16, true, "flags 0x10"},
    {"the highest priority", 5, 3, true, NULL},
    {"priority 4", 5, 4, true, "frame priority 4 is beyond 3"},
    {"any dtype: the job's business", 6, 255, true, NULL},
    {"any op: the job's business", 7, 255, true, NULL},
    {"16 MiB of DATA", 11, 1, true, NULL},
    {"32 MiB of DATA", 11, 2, true, "announces 33554432 payload bytes, at most 16777216"},
    {"4 GiB of DATA", 11, 255, true, "at most 16777216"},
    {"any chunk", 12, 255, true, NULL},
    {"stale checksum", 12, 1, false, "checksum is wrong"},
    {"broken checksum", 63, 1, false, "checksum is wrong"},
};

START_TEST(malformed)
{
	struct frame good = {.type = FRAME_DATA}, f = {.type = 77};
	uint8_t raw[FRAME_HEADER];
	struct rs_err e = {0};
	int rc;

	frame_encode(&good, raw);
	if (bytes[_i].at == 63)
		raw[63] ^= bytes[_i].value;
	else
		raw[bytes[_i].at] = bytes[_i].value;
	if (bytes[_i].seal)
		seal(raw);
	rc = frame_decode(raw, &f, &e);
	if (bytes[_i].says) {
		ck_assert_msg(rc == RS_EPROTO && e.code == RS_EPROTO, "%s: %d", bytes[_i].name, rc);
		ck_assert_msg(strstr(e.msg, bytes[_i].says) != NULL, "%s: %s", bytes[_i].name, e.msg);
		ck_assert_msg(f.type == 77, "%s: output is set on failure", bytes[_i].name);
	} else {
		ck_assert_msg(rc == RS_OK, "%s: %s", bytes[_i].name, e.msg);
	}
}
END_TEST

START_TEST(reserved_bytes_are_zero)
{
	struct frame f = {.type = FRAME_PING};
	uint8_t raw[FRAME_HEADER];

	memset(raw, 0xff, sizeof raw);
	frame_encode(&f, raw);
	for (unsigned i = 4; i < 60; i++)
		ck_assert_msg(raw[i] == 0, "byte %u is 0x%x", i, raw[i]);
}
END_TEST

/* The checksum is of XXH3: every flipped bit is found. */
START_TEST(every_flipped_bit_is_detected)
{
	uint8_t raw[FRAME_HEADER];
	struct frame f;

	frame_encode(&full, raw);
	raw[_i / 8] ^= (uint8_t)(1 << _i % 8);
	ck_assert_int_eq(frame_decode(raw, &f, NULL), RS_EPROTO);
}
END_TEST

/* The byte `op` and the number in the place of `tensors`, and what they mean. A bit 3
 * without parts stays in the op, which is unknown then. */
static const struct {
	uint8_t byte;
	uint32_t tensors;
	struct operation of;
} kinds[] = {
    {4, 7, {.op = RS_AVG, .tensors = 7}},
    {16, 3, {.op = FRAME_OP_BROADCAST, .root = 2}},
    {16, 0, {.op = FRAME_OP_BROADCAST, .root = OPERATION_ANY_ROOT}},
    {8, 5, {.op = RS_SUM, .sharded = 1, .parts = 5}},
    {12, UINT32_MAX, {.op = RS_AVG, .sharded = 1, .parts = UINT32_MAX}},
    {24, 1, {.op = FRAME_OP_BROADCAST, .sharded = 1, .parts = 1}},
    {0x58, 9, {.op = FRAME_OP_BROADCAST, .sharded = 1, .parts = 9, .down = 2}},
    {13, 5, {.op = 5, .sharded = 1, .parts = 5}},
    {31, 5, {.op = 23, .sharded = 1, .parts = 5}},
    {8, 0, {.op = 8}},
    {24, 0, {.op = 24}},
};

START_TEST(kinds_of_operations)
{
	struct frame f = {.type = FRAME_DATA, .of = kinds[_i].of};
	uint8_t raw[FRAME_HEADER];

	frame_encode(&f, raw);
	ck_assert_uint_eq(raw[7], kinds[_i].byte);
	ck_assert_uint_eq(raw[52] | raw[53] << 8 | raw[54] << 16 | (uint32_t)raw[55] << 24, kinds[_i].tensors);
	memset(&f, 0, sizeof f);
	ck_assert_int_eq(frame_decode(raw, &f, NULL), RS_OK);
	ck_assert_uint_eq(f.of.op, kinds[_i].of.op);
	ck_assert_uint_eq(f.of.sharded, kinds[_i].of.sharded);
	ck_assert_uint_eq(f.of.parts, kinds[_i].of.parts); /* or the root */
	ck_assert_uint_eq(f.of.tensors, kinds[_i].of.tensors);
	ck_assert_uint_eq(f.of.down, kinds[_i].of.down);
}
END_TEST

static const struct {
	unsigned type;
	uint32_t len;
	bool ok;
} lengths[] = {
    {FRAME_HELLO, 4096, true},         {FRAME_HELLO, 4097, false},
    {FRAME_WELCOME, 4097, false},      {FRAME_REFUSED, 4097, false},
    {FRAME_WAITING, 4097, false},      {FRAME_START, 4097, false},
    {FRAME_PING, 4097, false},         {FRAME_ABORT, 4096, true},
    {FRAME_ABORT, 4097, false},        {FRAME_GOODBYE, 4097, false},
    {FRAME_DATA, 16 << 20, true},      {FRAME_DATA, (16 << 20) + 1, false},
    {FRAME_RESULT, 16 << 20, true},    {FRAME_RESULT, (16 << 20) + 1, false},
    {FRAME_RESULT, UINT32_MAX, false},
};

START_TEST(payload_lengths)
{
	struct frame f = {.type = (uint8_t)lengths[_i].type, .payload_len = lengths[_i].len};
	uint8_t raw[FRAME_HEADER];
	struct rs_err e = {0};

	frame_encode(&f, raw);
	ck_assert_int_eq(frame_decode(raw, &f, &e), lengths[_i].ok ? RS_OK : RS_EPROTO);
	if (!lengths[_i].ok)
		ck_assert_ptr_nonnull(strstr(e.msg, frame_type_name(lengths[_i].type)));
}
END_TEST

static const struct {
	uint64_t count;
	uint32_t elems;
	uint64_t chunks;
	uint32_t first, last; /* lengths */
} cuts[] = {
    {0, 16, 1, 0, 0},
    {0, 0, 1, 0, 0},
    {1, 16, 1, 1, 1},
    {16, 16, 1, 16, 16},
    {17, 16, 2, 16, 1},
    {32, 16, 2, 16, 16},
    {5, 1, 5, 1, 1},
    {UINT32_MAX, 1, UINT32_MAX, 1, 1},
    {UINT32_MAX, UINT32_MAX, 1, UINT32_MAX, UINT32_MAX},
    {(uint64_t)UINT32_MAX * UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
    {UINT64_MAX, UINT32_MAX, (uint64_t)UINT32_MAX + 2, UINT32_MAX, UINT32_MAX}, /* chunk 2^32 - 1 is not the last */
};

START_TEST(chunk_arithmetic)
{
	uint64_t count = cuts[_i].count, chunks = frame_chunks(count, cuts[_i].elems);
	uint32_t last = chunks > UINT32_MAX ? UINT32_MAX : (uint32_t)(chunks - 1);

	ck_assert_uint_eq(chunks, cuts[_i].chunks);
	ck_assert_uint_eq(frame_chunk_len(count, cuts[_i].elems, 0), cuts[_i].first);
	ck_assert_uint_eq(frame_chunk_len(count, cuts[_i].elems, last), cuts[_i].last);
	if (chunks < UINT32_MAX)
		ck_assert_uint_eq(frame_chunk_len(count, cuts[_i].elems, last + 1), 0);
}
END_TEST

START_TEST(chunks_cover_everything)
{
	for (uint64_t count = 0; count < 200; count++)
		for (uint32_t elems = 1; elems < 40; elems++) {
			uint64_t sum = 0;

			for (uint32_t i = 0; i < frame_chunks(count, elems); i++)
				sum += frame_chunk_len(count, elems, i);
			ck_assert_uint_eq(sum, count);
		}
}
END_TEST

START_TEST(names)
{
	ck_assert_uint_eq(frame_name_hash(NULL), 0);
	ck_assert_uint_eq(frame_name_hash(""), 0);
	ck_assert_uint_ne(frame_name_hash("a"), 0);
	ck_assert_uint_ne(frame_name_hash("a"), frame_name_hash("b"));
	ck_assert_uint_eq(frame_name_hash("layer1"), frame_checksum("layer1", 6));
	for (unsigned t = FRAME_HELLO; t < FRAME_TYPE_NR; t++)
		ck_assert_str_ne(frame_type_name(t), "type?");
	ck_assert_str_eq(frame_type_name(0), "type?");
	ck_assert_str_eq(frame_type_name(FRAME_TYPE_NR), "type?");
	ck_assert_str_eq(frame_type_name(FRAME_WAITING), "WAITING");
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *s = suite_create("frame");
	TCase *t = tcase_create("frame");
	SRunner *r;
	int failed;

	tcase_add_test(t, layout);
	tcase_add_test(t, round_trip);
	tcase_add_loop_test(t, malformed, 0, COUNT(bytes));
	tcase_add_loop_test(t, kinds_of_operations, 0, (int)(sizeof kinds / sizeof kinds[0]));
	tcase_add_test(t, reserved_bytes_are_zero);
	tcase_add_loop_test(t, every_flipped_bit_is_detected, 0, FRAME_HEADER * 8);
	tcase_add_loop_test(t, payload_lengths, 0, COUNT(lengths));
	tcase_add_loop_test(t, chunk_arithmetic, 0, COUNT(cuts));
	tcase_add_test(t, chunks_cover_everything);
	tcase_add_test(t, names);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
