/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of what an exchange knows of its reducers, for status services. The thread that
 * runs the exchange fills it; afterwards any thread may read it. */
#ifndef RS_AGENT_WORKER_CORE_REPORT_H
#define RS_AGENT_WORKER_CORE_REPORT_H

#include "agent/worker/core/exchange.h"

enum {
	REPORT_WHY = 508,      /* bytes of a reason, as in struct rs_err */
	REPORT_TRANSPORT = 16, /* bytes of "tcp", "tcp+tls", ... */
	REPORT_TEXT = 480,     /* bytes of a sentence */
};

enum report_reach {
	REPORT_CONNECTING, /* not all of its lanes have joined, or not all ranks have */
	REPORT_CONNECTED,
	REPORT_LOST,  /* other reducers have its shards */
	REPORT_EMPTY, /* its slot is empty: it has not come yet or has left, and other reducers have its shards */
};

/* One reducer of the configuration. */
struct report_reducer {
	char id[RS_NAME_MAX], address[RS_ADDRESS_MAX];
	enum report_reach reach;
	uint64_t for_ms;              /* time in this state */
	char why[REPORT_WHY];         /* why it is not connected; "": not known */
	bool narrow;                  /* because only small messages came through */
	unsigned tries;               /* attempts to connect, of the lane with the most */
	unsigned lanes, lanes_up;     /* connections; those that have joined */
	unsigned shards, home_shards; /* that it owns now; that it owns while no reducer is lost */
	uint32_t losses, returns;     /* how often it was lost in this job, and came back */
	uint64_t retransmits;         /* segments sent again on its connections; the driver sets it */
	uint32_t window, window_max;  /* chunks that may be in flight on a lane, the fewest of its lanes; their limit */
	uint32_t rtt_us, min_rtt_us;  /* round trip, and the smallest one lately; the driver sets them; 0: not known */
};

/* One exchange. Invariant: alive counts the reducers that are not
 * REPORT_LOST or REPORT_EMPTY, and empty the latter. */
struct exchange_report {
	bool filled; /* exchange_report has filled it */
	enum exchange_state state;
	char transport[REPORT_TRANSPORT];
	uint64_t age_ms;           /* since the exchange was made */
	uint64_t running_ms;       /* since all ranks had joined; 0: not yet */
	uint64_t operations;       /* that were completed without an error */
	uint64_t pending;          /* that were started and are not complete */
	uint64_t retained_bytes;   /* that retained results can take */
	uint32_t share_changes;    /* how often rank 0 has set shares */
	char balance[REPORT_TEXT]; /* rank 0: what was said last of shares, in the last minutes; "": nothing */
	char waiting[REPORT_TEXT]; /* who is missing; "": nobody, or not known yet */
	uint64_t degraded_ms; /* since the first of the reducers that are lost now was lost; 0: it needs none of them */
	unsigned reducers_n, alive, empty, shards_n;
	struct report_reducer *reducers; /* [reducers_n] */
	uint16_t *owner, *home; /* [shards_n]: index of the reducer that owns the shard now, and by the configuration */
};

/* Allocates a report for an exchange with this configuration; the caller releases it with
 * free(). NULL: no memory. */
struct exchange_report *exchange_report_new(unsigned reducers, unsigned shards);
/* Fills a report. Belongs to the thread of the exchange. */
void exchange_report(const struct exchange *x, uint64_t now_ms, struct exchange_report *ret);
/* Lists the reducers that have shards of reducer `lost`: sets has[i] for each. Returns
 * how many there are. */
unsigned exchange_report_holders(const struct exchange_report *r, unsigned lost, bool has[RS_REDUCERS_MAX]);

#endif
