/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: start -> the thread looks the name up and reports -> take. Failure
 * modes: the name is not found (take reports it); the lookup is abandoned, and the thread
 * frees it when it returns. */
#include "agent/worker/engine/lookup.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* One lookup. The lock protects all members except the names. The last of thread and
 * owner frees it. */
struct lookup {
	pthread_mutex_t lock;
	char host[256], port[16];
	struct wakeup *wake; /* valid while not abandoned */
	_Atomic bool *ended_flag;
	bool ended, abandoned;
	int rc;
	struct addrinfo *list; /* owned; NULL if rc is not 0 */
};

static void lookup_free(struct lookup *l)
{
	if (l->list)
		freeaddrinfo(l->list);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static void *lookup_main(void *arg)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
	struct lookup *l = arg;
	int rc = getaddrinfo(l->host, l->port, &hints, &list);
	bool abandoned;

	pthread_mutex_lock(&l->lock);
	l->rc = rc;
	l->list = rc ? NULL : list;
	l->ended = true;
	abandoned = l->abandoned;
	if (!abandoned) {
		atomic_store(l->ended_flag, true);
		wakeup_send(l->wake);
	}
	pthread_mutex_unlock(&l->lock);
	if (abandoned)
		lookup_free(l);
	return NULL;
}

/* Starts the thread with all signals blocked: they belong to the program's own
 * threads. */
static int lookup_start_thread(struct lookup *l)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;
	int rc = pthread_attr_init(&attr);

	if (rc)
		return rc;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&thread, &attr, lookup_main, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return rc;
}

struct lookup *lookup_start(const char *host, const char *port, struct wakeup *wake, _Atomic bool *ended)
{
	struct lookup *l = calloc(1, sizeof *l);

	if (!l)
		return NULL;
	pthread_mutex_init(&l->lock, NULL);
	snprintf(l->host, sizeof l->host, "%s", host);
	snprintf(l->port, sizeof l->port, "%s", port);
	l->wake = wake;
	l->ended_flag = ended;
	if (lookup_start_thread(l)) {
		lookup_free(l);
		return NULL;
	}
	return l;
}

bool lookup_take(struct lookup *l, int *ret_rc, struct addrinfo **ret)
{
	bool ended;

	pthread_mutex_lock(&l->lock);
	ended = l->ended;
	pthread_mutex_unlock(&l->lock);
	if (!ended)
		return false;
	*ret_rc = l->rc;
	*ret = l->list;
	l->list = NULL;
	lookup_free(l);
	return true;
}

void lookup_abandon(struct lookup *l)
{
	bool ended;

	pthread_mutex_lock(&l->lock);
	ended = l->ended;
	l->abandoned = true;
	pthread_mutex_unlock(&l->lock);
	if (ended)
		lookup_free(l);
}
