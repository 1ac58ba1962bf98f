/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: any text is refused with a message, or accepted and then printed
 * so that reading it gives the same. */
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first of all errors, and what is reported of it. */
struct reports {
	struct rs_err first;
	unsigned n;
};

static void on_report(void *user, const struct rs_err *e)
{
	struct reports *r = user;

	if (r->n++ == 0)
		r->first = *e;
}

/* Reading for all errors comes to the same end as reading for the first one: rc and
 * *e. */
static void check_all(const uint8_t *data, size_t size, int rc, const struct rs_err *e)
{
	struct reports r = {.n = 0};
	struct rs_config cfg;
	struct rs_err last;
	int all = rs_config_parse_all(&cfg, "fuzz", data, size, on_report, &r, &last);

	if (all != rc || (!rc && r.n) || strcmp(r.n ? r.first.msg : rc ? last.msg : "", rc ? e->msg : "") != 0)
		abort();
	if (!all)
		rs_config_close(&cfg);
}

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

	check_all(data, size, rc, &e);
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
