/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/journal.h"

#include <time.h>

int64_t journal_unix_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void journal_init(struct journal *j, struct rs_log *log)
{
	j->log = log;
	j->event_added = NULL;
	events_init(&j->events);
}

void journal_write(struct journal *j, enum rs_log_level level, const char *event, const struct rs_kv *kv, unsigned n)
{
	rs_log_write(j->log, level, event, kv, n);
	if (level > RS_LOG_INFO)
		return;
	events_add(&j->events, journal_unix_ms(), level, event, kv, n);
	if (j->event_added)
		j->event_added(j->ctx);
}
