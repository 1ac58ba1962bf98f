/* SPDX-License-Identifier: Apache-2.0 */
/* The native protocol of systemd's journal: a line with its values as fields, so that
 * `journalctl JOB=resnet` finds it. Any thread. */
#ifndef RS_COMMON_JOURNALD_H
#define RS_COMMON_JOURNALD_H

#include "common/log.h"

#include <stddef.h>

/* Returns a socket that is connected to journald; -1: there is none. */
int rs_journald_open(void);
/* Sends a line, without a newline at its end, with the priority '3' to '7'. Fields are
 * EVENT and one for each pair, with its key in capitals. A pair for which the message has
 * no room is left out. Returns 0 or the errno of the failure; never blocks. */
int rs_journald_send(int fd, char priority, const char *event, const char *line, size_t len, const struct rs_kv *kv,
		     unsigned n);

#endif
