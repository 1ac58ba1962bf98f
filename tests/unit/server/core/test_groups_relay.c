/* SPDX-License-Identifier: Apache-2.0 */
/* What a relay makes of the contributions of its group, and that in a deterministic job
 * the bits do not depend on which groups have a relay. The expected bits come from the
 * scalar kernels, one contribution after the other. */
#include "common/dtype.h"
#include "tests/unit/fake_groups.h"
#include "tests/unit/fake_home.h"

#include <stdlib.h>
#include <string.h>

/* What ranks send to their relay; random bits if deterministic. */
struct data {
	uint8_t bytes[FG_WORLD][4 * FG_CHUNK * 2];
	uint32_t len[FG_WORLD];
	bool wide[FG_WORLD];
};

static const struct relay_row {
	const char *what;
	unsigned dtype, op, up, down;
	unsigned wide; /* bit r: rank r sends float32 */
} relay_rows[] = {
    {"float32", RS_FLOAT32, RS_SUM, 0, 0, 0},
    {"float32, average", RS_FLOAT32, RS_AVG, 0, 0, 0},
    {"float64", RS_FLOAT64, RS_SUM, 0, 0, 0},
    {"float16", RS_FLOAT16, RS_SUM, 0, 0, 0},
    {"float16, sums of nodes", RS_FLOAT16, RS_SUM, 0, 0, 31},
    {"bfloat16, some are sums of nodes", RS_BFLOAT16, RS_AVG, 0, 0, 2 + 1},
    {"bfloat16, those of one group", RS_BFLOAT16, RS_SUM, 0, 0, 2 + 8},
    {"int64, product", RS_INT64, RS_PROD, 0, 0, 0},
    {"uint8, maximum", RS_UINT8, RS_MAX, 0, 0, 0},
    {"fp8", RS_FLOAT32, RS_SUM, RS_WIRE_FP8, RS_WIRE_FP8, 0},
    {"int4", RS_FLOAT32, RS_AVG, RS_WIRE_INT4, RS_WIRE_INT8, 0},
    {"int8 up, float16", RS_FLOAT16, RS_SUM, RS_WIRE_INT8, RS_WIRE_SAME, 0},
    {"down only", RS_FLOAT32, RS_SUM, RS_WIRE_SAME, RS_WIRE_BF16, 0},
    {"down only, float16", RS_FLOAT16, RS_SUM, RS_WIRE_SAME, RS_WIRE_FP8, 0},
};
enum { RELAY_ROWS = sizeof relay_rows / sizeof relay_rows[0] };

static const struct rs_kernels *scalar(void)
{
	const struct rs_kernels *k;
	struct rs_err e;

	must(rs_kernels_select("scalar", &k, &e) == RS_OK);
	return k;
}

static struct frame relay_chunk(const struct fw_world *fw, const struct relay_row *row)
{
	struct frame f = fw_data(fw, row->op, row->dtype, FG_SEQ, 0, 0);

	f.of.up = row->up & 15;
	f.of.down = row->down & 7;
	f.of.size = rs_dtype_size(row->dtype) & OPERATION_SIZE;
	f.chunk_elems = operation_chunk_elems(&f.of, FG_CHUNK, 8 * FG_CHUNK);
	f.of.count = f.chunk_elems - 3;
	return f;
}

/* Random values between -2 and 2, whose sums depend on their order; of integers any
 * bytes. */
