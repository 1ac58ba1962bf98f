/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted workers around one lane core, all in memory: what they say is encoded here and fed in pieces of any size,
 * what the core sends is taken in pieces of any size and decoded. Stands where lane_uv.c and the registry stand in the
 * daemon: it attaches, flushes, closes what is over and frees a stripe's memory when its last session is gone. */
#ifndef RS_TESTS_UNIT_FAKE_WORKER_H
#define RS_TESTS_UNIT_FAKE_WORKER_H

#include "proto/control.h"
#include "server/core/lane.h"
#include "server/core/stripe.h"

#include <check.h>

enum {
	FAKE_WORLD_MAX = 65,
	FAKE_DETECT_MS = 1000,
	FAKE_JOB = 77,
	FAKE_GENERATION = 5,
};

/* ck_assert writes to a file each time it holds, which is too slow for what is checked a million times. */
#define must(condition) ((condition) ? (void)0 : ck_abort_msg("this does not hold: %s", #condition))

struct fw_buffer {
	uint8_t *at;
	size_t len, size, off; /* off: consumed */
};

struct fw_worker {
	struct fw_world *fw;
	unsigned rank;
	struct session *session; /* NULL: gone */
	struct fw_buffer out;    /* said, not fed yet */
	struct fw_buffer in;     /* received, not taken yet */
	size_t room;             /* bytes its socket still takes; SIZE_MAX: any number */
	bool write_wait;
	bool shut; /* the core has ended its sending side */
};

struct fw_world {
	struct lane *lane;
	struct stripe_params params;
	struct fw_worker w[FAKE_WORLD_MAX];
	uint64_t now_ms;
	size_t out_piece;                  /* most bytes of one sendmsg */
	unsigned failed, gone, lost, late; /* events */
	unsigned clean;                    /* of those gone */
	struct rs_err why;                 /* of the last LANE_FAILED */
	struct lane_event event;           /* the last LANE_LOST or LANE_LATE */
	unsigned slots_seen_max;           /* most slots that were alive at once */
	uint32_t random;
};

/* What differs from {world 2, window 4, one priority, chunks of 64 bytes}. */
struct fw_options {
	unsigned world, window, priorities;
	uint32_t chunk_bytes;
	bool deterministic, checksum, retain;
	const struct rs_kernels *kernels;
	uint32_t detect_ms;
};

/* A lane without sessions. */
void fw_init(struct fw_world *fw, const struct fw_options *opt);
/* With all ranks attached and, for fw_running, started with `world` processes; START is taken already. */
void fw_attached(struct fw_world *fw, const struct fw_options *opt);
void fw_running(struct fw_world *fw, const struct fw_options *opt);
void fw_attach(struct fw_world *fw, unsigned rank);
/* Frees everything; fails the test when the lane did not give all sessions back. */
void fw_close(struct fw_world *fw);

/* rank says a frame; header fields that a worker always sets are filled in (generation, length, checksum). */
void fw_say(struct fw_world *fw, unsigned rank, struct frame f, const void *payload);
void fw_say_type(struct fw_world *fw, unsigned rank, unsigned type);
void fw_say_bytes(struct fw_world *fw, unsigned rank, const void *bytes, size_t len);
/* The header of rank's contribution to one chunk, and that contribution said with the oracle's values. */
struct frame fw_data(const struct fw_world *fw, unsigned op, unsigned dtype, uint64_t seq, uint64_t count,
		     uint32_t chunk);
void fw_contribute(struct fw_world *fw, unsigned rank, struct frame f);
/* All chunks of an operation. */
void fw_contribute_all(struct fw_world *fw, unsigned rank, struct frame f);

/* The same chunk, of which rank has the result already. */
void fw_have(struct fw_world *fw, unsigned rank, struct frame f);
/* The answer to FETCH: the oracle's result. */
void fw_keep(struct fw_world *fw, unsigned rank, struct frame f, uint64_t processes);
void fw_say_view(struct fw_world *fw, unsigned rank, const struct control_view *v);

/* One recvmsg of at most max bytes, and the flush after it. Returns how many were taken. */
size_t fw_feed(struct fw_world *fw, unsigned rank, size_t max);
/* Everything that was said, in pieces, the ranks in turn. */
void fw_feed_all(struct fw_world *fw, size_t piece);
/* The same, but who is next and how much is random. */
void fw_feed_shuffled(struct fw_world *fw, size_t piece_max);
/* As a driver after each event: sends what is ready, frees what is over. */
void fw_flush(struct fw_world *fw);
/* The socket of rank takes `room` bytes more. */
void fw_grant(struct fw_world *fw, unsigned rank, size_t room);
/* The peer closed its end. */
void fw_hang_up(struct fw_world *fw, unsigned rank);
void fw_tick(struct fw_world *fw, uint64_t ms);

/* The next complete frame that rank received; the payload is valid until the next flush. False: none. */
bool fw_take(struct fw_world *fw, unsigned rank, struct frame *f, const uint8_t **payload);
/* The next frame is of that type; returns it. */
struct frame fw_expect(struct fw_world *fw, unsigned rank, unsigned type);
/* The next frame is ABORT with that code and a sentence that holds all the words. */
void fw_expect_abort(struct fw_world *fw, unsigned rank, int code, const char *a, const char *b);
/* The next frame is the RESULT of the contribution f, and its payload what the oracle says. */
void fw_expect_result(struct fw_world *fw, unsigned rank, struct frame f, uint64_t processes);
/* The next frame is a RESULT of it without a payload. */
void fw_expect_head(struct fw_world *fw, unsigned rank, struct frame f);
/* The next frame is VIEW or RESUME. */
struct control_view fw_expect_view(struct fw_world *fw, unsigned rank, unsigned type);
/* Nothing is there to be taken. */
void fw_expect_nothing(struct fw_world *fw, unsigned rank);
/* Every rank that is still listening heard ABORT with both texts and nothing behind it; then all go: closes. */
void fw_expect_end(struct fw_world *fw, int code, const char *a, const char *b);

/* The stripe's books balance: free and alive slots together are all, nothing is unsent that nobody has queued. */
unsigned fw_slots_alive(const struct fw_world *fw);

uint32_t fw_random(struct fw_world *fw, uint32_t below);

#endif
