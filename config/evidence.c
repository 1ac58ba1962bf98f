/* SPDX-License-Identifier: Apache-2.0 */
#include "config/evidence.h"

#include "config/run.h"

#include <stdio.h>
#include <string.h>

/* Where evidence is written, and what it is read from. */
struct evidence {
	char *ret;
	size_t len;
	rs_getenv_fn get;
	void *ctx;
};

static const char *evidence_look_up(const struct evidence *v, const char *name)
{
	return rs_launch_look_up(v->get, v->ctx, name);
}

/* Adds a piece; one that does not fit is left out. */
static void evidence_add(struct evidence *v, const char *name, const char *value, size_t value_len)
{
	char *at = v->ret + v->len;
	int n = snprintf(at, RS_EVIDENCE_MAX - v->len, "%s%s=%.*s", v->len ? " " : "", name, (int)value_len, value);

	if (n < 0 || (size_t)n >= RS_EVIDENCE_MAX - v->len) {
		*at = '\0';
		return;
	}
	for (size_t i = v->len > 0; i < (size_t)n; i++)
		if (at[i] <= 0x20 || at[i] >= 0x7f)
			at[i] = '?';
	v->len += (size_t)n;
}

/* "/tmp/torchelastic_x/9_y/attempt_0/1/error.json": torchrun makes the folder 9_y when it
 * starts, with a random part in its name. */
static void evidence_of_torchrun(struct evidence *v)
{
	const char *node = evidence_look_up(v, "GROUP_RANK"), *file = evidence_look_up(v, "TORCHELASTIC_ERROR_FILE");
	const char *end = file ? strstr(file, "/attempt_") : NULL, *from = end;
	char name[40];

	while (from && from > file && from[-1] != '/')
		from--;
	if (!node || !from || from == end)
		return;
	snprintf(name, sizeof name, "torchrun-of-node%s", node);
	evidence_add(v, name, from, (size_t)(end - from));
}

void rs_evidence_find(char ret[static RS_EVIDENCE_MAX], const struct rs_launch *launch, const char *space,
		      rs_getenv_fn get, void *ctx)
{
	struct evidence v = {.ret = ret, .get = get, .ctx = ctx};
	const char *port = evidence_look_up(&v, "MASTER_PORT");
	bool parts = evidence_look_up(&v, "SLURM_HET_SIZE") || evidence_look_up(&v, "SLURM_PACK_SIZE");
	char run[RS_RUN_MAX] = "";

	ret[0] = '\0';
	if (strcmp(launch->source, "torchrun") == 0) {
		if (port)
			evidence_add(&v, "MASTER_PORT", port, strlen(port));
		evidence_of_torchrun(&v);
	} else if (strcmp(launch->source, "none") != 0 && !(parts && strcmp(launch->source, "slurm") == 0)) {
		rs_run_detect(run, launch, &(struct rs_run_place){"", ""}, get, ctx);
		if (run[0])
			evidence_add(&v, "launcher", run, strlen(run));
	}
	if (space[0])
		evidence_add(&v, "namespace", space, strlen(space));
}

/* Returns the length of the piece at the beginning of a text. */
static size_t piece_len(const char *at)
{
	return strcspn(at, " ");
}

/* Returns the piece with the same name, "NAME=" of name_len bytes, or NULL. */
static const char *piece_find(const char *text, const char *name, size_t name_len)
{
	while (*text) {
		if (strncmp(text, name, name_len) == 0)
			return text;
		text += piece_len(text);
		text += *text == ' ';
	}
	return NULL;
}

int rs_evidence_check(const char *job, const char *one, const char *one_has, const char *other, const char *other_has,
		      struct rs_err *e)
{
	for (const char *a = one_has, *b; *a; a += piece_len(a), a += *a == ' ') {
		size_t len = piece_len(a), name = strcspn(a, "= ") + 1;

		if (name > len || !(b = piece_find(other_has, a, name)) ||
		    (piece_len(b) == len && strncmp(a, b, len) == 0))
			continue;
		return rs_fail(e, RS_EMISMATCH,
			       "two trainings use the job name %s and one run: %.*s is %.*s to %.100s, and %.*s to "
			       "%.100s. Give each start its own REDUCTION_RUN; one training has one %.*s on all ranks",
			       job, (int)name - 1, a, (int)(len - name), a + name, one, (int)(piece_len(b) - name),
			       b + name, other, (int)name - 1, a);
	}
	return RS_OK;
}
