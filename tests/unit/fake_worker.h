/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted workers around the core of one lane, in memory. It encodes their frames and
 * feeds them in pieces of any size, and takes the frames of the core in pieces of any
 * size and decodes them. It replaces lane_uv.c and the registry: it attaches and flushes
 * sessions, closes them, and frees a stripe's memory with its last session. */
#ifndef RS_TESTS_UNIT_FAKE_WORKER_H
#define RS_TESTS_UNIT_FAKE_WORKER_H

#include "proto/control.h"
#include "server/core/lane.h"
#include "server/core/stripe.h"

#include <check.h>

enum {
	FAKE_WORLD_MAX = 65,
	FAKE_UPLINKS_MAX = 8,
	FAKE_DETECT_MS = 1000,
	FAKE_JOB = 77,
	FAKE_GENERATION = 5,
	FAKE_REDUCERS = 3,
	FAKE_START = 4711, /* incarnation of rank 0 */
};

/* ck_assert writes to a file each time it holds, which is too slow for what is checked a
 * million times. */
#define must(condition) ((condition) ? (void)0 : ck_abort_msg("this does not hold: %s", #condition))

struct fw_buffer {
	uint8_t *at;
	size_t len, size, off; /* off: consumed */
};

struct fw_worker {
	struct fw_world *fw;
	unsigned rank;
	struct session *session; /* NULL: freed */
	struct fw_buffer out;    /* sent, not fed yet */
	struct fw_buffer in;     /* received, not taken yet */
	size_t room;             /* bytes its socket still takes; SIZE_MAX: any number */
	bool write_wait;
	bool shut; /* the core has ended its sending side */
};

struct fw_world {
	struct lane *lane;
	struct stripe_params params;
	bool probe, direct;
	uint32_t peer_detect_ms;
	struct fw_worker w[FAKE_WORLD_MAX + FAKE_UPLINKS_MAX]; /* behind the ranks: uplinks of relays */
	const unsigned *group_of;                              /* [world], NULL: the job has no groups */
	void (*serve_uplinks)(void *homes);                    /* NULL, or fh_serve() of fake_home.h */
	void *homes;
	uint64_t now_ms;
	size_t out_piece;                                                        /* most bytes of one sendmsg */
	unsigned failed, gone, lost, stopped, late, answered, proven, nonfinite; /* events */
	unsigned clean;                                                          /* of those gone */
	unsigned uplinks_gone, unlinked;
	struct rs_err why;       /* of the last LANE_FAILED */
	struct lane_event event; /* the last LANE_LOST, LANE_STOPPED, LANE_LATE, LANE_ANSWERED or
				    LANE_NONFINITE */
	unsigned slots_seen_max; /* most slots that were alive at once */
	uint32_t random;
};

/* What differs from {world 2, window 4, one priority, chunks of 64 bytes}. */
struct fw_options {
	unsigned world, window, priorities;
	uint32_t chunk_bytes, decoded_bytes;
	uint64_t features; /* that the job has agreed on, without FEATURE_START */
	bool deterministic, checksum, retain;
	bool probe;  /* each worker must send PROBE */
	bool direct; /* acknowledgements of the kernels count */
	const struct rs_kernels *kernels;
	uint32_t detect_ms, stopped_ms, peer_detect_ms;
	const unsigned *group_of; /* [world]: the groups of the ranks, `groups` of them */
	unsigned groups, uplinks;
	int (*secret)(void *ctx, const struct control_hello *hello, struct auth_secret *ret, struct rs_err *e);
};

/* The reducer of all jobs with groups is the first of these. */
extern const char *const fake_reducers[FAKE_REDUCERS];

/* A lane without sessions. */
void fw_init(struct fw_world *fw, const struct fw_options *opt);
/* With all ranks attached and, for fw_running, started with `world` processes; START is
 * taken already. */
void fw_attached(struct fw_world *fw, const struct fw_options *opt);
/* lane_abort() for the job. */
void fw_abort(struct fw_world *fw, int code, const char *message);
void fw_running(struct fw_world *fw, const struct fw_options *opt);
void fw_attach(struct fw_world *fw, unsigned rank);
/* An uplink for a group, of the reducer with this index. Returns its place, which takes
 * the place of a rank in the functions below. */
