/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/daemon/node_agent.h"

#include "agent/node/daemon/agentd.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { NAME_JOB = 40, RETRY_MS = 20 };

/* An agent on a thread of a training process. */
struct node_agent {
	struct agentd a;
	struct rs_config *cfg; /* owned */
	struct rs_log log;
	pthread_t thread;
};

static uint64_t node_agent_hash(uint64_t h, const void *bytes, size_t n)
{
	return XXH3_64bits_withSeed(bytes, n, h);
}

void node_agent_name(char ret[static NODE_AGENT_NAME], const struct rs_config *cfg,
		     const struct node_agent_place *place)
{
	/* not the world size: ranks that differ in it shall meet and learn it */
	const uint32_t key[] = {place->generation, place->node_rank, (uint32_t)geteuid()};
	uint64_t h = node_agent_hash(node_agent_hash(0, key, sizeof key), place->job, strlen(place->job));

	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		const char *name = rs_config_lasting_name(cfg, &cfg->reducers[i]);

		h = node_agent_hash(h, name, strlen(name));
	}
	snprintf(ret, NODE_AGENT_NAME, "@reduction/local-rank-0/%.*s/%016" PRIx64, NAME_JOB, place->job, h);
}

static uint64_t node_agent_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Returns the log level: lines about a daemon's life and about each job that starts and
 * ends are of no use to a program. */
static int node_agent_log_level(const struct rs_config *cfg)
{
	return cfg->logging.level == RS_LOG_INFO ? RS_LOG_WARN : cfg->logging.level;
}

static int node_agent_listen(struct node_agent *n, const struct node_agent_place *place, uint32_t connect_ms,
			     struct rs_err *e)
{
	const struct timespec pause = {.tv_nsec = RETRY_MS * 1000000L};
	uint64_t until = node_agent_now_ms() + connect_ms;
	char name[NODE_AGENT_NAME];
	int rc;

	node_agent_name(name, n->cfg, place);
	while ((rc = agentd_open(&n->a, n->cfg, name, &n->log, e)) == RS_EREFUSED && node_agent_now_ms() < until)
		nanosleep(&pause, NULL);
	return rc ? rs_wrap(e, "this process cannot serve its node") : RS_OK;
}

static void *node_agent_main(void *arg)
{
	struct node_agent *n = arg;

	agentd_serve(&n->a);
	return NULL;
}

int node_agent_start(struct node_agent **ret, struct rs_config *cfg, const struct node_agent_place *place,
		     uint32_t connect_ms, struct rs_err *e)
{
	struct node_agent *n = calloc(1, sizeof *n);
	sigset_t all, before;
	int rc;

	if (!n)
		return rs_oom(e, 0, "the node's agent");
	n->cfg = cfg;
	n->log = (struct rs_log){.level = node_agent_log_level(cfg),
				 .json = cfg->logging.json,
				 .journal = rs_log_is_journal(STDERR_FILENO),
				 .fd = STDERR_FILENO};
	rc = node_agent_listen(n, place, connect_ms, e);
	if (rc)
		goto free_agent;
	sigfillset(&all); /* signals belong to the program's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&n->thread, NULL, node_agent_main, n);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		rc = rs_fail_sys(e, RS_ENOMEM, rc, "cannot start a thread for the node's agent");
		agentd_stop(&n->a, 0);
		agentd_serve(&n->a);
		goto free_agent;
	}
	*ret = n;
	return RS_OK;

free_agent:
	free(n);
	return rc;
}

uint32_t node_agent_drain_ms(const struct node_agent *n)
{
	return n->cfg->timeouts.drain_ms;
}

void node_agent_stop(struct node_agent *n, uint32_t drain_ms)
{
	agentd_stop(&n->a, drain_ms);
	pthread_join(n->thread, NULL);
	rs_config_close(n->cfg);
	free(n->cfg);
	free(n);
}
