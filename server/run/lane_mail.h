/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane's thread posts to the server's mailbox. */
#ifndef RS_SERVER_RUN_LANE_MAIL_H
#define RS_SERVER_RUN_LANE_MAIL_H

#include "server/core/lane_types.h"
#include "server/run/mailbox.h"

/* One message. Invariant: the LANE_CLOSED message of a connection is allocated with the
 * connection, so that this event needs no memory. */
struct lane_mail {
	struct mail mail;
	struct lane_event event;
	bool failed; /* LANE_CLOSED: the job failed with event.why, and there was no memory for LANE_FAILED */
};

#endif