static void draw(struct data *d, struct fw_world *fw, const struct relay_row *row, const struct frame *f)
{
	uint32_t n = (uint32_t)f->of.count;

	for (unsigned r = 0; r < FG_WORLD; r++) {
		float *x = malloc(n * sizeof *x);

		d->wide[r] = row->wide >> r & 1;
		for (uint32_t i = 0; i < n; i++)
			x[i] = ((float)fw_random(fw, 1 << 30) / (float)(1 << 29) - 1) * (float)(1 + i % 2);
		d->len[r] = d->wide[r] ? n * 4 : operation_up_bytes(&f->of, n);
		must(d->len[r] <= sizeof d->bytes[r]);
		for (uint32_t i = 0; i < d->len[r]; i++)
			d->bytes[r][i] = (uint8_t)fw_random(fw, 256);
		if (row->up)
			scalar()->encode[row->up](d->bytes[r], x, n);
		else if (d->wide[r] || row->dtype == RS_FLOAT32)
			memcpy(d->bytes[r], x, n * sizeof *x);
		else if (rs_dtype_is_half(row->dtype))
			scalar()->store[row->dtype](d->bytes[r], x, n);
		for (uint32_t i = 0; row->dtype == RS_FLOAT64 && i < n; i++) {
			double y = (double)x[i] / 3;

			memcpy(d->bytes[r] + i * sizeof y, &y, sizeof y);
		}
		free(x);
	}
}

/* Adds a contribution to acc, or begins with it. */
static void plain_add(void *acc, bool first, const struct relay_row *row, bool wide, const void *src, uint32_t n)
{
	unsigned dtype = wide ? RS_FLOAT32 : row->dtype;

	if (first)
		(row->up ? scalar()->decode[row->up] : scalar()->load[dtype])(acc, src, n);
	else
		(row->up ? scalar()->add[row->up] : scalar()->reduce[row->op][dtype])(acc, src, n);
}

/* The sum of a group as its relay must send it: the ranks in their order, rounded once.
 * Returns its bytes. */
static uint32_t plain_group(uint8_t *to, bool *wide, const struct relay_row *row, const struct data *d,
			    const struct frame *f, unsigned group)
{
	uint32_t n = (uint32_t)f->of.count;
	bool first = true;

	*wide = true;
	for (unsigned r = 0; r < FG_WORLD; r++)
		if (fg_group_of[r] == group) {
			plain_add(to, first, row, d->wide[r], d->bytes[r], n);
			first = false;
			*wide &= d->wide[r];
		}
	if (row->up)
		scalar()->encode[row->up](to, to, n);
	else if (rs_dtype_is_half(row->dtype) && !*wide)
		scalar()->store[row->dtype](to, to, n);
	return *wide ? n * 4 : operation_up_bytes(&f->of, n);
}

/* The result: the groups in their order. */
static uint32_t plain_result(uint8_t *to, const struct relay_row *row, const struct data *d, const struct frame *f)
{
	uint32_t n = (uint32_t)f->of.count;
	uint8_t part[8 * (8 * FG_CHUNK)];
	bool wide;

	for (unsigned g = 0; g < FG_GROUPS; g++) {
		plain_group(part, &wide, row, d, f, g);
		plain_add(to, g == 0, row, wide, part, n);
	}
	if (row->op == RS_AVG)
		scalar()->divide[rs_dtype_is_half(row->dtype) ? RS_FLOAT32 : row->dtype](to, FG_WORLD, n);
	if (row->down)
		scalar()->encode[row->down](to, to, n);
	else if (rs_dtype_is_half(row->dtype))
		scalar()->store[row->dtype](to, to, n);
	return operation_down_bytes(&f->of, n);
}

/* Lets a relay add the ranks of a group, compares what it sends, and writes it to `to`
 * (with *flags). The home answers with `result`, which the ranks get. */
