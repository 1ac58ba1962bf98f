/* SPDX-License-Identifier: Apache-2.0 */
/* Which shares the reducers should have, from how busy the links to them are.
 *
 * Chunks go to the reducers in turns, and a link may be only a little ahead of the
 * slowest one. So while ranks communicate, the link to the slowest reducer has chunks
 * in flight all the time, and the others wait for it: they have chunks in flight in the
 * same part of the time in which their share needs them. A reducer with share s whose
 * link is busy for the part b of the time could do s / b in all of it. Shares in
 * proportion to s / b make all of them busy equally long. b does not depend on what is
 * slow, the network or the processors; and not on a rank that is slow everywhere, which
 * all links wait for. On long links all of them always have chunks in flight, and
 * nothing is proposed.
 *
 * A path that is slow alone looks like a slow reducer, since all ranks wait for it. But
 * then only one rank's connection to that reducer has unacknowledged bytes for most of
 * the time. Such a path is often an accident: switches choose one of several ways by a
 * connection's ports, and two busy connections met on one way. So all ranks connect to
 * that reducer anew, from other ports; after an attempt that did not help, the next one
 * comes later each time. Shares follow only if the path stays slow for BALANCE_PATIENCE
 * windows. A rank whose connections to most reducers are like that is named too, and no
 * share helps.
 *
 * A change stops all links for a round trip, so it is made only if it is expected to
 * save BALANCE_GAIN of the time that ranks communicate, twice in a row, in a second
 * each; not within BALANCE_PAUSE_MS of the last change of the view, and later each time
 * that a change did not pay. One that made it worse is taken back. Where the shares of
 * the configuration do nearly as well as the best ones they are taken, for a smaller gain
 * and without a pause, so shares do not wander. On a network with
 * other traffic, reducers are slow for some seconds now and then: each time that a change
 * is undone soon, the second becomes BALANCE_CAREFUL times as long. It is a second again
 * after BALANCE_FORGET_MS in which that did not happen.
 *
 * Pure functions; a struct belongs to one thread. */
#ifndef RS_AGENT_WORKER_CORE_BALANCE_H
#define RS_AGENT_WORKER_CORE_BALANCE_H

#include "config/exchange_params.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	BALANCE_PERMIL = 1000,
	BALANCE_GAIN = 100,  /* least expected gain, in 1/1000 of the time */
	BALANCE_HOME = 30,   /* the same of a return to the shares of the configuration */
	BALANCE_BUSY = 600,  /* below it nothing waits for the slowest reducer: latency or computing decides */
	BALANCE_ACTIVE = 50, /* with fewer operations than this nothing can be said */
	BALANCE_ALONE = 3,   /* a path is slow alone if it is busy for so many times the median; a rank for one less */
	BALANCE_WINDOW_MS = 1000, /* the time over which samples are summed at first */
	BALANCE_WINDOW_MAX_MS = 64000,
	BALANCE_CAREFUL = 8,
	BALANCE_SOON = 60, /* a change that was undone within so many windows was made for an accident */
	BALANCE_FORGET_MS = 3600000,
	BALANCE_PATIENCE = 5,    /* windows */
	BALANCE_ANEW_MS = 60000, /* least time between two attempts with other ports */
	BALANCE_ANEW_MAX_MS = 3600000,
	BALANCE_PAUSE_MS = 5000,
	BALANCE_HOME_MS = 2000, /* least time between a change and that return */
	BALANCE_PAUSE_MAX_MS = 320000,
	BALANCE_SUM = 10000, /* about the sum of the shares that are proposed */
};

/* What is known of a reducer in one sample. Times are in 1/1000 of the sample's time. */
struct balance_reducer {
	bool lives;
	uint32_t share;     /* what it has now, in any unit, at least 1 */
	uint32_t busy;      /* in which chunks were in flight */
	uint32_t processor; /* in which the busiest of its threads ran or waited for a core */
	uint32_t path;      /* in which the connection of the median rank had unacknowledged bytes; 0: not known */
	uint32_t most;      /* the same of the rank with the most; 0: not known */
	uint32_t most_rank;
	uint32_t home; /* the share of the configuration, in any unit */
};

