/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted reducers around one exchange, in memory. Output of the exchange is taken in
 * pieces of any size and decoded; frames of the reducers are encoded and fed in pieces of
 * any size. Replaces engine_uv.c of the library: it connects, moves bytes and closes as
 * the exchange asks. */
#ifndef RS_TESTS_UNIT_FAKE_REDUCER_H
#define RS_TESTS_UNIT_FAKE_REDUCER_H

#include "agent/worker/core/exchange.h"
#include "config/config.h"
#include "proto/control.h"

enum { REDUCERS_LINKS_MAX = 8 };

struct reducer_bytes {
	uint8_t *at;
	size_t len, size, off; /* off: consumed */
};

/* One connection as a reducer sees it. */
struct reducer_link {
	bool up, shut;                         /* connected; the exchange has shut its sending side down */
	bool dead;                             /* refuses connections */
	const char *rejects;                   /* connects are rejected for this reason */
	const struct control_refused *refuses; /* the answer to HELLO; NULL: WELCOME */
	unsigned tries;
	struct reducer_bytes in;  /* from the worker, not decoded yet */
	struct reducer_bytes out; /* frames sent by the reducer, not fed yet */
	struct control_hello hello;
	bool greeted; /* HELLO has arrived */
	bool started; /* START was sent */
	unsigned pings, goodbyes, aborts, settles, views;
	unsigned nonfinites;                /* NONFINITE frames */
	struct control_nonfinite nonfinite; /* the last one */
	unsigned loads;                     /* LOAD frames */
	struct control_load load;           /* the last one */
	uint64_t busy_us;                   /* what the kernel says of the connection, if it is asked */
	unsigned probes;                    /* PROBE frames */
	uint32_t probe_bytes;               /* of the last one */
	uint64_t ping_count;                /* `count` of the last PING */
	struct rs_err abort;                /* the last one */
	struct rs_cause abort_cause;
	struct control_view view; /* the same */
	struct frame *data;       /* of every DATA and HAVE, in order */
	void **payload;
	unsigned data_n, data_size, answered; /* frames before the last VIEW count as answered */
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
	uint32_t generation;         /* of the frames that the exchange sends */
	size_t piece;                /* most bytes that move at once; SIZE_MAX: no limit */
	bool mute;                   /* nothing is read from the exchange */
	bool welcome, start, answer; /* reducers do this automatically */
	unsigned lates;              /* warnings of a late operation */
	char late[400];              /* the last of them */
	unsigned waits;              /* reports for whom the exchange waits */
	char wait[480];              /* the last of them */
	unsigned reminders;          /* reports that reducers are lost */
	unsigned excuses;            /* reports that an operation has no error feedback */
	char reminder[480];          /* the last of them */
	char excuse[480];            /* the last of them */
	char refuses[80];            /* what the next WAITING says about a refused rank */
	bool resume;                 /* also answer a VIEW with RESUME, as if all other ranks had sent the same view */
	uint32_t random;             /* != 0: pieces and the order of links are random */
	unsigned lost, back;         /* reducers reported as lost and as back */
	unsigned empty, taken;       /* of those: empty slots, and slots that were taken */
	unsigned left;               /* of the lost ones: those that ended the job themselves */
	char why[CONTROL_MESSAGE];   /* reason of the last loss */
	unsigned verdicts;           /* sentences about shares, or what is slow .. */
	char verdict[480];           /* .. and the last one */
	char is_reducer[80];         /* what processes said that they are, as in "1=r0 0=", if names are shared */
	uint32_t epoch;              /* of the shares that were reported last */
	uint32_t shares[CONTROL_REDUCERS];
};

/* Opens the exchange of rank 0 of `world` with this YAML, at time 1000. Reducers send
 * WELCOME, results, and START when all their lanes have joined. */
void reducers_open(struct reducers *f, const char *yaml, unsigned world, uint32_t connect_ms);
/* The same, and the rank offers these features. */
void reducers_open_offering(struct reducers *f, const char *yaml, unsigned world, uint32_t connect_ms,
			    uint64_t features);
/* The same for another rank. */
void reducers_open_rank(struct reducers *f, const char *yaml, unsigned rank, unsigned world, uint64_t features);
/* The same for rank 0 of two, which is in this group of the configuration. relay_above:
 * as in struct exchange_params. */
void reducers_open_group(struct reducers *f, const char *yaml, unsigned group, uint64_t relay_above, uint64_t features);
/* The same with world size 1, which sums alone, with 1 s to connect. */
void reducers_open_single(struct reducers *f, const char *yaml);
void reducers_close(struct reducers *f);

/* Moves bytes until nothing moves any more. */
void reducers_pump(struct reducers *f);
/* Moves at most one piece in each direction on a link; returns false if there was nothing
 * to move. */
bool reducers_step(struct reducers *f, unsigned link);
/* Advances the time in the steps that the exchange asks for, and pumps in between. */
void reducers_advance(struct reducers *f, uint32_t ms);

void reducers_say(struct reducers *f, unsigned link, const struct frame *h, const void *payload);
void reducers_say_control(struct reducers *f, unsigned link, unsigned type, const uint8_t *payload, uint32_t len);
/* ABORT with this code, as its cause too; or with code -13, because the rank was lost. */
void reducers_say_abort(struct reducers *f, unsigned link, int code, const char *message);
void reducers_say_lost(struct reducers *f, unsigned link, unsigned rank, const char *message);
void reducers_say_waiting(struct reducers *f, unsigned link, unsigned joined, unsigned world, const uint32_t *missing,
			  unsigned n);
/* Sends LATE: an operation has waited so long for these two ranks, the first with the
 * label "pid 9 on there", or for the first and `more` others. */
void reducers_say_late(struct reducers *f, unsigned link, uint64_t seq, uint32_t waited_ms, unsigned a, unsigned b,
		       unsigned more);
void reducers_say_refused(struct reducers *f, unsigned link, int code, const char *message, bool retry);
/* Sends VIEW or RESUME. */
void reducers_say_view(struct reducers *f, unsigned link, unsigned type, const struct control_view *v);
/* Sends RESUME of the last view on a link, with the start of that view. */
void reducers_resume(struct reducers *f, unsigned link);
/* Sends FETCH for the chunk of the n-th DATA or HAVE of a link. */
void reducers_fetch(struct reducers *f, unsigned link, unsigned n);
/* Makes the header of the RESULT for the n-th DATA of a link, and its payload: the
 * contribution times three; for a broadcast of another rank, and if it is encoded, the
 * byte chunk + 1; for a HAVE, and the part of another rank, no payload. Returns the
 * length of the payload, which is static. */
uint32_t reducers_result(struct reducers *f, unsigned link, unsigned n, struct frame *h, void **payload);
void reducers_answer(struct reducers *f, unsigned link);                  /* the oldest without an answer */
void reducers_cut(struct reducers *f, unsigned link, const char *reason); /* the connection breaks */

/* An operation on its own memory, and its result. */
struct reducers_op {
	struct exchange_op op;
	int done;
	struct rs_err err;
	float x[2048];
};

/* Submits a sum of x's first `count` elements in place, named "grad". */
int reducers_submit(struct reducers *f, struct reducers_op *o, uint64_t count, struct rs_err *e);
/* Checks the code, and that the message contains a text. */
void reducers_expect_error(const struct rs_err *e, int code, const char *says);
/* Checks that the exchange has ended with this error. */
void reducers_expect_end(const struct reducers *f, int code, const char *says);

#endif