static uint32_t through_relay(const struct relay_row *row, struct fw_options opt, const struct data *d, unsigned group,
			      uint8_t *to, uint8_t *flags, const uint8_t *result, uint32_t result_len, size_t piece)
{
	uint8_t want[8 * (8 * FG_CHUNK)];
	const uint8_t *payload;
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h;
	struct frame f, got;
	uint32_t len;
	bool wide;

	fg_running(&fw, opt);
	fh_init(&homes, &fw);
	homes.piece = piece;
	f = relay_chunk(&fw, row);
	for (unsigned r = FG_WORLD; r-- > 0;) {
		struct frame of = fg_relayed(f);

		of.flags |= d->wide[r] ? FRAME_WIDE : 0;
		if (fg_group_of[r] == group)
			fg_contribute(&fw, r, of, d->bytes[r], d->len[r]);
	}
	fw_feed_all(&fw, piece);
	ck_assert_msg(fw.failed == 0, "%s: %s", row->what, fw.why.msg);
	h = fh_join(&homes, FG_HOME);
	ck_assert_uint_eq(h->hello.group, group + 1);
	ck_assert_uint_eq(h->hello.lane, FG_LANE);
	got = fh_expect(h, FRAME_DATA, &payload);
	len = plain_group(want, &wide, row, d, &f, group);
	ck_assert_uint_eq(got.payload_len, len);
	ck_assert_msg(memcmp(payload, want, len) == 0, "%s: the sum of group %u is wrong", row->what, group);
	ck_assert_uint_eq(got.flags, (wide ? FRAME_WIDE : 0) | (opt.checksum ? FRAME_CHECKED : 0));
	if (opt.checksum)
		ck_assert_uint_eq(got.payload_sum, frame_checksum(payload, len));
	ck_assert(got.of.seq == FG_SEQ && got.chunk == 0 && got.of.count == f.of.count && got.of.op == f.of.op &&
		  got.of.dtype == f.of.dtype && got.of.up == f.of.up && got.of.down == f.of.down);
	memcpy(to, payload, len);
	*flags = got.flags & FRAME_WIDE;
	for (unsigned r = 0; r < FG_WORLD; r++)
		fw_expect_nothing(&fw, r);
	fh_send_result(&homes, h, got, result, result_len);
	for (unsigned r = 0; r < FG_WORLD; r++) {
		uint32_t n;

		if (fg_group_of[r] != group) {
			fw_expect_nothing(&fw, r);
			continue;
		}
		payload = fg_result(&fw, r, &f, &n);
		ck_assert(n == result_len && memcmp(payload, result, n) == 0);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(fw.failed, 0);
	fh_close(&homes);
	return len;
}

/* Deterministic: the bits are the same, whichever groups have a relay, and those of the
 * plain computation. _i: the row, then the groups with a relay. */
START_TEST(deterministic_bits_do_not_depend_on_relays)
{
	const struct relay_row *row = &relay_rows[_i % RELAY_ROWS];
	unsigned through = (unsigned)_i / RELAY_ROWS;
	struct fw_options opt = {.deterministic = true, .checksum = through % 2};
	uint8_t want[8 * (8 * FG_CHUNK)], part[8 * (8 * FG_CHUNK)];
	struct data *d = malloc(sizeof *d);
	uint32_t want_len, len;
	struct fw_world fw;
	struct frame f;

	fg_running(&fw, opt);
	fw.random = (uint32_t)_i + 1;
	f = relay_chunk(&fw, row);
	draw(d, &fw, row, &f);
	want_len = plain_result(want, row, d, &f);
	for (unsigned g = 0; g < FG_GROUPS; g++) {
		struct frame of = f;
		unsigned place;

		if (!(through >> g & 1))
			continue;
		len = through_relay(row, opt, d, g, part, &of.flags, want, want_len, g ? SIZE_MAX : 50);
		place = fg_uplink(&fw, g, 1 + g % 2);
		fg_contribute(&fw, place, of, part, len);
	}
	for (unsigned r = 0; r < FG_WORLD; r++) {
		struct frame of = f;

		of.flags |= d->wide[r] ? FRAME_WIDE : 0;
		if (!(through >> fg_group_of[r] & 1))
			fg_contribute(&fw, r, of, d->bytes[r], d->len[r]);
	}
	fw_feed_shuffled(&fw, 300);
	ck_assert_msg(fw.failed == 0, "%s: %s", row->what, fw.why.msg);
	for (unsigned r = 0; r < fw_places(&fw); r++) {
		const uint8_t *got;

		if (r < FG_WORLD ? through >> fg_group_of[r] & 1 : !fw.w[r].session)
			continue;
		got = fg_result(&fw, r, &f, &len);
		ck_assert_uint_eq(len, want_len);
		ck_assert_msg(memcmp(got, want, len) == 0, "%s through %u: other bits", row->what, through);
	}
	fw_close(&fw);
	free(d);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("groups_relay");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, deterministic_bits_do_not_depend_on_relays, 0, 8 * RELAY_ROWS);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
