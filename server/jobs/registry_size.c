/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose ranks say different world sizes. Such a job can never be complete, so it
 * ends for all its ranks at once, and ranks that come a little later hear of it, too. */
#include "server/jobs/registry_priv.h"

#include <stdio.h>
#include <string.h>

void registry_remember_sizes(struct registry *r, const struct control_hello *h, const char *message)
{
	struct registry_sizes *s = &r->sizes[r->sizes_next];

	r->sizes_next = (r->sizes_next + 1) % REGISTRY_SIZES;
	*s = (struct registry_sizes){.generation = h->generation, .until_ms = r->now_ms + REGISTRY_SIZES_MS};
	memcpy(s->job, h->job, sizeof s->job);
	memcpy(s->run, h->run, sizeof s->run);
	snprintf(s->message, sizeof s->message, "%s", message);
}

const char *registry_find_sizes(const struct registry *r, const struct control_hello *h)
{
	for (unsigned i = 0; i < REGISTRY_SIZES; i++) {
		const struct registry_sizes *s = &r->sizes[i];

		if (s->until_ms > r->now_ms && s->generation == h->generation && strcmp(s->job, h->job) == 0 &&
		    strcmp(s->run, h->run) == 0)
			return s->message;
	}
	return NULL;
}
