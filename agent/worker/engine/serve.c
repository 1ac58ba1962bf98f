/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/engine_uv.h"

/* Sends a chunk of each link, then the next of each. Reducers sum what all ranks have
 * sent, so the first chunks of all links should not wait for the second chunk of the
 * first link. */
void engine_serve(struct conn *const *conns, unsigned n, unsigned first)
{
	bool more = true;

	while (more) {
		more = false;
		for (unsigned i = 0; i < n; i++) {
			struct conn *c = conns[(first + i) % n];

			more |= c->ops->service(c);
		}
	}
}
