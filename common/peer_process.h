/* SPDX-License-Identifier: Apache-2.0 */
/* The process at the other end of a UNIX socket. */
#ifndef RS_COMMON_PEER_PROCESS_H
#define RS_COMMON_PEER_PROCESS_H

#include <stdbool.h>

/* Returns whether the process that connected to, or listens at, the other end of a
 * connected UNIX socket still exists; one that is stopped does. The socket alone does not
 * say this: a forked process may keep it open. False also if it is not known, as for a
 * process of another PID namespace before Linux 6.5. Any thread. */
bool rs_peer_process_runs(int fd);

#endif
