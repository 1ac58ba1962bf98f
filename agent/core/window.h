/* SPDX-License-Identifier: Apache-2.0 */
/* How much a link keeps in flight: found from the kernel's signals, not configured.
 *
 * n workers that send to one reducer fill the queue of its switch port, and each worker alone cannot see the others.
 * When the queue overflows, TCP stalls for its retransmission timeout. So the window follows the delay, as TCP Vegas
 * (Brakmo, Peterson 1995) and LEDBAT (RFC 6817) do: while the smoothed round-trip time stays close to the smallest one
 * seen there is room to grow, when it rises the queue is filling. "Close" is a fixed time, or on long links, where that
 * time is but noise, as little as leaves a quarter of a chunk of this link in queues; and it shrinks there not before
 * half a round trip is spent in them, since all ranks wait for the link whose window is the smallest. A retransmission
 * halves it and keeps it from growing for a while, longer each time, for ports whose queue is too short to be seen in
 * the delay. Chunk round trips would not do, since they also contain the wait for slow ranks.
 *
 * With one chunk in flight a link waits for each result before it sends on, and what n ranks have in flight just fills
 * a reducer's port: any delay of one is lost time, and the last link to end makes all wait. So there are two as long as
 * that is no long queue, and two have lost nothing of late.
 *
 * A link that needs several chunks in flight to be busy at all (a long one, or a fast one) makes more noise by itself
 * than that allows. So the window is never below twice what the best recent rate brings within a smallest round trip,
 * after a loss either, as BBR's (Cardwell et al., 2016): less would lower the rate, and twice as much lets it rise. */
#ifndef RS_AGENT_CORE_WINDOW_H
#define RS_AGENT_CORE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

enum {
	WINDOW_ROOM_US = 250,      /* queueing delay below which the window grows */
	WINDOW_FULL_US = 1000,     /* and above which it shrinks, or half the smallest round trip if that is longer */
	WINDOW_PAIR_US = 1500,     /* up to which two chunks are in flight, unless two were too many .. */
	WINDOW_SINGLE_MS = 60000,  /* .. within this time */
	WINDOW_HOLD_MIN_MS = 1000, /* no growth after a loss, doubled by each further one */
	WINDOW_HOLD_MAX_MS = 60000,
	WINDOW_SPAN_MS = 20, /* the rate is measured over that, or WINDOW_SPAN_RTTS smallest round trips if longer */
	WINDOW_SPAN_RTTS = 4,
	WINDOW_RATE_FADES = 32, /* a better rate of before loses that part with each span */
	/* in flight within a machine: enough for neither side to wait for the other to be scheduled, and little enough
	 * for what waits in sockets to stay in the caches. 4 ranks and 2 reducers on 2 cores, MB/s at 4 / 16 MiB:
	 * 64 KiB 790 / 632, 128 KiB 975 / 869, 256 KiB 1144 / 1120, 512 KiB 1270 / 1076, 1 MiB 892 / 960 */
	WINDOW_LOCAL_BYTES = 512 << 10,
	/* and over gRPC, where what waits is there twice: its copies and the kernel's. The same at 4 / 64 MiB: 256 KiB
	 * 548 / 621, 512 KiB 406 / 559, 1 MiB 372 / 473 (another day) */
	WINDOW_LOCAL_GRPC_BYTES = 256 << 10,
};

/* Invariant: 1 <= limit <= most. */
struct window {
	uint32_t unit;    /* bytes of a full chunk */
	uint32_t limit;   /* full chunks, or as many bytes of smaller ones, that may be in flight */
	uint32_t most;    /* chunks of any size: as configured, and as the reducer expects */
	uint64_t results; /* bytes of this round: a round is as many results as the limit */
	bool limited;     /* the limit kept a chunk back in this round */
	bool local;       /* a signal said so: there is nothing more to find out */
	bool starting;    /* no congestion was seen yet: the window doubles */
	uint64_t lost;    /* retransmitted segments at the last signal */
	uint64_t hold_until_ms;
	uint64_t single_until_ms;      /* until then two chunks are too many */
	uint64_t ignore_loss_until_ms; /* a loss until then belongs to the one before */
	uint32_t hold_ms;
	uint64_t span_from_ms;
	uint64_t span_bytes; /* of results that came since then */
	uint64_t rate;       /* bytes of results a second in the best of the recent spans */
};

/* What the kernel says of a connection (TCP_INFO). */
struct window_signal {
	uint32_t rtt_us; /* smoothed */
	uint32_t min_rtt_us;
	uint64_t lost; /* segments retransmitted since the connection was made */
	/* Both ends are on this machine: there is no port whose queue could overflow, and this is what is to be in
	 * flight; 0: they are not. */
	uint32_t local_bytes;
	bool single_chunk; /* two chunks in flight are not better than one */
};

/* Begins small when it is going to have signals, else as large as it may be. */
void window_init(struct window *w, uint32_t unit, uint32_t most, bool adaptive);
/* May a chunk of `bytes` go out while `chunks` with `flying` bytes in all are in flight? One always may. */
bool window_open(struct window *w, uint32_t chunks, uint64_t bytes_in_flight, uint32_t bytes);
/* The result of a chunk of `bytes` came. True at the end of a round that wants a signal. */
bool window_result(struct window *w, uint32_t bytes);
void window_signal(struct window *w, const struct window_signal *s, uint64_t now_ms);

#endif
