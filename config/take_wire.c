/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"

#include <string.h>

enum { TAKE_WIRE_MAX = 64 }; /* most bytes of the text, more than any good one has */

static int take_wire_fail(const char *text, const char *from, struct rs_err *e)
{
	return rs_fail(e, RS_ECONFIG,
		       "%s: found \"%.60s\", expected same, bf16, fp8, int8, fp16 or int4, or as "
		       "up=fp8,down=bf16,rounding=stochastic",
		       from, text);
}

int rs_config_take_wire(struct rs_config *cfg, const char *text, const char *from, struct rs_err *e)
{
	struct rs_config found = {0};
	char copy[TAKE_WIRE_MAX], *rest;

	if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy)
		return take_wire_fail(text, from, e);
	rest = strchr(copy, '=') ? copy : NULL;
	if (!rest && !value_parse(schema_find("job", "wire"), copy, &found))
		return take_wire_fail(text, from, e);
	while (rest) {
		char *word = strsep(&rest, ","), *value = word + strcspn(word, "=");
		const struct schema_key *key;

		if (*value)
			*value++ = '\0';
		key = schema_find("job.wire", word);
		if (!key || !value_parse(key, value, &found))
			return take_wire_fail(text, from, e);
	}
	cfg->job.wire_up = found.job.wire_up;
	cfg->job.wire_down = found.job.wire_down;
	cfg->job.wire_random = found.job.wire_random;
	cfg->job.wire_feedback = found.job.wire_feedback;
	return RS_OK;
}
