/* SPDX-License-Identifier: Apache-2.0 */
/* The deterministic simulator: the real cores of reducers and workers, joined by connections, processes and a clock
 * that exist only here. One number, the seed, decides everything, so what failed once fails again.
 *
 *     sim_plan    draws jobs, operations, faults and the network's manners
 *     sim_run     takes event after event, always the earliest, from a heap
 *     sim_net     connections: bytes arrive in pieces of any size, late, in order, or no more
 *     sim_rank    a worker: what engine_uv.c and conn_tcp.c are in the library
 *     sim_reducer a reducer: what server_uv.c, greeting_tcp.c, lane_uv.c, lane_tcp.c and mailbox_uv.c are in the daemon
 *     sim_guard   secrets, and who has not got them
 *     sim_fault   deaths, cuts, disagreements, and what may be said about them
 *     sim_oracle  what an operation must give
 *     sim_check   what must hold after a step and at the end, sim_retained what of an exchange's memory */
#ifndef RS_TESTS_SIM_SIM_H
#define RS_TESTS_SIM_SIM_H

#include "agent/core/exchange.h"
#include "common/error.h"
#include "common/kernels/kernels.h"
#include "config/config.h"
#include "proto/control.h"
#include "proto/frame.h"
#include "server/core/lane.h"
#include "server/jobs/registry.h"
#include "server/join/handshake.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum {
	SIM_REDUCERS = 3,
	SIM_THREADS = 2, /* lanes of one reducer */
	SIM_LINKS = 6,   /* most connections of one rank */
	SIM_TEAMS = 4,
	SIM_WORLD = 5,
	SIM_OPS = 12,
	SIM_SHARDS = 12,
	SIM_BLAME = 16, /* most faults that are remembered of one team */
	SIM_STEPS = 3000000,
	SIM_SAID = 600, /* bytes that a stranger records of a connection: HELLO and PROOF */
};

/* ---- time, chance, events: sim_event.c ---- */

enum event_type {
	EV_RANK_BIRTH,    /* a: process */
	EV_RANK_STEP,     /* a: process */
	EV_RANK_TICK,     /* a: process */
	EV_RANK_RESUME,   /* a: process: it was stopped until now */
	EV_RANK_READY,    /* a: process, b: operation: more of its contribution is there */
	EV_CONNECT,       /* a: connection: the attempt is decided */
	EV_ACCEPT,        /* a: connection: the reducer sees it */
	EV_ARRIVE,        /* a: connection, b: bytes << 1 | side */
	EV_FIN,           /* a: connection, b: side */
	EV_RESET,         /* a: connection, b: side */
	EV_READ,          /* a: connection, b: side: what has arrived is looked at (again) */
	EV_WRITE,         /* a: connection, b: side: there is room again */
	EV_REDUCER_OFF,   /* a: reducer, b: life << 8: it was drained */
	EV_DRAINED,       /* a: reducer, b: life << 8: its jobs had their time */
	EV_REDUCER_ON,    /* a: reducer */
	EV_MAIL,          /* a: reducer, b: life << 8 | mailbox */
	EV_LANE_TICK,     /* a: reducer, b: life << 8 | thread */
	EV_REGISTRY_TICK, /* a: reducer, b: life << 8 */
	EV_GREETING_TICK, /* a: reducer, b: life << 8 */
	EV_FAULT,         /* a: team, b: which of its faults */
	EV_STRANGER,      /* a: reducer */
	EV_STRANGER_ENDS, /* a: connection */
};

struct sim_event {
	uint64_t at_us;
	uint32_t tie; /* random: decides among events of the same time */
	uint32_t type;
	uint32_t a, b;
};

struct sim;

uint64_t sim_random(struct sim *s);
uint32_t sim_below(struct sim *s, uint32_t n); /* 0 .. n-1; n > 0 */
bool sim_chance(struct sim *s, unsigned percent);
uint32_t sim_between(struct sim *s, uint32_t least, uint32_t most);
void sim_at(struct sim *s, uint64_t at_us, enum event_type type, uint32_t a, uint32_t b);
void sim_in(struct sim *s, uint64_t in_us, enum event_type type, uint32_t a, uint32_t b);
bool sim_next(struct sim *s, struct sim_event *ret);

