/* SPDX-License-Identifier: Apache-2.0 */
/* The deterministic simulator: runs the real cores of reducers and workers with simulated
 * connections, processes and clock. One number, the seed, decides everything, so a
 * failure can be repeated.
 *
 *     sim_plan    draws jobs, operations, faults and the properties of the network
 *     sim_run     processes events from a heap, always the earliest
 *     sim_net     connections: bytes arrive in order, in pieces of any size, late, or not at all
 *     sim_rank    a worker, in place of engine_uv.c and conn_tcp.c
 *     sim_move    a worker that goes on in the next generation, on the same connections
 *     sim_reducer a reducer, in place of server_uv.c, lane_uv.c, lane_tcp.c and mailbox_uv.c
 *     sim_accept  its handshakes, in place of handshake_conn_uv.c and handshake_tcp.c
 *     sim_uplink  groups of ranks, and connections of reducers that relay for them
 *     sim_guard   secrets of jobs, and peers without them
 *     sim_fault   faults, and the words that an error may then use
 *     sim_oracle  the expected result of an operation
 *     sim_check   invariants after a step and at the end; sim_retained those of an exchange's memory */
#ifndef RS_TESTS_SIM_SIM_H
#define RS_TESTS_SIM_SIM_H

#include "agent/worker/core/exchange.h"
#include "common/error.h"
#include "common/kernels/kernels.h"
#include "config/config.h"
#include "proto/control.h"
#include "proto/features.h"
#include "proto/frame.h"
#include "server/core/lane.h"
#include "server/core/uplink.h"
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
	SIM_GROUPS = 3, /* most groups of a job's ranks */
	SIM_BLAME = 16, /* most faults that are remembered of one team */
	SIM_STEPS = 3000000,
	SIM_RECORDED = 600, /* bytes recorded of a connection for a replay: HELLO and PROOF */
};

/* ---- time, chance, events: sim_event.c ---- */

enum event_type {
	EV_RANK_BIRTH,     /* a: process */
	EV_RANK_STEP,      /* a: process */
	EV_RANK_TICK,      /* a: process */
	EV_RANK_RESUME,    /* a: process, which was stopped until now */
	EV_RANK_READY,     /* a: process, b: operation, of which more is ready */
	EV_CONNECT,        /* a: connection, which is accepted or refused */
	EV_ACCEPT,         /* a: connection, which the reducer accepts */
	EV_ARRIVE,         /* a: connection, b: bytes << 1 | side */
	EV_FIN,            /* a: connection, b: side */
	EV_RESET,          /* a: connection, b: side */
	EV_TIMED_OUT,      /* a: connection, b: side, whose kernel has got no acknowledgement */
	EV_READ,           /* a: connection, b: side, which reads (again) */
	EV_WRITE,          /* a: connection, b: side, which has room again */
	EV_REDUCER_OFF,    /* a: reducer, b: life << 8; it is drained */
	EV_DRAINED,        /* a: reducer, b: life << 8; the drain timeout */
	EV_REDUCER_ON,     /* a: reducer */
	EV_MAIL,           /* a: reducer, b: life << 8 | mailbox */
	EV_LANE_TICK,      /* a: reducer, b: life << 8 | thread */
	EV_LANE_SERVE,     /* a: reducer, b: life << 8 | thread, which has ready sessions */
	EV_REGISTRY_TICK,  /* a: reducer, b: life << 8 */
	EV_HANDSHAKE_TICK, /* a: reducer, b: life << 8 */
	EV_FAULT,          /* a: team, b: index of the fault */
	EV_INTRUDER,       /* a: reducer, b: life << 8 */
	EV_UNAUTH,         /* a: reducer */
	EV_UNAUTH_END,     /* a: connection */
};

