/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted reducers around one exchange, all in memory: what the exchange sends is taken in pieces of any size and
 * decoded, what the reducers say is encoded and fed in pieces of any size. Stands where engine_uv.c stands in the
 * library: it connects what wants to be connected, moves bytes and closes what wants to be closed. */
#ifndef RS_TESTS_UNIT_FAKE_REDUCER_H
#define RS_TESTS_UNIT_FAKE_REDUCER_H

#include "agent/core/exchange.h"
#include "proto/control.h"

enum { REDUCERS_LINKS_MAX = 8 };

struct reducer_bytes {
	uint8_t *at;
	size_t len, size, off; /* off: consumed */
};

/* One connection as a reducer sees it. */
struct reducer_link {
	bool up, shut; /* connected; the exchange has shut its sending side down */
	bool dead;     /* refuses connections */
	unsigned tries;
	struct reducer_bytes in;  /* from the worker, not decoded yet */
	struct reducer_bytes out; /* said, not fed yet */
	struct control_hello hello;
	bool greeted; /* HELLO has come */
	bool started; /* START was said */
	unsigned pings, goodbyes, aborts, settles, views;
	struct rs_err abort;      /* the last one */
	struct control_view view; /* the same */
	struct frame *data;       /* of every DATA and HAVE, in order */
	void **payload;
	unsigned data_n, data_size, answered; /* what came before the last VIEW counts as answered */
	unsigned kept_n;
	struct frame kept; /* the last KEPT */
	uint8_t kept_payload[4096];
};

struct reducers {
	struct rs_config cfg;
	struct exchange *x;
	unsigned links_n;
	struct reducer_link l[REDUCERS_LINKS_MAX];
	uint64_t now_ms;
	size_t piece;                /* most bytes that move at once; SIZE_MAX: no limit */
	bool mute;                   /* nothing is read from the exchange */
	bool welcome, start, answer; /* reducers do this by themselves */
	unsigned lates;              /* warnings of a late operation, */
	char late[400];              /* and the last one */
	bool resume;                 /* and answer a VIEW with RESUME, as if the others had said it before */
	uint32_t random;             /* != 0: pieces and the order of links are random */
	unsigned lost, back;         /* reducers, as the exchange told */
	char why[CONTROL_MESSAGE];   /* of the last one lost */
};

/* The exchange of rank 0 of `world` with this YAML, at time 1000. Reducers welcome, start and answer, and say START
 * when all their lanes are there. */
void reducers_open(struct reducers *f, const char *yaml, unsigned world, uint32_t connect_ms);
/* The same of a world of one that sums by itself, with 1 s to connect. */
void reducers_open_single(struct reducers *f, const char *yaml);
void reducers_close(struct reducers *f);

/* Until nothing moves any more. */
void reducers_pump(struct reducers *f);
/* Moves at most one piece in each direction on a link; false when there was nothing to do. */
bool reducers_step(struct reducers *f, unsigned link);
/* Lets the time pass in the steps that the exchange asks for, pumping in between. */
void reducers_advance(struct reducers *f, uint32_t ms);

void reducers_say(struct reducers *f, unsigned link, const struct frame *h, const void *payload);
void reducers_say_control(struct reducers *f, unsigned link, unsigned type, const uint8_t *payload, uint32_t len);
void reducers_say_abort(struct reducers *f, unsigned link, int code, const char *message);
void reducers_say_waiting(struct reducers *f, unsigned link, unsigned joined, unsigned world, const uint32_t *missing,
			  unsigned n);
/* An operation has waited so long for these two ranks, of whom the first is "pid 9 on there", or for the first alone
 * and `more` others. */
void reducers_say_late(struct reducers *f, unsigned link, uint64_t seq, uint32_t waited_ms, unsigned a, unsigned b,
		       unsigned more);
void reducers_say_refused(struct reducers *f, unsigned link, int code, const char *message, bool retry);
/* VIEW or RESUME */
void reducers_say_view(struct reducers *f, unsigned link, unsigned type, const struct control_view *v);
/* RESUME of the view that came last on a link, from its own start on. */
void reducers_resume(struct reducers *f, unsigned link);
/* The chunk of the n-th DATA or HAVE of a link is asked for. */
void reducers_fetch(struct reducers *f, unsigned link, unsigned n);
/* The header of the answer to the n-th DATA of a link, and its payload: the contribution times three, or for a
 * broadcast of another rank the bytes chunk + 1; to a HAVE nothing. Returns the payload's length; the payload is
 * static. */
uint32_t reducers_result(struct reducers *f, unsigned link, unsigned n, struct frame *h, void **payload);
void reducers_answer(struct reducers *f, unsigned link);                  /* the oldest without an answer */
void reducers_cut(struct reducers *f, unsigned link, const char *reason); /* the connection breaks */

/* An operation on memory of its own, and how it ended. */
struct reducers_op {
	struct exchange_op op;
	int done;
	struct rs_err err;
	float x[2048];
};

/* A sum of x's first `count` elements in place, named "grad". */
int reducers_submit(struct reducers *f, struct reducers_op *o, uint64_t count, struct rs_err *e);
/* The code, and that the sentence contains a text. */
void reducers_expect_error(const struct rs_err *e, int code, const char *says);
/* The exchange has ended with this error. */
void reducers_expect_end(const struct reducers *f, int code, const char *says);

#endif
