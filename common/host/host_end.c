/* SPDX-License-Identifier: Apache-2.0 */
/* The end of gRPC. If one of its own threads could not be started, as under a limit of
 * memory or threads, gRPC waits for it forever. A timer ends the process then: its jobs
 * have ended before. */
#include "common/host/host_state.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { END_GRPC_S = 5 }; /* gRPC needs some milliseconds */

/* On a thread that waits for gRPC. The copy of the log has no tap, which takes locks. */
static void end_on_expired(int number, siginfo_t *info, void *context)
{
	const struct host *h = info->si_value.sival_ptr;
	struct rs_log log = {.level = h->opt.log->level,
			     .json = h->opt.log->json,
			     .journal = h->opt.log->journal,
			     .journald = h->opt.log->journald,
			     .fd = h->opt.log->fd};

	(void)number;
	(void)context;
	rs_log(&log, RS_LOG_WARN, "grpc-stuck", rs_kv_u("waited_s", END_GRPC_S),
	       rs_kv_s("reason", "gRPC does not end, as if a thread of its own could not be started (limits: ulimit "
				 "-u, ulimit -v, TasksMax of systemd); the process exits without waiting for it"));
	_exit(h->draining ? EXIT_SUCCESS : EXIT_FAILURE);
}

void host_end_grpc(struct host *h)
{
	struct sigaction on = {.sa_sigaction = end_on_expired, .sa_flags = SA_SIGINFO}, before;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM, .sigev_value.sival_ptr = h};
	struct itimerspec after = {.it_value.tv_sec = END_GRPC_S};
	sigset_t alarm, mask;
	timer_t timer;
	bool guarded;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigaction(SIGALRM, &on, &before);
	pthread_sigmask(SIG_UNBLOCK, &alarm, &mask);
	guarded = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
	if (guarded)
		timer_settime(timer, 0, &after, NULL);
	h->rpc->server_stop(h->rpc_server);
	if (guarded)
		timer_delete(timer);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	sigaction(SIGALRM, &before, NULL);
}
