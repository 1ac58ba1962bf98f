/* SPDX-License-Identifier: Apache-2.0 */
/* Groups over a backend that only records operations and completes them on demand. */
#include "agent/lib/api/group.h"
#include "common/dtype.h"
#include "proto/frame.h"

#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 64, KIB = 1024, TENSORS_MAX = 512 };

/* Operations that the group has submitted, in order. */
struct fake {
	struct backend base;
	struct backend_request *ops[MAX];
	char names[MAX][80];
	unsigned n, allocs, frees;
	unsigned alloc_limit;    /* allocations that succeed */
	unsigned submit_limit;   /* submits that succeed */
	unsigned done;           /* operations that fake_end has ended */
	bool at_once;            /* operations complete during submit, doubled */
	size_t stage_bytes[MAX]; /* of each allocation */
};

static void fake_end(struct fake *f, int code)
{
	struct backend_request *req = f->ops[f->done++];
	struct rs_err e;

	if (code)
		rs_fail(&e, code, "it was not to be");
	for (uint64_t i = 0; !code && i < req->of.count; i++)
		if (req->of.dtype == RS_FLOAT32)
			((float *)req->recv)[i] = ((const float *)req->send)[i] * 2;
		else
			((int8_t *)req->recv)[i] = (int8_t)(((const int8_t *)req->send)[i] * 2);
	req->done(req, code ? &e : NULL);
}

static int fake_submit(struct backend *b, struct backend_request *req, struct rs_err *e)
{
	struct fake *f = (struct fake *)b;

	if (f->n == f->submit_limit)
		return rs_fail(e, RS_EPEER, "the backend is out of order");
	ck_assert_uint_lt(f->n, MAX);
	if (req->of.tensors)
		snprintf(f->names[f->n], sizeof f->names[0], "group of %u tensors", req->of.tensors);
	else
		snprintf(f->names[f->n], sizeof f->names[0], "%s", req->name ? req->name : "");
	f->ops[f->n++] = req;
	if (f->at_once)
		fake_end(f, 0);
	return RS_OK;
}

static int fake_alloc(struct backend *b, size_t bytes, void **ret, struct rs_err *e)
{
	struct fake *f = (struct fake *)b;

	if (f->allocs == f->alloc_limit)
		return rs_fail(e, RS_ENOMEM, "out of memory for a stage");
	f->stage_bytes[f->allocs++] = bytes;
	*ret = malloc(bytes);
	return RS_OK;
}

static void fake_free(struct backend *b, void *buf)
{
	((struct fake *)b)->frees++;
	free(buf);
}

static const struct backend_vtbl vtbl = {.submit = fake_submit, .alloc = fake_alloc, .free = fake_free};

/* A communicator on a fake backend. */
struct world {
	struct fake fake;
	struct reduction_comm *c;
	struct reduction_request *reqs[TENSORS_MAX];
	float *data[TENSORS_MAX];
	unsigned n;
};

static void plain_done(struct backend_request *base, const struct rs_err *err)
{
	request_complete((struct reduction_request *)base, err);
}

static struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof *w);
	struct rs_err e;

	w->fake.base.v = &vtbl;
	w->fake.alloc_limit = w->fake.submit_limit = MAX;
	w->c = comm_new(&e);
	w->c->backend = &w->fake.base;
	return w;
}

static void world_free(struct world *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		ck_assert(request_is_done(w->reqs[i]));
		request_put(w->reqs[i]);
		free(w->data[i]);
	}
	group_stages_free(&w->c->stages, w->c->backend);
	ck_assert_uint_eq(w->fake.frees, w->fake.allocs);
	comm_delete(w->c);
	free(w);
}