struct sim_event {
	uint64_t at_us;
	uint32_t tie; /* random; orders events of the same time */
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

/* Bytes in flight to one end. Invariant: arrived <= len <= cap. */
struct stream {
	uint8_t *buf; /* [cap], a ring; owned */
	uint32_t cap, head, len, arrived;
	uint64_t last_at_us; /* time at which the last of them arrive */
	uint64_t total;      /* bytes ever sent */
	/* for the trace: the writer's position in the frames */
	uint8_t header[FRAME_HEADER];
	unsigned header_have;
	uint32_t payload_left;
};

/* One end of a connection, as its process sees it. */
struct end {
	bool open;     /* it has a descriptor */
	bool shut;     /* its sending side was shut down */
	bool fin_in;   /* the peer has sent its last byte */
	bool reset_in; /* the connection is broken */
	bool blocked;  /* waits for room to send */
	bool read_due; /* an EV_READ is scheduled */
};

/* The state of a connection on the reducer's side. */
enum phase { PHASE_NONE, PHASE_HANDSHAKE, PHASE_REFUSED, PHASE_IMPOSTOR, PHASE_HANDED, PHASE_LANE };

/* Decodes the frames that an impostor receives. The payload belongs to the last complete
 * header. */
struct conn_decoder {
	uint8_t header[FRAME_HEADER], payload[FRAME_CONTROL_MAX];
	uint32_t have;
};

/* One simulated connection with both ends. */
struct conn {
	struct sim *sim;
	uint32_t id;
	struct rank *rank; /* NULL: an unauthenticated peer, or its process has ended */
	unsigned link;
	struct reducer *reducer;
	uint64_t born_us;
	uint64_t moved_us;   /* time at which a byte was last written or read */
	struct stream to[2]; /* indexed by side: bytes for that side */
	struct end end[2];
	bool dark[2];  /* bytes to that side are lost silently */
	bool stuck[2]; /* the same from a message on that was too large for the path */
	bool unheard;  /* EV_TIMED_OUT is scheduled for the worker */
	bool timed_out;
	bool up;             /* the worker knows that it is connected */
	uint64_t busy_us[2]; /* time in which that side had unacknowledged bytes, as the kernels say it */
	uint32_t delay_us, jitter_us, piece;
	uint64_t corrupt_at; /* number of the byte of to[corrupt_side] to damage, from 1; 0: none */
	enum side corrupt_side;

	/* of peers without a secret */
	unsigned recorded_n;
	uint8_t recorded[SIM_RECORDED]; /* the first bytes that a rank sent */
	const struct conn *replays;     /* an unauthenticated peer repeats the bytes of that connection; else NULL */
	bool replayed;
	struct conn_decoder *impostor_in; /* from PHASE_IMPOSTOR on; owned */

	/* on the reducer's side */
	enum phase phase;
	struct handshake shake; /* in PHASE_HANDSHAKE */
	bool kept;              /* it was part of a job before */
	bool far;               /* an uplink with a long round trip */
	uint64_t deadline_ms;
	struct lane_thread_sim *thread;
	struct session *session;
	bool write_wait, session_shut;

