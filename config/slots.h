/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of reducers and slots, while a configuration is read. */
#ifndef RS_CONFIG_SLOTS_H
#define RS_CONFIG_SLOTS_H

#include "config/config.h"
#include "config/ydoc.h"

/* Checks the addresses of cfg->reducers, which were read from doc, and sets `shared` of
 * those that share a name. Only slots of a job that may start without them need no
 * address, or may share one. Errors: RS_ECONFIG, with the place in the file. */
int slots_check(struct rs_config *cfg, const struct ydoc *doc, struct rs_err *e);

#endif
