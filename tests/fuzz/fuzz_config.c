/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: any text is refused with a message, or accepted and then printed so that reading it gives the
 * same. */
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *print(const struct rs_config *cfg, size_t *ret_len)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_len);

	if (!out)
		abort();
	rs_config_print(cfg, out);
	if (fclose(out))
		abort();
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_config cfg, again;
	struct rs_err e = {0};
	size_t first_len, second_len;
	char *first, *second;
	int rc = rs_config_parse(&cfg, "fuzz", data, size, &e);

	if (rc) {
		if (rc != RS_ECONFIG || e.code != rc || strncmp(e.msg, "fuzz:", 5) != 0)
			abort();
		return 0;
	}
	first = print(&cfg, &first_len);
	if (rs_config_parse(&again, "again", first, first_len, &e))
		abort();
	second = print(&again, &second_len);
	if (strcmp(first, second) != 0 || rs_config_digest(&cfg) != rs_config_digest(&again))
		abort();
	free(first);
	free(second);
	rs_config_close(&cfg);
	rs_config_close(&again);
	return 0;
}
