/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of the wire protocol, without I/O: no locks, no clock, no system
 * calls. It decides which chunk is sent next on which link, where received bytes go, when
 * an operation is done and when a peer is lost. A driver (engine/engine_uv.c, the
 * simulator) moves the bytes and passes the time.
 *
 * An exchange has one link for each lane of each reducer. Chunk i of operation q belongs
 * to shard (i + q) mod shards; the configuration says which link a shard lives on. Each
 * link sends its own chunks of one priority in the order (seq, chunk), which is the same
 * on all ranks. Chunks of higher priorities are sent first. A link has at most `window`
 * chunks in flight, and a few more so that each priority can always make progress.
 *
 * The happy path of a link: connecting -> the driver has connected, HELLO is sent ->
 * (CHALLENGE -> PROOF, if the job has a secret) -> WELCOME -> joined -> START -> running.
 * After a failed connect or a REFUSED with retry the link waits and tries again, until
 * the connect timeout. When a connection is lost later and the job may fail over
 * (job.failover, at least two reducers), the other reducers take over its shards (view.c)
 * and no operation fails. Every other failure of a link ends the exchange: all pending
 * operations fail with the same sentence. ABORT carries that sentence to the reducers
 * that are still connected, so that the other ranks read the cause.
 *
 * A chunk is sent if its bytes are ready, if the window allows it, and if the link is not
 * too far ahead of the slowest one. Its RESULT is received into the operation's memory,
 * or into the retained results if the contribution is still there. After the loss of a
 * reducer view_apply() empties all streams and assigns the shards again. On RESUME
 * stream_begin() starts at the position on which all ranks agree: HAVE for retained
 * results, DATA for the rest.
 *
 * The submitter owns an exchange_op and its memory until done(). The exchange owns
 * everything else. A file uses only files in the lines below it:
 *
 *   exchange.c, exchange_tick.c, exchange_rejoin.c, single_worker.c, report.c   what the driver calls
 *   rebalance.c                                    which shares the reducers get, and slow paths
 *   link_io.c                                      bytes of one link
 *   link_control.c                                 control frames that arrive
 *   link_fail.c                                    a link is lost, cannot join, or breaks the protocol
 *   view_change.c                                  changes that rank 0 makes while all is well
 *   view.c                                         which reducers live
 *   exchange_op.c, exchange_end.c                  operations; the end
 *   stream.c                                       which chunk is sent next
 *   lead.c                                         how much is in flight on long links
 *   encoded.c, feedback.c                          encodings
 *   nonfinite.c, load.c, balance.c, balance_text.c
 *   exchange_text.c, link_queue.c                  sentences; control frames to send
 *   link.c, credit.c, window.c, retain.c, late.c, text.c, exchange_trace.c
 */
#ifndef RS_AGENT_WORKER_CORE_EXCHANGE_H
#define RS_AGENT_WORKER_CORE_EXCHANGE_H

#include "agent/worker/core/balance.h"
#include "agent/worker/core/exchange_op.h"
#include "agent/worker/core/window.h"
#include "common/auth.h"
#include "common/error.h"
#include "common/kernels/kernels.h"
#include "config/exchange_params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct exchange;

enum {
	EXCHANGE_QUIET_MS = 3000,      /* time after which an exchange says for whom it waits */
	EXCHANGE_REPORT_MS = 60000,    /* longest time between two such reports */
	EXCHANGE_LOST_MS = 30000,      /* time from the loss of a reducer to the first report that it is not back */
	EXCHANGE_DEGRADED_MS = 300000, /* time between two reports that reducers are lost */
};

/* What has happened to a reducer. */
enum exchange_change {
	EXCHANGE_BACK,  /* it has its share again */
	EXCHANGE_LOST,  /* no connection to it works any more; others have its shards */
	EXCHANGE_LEFT,  /* it reported itself that it ends this job; others have its shards */
	EXCHANGE_EMPTY, /* its slot is empty, since the job starts without it or since it has left; others have its
			   shards */
	EXCHANGE_TAKEN, /* a reducer has come into an empty slot and has its share */
};

