/* SPDX-License-Identifier: Apache-2.0 */
/* The last events of a reducer, numbered: what its log says of jobs, ranks and itself, for whoever comes later or reads
 * along. Memory is fixed: a new event takes the place of the oldest, and a reader that is too slow finds a gap in the
 * numbers. One thread owns it. */
#ifndef RS_SERVER_JOBS_EVENTS_H
#define RS_SERVER_JOBS_EVENTS_H

#include "common/log.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	EVENTS_KEPT = 1024,
	EVENT_NAME = 32,  /* bytes of its name, terminator included */
	EVENT_TEXT = 800, /* bytes of all its keys and values */
};

/* fields: key, value, key, value, .., each with its terminator; what had no room is left out. */
struct event {
	uint64_t sequence; /* from 1 on */
	int64_t unix_ms;
	enum rs_log_level level;
	char name[EVENT_NAME];
	unsigned fields_n; /* pairs */
	unsigned text_len;
	char text[EVENT_TEXT];
};

struct events {
	uint64_t next; /* sequence of the next one */
	struct event kept[EVENTS_KEPT];
};

void events_init(struct events *all);
/* The pairs are copied; numbers become text. */
void events_add(struct events *all, int64_t unix_ms, enum rs_log_level level, const char *name, const struct rs_kv *kv,
		unsigned n);
/* The oldest that is kept; equal to all->next when there is none. */
uint64_t events_oldest(const struct events *all);
/* NULL: it is not there yet, or not any more. Valid until the next events_add. */
const struct event *events_get(const struct events *all, uint64_t sequence);

#endif
