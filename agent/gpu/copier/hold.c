/* SPDX-License-Identifier: Apache-2.0 */
/* Words for which streams wait. A word only grows, so it can be used again at once: a stream that has not looked yet
 * finds more than it waits for. */
#include "agent/gpu/copier/state.h"

#include <stdlib.h>
#include <string.h>

enum { HOLD_BYTES = COPIER_HOLDS * sizeof(uint32_t), HOLD_ALIGN = 4096 };

/* Makes the words. With lock held. */
static int holds_new(struct copier *c, int device, struct rs_err *e)
{
	uint16_t *indices = malloc(COPIER_HOLDS * sizeof *indices);
	void *words = NULL;
	int rc;

	if (!indices || posix_memalign(&words, HOLD_ALIGN, HOLD_BYTES)) {
		free(indices);
		return rs_oom(e, COPIER_HOLDS * sizeof *indices, "streams that wait");
	}
	memset(words, 0, HOLD_BYTES);
	rc = cuda_pin(c->cuda, device, words, HOLD_BYTES, e);
	if (rc) {
		free(indices);
		free(words);
		return rc;
	}
	c->holds = words;
	c->hold_device = device;
	c->free_holds = indices;
	for (; c->free_holds_n < COPIER_HOLDS; c->free_holds_n++)
		indices[c->free_holds_n] = (uint16_t)c->free_holds_n;
	return RS_OK;
}

int copier_hold_take(struct copier *c, int device, struct copier_hold *ret, struct rs_err *e)
{
	int rc = RS_OK;

	pthread_mutex_lock(&c->lock);
	if (!c->holds)
		rc = holds_new(c, device, e);
	if (!rc && c->free_holds_n == 0)
		rc = rs_fail(e, RS_ENOMEM, "streams wait for %d requests already", COPIER_HOLDS);
	if (!rc) {
		ret->copier = c;
		ret->index = c->free_holds[--c->free_holds_n];
		ret->word = &c->holds[ret->index];
		ret->value = atomic_load(ret->word) + 1;
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int copier_hold_stream(const struct copier_hold *h, int device, void *stream, struct rs_err *e)
{
	struct copier *c = h->copier;

	pthread_mutex_lock(&c->lock);
	c->hold_devices |= UINT64_C(1) << device;
	pthread_mutex_unlock(&c->lock);
	return cuda_hold(c->cuda, device, stream, (void *)h->word, h->value, e);
}

void copier_hold_open(const struct copier_hold *h)
{
	struct copier *c = h->copier;

	atomic_store(h->word, h->value);
	pthread_mutex_lock(&c->lock);
	c->free_holds[c->free_holds_n++] = (uint16_t)h->index;
	pthread_mutex_unlock(&c->lock);
}

void copier_holds_free(struct copier *c)
{
	if (!c->holds)
		return;
	for (int i = 0; i < 64; i++)
		if (c->hold_devices >> i & 1)
			cuda_finish(c->cuda, i);
	cuda_unpin(c->cuda, c->hold_device, (void *)c->holds);
	free((void *)c->holds);
	free(c->free_holds);
}
