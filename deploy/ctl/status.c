/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl status: tables of what reducers and agents do. Those of reducers show for
 * which rank the other ranks wait. */
#include "common/utf8.h"
#include "deploy/ctl/ctl.h"
#include "deploy/ctl/doctor.h"
#include "deploy/ctl/show.h"
#include "proto/reduction.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum status_option { STATUS_WATCH = REDUCERS_OPTIONS, STATUS_JOB, STATUS_OPTIONS };

static const struct option status_options[STATUS_OPTIONS] = {
    REDUCERS_OPTION_ROWS,
    [STATUS_WATCH] = {"watch", "SECONDS", "repeat every SECONDS"},
    [STATUS_JOB] = {"job", "NAME", "only that job"},
};

static void remark(const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *rank, char buf[CELL])
{
	char ms[CELL];

	buf[0] = '\0';
	if (rank->lanes < job->lanes)
		snprintf(buf, CELL, rank->lanes ? "<- joins" : "<- is not there");
	else if (rank->missing_ms >= MISSING_MS)
		snprintf(buf, CELL, "<- late, missing for %s", show_duration(rank->missing_ms, ms));
	else if (doctor_is_late(job, rank))
		snprintf(buf, CELL, "<- late");
}

static void rank_row(const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *rank, row cells)
{
	snprintf(cells[0], CELL, "%u", rank->rank);
	show_text(rank->label, cells[1]);
	show_text(rank->peer, cells[2]);
	show_text(rank->transport, cells[3]);
	if (rank->traffic) {
		show_rate(rank->traffic->bytes_in_per_s, cells[4]);
		show_rate(rank->traffic->bytes_out_per_s, cells[5]);
	}
	snprintf(cells[6], CELL, "%.1f ms", rank->late_ms);
	snprintf(cells[7], CELL, "%.1f%%", rank->waited_permil / 10.0);
	remark(job, rank, cells[8]);
}

static void print_ranks(const Reduction__V1__JobStatus *job)
{
	static const row head = {"rank", "who", "from", "over", "in", "out", "behind", "waited for", ""};
	row *rows = calloc(job->n_ranks + 1, sizeof *rows);

	if (!rows)
		return;
	memcpy(rows[0], head, sizeof head);
	for (size_t i = 0; i < job->n_ranks; i++)
		rank_row(job, job->ranks[i], rows[i + 1]);
	show_rows(rows, job->n_ranks + 1, COLUMNS, 1u << 1 | 1u << 2 | 1u << 3);
	free(rows);
}

/* "relays, and how long chunks wait for their sums: r0 93.1%, r1 0.2%" */
static void print_relays(const Reduction__V1__JobStatus *job)
{
	char name[CELL];

	for (size_t i = 0; i < job->n_relays; i++)
		printf("%s %s %.1f%%", i ? "," : "  relays, and how long chunks wait for their sums:",
		       show_text(job->relays[i]->reducer, name), job->relays[i]->waited_permil / 10.0);
	if (job->n_relays)
		putchar('\n');
}

/* "shares of the reducers: 25.0%, 12.5%, ..., set 2 times" */
static void print_shares(const Reduction__V1__JobStatus *job)
{
	double all = 0;

	for (size_t i = 0; i < job->n_shares; i++)
		all += job->shares[i];
	if (all <= 0)
		return;
	fputs("  shares of the reducers:", stdout);
	for (size_t i = 0; i < job->n_shares; i++)
		printf(" %.1f%%,", 100 * job->shares[i] / all);
	printf(" set %u time%s\n", job->share_changes, job->share_changes == 1 ? "" : "s");
}

