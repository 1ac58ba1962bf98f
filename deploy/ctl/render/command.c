/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/render/command.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A command that is read word by word. */
struct reader {
	struct tree *t;
	struct command_place *place;
	struct rs_err *e;
	const char *at, *end;
	unsigned line, column;
	struct ydoc_node *root, *spec, *pools;
	const struct ydoc_node *args, *command, *packages; /* of all pools; NULL: none */
	unsigned seen;                                     /* bit i: option i */
};

static int fail(const struct reader *r, const struct ydoc_node *word, const char *option, const char *what)
{
	return ydoc_fail(&r->t->doc, word, option, r->e, "found %s", what);
}

/* Returns the next byte without taking it; 0: the end. */
static char peek(const struct reader *r)
{
	return r->at < r->end ? *r->at : '\0';
}

static char take(struct reader *r)
{
	char c = peek(r);

	r->at += r->at < r->end;
	r->column = c == '\n' ? 1 : r->column + 1;
	r->line += c == '\n';
	return c;
}

/* Takes a backslash at the end of a line with that end. */
static bool take_continuation(struct reader *r)
{
	if (peek(r) != '\\' || r->at + 1 >= r->end || r->at[1] != '\n')
		return false;
	take(r);
	take(r);
	return true;
}

/* Skips what is between words; with `lines` also ends of lines and comments. */
static void skip_blanks(struct reader *r, bool lines)
{
	for (;;) {
		if (peek(r) == ' ' || peek(r) == '\t' || peek(r) == '\r' || (lines && peek(r) == '\n'))
			take(r);
		else if (lines && peek(r) == '#')
			while (peek(r) && peek(r) != '\n')
				take(r);
		else if (!take_continuation(r))
			return;
	}
}

/* Writes the part of a word in quotes that begins here. */
static int take_quoted(struct reader *r, const struct ydoc_node *word, FILE *out)
{
	char quote = take(r);

	while (peek(r) && peek(r) != quote) {
		char c = take(r);

		if (quote == '"' && (c == '$' || c == '`'))
			return fail(r, word, NULL, "a variable of the shell, expected its value; `sh -x` prints it");
		if (quote == '"' && c == '\\' && peek(r) && strchr("\"\\$`\n", peek(r))) {
			c = take(r);
			if (c == '\n')
				continue;
		}
		fputc(c, out);
	}
	return take(r) ? RS_OK : fail(r, word, NULL, "a quote without its end, expected both");
}

static int take_letters(struct reader *r, const struct ydoc_node *word, FILE *out)
{
	int rc = RS_OK;

	while (!rc && peek(r) && !strchr(" \t\r\n", peek(r))) {
		if (take_continuation(r))
			continue;
		if (peek(r) == '\'' || peek(r) == '"') {
			rc = take_quoted(r, word, out);
			continue;
		}
		if (peek(r) == '$' || peek(r) == '`')
			return fail(r, word, NULL, "a variable of the shell, expected its value; `sh -x` prints it");
		if (strchr(";|&<>()", peek(r)))
			return fail(r, word, NULL, "more than a command and its options, expected them alone");
		if (peek(r) == '\\')
			take(r);
		fputc(take(r), out);
	}
	return rc;
}

/* Takes the next word; *ret is NULL at the end of the command. */
static int take_word(struct reader *r, struct ydoc_node **ret)
{
	char *text = NULL;
	size_t len;
	FILE *out;
	int rc;

	skip_blanks(r, false);
	*ret = NULL;
	if (!peek(r) || peek(r) == '\n' || peek(r) == '#')
		return RS_OK;
	*ret = tree_text(r->t, "", true);
	out = *ret ? open_memstream(&text, &len) : NULL;
	if (!out)
		return rs_oom(r->e, 0, "the command");
	(*ret)->line = r->line;
	(*ret)->column = r->column;
	rc = take_letters(r, *ret, out);
	if (fclose(out) && !rc)
		rc = rs_oom(r->e, 0, "the command");
	if (rc) {
		free(text);
		return rc;
	}
	free((*ret)->text);
	(*ret)->text = text;
	return RS_OK;
}

/* Returns a text at the place of a word. */
static struct ydoc_node *text_at(struct reader *r, const struct ydoc_node *word, const char *text, bool quoted)
{
	struct ydoc_node *n = tree_text(r->t, text, quoted);

