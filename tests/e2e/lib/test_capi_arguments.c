/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* Arguments of the C API that are wrong, NULL, or structs of another header: each
 * function says which one it is, and starts nothing; see ranks.h. */
#include "tests/e2e/ranks.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { FUNCTIONS_MAX = 60 };

/* The functions that null_arguments has called. */
struct called {
	char names[FUNCTIONS_MAX][48];
	unsigned n;
};

static bool was_called(const struct called *called, const char *name, size_t len)
{
	for (unsigned i = 0; i < called->n; i++)
		if (strlen(called->names[i]) == len && strncmp(called->names[i], name, len) == 0)
			return true;
	return false;
}

static void note_call(struct called *called, const char *call)
{
	size_t len = strcspn(call, "(");

	if (!was_called(called, call, len) && called->n < FUNCTIONS_MAX)
		snprintf(called->names[called->n++], sizeof called->names[0], "%.*s", (int)len, call);
}

/* The call must fail with "ARGUMENT is NULL". */
static void expect_null(struct rank *r, struct called *called, int line, const char *call, int rc, const char *argument)
{
	char says[64];

	note_call(called, call);
	expect_rc(r, line, call, rc, REDUCTION_EINVAL);
	snprintf(says, sizeof says, "%s is NULL", argument);
	if (strcmp(r->err.message, says) != 0)
		fail_at(r, line, "%s says \"%s\", not \"%s\"", call, r->err.message, says);
}

/* Every function of the header must have been called. */
static void expect_all_called(struct rank *r, const struct called *called)
{
	static char header[100000];
	FILE *f = fopen("agent/lib/include/reduction.h", "r");
	unsigned n = 0;

	EXPECT(f);
	header[fread(header, 1, sizeof header - 1, f)] = '\0';
	fclose(f);
	for (const char *at = header; (at = strstr(at, "\nREDUCTION_API ")); at++) {
		const char *end = strchr(at, '('), *name = end;

		while (strchr(" *", name[-1]) == NULL)
			name--;
		if (!was_called(called, name, (size_t)(end - name)))
			fail_at(r, __LINE__, "%.*s was not called with NULL", (int)(end - name), name);
		n++;
	}
	EXPECT(n == called->n && n > 20);
}

#define NULLS(argument, call) expect_null(r, called, __LINE__, #call, (call), argument)

static void nulls_of_arrays(struct rank *r, struct called *called, float x[4])
{
	const reduction_dtype type = REDUCTION_FLOAT32;
	const reduction_op sum = REDUCTION_SUM;
	reduction_comm *c = r->comm;
	reduction_error *err = &r->err;
	reduction_request *q;

	NULLS("comm", reduction_all_reduce(NULL, x, x, 4, type, sum, err));
	NULLS("send", reduction_all_reduce(c, NULL, x, 4, type, sum, err));
	NULLS("recv", reduction_all_reduce(c, x, NULL, 4, type, sum, err));
	NULLS("comm", reduction_all_reduce_async(NULL, x, x, 4, type, sum, "n", &q, err));
	NULLS("send", reduction_all_reduce_async(c, NULL, x, 4, type, sum, "n", &q, err));
	NULLS("recv", reduction_all_reduce_async(c, x, NULL, 4, type, sum, "n", &q, err));
	NULLS("ret", reduction_all_reduce_async(c, x, x, 4, type, sum, "n", NULL, err));
	NULLS("comm", reduction_broadcast(NULL, x, 4, type, 0, err));
	NULLS("buf", reduction_broadcast(c, NULL, 4, type, 0, err));
	NULLS("comm", reduction_broadcast_async(NULL, x, 4, type, 0, "n", &q, err));
	NULLS("buf", reduction_broadcast_async(c, NULL, 4, type, 0, "n", &q, err));
	NULLS("ret", reduction_broadcast_async(c, x, 4, type, 0, "n", NULL, err));
	NULLS("comm", reduction_reduce_scatter(NULL, x, x, 4, type, sum, err));
	NULLS("send", reduction_reduce_scatter(c, NULL, x, 4, type, sum, err));
	NULLS("recv", reduction_reduce_scatter(c, x, NULL, 4, type, sum, err));
	NULLS("comm", reduction_reduce_scatter_async(NULL, x, x, 4, type, sum, "n", &q, err));
	if (reduction_can_shard(c))
		NULLS("ret", reduction_reduce_scatter_async(c, x, x, 4, type, sum, "n", NULL, err));
	NULLS("comm", reduction_all_gather(NULL, x, x, 4, type, err));
	NULLS("send", reduction_all_gather(c, NULL, x, 4, type, err));
	NULLS("recv", reduction_all_gather(c, x, NULL, 4, type, err));
	NULLS("comm", reduction_all_gather_async(NULL, x, x, 4, type, "n", &q, err));
	if (reduction_can_shard(c))
		NULLS("ret", reduction_all_gather_async(c, x, x, 4, type, "n", NULL, err));
}