static void print_job(const Reduction__V1__JobStatus *job, int64_t now_ms)
{
	static const char *const states[] = {"unknown", "gathering", "running", "draining", "ended"};
	char name[CELL], since[CELL], in[CELL], out[CELL], mem[CELL], up[CELL], down[CELL];

	printf("\njob %s  generation %u  %s for %s  %u of %u ranks  operations %" PRIu64 "  memory %s",
	       show_text(job->name, name), job->generation, (unsigned)job->state < 5 ? states[job->state] : states[0],
	       show_duration(job->running_ms ? job->running_ms : job->age_ms, since), job->joined, job->world_size,
	       job->operations, show_memory(job->memory_bytes, mem));
	if (job->traffic)
		printf("  in %s  out %s", show_rate(job->traffic->bytes_in_per_s, in),
		       show_rate(job->traffic->bytes_out_per_s, out));
	if (job->weight > 0)
		printf("  lanes %.0f%%  weight %g", job->served_permil / 10.0, job->weight);
	if (job->encoded_chunks)
		printf("  wire up %s, down %s", show_text(job->up, up), show_text(job->down, down));
	fputc('\n', stdout);
	if (job->run[0]) {
		rs_utf8_clean(job->run);
		printf("  run %s\n", job->run);
	}
	if (job->reason[0]) {
		rs_utf8_clean(job->reason);
		printf("  %s\n", job->reason);
	}
	if (job->nonfinite[0]) {
		rs_utf8_clean(job->nonfinite);
		printf("  first NaN or infinity: %s\n", job->nonfinite);
	}
	show_lost(job, now_ms);
	print_shares(job);
	print_relays(job);
	if (job->n_ranks)
		print_ranks(job);
}

static void print_lanes(const Reduction__V1__StatusReply *m)
{
	for (size_t i = 0; i < m->n_lanes; i++)
		printf("%s%.0f%%", i ? " " : "  lanes busy ", m->lanes[i]->busy_permil / 10.0);
}

static void show_status(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer)
{
	const Reduction__V1__StatusReply *m = (const Reduction__V1__StatusReply *)answer;
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4], up[CELL], used[CELL], most[CELL], software[CELL];

	if (m->agent) {
		show_agent(a, reducer, m);
		return;
	}
	printf("%s%s  %s  up %s", reducer ? "\n" : "", reducers_name(a, reducer, name, sizeof name),
	       show_text(m->software, software), show_duration(m->up_ms, up));
	show_drain(m);
	printf("  jobs %zu  connections %u  memory %s of %s", m->n_jobs, m->connections,
	       show_memory(m->memory_bytes, used), show_memory(m->memory_max_bytes, most));
	print_lanes(m);
	fputc('\n', stdout);
	for (size_t i = 0; i < m->n_jobs; i++)
		print_job(m->jobs[i], m->unix_ms);
}

static void show_json(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer)
{
	json_answer(a, reducer, answer, stdout);
}

/* On a terminal, each status overwrites the previous one. */
static void begin_screen(bool json)
{
	char now[40];
	time_t t = time(NULL);
	struct tm tm;

	if (json)
		return;
	if (isatty(STDOUT_FILENO))
		fputs("\033[H\033[2J", stdout);
	if (localtime_r(&t, &tm) && strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S", &tm))
		printf("%s\n", now);
}

/* Waits for the next round, and reports failed queries, which the next round may answer.
 * False: the reader of standard output is gone. */
static bool next_round(double seconds, int rc, const struct rs_err *e)
{
	struct timespec ts = {.tv_sec = (time_t)seconds};

	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	if (rc)
		fprintf(stderr, "reductionctl: %s\n", e->msg);
	if (fflush(stdout) || ferror(stdout))
		return false;
	nanosleep(&ts, NULL);
	return true;
}

static int run_status(const struct call *call, struct rs_err *e)
{
	Reduction__V1__StatusRequest request = REDUCTION__V1__STATUS_REQUEST__INIT;
	bool json = call->value[REDUCERS_JSON];
	struct reducers a;
	double watch = 0;
	int rc = take_seconds(call->value[STATUS_WATCH], "watch", 0.1, 86400, &watch, e);

	if (!rc)
		rc = reducers_open(&a, call, false, e);
	if (rc)
		return rc;
	if (call->value[STATUS_JOB])
		request.job = (char *)call->value[STATUS_JOB];
	do {
		if (watch)
			begin_screen(json);
		rc = reducers_all(&a, "/reduction.v1.Control/Status", &request.base,
				  &reduction__v1__status_reply__descriptor, json ? show_json : show_status, e);
	} while (watch && next_round(watch, rc, e));
	reducers_close(&a);
	return rc;
}

const struct command status_command = {
    "status",
    ADDRESS_OR_ENVIRONMENT,
    "print the state of reducers or an agent: jobs, ranks, late ranks, lost reducers",
    run_status,
    status_options,
    STATUS_OPTIONS};