/* ---- connections: sim_net.c ---- */

enum side { WORKER, REDUCER };

enum { NET_AGAIN = -1, NET_BROKEN = -2 };

/* Bytes on their way to one end. Invariant: arrived <= len <= cap. */
struct stream {
	uint8_t *buf; /* [cap], a ring; owned */
	uint32_t cap, head, len, arrived;
	uint64_t last_at_us; /* when the last of them arrive */
	uint64_t total;      /* bytes ever sent */
	/* for the trace: where in the frames the writer is */
	uint8_t header[FRAME_HEADER];
	unsigned header_have;
	uint32_t payload_left;
};

/* One end of a connection, as its process sees it. */
struct end {
	bool open;     /* there is a descriptor */
	bool shut;     /* its sending side was shut down */
	bool fin_in;   /* the peer has sent its last byte */
	bool reset_in; /* the connection is broken */
	bool blocked;  /* waits for room to send */
	bool read_due; /* an EV_READ is on its way */
};

/* What the reducer's side of a connection is to the reducer. */
enum phase { PHASE_NONE, PHASE_GREETING, PHASE_REFUSED, PHASE_IMPOSTOR, PHASE_HANDED, PHASE_LANE };

/* Frames that an impostor is told. The payload is of the frame whose header stands, or of the one before. */
struct conn_decoder {
	uint8_t header[FRAME_HEADER], payload[FRAME_CONTROL_MAX];
	uint32_t have;
};

struct conn {
	struct sim *sim;
	uint32_t id;
	struct rank *rank; /* NULL: a stranger's, or its process is gone */
	unsigned link;
	struct reducer *reducer;
	struct stream to[2]; /* indexed by side: bytes for that side */
	struct end end[2];
	bool dark[2]; /* what is sent to that side is lost without a word */
	bool up;      /* the worker knows that it is connected */
	uint32_t delay_us, jitter_us, piece;
	uint64_t corrupt_at; /* the byte of to[corrupt_side] that will be damaged, counted from 1; 0: none */
	enum side corrupt_side;

	/* of those who have no secret */
	unsigned said_n;
	uint8_t said[SIM_SAID];     /* what a rank said first */
	const struct conn *replays; /* a stranger's: it says what was said there */
	bool replayed;
	struct conn_decoder *said_to; /* from PHASE_IMPOSTOR on; owned */

	/* of the reducer */
	enum phase phase;
	struct handshake shake; /* while greeting */
	uint64_t deadline_ms;
	struct lane_thread_sim *thread;
	struct session *session;
	bool write_wait, session_shut;
};

struct conn *net_connect(struct sim *s, struct rank *rank, unsigned link, struct reducer *r);
/* Bytes, 0 at the end of the stream, or NET_AGAIN, NET_BROKEN. */
ssize_t net_read(struct conn *c, enum side side, const struct iovec *iov, unsigned n);
ssize_t net_write(struct conn *c, enum side side, const struct iovec *iov, unsigned n);
void net_shutdown(struct conn *c, enum side side);
void net_close(struct conn *c, enum side side);
/* Both ends get a reset, what is on its way is cut at any byte. */
void net_cut(struct conn *c);
/* An end that was read from is looked at again when there is still something. */
void net_look_again(struct conn *c, enum side side);
/* EV_ARRIVE, EV_FIN, EV_RESET, EV_READ, EV_WRITE */
void net_event(struct conn *c, const struct sim_event *ev);
void net_free_all(struct sim *s);

/* ---- plans: sim_plan.c ---- */

struct op_plan {
	uint64_t seed; /* of the contributions */
	uint64_t count;
	uint8_t dtype, op;
	unsigned root;
	int priority;
	uint32_t wide;     /* bit r: rank r contributes float32 sums */
	uint32_t in_place; /* bit r */
	uint32_t lazy;     /* bit r: contributions are filled in just in time */
	uint32_t staged;   /* bit r: contributions come bit by bit while the operation goes on */
	char name[16];     /* empty: none */
	bool rough;        /* float sums whose bits depend on the order: all that is known is that they are equal */
	uint8_t *want;     /* the result, when it was needed; owned */
	uint8_t *known;    /* [count], rough: elements of want that some rank has had; owned */
};

