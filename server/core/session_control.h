/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a session with which its peer leaves, or says what it knows of reducers. */
#ifndef RS_SERVER_CORE_SESSION_CONTROL_H
#define RS_SERVER_CORE_SESSION_CONTROL_H

#include "server/core/stripe.h"

/* ABORT is in control_in: the job ends, unless the peer is a relay. */
void session_take_abort(struct session *s);
/* VIEW is in control_in. */
void session_take_view(struct session *s);
/* GOODBYE, which is in good order only if no other rank waits for this rank any more. */
void session_take_goodbye(struct session *s);

#endif