	/* of an uplink: the end WORKER is a reducer's */
	struct uplink *uplink;
	struct lane_thread_sim *relay; /* NULL: it is none, or is closed there */
	const struct team *relayed;
};

struct conn *net_connect(struct sim *s, struct rank *rank, unsigned link, struct reducer *r);
/* Returns the number of bytes, 0 at the end of the stream, NET_AGAIN or NET_BROKEN. */
ssize_t net_read(struct conn *c, enum side side, const struct iovec *iov, unsigned n);
/* Makes room for so many bytes that this side is about to write. */
void net_reserve(struct conn *c, enum side side, size_t bytes);
ssize_t net_write(struct conn *c, enum side side, const struct iovec *iov, unsigned n);
void net_shutdown(struct conn *c, enum side side);
void net_close(struct conn *c, enum side side);
/* Resets both ends; bytes in flight are cut at a random byte. */
void net_cut(struct conn *c);
/* Schedules another read of an end if bytes remain. */
void net_look_again(struct conn *c, enum side side);
/* Processes EV_ARRIVE, EV_FIN, EV_RESET, EV_READ and EV_WRITE. */
void net_event(struct conn *c, const struct sim_event *ev);
/* Returns whether the kernel of the worker's machine acknowledges what the reducer
 * sends. */
bool net_acknowledges(const struct conn *c);
void net_free_all(struct sim *s);

/* ---- plans: sim_plan.c ---- */

/* One planned operation. */
struct op_plan {
	uint64_t seed; /* of the contributions */
	uint64_t count;
	uint8_t dtype, op;
	uint8_t up, down; /* enum rs_wire */
	bool partials;    /* up is not said, but chosen for partial sums of nodes */
	unsigned root;
	bool sharded; /* one part for each rank */
	int priority;
	uint32_t wide;     /* bit r: rank r contributes float32 sums */
	uint32_t in_place; /* bit r */
	uint32_t lazy;     /* bit r: contributions are filled in just in time */
	uint32_t staged;   /* bit r: the contribution becomes ready in parts during the operation */
	char name[16];     /* empty: none */
	bool rough;        /* the bits of float sums depend on the order; they only have to be equal on all ranks */
	uint8_t *want;     /* the result, computed when needed; owned */
	uint8_t *known;    /* [count], rough: elements of `want` that a rank has received; owned */
};

enum fault_kind {
	FAULT_NONE,
	FAULT_PAUSE,            /* a rank's process is stopped for a short time, without effect on others */
	FAULT_KILL,             /* a rank's process ends, its kernel closes */
	FAULT_POWEROFF,         /* a rank's machine fails silently */
	FAULT_STALL,            /* a rank's process is stopped for longer than the detection time, or stopped_ms */
	FAULT_CUT,              /* one connection is reset */
	FAULT_PARTITION,        /* one connection goes dark, in one direction or both */
	FAULT_NARROW,           /* a path between a rank and a reducer drops large messages, in one direction or both */
	FAULT_CORRUPT,          /* one byte of a connection is damaged */
	FAULT_REDUCER_KILL,     /* a reducer's process ends */
	FAULT_REDUCER_POWEROFF, /* a reducer's machine fails silently */
	FAULT_DRAIN,            /* a reducer is asked to stop */
	FAULT_MISMATCH,         /* a rank calls an operation with other arguments */
	FAULT_FEWER,            /* a rank leaves before the last operations */
	FAULT_HANG,             /* a rank does not call the last operations, and stays */
	FAULT_ABORT,            /* a rank ends the job */
	FAULT_GOODBYE,          /* a rank leaves while its operations are pending */
	FAULT_ABSENT,           /* a rank never comes */
	FAULT_MISCONFIGURED,    /* a rank has another configuration */
	FAULT_STRANGER,         /* a rank belongs to another run */
	FAULT_REPLACED,         /* the next generation does not wait for this one */
	FAULT_SECRET,           /* a rank has a wrong secret, or none; or one although there is none */
	FAULT_IMPOSTOR,         /* a reducer is an impostor for one job, or its START has an impossible window */
	FAULT_STORM,            /* all reducers except one are cut off, killed, drained and started, repeatedly */
	FAULT_NR
};

/* One planned fault. */
struct fault {
	enum fault_kind kind;
	unsigned rank, link, reducer;
	unsigned op;       /* the operation that it affects */
	uint32_t after_op; /* strikes in_us after the rank has called that operation; UINT32_MAX: after its birth */
	uint32_t in_us;
	unsigned again; /* number of repetitions */
	bool struck;
};

/* A cause that errors may name, and its time. */
struct blame {
	enum fault_kind kind;
	uint64_t at_us;
	uint32_t within_ms; /* time after which every rank has the error */
	char words[96];     /* required in the sentence; empty: any sentence */
	int victim;         /* this rank may give any sentence; -1: none */
};

/* One generation of one job. */
struct team {
	struct sim *sim;
	unsigned index;
	char job[16];
	unsigned run; /* teams of one run are one training; a namesake has the same job and another run */
	bool evident; /* all namesakes give one run, and only their evidence differs */
	uint32_t generation;
	unsigned world;
	unsigned processes[SIM_WORLD], processes_all;
	struct rs_config cfg, other_cfg; /* other: of a misconfigured rank */
	struct rs_reducer *reducers;     /* owned */
	uint16_t *owner, *other_owner;   /* owned */
	struct rs_group *groups;         /* owned, as are the relays */
	uint16_t *relays;
	unsigned group_of[SIM_WORLD];
	uint64_t relay_above;
	bool exact; /* contributions must have sums that no order and no rounding of partial sums changes */
	bool adaptive;
	unsigned moves_shares;       /* chance, in percent, that a rank sets other shares when bytes arrive */
	unsigned moves_left;         /* so many times at most: each one stops all links for a moment */
	uint32_t rtt_us;             /* of the longest link as its connections say it; 0: none is long */
	uint64_t offered[SIM_WORLD]; /* features of each rank */
	uint32_t lead_most;          /* chunks in the lead of a job with bounded memory */
	bool encodes;                /* all ranks and reducers know encodings */
	bool shards_ops;             /* and sharded operations */
	uint64_t features;           /* what its ranks use; valid if features_known */
	bool features_known;
	uint32_t connect_ms;
	struct op_plan ops[SIM_OPS];
	unsigned ops_n;
	struct op_plan odd; /* what the disagreeing rank calls instead of ops[odd_at] */
	unsigned odd_rank, odd_at;
	struct fault faults[2];
	unsigned faults_n;
	struct blame blame[SIM_BLAME];
	uint32_t blame_kinds; /* bit k: a fault of kind k, also one for which `blame` has no room */
	unsigned blame_n;
	unsigned impostors;  /* bit r: reducer r is an impostor */
	unsigned cut;        /* bit r: a connection of rank r was lost, which the job had to survive */
	unsigned hit;        /* bit r: something happened to reducer r or to a connection to it */
	unsigned survived;   /* faults that the job must survive */
	struct rank *ranks;  /* [world], within sim->ranks */
	unsigned ended;      /* of them */
	struct team *before; /* the generation before this one; NULL: none */
	bool born;           /* one of its ranks has started */
	bool moves;          /* its ranks are those of `before` that still live, on their connections */
	bool together;       /* starts when all ranks of `before` have ended; else each rank when its predecessor has */
	bool damaged;        /* bytes of one of its connections were damaged */
	bool again;          /* has the same generation as `before`, which fails */
	bool failed;         /* an operation or the exchange of a rank ended with an error */
	uint32_t pause_us;   /* longest time between two steps of a rank */
};

void plan_draw(struct sim *s);
void plan_free(struct sim *s);
/* Returns the i-th operation of rank r. */
const struct op_plan *plan_op(const struct team *t, unsigned r, unsigned i);

/* ---- workers: sim_rank.c ---- */

/* One operation of one rank. */
struct sim_stage {
	uint8_t *memory;                /* NULL: the operation has no stage */
	uint8_t *landed;                /* [chunks] */
	uint64_t places, filled, first; /* chunks: of the ring, in it so far, the first that has not landed */
	uint32_t chunk_elems;
};

struct rank_op {
	struct exchange_op op;
	struct sim_stage stage;
	struct rank *rank;
	unsigned index;
	uint8_t *send, *recv;   /* owned until done; may be the same */
	uint64_t landed;        /* elements of the result that were announced */
	uint8_t *filled;        /* [count + 1], elements that were requested; owned until done */
	_Atomic uint64_t ready; /* ready elements */
	bool submitted, done;
	int code; /* RS_OK or the error */
};

/* sim_stage.c: gives a sharded operation a stage; puts some more chunks into it, and
 * returns whether there are others; takes what has landed out; frees it. */
void stage_open(struct rank_op *o, const struct exchange_params *p, uint64_t seed);
bool stage_fill(struct rank_op *o, uint64_t more);
void stage_landed(struct rank_op *o, uint64_t first);
void stage_close(struct rank_op *o);

/* sim_op.c: calls the rank's next operation, and returns false if the exchange accepts no
 * more; frees the memory of one. */
bool op_call(struct rank *k);
void op_free(struct rank_op *o);

enum rank_state { RANK_UNBORN, RANK_ALIVE, RANK_ENDED, RANK_DEAD };

/* One worker process. */
struct rank {
	struct sim *sim;
	struct team *team;
	uint32_t process; /* index in sim->ranks */
	unsigned index;   /* rank */
	enum rank_state state;
	struct exchange *x;
	struct rank **self; /* the exchange's `user`: this rank; owned with x */
	struct conn *conn[SIM_LINKS];
	uint32_t narrow[SIM_REDUCERS][2]; /* by side: larger messages to it are lost; 0: no limit */
	uint64_t narrow_us[SIM_REDUCERS]; /* since when */
	struct rank_op ops[SIM_OPS];
	unsigned todo, submitted, done;
	unsigned pending_most; /* most operations in flight */
	uint64_t armed_ms, stopped_until_us;
	bool stalled; /* FAULT_STALL struck it */
	bool step_due, sent_goodbye, running_seen, ended_seen;
	bool hangs;  /* stays after its last operation */
	bool failed; /* the exchange ended with an error */
};

void rank_birth(struct rank *k);
void rank_step(struct rank *k);
void rank_step_later(struct rank *k, uint32_t in_us); /* EV_RANK_STEP then, unless one is due already */
void rank_tick(struct rank *k);
void rank_stop(struct rank *k, uint32_t for_us); /* stops the process for a time */
void rank_resume(struct rank *k);
void rank_ready(struct rank *k, unsigned op);
bool rank_stopped(const struct rank *k);
void rank_connect(struct conn *c); /* EV_CONNECT */
void rank_readable(struct conn *c);
void rank_writable(struct conn *c);
void rank_goodbye(struct rank *k);
void rank_abort(struct rank *k, int code, const char *message);
/* Kills the process; `silent`: its kernel sends nothing either. */
void rank_kill(struct rank *k, bool silent);
void rank_end(struct rank *k, enum rank_state state);
void rank_drop(struct rank *k); /* at the end of a run */

void rank_settle(struct rank *k); /* to be called after every call of its exchange */

/* ---- workers that go on: sim_move.c ---- */

/* Draws whether the ranks of a team are those of the team before, and then takes over
 * their configuration. */
void move_draw(struct sim *s, struct team *t);
/* Drops faults that such a rank cannot have, after they are drawn. */
void move_drop_faults(struct team *t);
/* Lets a rank that is to be born take over the exchange and the connections of its
 * predecessor. Returns false if there is none that can go on. */
bool move_birth(struct rank *k);
/* Returns the rank as which this one goes on; NULL: none. */
struct rank *move_next(const struct rank *k);

/* ---- reducers: sim_reducer.c, sim_accept.c ---- */

struct message;

/* A queue of messages to a thread of a reducer. */
struct post {
	struct message *head, **tail;
	uint64_t last_at_us;
};

/* A lane with its thread. */
struct lane_thread_sim {
	struct reducer *reducer;
	unsigned index;
	struct lane *core;
	struct post in;
	bool serve_due; /* an EV_LANE_SERVE is scheduled */
};

/* A process that wants the place of a rank. */
struct intruder {
	struct control_hello hello; /* of the rank, with another incarnation */
	const struct rank *rank;    /* NULL: there is no intruder */
	unsigned tries;
	uint64_t at_us; /* when it tries next */
	bool late;      /* the rank had left or died before it came */
};

/* One reducer process. */
struct reducer {
	struct sim *sim;
	unsigned index;
	enum { REDUCER_OFF, REDUCER_UP, REDUCER_GONE } state;
	bool silent;   /* GONE: its machine does not answer */
	uint32_t life; /* number of starts */
	unsigned threads_n;
	uint32_t detect_ms;
	uint64_t features;
	uint32_t far_us; /* added to the delay of all its connections */
	struct registry *registry;
	struct handshake_policy policy;
	struct lane_thread_sim threads[SIM_THREADS];
	struct post in;
	unsigned blocks; /* of slot memory in use */
	bool comes_back; /* starts again after a drain */
	struct intruder intruder;
};

void reducer_on(struct reducer *r);
void reducer_off(struct reducer *r, bool silent);
/* Drains as SIGTERM does: no new jobs; after the timeout the jobs end, then the
 * process. */
void reducer_drain(struct reducer *r, uint32_t drain_ms, bool comes_back);
void reducer_event(struct reducer *r, const struct sim_event *ev);
void reducer_readable(struct conn *c);
void reducer_writable(struct conn *c);
void reducer_flush(struct lane_thread_sim *t); /* after a change of its core */
/* Moves an admitted connection to its lane. */
void reducer_hand_over(struct conn *c, const struct registry_admit *admit, const struct control_welcome *welcome);

void accept_conn(struct conn *c); /* EV_ACCEPT */
/* The connection has outlived its session. */
void accept_return(struct conn *c, const struct frame_rest *rest);
void accept_readable(struct conn *c);
void accept_tick(struct reducer *r);
void accept_intruder(struct reducer *r); /* EV_INTRUDER */
void accept_rank_ended(const struct rank *k);

/* ---- secrets: sim_guard.c ---- */

void guard_policy(struct reducer *r);
/* For the uplinks of a lane. */
int guard_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret, struct rs_err *e);
int guard_random(void *ctx, void *buf, size_t n, struct rs_err *e);
void guard_rank(const struct rank *k, struct exchange_options *opt);
/* Returns the words of errors about the rank's secret; NULL: the secret is right. */
const char *guard_blames(const struct rank *k);
void guard_record(struct conn *c, const uint8_t *bytes, size_t n); /* records bytes that a rank sends */
/* Connects an unauthenticated peer with a recorded handshake. Returns false if there is
 * none yet. */
