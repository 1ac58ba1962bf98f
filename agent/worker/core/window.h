/* SPDX-License-Identifier: Apache-2.0 */
/* The window of a link: how much it keeps in flight. It is derived from the kernel's
 * signals, not configured.
 *
 * n workers that send to one reducer fill the queue of its switch port, and no worker
 * sees the others. When the queue overflows, TCP stalls for its retransmission timeout.
 * So the window follows the delay, as TCP Vegas (Brakmo, Peterson 1995) and LEDBAT (RFC
 * 6817) do: it may grow while the smoothed round-trip time is close to the smallest one
 * seen, and shrinks when the time rises because the queue fills. "Close" is a fixed time.
 * On long links, where that time is noise, it means that less than a quarter of a chunk
 * of this link waits in queues; there the window shrinks only when half a round trip is
 * spent in queues, since all ranks wait for the link with the smallest window. A
 * retransmission halves the window and stops its growth for a while, longer each time:
 * some ports have queues too short to be seen in the delay. Chunk round trips are no
 * signal, since they contain the wait for slow ranks.
 *
 * With one chunk in flight a link waits for each result before it sends again, and n
 * ranks just fill a reducer's port: any delay of one rank is lost time, and all wait for
 * the last link. So there are two chunks in flight while the queue is short and two
 * caused no loss recently.
 *
 * A long or fast link needs several chunks in flight to be busy at all and makes more
 * noise than the rule above allows. So the window is never below twice what the best
 * recent rate brings within the smallest round trip, also after a loss, as in BBR
 * (Cardwell et al., 2016): less would lower the rate, and twice as much lets it rise.
 *
 * A chunk that a relay passes on to a far home has several hops before it. The link to
 * the relay is short, and other connections fill its queue: results, and sums from afar.
 * So `least` chunks may be on this hop whatever the delay is (lookahead.h): 16 MiB in two
 * zones 20 ms apart, CUBIC, MB/s: 19.2 with 1 chunk, 20.9 with 3, 22.7 with 6.
 *
 * On a long link with BBR none of this is needed: the kernel fills no queue, and a
 * smaller window would only take from it what it may send while lost segments are
 * repaired. There the window is as large as it may be, from the first chunk on and after
 * each pause. CUBIC and Reno send until a queue overflows, and then all ranks wait for
 * the repair: 4 ranks and 4 reducers with 100 ms made 9 MB/s without a window, 22 with
 * it, on links of 60. */
#ifndef RS_AGENT_WORKER_CORE_WINDOW_H
#define RS_AGENT_WORKER_CORE_WINDOW_H

#include "config/exchange_params.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	WINDOW_ROOM_US = 250, /* queueing delay below which the window grows */
	WINDOW_FULL_US =
	    1000, /* queueing delay above which it shrinks, or half the smallest round trip if that is longer */
	WINDOW_PAIR_US = 1500,     /* queueing delay up to which two chunks are in flight, except .. */
	WINDOW_SINGLE_MS = 60000,  /* .. for this time after two chunks were too many */
	WINDOW_HOLD_MIN_MS = 1000, /* no growth for this time after a loss; doubled by each further one */
	WINDOW_HOLD_MAX_MS = 60000,
	WINDOW_SPAN_MS = 20, /* interval of a rate measurement, or WINDOW_SPAN_RTTS smallest round trips if longer */
	WINDOW_SPAN_RTTS = 4,
	WINDOW_RATE_FADES = 32, /* an earlier, better rate loses 1/32 with each interval */
	/* bytes in flight within a machine: enough that neither side waits for the other
	 * to be scheduled, and little enough that data in sockets stays in the caches. 4
	 * ranks and 2 reducers on 2 cores, MB/s at 4 / 16 MiB: 64 KiB 790 / 632, 128 KiB
	 * 975 / 869, 256 KiB 1144 / 1120, 512 KiB 1270 / 1076, 1 MiB 892 / 960 */
	WINDOW_LOCAL_BYTES = 512 << 10,
	/* the same over gRPC, where waiting data exists twice: in gRPC's and in the
	 * kernel's buffers. At 4 / 64 MiB: 256 KiB 548 / 621, 512 KiB 406 / 559, 1 MiB
	 * 372 / 473 (on another day) */
	WINDOW_LOCAL_GRPC_BYTES = 256 << 10,
};

/* The window of one link. Invariant: 1 <= limit <= most, from the first connection on. */
struct window {
	uint32_t unit;    /* bytes of a full chunk */
	uint32_t limit;   /* most full chunks, or as many bytes of smaller ones, in flight */
	uint32_t most;    /* most chunks of any size: as configured, and as the reducer expects */
	uint32_t least;   /* delay alone does not make the limit smaller */
	uint64_t results; /* bytes of results in this round; a round has as many results as the limit */
	bool limited;     /* the limit held a chunk back in this round */
	bool far;         /* the link is long, and its kernel limits itself: the limit is the most */
	bool local;       /* both ends are on this machine: the limit is fixed */
	bool starting;    /* no congestion was seen yet: the window doubles */
	uint64_t lost;    /* retransmitted segments at the last signal */
	uint64_t hold_until_ms;
	uint64_t single_until_ms;      /* until then two chunks are too many */
	uint64_t ignore_loss_until_ms; /* a loss until then belongs to the previous one */
	uint32_t hold_ms;
	uint64_t span_from_ms;
	uint64_t span_bytes; /* bytes of results since then */
	uint64_t rate;       /* bytes of results per second in the best recent interval */
};

/* The kernel's signals of a connection (TCP_INFO). */
struct window_signal {
	uint32_t rtt_us; /* smoothed */
	uint32_t min_rtt_us;
	uint64_t lost; /* segments retransmitted since the connection was made */
	/* Both ends are on this machine, so no port can overflow: this many bytes should
	 * be in flight. 0: they are not. */
	uint32_t local_bytes;
	bool paced;        /* congestion control follows rate and round trip (BBR), and does not fill queues */
	uint64_t estimate; /* bytes a second that it can carry, as congestion control says; 0: not known yet */
	bool single_chunk; /* two chunks in flight are not better than one */
};

/* Starts with one chunk if there will be signals and the link is not `far`, else with
 * `most`. */
void window_init(struct window *w, uint32_t unit, uint32_t most, bool adaptive, bool far);
/* The connection is used for another job, whose reducer expects so many chunks. */
void window_narrow(struct window *w, uint32_t most);
/* The reducer expects more chunks, `most`. */
void window_widen(struct window *w, uint32_t most);
/* Delay alone makes the limit no smaller than `least`; one of 1 is as good as none. */
void window_keep(struct window *w, uint32_t least);
/* Returns whether a chunk of `bytes` bytes may be sent while `chunks` chunks with
 * bytes_in_flight bytes are in flight. One chunk always may. */
bool window_open(struct window *w, uint32_t chunks, uint64_t bytes_in_flight, uint32_t bytes);
/* The result of a chunk of `bytes` bytes has arrived. Returns true at the end of a round:
 * a signal is wanted. */
bool window_result(struct window *w, uint32_t bytes);
void window_signal(struct window *w, const struct window_signal *s, uint64_t now_ms);

#endif