static void nulls_of_tensors(struct rank *r, struct called *called, const reduction_tensor *t)
{
	reduction_comm *c = r->comm;
	reduction_error *err = &r->err;
	reduction_tensor no_send = *t, no_recv = *t, nothing = *t;
	reduction_request *q;

	no_send.send = nothing.send = NULL;
	no_recv.recv = nothing.recv = NULL;
	NULLS("comm", reduction_all_reduce_tensor(NULL, t, err));
	NULLS("tensor", reduction_all_reduce_tensor(c, NULL, err));
	NULLS("send", reduction_all_reduce_tensor(c, &no_send, err));
	NULLS("recv", reduction_all_reduce_tensor(c, &no_recv, err));
	NULLS("comm", reduction_all_reduce_tensor_async(NULL, t, &q, err));
	NULLS("tensor", reduction_all_reduce_tensor_async(c, NULL, &q, err));
	NULLS("send", reduction_all_reduce_tensor_async(c, &no_send, &q, err));
	NULLS("ret", reduction_all_reduce_tensor_async(c, t, NULL, err));
	NULLS("comm", reduction_reduce_scatter_tensor_async(NULL, t, &q, err));
	NULLS("tensor", reduction_reduce_scatter_tensor_async(c, NULL, &q, err));
	if (reduction_can_shard(c))
		NULLS("ret", reduction_reduce_scatter_tensor_async(c, t, NULL, err));
	NULLS("comm", reduction_all_gather_tensor_async(NULL, t, &q, err));
	NULLS("tensor", reduction_all_gather_tensor_async(c, NULL, &q, err));
	if (reduction_can_shard(c))
		NULLS("ret", reduction_all_gather_tensor_async(c, t, NULL, err));
	NULLS("comm", reduction_all_reduce_group(NULL, t, 1, err));
	NULLS("comm", reduction_all_reduce_group(NULL, NULL, 0, err));
	NULLS("tensors", reduction_all_reduce_group(c, NULL, 1, err));
	NULLS("tensor 0 of a group of 1: send", reduction_all_reduce_group(c, &no_send, 1, err));
	NULLS("comm", reduction_all_reduce_group_async(NULL, t, 1, &q, err));
	NULLS("tensors", reduction_all_reduce_group_async(c, NULL, 1, &q, err));
	NULLS("ret", reduction_all_reduce_group_async(c, t, 1, NULL, err));
	NULLS("comm", reduction_broadcast_tensor(NULL, t, 0, err));
	NULLS("tensor", reduction_broadcast_tensor(c, NULL, 0, err));
	NULLS("recv", reduction_broadcast_tensor(c, &nothing, 0, err));
	NULLS("comm", reduction_broadcast_tensor_async(NULL, t, 0, &q, err));
	NULLS("tensor", reduction_broadcast_tensor_async(c, NULL, 0, &q, err));
	NULLS("ret", reduction_broadcast_tensor_async(c, t, 0, NULL, err));
}

