/* SPDX-License-Identifier: Apache-2.0 */
/* What the C API stands on: operations either run in an engine of this process (direct.c) or are handed to the
 * node's agent (client/client.c). reduction.c checks arguments and owns requests; a backend runs them. */
#ifndef RS_AGENT_API_BACKEND_H
#define RS_AGENT_API_BACKEND_H

#include "agent/include/reduction.h"
#include "common/error.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* A process's place in its job, complete: reduction.c has filled in what the caller left open. */
struct backend_options {
	struct rs_config
	    *cfg; /* moved into the backend when open succeeds: it releases it with rs_config_close + free */
	const char *job;
	const char *agent_path; /* client_open only */
	unsigned rank, world_size;
	unsigned local_rank, local_world_size;
	unsigned node_rank, nodes; /* the agent's place among agents */
	uint32_t generation;
	uint32_t connect_ms;
};

/* One operation. The submitter owns it and keeps it until done was called. */
struct backend_request {
	const void *send; /* recv for a broadcast */
	void *recv;
	uint64_t count;
	unsigned dtype;     /* enum rs_dtype */
	unsigned op;        /* enum rs_op, or FRAME_OP_BROADCAST */
	unsigned root;      /* rank, of a broadcast */
	int priority;       /* of reduction_tensor */
	const char *name;   /* NULL or what messages call the operation; valid for the call of submit only */
	uint32_t tensors;   /* of the group that shares it; 0: it is no group */
	uint32_t name_hash; /* equal on all ranks, or the operation fails; 0: it has no name */
	/* Called exactly once per submitted request, on any thread, err NULL on success. The backend does not touch
	 * the request afterwards. Must not block and must not call the backend. */
	void (*done)(struct backend_request *req, const struct rs_err *err);
	void *impl; /* of the backend */
};

struct backend;

struct backend_vtbl {
	/* Any thread; the order of calls is the order of operations (callers serialize). May wait while limits.ops
	 * operations are in flight. An error means not started: done will not be called. */
	int (*submit)(struct backend *b, struct backend_request *req, struct rs_err *e);
	/* Optional. Makes progress on the calling thread until done(of), which turns true by some request's done, or
	 * until then (CLOCK_MONOTONIC, NULL: for ever). `soon`: that will not take long. Returns done(of); false also
	 * where it cannot: the caller sleeps then. Any thread, also after stop, but for done. */
	bool (*wait)(struct backend *b, bool (*done)(const void *of), const void *of, bool soon,
		     const struct timespec *until);
	int (*alloc)(struct backend *b, size_t bytes, void **ret, struct rs_err *e);
	void (*free)(struct backend *b, void *buf);
	int (*stats)(struct backend *b, reduction_stats *ret, struct rs_err *e);
	/* Leaves in good order and calls done(RS_ECLOSED) for what is pending. After it only wait, free and close may
	 * follow. */
	void (*stop)(struct backend *b);
	/* Frees b. No thread is in wait any more. */
	void (*close)(struct backend *b);
};

/* Embedded first in each backend's own struct. */
struct backend {
	const struct backend_vtbl *v;
	unsigned priorities; /* of operations */
};

/* Both return when all ranks have met, or with an error. On error opt->cfg still belongs to the caller. */
int direct_open(struct backend **ret, const struct backend_options *opt, struct rs_err *e);
int client_open(struct backend **ret, const struct backend_options *opt, struct rs_err *e);

#endif