/* Adds the next tensor of the group; element i of tensor t is 1000 t + i. */
static void add(struct world *w, unsigned dtype, unsigned op, uint64_t count, const char *name)
{
	unsigned t = w->n++;
	struct backend_request r = {.of = {.count = count,
					   .name_hash = frame_name_hash(name),
					   .dtype = (uint8_t)dtype,
					   .op = (uint8_t)op,
					   .size = rs_dtype_size(dtype) & OPERATION_SIZE},
				    .name = name};

	w->data[t] = calloc(count + 1, rs_dtype_size(dtype));
	for (uint64_t i = 0; i < count && dtype == RS_FLOAT32; i++)
		w->data[t][i] = (float)(1000 * t + i);
	r.send = r.recv = w->data[t];
	r.done = plain_done;
	w->reqs[t] = request_get(w->c->requests, &r);
	request_init(w->reqs[t], w->c);
	if (t > 0)
		w->reqs[t - 1]->follows = w->reqs[t];
}

static void add_floats(struct world *w, uint64_t bytes)
{
	add(w, RS_FLOAT32, RS_SUM, bytes / sizeof(float), NULL);
}

static void start(struct world *w)
{
	group_start(w->c, w->reqs[0]);
}

static void expect_doubled(const struct world *w)
{
	for (unsigned t = 0; t < w->n; t++) {
		uint64_t wrong = 0;

		for (uint64_t i = 0; i < w->reqs[t]->base.of.count && w->reqs[t]->base.of.dtype == RS_FLOAT32; i++)
			wrong += w->data[t][i] != 2 * (float)(1000 * t + i);
		ck_assert_uint_eq(wrong, 0);
	}
}

START_TEST(small_tensors_are_one_operation)
{
	struct world *w = world_new();

	for (int i = 0; i < 200; i++)
		add_floats(w, KIB);
	start(w);
	ck_assert_uint_eq(w->fake.n, 1);
	ck_assert_uint_eq(w->fake.ops[0]->of.count, 200 * 256);
	ck_assert_str_eq(w->fake.names[0], "group of 200 tensors");
	for (unsigned t = 0; t < w->n; t++)
		ck_assert(!request_is_done(w->reqs[t]));
	fake_end(&w->fake, 0);
	expect_doubled(w);
	world_free(w);
}
END_TEST

/* The place in the sequence is that of the first tensor; a single tensor is not
 * copied. */
START_TEST(order_of_operations)
{
	struct world *w = world_new();
	struct fake *f = &w->fake;

	add(w, RS_FLOAT32, RS_SUM, 10, "a");              /* 0: with d, i */
	add(w, RS_INT8, RS_SUM, 10, "b");                 /* 1: with f */
	add(w, RS_FLOAT32, RS_SUM, GROUP_SMALL_MAX, "c"); /* 2: large */
	add(w, RS_FLOAT32, RS_SUM, 0, "d");
	add(w, RS_FLOAT32, RS_MAX, 10, "e"); /* 3: alone */
	add(w, RS_INT8, RS_SUM, GROUP_SMALL_MAX, "f");
	add(w, RS_INT8, RS_SUM, GROUP_SMALL_MAX + 1, "g"); /* 4: large */
	add(w, RS_FLOAT64, RS_SUM, 1, "h");                /* 5: alone */
	add(w, RS_FLOAT32, RS_SUM, 5, "i");
	f->at_once = true;
	start(w);
	ck_assert_uint_eq(f->n, 6);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_str_eq(f->names[i],
				 ((const char *[]){"group of 3 tensors", "group of 2 tensors", "c", "e", "g", "h"})[i]);
	expect_doubled(w);
	ck_assert_ptr_eq(f->ops[2], &w->reqs[2]->base);
	ck_assert_ptr_eq(f->ops[3], &w->reqs[4]->base);
	ck_assert_uint_eq(f->allocs, 1); /* one stage, twice */
	world_free(w);
}
END_TEST

