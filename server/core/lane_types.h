/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters, events and limits of a lane: everything that the lane's core exchanges with
 * the registry and the drivers. lane.h has the functions. */
#ifndef RS_SERVER_CORE_LANE_TYPES_H
#define RS_SERVER_CORE_LANE_TYPES_H

#include "common/error.h"
#include "common/kernels/kernels.h"
#include "proto/control.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LANE_SCRATCH = 256 << 10, /* bytes of the shared receive scratch; it should stay in the L2 cache */
	/* Bytes of the read-ahead buffer, in L2 as well. One system call fills it with
	 * the frames that follow a payload. Its size is 128 KiB and the headers of as
	 * many chunks: otherwise a few bytes of what a rank sends at once would need a
	 * read, a sum and an answer of their own. */
	LANE_AHEAD = 132 << 10,
	LANE_TICK_MS = 100,    /* interval of lane_tick */
	LANE_SECOND_MS = 1000, /* interval in which rates are counted */
	LANE_LINGER_MS = 1000, /* time that the peer of a closing session has to read its last frames */
	SESSION_IOV = 64,      /* most iovecs of one send target */
	/* Most frames without a chunk that a worker may send between two ticks of its
	 * lane. A worker needs fewer in several minutes, and other jobs of the lane do
	 * not notice so many. */
	SESSION_CONTROLS = 4096,
};

/* What the registry decides when all ranks of a job are there. */
struct lane_begin {
	uint64_t processes;          /* training processes of all ranks */
	struct control_start agreed; /* START carries it if its features have FEATURE_START; else START is empty */
	uint8_t *memory;             /* with agreed.window: of lane 0; it replaces that of stripe_params */
	const struct control_hello *hello; /* of a rank of the job, valid while a session of it exists; uplinks begin
					      with it */
};

/* The properties that all sessions of a stripe have in common. Constant after
 * lane_attach(). */
struct stripe_params {
	uint64_t job; /* number of the job in this process, never used twice */
	uint32_t generation;
	unsigned lane; /* of the job's lanes on this reducer */
	unsigned world_size;
	uint32_t chunk_bytes;
	uint32_t decoded_bytes; /* as in Hello: most bytes of a chunk as float32; 0: 2 x chunk_bytes */
	uint32_t window;
	uint32_t priorities; /* 1 to FRAME_PRIORITIES */
	bool deterministic;
	bool checksum;
	bool retain;      /* the job fails over: other reducers can take over if this one loses a rank */
	unsigned groups;  /* of ranks; 0: the job has none */
	unsigned uplinks; /* most uplinks to this lane, of reducers that relay for a group */
	uint8_t *memory;  /* stripe_memory() bytes, page-aligned and touched; borrowed until every session is freed */
};

/* The properties of one connection that lane_attach() needs. */
struct session_params {
	unsigned rank;
	uint32_t peer_detect_ms; /* the core sends PING after a quarter of this time without other traffic */
	char label[128];         /* the name that the worker gave itself, for messages */
	bool probe;              /* the worker sends PROBE; LANE_PROVEN follows */
	double weight;           /* access.weight; the core only reports it */
	bool keeps;              /* the connection outlives the job, if that ends with ABORT: see session_parts() */
	bool direct;             /* what acknowledges is the kernel of the worker's machine; no proxy is between */
	unsigned group;          /* of the rank, or for which an uplink relays; 0 without groups */
	unsigned relay;          /* 1 + index of the reducer whose uplink this is; 0: the connection is of a rank */
};

/* The reducers of this process's own configuration, which are the only ones that it
 * connects to. Borrowed. */
struct lane_peers {
	const char *const *ids; /* in the order of the configuration */
	unsigned n;
};

enum lane_event_type {
	LANE_CLOSED,    /* a session is freed and its connection may be closed */
	LANE_FAILED,    /* the job cannot go on; the stripe has ended */
	LANE_LOST,      /* a rank of a running job was lost; LANE_FAILED follows */
	LANE_STOPPED,   /* a rank sends nothing, but its machine acknowledges */
	LANE_LATE,      /* ranks have delayed the others for a second; once for each chunk */
	LANE_ANSWERED,  /* a rank has answered lane_ask() */
	LANE_NONFINITE, /* a rank has sent NaN, or infinity, for the first time */
	LANE_UNLINKED,  /* an uplink does not work; LANE_FAILED follows */
	LANE_PROVEN,    /* large messages pass between the session and its worker, both ways */
};

/* One message from a lane to the registry. */
struct lane_event {
	enum lane_event_type type;
	uint64_t job;
	unsigned rank, lane;                      /* all but FAILED: the rank; LATE: the first late rank */
	bool clean;                               /* CLOSED: the rank sent GOODBYE */
	bool uplink;                              /* CLOSED: it was an uplink, of no rank */
	uint64_t bytes_in, bytes_out, operations; /* CLOSED: of the session; those that its stripe has summed so far */
	struct rs_err why;                        /* FAILED, LOST; NONFINITE: what was found */
	struct rs_cause cause;                    /* FAILED: the same as data */
	uint64_t question;                        /* ANSWERED */
	uint64_t seq;                             /* LATE, NONFINITE: the operation */
	bool nan;                                 /* NONFINITE: it was NaN */
	uint32_t waited_ms;                       /* LATE, STOPPED: the silence */
	unsigned late;                            /* LATE: number of late ranks */
};

/* The properties and callbacks of a lane. */
struct lane_options {
	const struct rs_kernels *kernels;
	uint32_t detect_ms;  /* a worker is lost after this time without a byte or an acknowledgement from it */
	uint32_t stopped_ms; /* and after this time without a byte, whatever is acknowledged */
	/* Receives events. The lane's functions call it, and it must not call them. */
	void (*event)(void *ctx, const struct lane_event *ev);
	/* For uplinks; may be NULL if the reducer relays for nobody. Loads the secret of
	 * the job in a HELLO; without a function there is none. */
	int (*secret)(void *ctx, const struct control_hello *hello, struct auth_secret *ret, struct rs_err *e);
	int (*random)(void *ctx, void *buf, size_t n, struct rs_err *e);
	struct lane_peers peers;
	void *ctx;
};

/* The contributions that started since the last call of lane_arrivals(). */
enum lane_arrivals {
	LANE_ARRIVED_NOTHING, /* none; only frames without a chunk, or the rest of earlier contributions */
	LANE_ARRIVED_SMALL,   /* only contributions to operations of at most OPERATION_SMALL */
	LANE_ARRIVED_LARGE,
};

#endif
