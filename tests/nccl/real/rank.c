/* SPDX-License-Identifier: Apache-2.0 */
/* Loads libnccl over the fake runtime and runs a scenario:
 *
 *     rank LIBRARY LAYOUT FOLDER RANK RANKS SCENARIO */
#include "tests/nccl/real/rank.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	PERIOD = 66, /* of values: of 2, 3 and 11 */
	POLL_US = 500,
	LIMIT_S = 60,  /* for other ranks to start */
	REDUCE_S = 30, /* for an all-reduce */
};

double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void cell(const struct rank *r, const char *name, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	printf("cell %s rank %d: %s\n", name, r->rank, text);
	fflush(stdout);
}

/* Files */

static void path_of(const struct rank *r, const char *name, char *ret, size_t room)
{
	snprintf(ret, room, "%s/%s", r->folder, name);
}

static void file_write(const struct rank *r, const char *name, const void *data, size_t bytes)
{
	char path[512], new[520];
	FILE *f;

	path_of(r, name, path, sizeof path);
	snprintf(new, sizeof new, "%s.new", path);
	f = fopen(new, "we");
	if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) || rename(new, path))
		die("%s cannot be written", path);
}

void event_tell(const struct rank *r, const char *name)
{
	file_write(r, name, "\n", 1);
}

bool event_wait(const struct rank *r, const char *name, double limit_s)
{
	double until = now_s() + limit_s;
	char path[512];

	path_of(r, name, path, sizeof path);
	while (access(path, F_OK)) {
		if (now_s() > until)
			return false;
		usleep(POLL_US);
	}
	return true;
}

void barrier(struct rank *r)
{
	char name[32];

	snprintf(name, sizeof name, "barrier%d.%d", ++r->barriers, r->rank);
	event_tell(r, name);
	for (int i = 0; i < r->ranks; i++) {
		snprintf(name, sizeof name, "barrier%d.%d", r->barriers, i);
		event_wait(r, name, LIMIT_S);
	}
}

void id_leave(struct rank *r, const char *name, const struct unique_id *id)
{
	file_write(r, name, id, sizeof *id);
}

struct unique_id id_find(struct rank *r, const char *name)
{
	struct unique_id id;
	char path[512];
	FILE *f;

	path_of(r, name, path, sizeof path);
	if (!event_wait(r, name, LIMIT_S))
		die("no rank made the id %s", name);
	f = fopen(path, "re");
	if (!f || fread(&id, sizeof id, 1, f) != 1)
		die("%s cannot be read", path);
	fclose(f);
	return id;
}

void *comm_make(struct rank *r, int ranks)
{
	struct unique_id id;
	char name[32];
	void *comm = NULL;
	int rc;

	snprintf(name, sizeof name, "id%d", r->made++);
	if (r->rank == 0) {
		if (r->nccl.unique_id(&id))
			die("ncclGetUniqueId failed");
		id_leave(r, name, &id);
	} else {
		id = id_find(r, name);
	}
	rc = r->nccl.init(&comm, ranks, id, r->rank);
	if (rc) {
		cell(r, "init", "ncclCommInitRank: %d %s; %s", rc, r->nccl.error_text(rc), r->nccl.last_error(NULL));
		die("there is no communicator");
	}
	return comm;
}

int comm_wait(struct rank *r, void *comm, double limit_s)
{
	double until = now_s() + limit_s;
	int error = 0;

	while (now_s() < until) {
		r->nccl.async_error(comm, &error);
		if (error || kernels_running() == 0)
			return error;
		usleep(POLL_US);
	}
	return -1;
}

/* All-reduces */

static int type_of(enum kernel_type type)
{
	static const int numbers[] = {
	    [KERNEL_INT32] = 2, [KERNEL_FLOAT16] = 6, [KERNEL_FLOAT32] = 7, [KERNEL_BFLOAT16] = 9};

	return numbers[type];
}

/* What a rank sends: small numbers, so that all types have the exact results. */
static double value_of(enum kernel_op op, int place, size_t i)
{
	switch (op) {
	case KERNEL_SUM:
		return (place + 1) * (double)(i % 3 + 1);
	case KERNEL_PROD:
		return (double)(((size_t)place + i) % 2 + 1);
	case KERNEL_AVERAGE:
		return 2 * (place + 1) * (double)(i % 3 + 1);
	default:
		return (double)(((size_t)place * 7 + i) % 11) - 5;
	}
}