static void nulls_of_others(struct rank *r, struct called *called, reduction_request *live)
{
	static const char *const without_status[] = {
	    "reduction_rank",        "reduction_world_size", "reduction_priorities",  "reduction_can_shard",
	    "reduction_buffer_free", "reduction_version",    "reduction_status_text", "reduction_buffer_unmap"};
	reduction_options opt = options(r);
	reduction_stats stats = REDUCTION_STATS_INIT;
	reduction_error *err = &r->err;
	reduction_comm *c = r->comm, *none;
	void *p;
	int done;

	NULLS("ret", reduction_open(NULL, &opt, err));
	NULLS("opt", reduction_open(&none, NULL, err));
	NULLS("comm", reduction_close(NULL, err));
	NULLS("comm", reduction_abort(NULL, "why", err));
	NULLS("comm", reduction_reconfigure(NULL, 0, 1, 1, err));
	NULLS("comm", reduction_barrier(NULL, err));
	NULLS("req", reduction_wait(NULL, 0, err));
	NULLS("req", reduction_test(NULL, &done, err));
	NULLS("done", reduction_test(live, NULL, err));
	NULLS("comm", reduction_buffer_alloc(NULL, 4, &p, err));
	NULLS("ret", reduction_buffer_alloc(c, 4, NULL, err));
	NULLS("comm", reduction_get_stats(NULL, &stats, err));
	NULLS("ret", reduction_get_stats(c, NULL, err));
	EXPECT(reduction_rank(NULL) == -1 && reduction_world_size(NULL) == -1 && reduction_priorities(NULL) == -1);
	EXPECT(reduction_can_shard(NULL) == -1);
	reduction_buffer_free(NULL, &opt);
	reduction_buffer_free(c, NULL);
	reduction_buffer_unmap(NULL, 4);
	EXPECT(reduction_version()[0] && reduction_status_text(77)[0]);
	for (unsigned i = 0; i < sizeof without_status / sizeof *without_status; i++)
		note_call(called, without_status[i]);
}

/* All functions treat NULL alike, and start nothing. */
static void null_arguments(struct rank *r)
{
	reduction_tensor t = REDUCTION_TENSOR_INIT;
	struct called called = {.n = 0};
	reduction_request *q, *live;
	float x[4] = {1};

	open_comm(r);
	t.send = t.recv = x;
	t.count = 4;
	EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, &live, &r->err), 0);
	nulls_of_arrays(r, &called, x);
	nulls_of_tensors(r, &called, &t);
	nulls_of_others(r, &called, live);
	expect_all_called(r, &called);
	/* what may be NULL: buffers of no elements, tensors of no group, names, err */
	EXPECT(reduction_all_reduce_async(r->comm, NULL, NULL, 0, REDUCTION_FLOAT32, REDUCTION_SUM, NULL, &q, NULL) ==
	       0);
	EXPECT(reduction_wait(q, -1, NULL) == 0);
	EXPECT(reduction_broadcast(r->comm, NULL, 0, REDUCTION_FLOAT32, 0, NULL) == 0);
	EXPECT(reduction_all_reduce_group_async(r->comm, NULL, 0, NULL, NULL) == 0);
	EXPECT_RC(reduction_wait(live, -1, &r->err), 0);
	EXPECT(x[0] == (float)r->world);
	close_comm(r);
}

/* Programs that were compiled with another header. */
static void struct_sizes(struct rank *r)
{
	reduction_stats stats = REDUCTION_STATS_INIT;
	reduction_options opt = options(r);
	reduction_comm *c;

	/* a program sets every byte that a later version might read */
	EXPECT(sizeof opt == offsetof(reduction_options, reserved) + sizeof opt.reserved);
	opt.struct_size = offsetof(reduction_options, connect_timeout_ms);
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EINVAL);
	EXPECT(strstr(r->err.message, "use REDUCTION_OPTIONS_INIT"));
	opt.struct_size = sizeof opt + 1;
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EUNSUPPORTED);
	EXPECT(strstr(r->err.message, "compiled for a newer libreduction than the 0.1.0 that is loaded"));
	open_comm(r);
	stats.tx_bytes = 77;
	stats.struct_size--;
	EXPECT_RC(reduction_get_stats(r->comm, &stats, &r->err), REDUCTION_EINVAL);
	EXPECT(strstr(r->err.message, "use REDUCTION_STATS_INIT"));
	stats.struct_size = sizeof stats + 1;
	EXPECT_RC(reduction_get_stats(r->comm, &stats, &r->err), REDUCTION_EUNSUPPORTED);
	EXPECT(stats.tx_bytes == 77);
	stats.struct_size = sizeof stats;
	EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	EXPECT_RC(reduction_get_stats(r->comm, &stats, &r->err), 0);
	EXPECT(stats.struct_size == sizeof stats && stats.ops_done == 1 && stats.tx_bytes != 77);
	close_comm(r);
}

