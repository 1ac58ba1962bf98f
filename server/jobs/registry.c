/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/registry_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int registry_new(struct registry **ret, const struct registry_options *opt, struct rs_err *e)
{
	struct registry *r = calloc(1, sizeof *r);

	if (!r)
		return rs_oom(e, 0, "the registry of jobs");
	r->opt = *opt;
	r->next_id = r->question = 1;
	*ret = r;
	return RS_OK;
}

static void job_free(struct registry *r, struct job *j)
{
	struct job **at = &r->jobs;

	while (*at != j)
		at = &(*at)->next;
	*at = j->next;
	r->jobs_n--;
	r->memory -= j->bound;
	if (j->memory)
		r->opt.free(r->opt.ctx, j->memory, j->memory_len);
	free(j->members);
	free(j);
}

void registry_free(struct registry *r)
{
	if (!r)
		return;
	while (r->jobs)
		job_free(r, r->jobs);
	free(r);
}

static struct job *job_by_id(struct registry *r, uint64_t id)
{
	struct job *j = r->jobs;

	while (j && j->id != id)
		j = j->next;
	return j;
}

void registry_end_job(struct registry *r, struct job *j, const struct rs_err *why, const struct rs_cause *cause)
{
	if (j->ended)
		return;
	j->ended = true;
	j->why = *why;
	j->cause = cause ? *cause : (struct rs_cause){.code = why->code};
	registry_emit(r, j, (struct registry_action){.type = REGISTRY_ABORT, .why = *why, .cause = j->cause});
}

void registry_send_waiting(struct registry *r, const struct job *j)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	struct control_waiting w = {.world_size = j->first.world_size};
	uint64_t all = UINT64_MAX >> (64 - j->first.lanes);
	uint32_t len;

	for (unsigned i = 0; i < j->first.world_size; i++) {
		if (j->members[i].lanes == all && !j->members[i].probing)
			w.joined++;
		else if (w.missing_n < CONTROL_MISSING)
			w.missing[w.missing_n++] = i;
	}
	memcpy(w.refused, j->refused, sizeof w.refused);
	if (!w.refused[0])
		registry_find_spelling(r, j, w.refused, sizeof w.refused);
	len = control_pack_waiting(payload, &w);
	len = control_frame(frame, FRAME_WAITING, j->first.generation, 0, payload, len);
	registry_emit(r, j, (struct registry_action){.type = REGISTRY_TELL, .frame = frame, .frame_len = len});
}

void registry_admitted(struct registry *r, uint64_t id)
{
	struct job *j = job_by_id(r, id);
	struct lane_begin begin;

	if (!j || j->running || j->ended || j->complete < j->first.world_size || j->probing)
		return;
	j->running = true;
	j->started_ms = r->now_ms;
	begin =
	    (struct lane_begin){.processes = registry_processes(j), .agreed = registry_agree(r, j), .hello = &j->first};
	if (registry_widen(r, j)) {
		begin.agreed.window = j->window;
		begin.memory = j->memory;
		registry_emit(r, j, (struct registry_action){.type = REGISTRY_MOVED});
	}
	registry_emit(r, j, (struct registry_action){.type = REGISTRY_START, .begin = begin});
}

/* Returns how a job has ended whose sessions are closed. */
static enum status_end job_end(const struct registry *r, const struct job *j)
{
	if (j->ended && j->why.code == RS_ECUT && !j->cause.rank)
		return STATUS_ENDED_LEFT; /* a rank has said so; the cause is this reducer then */
	if (j->ended && j->why.code == RS_ECLOSED && !j->first.retain)
		return STATUS_ENDED_OTHER; /* the reducer stops, and the job has no other one */
	if (j->ended)
		return status_end_of(&j->cause);
	if (!j->running)
		return STATUS_ENDED_INCOMPLETE;
	return r->draining && j->first.retain ? STATUS_ENDED_LEFT : STATUS_ENDED_FINISHED;
}

void registry_count(struct registry *r, const struct lane_event *closed)
{
	struct job *j = job_by_id(r, closed->job);

	if (!j)
		return;
	if (closed->operations > j->operations)
		j->operations = closed->operations;
	j->bytes_in += closed->bytes_in;
	j->bytes_out += closed->bytes_out;
}

/* The last session of the job is closed. */
static void job_closed(struct registry *r, struct job *j)
{
	struct registry_record record = {
	    .how = job_end(r, j),
	    .running_ms = j->running ? r->now_ms - j->started_ms : 0,
	    .operations = j->operations,
	    .bytes_in = j->bytes_in,
	    .bytes_out = j->bytes_out,
	    .rank = j->ended ? j->cause.rank : 0,
	    .narrow = j->ended && j->cause.narrow,
	    .why = j->ended ? j->why.msg : "",
	    .nonfinite = j->found.what,
	};

	registry_emit(r, j, (struct registry_action){.type = REGISTRY_CLOSED, .record = record});
	r->ended[record.how]++;
	job_free(r, j);
}

void registry_uplink_closed(struct registry *r, uint64_t id)
{
	struct job *j = job_by_id(r, id);

	if (!j)
		return;
	j->sessions--;
	j->uplinks--;
	if (!j->sessions)
		job_closed(r, j);
}