/* What an exchange is created with. Callbacks must not call the exchange. */
struct exchange_options {
	struct exchange_params params; /* what it borrows must stay valid until exchange_free */
	const char *job;               /* copied */
	const char *label;             /* names this worker in other ranks' messages; copied, may be NULL */
	const char *run;               /* identity of the training (config/run.h); copied, may be NULL: unknown */
	const char *evidence;          /* config/evidence.h; copied, may be NULL: none */
	uint32_t generation;
	unsigned rank, world_size;
	unsigned processes;   /* training processes behind this worker, >= 1 */
	uint64_t incarnation; /* random number that tells two processes with the same rank apart */
	uint32_t connect_ms;  /* time within which all ranks must have joined */
	uint64_t features;    /* what this worker offers, a set of proto/features.h; 0: as release 0.1 */
	bool single_worker;   /* world_size is 1 and no chunk is sent to a reducer: see exchange_run_single() */
	/* Encode and decode; may be NULL if no operation is encoded. Static storage. */
	const struct rs_kernels *kernels;
	bool adaptive; /* the driver passes signals that set the size of the windows; else windows stay as
			  configured */
	/* Optional. Loads the job's secret. With it the exchange proves to each reducer
	 * that it has the secret and requires the same proof; without it a reducer that
	 * asks for a proof is an error. Called for each connection, so the secret may
	 * change. */
	int (*secret)(void *user, struct auth_secret *ret, struct rs_err *e);
	/* Writes n unpredictable random bytes. Required together with `secret`. */
	int (*random)(void *user, void *buf, size_t n, struct rs_err *e);
	/* Optional. A reducer is back, or was lost for the reason `why`. */
	void (*reducer_changed)(void *user, const struct rs_reducer *r, enum exchange_change how, const char *why);
	/* Optional, for reducers with a shared address (rs_reducer). The process at the
	 * address of params.reducers[reducer] has said that it is the reducer `id` of
	 * this job; "": rank 0 has not said which. */
	void (*is_reducer)(void *user, unsigned reducer, const char *id);
	/* Optional. From now on the reducers have these shares, one for each reducer of
	 * the configuration; `epoch` counts the changes. */
	void (*shares_changed)(void *user, uint32_t epoch, const uint32_t *shares);
	/* Optional, rank 0. Other shares would save time, or were set (`did`), or a rank
	 * or a path is slow; the sentence says why. At most once a minute if nothing
	 * changes. */
	void (*balance)(void *user, enum balance_kind kind, bool did, const char *sentence);
	/* Optional. inspect() has found NaN or infinity and job.detect_nonfinite is
	 * `log`. At most once for each operation. */
	void (*on_nonfinite)(void *user, const struct rs_err *what);
	/* Optional. An operation has waited long for other ranks; the sentence says for
	 * which. */
	void (*late)(void *user, const char *sentence);
	/* Optional. Not all ranks have joined; the sentence says who is missing. Called
	 * after EXCHANGE_QUIET_MS and then at growing intervals. */
	void (*waiting)(void *user, const char *sentence);
	/* Optional. An operation has no error feedback; the sentence says why. Called for
	 * the first one without a name, and for the first one without room. */
	void (*no_feedback)(void *user, const char *sentence);
	/* Optional. The job runs without all of its reducers; the sentence says which are
	 * lost, for how long and why, and why they cannot come back. Called
	 * EXCHANGE_LOST_MS after a loss, then every EXCHANGE_DEGRADED_MS. */
	void (*degraded)(void *user, const char *sentence);
	void *user;
};

/* A place in a generation of the job. */
struct exchange_place {
	uint32_t generation;
	unsigned rank, world_size;
	uint64_t incarnation; /* as in exchange_options */
	uint32_t connect_ms;
};

enum exchange_state {
	EXCHANGE_JOINING, /* waits for START on all links; operations may be submitted already */
	EXCHANGE_RUNNING,
	EXCHANGE_ENDING, /* GOODBYE or ABORT is being sent, for at most 1 s; nothing can be submitted */
	EXCHANGE_ENDED,  /* all operations are done; links that are still open must be shut down */
};

/* What a driver must do for a link. */
enum exchange_want {
	EXCHANGE_NOTHING,
	EXCHANGE_CONNECT,  /* connect to exchange_address(); call exchange_connecting() at the start */
	EXCHANGE_SHUTDOWN, /* shut down the sending side and read until the peer closes */
	EXCHANGE_CLOSE,    /* close the connection at once, then call exchange_disconnected() */
};