	if (n) {
		n->line = word->line;
		n->column = word->column;
	}
	return n;
}

/* Returns the value of a key that is a mapping or list, and makes it if need be. */
static struct ydoc_node *part_of(struct reader *r, struct ydoc_node *parent, const char *key, enum ydoc_kind kind,
				 const struct ydoc_node *word)
{
	struct ydoc_node *n = tree_get(parent, key);

	if (n)
		return n;
	n = tree_new(r->t, kind);
	if (n) {
		n->line = word->line;
		n->column = word->column;
	}
	tree_set(r->t, parent, key, n);
	return n;
}

/* Splits the first item off a list "a,b"; "^;^a;b" has another separator. Returns NULL at
 * the end. */
static char *split(char **list, char separator)
{
	char *item = *list, *end;

	if (!item)
		return NULL;
	end = strchr(item, separator);
	*list = end ? end + 1 : NULL;
	if (end)
		*end = '\0';
	return item;
}

static char separator_of(char **text)
{
	char separator = ',';

	if ((*text)[0] == '^' && (*text)[1] && (*text)[2] == '^') {
		separator = (*text)[1];
		*text += 3;
	}
	return separator;
}

static struct ydoc_node *list_of(struct reader *r, const struct ydoc_node *value)
{
	struct ydoc_node *list = tree_new(r->t, YDOC_LIST);
	char *text = value->text, separator = separator_of(&text), *item;

	if (list) {
		list->line = value->line;
		list->column = value->column;
	}
	while ((item = split(&text, separator)))
		tree_append(list, text_at(r, value, item, true));
	return list;
}

/* The keys of --worker-pool-spec, and where their values belong. */
static const struct {
	const char *key, *part, *field;
	bool number;
} pool_keys[] = {
    {"machine-type", "machineSpec", "machineType", false},
    {"accelerator-type", "machineSpec", "acceleratorType", false},
    {"accelerator-count", "machineSpec", "acceleratorCount", true},
    {"replica-count", NULL, "replicaCount", true},
    {"container-image-uri", "containerSpec", "imageUri", false},
    {"executor-image-uri", "pythonPackageSpec", "executorImageUri", false},
    {"python-module", "pythonPackageSpec", "pythonModule", false},
};

static int take_pool_key(struct reader *r, struct ydoc_node *pool, const struct ydoc_node *value, char *item)
{
	char *text = strchr(item, '='), option[96];
	size_t i = 0;

	if (text)
		*text++ = '\0';
	while (i < sizeof pool_keys / sizeof pool_keys[0] && strcmp(item, pool_keys[i].key) != 0)
		i++;
	snprintf(option, sizeof option, "--worker-pool-spec: %.60s", item);
	if (i == sizeof pool_keys / sizeof pool_keys[0])
		return fail(r, value, option,
			    "a key that no field of a job stands for (gcloud may build an image for it), expected "
			    "machine-type, replica-count, accelerator-type, accelerator-count, container-image-uri, "
			    "executor-image-uri and python-module");
	if (!text)
		return fail(r, value, option, "no value, expected one after \"=\"");
	if (strcmp(pool_keys[i].key, "accelerator-type") == 0)
		for (char *c = text; *c; c++)
			*c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
	tree_set(r->t, pool_keys[i].part ? part_of(r, pool, pool_keys[i].part, YDOC_MAPPING, value) : pool,
		 pool_keys[i].field, text_at(r, value, text, !pool_keys[i].number));
	return RS_OK;
}

static int take_pool(struct reader *r, const struct ydoc_node *value)
{
	struct ydoc_node *pool = tree_new(r->t, YDOC_MAPPING);
	char *text = value->text, separator = separator_of(&text), *item;
	int rc = RS_OK;

	if (!pool)
		return rs_oom(r->e, 0, "the command");
	pool->line = value->line;
	pool->column = value->column;
	tree_append(r->pools, pool);
	while (*value->text && !rc && (item = split(&text, separator)))
		rc = take_pool_key(r, pool, value, item);
	if (!rc && pool->child && !tree_get(pool, "replicaCount"))
		tree_set(r->t, pool, "replicaCount", text_at(r, value, "1", false));
	if (!rc && tree_get(tree_get(pool, "machineSpec"), "acceleratorType") &&
	    !tree_get(tree_get(pool, "machineSpec"), "acceleratorCount"))
		tree_set(r->t, tree_get(pool, "machineSpec"), "acceleratorCount", text_at(r, value, "1", false));
	return rc;
}