enum balance_kind {
	BALANCE_EVEN,      /* nothing to do */
	BALANCE_SHARES,    /* other shares are expected to pay */
	BALANCE_BACK,      /* the last change made it worse: the shares before it */
	BALANCE_SLOW_RANK, /* `rank` is slow at most reducers */
	BALANCE_SLOW_PATH, /* the path between `rank` and `reducer` is slow alone */
	BALANCE_ANEW,      /* the same, and connections from other ports may find another way */
};

struct balance_verdict {
	enum balance_kind kind;
	uint32_t shares[RS_REDUCERS_MAX]; /* BALANCE_SHARES, BALANCE_BACK: 1 to 65535 */
	unsigned reducer;                 /* BALANCE_SHARES: the busiest one; BALANCE_SLOW_PATH, BALANCE_ANEW */
	uint32_t rank;
	uint32_t busy, others; /* 1/1000 of the communication: of that reducer or path; of the median of the others */
	uint32_t gain;         /* BALANCE_SHARES: 1/1000 of the communication that is expected to be saved */
	bool home;             /* BALANCE_SHARES: those of the configuration */
};

/* Sums of samples. */
struct balance_window {
	uint64_t ms, active, bytes; /* active: ms x 1/1000 */
	uint64_t busy[RS_REDUCERS_MAX], path[RS_REDUCERS_MAX], most[RS_REDUCERS_MAX];
	uint32_t most_rank[RS_REDUCERS_MAX];
};

/* A change of the shares: the part of all shares, in 1/1000, that the reducer with the
 * largest loss had before and has since. */
struct balance_move {
	unsigned reducer;
	uint32_t from, to;
	uint64_t at_ms;
};

/* Invariant: `now` has less than window_ms. */
struct balance {
	struct balance_window now;
	uint32_t window_ms;
	uint64_t undone_ms;        /* when a change was undone soon */
	struct balance_move moved; /* the last change */
	enum balance_kind last;    /* of the last complete window */
	unsigned last_about;       /* which reducer, or rank; RS_REDUCERS_MAX: the shares of the configuration */
	unsigned slow_paths;       /* windows in a row with BALANCE_SLOW_PATH */
	uint64_t changed_ms;       /* the last change of the view */
	uint32_t pause_ms;         /* no change for so long after it */
	uint64_t anew_ms;          /* no new connections before this time */
	uint32_t anew_pause_ms;    /* the pause before it; 0: none were made */
	bool tried;                /* a change was made whose effect is not judged yet */
	bool settling;             /* its first window has passed */
	uint64_t rate;             /* bytes a second of communication in the last complete window */
	uint64_t before;           /* the same before the change */
	uint32_t expected;         /* its gain */
	uint32_t shares_before[RS_REDUCERS_MAX];
};

void balance_init(struct balance *b);
/* The view has changed, by a loss or a return or by new shares: what was measured before
 * does not count any more. */
void balance_disturbed(struct balance *b, uint64_t now_ms);
/* Adds a sample of `ms` milliseconds: the part of them in which operations were pending,
 * in 1/1000, and the bytes of results. `r` has an entry for each of the n reducers of the
 * configuration. Sets *ret; BALANCE_SHARES, BALANCE_BACK and BALANCE_ANEW ask for a
 * change. */
void balance_sample(struct balance *b, const struct balance_reducer *r, unsigned n, uint32_t ms, uint32_t active,
		    uint64_t bytes, uint64_t now_ms, struct balance_verdict *ret);
/* The proposed change was made. */
void balance_applied(struct balance *b, const struct balance_reducer *r, unsigned n, const struct balance_verdict *v,
		     uint64_t now_ms);

#endif
