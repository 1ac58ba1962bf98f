/* SPDX-License-Identifier: Apache-2.0 */
/* Event loops of libuv that report a lack of memory or file descriptors. libuv itself
 * aborts the process:
 *
 * - if a loop's table of watched descriptors cannot grow, which happens in uv_loop_init()
 *   and when a descriptor is watched that has a higher number than all before it;
 * - if its first loop cannot make a pipe.
 *
 * So the functions here take what is needed beforehand. */
#ifndef RS_COMMON_LOOP_UV_H
#define RS_COMMON_LOOP_UV_H

#include "common/error.h"

#include <uv.h>

/* Lets libuv use the memory that the functions below have taken. For a process or library
 * that has a libuv of its own, before any other call of libuv; the allocator is one for
 * all users of that libuv. Without this call the memory is only known to have been there
 * a moment before. */
void rs_loop_own_libuv(void);

/* Initializes a loop, after a check that `descriptors` more files can be opened
 * (common/descriptors.h). RS_ENOMEM, RS_EIO. Any thread. */
int rs_loop_init(uv_loop_t *loop, unsigned descriptors, struct rs_err *e);

/* Initializes a handle that watches fd; it is not started. After an error there is no
 * handle to close. RS_ENOMEM, RS_EIO. The loop's thread. */
int rs_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd, struct rs_err *e);

#endif