/* Creates an exchange. Links are numbered 0 .. exchange_links() - 1. All functions of one
 * exchange belong to one thread unless they say otherwise. now_ms is a monotonic clock in
 * milliseconds. Callbacks of operations must not call the exchange. All memory is
 * allocated here, except for control messages while they are decoded, and the stages of
 * encoded contributions.
 * Errors: RS_ENOMEM, RS_EINVAL. */
int exchange_new(struct exchange **ret, const struct exchange_options *opt, uint64_t now_ms, struct rs_err *e);

/* Frees the exchange. All operations must be done: the state is EXCHANGE_ENDED, or none
 * was submitted. */
void exchange_free(struct exchange *x);

enum exchange_state exchange_state(const struct exchange *x);
/* Returns why the exchange ends or ended. Its code is 0 before the end, and after
 * exchange_goodbye without pending operations. */
const struct rs_err *exchange_error(const struct exchange *x);

unsigned exchange_links(const struct exchange *x);
/* Returns the index in params.reducers of the link's reducer. */
unsigned exchange_reducer(const struct exchange *x, unsigned link);
/* Returns "host:port" of the link's reducer, as configured. */
const char *exchange_address(const struct exchange *x, unsigned link);
enum exchange_want exchange_want(const struct exchange *x, unsigned link, uint64_t now_ms);

/* Returns true once after a change that may affect what links want or have to send: the
 * driver then serves all links. Call it after every other call. Room that
 * exchange_received made on its own link does not set it. */
bool exchange_links_changed(struct exchange *x);

/* The driver has begun to connect the link. */
void exchange_connecting(struct exchange *x, unsigned link, uint64_t now_ms);
/* Sets the channel binding of the connection for the proofs, before exchange_connected:
 * at most AUTH_BINDING_MAX bytes that only the two ends know; copied. Without this call
 * the connection has none. */
void exchange_bind(struct exchange *x, unsigned link, const uint8_t *binding, size_t len);
/* Sets the address of this end of a TCP connection, before exchange_connected. Without
 * this call the reducer does not know whether a proxy is between. */
void exchange_set_source(struct exchange *x, unsigned link, const char *source);
/* Sets the first signal of the connection, for its round trip, before exchange_connected.
 * Without this call the round trip counts as short, unless the configuration says
 * otherwise. */
void exchange_set_path(struct exchange *x, unsigned link, const struct window_signal *s);
/* The link's connection is established. */
void exchange_connected(struct exchange *x, unsigned link, uint64_t now_ms);
/* The link's connection is closed or could not be made. `reason` says why ("connection
 * reset by peer"), and `how` the same as data; they are ignored if the exchange wanted
 * the connection closed. */
void exchange_disconnected(struct exchange *x, unsigned link, const char *reason, enum rs_loss how, uint64_t now_ms);
/* As exchange_disconnected, for a reducer that has answered with something that no
 * further attempt changes, such as a certificate for another name. While the ranks join,
 * this ends the exchange. */
void exchange_rejected(struct exchange *x, unsigned link, const char *reason, uint64_t now_ms);

/* Says where the next received bytes of a connected link go: the rest of a payload or a
 * header and, after a payload, the next header. Returns the number of entries; 0: do not
 * read from the link. Valid until the next call for any link other than
 * exchange_send_target and exchange_recv_target. */
unsigned exchange_recv_target(struct exchange *x, unsigned link, struct iovec iov[2]);
/* n > 0 bytes have been written there. */
void exchange_received(struct exchange *x, unsigned link, size_t n, uint64_t now_ms);

/* Says what to send next, in at most max >= 3 entries; payloads point into the memory of
 * operations. Returns the number of entries; 0: nothing to send. No other call for any
 * link may come between this one and exchange_sent. */
unsigned exchange_send_target(struct exchange *x, unsigned link, struct iovec *iov, unsigned max);
/* The first n bytes of the last exchange_send_target have been sent. */
void exchange_sent(struct exchange *x, unsigned link, size_t n, uint64_t now_ms);

/* Returns true if the exchange wants the kernel's signal of the link's connection: once
 * for each round of its window. The signal may change what the link sends. */
