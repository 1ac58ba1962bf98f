/* SPDX-License-Identifier: Apache-2.0 */
/* What the net and the CollNet side of the plugin share: the settings, the device and
 * NCCL's logger. */
#ifndef RS_AGENT_NCCL_PLUGIN_H
#define RS_AGENT_NCCL_PLUGIN_H

#include "agent/nccl/abi.h"
#include "agent/nccl/device.h"
#include "agent/nccl/tuner.h"
#include "common/log.h"
#include "config/config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
	PLUGIN_JOB_MAX = RS_NAME_MAX - 17, /* bytes of a job's name without "@" and digits, terminator included */
	PLUGIN_SOCKETS_MAX = 16,           /* of one connection between two ranks */
	PLUGIN_SOCKETS = 2,                /* default */
	PLUGIN_BYTES_MAX = 1 << 30,        /* of one message or collective */
	PLUGIN_CONNECTIONS_MAX = 64 << 10, /* at once */
};

/* The state of the plugin in this process. Invariant: what stands between `lock` and
 * `logger` does not change once loaded is true, and ends_at_once is the same in each
 * init. All functions: any thread. */
struct plugin {
	pthread_mutex_t lock; /* of loading */
	bool loaded;
	struct rs_config cfg;
	char job[PLUGIN_JOB_MAX];
	unsigned sockets;  /* of one connection between two ranks */
	bool required;     /* REDUCTION_REQUIRED=1: an error instead of any other way */
	bool ends_at_once; /* NCCL 2.23 to 2.25: requests end as soon as NCCL knows an error, see coll.c */
	struct device device;
	struct rs_log log; /* writes to NCCL's logger */

	_Atomic(nccl_logger) logger;
	_Atomic bool refusing; /* with `required`: the reducers are not used, so nothing else is */
};

/* Loads the settings, the first time. Returns an nccl_result. With `required` an error
 * here is success, and every later call fails: NCCL would go on with another network. */
int plugin_init(struct plugin *p, nccl_logger logger);

/* Makes the tuner of a communicator of that many nodes, and says in the log what it
 * chooses. */
void plugin_tune(struct plugin *p, size_t nodes, struct tuner *ret);

/* Returns the nccl_result for an enum rs_code. */
int plugin_result(int code);
/* Writes a warning through NCCL's logger, and returns the nccl_result for the error. */
int plugin_fail(struct plugin *p, const struct rs_err *e);

/* The reducers are not used for the reason *e: with `required`, every later call of the
 * process fails. */
void plugin_refuse(struct plugin *p, const struct rs_err *e);

/* Returns whether every call has to fail, see plugin_refuse. */
static inline bool plugin_refuses(const struct plugin *p)
{
	return atomic_load_explicit(&p->refusing, memory_order_relaxed);
}

/* Writes a line with NCCL_DEBUG=INFO. */
void plugin_info(struct plugin *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
