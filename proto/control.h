/* SPDX-License-Identifier: Apache-2.0 */
/* Control payloads as plain structs: packing and unpacking of reduction.proto for both
 * ends. Strings from the network are cut to the size of their buffers, so nothing is
 * longer than its buffer. Any thread. */
#ifndef RS_PROTO_CONTROL_H
#define RS_PROTO_CONTROL_H

#include "common/auth.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	CONTROL_JOB = 64,           /* bytes of a job name, terminator included */
	CONTROL_LABEL = 128,        /* bytes of a worker's label, terminator included */
	CONTROL_RUN = 128,          /* bytes of a run, terminator included */
	CONTROL_EVIDENCE = 256,     /* bytes of evidence, terminator included */
	CONTROL_SOURCE = 64,        /* bytes of an address with its port, terminator included */
	CONTROL_MISSING = 16,       /* most missing ranks that WAITING names */
	CONTROL_MESSAGE = 508,      /* bytes of a sentence, as in struct rs_err */
	CONTROL_REDUCERS = 256,     /* most reducers of a view */
	CONTROL_LIFE_MAX = 1 << 20, /* most deaths plus returns of one reducer, or epochs, that a view can express */
	CONTROL_SHARE_MAX = 65535,  /* largest share of a reducer */
	CONTROL_WHY = 200,          /* bytes of the reason in a view, terminator included */
	CONTROL_HELLO_LEN = 1024,   /* bytes of a packed HELLO at most */
	CONTROL_PROOF_LEN = 64,     /* bytes of a packed PROOF or CHALLENGE at most */
	CONTROL_SOFTWARE = 48,      /* bytes of a name and version, terminator included */
	CONTROL_WELCOME_LEN = 112,  /* bytes of a packed WELCOME at most */
	CONTROL_START_LEN = 38,     /* bytes of a packed START at most */
	CONTROL_PING_MS = 20000,    /* longest time between two PINGs; some NATs forget a silent connection in 60 s */
	CONTROL_FOUND = 384,        /* bytes of the sentence in NONFINITE, terminator included */
	CONTROL_CAUSE = 16,         /* bytes of a packed cause at most */
	CONTROL_LOAD_LEN = 50,      /* bytes of a packed LOAD at most */
	/* bytes of a packed view at most */
	CONTROL_VIEW = 4 + 3 * CONTROL_REDUCERS + 4 + CONTROL_REDUCERS / 8 + 4 + 10 * FRAME_PRIORITIES + CONTROL_WHY +
		       CONTROL_JOB + CONTROL_CAUSE + 38 + 4 + 4 + 3 * CONTROL_REDUCERS + 4 + 10 * FRAME_PRIORITIES,
};

/* HELLO; the fields are those of Hello in reduction.proto. */
struct control_hello {
	char job[CONTROL_JOB];
	uint32_t generation;
	uint32_t rank, world_size;
	uint32_t lane, lanes;
	uint32_t chunk_bytes, decoded_bytes, window, most_window, wanted_window, priorities;
	bool deterministic, checksum, retain, rejoin, shared;
	uint64_t config_digest;
	uint32_t processes;
	char label[CONTROL_LABEL];
	char run[CONTROL_RUN]; /* "": unknown */
	char evidence[CONTROL_EVIDENCE];
	char source[CONTROL_SOURCE]; /* "": unknown */
	char reducer[CONTROL_JOB];
	uint64_t incarnation;
	uint32_t detect_ms;
	bool has_nonce; /* the worker has the job's secret, and will prove it */
	uint8_t nonce[AUTH_NONCE];
	uint64_t features; /* a set of proto/features.h, as in the following structs */
	uint32_t groups, group, uplinks, relay;
	uint64_t reducers_digest;
};

/* WELCOME; the fields are those of Welcome in reduction.proto. */
struct control_welcome {
	uint32_t detect_ms;
	bool proven; /* mac is the reducer's proof that it has the job's secret */
	uint8_t mac[AUTH_MAC];
	char software[CONTROL_SOFTWARE]; /* of the reducer; set by control_unpack_welcome, and not packed from here */
	uint64_t features;
};

