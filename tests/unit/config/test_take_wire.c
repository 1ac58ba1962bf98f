/* SPDX-License-Identifier: Apache-2.0 */
/* job.wire: as a text, as it is printed, and what follows from it for the exchange. */
#include "common/wire.h"
#include "config/config.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define WORDS "expected same, bf16, fp8, int8, fp16 or int4, or as up=fp8,down=bf16,rounding=stochastic"

/* A text, and what it means; the same as YAML, as it is printed. A reducer's decoded
 * chunk takes `decoded` times the bytes of a chunk. */
static const struct {
	const char *text, *printed;
	unsigned up, down;
	bool random;
	unsigned decoded;
} good[] = {
    {"same", "same", RS_WIRE_SAME, RS_WIRE_SAME, false, 2},
    {"bf16", "bf16", RS_WIRE_BF16, RS_WIRE_BF16, false, 2},
    {"fp8", "fp8", RS_WIRE_FP8, RS_WIRE_FP8, false, 4},
    {"int8", "int8", RS_WIRE_INT8, RS_WIRE_INT8, false, 4},
    {"fp16", "fp16", RS_WIRE_FP16, RS_WIRE_FP16, false, 2},
    {"int4", "int4", RS_WIRE_INT4, RS_WIRE_INT4, false, 8},
    {"up=int4,down=int8", "{up: int4, down: int8, rounding: nearest}", RS_WIRE_INT4, RS_WIRE_INT8, false, 4},
    {"up=fp8,down=bf16", "{up: fp8, down: bf16, rounding: nearest}", RS_WIRE_FP8, RS_WIRE_BF16, false, 4},
    {"down=int8", "{up: same, down: int8, rounding: nearest}", RS_WIRE_SAME, RS_WIRE_INT8, false, 4},
    {"rounding=stochastic,down=fp8,up=fp8", "{up: fp8, down: fp8, rounding: stochastic}", RS_WIRE_FP8, RS_WIRE_FP8,
     true, 4},
    {"up=bf16,down=bf16,rounding=nearest", "bf16", RS_WIRE_BF16, RS_WIRE_BF16, false, 2},
};

START_TEST(texts_are_read)
{
	struct rs_config cfg, again;
	struct rs_err e = {0};
	char *text = NULL, *line, want[96];
	size_t len;
	FILE *out = open_memstream(&text, &len);
	struct exchange_params params;

	ck_assert_int_eq(rs_config_load(&cfg, NULL, &e), RS_OK);
	cfg.job.wire_up = cfg.job.wire_down = RS_WIRE_INT8; /* of a file; nothing of it stays */
	cfg.job.wire_random = true;
	ck_assert_msg(rs_config_take_wire(&cfg, good[_i].text, "REDUCTION_WIRE", &e) == RS_OK, "%s", e.msg);
	ck_assert_uint_eq(cfg.job.wire_up, good[_i].up);
	ck_assert_uint_eq(cfg.job.wire_down, good[_i].down);
	ck_assert_int_eq(cfg.job.wire_random, good[_i].random);

	rs_config_print(&cfg, out);
	fclose(out);
	snprintf(want, sizeof want, "\n  wire: %s\n", good[_i].printed);
	line = strstr(text, want);
	ck_assert_ptr_nonnull(line);
	ck_assert_msg(rs_config_parse(&again, "f", text, len, &e) == RS_OK, "%s", e.msg);
	free(text);

	params = rs_config_exchange(&again);
	ck_assert_uint_eq(params.wire_up, good[_i].up);
	ck_assert_uint_eq(params.wire_down, good[_i].down);
	ck_assert_int_eq(params.wire_random, good[_i].random);
	ck_assert_uint_eq(params.decoded_bytes, good[_i].decoded * again.sharding.chunk_bytes);
	rs_config_close(&cfg);
	rs_config_close(&again);
}
END_TEST

static const char *const bad[] = {
    "",
    "fp4",
    "FP8",
    "fp8,bf16",
    "up=",
    "up",
    "up=fp8,",
    "up=fp8,,down=fp8",
    "=fp8",
    "wire=fp8",
    "up=fp8 ",
    "rounding=up",
    "fp8,rounding=stochastic",
    "up=fp8,down=fp8,up=fp8,down=fp8,up=fp8,down=fp8,up=fp8,down=fp8,up=fp8,down=fp8",
};

START_TEST(bad_texts_are_refused)
{
	struct rs_config cfg;
	struct rs_err e = {0};
	char want[256];

	ck_assert_int_eq(rs_config_load(&cfg, NULL, &e), RS_OK);
	cfg.job.wire_up = RS_WIRE_BF16;
	ck_assert_int_eq(rs_config_take_wire(&cfg, bad[_i], "REDUCTION_WIRE", &e), RS_ECONFIG);
	snprintf(want, sizeof want, "REDUCTION_WIRE: found \"%.60s\", " WORDS, bad[_i]);
	ck_assert_str_eq(e.msg, want);
	ck_assert_uint_eq(cfg.job.wire_up, RS_WIRE_BF16);
	ck_assert_uint_eq(cfg.job.wire_down, RS_WIRE_SAME);
	rs_config_close(&cfg);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("take_wire");
	TCase *tc = tcase_create("take_wire");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, texts_are_read, 0, sizeof good / sizeof good[0]);
	tcase_add_loop_test(tc, bad_texts_are_refused, 0, sizeof bad / sizeof bad[0]);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
