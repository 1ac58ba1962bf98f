/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/service/status_reply.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16, BLOCK = 16 << 10 /* bytes */ };

/* Invariant: the last `left` of its bytes are free, and have the value 0. */
struct status_block {
	struct status_block *next;
	size_t size, left;
	_Alignas(ALIGNMENT) char bytes[];
};

void status_reply_init(struct status_reply *r)
{
	*r = (struct status_reply){.m = REDUCTION__V1__STATUS_REPLY__INIT};
}

void status_reply_free(struct status_reply *r)
{
	while (r->blocks) {
		struct status_block *b = r->blocks;

		r->blocks = b->next;
		free(b);
	}
}

void *status_reply_take(struct status_reply *r, size_t n)
{
	struct status_block *b = r->blocks;
	void *at;

	n = (n + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	if (!b || b->left < n) {
		size_t size = n > BLOCK ? n : BLOCK;

		b = calloc(1, sizeof *b + size);
		if (!b) {
			r->failed = true;
			return NULL;
		}
		b->size = b->left = size;
		b->next = r->blocks;
		r->blocks = b;
	}
	at = b->bytes + (b->size - b->left);
	b->left -= n;
	return at;
}

void *status_reply_message(struct status_reply *r, const ProtobufCMessageDescriptor *type)
{
	void *m = status_reply_take(r, type->sizeof_message);

	if (m)
		protobuf_c_message_init(type, m);
	return m;
}

void *status_reply_messages(struct status_reply *r, const ProtobufCMessageDescriptor *type, size_t n)
{
	void **array = status_reply_take(r, n * sizeof *array);

	for (size_t i = 0; array && i < n; i++)
		array[i] = status_reply_message(r, type);
	return r->failed ? NULL : array;
}

char *status_reply_text(struct status_reply *r, const char *text)
{
	size_t n = strlen(text) + 1;
	char *copy = status_reply_take(r, n);

	if (!copy)
		return NULL;
	memcpy(copy, text, n);
	rs_utf8_clean(copy);
	return copy;
}

static bool is_wanted(const char *name, const char *job)
{
	return !job || !job[0] || strcmp(name, job) == 0;
}

/* Puts the wanted jobs of a reducer into jobs[], for which there is room. */
static void pick_jobs(Reduction__V1__StatusReply *m, Reduction__V1__JobStatus **jobs, const char *job,
		      bool without_ranks)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n_jobs; i++) {
		m->jobs[i]->n_ranks = without_ranks ? 0 : m->jobs[i]->world_size;
		if (is_wanted(m->jobs[i]->name, job))
			jobs[n++] = m->jobs[i];
	}
	m->jobs = jobs;
	m->n_jobs = n;
}

/* The same, of an agent. */
static void pick_agent_jobs(Reduction__V1__AgentStatus *m, Reduction__V1__AgentJob **jobs, const char *job,
			    bool without_ranks)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n_jobs; i++) {
		m->jobs[i]->n_ranks = without_ranks ? 0 : m->jobs[i]->local_ranks;
		if (is_wanted(m->jobs[i]->name, job))
			jobs[n++] = m->jobs[i];
	}
	m->jobs = jobs;
	m->n_jobs = n;
}

struct service_bytes status_reply_pack(struct status_reply *r, const char *job, bool without_ranks)
{
	Reduction__V1__StatusReply m = r->m;
	Reduction__V1__AgentStatus agent = REDUCTION__V1__AGENT_STATUS__INIT;
	struct service_bytes bytes = {0};
	void *jobs;

	if (m.agent)
		agent = *m.agent;
	/* one more, so that an empty array is not NULL */
	jobs = calloc(m.n_jobs + agent.n_jobs + 1, sizeof(void *));
	if (!jobs || r->failed) {
		free(jobs);
		return bytes;
	}
	if (m.agent) {
		pick_agent_jobs(&agent, jobs, job, without_ranks);
		m.agent = &agent;
	} else {
		pick_jobs(&m, jobs, job, without_ranks);
	}
	bytes = service_pack(&m.base);
	free(jobs);
	return bytes;
}