void registry_session_closed(struct registry *r, uint64_t id, unsigned rank, unsigned lane, bool clean)
{
	struct job *j = job_by_id(r, id);
	struct member *m;
	struct rs_err why;

	if (!j)
		return;
	m = &j->members[rank];
	if ((unsigned)__builtin_popcountll(m->lanes) == j->first.lanes)
		j->complete--;
	m->lanes &= ~(UINT64_C(1) << lane);
	j->probing -= m->probing >> lane & 1;
	m->probing &= m->lanes;
	j->sessions--;
	if (j->running && !clean && !j->ended) {
		/* a lane reports the loss of a running session itself; this session was
		 * lost just before START */
		rs_fail(&why, j->first.retain ? RS_ECUT : RS_EPEER, "rank %u was lost while the job was starting",
			rank);
		registry_lane_event(
		    r, &(struct lane_event){.type = LANE_LOST, .job = id, .rank = rank, .lane = lane, .why = why});
		registry_end_job(r, j, &why, &(struct rs_cause){.code = RS_EPEER, .rank = 1 + rank});
	}
	if (!j->sessions)
		job_closed(r, j);
}

void registry_failed(struct registry *r, uint64_t id, const struct rs_err *why, const struct rs_cause *cause)
{
	struct job *j = job_by_id(r, id);

	if (j)
		registry_end_job(r, j, why, cause);
}

/* Sends DRAIN to the ranks of jobs that can fail over. */
static void send_drain(struct registry *r)
{
	uint8_t frame[FRAME_HEADER];

	for (struct job *j = r->jobs; j; j = j->next) {
		uint32_t len = control_frame(frame, FRAME_DRAIN, j->first.generation, 0, NULL, 0);

		if (j->running && !j->ended && j->first.retain)
			registry_emit(
			    r, j, (struct registry_action){.type = REGISTRY_TELL, .frame = frame, .frame_len = len});
	}
}

void registry_tick(struct registry *r)
{
	/* again, for sessions that had unsent frames before, and ranks that came from a
	 * lost reducer since */
	if (r->draining)
		send_drain(r);
	for (const struct job *j = r->jobs; j; j = j->next)
		if (!j->running && !j->ended)
			registry_send_waiting(r, j);
}

/* Ends a job that only gathers: no rank has an operation there. Ranks that can do without
 * this reducer try again, and find the next process at its address. */
static void end_gathering(struct registry *r, struct job *j)
{
	struct rs_err why;

	rs_fail(&why, j->first.retain ? RS_ECUT : RS_ECLOSED, "the reducer was stopped before all ranks had joined");
	registry_end_job(r, j, &why, NULL);
}

void registry_drain(struct registry *r)
{
	r->draining = true;
	for (struct job *j = r->jobs; j; j = j->next)
		if (!j->running)
			end_gathering(r, j);
	send_drain(r);
}

void registry_abort_all(struct registry *r, const struct rs_err *why)
{
	for (struct job *j = r->jobs; j; j = j->next) {
		struct rs_err here = *why;

		if (j->first.retain)
			here.code = RS_ECUT;
		registry_end_job(r, j, &here, NULL);
	}
}

unsigned registry_jobs(const struct registry *r)
{
	return r->jobs_n;
}

unsigned registry_ranks(const struct registry *r)
{
	unsigned ranks = 0;

	for (const struct job *j = r->jobs; j; j = j->next)
		ranks += j->complete;
	return ranks;
}

void registry_set_limits(struct registry *r, const struct registry_limits *limits)
{
	r->opt.limits = *limits;
}

/* Counts a rank once, although each of its lanes may report its loss. */
static void registry_count_lost(struct registry *r, struct member *m)
{
	r->lost_ranks += !m->lost;
	m->lost = true;
}

/* Keeps what names the cause: NaN spreads to all ranks with the next operations. */
static void registry_take_nonfinite(struct registry *r, struct job *j, const struct lane_event *ev)
{
	struct registry_found *f = &j->found;

	if (!f->what[0] || ev->nan > f->nan || (ev->nan == f->nan && ev->seq < f->seq)) {
		f->nan = ev->nan;
		f->seq = ev->seq;
		snprintf(f->what, sizeof f->what, "%.*s", CONTROL_FOUND - 1, ev->why.msg);
	}
	registry_emit(r, j, (struct registry_action){.type = REGISTRY_NONFINITE, .why = ev->why, .rank = ev->rank});
}

void registry_lane_event(struct registry *r, const struct lane_event *ev)
{
	struct job *j = job_by_id(r, ev->job);

	/* several lanes may report it */
	if (!j || j->ended)
		return;
	if (ev->type == LANE_ANSWERED) {
		registry_answered(r, ev);
		return;
	}
	if (ev->type == LANE_PROVEN) {
		j->probing -= j->members[ev->rank].probing >> ev->lane & 1;
		j->members[ev->rank].probing &= ~(UINT64_C(1) << ev->lane);
		registry_admitted(r, ev->job);
		return;
	}
	if (ev->type == LANE_UNLINKED) {
		registry_relay_failed(r, j->first.job);
		return;
	}
	if (ev->type == LANE_NONFINITE) {
		registry_take_nonfinite(r, j, ev);
		return;
	}
	if (ev->type == LANE_LOST)
		registry_count_lost(r, &j->members[ev->rank]);
	registry_emit(r, j,
		      (struct registry_action){
			  .type = ev->type == LANE_LOST      ? REGISTRY_LOST
				  : ev->type == LANE_STOPPED ? REGISTRY_STOPPED
							     : REGISTRY_LATE,
			  .why = ev->why,
			  .rank = ev->rank,
			  .label = j->members[ev->rank].label,
			  .late = ev->late,
			  .seq = ev->seq,
			  .waited_ms = ev->waited_ms,
		      });
}

void registry_set_time(struct registry *r, uint64_t now_ms)
{
	r->now_ms = now_ms;
}

void registry_set_peer(struct registry *r, uint64_t id, unsigned rank, const char *peer, const char *transport)
{
	struct job *j = job_by_id(r, id);

	if (!j)
		return;
	snprintf(j->members[rank].peer, sizeof j->members[rank].peer, "%s", peer);
	snprintf(j->members[rank].transport, sizeof j->members[rank].transport, "%s", transport);
}
