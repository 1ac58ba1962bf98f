/* SPDX-License-Identifier: Apache-2.0 */
/* The host of a daemon: what a reducer and an agent do alike around their loop. Signals,
 * the drain, reloads, the service manager, the gRPC and HTTP ports with the control
 * service, events, statuses and traces.
 *
 * The happy path: host_init -> host_open_ports -> host_ready -> the loop runs -> SIGTERM
 * or a call drains: the daemon ends its jobs, then calls host_stop, host_stop_grpc and
 * host_close -> the loop ends -> host_free. Failure modes: a second signal ends the
 * process at once. A port cannot be opened: the daemon closes the host as at its end. A
 * reload fails: everything stays as it was. Changed certificates cannot be used: the old
 * ones stay. No memory for a status or a trace: the call
 * ends with an error. More lines come from other threads than the list has room for:
 * their events are missing.
 *
 * One thread runs the loop and calls these functions, except where a comment says
 * otherwise. */
#ifndef RS_COMMON_HOST_HOST_H
#define RS_COMMON_HOST_HOST_H

#include "common/host/http/port.h"
#include "common/host/record_file.h"
#include "common/host/service/control_uv.h"
#include "common/notify.h"
#include "common/stamp.h"
#include "common/tls_own.h"
#include "config/config.h"
#include "proto/rpc/unauthenticated.h"

#include <pthread.h>
#include <stdatomic.h>

/* The numbers that logs and the service manager show. */
struct host_load {
	unsigned jobs, ranks;
};

/* One daemon: names, and callbacks on the loop's thread. All of them must be set, except
 * where a comment says so. */
struct host_daemon {
	const char *process;      /* "reducer" or "agent", in messages */
	const char *section;      /* of its addresses in the configuration, in messages: "server" or "agent" */
	const char *health;       /* a service whose health is that of the process; NULL: none */
	const char *rank;         /* the word for a rank in the status of the service manager */
	const char *taken;        /* what a reload takes over; a sentence */
	const char *const *fixed; /* keys of which a change needs a restart, "server.listen", ...; NULL at the end */
	bool worker;              /* traces are those of a worker: each is of one job. Otherwise each is of all jobs */

	struct host_load (*load)(void *ctx);
	/* Called every RS_NOTIFY_TICK_MS, and after drain(). May close the host. NULL:
	 * nothing to do. */
	void (*tick)(void *ctx);
	/* Returns whether all threads have turned since the last call that returned
	 * true. */
	bool (*turned)(void *ctx);
	/* Takes no new jobs, and ends those that still run at deadline_ms. Called again
	 * if the deadline changes. A daemon without tick() may close the host. */
	void (*drain)(void *ctx, uint64_t deadline_ms);
	/* Takes over a configuration that was read again, and owns *fresh then. Errors:
	 * nothing has changed. */
	int (*reload)(void *ctx, struct rs_config *fresh, struct rs_err *e);
	/* Reads the certificates of the configuration again: their files have changed.
	 * Errors: nothing has changed. NULL: nothing to do. */
	int (*renew)(void *ctx, const struct rs_config *cfg, struct rs_err *e);

	/* Makes a status. host_answered() follows *ret_due times. NULL: no memory. */
	void *(*collect)(void *ctx, unsigned *ret_due);
	/* Completes the status: all answers are there. Returns its reply, which
	 * status_free() frees with it. */
	struct status_reply *(*complete)(void *ctx, void *status);
	void (*status_free)(void *status);

	/* Begins to record. Sets *ret to the list of the traces, which the host owns, but
	 * does not touch before trace.ended is set and host_wake() was called. Errors:
	 * RS_ENOMEM. */
	int (*trace)(void *ctx, const struct trace_request *r, struct trace **ret, struct rs_err *e);
	/* Ends all traces that still record. May be called again if they do not end. */
	void (*trace_end)(void *ctx);
};

/* What a host is made with. Borrowed until host_free. */
struct host_options {
	const struct host_daemon *daemon;
	void *ctx; /* of its callbacks */
	uv_loop_t *loop;
	const struct rs_config *cfg;
	const char *config_file;         /* read again by a reload; NULL: there is none */
	const char *notice;              /* a file that exists while the machine is about to end; "" or NULL: none */
	const struct rs_config *as_read; /* what the file said, without the command line; copied */
	struct rs_log *log;              /* a reload may change its level */
	struct rs_notify *notify;        /* NULL: there is no service manager */
};

/* The ports of a daemon. Borrowed for host_open_ports. */
struct host_ports {
	const char *grpc, *http; /* addresses; "": no such port */
	int http_tls;            /* enum tls_mode */
	bool grpc_tls;           /* the gRPC port uses the TLS of the configuration */
	const char *state_dir;   /* folder for the records of ended jobs; NULL: they are not kept on disk */
	unsigned threads;        /* of the gRPC port */
	unsigned calls_max;      /* calls of `method` at the same time */
	/* Makes one more method of the gRPC port; host.rpc is set. NULL: there is none.
	 * Errors: those of the daemon. */
	int (*method)(void *ctx, struct rpc_method *ret, struct rs_err *e);
	/* Logs that a connection without a right has sent too much and was closed. NULL:
	 * as a call without a right. */
	void (*refused)(void *ctx, const char *peer, const struct rs_err *why);
};

/* A line that another thread has logged and that waits to become an event. */
struct host_line {
	struct host_line *next;
	struct event event;
};