static int take_labels(struct reader *r, const struct ydoc_node *value)
{
	struct ydoc_node *labels = part_of(r, r->root, "labels", YDOC_MAPPING, value);
	char *text = value->text, separator = separator_of(&text), *item;

	while ((item = split(&text, separator))) {
		char *label = strchr(item, '=');

		if (!label)
			return fail(r, value, "--labels", "a label without value, expected one after \"=\"");
		*label++ = '\0';
		tree_set(r->t, labels, item, text_at(r, value, label, true));
	}
	return RS_OK;
}

enum target {
	TO_ROOT,
	TO_SPEC,
	TO_SWITCH,
	TO_KEY,
	TO_POOLS,
	TO_LABELS,
	TO_ARGS,
	TO_COMMAND,
	TO_PACKAGES,
	TO_REGION,
	TO_PROJECT
};

static const struct {
	const char *option;
	enum target target;
	const char *field;
} options[] = {
    {"display-name", TO_ROOT, "displayName"},
    {"labels", TO_LABELS, NULL},
    {"kms-key", TO_KEY, "kmsKeyName"},
    {"worker-pool-spec", TO_POOLS, NULL},
    {"args", TO_ARGS, NULL},
    {"command", TO_COMMAND, NULL},
    {"python-package-uris", TO_PACKAGES, NULL},
    {"service-account", TO_SPEC, "serviceAccount"},
    {"network", TO_SPEC, "network"},
    {"persistent-resource-id", TO_SPEC, "persistentResourceId"},
    {"enable-web-access", TO_SWITCH, "enableWebAccess"},
    {"enable-dashboard-access", TO_SWITCH, "enableDashboardAccess"},
    {"region", TO_REGION, NULL},
    {"project", TO_PROJECT, NULL},
};

static int take_value(struct reader *r, size_t i, struct ydoc_node *value)
{
	switch (options[i].target) {
	case TO_ROOT:
		tree_set(r->t, r->root, options[i].field, value);
		return RS_OK;
	case TO_SPEC:
		tree_set(r->t, r->spec, options[i].field, value);
		return RS_OK;
	case TO_KEY:
		tree_set(r->t, part_of(r, r->root, "encryptionSpec", YDOC_MAPPING, value), options[i].field, value);
		return RS_OK;
	case TO_POOLS:
		return take_pool(r, value);
	case TO_LABELS:
		return take_labels(r, value);
	case TO_ARGS:
		r->args = list_of(r, value);
		return RS_OK;
	case TO_COMMAND:
		r->command = list_of(r, value);
		return RS_OK;
	case TO_PACKAGES:
		r->packages = list_of(r, value);
		return RS_OK;
	case TO_REGION:
		r->place->region = value->text;
		return RS_OK;
	default:
		r->place->project = value->text;
		return RS_OK;
	}
}

/* Takes one option: "--name=value", "--name value", or "--switch". */
static int take_option(struct reader *r, struct ydoc_node *word)
{
	char *equals = strchr(word->text, '='), name[64];
	struct ydoc_node *value = NULL;
	size_t i = 0;
	int rc = RS_OK;

	snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - word->text : 60), word->text);
	while (i < sizeof options / sizeof options[0] &&
	       (strncmp(name, "--", 2) != 0 || strcmp(name + 2, options[i].option) != 0))
		i++;
	if (strcmp(name, "--config") == 0)
		return fail(r, word, name, "the name of a file, expected the job in that file as input of render");
	if (i == sizeof options / sizeof options[0])
		return fail(r, word, name, "an option that is no field of a job, expected none");
	if (r->seen >> i & 1 && options[i].target != TO_POOLS && options[i].target != TO_LABELS)
		return fail(r, word, name, "the option a second time, expected once");
	r->seen |= 1u << i;
	if (options[i].target == TO_SWITCH) {
		tree_set(r->t, r->spec, options[i].field, text_at(r, word, "true", false));
		return equals ? fail(r, word, name, "a value, expected none") : RS_OK;
	}
	if (equals)
		value = text_at(r, word, equals + 1, true);
	else
		rc = take_word(r, &value);
	if (rc || r->t->no_memory)
		return rc ? rc : rs_oom(r->e, 0, "the command");
	return value ? take_value(r, i, value) : fail(r, word, name, "no value, expected one");
}

