/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RS_SERVER_CORE_SESSION_REST_H
#define RS_SERVER_CORE_SESSION_REST_H

#include "server/core/session.h"

/* Processes what comes behind the end of the session, if its connection is kept: frames
 * of the job, which do not matter any more, and then HELLO, which waits for the next
 * handshake. */
void session_discard(struct session *s, const uint8_t *at, size_t n);

#endif