START_TEST(large_groups_are_split)
{
	struct world *w = world_new();
	struct fake *f = &w->fake;
	uint64_t count = 0;

	for (int i = 0; i < 300; i++)
		add_floats(w, 10 * KIB);
	f->at_once = true;
	start(w);
	ck_assert_uint_eq(f->n, 3);
	ck_assert_str_eq(f->names[0], "group of 102 tensors");
	ck_assert_str_eq(f->names[1], "group of 102 tensors");
	ck_assert_str_eq(f->names[2], "group of 96 tensors");
	for (unsigned i = 0; i < f->allocs; i++)
		ck_assert_uint_eq(f->stage_bytes[i], GROUP_OP_MAX);
	for (unsigned t = 0; t < w->n; t++)
		count += w->reqs[t]->base.of.count;
	ck_assert_uint_eq(count, 300 * 2560);
	expect_doubled(w);
	world_free(w);
}
END_TEST

/* Exactly full: the limit is reached, not exceeded. */
START_TEST(a_full_operation)
{
	struct world *w = world_new();

	for (int i = 0; i < GROUP_OP_MAX / GROUP_SMALL_MAX; i++)
		add_floats(w, GROUP_SMALL_MAX);
	w->fake.at_once = true;
	start(w);
	ck_assert_uint_eq(w->fake.n, 1);
	ck_assert_uint_eq(w->fake.ops[0]->of.count * sizeof(float), GROUP_OP_MAX);
	expect_doubled(w);
	world_free(w);
}
END_TEST

static uint32_t hash_of(const uint64_t *counts, const char *const *names, unsigned n)
{
	struct world *w = world_new();
	uint32_t hash;

	for (unsigned i = 0; i < n; i++)
		add(w, RS_FLOAT32, RS_SUM, counts[i], names[i]);
	w->fake.at_once = true;
	start(w);
	ck_assert_uint_eq(w->fake.n, 1);
	hash = w->fake.ops[0]->of.name_hash;
	world_free(w);
	ck_assert_uint_ne(hash, 0);
	return hash;
}

START_TEST(the_hash_covers_counts_names_and_order)
{
	const char *const none[4] = {NULL, NULL, NULL, NULL}, *const ab[] = {"a", "b"}, *const ba[] = {"b", "a"};
	const uint64_t two_three[] = {2, 3}, three_two[] = {3, 2}, with_zero[] = {2, 0, 3};
	uint32_t hash = hash_of(two_three, none, 2);

	ck_assert_uint_eq(hash, hash_of(two_three, none, 2));
	ck_assert_uint_ne(hash, hash_of(three_two, none, 2));
	ck_assert_uint_ne(hash, hash_of(with_zero, none, 3));
	ck_assert_uint_ne(hash, hash_of(two_three, ab, 2));
	ck_assert_uint_ne(hash_of(two_three, ba, 2), hash_of(two_three, ab, 2));
}
END_TEST

/* Another thread completes the oldest operation while all stages are in use. */
static void *end_oldest(void *arg)
{
	struct world *w = arg;
	struct group_stages *s = &w->c->stages;
	bool full = false;

	while (!full) {
		pthread_mutex_lock(&s->lock);
		full = s->made == GROUP_STAGES && !s->idle;
		pthread_mutex_unlock(&s->lock);
		sched_yield();
	}
	fake_end(&w->fake, 0);
	return NULL;
}

START_TEST(stages_are_bounded)
{
	struct world *w = world_new();
	pthread_t thread;

	for (int i = 0; i < (GROUP_STAGES + 1) * (GROUP_OP_MAX / GROUP_SMALL_MAX); i++)
		add_floats(w, GROUP_SMALL_MAX);
	pthread_create(&thread, NULL, end_oldest, w);
	start(w);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(w->fake.n, GROUP_STAGES + 1);
	ck_assert_uint_eq(w->fake.done, 1);
	ck_assert_uint_eq(w->fake.allocs, GROUP_STAGES);
	while (w->fake.done < w->fake.n)
		fake_end(&w->fake, 0);
	expect_doubled(w);
	world_free(w);
}
END_TEST

/* With memory for one stage only, operations go one after another. */
START_TEST(fewer_stages_suffice)
{
	struct world *w = world_new();

	for (int i = 0; i < 3 * (GROUP_OP_MAX / GROUP_SMALL_MAX); i++)
		add_floats(w, GROUP_SMALL_MAX);
	add(w, RS_INT8, RS_SUM, 5, NULL);
	add(w, RS_INT8, RS_SUM, 6, NULL);
	w->fake.at_once = true;
	w->fake.alloc_limit = 1;
	start(w);
	ck_assert_uint_eq(w->fake.n, 4);
	expect_doubled(w);
	world_free(w);
}
END_TEST

