/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of reduce-scatter and all-gather, over a backend that only records what
 * it gets. This process is rank 1 of 3. */
#include "agent/lib/api/comm.h"
#include "common/dtype.h"
#include "proto/frame.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 4, WORLD = 3, ALL = WORLD * COUNT };

struct fake {
	struct backend base;
	struct backend_request last;
	unsigned submits;
	bool shards;
};

static int fake_submit(struct backend *b, struct backend_request *req, struct rs_err *e)
{
	struct fake *f = (struct fake *)b;

	(void)e;
	f->last = *req;
	f->submits++;
	req->done(req, NULL);
	return RS_OK;
}

static bool fake_can_shard(struct backend *b)
{
	return ((struct fake *)b)->shards;
}

static const struct backend_vtbl direct = {.submit = fake_submit, .can_shard = fake_can_shard};

static struct reduction_comm *open_comm(struct fake *f, const struct backend_vtbl *v, bool shards)
{
	struct reduction_comm *c;
	struct rs_err e;

	*f = (struct fake){.base.v = v, .shards = shards};
	c = comm_new(&e);
	ck_assert_ptr_nonnull(c);
	c->backend = &f->base;
	c->rank = 1;
	c->world_size = WORLD;
	return c;
}

/* Where the buffers are in one array, in elements: of all parts, and of the own one. */
static const struct {
	const char *what, *says; /* NULL: it is right */
	size_t count;
	int all, part; /* NONE: NULL */
	unsigned dtype, op;
	int code;
} rows[] = {
#define NONE -1
    {"apart", NULL, COUNT, 0, 20, RS_FLOAT32, RS_SUM, 0},
    {"apart, the part first", NULL, COUNT, 4, 0, RS_FLOAT32, RS_AVG, 0},
    {"in place", NULL, COUNT, 0, 4, RS_FLOAT32, RS_MAX, 0},
    {"no elements", NULL, 0, NONE, NONE, RS_FLOAT32, RS_SUM, 0},
    {"in the place of rank 0", "must be part 1 of", COUNT, 0, 0, RS_FLOAT32, RS_SUM, RS_EINVAL},
    {"in the place of rank 2", "must be part 1 of", COUNT, 0, 8, RS_FLOAT32, RS_SUM, RS_EINVAL},
    {"one element beside its place", "must be part 1 of", COUNT, 0, 5, RS_FLOAT32, RS_SUM, RS_EINVAL},
    {"half before the array", "must be part 1 of", COUNT, 4, 2, RS_FLOAT32, RS_SUM, RS_EINVAL},
    {"half behind the array", "must be part 1 of", COUNT, 0, 11, RS_FLOAT32, RS_SUM, RS_EINVAL},
    {"no array", "is NULL", COUNT, NONE, 0, RS_FLOAT32, RS_SUM, RS_EINVAL},
    {"no part", "is NULL", COUNT, 0, NONE, RS_FLOAT32, RS_SUM, RS_EINVAL},
    {"an unknown dtype", "dtype 12 is unknown", COUNT, 0, 20, 12, RS_SUM, RS_EINVAL},
    {"too many elements", "do not fit the address space", SIZE_MAX / 8, 0, 20, RS_FLOAT32, RS_SUM, RS_EINVAL},
    {"as many as overflow", "do not fit the address space", SIZE_MAX / 4, 0, 20, RS_INT8, RS_SUM, RS_EINVAL},
#undef NONE
};

static void expect(int code, const char *says, const reduction_error *err, int rc)
{
	ck_assert_int_eq(rc, code);
	if (says)
		ck_assert_msg(strstr(err->message, says) != NULL, "%s", err->message);
}

