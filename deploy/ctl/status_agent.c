/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl status of an agent: its jobs, local ranks and reducers; and which reducers
 * a job has lost. */
#include "common/utf8.h"
#include "deploy/ctl/ctl.h"
#include "deploy/ctl/show.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef Reduction__V1__AgentJob agent_job;
typedef Reduction__V1__AgentReducer agent_reducer;

/* Prints text from the network. */
static void print_text(char *text)
{
	rs_utf8_clean(text);
	fputs(text, stdout);
}

static bool is_lost(const agent_reducer *r)
{
	return r->state == REDUCTION__V1__AGENT_REDUCER__STATE__LOST;
}

/* "shares of r1 are with r0 and r2 since 12:03:04 (5 min), because connection refused" */
static void print_loss(const agent_reducer *r, int64_t now_ms)
{
	char since[CELL];

	if (r->n_shards_with) {
		fputs("shares of ", stdout);
		print_text(r->id);
		fputs(" are with ", stdout);
	} else {
		print_text(r->id);
		fputs(" is lost", stdout);
	}
	for (size_t i = 0; i < r->n_shards_with; i++) {
		fputs(i == 0 ? "" : i + 1 == r->n_shards_with ? " and " : ", ", stdout);
		print_text(r->shards_with[i]);
	}
	printf(" since %s", show_since(now_ms, r->for_ms, since));
	if (r->why[0]) {
		fputs(", because ", stdout);
		print_text(r->why);
	}
}

static void print_degraded(const agent_job *job, int64_t now_ms)
{
	const char *before = ", ";

	if (job->reducers_alive + job->reducers_empty >= job->n_reducers)
		return;
	printf("  degraded: %u of %zu reducers", job->reducers_alive, job->n_reducers);
	for (size_t i = 0; i < job->n_reducers; i++) {
		if (!is_lost(job->reducers[i]))
			continue;
		fputs(before, stdout);
		print_loss(job->reducers[i], now_ms);
		before = "; ";
	}
	fputc('\n', stdout);
}

/* "slots: 2 of 4 have a reducer, r2 and r3 are empty" */
static void print_slots(const agent_job *job)
{
	unsigned n = 0;

	if (!job->reducers_empty)
		return;
	printf("  slots: %zu of %zu have a reducer, ", job->n_reducers - job->reducers_empty, job->n_reducers);
	for (size_t i = 0; i < job->n_reducers; i++) {
		if (job->reducers[i]->state != REDUCTION__V1__AGENT_REDUCER__STATE__EMPTY)
			continue;
		fputs(n == 0 ? "" : n + 1 == job->reducers_empty ? " and " : ", ", stdout);
		print_text(job->reducers[i]->id);
		n++;
	}
	puts(n == 1 ? " is empty" : " are empty");
}

void show_lost(const Reduction__V1__JobStatus *job, int64_t now_ms)
{
	uint32_t alive = job->reducers > job->n_lost ? job->reducers - (uint32_t)job->n_lost : 0, empty = 0;
	const char *before = ", ";
	char since[CELL], id[CELL];

	for (size_t i = 0; i < job->n_lost; i++)
		empty += job->lost[i]->empty;
	if (empty)
		printf("  slots: %u of %u have a reducer\n", job->reducers - empty, job->reducers);
	if (job->n_lost == empty)
		return;
	printf("  degraded: %u of %u reducers", alive, job->reducers);
	for (size_t i = 0; i < job->n_lost; i++) {
		const Reduction__V1__LostReducer *r = job->lost[i];

		if (r->empty)
			continue;
		if (r->id[0])
			show_text(r->id, id);
		else
			snprintf(id, sizeof id, "reducer %u of the list", r->index + 1);
		printf("%sshares of %s are with ", before, id);
		before = "; ";
		if (alive == 1 && job->reducer[0])
			print_text(job->reducer);
		else
			fputs(alive == 1 ? "this reducer" : "the others", stdout);
		printf(" since %s", show_since(now_ms, r->for_ms, since));
		if (r->why[0]) {
			fputs(", because ", stdout);
			print_text(r->why);
		}
	}
	fputc('\n', stdout);
}

static void reducer_row(const agent_job *job, const agent_reducer *r, int64_t now_ms, row cells)
{
	static const char *const states[] = {"unknown", "connecting", "connected", "lost", "empty slot"};

	show_text(r->id, cells[0]);
	show_text(r->address, cells[1]);
	show_text(job->transport, cells[2]);
	snprintf(cells[3], CELL, "%s",
		 (unsigned)r->state < sizeof states / sizeof states[0] ? states[r->state] : states[0]);
	show_since(now_ms, r->for_ms, cells[4]);
	if (r->rtt_us)
		snprintf(cells[5], CELL, "%.2f ms", r->rtt_us / 1000.0);
	snprintf(cells[6], CELL, "%u (%u)", r->shards, r->home_shards);
}

