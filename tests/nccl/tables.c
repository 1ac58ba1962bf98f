/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the plugin's tables, by version. */
#include "tests/nccl/exercise.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void require(bool condition, const char *format, ...)
{
	va_list args;

	if (condition)
		return;
	va_start(args, format);
	fprintf(stderr, "exercise: pid %d: ", (int)getpid());
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	_exit(1);
}

double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void relax(unsigned us)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

void barrier(struct shared *s, int ranks)
{
	unsigned mine = atomic_fetch_add(&s->arrived, 1), all = (mine / (unsigned)ranks + 1) * (unsigned)ranks;

	while (atomic_load(&s->arrived) < all)
		relax(LOOK_US);
}

/* As NCCL's logger: one line on standard error for each call. */
static void on_line(int level, unsigned long subsystems, const char *function, int line, const char *format, ...)
{
	char text[2048];
	va_list args;

	(void)subsystems, (void)function, (void)line;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	fprintf(stderr, "%s %s\n", level == NCCL_WARN ? "WARN" : "INFO", text);
}

static const void *find(void *library, const char *what, int version)
{
	char name[64];
	const void *table;

	snprintf(name, sizeof name, "nccl%sPlugin_v%d", what, version);
	table = dlsym(library, name);
	require(table, "the library has no %s", name);
	return table;
}

/* Takes the members that have one type in all versions. */
#define TAKE(t, net, coll)                                                                                             \
	do {                                                                                                           \
		(t)->coll_connect = (coll)->connect;                                                                   \
		(t)->coll_support = (coll)->reduce_support;                                                            \
		(t)->coll_register = (coll)->register_memory;                                                          \
		(t)->coll_deregister = (coll)->deregister_memory;                                                      \
		(t)->coll_test = (coll)->test;                                                                         \
		(t)->coll_close = (coll)->close;                                                                       \
		(t)->coll_close_listen = (coll)->close_listen;                                                         \
		(t)->net_accept = (net)->accept;                                                                       \
		(t)->net_register = (net)->register_memory;                                                            \
		(t)->net_deregister = (net)->deregister_memory;                                                        \
		(t)->net_test = (net)->test;                                                                           \
		(t)->net_close_send = (net)->close_send;                                                               \
		(t)->net_close_receive = (net)->close_receive;                                                         \
		(t)->net_close_listen = (net)->close_listen;                                                           \
		require(strcmp((net)->name, "reduction") == 0 && strcmp((coll)->name, "reduction") == 0,               \
			"the tables have other names");                                                                \
	} while (0)

int tables_open(struct tables *t, const char *path, int version)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int rc;

	require(library, "%s", library ? "" : dlerror());
	memset(t, 0, sizeof *t);
	t->version = version;
	if (version == 8) {
		t->net8 = find(library, "Net", 8);
		t->coll8 = find(library, "CollNet", 8);
		TAKE(t, t->net8, t->coll8);
		rc = t->net8->init(on_line);
		return rc ? rc : t->coll8->init(on_line);
	}
	if (version == 9) {
		t->net9 = find(library, "Net", 9);
		t->coll9 = find(library, "CollNet", 9);
		TAKE(t, t->net9, t->coll9);
		rc = t->net9->init(on_line);
		return rc ? rc : t->coll9->init(on_line);
	}
	if (version == 10) {
		t->net10 = find(library, "Net", 10);
		t->coll9 = find(library, "CollNet", 10);
		TAKE(t, t->net10, t->coll9);
		rc = t->net10->init(on_line, NULL);
		return rc ? rc : t->coll9->init(on_line);
	}
	if (version == 12) {
		t->net12 = find(library, "Net", 12);
		t->coll12 = find(library, "CollNet", 12);
		TAKE(t, t->net12, t->coll12);
		rc = t->net12->init(&t->net_context, 7, NULL, on_line, NULL);
		return rc ? rc : t->coll12->init(&t->coll_context, 7, on_line);
	}
	t->net11 = find(library, "Net", 11);
	t->coll11 = find(library, "CollNet", 11);
	TAKE(t, t->net11, t->coll11);
	rc = t->net11->init(&t->net_context, 7, NULL, on_line, NULL);
	return rc ? rc : t->coll11->init(&t->coll_context, 7, on_line);
}

void tables_check(const struct tables *t)
{
	struct nccl_properties_v8 n8, c8;
	struct nccl_properties_v9 n9, c9;
	struct nccl_properties_v11 n11, c11;
	struct nccl_properties_v12 n12, c12;
	int supported, net_devices = 0, coll_devices = 0;

	memset(&n8, 0, sizeof n8);
	if (t->version == 8) {
		t->net8->devices(&net_devices);
		t->coll8->devices(&coll_devices);
		t->net8->properties(0, &n8);
		t->coll8->properties(0, &c8);
		require(strcmp(n8.name, c8.name) == 0 && c8.speed >= 1000 && c8.pointers == NCCL_PTR_HOST, "devices");
	} else if (t->version < 11) {
		(t->version == 9 ? t->net9->devices : t->net10->devices)(&net_devices);
		t->coll9->devices(&coll_devices);
		(t->version == 9 ? t->net9->properties : t->net10->properties)(0, &n9);
		t->coll9->properties(0, &c9);
		require(strcmp(n9.name, c9.name) == 0 && c9.speed >= 1000 && n9.max_p2p_bytes > 0 &&
			    c9.max_collective_bytes > 0 && c9.max_collective_bytes <= 1ULL << 40,
			"devices");
	} else if (t->version == 12) {
		t->net12->devices(&net_devices);
		t->coll12->devices(&coll_devices);
		t->net12->properties(0, &n12);
		t->coll12->properties(0, &c12);
		require(strcmp(n12.name, c12.name) == 0 && c12.speed >= 1000 && n12.max_p2p_bytes > 0 &&
			    c12.max_collective_bytes > 0 && c12.parts.devices_n == 1 && n12.rail == -1 &&
			    n12.plane == -1,
			"devices");
	} else {
		t->net11->devices(&net_devices);
		t->coll11->devices(&coll_devices);
		t->net11->properties(0, &n11);
		t->coll11->properties(0, &c11);
		require(strcmp(n11.base.name, c11.base.name) == 0 && c11.base.speed >= 1000 &&
			    n11.base.max_p2p_bytes > 0 && c11.base.max_collective_bytes > 0,
			"devices");
	}
	require(net_devices == 1 && coll_devices == 1, "numbers of devices");
	for (int dtype = 0; dtype < 12; dtype++)
		for (int op = 0; op < 5; op++) {
			t->coll_support(dtype, op, &supported);
			require(supported == (dtype < 10 && op < 4), "support of dtype %d, operation %d", dtype, op);
		}
}

