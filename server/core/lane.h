/* SPDX-License-Identifier: Apache-2.0 */
/* The core of one lane of a reducer, without I/O: it receives contributions, sums them
 * and sends the results. One thread owns a lane; there are no locks.
 *
 * A session is one connection of one rank. All sessions of a job with the same lane
 * number form a stripe. The stripe owns the slots, in which the contributions of all
 * ranks to a chunk are summed. A driver (lane_tcp.c, lane_grpc.c, the simulator) asks a
 * session where the next bytes go, receives them, reports their number, and sends what
 * sessions have to send:
 *
 *     n = session_recv_target(s, iov); got = recvmsg(iov, n); session_received(s, got, now);
 *     while ((s = lane_next_ready(lane))) { n = session_send_target(s, iov, max); session_sent(s, sendmsg(...), now); }
 *
 * Events for the registry go out through lane_options.event. Decisions of the registry
 * come in through lane_start, lane_tell and lane_abort.
 *
 * The happy path of a session is: attached -> (START) running -> GOODBYE -> draining ->
 * closed. Failure modes: the peer is lost, breaks the protocol or disagrees with another
 * rank. If the job runs, the whole stripe then ends: every session sends ABORT with the
 * sentence and closes. If the job fails over, the error is RS_ECUT and the ranks continue
 * with the other reducers.
 *
 * A slot: free -> contributions come -> full -> result queued -> free. The payload of the
 * first rank goes straight into the accumulator; later ones go through the scratch and
 * are added. A deterministic job stashes them and adds them in the order of ranks. With
 * HAVE: full -> fetching (FETCH, KEPT) -> result queued; a result waits in line while an
 * earlier chunk of its priority is fetched. Between VIEW and RESUME a session is paused.
 *
 * A file uses only files in the lines below it:
 *
 *   lane.c                                         the lane: sessions come and go, the clock
 *   report.c                                       counters of the lane
 *   session_rx.c, session_tx.c                     bytes of one connection
 *   session_rest.c                                 bytes behind the end of its session
 *   contribution.c, stripe_depart.c                a chunk is summed; a rank closes its communicator
 *   stripe_nonfinite.c, stripe_load.c              NaN and infinity; how busy connections are
 *   retained.c, stripe_view.c                      failover: results that ranks have already; VIEW and RESUME
 *   result.c, stripe_fail.c, stripe_stable.c, stripe_late.c
 *   session_queue.c, lane_trace.c                  what a session has to send; a trace of operations
 *   stripe.c, slot.c                               the table of slots; the sum
 */
#ifndef RS_SERVER_CORE_LANE_H
#define RS_SERVER_CORE_LANE_H

#include "server/core/lane_types.h"

#include <sys/uio.h>

struct lane;
struct session;

/* Returns the bytes that the slots of one stripe need; UINT64_MAX if that overflows. */
uint64_t stripe_memory(const struct stripe_params *p);
/* Returns the most bytes that one stripe with the sessions of all its ranks allocates in
 * addition: tables, waiting control frames, queues of results. */
uint64_t stripe_overhead(const struct stripe_params *p);

/* Errors: RS_ENOMEM. */
int lane_new(struct lane **ret, const struct lane_options *opt, struct rs_err *e);
/* Frees the lane with all its sessions and stripes. */
void lane_free(struct lane *l);

/* Adds a connection, whose HELLO the registry has admitted, to the stripe p. The first
 * connection creates the stripe. `user` belongs to the driver. The caller then queues
 * WELCOME with session_queue(). Errors: RS_ENOMEM. */
int lane_attach(struct lane *l, struct session **ret, const struct stripe_params *p, const struct session_params *sp,
		void *user, uint64_t now_ms, struct rs_err *e);

/* Sends START to all sessions of a job, because all ranks have joined. Contributions may
 * come from then on. */
void lane_start(struct lane *l, uint64_t job, const struct lane_begin *begin);
/* Queues a control frame for every session of the job. A session that still has unsent
 * control frames is left out: the queue of a peer that does not read must keep room for
 * START. */