/* `wire` is read only if the caller's header has it. */
static void wires(struct rank *r)
{
	float memory[8];
	reduction_tensor tensors[2];

	open_comm(r);
	for (int wire = REDUCTION_WIRE_JOB; wire <= REDUCTION_WIRE_INT4; wire++) {
		make_tensors(r, tensors, memory, 2, 4);
		tensors[0].wire = (reduction_wire)wire;
		tensors[0].op = REDUCTION_MAX; /* is not encoded */
		EXPECT_RC(reduction_all_reduce_tensor(r->comm, tensors, &r->err), 0);
	}
	make_tensors(r, tensors, memory, 2, 4);
	tensors[0].wire = (reduction_wire)7;
	EXPECT_RC(reduction_all_reduce_tensor(r->comm, tensors, &r->err), REDUCTION_EINVAL);
	EXPECT(strcmp(r->err.message, "wire is 7, 0 to 6 were expected") == 0);
	tensors[0].struct_size = offsetof(reduction_tensor, wire);
	EXPECT_RC(reduction_all_reduce_tensor(r->comm, tensors, &r->err), 0);
	EXPECT_RC(reduction_broadcast_tensor(r->comm, &tensors[1], 0, &r->err), 0);
	close_comm(r);
}

static void group_arguments(struct rank *r)
{
	float memory[8];
	reduction_tensor tensors[2];

	open_comm(r);
	make_tensors(r, tensors, memory, 2, 4);
	tensors[1].recv = NULL;
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), REDUCTION_EINVAL);
	EXPECT(strcmp(r->err.message, "tensor 1 of a group of 2: recv is NULL") == 0);
	make_tensors(r, tensors, memory, 2, 4);
	tensors[1].struct_size++;
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), REDUCTION_EINVAL);
	tensors[0].struct_size++;
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), REDUCTION_EUNSUPPORTED);
	tensors[0].struct_size = 0;
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), REDUCTION_EINVAL);
	/* nothing of this was started */
	make_tensors(r, tensors, memory, 2, 4);
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), 0);
	EXPECT(memory[5] == (float)expected(REDUCTION_SUM, r->world, 2));
	close_comm(r);
}

static void arguments(struct rank *r)
{
	reduction_options opt = options(r);
	reduction_comm *c = NULL;
	float x[8] = {1};

	opt.struct_size = 0;
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EINVAL);
	opt = options(r);
	opt.rank = r->world;
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EINVAL);
	opt = options(r);
	opt.job = "no/job";
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EINVAL);
	opt = options(r);
	opt.config = "/nonexistent/file.yaml";
	EXPECT(reduction_open(&c, &opt, &r->err) < 0 && strstr(r->err.message, "/nonexistent/file.yaml"));
	EXPECT(c == NULL);

	open_comm(r);
	c = r->comm;
	EXPECT(reduction_rank(c) == r->rank && reduction_world_size(c) == r->world);
	EXPECT_RC(reduction_all_reduce(c, x, x + 2, 4, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_all_reduce(c, x + 2, x, 4, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_all_reduce(c, x, x, 1, (reduction_dtype)10, REDUCTION_SUM, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_all_reduce(c, x, x, 1, REDUCTION_FLOAT32, (reduction_op)5, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_all_reduce(c, x, x, SIZE_MAX / 2, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err),
		  REDUCTION_EINVAL);
	EXPECT_RC(reduction_broadcast(c, x, 1, REDUCTION_FLOAT32, r->world, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_broadcast(c, x, 1, REDUCTION_FLOAT32, -1, &r->err), REDUCTION_EINVAL);
	/* none of this did any harm; adjacent buffers do not overlap; err may be NULL */
	EXPECT(reduction_all_reduce(c, x, x + 4, 4, REDUCTION_FLOAT32, REDUCTION_SUM, NULL) == 0);
	EXPECT(x[4] == (float)r->world);
	close_comm(r);
	EXPECT(strcmp(reduction_version(), "0.1.0") == 0 && reduction_status_text(REDUCTION_EPEER)[0]);
}

static const struct scenario scenarios[] = {
    {"arguments", 2, arguments, -1, 0},
    {"null_arguments", 1, null_arguments, -1, ALSO_AGENT | ALSO_NODE},
    {"struct_sizes", 1, struct_sizes, -1, ALSO_AGENT},
    {"wires", 1, wires, -1, ALSO_AGENT},
    {"group_arguments", 1, group_arguments, -1, 0},
};

int main(int argc, char **argv)
{
	return run_scenarios(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