bool guard_replay_connect(struct sim *s, struct conn *c);
void guard_replay_readable(struct conn *c);
bool guard_is_impostor(const struct conn *c); /* its reducer is an impostor for its rank */
void guard_impose(struct conn *c);
#define IMPOSSIBLE_WINDOW "its START has a " /* in the sentence about it */
/* Answers HELLO with a START whose window the rank must refuse. */
void guard_impose_window(struct conn *c, const struct control_hello *hello);
bool guard_impostor_reads(struct conn *c); /* returns false if the connection has ended */
/* Sends all bytes, regardless of room. Returns false if the connection is broken. */
bool guard_send(struct conn *c, enum side side, const uint8_t *bytes, uint32_t len);

/* ---- relays: sim_uplink.c ---- */

/* Draws groups and relays for the configuration of a team. */
void groups_draw(struct sim *s, struct team *t);
/* Serves the uplinks of a lane that need it. */
void uplinks_serve(struct lane_thread_sim *t);
void uplink_connect(struct conn *c); /* EV_CONNECT */
void uplink_readable(struct conn *c);
void uplink_writable(struct conn *c);
/* The process of a reducer ends. */
void uplinks_off(struct reducer *r, bool silent);
/* Returns an uplink of the team that is connected; NULL: there is none. */
struct conn *uplink_any(struct sim *s, const struct team *t);