enum fault_kind {
	FAULT_NONE,
	FAULT_PAUSE,            /* a rank's process is stopped for a short while: nobody may mind */
	FAULT_KILL,             /* a rank's process ends, its kernel closes */
	FAULT_POWEROFF,         /* a rank's machine is gone, without a word */
	FAULT_STALL,            /* a rank's process is stopped for longer than the detection time */
	FAULT_CUT,              /* one connection is reset */
	FAULT_PARTITION,        /* one connection goes dark, in one direction or both */
	FAULT_CORRUPT,          /* one byte of a connection is damaged */
	FAULT_REDUCER_KILL,     /* a reducer's process ends */
	FAULT_REDUCER_POWEROFF, /* a reducer's machine is gone */
	FAULT_DRAIN,            /* a reducer is asked to stop */
	FAULT_MISMATCH,         /* a rank calls an operation with other arguments */
	FAULT_FEWER,            /* a rank leaves before the last operations */
	FAULT_HANG,             /* a rank does not call the last operations, and stays */
	FAULT_ABORT,            /* a rank ends the job */
	FAULT_GOODBYE,          /* a rank leaves while its operations are pending */
	FAULT_ABSENT,           /* a rank never comes */
	FAULT_MISCONFIGURED,    /* a rank has another configuration */
	FAULT_REPLACED,         /* the next generation does not wait for this one */
	FAULT_SECRET,           /* a rank has a wrong secret, or none; or one although there is none */
	FAULT_IMPOSTOR,         /* a reducer is somebody else's to one job */
	FAULT_STORM,            /* all reducers but one are cut off, killed, drained and come back, again and again */
	FAULT_NR
};

struct fault {
	enum fault_kind kind;
	unsigned rank, link, reducer;
	unsigned op;       /* the operation that it concerns */
	uint32_t after_op; /* strikes in_us after the rank has called that operation; UINT32_MAX: after its birth */
	uint32_t in_us;
	unsigned again; /* times that it strikes once more */
	bool struck;
};

/* Who or what may be named as the cause, and when it happened. */
struct blame {
	enum fault_kind kind;
	uint64_t at_us;
	uint32_t within_ms; /* everybody knows after that time */
	char words[96];     /* a sentence has to hold these; empty: any sentence will do */
	int victim;         /* this rank's own sentence is free; -1: nobody's */
};

/* One generation of one job. */
struct team {
	struct sim *sim;
	unsigned index;
	char job[16];
	uint32_t generation;
	unsigned world;
	unsigned processes[SIM_WORLD], processes_all;
	struct rs_config cfg, other_cfg; /* other: of a misconfigured rank */
	struct rs_reducer *reducers;     /* owned */
	uint16_t *owner, *other_owner;   /* owned */
	bool adaptive;
	uint32_t connect_ms;
	struct op_plan ops[SIM_OPS];
	unsigned ops_n;
	struct op_plan odd; /* what the disagreeing rank calls instead of ops[odd_at] */
	unsigned odd_rank, odd_at;
	struct fault faults[2];
	unsigned faults_n;
	struct blame blame[SIM_BLAME];
	unsigned blame_n;
	unsigned impostors;  /* bit r: reducer r is somebody else's */
	unsigned cut;        /* bit r: a connection of rank r was lost, which the job had to survive */
	unsigned hit;        /* bit r: something happened to reducer r or to a connection to it */
	unsigned survived;   /* faults that the job must not feel */
	struct rank *ranks;  /* [world], within sim->ranks */
	unsigned ended;      /* of them */
	struct team *before; /* the generation before this one; NULL: none */
	bool born;           /* one of its ranks */
	bool together;       /* begins when all of `before` have ended; else each rank when its own has */
	bool damaged;        /* bytes of one of its connections were */
	bool again;          /* has the same generation as `before`, which fails */
	bool failed;         /* an operation or the exchange of a rank ended with an error */
	uint32_t pause_us;   /* most time between two things that a rank does */
};

void plan_draw(struct sim *s);
void plan_free(struct sim *s);
/* What rank r calls as its i-th operation. */
const struct op_plan *plan_op(const struct team *t, unsigned r, unsigned i);

/* ---- workers: sim_rank.c ---- */

