/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rpc/grpc_priv.h"

#include <grpc/support/log.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 400 };

/* The only variable of the module: gRPC has one log function for the process, and passes
 * it no argument of ours. */
static struct {
	pthread_mutex_t lock;
	struct log_sink *first;
} sinks = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void log_on_line(gpr_log_func_args *args)
{
	char text[LINE_MAX_BYTES];

	if (args->severity < GPR_LOG_SEVERITY_ERROR)
		return;
	snprintf(text, sizeof text, "%s", args->message);
	text[strcspn(text, "\n")] = '\0';
	pthread_mutex_lock(&sinks.lock);
	for (struct log_sink *s = sinks.first; s; s = s->next)
		s->log(s, text);
	pthread_mutex_unlock(&sinks.lock);
}

void log_add(struct log_sink *sink)
{
	pthread_mutex_lock(&sinks.lock);
	sink->next = sinks.first;
	sinks.first = sink;
	pthread_mutex_unlock(&sinks.lock);
	gpr_set_log_function(log_on_line);
}

void log_remove(struct log_sink *sink)
{
	struct log_sink **at = &sinks.first;
	bool last;

	pthread_mutex_lock(&sinks.lock);
	while (*at != sink)
		at = &(*at)->next;
	*at = sink->next;
	last = !sinks.first;
	pthread_mutex_unlock(&sinks.lock);
	if (last)
		gpr_set_log_function(NULL);
}