static double result_of(enum kernel_op op, int members, size_t i)
{
	double all = value_of(op, 0, i);

	for (int k = 1; k < members; k++) {
		double v = value_of(op, k, i);

		if (op == KERNEL_PROD)
			all *= v;
		else if (op == KERNEL_MAX || op == KERNEL_MIN)
			all = (v > all) == (op == KERNEL_MAX) ? v : all;
		else
			all += v;
	}
	return op == KERNEL_AVERAGE ? all / members : all;
}

/* Fills with a period, whose first values are there. */
static void fill(char *data, size_t period, size_t bytes)
{
	for (size_t at = period; at < bytes; at += period)
		memcpy(data + at, data, at + period > bytes ? bytes - at : period);
}

bool reduce(struct rank *r, void *comm, enum kernel_type type, enum kernel_op op, size_t n, int place, int members)
{
	size_t size = element_size(type), bytes = n * size, period = PERIOD * size;
	char *send = device_allocate(bytes + period), *recv = device_allocate(bytes + period), want[PERIOD * 4];
	bool right = true;
	int rc;

	for (size_t i = 0; i < PERIOD; i++) {
		element_put(type, send + i * size, value_of(op, place, i));
		element_put(type, want + i * size, result_of(op, members, i));
	}
	fill(send, period, bytes + period);
	kernel_next = (struct kernel){.kind = KERNEL_CHAIN, .type = type, .op = op, .rank = place, .ranks = members};
	rc = r->nccl.all_reduce(send, recv, n, type_of(type), (int)op, comm, r->stream);
	if (!rc)
		rc = comm_wait(r, comm, REDUCE_S);
	if (rc) {
		printf("rank %d: all-reduce of %zu elements: %d %s; %s\n", r->rank, n, rc,
		       rc < 0 ? "it has no end" : r->nccl.error_text(rc), r->nccl.last_error(comm));
		return false;
	}
	for (size_t at = 0; at < bytes && right; at += period)
		right = memcmp(recv + at, want, at + period > bytes ? bytes - at : period) == 0;
	if (!right)
		printf("rank %d: wrong result: %zu elements, type %d, operation %d: [0] is %g, expected %g\n", r->rank,
		       n, (int)type, (int)op, element_get(type, recv), element_get(type, want));
	return right;
}

int reduce_start(struct rank *r, void *comm, size_t n)
{
	void *send = device_allocate(n * 4), *recv = device_allocate(n * 4);

	kernel_next = (struct kernel){.kind = KERNEL_CHAIN, .type = KERNEL_FLOAT32, .rank = r->rank, .ranks = r->ranks};
	return r->nccl.all_reduce(send, recv, n, type_of(KERNEL_FLOAT32), 0, comm, r->stream);
}

static void nccl_open(struct nccl *n, const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	struct link_map *map;
	const struct {
		const char *name;
		void *at;
	} functions[] = {
	    {"ncclGetUniqueId", &n->unique_id},
	    {"ncclCommInitRank", &n->init},
	    {"ncclCommDestroy", &n->destroy},
	    {"ncclCommFinalize", &n->finalize},
	    {"ncclCommAbort", &n->abort},
	    {"ncclCommGetAsyncError", &n->async_error},
	    {"ncclCommSplit", &n->split},
	    {"ncclCommShrink", &n->shrink},
	    {"ncclCommGetUniqueId", &n->grow_id},
	    {"ncclCommGrow", &n->grow},
	    {"ncclAllReduce", &n->all_reduce},
	    {"ncclAllGather", &n->all_gather},
	    {"ncclReduceScatter", &n->reduce_scatter},
	    {"ncclBroadcast", &n->broadcast},
	    {"ncclSend", &n->send},
	    {"ncclRecv", &n->receive},
	    {"ncclGetErrorString", &n->error_text},
	    {"ncclGetLastError", &n->last_error},
	};

	if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map))
		die("%s", dlerror());
	if (patch_runtime(path, (char *)map->l_addr) < 50)
		die("%s has no CUDA runtime that can be redirected", path);
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		void *f = dlsym(library, functions[i].name);

		memcpy(functions[i].at, &f, sizeof f);
	}
}

int main(int argc, char **argv)
{
	struct rank r = {.stream = calloc(1, 64)};
	const struct scenario *s = scenarios;

	if (argc != 7)
		die("usage: rank LIBRARY LAYOUT FOLDER RANK RANKS SCENARIO");
	while (s->name && strcmp(s->name, argv[6]))
		s++;
	if (!s->name)
		die("there is no scenario %s", argv[6]);
	layout_read(argv[2]);
	r.folder = argv[3];
	r.rank = atoi(argv[4]);
	r.ranks = atoi(argv[5]);
	nccl_open(&r.nccl, argv[1]);
	s->run(&r);
	fflush(stdout);
	_exit(0); /* threads of NCCL may still run */
}
