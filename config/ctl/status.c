/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl status: tables of what reducers do. They show for which rank the other ranks wait. */
#include "common/utf8.h"
#include "config/ctl/ctl.h"
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

enum {
	CELL = 48,   /* bytes of a cell */
	COLUMNS = 9, /* columns of the table of ranks */
	/* A rank is shown as late if the others waited for it in at least a tenth of the last second, and three times
	 * as long as for the mean of the other ranks. One rank is the last with every chunk, also when all are equally
	 * fast. */
	LATE_PERMIL = 100,
	LATE_TIMES = 3,
	MISSING_MS = 1000, /* or if a chunk has waited for it this long */
};

/* "820 ms", "42 s", "3 min", "5.2 h", "2.1 d" */
static const char *duration(uint64_t ms, char buf[CELL])
{
	double s = (double)ms / 1000;

	if (ms < 1000)
		snprintf(buf, CELL, "%" PRIu64 " ms", ms);
	else if (s < 120)
		snprintf(buf, CELL, "%.0f s", s);
	else if (s < 7200)
		snprintf(buf, CELL, "%.0f min", s / 60);
	else if (s < 172800)
		snprintf(buf, CELL, "%.1f h", s / 3600);
	else
		snprintf(buf, CELL, "%.1f d", s / 86400);
	return buf;
}

/* Writes a number with three digits, in steps of `step` with these unit names. */
static void scaled(double v, double step, const char *const names[5], char buf[CELL])
{
	unsigned i = 0;

	for (; v >= step * 0.9995 && i < 4; i++)
		v /= step;
	snprintf(buf, CELL, i == 0 || v >= 99.95 ? "%.0f %s" : v >= 9.995 ? "%.1f %s" : "%.2f %s", v, names[i]);
}

static const char *rate(uint64_t bytes, char buf[CELL])
{
	static const char *const names[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};

	scaled((double)bytes, 1000, names, buf);
	return buf;
}

static const char *memory(uint64_t bytes, char buf[CELL])
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};

	scaled((double)bytes, 1024, names, buf);
	return buf;
}

/* Writes text from the network into a cell: cleaned, and cut to size. */
static const char *text(const char *from, char buf[CELL])
{
	size_t n = strnlen(from, CELL - 1);

	while (from[n] && n && ((unsigned char)from[n] & 0xc0) == 0x80)
		n--;
	memcpy(buf, from, n);
	buf[n] = '\0';
	rs_utf8_clean(buf);
	return buf;
}

/* Returns the number of characters, not bytes. */
static unsigned width_of(const char *cell)
{
	unsigned n = 0;

	for (; *cell; cell++)
		n += ((unsigned char)*cell & 0xc0) != 0x80;
	return n;
}

typedef char row[COLUMNS][CELL];

static void print_rows(row *rows, size_t n)
{
	/* names are aligned left, numbers right */
	static const bool left[COLUMNS] = {[1] = true, [2] = true, [3] = true};
	unsigned width[COLUMNS] = {0};

	for (size_t i = 0; i < n; i++)
		for (unsigned c = 0; c < COLUMNS; c++)
			if (width_of(rows[i][c]) > width[c])
				width[c] = width_of(rows[i][c]);
	for (size_t i = 0; i < n; i++) {
		for (unsigned c = 0; c < COLUMNS; c++) {
			int pad = (int)(width[c] - width_of(rows[i][c]));

			if (c == COLUMNS - 1) /* the last column: no blanks at the end of a line */
				printf("%s%s", rows[i][c][0] ? "  " : "", rows[i][c]);
			else if (left[c])
				printf("  %s%*s", rows[i][c], pad, "");
			else
				printf("  %*s%s", pad, "", rows[i][c]);
		}
		fputc('\n', stdout);
	}
}

