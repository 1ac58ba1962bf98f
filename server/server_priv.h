/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the server: its loop (server_uv.c), and what it is told to do while it runs (server_steer_uv.c). */
#ifndef RS_SERVER_SERVER_PRIV_H
#define RS_SERVER_SERVER_PRIV_H

#include "server/admission.h"
#include "server/areas.h"
#include "server/greeting.h"
#include "server/journal.h"
#include "server/lane_uv.h"
#include "server/listener.h"
#include "server/server_uv.h"

/* Events that are logged within limits. */
enum limited { LIMITED_REFUSED, LIMITED_DESCRIPTORS, LIMITED_JOBS, LIMITED_LATE, LIMITED_NR };

struct listening {
	uv_poll_t poll;
	int fd;
};

struct server {
	const struct rs_config *cfg;
	const char *config_file;
	struct rs_config as_read; /* the file's scalars, without what the command line overrides */
	struct rs_log *log;
	struct journal journal; /* over that log */
	uv_loop_t loop;
	struct mailbox in; /* from the lanes */
	struct registry *registry;
	struct admission admission;
	struct greetings *greetings;
	struct areas *areas;
	struct rs_log_limit limits[LIMITED_NR];
	struct lane_thread **lanes;
	unsigned lanes_n;
	struct listening listening[LISTENER_MAX];
	int listening_n;
	uv_signal_t signals[3]; /* SIGTERM, SIGINT, SIGHUP */
	uv_timer_t tick;        /* the registry's; during a drain also its deadline */
	unsigned max_connections;
	unsigned sessions; /* connections handed to lanes and not gone */
	int spare_fd;      /* given up for a moment to refuse when descriptors run out */
	bool draining;
	bool aborted; /* the drain timeout has passed */
	uint64_t deadline_ms;
};

/* server_uv.c: closes every handle, so that the loop ends; the lanes go first, since they post into it. */
void server_stop(struct server *s);

/* server_steer_uv.c */
/* No new jobs; the end when there are none. Told once more, it is the end at once. */
void server_drain(struct server *s, int signum);
/* Takes over from the file what a running reducer can; for the rest the log says that it needs a restart. */
void server_reload(struct server *s);

#endif
