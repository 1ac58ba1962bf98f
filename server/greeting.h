/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that have not said who they are: reads one HELLO, no byte more, within a time limit. */
#ifndef RS_SERVER_GREETING_H
#define RS_SERVER_GREETING_H

#include "common/error.h"
#include "proto/control.h"

#include <stdbool.h>
#include <uv.h>

struct greetings;

/* Most bytes that one of them allocates; of those that say nothing, less than an eighth. */
enum { GREETING_BYTES = FRAME_CONTROL_MAX + 512 };

struct greetings_options {
	uv_loop_t *loop;
	uint32_t timeout_ms; /* from accept to a complete HELLO */
	/* A HELLO has come. RS_OK: fd now belongs to the callee; else *refused is sent and the connection closed. */
	int (*hello)(void *ctx, int fd, const struct control_hello *h, struct control_refused *refused);
	/* A connection was turned away or gave up; for the log. */
	void (*turned_away)(void *ctx, const char *peer, const struct rs_err *why);
	void *ctx;
};

int greetings_init(struct greetings **ret, const struct greetings_options *opt, struct rs_err *e);
/* fd belongs to the greetings now. */
void greetings_add(struct greetings *g, int fd);
/* Answers with *refused at once. fd belongs to the greetings now. */
void greetings_refuse(struct greetings *g, int fd, const struct control_refused *refused);
unsigned greetings_count(const struct greetings *g);
/* Closes all connections; handles close with the loop, then greetings_free. */
void greetings_close(struct greetings *g);
void greetings_free(struct greetings *g);

#endif