bool exchange_wants_signal(const struct exchange *x, unsigned link);
void exchange_signal(struct exchange *x, unsigned link, const struct window_signal *s, uint64_t now_ms);
/* Called after each signal. Returns the bytes a second at which the link's connection may
 * send from now on; 0: any. There is no limit while a link with shards has no estimate,
 * which is so while BBR starts, nor in jobs with relays, whose links carry different
 * sums. */
uint64_t exchange_pacing(struct exchange *x, unsigned link);

/* Returns true if the exchange wants to know how busy the link's connection is: some
 * times a second, while operations are pending. busy_us: for how long it had bytes that
 * the reducer's kernel had not acknowledged, since the connection was made. A driver that
 * does not know it does not call exchange_load(). */
bool exchange_wants_load(const struct exchange *x, unsigned link);
void exchange_load(struct exchange *x, unsigned link, uint64_t busy_us, uint64_t now_ms);

/* Starts op, or queues it until all ranks have joined. Errors: those of exchange_check,
 * and the reason if the exchange has ended. After an error the operation is not started
 * and done() is not called. */
int exchange_submit(struct exchange *x, struct exchange_op *op, uint64_t now_ms, struct rs_err *e);

/* An operation's `ready` has increased. */
void exchange_poke(struct exchange *x);

/* With options.single_worker: does the work of reducers on the calling thread, chunk by
 * chunk, until it has done `bytes` bytes (of all processes) or nothing is left. Returns
 * true if more is left; the driver then serves others and calls again. Call it after
 * exchange_submit, after exchange_poke, and when the state becomes EXCHANGE_RUNNING.
 * Without options.single_worker it returns false. */
bool exchange_run_single(struct exchange *x, uint64_t bytes);

/* Handles timeouts and heartbeats. Call it at exchange_next() at the latest. */
void exchange_tick(struct exchange *x, uint64_t now_ms);
uint64_t exchange_next(const struct exchange *x);

/* Ends the job on all ranks with this code and sentence. */
void exchange_abort(struct exchange *x, int code, const char *message, uint64_t now_ms);

/* Leaves the job in good order, when all ranks have the results that this rank may have
 * to provide. Pending operations fail with RS_ECLOSED at once. */
void exchange_goodbye(struct exchange *x, uint64_t now_ms);

/* Joins another generation of the job, which must be newer, as if the exchange were new:
 * its state is EXCHANGE_JOINING again. Pending operations end with RS_ECLOSED, and the
 * other ranks of this generation read why. Connections stay open where both ends have
 * FEATURE_RECONFIGURE and have been in a job; the driver makes the others anew, as
 * exchange_want() says. May be called in every state, unless exchange_goodbye was. */
void exchange_reconfigure(struct exchange *x, const struct exchange_place *to, uint64_t now_ms);

/* Returns the features that the job uses; before its first operation may be sent: those
 * that are still possible. */
uint64_t exchange_features(const struct exchange *x);
/* Returns whether sharded operations may be submitted: false until all ranks have sent
 * their first view or chunk. Any thread. */
bool exchange_can_shard(const struct exchange *x);

/* Returns whether links have larger windows than configured, because they are long. Sets
 * the most chunks that they can have in flight together, and the bytes of retained
 * results. In EXCHANGE_RUNNING. */
bool exchange_is_long(const struct exchange *x, uint64_t *ret_chunks, uint64_t *ret_bytes);

/* Gives the reducers other shares of the work: shares[r], 1 to CONTROL_SHARE_MAX, is the
 * weight of reducer r of the configuration. All ranks take them as they take the loss of
 * a reducer, with a pause of a round trip, and use them for the same operations. Returns
 * false if nothing was changed: this is not rank 0, the job has no failover, some rank or
 * reducer has no FEATURE_SHARES, the map has fewer shards than reducers, or the last
 * change of the view is not agreed yet. */
bool exchange_set_shares(struct exchange *x, const uint32_t *shares, uint64_t now_ms);

/* Lets all ranks connect to a reducer anew, from other ports, as after its loss: the
 * others have its shards for about a second. why: a sentence, which all ranks report.
 * Returns false if nothing was changed: this is not rank 0, the job has no failover,
 * fewer than two others live, or the last change of the view is not agreed yet. */
bool exchange_connect_anew(struct exchange *x, unsigned reducer, const char *why, uint64_t now_ms);

/* Returns the number of operations that were completed without an error. Any thread. */
uint64_t exchange_ops_done(const struct exchange *x);

#endif
