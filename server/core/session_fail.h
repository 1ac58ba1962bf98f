/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a session because of what its peer has sent. */
#ifndef RS_SERVER_CORE_SESSION_FAIL_H
#define RS_SERVER_CORE_SESSION_FAIL_H

#include "server/core/stripe.h"

/* Ends the session because its peer broke the protocol or disagrees with another rank.
 * Before START only this connection closes. Afterwards the job cannot complete its
 * operations without this rank. */
void session_fail(struct session *s, const struct rs_err *why);

#endif
