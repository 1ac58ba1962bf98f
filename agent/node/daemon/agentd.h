/* SPDX-License-Identifier: Apache-2.0 */
/* The agent: the hub of agent/node/core/hub.h on one libuv loop, with an engine for each
 * job. It runs as the daemon reduction-agent or on a thread of a training process
 * (node_agent.h). Everything runs on the loop's thread, except agentd_post(), which
 * engines' threads call, agentd_stop(), and the tasks that shm.c and engine.c give to a
 * pool of threads, which starts before the agent listens. gRPC's threads hand calls over
 * to the loop. A status takes no lock of an engine: the loop asks each engine for a
 * report, and the last answer completes the status. A configuration is freed when new
 * jobs use another one and no running job uses it. */
#ifndef RS_AGENT_NODE_DAEMON_AGENTD_H
#define RS_AGENT_NODE_DAEMON_AGENTD_H

#include "agent/node/core/hub.h"
#include "agent/node/core/status.h"
#include "common/pool.h"
#include "common/spin.h"

#include <pthread.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <uv.h>

enum {
	AGENTD_OUT_SPARE = 64,  /* unread messages a client may have, in addition to one for each operation in flight */
	AGENTD_READ_BATCH = 64, /* messages read from one client before others are served */
};

/* A message that waits to be sent to a client. Owns fd. */
struct agentd_out {
	struct agentd_out *next;
	int fd; /* -1: none */
	union local_message m;
};

/* A client's connection. Invariant: it exists until its poll handle is closed; client is
 * NULL after local_client_lost(). */
struct agentd_conn {
	struct agentd *a;
	LIST_ENTRY(agentd_conn) link; /* in a->conns */
	int fd;
	uv_poll_t poll;
	struct local_client *client;
	struct agentd_out *out, **out_end;
	unsigned out_n;
	bool peer_closed; /* the client has closed and receives nothing more; its earlier messages are still read */
	const char
	    *close_reason; /* why it will be closed as soon as the hub's call has returned; NULL: it stays open */
};

/* A socket and the lock that protects its path. Invariant: fd is -1 while it is closed,
 * or if the gRPC module has it; lock_fd is -1 while the path is not locked. */
struct agentd_socket {
	char path[RS_PATH_LEN];
	char lock_path[RS_PATH_LEN + 8];
	int fd, lock_fd;
	gid_t group; /* members of this group may connect; an abstract socket has none */
};

/* A configuration that was read while the agent runs. */
struct agentd_config {
	struct agentd_config *next;
	struct rs_config cfg;
};

/* One agent. Invariants: conns holds exactly the open connections; configs holds the
 * configurations that were read since agentd_open and may be in use; after closed is set
 * all handles are closing and no engine is left. */
struct agentd {
	const struct rs_config *cfg; /* for new jobs: the one of agentd_open, or one of configs */
	struct agentd_config *configs;
	unsigned ops; /* job.max_ops at the start */
	struct rs_log *log;
	char host[64];
	struct local_hub *hub;
	uv_loop_t loop;
	struct agentd_socket socket;
	uv_poll_t listener;
	uv_timer_t timer;
	struct rs_pool pool;                /* makes shared memory and frees engines */
	uv_async_t wake;                    /* events are queued, tasks have ended, or connections must be closed */
	uv_check_t check;                   /* called after all pending input was read */
	uv_idle_t idle;                     /* active while the loop must not sleep */
	struct rs_spin spin;                /* spins for a moment after small operations were started or have ended */
	bool activity;                      /* that has happened since the last check */
	LIST_HEAD(, agentd_engine) engines; /* of all jobs */
	LIST_HEAD(, agentd_engine) busy_polled; /* engines that this loop busy-polls for their threads */
	bool busy_polling;                      /* it does so now, and will take the events itself */
	pthread_t thread;                       /* the loop's thread; constant */
	struct rs_log_limit refused;
	int spare_fd; /* kept open to accept and refuse when descriptors have run out */
	LIST_HEAD(, agentd_conn) conns;
	const struct agentd_hooks *hooks; /* NULL: it is no daemon, and serves one job */
	void *hooks_ctx;
	bool listening, stopping, closed;
	_Atomic bool stop_requested;
	uint32_t drain_ms; /* set before stop_requested is */

	pthread_mutex_t lock; /* of the events */
	struct local_event *events, **events_end;
};

struct agentd_engine;
struct trace;

/* What the daemon has to do when something happens to the agent. */
struct agentd_hooks {
	/* an engine was freed; agentd_engine_ask may not have been answered */
	void (*engine_freed)(struct agentd *a, const void *engine);
	void (*close)(struct agentd *a); /* no engine is left: closes all handles */
	void (*free)(struct agentd *a);  /* the loop has ended */
};