/* Gives a list that the command has for all pools to each of them but the reducers. */
static void share(struct reader *r, const struct ydoc_node *list, const char *part, const char *field)
{
	unsigned i = 0;

	for (struct ydoc_node *pool = r->pools->child; list && pool; pool = pool->next)
		if (i++ != 2 && tree_get(pool, part))
			tree_set(r->t, tree_get(pool, part), field, tree_copy(r->t, list));
}

/* Takes "gcloud [beta] ai custom-jobs create" if it is there; *ret is the first word
 * after it. */
static int take_name(struct reader *r, struct ydoc_node **ret)
{
	static const char *const words[] = {"ai", "custom-jobs", "create"};
	struct ydoc_node *word;
	size_t i = 0;
	int rc;

	skip_blanks(r, true);
	rc = take_word(r, &word);
	if (!rc && word && strcmp(word->text, "+") == 0)
		rc = take_word(r, &word);
	*ret = word;
	if (rc || !word || strcmp(word->text, "gcloud") != 0)
		return rc;
	while (i < sizeof words / sizeof words[0]) {
		rc = take_word(r, &word);
		if (rc)
			return rc;
		if (i == 0 && word && (strcmp(word->text, "beta") == 0 || strcmp(word->text, "alpha") == 0))
			continue;
		if (!word || strcmp(word->text, words[i]) != 0)
			return fail(r, word ? word : *ret, NULL,
				    "another command, expected gcloud ai custom-jobs create; of a search, render the "
				    "file of --config");
		i++;
	}
	return take_word(r, ret);
}

static int read_options(struct reader *r)
{
	struct ydoc_node *word;
	int rc = take_name(r, &word);

	while (!rc && word) {
		rc = take_option(r, word);
		if (!rc)
			rc = take_word(r, &word);
	}
	if (rc)
		return rc;
	share(r, r->args, "containerSpec", "args");
	share(r, r->args, "pythonPackageSpec", "args");
	share(r, r->command, "containerSpec", "command");
	share(r, r->packages, "pythonPackageSpec", "packageUris");
	skip_blanks(r, true);
	r->root->line = r->spec->line = r->pools->line = 1;
	r->root->column = r->spec->column = r->pools->column = 1;
	if (!peek(r))
		return r->t->no_memory ? rs_oom(r->e, 0, "the command") : RS_OK;
	rc = take_word(r, &word);
	return rc ? rc : fail(r, word, NULL, "a second command, expected one; a line that goes on ends with \\");
}

bool command_is(const char *text, size_t len)
{
	static const char *const starts[] = {"gcloud ", "--worker-pool-spec", "+ gcloud "};
	struct reader r = {.at = text, .end = text + len};

	skip_blanks(&r, true);
	for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
		if ((size_t)(r.end - r.at) >= strlen(starts[i]) && memcmp(r.at, starts[i], strlen(starts[i])) == 0)
			return true;
	return false;
}

int command_read(struct tree *ret, struct command_place *place, const char *name, const char *text, size_t len,
		 struct rs_err *e)
{
	struct tree t = {.no_memory = false};
	struct reader r = {.t = &t, .place = place, .e = e, .at = text, .end = text + len, .line = 1, .column = 1};
	int rc;

	snprintf(t.doc.name, sizeof t.doc.name, "%.200s", name);
	if (len > YDOC_BYTES_MAX || memchr(text, '\0', len))
		return rs_fail(e, RS_ECONFIG, "%s: found %s, expected a command", t.doc.name,
			       len > YDOC_BYTES_MAX ? "256 KiB or more" : "a NUL");
	r.root = t.doc.root = tree_new(&t, YDOC_MAPPING);
	r.spec = tree_new(&t, YDOC_MAPPING);
	r.pools = tree_new(&t, YDOC_LIST);
	tree_set(&t, r.root, "jobSpec", r.spec);
	tree_set(&t, r.spec, "workerPoolSpecs", r.pools);
	rc = t.no_memory ? rs_oom(e, 0, "the command") : read_options(&r);
	if (rc) {
		ydoc_close(&t.doc);
		return rc;
	}
	*ret = t;
	return RS_OK;
}