int tables_coll_listen(const struct tables *t, void *handle, void **listening)
{
	if (t->version == 8)
		return t->coll8->listen(0, handle, listening);
	if (t->version < 11)
		return t->coll9->listen(0, handle, listening);
	if (t->version == 12)
		return t->coll12->listen(t->coll_context, 0, handle, listening);
	return t->coll11->listen(t->coll_context, 0, handle, listening);
}

int tables_all_reduce(const struct tables *t, void *coll, void *send, void *recv, size_t count, int dtype, int op,
		      void *send_registered, void *recv_registered, void **request)
{
	if (t->version == 8)
		return t->coll8->iallreduce(coll, send, recv, (int)count, dtype, op, send_registered, recv_registered,
					    request);
	return (t->version < 11    ? t->coll9->iallreduce
		: t->version == 11 ? t->coll11->iallreduce
				   : t->coll12->iallreduce)(coll, send, recv, count, dtype, op, send_registered,
							    recv_registered, request);
}

int tables_all_gather(const struct tables *t, void *coll, void *send, void *recv, const struct part_of *p,
		      void *registered, void **request)
{
	struct nccl_part part = {.registered = registered, .address = recv, .bytes = p->bytes};
	struct nccl_part_v8 part8 = {.registered = registered, .address = recv, .bytes = (uint32_t)p->bytes};

	if (t->version == 8)
		return t->coll8->iallgather(coll, send, 1, &part8, p->part, p->offset, p->bytes, registered, request);
	return (t->version < 11 ? t->coll9->iallgather
		: t->version == 11
		    ? t->coll11->iallgather
		    : t->coll12->iallgather)(coll, send, 1, &part, p->part, p->offset, p->bytes, registered, request);
}

int tables_reduce_scatter(const struct tables *t, void *coll, void *send, void *recv, const struct part_of *p,
			  int dtype, int op, void *registered, void **request)
{
	struct nccl_part part = {.registered = registered, .address = send, .bytes = p->bytes};
	struct nccl_part_v8 part8 = {.registered = registered, .address = send, .bytes = (uint32_t)p->bytes};

	if (t->version == 8)
		return t->coll8->ireducescatter(coll, 1, &part8, recv, p->part, p->offset, p->bytes, dtype, op,
						registered, request);
	return (t->version < 11    ? t->coll9->ireducescatter
		: t->version == 11 ? t->coll11->ireducescatter
				   : t->coll12->ireducescatter)(coll, 1, &part, recv, p->part, p->offset, p->bytes,
								dtype, op, registered, request);
}

int tables_net_listen(const struct tables *t, void *handle, void **listening)
{
	if (t->version == 12)
		return t->net12->listen(t->net_context, 0, handle, listening);
	if (t->version == 11)
		return t->net11->listen(t->net_context, 0, handle, listening);
	return (t->version == 8   ? t->net8->listen
		: t->version == 9 ? t->net9->listen
				  : t->net10->listen)(0, handle, listening);
}

int tables_net_connect(const struct tables *t, void *handle, void **ret)
{
	if (t->version == 12)
		return t->net12->connect(t->net_context, 0, handle, ret, NULL);
	if (t->version == 11)
		return t->net11->connect(t->net_context, 0, handle, ret, NULL);
	if (t->version == 10)
		return t->net10->connect(0, NULL, handle, ret, NULL);
	return (t->version == 8 ? t->net8->connect : t->net9->connect)(0, handle, ret, NULL);
}

int tables_send(const struct tables *t, void *connection, void *data, size_t bytes, void *registered, void **request)
{
	if (t->version == 8)
		return t->net8->isend(connection, data, (int)bytes, 0, registered, request);
	if (t->version == 9)
		return t->net9->isend(connection, data, bytes, 0, registered, request);
	return (t->version == 10   ? t->net10->isend
		: t->version == 11 ? t->net11->isend
				   : t->net12->isend)(connection, data, bytes, 0, registered, NULL, request);
}

int tables_receive(const struct tables *t, void *connection, void *data, size_t bytes, void *registered, void **request)
{
	int tag = 0, short_bytes = (int)bytes;

	if (t->version == 8)
		return t->net8->irecv(connection, 1, &data, &short_bytes, &tag, &registered, request);
	if (t->version == 9)
		return t->net9->irecv(connection, 1, &data, &bytes, &tag, &registered, request);
	return (t->version == 10   ? t->net10->irecv
		: t->version == 11 ? t->net11->irecv
				   : t->net12->irecv)(connection, 1, &data, &bytes, &tag, &registered, NULL, request);
}
