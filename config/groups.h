/* SPDX-License-Identifier: Apache-2.0 */
/* The section `groups`: workers that are near to each other, and the reducers that relay
 * for them. */
#ifndef RS_CONFIG_GROUPS_H
#define RS_CONFIG_GROUPS_H

#include "config/config.h"

/* Frees groups and relays. */
void groups_close(struct rs_config *cfg);

#endif
