/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for `reductionctl render`: the first byte of the input says which options are
 * given; after it comes the text of the job, and behind a line "---" that of a table of
 * machines. Any text is refused with a message that names a file, or gives a job that can
 * be written in all forms, and whose YAML is read again without an error. */
#include "tests/fuzz/fuzz.h"

#include "deploy/ctl/render/render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *write_yaml(const struct render *r, size_t *ret_len)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_len);

	must(out);
	render_yaml(r, out);
	must(fclose(out) == 0);
	return text;
}

static void write_others(const struct render *r)
{
	FILE *out = fopen("/dev/null", "w");
	struct rs_err e = {0};

	must(out);
	must(render_gcloud(r, out, &e) == RS_OK || e.code == RS_ECONFIG);
	e = (struct rs_err){0};
	render_explain(r, out);
	must(render_sdk(r, out, &e) == RS_OK || e.code == RS_ECONFIG);
	fclose(out);
}

static void check_job(const struct render *r)
{
	size_t len, again_len;
	char *text = write_yaml(r, &len), *again;
	struct ydoc doc;
	struct render same = *r;
	struct rs_err e = {0};

	must(!r->enabled || (r->workers && r->reducers && r->image));
	must(!r->needed || (r->worker_rate && r->reducer_rate));
	must(!r->enabled || tree_at(r->pools, 2));
	write_others(r);
	if (len > YDOC_BYTES_MAX) { /* the reducers make it longer */
		free(text);
		return;
	}
	must(ydoc_parse(&doc, "again", "YAML", text, len, &e) == RS_OK);
	same.tree.doc = doc;
	again = write_yaml(&same, &again_len);
	must(len == again_len && strcmp(text, again) == 0);
	ydoc_close(&doc);
	free(text);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char line[] = "\n---\n";
	unsigned options = size ? data[0] : 0;
	struct render_options opt = {.count = options & 1 ? 3 : 0,
				     .image = options & 2 ? "image" : NULL,
				     .worker_rate = options & 4 ? 1000000000 : 0,
				     .reducer_rate = options & 8 ? 1000000000 : 0,
				     .secret = options & 16 ? "/secret" : NULL,
				     .price_worker = options & 32 ? 1 : 0};
	const uint8_t *job = size ? data + 1 : data, *table;
	size_t len = size ? size - 1 : 0, table_len = 0;
	struct render_machines machines = {.table = NULL};
	struct render r;
	struct rs_err e = {0};

	table = options & 64 ? memmem(job, len, line, sizeof line - 1) : NULL;
	if (table) {
		table_len = len - (size_t)(table - job) - (sizeof line - 1);
		len = (size_t)(table - job);
		if (render_machines_read(&machines, "table", table + sizeof line - 1, table_len, &e)) {
			must(e.code == RS_ECONFIG && strncmp(e.msg, "table:", 6) == 0);
			return 0;
		}
		opt.machines = &machines;
	}
	if (render_read(&r, &opt, "fuzz", job, len, &e)) {
		must(e.code == RS_ECONFIG && strncmp(e.msg, "fuzz:", 5) == 0);
	} else {
		check_job(&r);
		render_close(&r);
	}
	if (table)
		render_machines_close(&machines);
	return 0;
}
