/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: whether the worker of a HELLO may join a job, or may open one. */
#include "server/jobs/registry_priv.h"

#include "common/utf8.h"
#include "config/evidence.h"
#include "config/job.h"
#include "config/run.h"
#include "proto/features.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)FRAME_PRIORITIES == (int)RS_PRIORITIES_MAX, "a configuration can have what a frame can say");

/* Returns the largest window that the connection of a HELLO takes. */
static uint32_t hello_most_window(const struct control_hello *h)
{
	return h->most_window ? h->most_window : h->window;
}

static int check_window(const struct control_hello *h, struct control_refused *no)
{
	if (h->window < 1 || h->window > RS_WINDOW_MAX)
		return registry_refuse(no, RS_EINVAL, false, "a window of %u chunks is out of range 1 to %u", h->window,
				       RS_WINDOW_MAX);
	if (h->most_window && (h->most_window < h->window || h->most_window > RS_WINDOW_MAX))
		return registry_refuse(no, RS_EINVAL, false, "a largest window of %u chunks is out of range %u to %u",
				       h->most_window, h->window, RS_WINDOW_MAX);
	if (h->wanted_window && (h->wanted_window < h->window || h->wanted_window > hello_most_window(h)))
		return registry_refuse(no, RS_EINVAL, false,
				       "a window of %u chunks that would be used is out of range %u to %u",
				       h->wanted_window, h->window, hello_most_window(h));
	return RS_OK;
}

/* Checks the values of a HELLO against the limits. */
static int check_hello(const struct registry *r, const struct control_hello *h, struct control_refused *no)
{
	if (!h->job[0])
		return registry_refuse(no, RS_EPROTO, false, "HELLO names no job");
	if (!rs_job_valid(h->job))
		return registry_refuse(no, RS_EINVAL, false,
				       "\"%s\" is not a job name, expected letters, digits, '.', '_' and '-'", h->job);
	if (h->world_size < 1 || h->world_size > RS_WORLD_MAX)
		return registry_refuse(no, RS_EINVAL, false, "world size %u is out of range 1 to %u", h->world_size,
				       RS_WORLD_MAX);
	if (h->world_size > r->opt.limits.workers)
		return registry_refuse(no, RS_EREFUSED, false,
				       "job %s has %u workers, this reducer's server.max_workers allows %u", h->job,
				       h->world_size, r->opt.limits.workers);
	if (h->rank >= h->world_size)
		return registry_refuse(no, RS_EINVAL, false, "rank %u is out of range 0 to %u", h->rank,
				       h->world_size - 1);
	if (h->lanes < 1 || h->lanes > RS_LANES_MAX || h->lane >= h->lanes)
		return registry_refuse(no, RS_EINVAL, false, "lane %u of %u is out of range (at most %u lanes)",
				       h->lane, h->lanes, RS_LANES_MAX);
	if (h->chunk_bytes < RS_CHUNK_MIN || h->chunk_bytes > RS_CHUNK_MAX || h->chunk_bytes % 64)
		return registry_refuse(no, RS_EINVAL, false,
				       "chunks of %u bytes are not a multiple of 64 from %u to %u", h->chunk_bytes,
				       RS_CHUNK_MIN, RS_CHUNK_MAX);
	if (h->decoded_bytes % 64 || h->decoded_bytes > 8 * h->chunk_bytes)
		return registry_refuse(no, RS_EINVAL, false,
				       "decoded chunks of %u bytes are not a multiple of 64 up to %u, eight chunks",
				       h->decoded_bytes, 8 * h->chunk_bytes);
	if (check_window(h, no))
		return no->code;
	if (h->priorities < 1 || h->priorities > FRAME_PRIORITIES)
		return registry_refuse(no, RS_EINVAL, false, "%u priorities are out of range 1 to %u", h->priorities,
				       FRAME_PRIORITIES);
	if (h->processes < 1 || h->processes > 1 << 20)
		return registry_refuse(no, RS_EINVAL, false, "%u processes behind one worker are out of range 1 to %u",
				       h->processes, 1 << 20);
	if (h->detect_ms < 1)
		return registry_refuse(no, RS_EINVAL, false,
				       "a detection time of 0 ms is out of range, expected 1 ms or more");
	return registry_check_groups(h, no);
}