/* ---- faults: sim_fault.c ---- */

void fault_after_op(struct rank *k, unsigned op);
void fault_after_birth(struct rank *k);
void fault_after_goodbye(struct rank *k);
void fault_view_changed(struct team *t);
/* Another process wants the place of a rank, which a stopped one does not keep. */
void fault_contested(struct sim *s, const char *job, unsigned rank);
/* Returns true if this rank never starts. It then counts as ended from its birth on. */
bool fault_absent(const struct rank *k);
/* Returns whether the rank belongs to another run than the others. */
bool fault_stranger(const struct rank *k);
void fault_strike(struct team *t, unsigned which);
/* A message was too large for the path of the connection. */
void fault_narrowed(struct conn *c);
void fault_blame(struct team *t, enum fault_kind kind, int victim, const char *words);
const char *fault_name(enum fault_kind kind);
void unauth_connect(struct sim *s, struct reducer *r);
void unauth_readable(struct conn *c);

/* ---- results: sim_oracle.c ---- */

/* Writes elements [first, first + n) of rank r's contribution to buf, whose first element
 * is 0. */
void oracle_contribution(const struct op_plan *p, bool deterministic, unsigned r, void *buf, uint64_t first,
			 uint64_t n);
/* Returns the result, `count` elements, which is computed at the first call. */
const uint8_t *oracle_want(struct team *t, unsigned op);
/* sim_codec.c */
/* Replaces n values of a block by what an encoding (enum rs_wire) leaves of them. */
void codec_pass(unsigned wire, double *x, unsigned n);
/* Returns true if a rank's elements [first, first + n) are right. */
bool oracle_agrees(struct team *t, unsigned op, const uint8_t *result, uint64_t first, uint64_t n);

