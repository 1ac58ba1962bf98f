/* SPDX-License-Identifier: Apache-2.0 */
/* How busy the links are, and what follows from it. While operations are pending, each
 * rank reads twice a second how long each connection had unacknowledged bytes, and
 * tells its reducer with LOAD. A reducer answers rank 0 with what all ranks have said.
 * Rank 0 measures for how long each link had chunks in flight. It decides (balance.h),
 * sets other shares, or says what they would be. An exchange without operations sends
 * nothing. */
#ifndef RS_AGENT_WORKER_CORE_LOAD_H
#define RS_AGENT_WORKER_CORE_LOAD_H

#include "agent/worker/core/balance.h"
#include "common/error.h"

enum {
	LOAD_MS = 500,
	LOAD_FRESH_MS = 1700,  /* an older answer of a reducer does not count */
	LOAD_SAID_MS = 300000, /* for so long status shows the last sentence */
	LOAD_TEXT = 480,       /* bytes of it */
};

struct exchange;
struct link;

/* Invariant: `on` is true while active_from_ms is not 0, if rank 0 or its reducers want
 * to know. */
struct load_watch {
	bool on;
	uint64_t from_ms;        /* start of this interval */
	uint64_t active_from_ms; /* since when operations are pending; 0: none is */
	uint64_t active_ms;      /* of this interval, before that */
	uint64_t bytes;          /* of results in this interval */
	uint64_t said_ms;        /* when the last sentence was said; 0: never */
	enum balance_kind said;
	char sentence[LOAD_TEXT];
	struct balance balance;
};

/* Starts anew, with a new generation. */
void load_begin(struct load_watch *w);
/* An operation was submitted. */
void load_busy(struct exchange *x, uint64_t now_ms);
/* No operation is pending from now on. */
void load_idle(struct load_watch *w, uint64_t now_ms);
/* Returns for how long chunks were in flight on a link in this interval. */
uint64_t load_flying_ms(const struct link *l, uint64_t now_ms);
/* The last chunk in flight of a link has its result. */
void load_landed(struct link *l, uint64_t now_ms);
/* The view has changed. */
void load_disturbed(struct exchange *x, uint64_t now_ms);
/* LOAD has arrived. Errors: RS_ENOMEM, RS_EPROTO. */
int load_received(struct link *l, uint64_t now_ms, struct rs_err *e);

#endif