struct rank_op {
	struct exchange_op op;
	struct rank *rank;
	unsigned index;
	uint8_t *send, *recv;   /* owned until done; may be the same */
	uint64_t landed;        /* elements that were announced */
	uint8_t *filled;        /* [count + 1], elements that were asked for; owned until done */
	_Atomic uint64_t ready; /* elements that are there */
	bool submitted, done;
	int code; /* RS_OK or why it failed */
};

enum rank_state { RANK_UNBORN, RANK_ALIVE, RANK_ENDED, RANK_DEAD };

/* One worker process. */
struct rank {
	struct sim *sim;
	struct team *team;
	uint32_t process; /* index in sim->ranks */
	unsigned index;   /* rank */
	enum rank_state state;
	struct exchange *x;
	struct conn *conn[SIM_LINKS];
	struct rank_op ops[SIM_OPS];
	unsigned todo, submitted, done;
	unsigned pending_most; /* operations in flight; 1: one after the other */
	uint64_t armed_ms, stopped_until_us;
	bool step_due, said_goodbye, running_seen, ended_seen;
	bool hangs;  /* stays after its last operation */
	bool failed; /* the exchange ended with an error */
};

void rank_birth(struct rank *k);
void rank_step(struct rank *k);
void rank_tick(struct rank *k);
void rank_stop(struct rank *k, uint32_t for_us); /* the process does not run for a while */
void rank_resume(struct rank *k);
void rank_ready(struct rank *k, unsigned op);
bool rank_stopped(const struct rank *k);
void rank_connect(struct conn *c); /* EV_CONNECT */
void rank_readable(struct conn *c);
void rank_writable(struct conn *c);
void rank_goodbye(struct rank *k);
void rank_abort(struct rank *k, int code, const char *message);
/* Without a word from the process; `silent`: nor from its kernel. */
void rank_kill(struct rank *k, bool silent);
void rank_end(struct rank *k, enum rank_state state);
void rank_drop(struct rank *k); /* at the end of a run */

/* ---- reducers: sim_reducer.c, sim_accept.c ---- */

struct letter;

struct post {
	struct letter *head, **tail;
	uint64_t last_at_us;
};

struct lane_thread_sim {
	struct reducer *reducer;
	unsigned index;
	struct lane *core;
	struct post in;
};

struct reducer {
	struct sim *sim;
	unsigned index;
	enum { REDUCER_OFF, REDUCER_UP, REDUCER_GONE } state;
	bool silent;   /* GONE: nobody answers */
	uint32_t life; /* how many times it was started */
	unsigned threads_n;
	uint32_t detect_ms;
	uint32_t far_us; /* on top of the delay of all its connections */
	struct registry *registry;
	struct handshake_policy policy;
	struct lane_thread_sim threads[SIM_THREADS];
	struct post in;
	unsigned blocks; /* of slot memory */
	bool comes_back; /* after it was drained */
};

void reducer_on(struct reducer *r);
void reducer_off(struct reducer *r, bool silent);
/* What SIGTERM does: nobody new; after a while the jobs end, then the process. */
void reducer_drain(struct reducer *r, uint32_t drain_ms, bool comes_back);
void reducer_event(struct reducer *r, const struct sim_event *ev);
void reducer_readable(struct conn *c);
void reducer_writable(struct conn *c);
/* An admitted connection goes to its lane. */
void reducer_hand_over(struct conn *c, const struct registry_admit *admit, const struct control_welcome *welcome);

void accept_conn(struct conn *c); /* EV_ACCEPT */
void accept_readable(struct conn *c);
void accept_tick(struct reducer *r);

/* ---- secrets: sim_guard.c ---- */

void guard_policy(struct reducer *r);
void guard_rank(const struct rank *k, struct exchange_options *opt);
/* What an error may say of the rank's secret; NULL: it is right. */
const char *guard_blames(const struct rank *k);
void guard_record(struct conn *c, const uint8_t *bytes, size_t n); /* a rank has sent this */
/* A stranger with a recorded handshake; false when there is none yet. */
bool guard_replay_comes(struct sim *s, struct conn *c);
void guard_replay_hears(struct conn *c);
bool guard_is_impostor(const struct conn *c); /* its reducer is one to its rank */
void guard_impose(struct conn *c);
bool guard_impostor_reads(struct conn *c); /* false: the connection has ended */
/* Sends all of it, whatever room there is; false when the connection is broken. */
bool guard_say(struct conn *c, enum side side, const uint8_t *bytes, uint32_t len);