/* ---- invariants: sim_check.c ---- */

void check_error(struct rank *k, const struct rs_err *err, const char *what);
void check_back(const struct rank *k, unsigned reducer); /* checks that a reducer may be back */
void check_features(struct rank *k);                     /* checks that all ranks of the job use the same features */
void check_lost(struct rank *k, const struct rs_reducer *r, bool empty,
		const char *why); /* checks that r had a fault */
void check_rank(const struct rank *k);
/* Chunks that reducers have added do not count in the windows of decoupled jobs. */
void check_credits(const struct rank *k);   /* checks the invariants of its exchange */
void check_lane(struct lane_thread_sim *t); /* checks that the slots are consistent */
void check_last_session(struct session *s); /* checks that a stripe is empty before its last session is freed */
void check_end(struct sim *s);              /* checks that nothing remains and every rank has its results */

/* ---- one run: sim_run.c ---- */

struct sim_stats {
	uint64_t seeds, steps, ops_ok, ops_failed, encoded, sharded, bytes;
	uint64_t teams_clean, teams_failed;
	uint64_t faults[FAULT_NR], faults_felt[FAULT_NR]; /* faults that struck; those after which the team failed */
	uint64_t codes[16];                               /* of failed operations, by -code */
	uint64_t unauth, replays, refused, retried, signals, intruders, intruders_refused;
	uint64_t lost, back; /* reducers, as ranks observe them */
	uint64_t narrow;     /* sentences that say that only small messages pass */
	uint64_t probes;     /* PROBE frames that were too large for a path */
	uint64_t reshared;   /* times that rank 0 has set shares */
	uint64_t anew;       /* times that it has connected to a reducer anew */
	uint64_t survived;   /* faults that a job had to survive, and did */
	uint64_t moved;      /* ranks that went on in the next generation */
	uint64_t kept;       /* connections on which such a rank was admitted */
	uint64_t stopped;    /* reports of ranks that are stopped */
	uint64_t relayed;    /* bytes from relays to homes */
	uint64_t ahead;      /* looks at a link that had more chunks without a result than its window has */
};

