/* SPDX-License-Identifier: Apache-2.0 */
/* An uplink: the connection of this reducer, as the relay of a group, to one lane of the
 * home of some of its chunks, without I/O. To the home it is one more session of the job,
 * whose contributions cover all ranks of the group.
 *
 * The happy path: the first chunk for the home is complete -> the driver connects ->
 * HELLO (CHALLENGE, PROOF) -> WELCOME -> START -> sums of chunks are sent, results come
 * back into the slots. When all ranks have sent a new view to this reducer, the uplink
 * sends VIEW, and goes on when the home answers RESUME.
 *
 * Failure modes: the connection cannot be made, or breaks while no chunk is on its way:
 * it is tried again. It breaks with chunks on their way: these are lost. If the home is
 * lost, the ranks find that out, and their next view says so. If it is not, this reducer
 * cannot serve the job any more, and says so after a while (RS_ECUT): the ranks go on
 * without it.
 *
 * A driver asks which uplinks need it, and serves them as it serves sessions:
 *
 *     while ((u = lane_next_uplink(lane)))
 *         switch (uplink_want(u)) ...
 */
#ifndef RS_SERVER_CORE_UPLINK_H
#define RS_SERVER_CORE_UPLINK_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct control_hello;
struct control_late;
struct lane;
struct slot;
struct stripe;
struct uplink;

/* What a driver must do for an uplink. */
enum uplink_want {
	UPLINK_SERVE,   /* send what uplink_send_target() says, if it is connected; else nothing */
	UPLINK_CONNECT, /* connect to uplink_reducer(), then call uplink_connected() or uplink_lost() */
	UPLINK_CLOSE,   /* close the connection, then call uplink_closed() */
};

/* Returns the next uplink that needs its driver; NULL: none. Each is returned once for
 * each change. */
struct uplink *lane_next_uplink(struct lane *l);
enum uplink_want uplink_want(struct uplink *u);
/* Returns the index of the home's reducer in the configuration, and its address there is
 * where to connect to. */
unsigned uplink_reducer(const struct uplink *u);
/* Returns the HELLO of the job's first rank. */
const struct control_hello *uplink_hello_of(const struct uplink *u);
/* What belongs to the driver. */
void uplink_set_user(struct uplink *u, void *user);
void *uplink_user(const struct uplink *u);
/* The connection is made. binding: of its channel, as of a worker's; len 0: none. Errors:
 * no random numbers; the uplink then wants its connection closed. */
void uplink_connected(struct uplink *u, const uint8_t *binding, size_t len, uint64_t now_ms);
/* The connection could not be made, or is broken: the reason is a phrase. uplink_closed()
 * follows. */
void uplink_lost(struct uplink *u, const char *reason, uint64_t now_ms);
/* The driver has nothing of the uplink any more. It may be freed. */
void uplink_closed(struct uplink *u);
/* As those of a session. */
unsigned uplink_recv_target(struct uplink *u, struct iovec iov[2]);
void uplink_received(struct uplink *u, size_t n, uint64_t now_ms);
unsigned uplink_send_target(struct uplink *u, struct iovec iov[2]);
void uplink_sent(struct uplink *u, size_t n, uint64_t now_ms);

/* For the core: */

/* The sum of a group is in the slot: sends it to its home. Errors: RS_ENOMEM. */
int uplink_forward(struct stripe *st, struct slot *slot, struct rs_err *e);
/* Ranks of the group have delayed the sum in the slot for a while: tells the home
 * which. */
void uplink_tell_late(struct stripe *st, const struct slot *slot, const struct control_late *late);
/* Returns whether an uplink has sent a part of a chunk, and will send the rest. */
bool uplinks_are_sending(const struct stripe *st);
/* All ranks have sent the current view: no chunk of an earlier one is sent any more, and
 * the homes hear that. They hear it before this stripe has heard the same of the uplinks
 * to it: two reducers may relay for each other. */
void uplinks_tell(struct stripe *st);
/* The stripe begins again: no slot is in use any more. */
void uplinks_begin_again(struct stripe *st);
/* The stripe is freed, or has ended. */
void uplinks_end(struct stripe *st);
/* This process was stopped for long: silence until now says nothing about homes. */
void uplinks_slept(struct stripe *st, uint64_t now_ms);
/* Heartbeats, silence, further attempts. */
void uplinks_tick(struct stripe *st, uint64_t now_ms);
/* Returns a sentence if the uplinks of a stripe do not keep their invariants. */
const char *uplinks_check(const struct stripe *st);

#endif
