/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: writes a line to the reducer's log, and stores it as an event for clients of the control service. */
#ifndef RS_SERVER_RUN_JOURNAL_H
#define RS_SERVER_RUN_JOURNAL_H

#include "common/host/service/events.h"

/* The thread of the accept loop owns it. Invariant: events contains the last lines of level info and above. */
struct journal {
	struct rs_log *log;             /* borrowed */
	struct events events;           /* all lines of level info and above, for every level of the log */
	void (*event_added)(void *ctx); /* called after each new event; may be NULL */
	void *ctx;
};

void journal_init(struct journal *j, struct rs_log *log);
/* Writes a line and adds an event, as rs_log_write. */
void journal_write(struct journal *j, enum rs_log_level level, const char *event, const struct rs_kv *kv, unsigned n);

/* As rs_log: journal(j, RS_LOG_INFO, "draining", rs_kv_u("jobs", 3)); at least one pair. */
#define journal(j, level, event, ...)                                                                                  \
	journal_write((j), (level), (event), (const struct rs_kv[]){__VA_ARGS__},                                      \
		      sizeof((const struct rs_kv[]){__VA_ARGS__}) / sizeof(struct rs_kv))

/* Returns the time of day in milliseconds since 1970. */
int64_t journal_unix_ms(void);

#endif
