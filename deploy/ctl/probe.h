/* SPDX-License-Identifier: Apache-2.0 */
/* Asks each reducer of a configuration whether it would accept a worker: the handshake of
 * a worker, with a HELLO that joins no job (proto/README.md, "Joining"). */
#ifndef RS_DEPLOY_CTL_PROBE_H
#define RS_DEPLOY_CTL_PROBE_H

#include "config/config.h"
#include "proto/control.h"

enum { PROBE_TIMEOUT_MS = 5000 };

/* The answer of one reducer. */
struct probe {
	char address[RS_ADDRESS_MAX]; /* to which it was sent */
	struct rs_err why;            /* code 0: the reducer would accept the worker, and the following is set */
	char software[CONTROL_SOFTWARE];
	double round_trip_s; /* from HELLO to the first answer */
	bool secure;         /* over TLS */
	bool proven;         /* both sides have proven that they have the job's secret */
};

/* Asks all reducers at the same time, and waits for each at most timeout_ms. On success
 * *ret has an answer for each, in the order of the configuration; the caller frees it.
 * Errors: RS_ENOMEM, those of the configuration's files. */
int probe_all(struct probe **ret, const struct rs_config *cfg, uint32_t timeout_ms, struct rs_err *e);

#endif