/* START; the fields are those of Start in reduction.proto. All are 0 if the frame is
 * empty. */
struct control_start {
	uint64_t features;
	uint64_t start;  /* incarnation of rank 0 */
	uint32_t window; /* 0: as in HELLO */
};

/* REFUSED; the fields are those of Refused in reduction.proto. */
struct control_refused {
	int code; /* enum rs_code */
	char message[CONTROL_MESSAGE];
	bool retry;
	bool elsewhere;
	char reducer[CONTROL_JOB]; /* with `elsewhere`; "": none */
};

/* WAITING. Invariant: missing_n is at most CONTROL_MISSING. */
struct control_waiting {
	uint32_t joined, world_size;
	uint32_t missing[CONTROL_MISSING];
	uint32_t missing_n;
	char refused[CONTROL_MESSAGE]; /* why a rank was refused; "": none was */
};

/* The ranks for which an operation waits on a reducer. Invariant: missing_n <=
 * missing_all. */
struct control_late {
	uint64_t seq;
	uint32_t waited_ms;
	uint32_t missing[CONTROL_MISSING]; /* the lowest ranks */
	uint32_t missing_n, missing_all;   /* how many ranks are named, and how many there are */
	char label[CONTROL_LABEL];         /* of the first of them */
};

/* NONFINITE; the fields are those of Nonfinite in reduction.proto. */
struct control_nonfinite {
	uint64_t nan_operations, infinite_operations;
	uint64_t seq;
	char first[CONTROL_FOUND];
};

/* LOAD; the fields are those of Load in reduction.proto. Invariant: times are at most
 * 1000. */
struct control_load {
	uint32_t up, down, processor;
	uint32_t ranks;
	uint32_t up_most, up_most_rank, down_most, down_most_rank;
	bool answer;
};

/* The view: which reducers are lost, and their shares; see proto/README.md. Invariant:
 * lost <= n, lives[i] <= CONTROL_LIFE_MAX, epoch <= CONTROL_LIFE_MAX, and with an epoch
 * shares[i] is 1 to CONTROL_SHARE_MAX. */
struct control_view {
	unsigned n;                       /* reducers, 1 .. CONTROL_REDUCERS */
	uint32_t lives[CONTROL_REDUCERS]; /* one more at each death and at each return; odd: the reducer is dead */
	uint32_t epoch;                   /* how often rank 0 has set the shares; 0: they are those of the map */
	uint32_t shares[CONTROL_REDUCERS];
	uint64_t start[FRAME_PRIORITIES];
	unsigned lost;             /* 1 + the index of the reducer whose death was learnt of last, 0: none */
	char why[CONTROL_WHY];     /* the reason of that death */
	struct rs_cause cause;     /* the same as data */
	bool reported;             /* that reducer reported the reason, and the cause, itself */
	char lost_id[CONTROL_JOB]; /* its id; "": unknown */
	uint64_t features;
	uint32_t lead;                    /* 0: that of the configuration */
	bool empty[CONTROL_REDUCERS];     /* of dead reducers: the slot is empty; for people */
	uint64_t begun[FRAME_PRIORITIES]; /* with FEATURE_RELAYS */
};

/* Each packs into out (FRAME_CONTROL_MAX bytes) and returns the length. */
uint32_t control_pack_hello(uint8_t *out, const struct control_hello *h);
uint32_t control_pack_challenge(uint8_t *out, const uint8_t nonce[AUTH_NONCE]);
uint32_t control_pack_proof(uint8_t *out, const uint8_t mac[AUTH_MAC]);
uint32_t control_pack_welcome(uint8_t *out, const struct control_welcome *w);
uint32_t control_pack_start(uint8_t *out, const struct control_start *s);
uint32_t control_pack_refused(uint8_t *out, const struct control_refused *r);
uint32_t control_pack_waiting(uint8_t *out, const struct control_waiting *w);
uint32_t control_pack_late(uint8_t *out, const struct control_late *l);
uint32_t control_pack_nonfinite(uint8_t *out, const struct control_nonfinite *n);
/* cause: what the sentence says, as data; NULL: the code alone. */
uint32_t control_pack_abort(uint8_t *out, const struct rs_err *why, const struct rs_cause *cause);
uint32_t control_pack_view(uint8_t *out, const struct control_view *v);
uint32_t control_pack_load(uint8_t *out, const struct control_load *l);