_Static_assert((int)CONTROL_RUN == (int)RS_RUN_MAX && (int)CONTROL_EVIDENCE == (int)RS_EVIDENCE_MAX,
	       "a HELLO can have what a rank can be given");

/* "rank 3 (pid 77 on HOST)" */
static void name_rank(char *buf, size_t size, unsigned rank, const char *label)
{
	snprintf(buf, size, "rank %u%s%.80s%s", rank, label[0] ? " (" : "", label, label[0] ? ")" : "");
}

/* Finds a rank of a job that belongs to another training than this HELLO, since its run
 * differs, or in the same generation its evidence. Returns its number, and fills *e with
 * a sentence; world_size: there is none. */
static unsigned find_stranger(const struct job *j, const struct control_hello *h, struct rs_err *e)
{
	const struct member *m = j->members, *mine = h->rank < j->first.world_size ? &m[h->rank] : NULL;
	bool same_run = strcmp(j->first.run, h->run) == 0, known = mine && mine->lanes;
	char here[CONTROL_LABEL], there[CONTROL_LABEL];

	if (same_run && (j->first.generation != h->generation || (known && mine->incarnation == h->incarnation)))
		return j->first.world_size; /* a restart, or one more lane of a rank */
	name_rank(here, sizeof here, h->rank, h->label);
	for (unsigned i = 0; i < j->first.world_size; i++, m++) {
		if (!m->lanes)
			continue;
		name_rank(there, sizeof there, i, m->label);
		if (same_run ? rs_evidence_check(h->job, here, h->evidence, there, m->evidence, e)
			     : rs_run_mismatch(h->job, here, h->run, there, j->first.run, e))
			return i;
	}
	return j->first.world_size;
}

/* Checks that the ranks of a job that has not ended belong to the training of this HELLO.
 * The job may be the same training before a restart that changed its run, so the worker
 * may retry: if it has a run and its generation is newer, or as long as no rank of the
 * job has shown that it is alive. A job that only gathers ends if the HELLO comes from a
 * job that runs on other reducers and returns to this one. */
static int check_training(struct registry *r, struct job *j, const struct control_hello *h, struct control_refused *no)
{
	struct rs_err e;
	unsigned there = find_stranger(j, h, &e);

	if (there == j->first.world_size)
		return RS_OK;
	if (h->rejoin && !j->first.rejoin && !j->running) {
		registry_end_job(r, j, &e, NULL);
		return registry_refuse(no, e.code, true, "%s", e.msg);
	}
	return registry_refuse(no, e.code,
			       (h->run[0] && j->first.generation < h->generation) || !registry_contend(r, j, h, there),
			       "%s", e.msg);
}

/* Returns whether a rank of the job is not connected, or the HELLO comes from the process
 * of its rank. */
static bool is_restart(const struct job *j, const struct control_hello *h)
{
	const struct member *own = h->rank < j->first.world_size ? &j->members[h->rank] : NULL;

	for (unsigned i = 0; i < j->first.world_size; i++)
		if (!j->members[i].lanes)
			return true;
	return own && h->label[0] && strcmp(own->label, h->label) == 0;
}

/* Checks that a HELLO with a newer generation may end the job. Without a run a single
 * process is one that somebody starts by hand, and no restart of a job that has several
 * ranks; and one of several processes is no restart while all ranks are connected. It may
 * retry: they may be about to restart too. A job whose ranks have died may end. */
static int check_newer(struct registry *r, const struct job *j, const struct control_hello *h,
		       struct control_refused *no)
{
	unsigned there = 0;

	if (h->run[0] || j->first.world_size == 1 || !j->running || j->ended || (h->world_size > 1 && is_restart(j, h)))
		return RS_OK;
	while (there + 1 < j->first.world_size && !j->members[there].lanes)
		there++;
	return registry_refuse(
	    no, RS_EREFUSED, h->world_size > 1 || !registry_contend(r, j, h, there),
	    "generation %u of job %s runs with %u ranks; rank %u of %u came with generation %u, and no "
	    "run tells that it is the same training: set REDUCTION_RUN to the same text on all its "
	    "ranks, or give this one its own job.name",
	    j->first.generation, h->job, j->first.world_size, h->rank, h->world_size, h->generation);
}

