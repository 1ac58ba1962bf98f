/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of an engine's reducers, which may change while a job runs: a slot is
 * taken by another machine. The file of the configuration is read again before an attempt
 * to connect if it has changed. A connection that works stays where it is. All functions
 * belong to the thread that runs the engine. */
#ifndef RS_AGENT_WORKER_ENGINE_ADDRESSES_H
#define RS_AGENT_WORKER_ENGINE_ADDRESSES_H

#include "config/config.h"

enum { ADDRESSES_CHECK_MS = 500 /* least time between two looks at the file */ };

struct engine_addresses {
	struct rs_reducer *reducers; /* owned; as in the configuration, with the addresses of now */
	unsigned reducers_n;
	bool slots; /* the job may start without some of them */
	struct rs_config_source source;
	uint64_t checked_ms; /* last look at the file; 0: none so far */
};

/* Errors: RS_ENOMEM. */
int engine_addresses_init(struct engine_addresses *a, const struct rs_config *cfg, struct rs_err *e);
void engine_addresses_close(struct engine_addresses *a);

#endif
