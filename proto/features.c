/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/features.h"

#include <stdio.h>

static const char *const features_names[] = {"start",  "probe", "nonfinite", "encodings", "reconfigure", "windows",
					     "shares", "slots", "sharded",   "decoupled", "relays"}; /* by bit */

enum { FEATURES_NAMED = sizeof features_names / sizeof features_names[0] };

_Static_assert(FEATURES_ALL >> FEATURES_NAMED == 0, "each feature of this release has a name");

const char *features_text(char *buf, size_t size, uint64_t set)
{
	size_t len = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < 64 && len < size; i++) {
		const char *between = len ? ", " : "";

		if (!(set >> i & 1))
			continue;
		if (i < FEATURES_NAMED)
			len += (size_t)snprintf(buf + len, size - len, "%s%s", between, features_names[i]);
		else
			len += (size_t)snprintf(buf + len, size - len, "%sfeature %u", between, i);
	}
	return buf;
}