/* Finds the job of that name and generation. Ends an older generation; refuses if a newer
 * one runs, or this one has ended.
 */
static int find_job(struct registry *r, const struct control_hello *h, struct job **ret, struct control_refused *no)
{
	struct job *found = NULL;
	struct rs_err why;

	for (struct job *j = r->jobs; j; j = j->next) {
		if (strcmp(j->first.job, h->job) != 0 || job_is_left(j))
			continue;
		if (j->first.generation == h->generation && j->ended)
			return registry_refuse(
			    no, RS_EREFUSED, true,
			    "generation %u of job %s has ended (%s) and its workers have not all left yet",
			    h->generation, h->job, j->why.msg);
		if (!j->ended && check_training(r, j, h, no))
			return no->code;
		if (j->first.generation > h->generation && !j->ended)
			return registry_refuse(no, RS_EREFUSED, false,
					       "job %s is at generation %u already, rank %u came with generation %u",
					       h->job, j->first.generation, h->rank, h->generation);
		if (j->first.generation < h->generation && check_newer(r, j, h, no))
			return no->code;
		if (j->first.generation < h->generation) {
			rs_fail(&why, RS_ECLOSED, "generation %u of job %s has replaced generation %u", h->generation,
				h->job, j->first.generation);
			registry_end_job(r, j, &why, NULL);
		} else if (j->first.generation == h->generation) {
			found = j;
		}
	}

	*ret = found;
	return RS_OK;
}

static int open_job(struct registry *r, const struct control_hello *h, struct job **ret, struct control_refused *no)
{
	struct job fresh = {.first = *h, .window = h->window}, *j;
	uint64_t slots, bytes = registry_bound(r, &fresh, &slots), room = 0;

	if (r->memory < r->opt.limits.memory_bytes)
		room = r->opt.limits.memory_bytes - r->memory;
	if (r->draining)
		return registry_refuse(no, RS_ECLOSED, true, "this reducer is shutting down");
	if (r->jobs_n >= r->opt.limits.jobs)
		return registry_refuse(no, RS_EREFUSED, true,
				       "this reducer runs %u jobs, as many as its server.max_jobs allows", r->jobs_n);
	if (bytes > r->opt.limits.memory_bytes)
		return registry_refuse(no, RS_EREFUSED, false,
				       "job %s needs %" PRIu64
				       " bytes of memory, this reducer's server.memory is %" PRIu64
				       ": make %s, chunk_bytes or priorities smaller",
				       h->job, bytes, r->opt.limits.memory_bytes,
				       h->features & FEATURE_DECOUPLED ? "sharding.decoupled" : "sharding.window");
	if (bytes > room)
		return registry_refuse(no, RS_EREFUSED, true,
				       "job %s needs %" PRIu64 " bytes of memory, %" PRIu64
				       " of this reducer's server.memory are free",
				       h->job, bytes, room);

	j = malloc(sizeof *j);
	fresh.members = calloc(h->world_size, sizeof *fresh.members);
	fresh.memory = r->opt.alloc(r->opt.ctx, slots);
	if (!j || !fresh.members || !fresh.memory) {
		if (fresh.memory)
			r->opt.free(r->opt.ctx, fresh.memory, slots);
		free(fresh.members);
		free(j);
		return registry_refuse(no, RS_ENOMEM, true, "out of memory for job %s in this reducer", h->job);
	}

	fresh.memory_len = slots;
	fresh.bound = bytes;
	fresh.id = r->next_id++;
	fresh.opened_ms = r->now_ms;
	/* jobs with one lane each are distributed over the threads as well */
	fresh.base = (unsigned)(fresh.id % r->opt.threads);
	fresh.next = r->jobs;
	*j = fresh;
	r->jobs = j;
	r->jobs_n++;
	r->memory += bytes;
	registry_emit(r, j, (struct registry_action){.type = REGISTRY_OPENED});
	*ret = j;
	return RS_OK;
}