void lane_tell(struct lane *l, uint64_t job, const void *frame, size_t len);
/* Ends a job for a reason that was found elsewhere: its sessions send ABORT and close. */
void lane_abort(struct lane *l, uint64_t job, const struct rs_err *why, const struct rs_cause *cause);
/* Sends PING with the number of a question to a rank. The rank's PING with that number is
 * reported as LANE_ANSWERED: so its process was alive when it was asked. Late answers to
 * earlier questions are not reported. Does nothing if the session is closing. lane: of
 * the job. question: above 1, and above those of earlier calls. */
void lane_ask(struct lane *l, uint64_t job, unsigned lane, unsigned rank, uint64_t question);
/* Checks heartbeats, silence and lingering sessions. The driver calls it every
 * LANE_TICK_MS. */
void lane_tick(struct lane *l, uint64_t now_ms);

/* Sets a time, in microseconds from any start, for the times of chunks in reports. To be
 * called before session_received and session_sent. */
void lane_set_us(struct lane *l, uint64_t now_us);
/* Says which contributions started since the last call. A small operation is over so soon
 * that the next one may come before a thread has gone to sleep and been woken again. */
enum lane_arrivals lane_arrivals(struct lane *l);

/* Says in which part of the last second the lane's thread ran or waited for a core, in
 * 1/1000. */
void lane_set_processor(struct lane *l, uint32_t permil);

/* Returns the next session that has something to send or must be closed; NULL if there is
 * none. A session is returned once for each change. */
struct session *lane_next_ready(struct lane *l);
/* Returns whether that would return one. */
bool lane_is_ready(const struct lane *l);

/* Returns the driver's pointer that lane_attach() was given. */
void *session_user(const struct session *s);
/* Queues the bytes of a control frame. Returns false, and queues nothing, if the queue
 * has no room. */
bool session_queue(struct session *s, const void *frame, size_t len);
/* Says where the next bytes from the peer go: 1 or 2 iovecs, valid until any other call
 * on the lane. 0: do not read. */
unsigned session_recv_target(struct session *s, struct iovec iov[2]);
/* Processes n > 0 bytes that were received there. */
void session_received(struct session *s, size_t n, uint64_t now_ms);
/* Reports how long the last session_received took, for the same times. */
void session_worked(struct session *s, uint64_t ns);
/* Reports that the lane's thread has served the session for this time. */
void session_served(struct session *s, uint64_t ns);
/* Reports what the driver knows of the network: the smoothed round trip (0: not known),
 * how many segments were sent again since the connection exists, and for how long it had
 * bytes that the peer's kernel had not acknowledged. */
void session_network(struct session *s, uint32_t rtt_us, uint32_t min_rtt_us, uint64_t retransmits, uint64_t busy_us);
/* Returns whether nothing was heard for a while from a worker whose acknowledgements
 * count. The driver then reports them before each tick. */
bool session_quiet(const struct session *s);
/* Reports that the kernel at the other end still acknowledged at this time, which may be
 * in the past. */
void session_acknowledged(struct session *s, uint64_t at_ms);
/* Says what to send next, in at most max iovecs; 0: nothing. They are valid until
 * session_sent or lane_abort. */
unsigned session_send_target(struct session *s, struct iovec *iov, unsigned max);
/* Removes n bytes that were sent. */
void session_sent(struct session *s, size_t n, uint64_t now_ms);
/* Reports that the connection broke or the peer closed it. `why` is a phrase ("connection
 * reset by peer"). */
void session_lost(struct session *s, const char *why);
/* Returns true if nothing more will be sent. The driver then shuts down its sending side
 * and reads until the peer closes or session_closed(), unless session_parts(). */
bool session_shut(const struct session *s);
/* Returns true if nothing more will be sent and the connection outlives the session: the
 * driver may take it away, with session_take_rest(), and then frees the session. */
bool session_parts(const struct session *s);
/* Stores what has come already and belongs to the next handshake of the connection. */
void session_take_rest(const struct session *s, struct frame_rest *ret);
/* Returns true if the session is closed. The driver then closes the connection and calls
 * session_free. */
bool session_closed(const struct session *s);
/* Reports LANE_CLOSED and frees the session. */
void session_free(struct session *s);

#endif
