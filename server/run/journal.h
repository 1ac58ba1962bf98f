/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a reducer, said once: a line of its log, and an event for those who read along. */
#ifndef RS_SERVER_RUN_JOURNAL_H
#define RS_SERVER_RUN_JOURNAL_H

#include "server/jobs/events.h"

/* The thread of the accept loop owns it. */
struct journal {
	struct rs_log *log;          /* borrowed */
	struct events events;        /* all of level info and above, whatever the log's level is */
	void (*happened)(void *ctx); /* a new event is there; may be NULL */
	void *ctx;
};

void journal_init(struct journal *j, struct rs_log *log);
/* As rs_log_write. */
void journal_write(struct journal *j, enum rs_log_level level, const char *event, const struct rs_kv *kv, unsigned n);

/* As rs_log: journal(j, RS_LOG_INFO, "draining", rs_kv_u("jobs", 3)); at least one pair. */
#define journal(j, level, event, ...)                                                                                  \
	journal_write((j), (level), (event), (const struct rs_kv[]){__VA_ARGS__},                                      \
		      sizeof((const struct rs_kv[]){__VA_ARGS__}) / sizeof(struct rs_kv))

/* The time of day in milliseconds since 1970. */
int64_t journal_unix_ms(void);

#endif
