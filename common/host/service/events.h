/* SPDX-License-Identifier: Apache-2.0 */
/* The latest events of a process, with numbers: its log lines about jobs, ranks and
 * itself, for clients of the control service. Memory is fixed: a new event replaces the
 * oldest one, and a slow reader finds a gap in the numbers. One thread owns it. */
#ifndef RS_COMMON_HOST_SERVICE_EVENTS_H
#define RS_COMMON_HOST_SERVICE_EVENTS_H

#include "common/log.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	EVENTS_KEPT = 1024,
	EVENT_NAME = 32,   /* bytes of its name, terminator included */
	EVENT_TEXT = 800,  /* bytes of all its keys and values */
	EVENTS_KINDS = 96, /* names that are counted; events of others are counted together */
};

/* The event that is the record of an ended job. */
#define EVENT_JOB "job-closed"

/* One event. text contains key, value, key, value, ..., each with its terminator; pairs
 * without room are left out. */
struct event {
	uint64_t sequence; /* from 1 on */
	int64_t unix_ms;
	enum rs_log_level level;
	char name[EVENT_NAME];
	unsigned fields_n; /* pairs */
	unsigned text_len;
	char text[EVENT_TEXT];
};

struct events_count {
	char name[EVENT_NAME]; /* "other": all that came after EVENTS_KINDS - 1 names */
	uint64_t n;
};

/* A ring, and how often each name came. Invariant: the event with the number n is at
 * kept[n % EVENTS_KEPT]; the sum of counts is next - 1. */
struct events {
	uint64_t next; /* number of the next event */
	struct event kept[EVENTS_KEPT];
	struct events_count counts[EVENTS_KINDS]; /* in the order in which names came first */
	unsigned counts_n;
};

void events_init(struct events *all);
/* Writes an event without a number. Copies the pairs; numbers become text. */
void event_make(struct event *ret, int64_t unix_ms, enum rs_log_level level, const char *name, const struct rs_kv *kv,
		unsigned n);
/* Gives an event the next number and adds a copy of it. */
void events_put(struct events *all, const struct event *ev);
/* Makes and adds an event. */
void events_add(struct events *all, int64_t unix_ms, enum rs_log_level level, const char *name, const struct rs_kv *kv,
		unsigned n);
/* Returns the number of the oldest event; all->next if there is none. */
uint64_t events_oldest(const struct events *all);
/* Returns an event, valid until the next events_add. NULL: it does not exist yet, or not
 * any more. */
const struct event *events_get(const struct events *all, uint64_t sequence);
/* Returns true if an event belongs to a job. */
bool event_names_job(const struct event *ev, const char *job);

#endif