struct sim {
	uint64_t seed, rng;
	uint64_t now_us;
	struct sim_event *heap;
	unsigned heap_n, heap_size;
	struct conn **conns;
	unsigned conns_n, conns_size;
	struct reducer reducers[SIM_REDUCERS];
	unsigned late; /* bit r: reducer r comes after jobs have started without it */
	unsigned reducers_n;
	struct team teams[SIM_TEAMS];
	unsigned teams_n;
	struct rank *ranks; /* [ranks_n]; owned */
	unsigned ranks_n, ranks_ended;
	/* properties of the network */
	uint32_t delay_us, jitter_us, piece, socket_bytes;
	uint32_t mail_us;    /* usual upper bound of the time of a message between threads of a reducer */
	unsigned jobs_most;  /* of one reducer */
	unsigned grouped;    /* chance, in percent, that a job has groups */
	bool namesakes;      /* several trainings have one job name */
	bool guarded;        /* jobs have secrets */
	uint32_t stopped_ms; /* of all reducers; 0: acknowledgements prove nothing */
	uint64_t features;   /* of all reducers */
	unsigned balk;       /* percent of writes that fail with NET_AGAIN although there is room */
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

/* What all runs have in common. */
struct sim_setup {
	const struct rs_config *base; /* defaults of all configurations */
	const struct rs_kernels *kernels;
	bool namesakes; /* in each run several trainings have one job name */
	bool grouped;   /* in each run jobs have groups, if they can */
};

/* Runs one seed. Returns false if it failed, with the reason in `why`. */
bool sim_run(uint64_t seed, const struct sim_setup *setup, struct sim_stats *stats, FILE *trace, char *why,
	     size_t size);
/* Ends a rank, for which the next generation may wait. */
void team_rank_ended(struct rank *k);
/* Processes EV_RANK_BIRTH. */
void team_birth(struct rank *k);
/* Fails the run with this sentence; later calls are ignored. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- the trace: sim_trace.c ---- */

void trace(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Traces the frames that begin in the bytes that an end sends. */
void trace_bytes(struct conn *c, enum side from, const uint8_t *bytes, size_t n);

#endif