/* ---- faults: sim_fault.c ---- */

void fault_after_op(struct rank *k, unsigned op);
void fault_after_birth(struct rank *k);
void fault_after_goodbye(struct rank *k);
void fault_view_changed(struct team *t);
/* Whether this rank never comes. It then counts as ended from its birth on. */
bool fault_absent(const struct rank *k);
void fault_strike(struct team *t, unsigned which);
void fault_blame(struct team *t, enum fault_kind kind, int victim, const char *words);
const char *fault_name(enum fault_kind kind);
void stranger_comes(struct sim *s, struct reducer *r);
void stranger_readable(struct conn *c);

/* ---- results: sim_oracle.c ---- */

/* Writes elements [first, first + n) of rank r's contribution to buf, which begins with element 0. */
void oracle_contribution(const struct op_plan *p, bool deterministic, unsigned r, void *buf, uint64_t first,
			 uint64_t n);
/* The result's bytes, count elements; made when it is asked for the first time. */
const uint8_t *oracle_want(struct team *t, unsigned op);
/* Whether a rank's elements [first, first + n) are what they must be. */
bool oracle_agrees(struct team *t, unsigned op, const uint8_t *result, uint64_t first, uint64_t n);

/* ---- invariants: sim_check.c ---- */

void check_error(struct rank *k, const struct rs_err *err, const char *what);
void check_lost(struct rank *k, const struct rs_reducer *r, const char *why); /* something was done to it */
void check_lane(struct lane_thread_sim *t);                                   /* the books of its slots balance */
void check_last_session(struct session *s); /* it is about to be freed: nothing may be left in its stripe */
void check_end(struct sim *s);              /* nothing is left, everybody got what was due */

/* ---- one run: sim_run.c ---- */

struct sim_stats {
	uint64_t seeds, steps, ops_ok, ops_failed, bytes;
	uint64_t teams_clean, teams_failed;
	uint64_t faults[FAULT_NR], faults_felt[FAULT_NR]; /* struck; and of those, the team ended with an error */
	uint64_t codes[16];                               /* of failed operations, by -code */
	uint64_t strangers, replays, refused, retried, signals;
	uint64_t lost, back; /* reducers, as ranks see it */
	uint64_t survived;   /* faults that a job had to survive, and did */
};

struct sim {
	uint64_t seed, rng;
	uint64_t now_us;
	struct sim_event *heap;
	unsigned heap_n, heap_size;
	struct conn **conns;
	unsigned conns_n, conns_size;
	struct reducer reducers[SIM_REDUCERS];
	unsigned reducers_n;
	struct team teams[SIM_TEAMS];
	unsigned teams_n;
	struct rank *ranks; /* [ranks_n]; owned */
	unsigned ranks_n, ranks_ended;
	/* the network's manners */
	uint32_t delay_us, jitter_us, piece, socket_bytes;
	uint32_t mail_us;   /* between threads of a reducer, most of the time at most */
	unsigned jobs_most; /* of one reducer */
	bool guarded;       /* jobs have secrets */
	unsigned balk;      /* percent of writes that find no room although there is some */
	const struct rs_config *base;
	const struct rs_kernels *kernels;
	FILE *trace; /* NULL: none */
	bool failed;
	char why[1024];
	struct sim_stats *stats;
};

static inline uint64_t sim_ms(const struct sim *s)
{
	return s->now_us / 1000;
}

/* Runs one seed; false when it failed: s->why says how. */
bool sim_run(uint64_t seed, const struct rs_config *base, const struct rs_kernels *kernels, struct sim_stats *stats,
	     FILE *trace, char *why, size_t size);
/* The next generation may be waiting for this rank's end. */
void team_rank_ended(struct rank *k);
/* The first call decides. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- the trace: sim_trace.c ---- */

void trace(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Bytes that an end sends: says which frames begin in them. */
void trace_bytes(struct conn *c, enum side from, const uint8_t *bytes, size_t n);

#endif