/* _i: the row; then all-gather */
START_TEST(buffers)
{
	unsigned row = (unsigned)_i % (sizeof rows / sizeof rows[0]);
	bool gather = (size_t)_i >= sizeof rows / sizeof rows[0];
	float x[40] = {0}, *all = rows[row].all < 0 ? NULL : x + rows[row].all,
	      *part = rows[row].part < 0 ? NULL : x + rows[row].part;
	reduction_error err = {0};
	struct fake f;
	struct reduction_comm *c = open_comm(&f, &direct, true);
	int rc;

	if (gather)
		rc = reduction_all_gather(c, part, all, rows[row].count, rows[row].dtype, &err);
	else
		rc = reduction_reduce_scatter(c, all, part, rows[row].count, rows[row].dtype, rows[row].op, &err);
	expect(rows[row].code, rows[row].says, &err, rc);
	ck_assert_uint_eq(f.submits, !rows[row].code);
	if (!rows[row].code) {
		ck_assert(f.last.of.sharded && f.last.of.parts == WORLD);
		ck_assert_uint_eq(f.last.of.count, WORLD * rows[row].count);
		ck_assert_uint_eq(f.last.of.op, gather ? FRAME_OP_BROADCAST : rows[row].op);
		ck_assert_ptr_eq(f.last.send, gather ? part : all);
		ck_assert_ptr_eq(f.last.recv, gather ? all : part);
	}
	comm_delete(c);
}
END_TEST

/* What cannot be done; the communicator goes on. */
static const struct {
	const char *what, *says;
	const struct backend_vtbl *v;
	bool shards;
	int device, code;
	int can; /* what reduction_can_shard() returns */
} kinds[] = {
    {"an older release", "a rank or a reducer of this job knows no", &direct, false, REDUCTION_HOST, RS_EUNSUPPORTED,
     0},
    {"host memory", NULL, &direct, true, REDUCTION_HOST, 0, 1},
    {"a GPU without a driver", "libcuda.so.1", &direct, true, 2, RS_EUNSUPPORTED, 1},
};

/* _i: the row; then all-gather */
START_TEST(memory_and_jobs)
{
	unsigned row = (unsigned)_i % (sizeof kinds / sizeof kinds[0]);
	bool gather = (size_t)_i >= sizeof kinds / sizeof kinds[0];
	float x[ALL] = {0}, part[COUNT] = {0};
	struct fake f;
	struct reduction_comm *c = open_comm(&f, kinds[row].v, kinds[row].shards);
	reduction_tensor t = REDUCTION_TENSOR_INIT;
	reduction_request *req = NULL;
	reduction_error err = {0};
	struct rs_err e = {0};
	int rc;

	t.send = gather ? part : x;
	t.recv = gather ? x : part;
	t.count = COUNT;
	t.dtype = REDUCTION_FLOAT32;
	t.device = kinds[row].device;
	rc = (gather ? reduction_all_gather_tensor_async : reduction_reduce_scatter_tensor_async)(c, &t, &req, &err);
	expect(kinds[row].code, kinds[row].says, &err, rc);
	ck_assert_int_eq(reduction_can_shard(c), kinds[row].can);
	ck_assert_int_eq(comm_check(c, &e), RS_OK);
	if (!kinds[row].code)
		ck_assert_int_eq(reduction_wait(req, -1, &err), 0);
	comm_delete(c);
}
END_TEST

START_TEST(without_what_is_needed)
{
	float x[ALL], part[COUNT];
	reduction_error err = {0};
	struct fake f;
	struct reduction_comm *c = open_comm(&f, &direct, true);

	ck_assert_int_eq(reduction_can_shard(NULL), -1);
	expect(RS_EINVAL, "comm is NULL", &err, reduction_all_gather(NULL, part, x, COUNT, REDUCTION_FLOAT32, &err));
	expect(RS_EINVAL, "comm is NULL", &err,
	       reduction_reduce_scatter(NULL, x, part, COUNT, REDUCTION_FLOAT32, REDUCTION_SUM, &err));
	expect(RS_EINVAL, "ret is NULL", &err,
	       reduction_all_gather_async(c, part, x, COUNT, REDUCTION_FLOAT32, "w", NULL, &err));
	expect(RS_EINVAL, "operation 9 is unknown", &err,
	       reduction_reduce_scatter(c, x, part, COUNT, REDUCTION_FLOAT32, (reduction_op)9, &err));
	expect(RS_EINVAL, "tensor is NULL", &err, reduction_all_gather_tensor_async(c, NULL, NULL, &err));
	ck_assert_uint_eq(f.submits, 0);
	comm_delete(c);
}
END_TEST

#define LENGTH(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("sharded");
	TCase *tc = tcase_create("arguments");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, buffers, 0, 2 * LENGTH(rows));
	tcase_add_loop_test(tc, memory_and_jobs, 0, 2 * LENGTH(kinds));
	tcase_add_test(tc, without_what_is_needed);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