/* True if the rank is late, see LATE_PERMIL. */
static bool is_late(const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *rank)
{
	uint64_t others = 0;

	if (rank->missing_ms >= MISSING_MS)
		return true;
	for (size_t i = 0; i < job->n_ranks; i++)
		if (job->ranks[i] != rank)
			others += job->ranks[i]->waited_permil;
	return rank->waited_permil >= LATE_PERMIL && job->n_ranks > 1 &&
	       rank->waited_permil >= LATE_TIMES * others / (job->n_ranks - 1);
}

static void remark(const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *rank, char buf[CELL])
{
	char ms[CELL];

	buf[0] = '\0';
	if (rank->lanes < job->lanes)
		snprintf(buf, CELL, rank->lanes ? "<- joins" : "<- is not there");
	else if (rank->missing_ms >= MISSING_MS)
		snprintf(buf, CELL, "<- late, missing for %s", duration(rank->missing_ms, ms));
	else if (is_late(job, rank))
		snprintf(buf, CELL, "<- late");
}

static void rank_row(const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *rank, row cells)
{
	snprintf(cells[0], CELL, "%u", rank->rank);
	text(rank->label, cells[1]);
	text(rank->peer, cells[2]);
	text(rank->transport, cells[3]);
	if (rank->traffic) {
		rate(rank->traffic->bytes_in_per_s, cells[4]);
		rate(rank->traffic->bytes_out_per_s, cells[5]);
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
	print_rows(rows, job->n_ranks + 1);
	free(rows);
}

static void print_job(const Reduction__V1__JobStatus *job)
{
	static const char *const states[] = {"unknown", "gathering", "running", "draining", "ended"};
	char name[CELL], since[CELL], in[CELL], out[CELL], mem[CELL];

	printf("\njob %s  generation %u  %s for %s  %u of %u ranks  operations %" PRIu64 "  memory %s",
	       text(job->name, name), job->generation, (unsigned)job->state < 5 ? states[job->state] : states[0],
	       duration(job->running_ms ? job->running_ms : job->age_ms, since), job->joined, job->world_size,
	       job->operations, memory(job->memory_bytes, mem));
	if (job->traffic)
		printf("  in %s  out %s", rate(job->traffic->bytes_in_per_s, in),
		       rate(job->traffic->bytes_out_per_s, out));
	fputc('\n', stdout);
	if (job->run[0]) {
		rs_utf8_clean(job->run);
		printf("  run %s\n", job->run);
	}
	if (job->reason[0]) {
		rs_utf8_clean(job->reason);
		printf("  %s\n", job->reason);
	}
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
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4], up[CELL], left[CELL], used[CELL], most[CELL], software[CELL];

	printf("%s%s  %s  up %s", reducer ? "\n" : "", reducers_name(a, reducer, name, sizeof name),
	       text(m->software, software), duration(m->up_ms, up));
	if (m->draining)
		printf("  drains, %s left", duration(m->drain_left_ms, left));
	printf("  jobs %zu  connections %u  memory %s of %s", m->n_jobs, m->connections, memory(m->memory_bytes, used),
	       memory(m->memory_max_bytes, most));
	print_lanes(m);
	fputc('\n', stdout);
	for (size_t i = 0; i < m->n_jobs; i++)
		print_job(m->jobs[i]);
}

static void show_json(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer)
{
	json_answer(a, reducer, answer, stdout);
}

static int take_watch(const struct call *call, double *ret, struct rs_err *e)
{
	const char *given = call->value[STATUS_WATCH];
	char *end;

	*ret = 0;
	if (!given)
		return RS_OK;
	*ret = strtod(given, &end);
	if (end == given || *end || !(*ret >= 0.1 && *ret <= 86400))
		return rs_fail(e, RS_EINVAL, "--watch: found \"%s\", expected seconds from 0.1 to 86400", given);
	return RS_OK;
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

/* Waits for the next round, and reports failed queries, which the next round may answer. False: the reader of standard
 * output is gone. */
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
	double watch;
	int rc = take_watch(call, &watch, e);

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
    "status",   FILE_OR_ADDRESS, "print the state of reducers: jobs, ranks, rates, late ranks",
    run_status, status_options,  STATUS_OPTIONS};
