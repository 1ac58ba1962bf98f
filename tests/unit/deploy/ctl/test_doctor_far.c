/* SPDX-License-Identifier: Apache-2.0 */
/* What reductionctl doctor says of a machine with long links. */
#include "deploy/ctl/doctor.h"

#include <check.h>
#include <string.h>

enum { RANKS = 3, LANES = 4 };

/* A process with one job, whose links are as long as a row says. */
struct process {
	Reduction__V1__StatusReply m;
	Reduction__V1__NetworkStatus net;
	uint64_t rmem[3], wmem[3];
	Reduction__V1__JobStatus job, *jobs[1];
	Reduction__V1__RankStatus rank[RANKS], *ranks[RANKS];
	Reduction__V1__AgentStatus agent;
	Reduction__V1__AgentJob agent_job, *agent_jobs[1];
	Reduction__V1__AgentReducer link, *links[1];
};

#define SOCKETS    "socket-buffers"
#define SLOW       "slow-start"
#define CONGESTION "congestion-control"

/* The longest round trip, plan.bandwidth in Mbit/s, and the settings; the ids of what is
 * found, the worst first. */
static const struct {
	const char *what;
	uint32_t min_rtt_us;
	uint64_t mbit;
	const char *control;
	bool slow_start, agent, silent; /* silent: an older release that says nothing */
	uint64_t most;                  /* bytes of the buffers; 0: 4 MiB */
	const char *found[3];
	const char *evidence, *action; /* of the first one */
} rows[] = {
    {.what = "one building", .min_rtt_us = 300, .mbit = 100000, .control = "cubic", .slow_start = true},
    {.what = "just short", .min_rtt_us = 9999, .mbit = 100000, .control = "cubic", .slow_start = true, .agent = true},
    {.what = "no round trip is known", .mbit = 100000, .control = "cubic", .slow_start = true},
    {.what = "an older release", .min_rtt_us = 100000, .mbit = 100000, .silent = true},
    /* 1 Gbit/s x 100 ms on 12 connections */
    {.what = "all is well", .min_rtt_us = 100000, .mbit = 1000, .control = "bbr", .slow_start = true},
    {.what = "small buffers",
     .min_rtt_us = 100000,
     .mbit = 10000,
     .control = "bbr",
     .found = {SOCKETS},
     .evidence = "r0: a connection to rank 2 (far) with a round trip of 100.0 ms needs 10.4 MB in flight; a buffer of "
		 "4.2 MB has room for 2.1",
     .action = "on both ends: sysctl -w net.ipv4.tcp_rmem=\"4096 131072 41943040\" net.ipv4.tcp_wmem=\"4096 16384 "
	       "41943040\"; or more reducers.lanes"},
    {.what = "the bandwidth is not configured", .min_rtt_us = 100000, .control = "bbr"},
    {.what = "large buffers", .min_rtt_us = 100000, .mbit = 10000, .control = "bbr", .most = 40 << 20},
    /* 1 Gbit/s x 50 ms on 4 connections */
    {.what = "CUBIC at an agent",
     .min_rtt_us = 50000,
     .mbit = 1000,
     .control = "cubic",
     .slow_start = true,
     .agent = true,
     .found = {CONGESTION, SLOW},
     .evidence = "is cubic, and the round trip to reducer r1 is 50.0 ms"},
    {.what = "CUBIC that does not start slowly",
     .min_rtt_us = 50000,
     .mbit = 1000,
     .control = "cubic",
     .found = {CONGESTION},
     .action = "sysctl -w net.ipv4.tcp_congestion_control=bbr"},
    {.what = "everything",
     .min_rtt_us = 200000,
     .mbit = 10000,
     .control = "cubic",
     .slow_start = true,
     .agent = true,
     .found = {SOCKETS, CONGESTION, SLOW},
     .action = "net.ipv4.tcp_rmem=\"4096 131072 250609664\""},
};

static void fill_ranks(struct process *p, unsigned row)
{
	reduction__v1__job_status__init(&p->job);
	p->m.jobs = p->jobs;
	p->m.n_jobs = 1;
	p->jobs[0] = &p->job;
	p->job.name = (char *)"resnet";
	p->job.ranks = p->ranks;
	p->job.n_ranks = RANKS;
	for (unsigned i = 0; i < RANKS; i++) {
		reduction__v1__rank_status__init(&p->rank[i]);
		p->ranks[i] = &p->rank[i];
		p->rank[i].rank = i;
		p->rank[i].label = (char *)"far";
		p->rank[i].lanes = LANES;
		p->rank[i].rtt_us = 500000; /* a queue */
		p->rank[i].min_rtt_us = i == 2 ? rows[row].min_rtt_us : 200;
	}
}

static void fill_reducers(struct process *p, unsigned row)
{
	reduction__v1__agent_status__init(&p->agent);
	reduction__v1__agent_job__init(&p->agent_job);
	reduction__v1__agent_reducer__init(&p->link);
	p->m.agent = &p->agent;
	p->agent.jobs = p->agent_jobs;
	p->agent.n_jobs = 1;
	p->agent_jobs[0] = &p->agent_job;
	p->agent_job.name = (char *)"resnet";
	p->agent_job.reducers = p->links;
	p->agent_job.n_reducers = 1;
	p->links[0] = &p->link;
	p->link.id = (char *)"r1";
	p->link.lanes = LANES;
	p->link.min_rtt_us = rows[row].min_rtt_us;
}

static void fill(struct process *p, unsigned row)
{
	uint64_t most = rows[row].most ? rows[row].most : 4 << 20;

	memset(p, 0, sizeof *p);
	reduction__v1__status_reply__init(&p->m);
	reduction__v1__network_status__init(&p->net);
	memcpy(p->rmem, (uint64_t[]){4096, 131072, 6 << 20}, sizeof p->rmem);
	memcpy(p->wmem, (uint64_t[]){4096, 16384, most}, sizeof p->wmem);
	p->rmem[2] = most > p->rmem[2] ? most : p->rmem[2];
	p->net.rmem = p->rmem;
	p->net.wmem = p->wmem;
	p->net.n_rmem = p->net.n_wmem = 3;
	p->net.bandwidth = rows[row].mbit * 1000000;
	p->net.slow_start_after_idle = rows[row].slow_start;
	if (rows[row].control)
		p->net.congestion_control = (char *)rows[row].control;
	if (!rows[row].silent)
		p->m.network = &p->net;
	if (rows[row].agent)
		fill_reducers(p, row);
	else
		fill_ranks(p, row);
}

START_TEST(settings_of_long_links)
{
	static struct findings all;
	static struct process p;
	unsigned n = 0;

	memset(&all, 0, sizeof all);
	fill(&p, (unsigned)_i);
	doctor_look_far(&all, &p.m, "r0");
	for (; n < 3 && rows[_i].found[n]; n++) {
		ck_assert_msg(n < all.n, "%s: %s is missing", rows[_i].what, rows[_i].found[n]);
		ck_assert_str_eq(all.at[n].id, rows[_i].found[n]);
		ck_assert_str_eq(all.at[n].job, "resnet");
		ck_assert(all.at[n].is_fact);
	}
	ck_assert_msg(all.n == n, "%s: found %s", rows[_i].what, all.at[n].id);
	if (rows[_i].evidence)
		ck_assert_msg(strstr(all.at[0].evidence, rows[_i].evidence), "%s", all.at[0].evidence);
	if (rows[_i].action)
		ck_assert_msg(strstr(all.at[0].action, rows[_i].action), "%s", all.at[0].action);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("doctor_far");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, settings_of_long_links, 0, sizeof rows / sizeof rows[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
