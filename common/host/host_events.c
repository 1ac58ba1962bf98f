/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of the log become events. One of the loop's thread does at once; one of another
 * thread waits in a list, and wakes the loop. */
#include "common/host/host_state.h"

#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 256 }; /* lines that wait to become events */

static void host_on_other_line(struct host *h, enum rs_log_level level, const char *event, const struct rs_kv *kv,
			       unsigned n)
{
	struct host_line *line = malloc(sizeof *line);

	if (!line)
		return;
	event_make(&line->event, host_unix_ms(), level, event, kv, n);
	line->next = NULL;
	pthread_mutex_lock(&h->lock);
	if (h->lines_n < LINES_MAX) {
		*h->lines_end = line;
		h->lines_end = &line->next;
		h->lines_n++;
		line = NULL;
	}
	pthread_mutex_unlock(&h->lock);
	free(line);
	host_wake(h);
}

static void host_add_record(struct host *h, enum rs_log_level level, const struct rs_kv *kv, unsigned n)
{
	struct rs_err e;

	events_add(h->jobs, host_unix_ms(), level, EVENT_JOB, kv, n);
	if (h->records.fd >= 0 && record_file_add(&h->records, h->jobs, &e))
		rs_log(h->opt.log, RS_LOG_WARN, "record-lost", rs_kv_s("reason", e.msg));
}

static void host_on_line(void *ctx, enum rs_log_level level, const char *event, const struct rs_kv *kv, unsigned n)
{
	struct host *h = ctx;

	if (!pthread_equal(pthread_self(), h->thread)) {
		host_on_other_line(h, level, event, kv, n);
		return;
	}
	host_events_take(h); /* they came earlier */
	events_add(h->events, host_unix_ms(), level, event, kv, n);
	if (!strcmp(event, EVENT_JOB))
		host_add_record(h, level, kv, n);
	service_event_added(control_uv_service(h->control));
}

void host_events_take(struct host *h)
{
	struct host_line *line, *next;

	pthread_mutex_lock(&h->lock);
	line = h->lines;
	h->lines = NULL;
	h->lines_end = &h->lines;
	h->lines_n = 0;
	pthread_mutex_unlock(&h->lock);
	for (; line; line = next) {
		next = line->next;
		events_put(h->events, &line->event);
		free(line);
		service_event_added(control_uv_service(h->control));
	}
}

void host_events_start(struct host *h)
{
	h->opt.log->tap_ctx = h;
	h->opt.log->tap_level = RS_LOG_INFO;
	h->opt.log->tap = host_on_line;
}

void host_events_stop(struct host *h)
{
	h->opt.log->tap = NULL;
}

void host_events_free(struct host *h)
{
	struct host_line *next;

	for (struct host_line *line = h->lines; line; line = next) {
		next = line->next;
		free(line);
	}
}