static void print_reducers(const agent_job *job, int64_t now_ms)
{
	static const row head[] = {{"reducer", "address", "over", "state", "since", "round trip", "shards (planned)"}};
	row *rows = calloc(job->n_reducers + 1, sizeof *rows);

	if (!rows)
		return;
	memcpy(rows[0], head[0], sizeof head[0]);
	for (size_t i = 0; i < job->n_reducers; i++)
		reducer_row(job, job->reducers[i], now_ms, rows[i + 1]);
	show_rows(rows, job->n_reducers + 1, 7, 0x1f);
	free(rows);
	for (size_t i = 0; i < job->n_reducers; i++) {
		const agent_reducer *r = job->reducers[i];

		if (r->state != REDUCTION__V1__AGENT_REDUCER__STATE__CONNECTING || !r->why[0])
			continue;
		fputs("  ", stdout);
		print_text(r->id);
		fputs(": ", stdout);
		print_text(r->why);
		printf(" (tried %u time%s)\n", r->tries, r->tries == 1 ? "" : "s");
	}
}

static void print_local_ranks(const agent_job *job, int64_t now_ms)
{
	static const row head[] = {{"rank", "local rank", "pid", "attached since", "in flight"}};
	row *rows = calloc(job->n_ranks + 1, sizeof *rows);

	if (!rows)
		return;
	memcpy(rows[0], head[0], sizeof head[0]);
	for (size_t i = 0; i < job->n_ranks; i++) {
		const Reduction__V1__AgentRank *r = job->ranks[i];

		snprintf(rows[i + 1][1], CELL, "%u", r->local_rank);
		snprintf(rows[i + 1][3], CELL, "%s", r->known ? "has left" : "is not there");
		if (!r->known)
			continue;
		snprintf(rows[i + 1][0], CELL, "%u", r->rank);
		snprintf(rows[i + 1][2], CELL, "%u", r->pid);
		if (r->attached)
			show_since(now_ms, r->attached_ms, rows[i + 1][3]);
		snprintf(rows[i + 1][4], CELL, "%u", r->in_flight);
	}
	show_rows(rows, job->n_ranks + 1, 5, 1u << 3);
	free(rows);
}

/* On long links results are retained in more memory. */
static void print_retained(const agent_job *job)
{
	char bytes[CELL];

	for (size_t i = 0; i < job->n_reducers; i++)
		if (job->reducers[i]->min_rtt_us >= RS_LONG_US) {
			printf("  long links: retained results have %s\n", show_memory(job->retained_bytes, bytes));
			return;
		}
}

static void print_line(const char *before, char *text)
{
	if (!text[0])
		return;
	fputs(before, stdout);
	print_text(text);
	fputc('\n', stdout);
}

static void print_agent_job(const agent_job *job, int64_t now_ms)
{
	static const char *const states[] = {"unknown", "gathering", "starting", "running", "ending", "failed"};
	char name[CELL], since[CELL], in[CELL], out[CELL];

	printf("\njob %s  generation %u  %s for %s  ", show_text(job->name, name), job->generation,
	       (unsigned)job->state < 6 ? states[job->state] : states[0],
	       show_duration(job->running_ms ? job->running_ms : job->age_ms, since));
	if (job->nodes)
		printf("node %u of %u  ranks %u  ", job->node_rank, job->nodes, job->world_size);
	printf("%u of %u local ranks  operations %" PRIu64 " (%" PRIu64 " pending)  sent %s  received %s\n",
	       job->joined, job->local_ranks, job->operations, job->pending, show_memory(job->bytes_out, out),
	       show_memory(job->bytes_in, in));
	print_line("  run ", job->run);
	print_line("  ", job->reason);
	print_line("  waiting: ", job->waiting);
	if (job->summed_by_node)
		puts("  summed by this node: the reducers are connected but sum nothing");
	print_slots(job);
	print_degraded(job, now_ms);
	if (job->share_changes)
		printf("  shares of the reducers: changed %u time%s\n", job->share_changes,
		       job->share_changes == 1 ? "" : "s");
	print_line("  balance: ", job->balance);
	print_retained(job);
	if (job->n_reducers)
		print_reducers(job, now_ms);
	if (job->n_ranks)
		print_local_ranks(job, now_ms);
}

void show_drain(const Reduction__V1__StatusReply *m)
{
	char left[CELL];

	if (!m->draining)
		return;
	fputs("  drains", stdout);
	if (m->drain_because[0]) { /* an older reducer gives no reason */
		fputs(" because of ", stdout);
		print_text(m->drain_because);
	}
	printf(", %s left", show_duration(m->drain_left_ms, left));
}

void show_agent(struct reducers *a, unsigned reducer, const Reduction__V1__StatusReply *m)
{
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4], up[CELL], used[CELL], most[CELL], software[CELL];
	const Reduction__V1__AgentStatus *agent = m->agent;

	printf("%s%s  %s agent on ", reducer ? "\n" : "", reducers_name(a, reducer, name, sizeof name),
	       show_text(m->software, software));
	print_text(agent->host);
	printf(" (pid %u)  up %s", agent->pid, show_duration(m->up_ms, up));
	show_drain(m);
	printf("  jobs %zu  clients %u  shared memory %s of %s\n", agent->n_jobs, agent->clients,
	       show_memory(agent->shm_bytes, used), show_memory(agent->shm_max_bytes, most));
	for (size_t i = 0; i < agent->n_jobs; i++)
		print_agent_job(agent->jobs[i], m->unix_ms);
}