static void expect_failed(const struct world *w, unsigned from, int code, const char *text)
{
	for (unsigned t = from; t < w->n; t++) {
		ck_assert(request_is_done(w->reqs[t]));
		ck_assert_int_eq(w->reqs[t]->err.code, code);
		ck_assert_msg(strstr(w->reqs[t]->err.msg, text), "%s", w->reqs[t]->err.msg);
	}
}

/* Encodings of the job, whether tensors take whole blocks, and whether the operation of
 * all is encoded. */
static const struct {
	unsigned up, down, dtype;
	unsigned tensors;
	bool single_node, padded, encoded;
} blocks[] = {
    {RS_WIRE_SAME, RS_WIRE_SAME, RS_FLOAT32, 200, false, false, false},
    {RS_WIRE_BF16, RS_WIRE_BF16, RS_FLOAT32, 200, false, false, true},
    {RS_WIRE_FP8, RS_WIRE_FP8, RS_FLOAT32, 200, false, true, true},
    {RS_WIRE_SAME, RS_WIRE_INT8, RS_FLOAT32, 200, false, true, true},
    {RS_WIRE_FP8, RS_WIRE_FP8, RS_FLOAT32, 20, false, true, false}, /* at most 64 KiB */
    {RS_WIRE_FP8, RS_WIRE_FP8, RS_INT8, 200, false, false, false},
    {RS_WIRE_FP8, RS_WIRE_FP8, RS_FLOAT32, 200, true, false, false}, /* nothing is sent */
};

START_TEST(tensors_of_a_group_take_whole_blocks)
{
	struct world *w = world_new();
	struct fake *f = &w->fake;
	unsigned place = blocks[_i].padded ? 384 : 300;
	const float *all;

	f->base.wire_up = (uint8_t)blocks[_i].up;
	f->base.wire_down = (uint8_t)blocks[_i].down;
	f->base.single_node = blocks[_i].single_node;
	for (unsigned t = 0; t < blocks[_i].tensors; t++)
		add(w, blocks[_i].dtype, RS_SUM, 300, NULL);
	start(w);
	ck_assert_uint_eq(f->n, 1);
	ck_assert_uint_eq(f->ops[0]->of.count, blocks[_i].tensors * place);
	ck_assert_uint_eq(f->ops[0]->of.up, blocks[_i].encoded ? blocks[_i].up : RS_WIRE_SAME);
	ck_assert_uint_eq(f->ops[0]->of.down, blocks[_i].encoded ? blocks[_i].down : RS_WIRE_SAME);
	all = f->ops[0]->send;
	for (unsigned t = 0; t < blocks[_i].tensors && blocks[_i].dtype == RS_FLOAT32; t++) {
		if (all[t * place] != (float)(1000 * t))
			ck_abort_msg("tensor %u begins with %g", t, (double)all[t * place]);
		for (unsigned i = 300; i < place; i++)
			if (all[t * place + i] != 0)
				ck_abort_msg("element %u of tensor %u is not 0", i, t);
	}
	fake_end(f, 0);
	expect_doubled(w);
	world_free(w);
}
END_TEST

