/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane's thread posts to the server's mailbox. */
#ifndef RS_SERVER_RUN_LANE_MAIL_H
#define RS_SERVER_RUN_LANE_MAIL_H

#include "common/tcp_conn.h"
#include "server/core/lane_types.h"
#include "server/run/mailbox.h"

/* A connection that outlives its session. */
struct lane_parted {
	struct tcp_conn tcp;
	struct frame_rest rest;
};

/* One message. Invariant: the LANE_CLOSED message of a connection is allocated with the
 * connection, so that this event needs no memory. */
struct lane_mail {
	struct mail mail;
	struct lane_event event;
	struct lane_parted *parted; /* LANE_CLOSED: the connection, if it outlives the session; owned; else NULL */
	bool failed; /* LANE_CLOSED: the job failed with event.why, and there was no memory for LANE_FAILED */
};

#endif