/* Files that are read again when they change. Those of TLS come first. */
enum {
	HOST_STAMP_CERTIFICATE,
	HOST_STAMP_KEY,
	HOST_STAMP_AUTHORITY,
	HOST_STAMP_READ_TOKEN,
	HOST_STAMP_ADMIN_TOKEN,
	HOST_STAMPS,
};
enum {
	HOST_LOOK_MS = 10000, /* between two looks whether they have changed */
	HOST_BECAUSE = 200,   /* bytes of a reason for a drain, terminator included */
};

/* What the files were when they were read. */
struct host_renewal {
	struct rs_config cfg; /* the scalars of the configuration in use */
	struct rs_stamp stamps[HOST_STAMPS];
	uint64_t looked_ms;                            /* the last look */
	char refused[sizeof((struct rs_err *)0)->msg]; /* why they could not be used; "": they could */
	struct tls_validity validity;                  /* of the own certificate */
	char names[TLS_NAMES_MAX];                     /* of that certificate */
	int64_t told_s;                                /* when a line warned of its end; 0: never */
};

/* The host. Invariants: `control` exists if a port was opened. While `collecting`,
 * host_answered() was called for all but `due` answers that have been counted. While
 * `tracing`, the traces of the list that have not ended belong to the daemon's
 * threads. */
struct host {
	struct host_options opt;
	struct host_ports ports;
	struct rs_config as_read; /* the scalars of the file at the start, with the level of the log that is in use */
	struct host_renewal renewal;
	uint32_t drain_ms; /* timeouts.drain */
	uint64_t started_ms;
	int64_t started_unix_ms;
	pthread_t thread; /* of the loop */

	uv_signal_t signals[4]; /* SIGTERM, SIGINT, SIGHUP, SIGPWR */
	uv_timer_t tick;
	uv_async_t wake; /* lines, answers, ends of traces, or a new deadline */
	bool signalled;  /* by SIGTERM or SIGINT */
	bool draining;
	bool told; /* the daemon knows deadline_ms */
	uint64_t deadline_ms;
	uint32_t drain_limit_ms;    /* the time that jobs had at the start of the drain, or when it was set again */
	char because[HOST_BECAUSE]; /* why it drains; "": it does not */
	bool notice_unreadable;     /* a line has said so */

	struct control_uv *control; /* NULL: there is no port */
	struct http_port *http;
	const struct rpc_api *rpc; /* NULL: there is no gRPC port */
	struct rpc_server *rpc_server;
	struct unauth *unauth; /* NULL: the gRPC port is not open, or is a UNIX socket */
	uv_timer_t scan;       /* calls unauth_scan; only with `unauth` */
	char grpc_name[RS_ADDRESS_MAX];
	struct rs_log_limit denied;

	uint64_t sampled_ms; /* when the history got its last sample */
	bool requested;      /* the service waits for a status */
	void *status;        /* the one that is being made; NULL: no memory */
	unsigned due;
	bool tracing;
	struct trace *traces;
	uv_timer_t trace_limit;
	struct events *events;      /* owned; exists if `control` does */
	struct events *jobs;        /* the same: the records of ended jobs */
	struct record_file records; /* those on disk */

	_Atomic unsigned answered; /* answers that have not been counted yet; any thread */
	pthread_mutex_t lock;      /* protects the following fields; any thread */
	struct host_line *lines, **lines_end;
	unsigned lines_n;
};

/* Makes a host and handles signals. Loop's thread. */
void host_init(struct host *h, const struct host_options *opt);
/* Opens the ports that have an address, with the control service. Errors: RS_EUNSUPPORTED
 * (no module), RS_ECONFIG, RS_EIO, RS_ENOMEM; host_stop, host_stop_grpc, host_close and
 * host_free clean up after them. */
int host_open_ports(struct host *h, const struct host_ports *ports, struct rs_err *e);
/* Tells the service manager that the daemon serves, and drains at once if there is a
 * notice that the machine ends. */
void host_ready(struct host *h);

/* Drains: the daemon takes no new jobs, and ends those that run after timeout_ms (0:
 * timeouts.drain). A second call changes the limit only if it has one. `by`: the origin,
 * for the log. `because`: the reason, for log and status; NULL: that of the notice if the
 * machine is about to end, else `by`. The daemon's drain() follows, not from within this
 * call. */
void host_drain(struct host *h, const char *by, const char *because, uint32_t timeout_ms);
/* Reads the configuration again. `result` is a sentence. Errors: RS_ECONFIG, RS_EIO,
 * RS_ENOMEM, those of the daemon; they are logged. */
int host_reload(struct host *h, char result[SERVICE_RESULT], struct rs_err *e);
/* Removes the limit of the gRPC connection from this address: it has shown a right. */
void host_trust(struct host *h, const char *peer);

/* One answer of a status is there. Any thread, until host_close. */
void host_answered(void *host);
/* A trace has ended. Any thread, until host_close. */
void host_wake(void *host);

/* Returns how long jobs may still run; 0: the daemon does not drain, or they may not. */
uint32_t host_drain_left_ms(const struct host *h);
/* Fills in what a status says of both daemons: software, times, addresses of the gRPC and
 * HTTP ports. */
void host_status(const struct host *h, struct status_reply *to);

/* Ends all calls and closes the HTTP port. The daemon's threads may still run. */
void host_stop(struct host *h);
/* Closes the gRPC port, whose streams must have been closed. */
void host_stop_grpc(struct host *h);
/* Closes all handles. No thread logs, answers or traces any more. */
void host_close(struct host *h);
/* Frees everything, after the loop has ended. */
void host_free(struct host *h);

#endif
