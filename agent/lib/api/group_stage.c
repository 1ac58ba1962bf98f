/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/lib/api/group_stage.h"

void group_stages_init(struct group_stages *s)
{
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->freed, NULL);
	s->limit = GROUP_STAGES;
}

void group_stages_free(struct group_stages *s, struct backend *b)
{
	for (unsigned i = 0; i < s->made; i++)
		b->v->free(b, s->all[i].memory);
	s->made = 0;
}

void group_stages_close(struct group_stages *s)
{
	pthread_cond_destroy(&s->freed);
	pthread_mutex_destroy(&s->lock);
}

static int group_stage_new(struct backend *b, struct group_stage *stage, struct rs_err *e)
{
	void *memory;
	int rc = b->v->alloc(b, GROUP_OP_MAX, &memory, e);

	if (rc)
		return rc;
	stage->memory = memory;
	return RS_OK;
}

int group_stages_take(struct group_stages *s, struct backend *b, struct group_stage **ret, struct rs_err *e)
{
	struct group_stage *stage;
	int rc = RS_OK;

	pthread_mutex_lock(&s->lock);
	while (!(stage = s->idle) && s->made < s->limit) {
		pthread_mutex_unlock(&s->lock);
		rc = group_stage_new(b, &s->all[s->made], e);
		pthread_mutex_lock(&s->lock);
		if (!rc) {
			stage = &s->all[s->made++];
			goto unlock;
		}
		if (s->made == 0)
			goto unlock;
		s->limit = s->made; /* continue with the stages that exist */
	}
	while (!(stage = s->idle))
		pthread_cond_wait(&s->freed, &s->lock);
	s->idle = stage->next;
	rc = RS_OK;
unlock:
	pthread_mutex_unlock(&s->lock);
	if (!rc)
		*ret = stage;
	return rc;
}

void group_stages_give(struct group_stages *s, struct group_stage *stage)
{
	pthread_mutex_lock(&s->lock);
	stage->next = s->idle;
	s->idle = stage;
	pthread_cond_signal(&s->freed);
	pthread_mutex_unlock(&s->lock);
}
