/* SPDX-License-Identifier: Apache-2.0 */
/* A check for free file descriptors. libuv aborts the process if it cannot make the pipes
 * of its first event loop. */
#ifndef RS_COMMON_DESCRIPTORS_H
#define RS_COMMON_DESCRIPTORS_H

#include "common/error.h"

enum {
	RS_LOOP_DESCRIPTORS = 6,    /* what a thread's event loop needs */
	RS_DAEMON_DESCRIPTORS = 12, /* with signals, a listener and what else a daemon opens at its start */
};

/* Checks that n more file descriptors can be opened now, by opening them for a moment.
 * ret_highest, if not NULL, gets the highest number among them. RS_EIO: they cannot. */
int rs_descriptors_check(unsigned n, int *ret_highest, struct rs_err *e);

/* Opens /dev/null for standard descriptors that are closed, so that no connection gets a
 * number to which the log is written, and which libuv refuses to close. Call it before
 * anything is opened. The descriptors stay open. */
void rs_descriptors_hold_standard(void);

#endif
