/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/stage.h"
#include "agent/node/core/hub_state.h"
#include "common/assert.h"

#include <string.h>

static unsigned local_stage_class(size_t bytes)
{
	unsigned c = 0;

	while (((size_t)LOCAL_STAGE_MIN << c) < bytes)
		c++;
	rs_assert(c < LOCAL_STAGE_CLASSES);
	return c;
}

static size_t local_stage_bytes(unsigned c)
{
	return (size_t)LOCAL_STAGE_MIN << c;
}

bool local_stage_fits(const struct local_stages *s, size_t bytes)
{
	return s->busy_bytes == 0 || s->busy_bytes + local_stage_bytes(local_stage_class(bytes)) <= s->limit;
}

static void *local_stage_pop(struct local_stages *s, unsigned c)
{
	void *p = s->idle[c];

	if (p) {
		rs_assert(s->idle_bytes >= local_stage_bytes(c));
		memcpy(&s->idle[c], p, sizeof s->idle[c]);
		s->idle_bytes -= local_stage_bytes(c);
	}
	return p;
}

/* Frees idle stages until there is room for `bytes` more bytes. */
static void local_stage_trim(struct local_stages *s, size_t bytes, const struct local_hub *h)
{
	for (unsigned c = LOCAL_STAGE_CLASSES; c-- > 0;)
		while (s->idle[c] && s->busy_bytes + s->idle_bytes + bytes > s->limit)
			h->ports.stage_free(h->ctx, local_stage_pop(s, c), local_stage_bytes(c));
}

void *local_stage_take(struct local_stages *s, size_t bytes, const struct local_hub *h)
{
	unsigned c = local_stage_class(bytes);
	void *p = local_stage_pop(s, c);

	if (!p) {
		local_stage_trim(s, local_stage_bytes(c), h);
		p = h->ports.stage_new(h->ctx, local_stage_bytes(c));
	}
	if (p)
		s->busy_bytes += local_stage_bytes(c);
	return p;
}

void local_stage_give(struct local_stages *s, void *stage, size_t bytes)
{
	unsigned c = local_stage_class(bytes);

	rs_assert(s->busy_bytes >= local_stage_bytes(c));
	s->busy_bytes -= local_stage_bytes(c);
	s->idle_bytes += local_stage_bytes(c);
	memcpy(stage, &s->idle[c], sizeof s->idle[c]);
	s->idle[c] = stage;
}

void local_stages_close(struct local_stages *s, const struct local_hub *h)
{
	rs_assert(s->busy_bytes == 0);
	s->limit = 0;
	local_stage_trim(s, 0, h);
}