/* Each unpacks len bytes. Errors: RS_ENOMEM; RS_EPROTO if the bytes are not such a
 * message, a nonce or a proof has the wrong length, or (Hello) a string is too long for
 * its buffer or holds control characters. Values are not checked against the job. */
int control_unpack_hello(const uint8_t *in, uint32_t len, struct control_hello *ret, struct rs_err *e);
int control_unpack_challenge(const uint8_t *in, uint32_t len, uint8_t ret_nonce[AUTH_NONCE], struct rs_err *e);
int control_unpack_proof(const uint8_t *in, uint32_t len, uint8_t ret_mac[AUTH_MAC], struct rs_err *e);
int control_unpack_welcome(const uint8_t *in, uint32_t len, struct control_welcome *ret, struct rs_err *e);
/* len may be 0. */
int control_unpack_start(const uint8_t *in, uint32_t len, struct control_start *ret, struct rs_err *e);
int control_unpack_refused(const uint8_t *in, uint32_t len, struct control_refused *ret, struct rs_err *e);
int control_unpack_waiting(const uint8_t *in, uint32_t len, struct control_waiting *ret, struct rs_err *e);
/* RS_EPROTO also if no rank is missing. */
int control_unpack_late(const uint8_t *in, uint32_t len, struct control_late *ret, struct rs_err *e);
int control_unpack_nonfinite(const uint8_t *in, uint32_t len, struct control_nonfinite *ret, struct rs_err *e);
/* RS_EPROTO also if a time is above 1000. Allocates nothing. */
int control_unpack_load(const uint8_t *in, uint32_t len, struct control_load *ret, struct rs_err *e);
/* Puts the abort's code and sentence into *ret, and its cause into *ret_cause; an unknown
 * code becomes RS_EPROTO. */
int control_unpack_abort(const uint8_t *in, uint32_t len, struct rs_err *ret, struct rs_cause *ret_cause,
			 struct rs_err *e);

/* RS_EPROTO also if there are no reducers or too many, or a life, the epoch or a share is
 * out of range, or there is not one share for each reducer. A peer of
 * release 0.1 sends no cause; of its sentence "rank N (NAME) was lost: ..." the cause is
 * then read. So does control_unpack_abort. */
int control_unpack_view(const uint8_t *in, uint32_t len, struct control_view *ret, struct rs_err *e);

/* Merges: takes the larger value of each life into *to, which has as many reducers, and
 * with it the reason; and the shares of the larger epoch. Returns whether *to changed. */
bool control_view_merge(struct control_view *to, const struct control_view *from);
/* Returns whether two views have different shares in one epoch: no order of merges gives
 * the same view then. */
bool control_view_conflicts(const struct control_view *a, const struct control_view *b);
/* Returns the generation number of a view, the sum of all lives and the epoch. If one of
 * two views was merged into the other, their numbers are equal exactly when the views
 * are. */
uint64_t control_view_number(const struct control_view *v);

/* Returns whether a control frame's payload has its checksum; true if the frame carries
 * no checksum. */
bool control_intact(const struct frame *f, const void *payload);

/* Writes a whole control frame (header and payload, with its checksum) into out, and
 * returns its length, FRAME_HEADER + len bytes. */
uint32_t control_frame(uint8_t *out, unsigned type, uint32_t generation, uint64_t ack, const uint8_t *payload,
		       uint32_t len);

#endif