/* Two choices of an encoding are two operations; one that does not fit has no effect. */
START_TEST(encodings_that_callers_choose)
{
	static const uint8_t ups[] = {RS_WIRE_INT8, RS_WIRE_BF16, RS_WIRE_SAME, RS_WIRE_SAME};
	struct world *w = world_new();
	struct fake *f = &w->fake;

	f->base.wire_up = f->base.wire_down = RS_WIRE_FP8;
	for (unsigned t = 0; t < 8; t++) {
		add(w, t < 6 ? RS_FLOAT32 : RS_INT8, RS_SUM, 1, NULL);
		w->reqs[t]->base.wire = t % 2 ? REDUCTION_WIRE_BF16 : REDUCTION_WIRE_INT8;
	}
	w->reqs[4]->base.wire = w->reqs[5]->base.wire = REDUCTION_WIRE_SAME;
	w->reqs[7]->base.wire = REDUCTION_WIRE_INT8;
	start(w);
	ck_assert_uint_eq(f->n, 4);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_uint_eq(f->ops[i]->of.up, ups[i]);
		ck_assert_uint_eq(f->ops[i]->of.down, ups[i]);
	}
	while (f->done < f->n)
		fake_end(f, 0);
	expect_doubled(w);
	world_free(w);
}
END_TEST

START_TEST(zeros_fill_an_operation)
{
	struct world *w = world_new();
	struct fake *f = &w->fake;

	f->base.wire_up = f->base.wire_down = RS_WIRE_INT8;
	for (unsigned t = 0; t < TENSORS_MAX; t++)
		add(w, RS_FLOAT32, RS_SUM, t < 32 ? 8192 - 127 : 1, NULL);
	f->at_once = true;
	start(w);
	ck_assert_uint_eq(f->n, 2);
	ck_assert_str_eq(f->names[0], "group of 32 tensors");
	expect_doubled(w);
	world_free(w);
}
END_TEST

START_TEST(no_memory)
{
	struct world *w = world_new();

	for (int i = 0; i < 3; i++)
		add_floats(w, KIB);
	w->fake.alloc_limit = 0;
	start(w);
	ck_assert_uint_eq(w->fake.n, 0);
	expect_failed(w, 0, RS_ENOMEM, "out of memory for a stage");
	ck_assert(w->c->broken);
	world_free(w);
}
END_TEST

START_TEST(an_operation_fails)
{
	struct world *w = world_new();

	for (int i = 0; i < 3; i++)
		add_floats(w, KIB);
	start(w);
	fake_end(&w->fake, RS_ETIMEOUT);
	/* ETIMEOUT of a wait means "not completed" */
	expect_failed(w, 0, RS_EPEER, "it was not to be");
	for (unsigned t = 0; t < w->n; t++)
		ck_assert(w->data[t][1] == (float)(1000 * t + 1));
	ck_assert(w->c->broken);
	world_free(w);
}
END_TEST

/* Operations started before the failure complete normally; the rest fails with the
 * reason, and its stage is free again. */
START_TEST(the_backend_refuses_the_second)
{
	struct world *w = world_new();

	add_floats(w, 2 * GROUP_SMALL_MAX);
	for (int i = 0; i < 3; i++)
		add_floats(w, KIB);
	add_floats(w, 2 * GROUP_SMALL_MAX);
	w->fake.submit_limit = 1;
	start(w);
	ck_assert_uint_eq(w->fake.n, 1);
	ck_assert(!request_is_done(w->reqs[0]));
	expect_failed(w, 1, RS_EPEER, "out of order");
	ck_assert_ptr_nonnull(w->c->stages.idle);
	fake_end(&w->fake, 0);
	ck_assert_int_eq(w->reqs[0]->err.code, RS_OK);
	world_free(w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("group");
	TCase *tc = tcase_create("group");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, small_tensors_are_one_operation);
	tcase_add_test(tc, order_of_operations);
	tcase_add_test(tc, large_groups_are_split);
	tcase_add_test(tc, a_full_operation);
	tcase_add_test(tc, the_hash_covers_counts_names_and_order);
	tcase_add_test(tc, stages_are_bounded);
	tcase_add_test(tc, fewer_stages_suffice);
	tcase_add_loop_test(tc, tensors_of_a_group_take_whole_blocks, 0, sizeof blocks / sizeof blocks[0]);
	tcase_add_test(tc, encodings_that_callers_choose);
	tcase_add_test(tc, zeros_fill_an_operation);
	tcase_add_test(tc, no_memory);
	tcase_add_test(tc, an_operation_fails);
	tcase_add_test(tc, the_backend_refuses_the_second);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