/* loop.c */
/* Opens the agent and listens at `socket`. *a must stay where it is, and cfg and log
 * valid, until agentd_serve has returned, which must be called then. Errors: RS_ECONFIG,
 * RS_ENOMEM, those of agentd_socket_open; nothing is left open.
 */
int agentd_open(struct agentd *a, const struct rs_config *cfg, const char *socket, struct rs_log *log,
		struct rs_err *e);
/* Serves until agentd_stop or agentd_drain and the end of all jobs, and closes
 * everything. */
void agentd_serve(struct agentd *a);
/* Takes no new clients; jobs may continue until deadline_ms. May be called again with
 * another time. May close everything. */
void agentd_drain(struct agentd *a, uint64_t deadline_ms);
/* Tells it to stop; jobs may continue for drain_ms. From another thread, once. */
void agentd_stop(struct agentd *a, uint32_t drain_ms);
/* config.c */
/* Takes over a configuration, for jobs that start later. Errors: RS_ENOMEM; then *fresh
 * stays with the caller. */
int agentd_take_config(struct agentd *a, const struct rs_config *fresh, struct rs_err *e);
/* Frees the configurations that no job uses any more. */
void agentd_free_configs(struct agentd *a);

/* schedule.c */
/* Sets the timer to the hub's next timeout. */
void agentd_arm(struct agentd *a);
/* As post in local_ports. */
void agentd_post(void *ctx, struct local_event *n);
/* Passes the queued events to the hub. */
void agentd_take_events(struct agentd *a);
/* While stopping: makes the loop check soon whether all jobs have ended. */
void agentd_check_end_soon(struct agentd *a);

/* socket.c */
/* Opens the socket. Removes a stale socket file; refuses one on which another agent
 * listens. Errors: RS_EIO; RS_EREFUSED: the name is in use, which may pass. */
int agentd_socket_open(struct agentd_socket *s, const char *path, struct rs_err *e);
/* Makes a path that is not abstract free for a socket that others open there: locks it,
 * and removes a stale socket. agentd_socket_close removes the socket and the lock. Errors
 * as agentd_socket_open. */
int agentd_socket_claim(struct agentd_socket *s, const char *path, struct rs_err *e);
void agentd_socket_close(struct agentd_socket *s);
/* Checks the peer of a connection: root, the agent's own user and members of the socket's
 * group are allowed. Errors: RS_EREFUSED. */
int agentd_socket_check_peer(const struct agentd_socket *s, int fd, uint32_t *ret_pid, struct rs_err *e);

/* conn.c */
void agentd_accept(struct agentd *a);
void agentd_send(void *ctx, struct local_client *c, const union local_message *m, int fd);
void agentd_drop(void *ctx, struct local_client *c);
bool agentd_runs(void *ctx, struct local_client *c);
void agentd_close_scheduled(struct agentd *a);
void agentd_close_all(struct agentd *a);

/* shm.c */
int agentd_shm_make(void *ctx, struct local_buffer *b, uint64_t bytes, struct rs_err *e);
void agentd_shm_free(void *ctx, void *map, uint64_t bytes);
void *agentd_stage_new(void *ctx, size_t bytes);
void agentd_stage_free(void *ctx, void *stage, size_t bytes);

/* engine.c */
int agentd_engine_start(void *ctx, void **ret, struct local_job *job, const struct local_engine *spec,
			struct rs_err *e);
int agentd_engine_submit(void *ctx, void *engine, struct exchange_op *op, struct rs_err *e);
void agentd_engine_poke(void *ctx, void *engine);
void agentd_engine_abort(void *ctx, void *engine, int code, const char *message);
bool agentd_engine_can_shard(void *ctx, void *engine);
void agentd_engine_stats(void *ctx, void *engine, uint64_t *ret_tx, uint64_t *ret_rx);
void agentd_engine_free(void *ctx, void *engine, struct local_job *job);
/* As engine_ask_report, for an engine of the hub. */
void agentd_engine_ask(void *engine, struct exchange_report *to, void (*done)(void *user), void *user);
/* As engine_trace, for an engine of the hub. Has no effect if the engine is being
 * freed. */
void agentd_engine_trace(struct agentd *a, const void *engine, struct trace *trace, void (*done)(void *user),
			 void *user);
/* Returns whether the threads of all engines have answered the call before, and asks them
 * again. */
bool agentd_engines_answer(struct agentd *a);
/* Polls the busy-polled engines. Returns whether anything had been received. */
bool agentd_engines_busy_poll(struct agentd *a);
/* stay: keeps the loop from sleeping. Otherwise lets it sleep, and stops busy polling. */
void agentd_keep_awake(struct agentd *a, bool stay);

#endif