unsigned fw_attach_uplink(struct fw_world *fw, unsigned group, unsigned reducer);
/* Returns the number of places, of ranks and uplinks. */
unsigned fw_places(const struct fw_world *fw);
/* Frees everything; fails the test when the lane did not give all sessions back. */
void fw_close(struct fw_world *fw);

/* All ranks leave, of a job whose operations are done; then the lane is closed. */
void fw_say_goodbye(struct fw_world *fw);

/* Sends a frame of rank. Fills in the header fields that every worker sets (generation,
 * length, checksum). */
void fw_send(struct fw_world *fw, unsigned rank, struct frame f, const void *payload);
void fw_send_type(struct fw_world *fw, unsigned rank, unsigned type);
void fw_send_bytes(struct fw_world *fw, unsigned rank, const void *bytes, size_t len);
/* fw_data returns the header of a contribution to one chunk; fw_contribute sends it with
 * the oracle's values. */
struct frame fw_data(const struct fw_world *fw, unsigned op, unsigned dtype, uint64_t seq, uint64_t count,
		     uint32_t chunk);
void fw_contribute(struct fw_world *fw, unsigned rank, struct frame f);
/* All chunks of an operation. */
void fw_contribute_all(struct fw_world *fw, unsigned rank, struct frame f);

/* Sends HAVE for the same chunk. */
void fw_have(struct fw_world *fw, unsigned rank, struct frame f);
/* Sends KEPT, the answer to FETCH, with the oracle's result. */
void fw_send_kept(struct fw_world *fw, unsigned rank, struct frame f, uint64_t processes);
void fw_send_view(struct fw_world *fw, unsigned rank, const struct control_view *v);

/* Feeds at most max bytes as one recvmsg, and flushes. Returns the number of bytes. */
size_t fw_feed(struct fw_world *fw, unsigned rank, size_t max);
/* Feeds all sent bytes in pieces, the ranks in turn. */
void fw_feed_all(struct fw_world *fw, size_t piece);
/* The same with ranks and sizes of pieces in random order. */
void fw_feed_shuffled(struct fw_world *fw, size_t piece_max);
/* Acts as a driver after each event: sends what is ready and frees closed sessions. */
void fw_flush(struct fw_world *fw);
/* Makes the socket of rank take `room` more bytes. */
void fw_grant(struct fw_world *fw, unsigned rank, size_t room);
/* Closes the peer's end of a connection. */
void fw_close_peer(struct fw_world *fw, unsigned rank);
void fw_tick(struct fw_world *fw, uint64_t ms);

/* Takes the next complete frame that rank received. The payload is valid until the next
 * flush. Returns false if none.
 */
bool fw_take(struct fw_world *fw, unsigned rank, struct frame *f, const uint8_t **payload);
/* The next frame is of that type; returns it. */
struct frame fw_expect(struct fw_world *fw, unsigned rank, unsigned type);
/* The next frame is ABORT with that code and a sentence that holds all the words. */
void fw_expect_abort(struct fw_world *fw, unsigned rank, int code, const char *a, const char *b);
/* The next frame is the RESULT of the contribution f, and its payload what the oracle
 * says. */
void fw_expect_result(struct fw_world *fw, unsigned rank, struct frame f, uint64_t processes);
/* The next frame is a RESULT of it without a payload. */
void fw_expect_head(struct fw_world *fw, unsigned rank, struct frame f);
/* The next frame is VIEW or RESUME. */
struct control_view fw_expect_view(struct fw_world *fw, unsigned rank, unsigned type);
/* Checks that no frame is left. */
void fw_expect_nothing(struct fw_world *fw, unsigned rank);
/* Checks that every connected rank received ABORT with both texts and no frame after it,
 * then closes all. */
void fw_expect_end(struct fw_world *fw, int code, const char *a, const char *b);

void fw_append(struct fw_buffer *b, const void *bytes, size_t len);
/* Takes the next complete frame of a buffer, as fw_take. */
bool fw_take_from(struct fw_buffer *b, struct frame *f, const uint8_t **payload);
/* Fails the test if the lane breaks an invariant. */
void fw_check(const struct fw_world *fw);

/* Returns the number of slots in use. */
unsigned fw_slots_alive(const struct fw_world *fw);

uint32_t fw_random(struct fw_world *fw, uint32_t below);

#endif