/* Returns whether a connection must show first that large messages pass: it brings this
 * reducer back to a job, which would otherwise stop for as long as it takes to lose it
 * again. */
static bool must_probe(const struct registry *r, const struct control_hello *h)
{
	return h->rejoin && (h->features & r->opt.features & FEATURE_PROBE);
}

static void join(struct job *j, const struct control_hello *h, bool probes)
{
	struct member *m = &j->members[h->rank];

	m->probing |= (uint64_t)probes << h->lane;
	j->probing += probes;
	m->incarnation = h->incarnation;
	m->features = m->lanes ? m->features & h->features : h->features;
	m->window = m->lanes && m->window > h->wanted_window ? m->window : h->wanted_window;
	m->most = m->lanes && m->most < hello_most_window(h) ? m->most : hello_most_window(h);
	m->lanes |= UINT64_C(1) << h->lane;
	m->processes = h->processes;
	memcpy(m->label, h->label, sizeof m->label);
	memcpy(m->evidence, h->evidence, sizeof m->evidence);
	j->sessions++;
	if ((unsigned)__builtin_popcountll(m->lanes) == h->lanes)
		j->complete++;
	if (j->complete_most < j->complete)
		j->complete_most = j->complete;
}

/* Ends a gathering job whose ranks say different world sizes: it can never be
 * complete. */
static void end_for_sizes(struct registry *r, struct job *j, const struct control_hello *h,
			  const struct control_refused *no)
{
	struct rs_err why;

	registry_remember_sizes(r, h, no->message);
	rs_fail(&why, RS_EMISMATCH, "%s", no->message);
	registry_end_job(r, j, &why, NULL);
}

/* A rank was refused for good: the ranks that wait for it hear at once why. Further
 * refusals wait for the next tick. */
static void report_refusal(struct registry *r, const struct control_hello *h, const struct control_refused *no)
{
	for (struct job *j = r->jobs; j; j = j->next) {
		bool first = !j->refused[0];

		if (j->running || j->ended || strcmp(j->first.job, h->job) != 0)
			continue;
		snprintf(j->refused, sizeof j->refused, "%s", no->message);
		rs_utf8_clean(j->refused);
		if (first)
			registry_send_waiting(r, j);
	}
}

int registry_hello(struct registry *r, const struct control_hello *h, struct registry_admit *ret,
		   struct control_refused *refused)
{
	struct job *j = NULL;
	int rc = check_hello(r, h, refused);
	const char *sizes = rc ? NULL : registry_find_sizes(r, h);

	if (!rc && h->relay)
		return registry_admit_uplink(r, h, ret, refused);
	if (sizes)
		return registry_refuse(refused, RS_EMISMATCH, false, "%s", sizes);
	if (!rc)
		rc = registry_check_relay(r, h, refused);
	if (!rc)
		rc = find_job(r, h, &j, refused);
	if (!rc)
		rc = registry_check_shared(j, h, refused);
	if (!rc)
		rc = j ? registry_check_joins(r, j, h, refused) : open_job(r, h, &j, refused);
	if (rc == RS_EMISMATCH && j && !j->running && j->first.world_size != h->world_size)
		end_for_sizes(r, j, h, refused);
	if (rc) {
		if (!refused->retry)
			report_refusal(r, h, refused);
		return rc;
	}
	join(j, h, must_probe(r, h));
	*ret = (struct registry_admit){
	    .stripe = registry_stripe(j, h->lane),
	    .session = {.rank = h->rank,
			.probe = must_probe(r, h),
			.group = h->groups ? h->group - 1 : 0,
			.keeps = h->features & r->opt.features & FEATURE_RECONFIGURE,
			.peer_detect_ms = h->detect_ms < 400       ? 400
					  : h->detect_ms > 3600000 ? 3600000
								   : h->detect_ms},
	    .thread = (j->base + h->lane) % r->opt.threads,
	    .features = registry_features(r, &j->first),
	};
	memcpy(ret->session.label, h->label, sizeof ret->session.label);
	return RS_OK;
}
