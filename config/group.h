/* SPDX-License-Identifier: Apache-2.0 */
/* The group of this machine: that of its rank, or with an agent of all ranks of its node.
 * The first of these that names a group decides: REDUCTION_GROUP, the host name in
 * `nodes`, an address in `addresses`, a switch in SLURM_TOPOLOGY_ADDR. */
#ifndef RS_CONFIG_GROUP_H
#define RS_CONFIG_GROUP_H

#include "common/address.h"
#include "common/error.h"
#include "config/config.h"
#include "config/launch.h"

enum {
	RS_GROUP_ADDRESSES_MAX = 256, /* addresses of this machine that are read; others do not count */
};

/* What tells the group of a machine. */
struct rs_group_place {
	const char *variable; /* REDUCTION_GROUP; NULL: not set */
	const char *host;     /* its host name */
	const struct rs_endpoint *addresses;
	unsigned addresses_n;
	const char *topology; /* SLURM_TOPOLOGY_ADDR, the switches above it and its name, with dots between; NULL */
};

/* Finds the index of the group. Without groups it is 0. Errors: RS_ECONFIG if it is in
 * none, or by one rule in two of them; RS_ENOMEM. Any thread. */
int rs_group_find(unsigned *ret, const struct rs_config *cfg, const struct rs_group_place *place, struct rs_err *e);

/* Does the same for this machine, by the environment (get NULL: getenv), gethostname()
 * and getifaddrs(). Errors: also RS_EIO. */
int rs_group_detect(unsigned *ret, const struct rs_config *cfg, rs_getenv_fn get, void *ctx, struct rs_err *e);

#endif
