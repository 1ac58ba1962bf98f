/* SPDX-License-Identifier: Apache-2.0 */
/* Findings about long links: settings of the kernel that suit one building only. Each
 * process says what its own machine has; the ends of a link need the same. */
#include "deploy/ctl/doctor.h"

#include "common/socket_buffer.h"
#include "config/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	FAR_SEGMENT = 1448,     /* bytes of a full TCP segment in an Ethernet frame */
	FAR_FIRST_SEGMENTS = 10 /* that TCP sends in the first round trip after a pause */
};

/* The longest link of a job at this process. */
struct far {
	const char *process, *job;
	const Reduction__V1__NetworkStatus *net;
	uint32_t rtt_us;
	double each;   /* bytes that one connection must have in flight */
	char peer[80]; /* "rank 3 (...)", "reducer r0" */
};

/* Returns the bytes in flight that each of n connections needs, which share this
 * machine's bandwidth. */
static double far_each(const struct far *f, uint64_t n)
{
	return (double)f->net->bandwidth / 8 * f->rtt_us / 1e6 / (double)(n ? n : 1);
}

static uint64_t far_larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Without plan.bandwidth nothing is known of what a connection needs. */
static void judge_sockets(struct findings *all, const struct far *f)
{
	const Reduction__V1__NetworkStatus *net = f->net;
	uint64_t wanted = socket_buffer(f->each), has;
	char evidence[300], action[FINDING_ACTION];

	if (net->n_rmem != 3 || net->n_wmem != 3)
		return;
	has = net->rmem[2] < net->wmem[2] ? net->rmem[2] : net->wmem[2];
	if (f->each <= (double)has / SOCKET_OVERHEAD)
		return;
	snprintf(
	    evidence, sizeof evidence,
	    "a connection to %s with a round trip of %.1f ms needs %.1f MB in flight; a buffer of %.1f MB has room "
	    "for %.1f",
	    f->peer, f->rtt_us / 1e3, f->each / 1e6, (double)has / 1e6, (double)has / SOCKET_OVERHEAD / 1e6);
	snprintf(action, sizeof action,
		 "on both ends: sysctl -w net.ipv4.tcp_rmem=\"%" PRIu64 " %" PRIu64 " %" PRIu64
		 "\" net.ipv4.tcp_wmem=\"%" PRIu64 " %" PRIu64 " %" PRIu64 "\"; or more reducers.lanes",
		 net->rmem[0], net->rmem[1], far_larger(net->rmem[2], wanted), net->wmem[0], net->wmem[1],
		 far_larger(net->wmem[2], wanted));
	doctor_fact(all, &(struct fact){"socket-buffers", 420, f->process, f->job,
					"socket buffers are too small for the round trip", evidence, action});
}

static bool is_bbr(const Reduction__V1__NetworkStatus *net)
{
	return strncmp(net->congestion_control, "bbr", 3) == 0;
}

/* Returns in how many round trips TCP doubles its first segments up to these bytes. */
static unsigned far_trips(double bytes)
{
	unsigned n = 1;

	for (double sent = (double)FAR_FIRST_SEGMENTS * FAR_SEGMENT; sent < bytes; sent *= 2)
		n++;
	return n;
}

/* A congestion control with its own rate, such as BBR, does not start slowly again. */
static void judge_slow_start(struct findings *all, const struct far *f)
{
	char evidence[300], costs[80] = "";
	unsigned trips = far_trips(f->each);

	if (!f->net->slow_start_after_idle || is_bbr(f->net) || !f->net->congestion_control[0])
		return;
	if (f->each > 0)
		snprintf(costs, sizeof costs, ", here about %u of %.1f ms", trips, f->rtt_us / 1e3);
	snprintf(evidence, sizeof evidence,
		 "net.ipv4.tcp_slow_start_after_idle is 1: after each pause a connection to %s sends %d segments, and "
		 "needs round trips until it is at full speed%s",
		 f->peer, FAR_FIRST_SEGMENTS, costs);
	doctor_fact(
	    all,
	    &(struct fact){"slow-start", 110, f->process, f->job, "connections start slowly after each pause", evidence,
			   "on both ends: sysctl -w net.ipv4.tcp_slow_start_after_idle=0; or BBR, which does not "
			   "do that"});
}

static void judge_congestion(struct findings *all, const struct far *f)
{
	char evidence[300];

	if (is_bbr(f->net) || !f->net->congestion_control[0])
		return;
	snprintf(evidence, sizeof evidence,
		 "net.ipv4.tcp_congestion_control is %.16s, and the round trip to %s is %.1f ms: workers have all that "
		 "the window allows in flight with BBR only",
		 f->net->congestion_control, f->peer, f->rtt_us / 1e3);
	doctor_fact(
	    all, &(struct fact){"congestion-control", 120, f->process, f->job,
				"the congestion control does not suit the round trip", evidence,
				"on both ends: modprobe tcp_bbr; sysctl -w net.ipv4.tcp_congestion_control=bbr; then "
				"start the job again"});
}

static void judge(struct findings *all, const struct far *f)
{
	if (f->rtt_us < RS_LONG_US)
		return;
	judge_sockets(all, f);
	judge_congestion(all, f);
	judge_slow_start(all, f);
}

static void look_ranks(struct findings *all, struct far f, const Reduction__V1__JobStatus *job)
{
	uint64_t lanes = 0;

	for (size_t i = 0; i < job->n_ranks; i++) {
		const Reduction__V1__RankStatus *r = job->ranks[i];

		lanes += r->lanes;
		if (r->min_rtt_us <= f.rtt_us)
			continue;
		f.rtt_us = r->min_rtt_us;
		snprintf(f.peer, sizeof f.peer, "rank %u (%.50s)", r->rank, r->label);
	}
	f.each = far_each(&f, lanes);
	f.job = job->name;
	judge(all, &f);
}

static void look_reducers(struct findings *all, struct far f, const Reduction__V1__AgentJob *job)
{
	uint64_t lanes = 0;

	for (size_t i = 0; i < job->n_reducers; i++) {
		const Reduction__V1__AgentReducer *r = job->reducers[i];

		lanes += r->lanes;
		if (r->min_rtt_us <= f.rtt_us)
			continue;
		f.rtt_us = r->min_rtt_us;
		snprintf(f.peer, sizeof f.peer, "reducer %.60s", r->id);
	}
	f.each = far_each(&f, lanes);
	f.job = job->name;
	judge(all, &f);
}

void doctor_look_far(struct findings *all, const Reduction__V1__StatusReply *m, const char *name)
{
	const struct far f = {.process = name, .net = m->network};

	if (!f.net)
		return;
	for (size_t i = 0; i < m->n_jobs; i++)
		look_ranks(all, f, m->jobs[i]);
	for (size_t i = 0; m->agent && i < m->agent->n_jobs; i++)
		look_reducers(all, f, m->agent->jobs[i]);
}
