/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of reductionctl to several reducers: each that fails is reported with its own
 * reason. */
#include "deploy/ctl/ctl.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REDUCERS = 3, TEXT = 2000 };

/* What a reducer does: it answers, its query cannot be sent, or its query fails later. */
enum fate { ANSWERS, UNSENT, FAILS };

static const struct {
	const char *what;
	enum fate fate[REDUCERS];
	const char *printed, *sentence;
	int code;
} rows[] = {
    {"all answer", {ANSWERS, ANSWERS, ANSWERS}, "", "", RS_OK},
    {"none can be sent",
     {UNSENT, UNSENT, UNSENT},
     "reductionctl: r0 (:0): cannot be sent to :0\nreductionctl: r1 (:1): cannot be sent to :1\n"
     "reductionctl: r2 (:2): cannot be sent to :2\n",
     "3 of 3 reducers did not answer",
     RS_ECONFIG},
    {"one fails before one that could not be sent",
     {FAILS, ANSWERS, UNSENT},
     "reductionctl: r0 (:0): lost :0\nreductionctl: r2 (:2): cannot be sent to :2\n",
     "2 of 3 reducers did not answer",
     RS_ECONFIG},
    {"one fails after one that could not be sent",
     {UNSENT, FAILS, ANSWERS},
     "reductionctl: r0 (:0): cannot be sent to :0\nreductionctl: r1 (:1): lost :1\n",
     "2 of 3 reducers did not answer",
     RS_EIO},
};

/* The fake of a query: the number of its reducer. */
struct rpc_query {
	unsigned reducer;
};

static struct {
	unsigned row, open, taken;
	struct rpc_query queries[REDUCERS];
} test;

static int fake_query(struct rpc_query **ret, struct rpc_client *c, const struct rpc_query_options *opt,
		      struct rs_err *e)
{
	unsigned i = (unsigned)strtoul(opt->address + 1, NULL, 10);

	(void)c;
	if (rows[test.row].fate[i] == UNSENT)
		return rs_fail(e, RS_ECONFIG, "cannot be sent to %s", opt->address);
	test.open++;
	test.queries[i].reducer = i;
	*ret = &test.queries[i];
	return RS_OK;
}

static int fake_query_next(struct rpc_query *a, uint32_t wait_ms, const uint8_t **ret, size_t *ret_len,
			   enum rpc_code *code, struct rs_err *e)
{
	(void)wait_ms;
	if (rows[test.row].fate[a->reducer] == FAILS) {
		*code = RPC_CODE_UNAVAILABLE;
		rs_fail(e, RS_EIO, "lost :%u", a->reducer);
		return RPC_BROKEN;
	}
	*ret = (const uint8_t *)""; /* a message without fields */
	*ret_len = 0;
	return 1;
}

static void fake_query_free(struct rpc_query *a)
{
	(void)a;
	test.open--;
}

static void take(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer)
{
	(void)a;
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(rows[test.row].fate[reducer], ANSWERS);
	test.taken++;
}

/* Runs reducers_all, and returns what it writes to standard error. */
static int all(struct reducers *a, char printed[TEXT], struct rs_err *e)
{
	Reduction__V1__StatusRequest request = REDUCTION__V1__STATUS_REQUEST__INIT;
	FILE *file = tmpfile();
	int before = dup(STDERR_FILENO), rc;

	ck_assert(file && before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
	rc = reducers_all(a, "/reduction.v1.Control/Status", &request.base, &reduction__v1__status_reply__descriptor,
			  take, e);
	ck_assert(dup2(before, STDERR_FILENO) >= 0);
	close(before);
	rewind(file);
	printed[fread(printed, 1, TEXT - 1, file)] = '\0';
	fclose(file);
	return rc;
}

START_TEST(each_has_its_own_reason)
{
	struct rpc_api api = {.query = fake_query, .query_next = fake_query_next, .query_free = fake_query_free};
	struct reducers a = {.reducers = calloc(REDUCERS, sizeof *a.reducers), .reducers_n = REDUCERS, .rpc = &api};
	char printed[TEXT];
	struct rs_err e = {.code = RS_OK};
	unsigned answers = 0;

	ck_assert_ptr_nonnull(a.reducers);
	memset(&test, 0, sizeof test);
	test.row = (unsigned)_i;
	for (unsigned i = 0; i < REDUCERS; i++) {
		snprintf(a.reducers[i].name, sizeof a.reducers[i].name, "r%u", i);
		snprintf(a.reducers[i].address, sizeof a.reducers[i].address, ":%u", i);
		answers += rows[_i].fate[i] == ANSWERS;
	}
	ck_assert_msg(all(&a, printed, &e) == rows[_i].code, "%s: code %d: %s", rows[_i].what, e.code, e.msg);
	ck_assert_str_eq(printed, rows[_i].printed);
	ck_assert_str_eq(e.msg, rows[_i].sentence);
	ck_assert_uint_eq(test.taken, answers);
	ck_assert_uint_eq(test.open, 0);
	free(a.reducers);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("query");
	TCase *t = tcase_create("query");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, each_has_its_own_reason, 0, sizeof rows / sizeof rows[0]);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
